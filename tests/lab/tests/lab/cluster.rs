//! Several machines of one cluster: the first by an administrator, then a further server and a worker by the join service.

use lab::machine::{Firmware, Machine};
use serde_json::json;

use crate::factory::{Factory, assert_runs_on_its_disk, assert_runs_on_its_disk_as};

/// What a further server of k3s joins with.
const SERVER_TOKEN: &str = "K10abcd::server:of-the-lab";

/// The token that k3s was given, and the mode of its file.
fn token(machine: &Machine) -> (String, String) {
    let token = machine.ssh("cat /etc/rancher/k3s/token");
    (token, machine.ssh("stat --format %a /etc/rancher/k3s/token"))
}

// long: three machines, each switched on twice
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_cluster_begins_with_host_init_and_a_further_server_and_a_worker_follow_and_all_come_back() {
    let mut factory = Factory::start("a cluster", Firmware::Plain).await;
    let servers = factory.image_with("servers", &["ROLE=control-plane"]);
    let machines = ["cell-1", "cell-2", "cell-3"].map(|name| factory.machine(name));
    let [mut first, mut second, mut worker] = machines;
    // Without the disk of the first member, which no one knows before it was switched on.
    let enrolled = [(&first, true), (&second, true), (&worker, false)];
    let policy = factory.policy_of(&enrolled, &[&factory.uki, &servers]);
    factory.prepare_init(&policy).await;

    first.power_on(&servers, None);
    let directory = tempfile::tempdir().unwrap();
    factory.init(&first, &directory.path().join("kubeconfig"), &["--timeout", "30m"]).await;
    assert_runs_on_its_disk_as(&first, "server");

    // Its cluster has a join service from here on, with the token of that cluster's servers.
    let file = factory.site.trust().join(factory.site.uuid.to_string()).join("k3s-server-token");
    std::fs::write(&file, SERVER_TOKEN).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    factory.site.start_join_with_directory("k3s");
    second.power_on(&servers, None);
    let row = factory.host(&second, "a member", |row| row["state"] == "member").await;
    assert_eq!((&row["kind"], &row["role"]), (&json!("join"), &json!("control-plane")), "{row:#}");
    assert_runs_on_its_disk_as(&second, "server");
    assert_eq!(token(&second), (SERVER_TOKEN.to_owned(), "600".to_owned()));
    worker.power_on(&factory.uki, None);
    let row = factory.host(&worker, "a member", |row| row["state"] == "member").await;
    assert_eq!((&row["kind"], &row["role"]), (&json!("join"), &json!("worker")), "{row:#}");
    assert_runs_on_its_disk(&worker);
    let (bounded, mode) = token(&worker);
    assert!(bounded.starts_with("K10") && !bounded.contains("server") && mode == "600", "{mode}");
    assert_eq!(factory.site.tokens(), 0, "a worker's token ends with its join");

    // The join service knows the first member by the enrolment that `host init` has completed.
    for (machine, image, k3s) in
        [(&mut first, &servers, "server"), (&mut second, &servers, "server"), (&mut worker, &factory.uki, "agent")]
    {
        machine.power_cut();
        machine.power_on(image, None);
        factory.back_as(machine, k3s).await;
    }
}
