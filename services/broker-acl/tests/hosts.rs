//! Hosts with credentials of their own on a real Mosquitto with the generated access list: no one is another one.

use std::fs;
use std::path::Path;

use broker_acl::{Broker, Site, configuration};
use configdb_schema::address::{ClusterName, Organisation};

use crate::wire::{Server, connect, next_topic, publish, settle, subscribe};

const HOST: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const OTHER: &str = "6ba7b811-9dad-11d1-80b4-00c04fd430c8";
const SHARED: &str = "ACME-Paint-Join";

fn topic(kind: &str, node: &str) -> String {
    format!("spBv1.0/ACME-Paint-Join/{kind}/{node}")
}

fn server(directory: &Path, site: &Site) -> Server {
    let files = configuration(Broker::Mosquitto, site);
    let list = files.iter().find(|file| file.name == "sparkfleet.acl").unwrap();
    fs::write(directory.join("acl"), &list.text).unwrap();
    // A user is who it says it is: what is tried here is what its name may.
    let text = format!("user root\nlistener 0 {0}/mqtt\nallow_anonymous true\nacl_file {0}/acl\n", directory.display());
    fs::write(directory.join("mosquitto.conf"), text).unwrap();
    Server::start(&directory.join("mosquitto.conf"))
}

/// Which of these topics a user gets through to the join service.
fn gets_through(socket: &Path, user: &str, topics: &[String]) -> Vec<String> {
    let mut join = connect(socket, "join", Some("ACME-Paint"));
    assert!(subscribe(&mut join, "spBv1.0/ACME-Paint-Join/#"));
    for topic in topics {
        let mut client = connect(socket, "host", Some(user));
        publish(&mut client, topic, "x");
        settle(&mut client);
    }
    let last = topic("NCMD", "last");
    publish(&mut join, &last, "x");
    std::iter::repeat_with(|| next_topic(&mut join)).take_while(|topic| *topic != last).collect()
}

#[test]
fn a_host_publishes_and_receives_as_itself_and_only_with_shared_credentials_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("mqtt");
    let site = Site::new(Organisation::new("ACME").unwrap(), [ClusterName::new("Paint").unwrap()], [], []).unwrap();
    let kinds = ["NBIRTH", "NDATA", "NDEATH"];
    let own: Vec<String> = kinds.iter().map(|kind| topic(kind, HOST)).collect();
    let of_other: Vec<String> = kinds.iter().map(|kind| topic(kind, OTHER)).collect();
    let commands = vec![topic("NCMD", HOST), topic("NCMD", OTHER)];
    let all = [&own[..], &of_other, &commands].concat();

    let shared = server(directory.path(), &site);
    assert_eq!(gets_through(&socket, SHARED, &all), [own.clone(), of_other].concat());
    assert_eq!(gets_through(&socket, HOST, &all), Vec::<String>::new());
    drop(shared);

    fs::remove_file(&socket).unwrap();
    let _own = server(directory.path(), &site.with_own_hosts());
    assert_eq!(gets_through(&socket, HOST, &all), own);
    for stranger in [SHARED, "unknown"] {
        assert_eq!(gets_through(&socket, stranger, &all), Vec::<String>::new(), "{stranger}");
    }
    // A host receives what is said to it, whatever it asks for.
    let mut host = connect(&socket, "host", Some(HOST));
    for wide in ["#", "spBv1.0/ACME-Paint-Join/NCMD/+", &*commands[0], "spBv1.0/ACME-Paint-Join/DCMD/+/+"] {
        subscribe(&mut host, wide);
    }
    let mut join = connect(&socket, "join", Some("ACME-Paint"));
    for topic in [&commands[1], &own[0], &commands[0]] {
        publish(&mut join, topic, "x");
    }
    assert_eq!(next_topic(&mut host), commands[0]);
}
