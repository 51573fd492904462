//! The control plane itself.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kubernetes_tests::control_plane::ControlPlane;
use kubernetes_tests::definitions;
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "1" } })).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_control_plane_starts_answers_and_serves_the_definitions_of_flux_and_of_our_chart() {
    let plane = ControlPlane::start().await;
    definitions::apply_all(&plane).await;
    let version = plane.client().apiserver_version().await.unwrap();
    assert!(version.git_version.starts_with("v1."), "{version:?}");
    for (api_version, kind) in [
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository"),
        ("bitnami.com/v1alpha1", "SealedSecret"),
        ("factoryplus.app.amrc.co.uk/v1", "SparkplugNode"),
    ] {
        let api = definitions::api_everywhere(plane.client(), api_version, kind);
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 0, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn after_compaction_and_a_restart_of_the_api_server_a_watch_from_before_gets_410_and_nothing_is_lost() {
    let mut plane = ControlPlane::start().await;
    let maps = Api::<ConfigMap>::namespaced(plane.client(), "default");
    maps.create(&PostParams::default(), &config_map("first")).await.unwrap();
    let before = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    for number in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("more-{number}"))).await.unwrap();
    }
    plane.kill_api_server();
    assert!(maps.list(&ListParams::default()).await.is_err(), "a killed API server answers");
    plane.compact().await;
    plane.start_api_server().await;

    let found = maps.list(&ListParams::default()).await.unwrap();
    assert!(found.items.iter().any(|map| map.metadata.name.as_deref() == Some("first")));
    let code = match maps.watch(&WatchParams::default(), &before).await {
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
        Ok(events) => {
            use futures::TryStreamExt as _;
            let mut events = std::pin::pin!(events);
            match events.try_next().await {
                Ok(Some(WatchEvent::Error(status))) => status.code,
                Err(kube::Error::Api(status)) => status.code,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(code, 410);
}

#[test]
#[ignore = "needs real Kubernetes: make kubernetes"]
fn what_a_test_has_started_ends_with_the_test_also_when_that_panics() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (started, processes) = std::sync::mpsc::channel();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            let plane = ControlPlane::start().await;
            started.send(plane.process_ids()).unwrap();
            panic!("as a test that fails");
        });
    }));
    assert!(panicked.is_err());
    let processes = processes.recv().unwrap();
    assert_eq!(processes.len(), 3, "etcd, API server, controller-manager");
    for id in processes {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "process {id} is left");
    }
}
