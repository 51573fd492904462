//! Several machines of one cluster: the first by an administrator, then a further server and a worker by the join service.

use e2e::joining::CLUSTER;
use lab::machine::{Firmware, Machine};
use serde_json::json;

use crate::factory::{Factory, assert_outside, assert_runs_on_its_disk, assert_runs_on_its_disk_as};

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
    let servers = factory.image_of_servers();
    let machines = ["cell-1", "cell-2", "cell-3"].map(|name| factory.machine(name));
    let [mut first, mut second, mut worker] = machines;
    // There is no cluster, so no join service.
    factory.site.join.kill();
    let trust = factory.site.trust();
    let own = trust.join(factory.site.uuid.to_string());
    let (cluster, trust) = (factory.site.uuid.to_string(), trust.display().to_string());
    factory.site.cli.json(&["trust", "issue", &cluster, "--purpose", "cluster-admin", "--dir", &trust]).await;
    let mut policy = factory.policy(&[&first, &second, &worker]);
    policy["pcrs"]["11"]["expected"] = json!([factory.uki.register_11, servers.register_11]);
    for host in policy["endorsement"]["enrolled"].as_array_mut().unwrap() {
        // Without the disk of the first member, which no one knows before it was switched on.
        host["controlPlane"] = json!(host["host"] == "cell-1" || host["host"] == "cell-2");
    }
    factory.site.cli.json_with(&["policy", "set", CLUSTER, "-"], &policy.to_string()).await;

    first.power_on(&servers, None);
    first.until_journal("wait for an issuer", |text| text.contains("awaits-challenge"));
    assert_outside(&first);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig").display().to_string();
    let own_text = own.display().to_string();
    let init = ["host", "init", "cell-1", "--cluster", CLUSTER, "--name", "cell-1", "--trust", &own_text];
    let made = factory.site.cli.run(&[&init[..], &["--kubeconfig", &kubeconfig, "--timeout", "30m"]].concat()).await;
    assert_eq!(made.code, 0, "{made:#?}\n{}", first.diagnosis());
    assert_runs_on_its_disk_as(&first, "server");
    factory.say(&format!("the first member, {:.1} s after power-on", first.on_for().as_secs_f64()));

    // Its cluster has a join service from here on, with the token of that cluster's servers.
    let file = own.join("k3s-server-token");
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
