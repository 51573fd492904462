//! Copies that the cluster manager sends are served to clusters, whatever happens on the way, and while other services are away.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use git_server_contract::Kind;
use git_server_contract::pack::Pack;
use uuid::Uuid;

use crate::site::{LIMIT, MAIN, Site, client, clone, git};

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const HELM: Uuid = Uuid::from_u128(0x5);

fn content(directory: &std::path::Path) -> Vec<u8> {
    fs::read(directory.join("edo/a.yaml")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_read_what_the_cluster_manager_has_also_after_a_restart_without_it() {
    let mut site = Site::start().await;
    for (uuid, path, kind) in
        [(A, "cluster/A", Kind::Cluster), (B, "cluster/B", Kind::Cluster), (HELM, "shared/helm", Kind::Shared)]
    {
        site.create(uuid, path, kind);
        site.applied(uuid).await;
    }
    let (_keep, own) = clone(&site.url_of(A, "/git/cluster/A")).await.unwrap();
    let (_keep, shared) = clone(&site.url_of(A, "/git/shared/helm")).await.unwrap();
    assert_eq!((content(&own), content(&shared)), (b"a: 1\n".to_vec(), b"a: 1\n".to_vec()));
    assert!(clone(&site.url_of(A, "/git/cluster/B")).await.unwrap_err().contains("not found"));
    assert!(clone(&site.url(&A.to_string(), "wrong", "/git/cluster/A")).await.is_err());
    site.until("it is reported that the cluster asks", |books| books.copies[&A].polled.is_some()).await;
    assert!(site.books.lock().unwrap().copies[&B].polled.is_none());

    site.commit(A, MAIN, "edo/a.yaml", b"a: 2\n");
    site.applied(A).await;
    client(&["-C", own.to_str().unwrap(), "pull", "-q"]).await.unwrap();
    assert_eq!(content(&own), b"a: 2\n");

    // The cluster manager is away, and the git server starts again.
    site.stop_manager().await;
    site.stop_server().await;
    let desired = site.state_dir().join(format!("desired/{A}.json"));
    assert_eq!(fs::metadata(desired).unwrap().permissions().mode() & 0o777, 0o600);
    site.start_server();
    site.start_manager();
    site.until("it is born again", |books| books.is_complete).await;
    let url = site.url_of(A, "/git/cluster/A");
    site.stop_manager().await;
    let (_keep, again) = clone(&url).await.unwrap();
    assert_eq!(content(&again), b"a: 2\n");

    // Another password and another name, and then no longer.
    site.start_manager();
    site.change(A, |desired| {
        desired.password = desired.password.as_ref().map(|_| "00".repeat(32));
        desired.place.as_mut().unwrap().path = "cluster/New".to_owned();
    });
    site.applied(A).await;
    assert!(clone(&site.url_of(A, "/git/cluster/New")).await.is_err(), "the password is another one");
    site.change(B, |desired| (desired.place, desired.password) = (None, None));
    site.applied(B).await;
    assert!(clone(&site.url_of(B, "/git/cluster/B")).await.is_err());
    assert!(site.state_dir().join(format!("git/{B}.git")).is_dir(), "the storage stays");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_pack_arrives_although_parts_are_lost_repeated_and_changed() {
    let site = Site::start().await;
    site.books.lock().unwrap().on_the_way = Some(|number, part| match number % 5 {
        1 => vec![],
        2 => vec![part.clone(), part],
        3 => {
            let mut data = part.data.to_vec();
            data.reverse();
            let far = git_server_contract::PackPart { offset: part.total - 1, data: vec![1].into(), ..part.clone() };
            let other = git_server_contract::PackPart { digest: "0".repeat(64), data: data.into(), ..part.clone() };
            if part.offset == 0 { vec![far, part] } else { vec![other, far, part] }
        }
        _ => vec![part],
    });
    site.create(A, "cluster/A", Kind::Cluster);
    let mut noise = vec![0; 1_500_000];
    aws_lc_rs::rand::fill(&mut noise).unwrap();
    site.commit(A, MAIN, "edo/noise", &noise);
    site.applied(A).await;
    let (_keep, own) = clone(&site.url_of(A, "/git/cluster/A")).await.unwrap();
    assert_eq!(fs::read(own.join("edo/noise")).unwrap(), noise);
    let parts = site.books.lock().unwrap().parts;
    // Of five parts the first is lost: each four that arrive take one more.
    let arrived = noise.len().div_ceil(git_server_contract::pack::PART_BYTES_MAX);
    assert!(parts >= arrived + arrived.div_ceil(4), "lost parts are sent again: {parts}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_pack_that_is_not_what_it_should_be_nothing_is_served() {
    let site = Site::start().await;
    site.create(A, "cluster/A", Kind::Cluster);
    site.applied(A).await;
    let directory = site.books.lock().unwrap().originals[&A].directory.clone();
    let commit = site.books.lock().unwrap().originals[&A].desired.refs[MAIN].clone();
    let lone = git(&directory, &["pack-objects", "--stdout", "-q"], format!("{commit}\n").as_bytes());
    for (bad, what) in [(b"no pack".to_vec(), "a pack is not taken"), (lone, "")] {
        site.books.lock().unwrap().originals.get_mut(&A).unwrap().other_pack = Some(Pack::new(bad.into()));
        site.commit(A, MAIN, "edo/a.yaml", b"a: 2\n");
        let is_reported = |books: &crate::site::Books| {
            let copy = &books.copies[&A];
            copy.missing
                && copy.version == books.originals[&A].desired.version
                && (what.is_empty() || copy.reason.as_ref().is_some_and(|reason| reason.contains(what)))
        };
        site.until("it is reported", is_reported).await;
        let (_keep, own) = clone(&site.url_of(A, "/git/cluster/A")).await.unwrap();
        assert_eq!(content(&own), b"a: 1\n", "it reads what there was");
        site.books.lock().unwrap().originals.get_mut(&A).unwrap().other_pack = None;
        site.commit(A, MAIN, "edo/a.yaml", b"a: 1\n");
        site.applied(A).await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_lost_or_damaged_comes_again() {
    let mut site = Site::start().await;
    for (uuid, path) in [(A, "cluster/A"), (B, "cluster/B")] {
        site.create(uuid, path, Kind::Cluster);
        site.commit(uuid, MAIN, "edo/a.yaml", b"a: 2\n");
        site.applied(uuid).await;
    }
    site.stop_server().await;
    fs::remove_dir_all(site.state_dir().join(format!("git/{A}.git"))).unwrap();
    fs::write(site.state_dir().join(format!("git/{B}.git/packed-refs")), "rubbish\n").unwrap();
    site.start_server();
    for uuid in [A, B] {
        site.commit(uuid, MAIN, "edo/a.yaml", b"a: 3\n");
        site.applied(uuid).await;
    }
    // Objects are gone from under a reference, as after a defect of the disk.
    site.stop_server().await;
    let objects = site.state_dir().join(format!("git/{A}.git/objects/pack"));
    for file in fs::read_dir(&objects).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    site.start_server();
    site.commit(A, MAIN, "edo/a.yaml", b"a: 4\n");
    site.applied(A).await;
    for (uuid, path, release) in [(A, "/git/cluster/A", b"a: 4\n"), (B, "/git/cluster/B", b"a: 3\n")] {
        let (_keep, own) = clone(&site.url_of(uuid, path)).await.unwrap();
        assert_eq!(content(&own), release);
    }
    // All of it is gone.
    site.stop_server().await;
    fs::remove_dir_all(site.state_dir()).unwrap();
    site.start_server();
    for (uuid, path) in [(A, "/git/cluster/A"), (B, "/git/cluster/B")] {
        site.until("another process is born", |books| {
            books.copies.get(&uuid).is_some_and(|copy| copy.state() == "served")
        })
        .await;
        site.commit(uuid, MAIN, "edo/a.yaml", b"a: 5\n");
        site.applied(uuid).await;
        let (_keep, own) = clone(&site.url_of(uuid, path)).await.unwrap();
        assert_eq!(content(&own), b"a: 5\n");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_repositories_come_and_are_there_after_a_restart() {
    let mut site = Site::start().await;
    let all: Vec<Uuid> = (1..=1_000).map(|number| Uuid::from_u128(0x1000 + number)).collect();
    site.create(all[0], "cluster/C0", Kind::Cluster);
    {
        // They have the same content: what counts is their number.
        let mut books = site.books.lock().unwrap();
        books.repeat = Some(LIMIT);
        let first = books.originals[&all[0]].clone();
        for (number, uuid) in all.iter().enumerate().skip(1) {
            let mut original = first.clone();
            original.desired.repository = *uuid;
            original.desired.place.as_mut().unwrap().path = format!("cluster/C{number}");
            books.originals.insert(*uuid, original);
        }
    }
    let is_served = |books: &crate::site::Books| {
        books.is_complete && books.copies.len() == 1_000 && books.copies.values().all(|copy| copy.state() == "served")
    };
    let began = std::time::Instant::now();
    site.until_within(10 * LIMIT, "all are served", is_served).await;
    let came = began.elapsed();
    site.stop_server().await;
    let began = std::time::Instant::now();
    site.start_server();
    site.until("all are served again", is_served).await;
    eprintln!("1,000 copies came in {came:?}, and were there {:?} after a restart", began.elapsed());
    site.stop().await;
}
