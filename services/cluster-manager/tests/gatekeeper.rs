//! Who may read and push over git, by what the state answers.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use cluster_manager::adapters::gatekeeper::StateGatekeeper;
use cluster_manager::git_users::RepositoryPush;
use git_hosting::gatekeeper::{AdmissionRequest, Denial, Gatekeeper as _, Push};
use git_hosting::repositories::{Kind, Open};
use uuid::Uuid;

use crate::state_client;

const A: Uuid = Uuid::from_u128(0xA);
const SHARED: Uuid = Uuid::from_u128(0x5);

fn repository(kind: Kind, path: &str) -> Open {
    let uuid = if kind == Kind::Cluster { A } else { SHARED };
    Open { uuid, kind, path: path.to_owned(), directory: PathBuf::new() }
}

fn request(token: &str, repository: Option<Open>, push: bool) -> AdmissionRequest {
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    AdmissionRequest { repository, credential: state_client::token(token).into(), from, push }
}

#[tokio::test]
async fn users_are_admitted_as_far_as_their_tokens_go_and_pushes_are_reported() {
    let (state_client, pushes) = state_client::start();
    let gatekeeper = state_client::gatekeeper(state_client);

    let own = || Some(repository(Kind::Cluster, "cluster/A"));
    let shared = || Some(repository(Kind::Shared, "shared/helm"));
    let admit = async |token, repository, push| {
        gatekeeper.admit(request(token, repository, push)).await.map(|admission| admission.pulled)
    };
    let granted = Ok([state_client::PULLED.to_owned()].into());
    assert_eq!(admit("viewer", own(), false).await, granted);
    assert_eq!(admit("operator", own(), true).await, granted);
    assert_eq!(admit("operator", shared(), true).await, granted);
    assert_eq!(admit("unknown", own(), false).await, Err(Denial::Unknown));
    for repository in [own(), None] {
        assert_eq!(admit("b-only", repository, true).await, Err(Denial::NotFound), "the two answers do not differ");
    }
    let Err(Denial::Forbidden(reason)) = admit("viewer", own(), true).await else { panic!("viewers do not push") };
    assert!(reason.contains("push needs the scope operator"), "{reason}");
    let no_token = AdmissionRequest { credential: "geheim".to_owned().into(), ..request("x", own(), true) };
    assert_eq!(gatekeeper.admit(no_token).await.unwrap_err(), Denial::NotACredential);

    let admission = gatekeeper.admit(request("operator", own(), true)).await.unwrap();
    let (who, from, after) = (admission.who, IpAddr::V4(Ipv4Addr::LOCALHOST), Some("c0ffee".to_owned()));
    let push = Push { repository: own().unwrap(), who, from, before: None, after: after.clone() };
    assert!(gatekeeper.pushed(push).await);
    assert_eq!(*pushes.lock().unwrap(), [RepositoryPush { repository: A, shared: false, before: None, after }]);
}

#[tokio::test]
async fn what_clusters_follow_elsewhere_takes_no_pushes_here() {
    let own = state_client::gatekeeper(state_client::start().0);
    let gatekeeper = StateGatekeeper { has_external: true, ..own };
    for repository in [repository(Kind::Cluster, "cluster/A"), repository(Kind::Shared, "shared/helm")] {
        let denied = gatekeeper.admit(request("operator", Some(repository.clone()), true)).await.unwrap_err();
        assert!(matches!(&denied, Denial::Forbidden(reason) if reason.ends_with("push there")), "{denied:?}");
        assert!(gatekeeper.admit(request("operator", Some(repository), false)).await.is_ok(), "it can be read");
    }
    let other = repository(Kind::Shared, "shared/charts");
    assert!(gatekeeper.admit(request("operator", Some(other), true)).await.is_ok());
}
