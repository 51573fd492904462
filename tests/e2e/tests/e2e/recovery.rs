//! ConfigDB is restored from a backup, or lost, while clusters live: nothing is deleted without a request, the clusters show as held, and an operator's decision ends the hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::edge::Edge;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::wait;
use serde_json::Value;
use simulator::cluster::SimulatedCluster;
use uuid::Uuid;

const CLUSTER: Uuid = uuid::uuid!("c1000000-0000-4000-8000-00000000000a");

/// A control plane, and a cluster `Alpha` with two deployments, of which a backup of ConfigDB knows the first.
struct Factory {
    cli: Cli,
    central: CentralServices,
    edge: Edge,
    recorder: Recorder,
    _broker: Mosquitto,
}

impl Factory {
    async fn start() -> Self {
        let broker = Mosquitto::start();
        let recorder = Recorder::start(broker.address()).await;
        let central = CentralServices::start(broker.address(), free_port());
        let cli = Cli::new(&format!("mqtt://{}", broker.address()));
        cli.json(&["cluster", "create", "Alpha", "--uuid", &CLUSTER.to_string()]).await;
        let password = central.git_password(CLUSTER).await;
        let link = set_up(&cli).await;
        let edge = Edge::start("Alpha", 1, &link, &password, broker.address()).await;
        let factory = Self { cli, central, edge, recorder, _broker: broker };
        factory.deploy("Oven_1").await;
        // ConfigDB and its writers continue meanwhile.
        let (file, state) = (factory.backup(), factory.central.state_dir("configdb"));
        let made = factory.cli.json(&["config", "backup", path(&file), "--state", path(&state)]).await;
        assert!(made["backup"]["revision"].as_u64() > Some(0), "{made:#}");
        factory.deploy("Oven_2").await;
        factory
    }

    fn backup(&self) -> PathBuf {
        self.central.directory().join("backup.sqlite")
    }

    async fn deploy(&self, name: &str) {
        let create = ["deployment", "create", name, "--cluster", "Alpha", "--wait", "--timeout", "120s"];
        assert_eq!(self.cli.json(&create).await["state"], "ready");
    }

    async fn stop_configdb(&self) {
        assert!(self.central.processes.kill("configdb"));
    }

    /// ConfigDB comes back with the database of the backup, but with the bdSeq that it was at.
    async fn restore(&self) {
        let (file, state) = (self.backup(), self.central.state_dir("configdb"));
        let arguments = ["config", "restore", path(&file), "--state", path(&state)];
        self.cli
            .run(&[&arguments[..], &["--yes"]].concat())
            .await
            .refused(5, "another process holds it; stop that one first");
        self.stop_configdb().await;
        self.cli.run(&arguments).await.refused(2, "add --yes to restore: backup: store ");
        let restored = self.cli.json(&[&arguments[..], &["--yes"]].concat()).await;
        let (backup, replaced) = (&restored["restored"], &restored["replaced"]);
        assert_eq!(backup["store"], replaced["store"]);
        assert!(backup["revision"].as_u64() < replaced["revision"].as_u64(), "{restored:#}");
        assert!(Path::new(restored["kept"].as_str().unwrap()).is_file(), "{restored:#}");
        self.central.processes.restart("configdb");
    }

    /// The cluster as `cluster list` has it, once it is held, or not any more.
    async fn row(&self, is_held: bool) -> Value {
        self.row_that(&format!("Alpha to be held: {is_held}"), |row| row["held"].is_string() == is_held).await
    }

    /// The cluster as `cluster list` has it, once it is so.
    async fn row_that(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + wait::PATIENCE;
        let mut last = String::new();
        while Instant::now() < until {
            let listed = self.cli.run(&["cluster", "list", "--output", "json"]).await;
            let rows: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap_or_default();
            if let Some(row) = rows.into_iter().find(|row| row["name"] == "Alpha" && is_so(row)) {
                return row;
            }
            last = listed.stdout + &listed.stderr;
            tokio::time::sleep(wait::LOOK).await;
        }
        panic!("waited for {what}\n{last}\n{}", self.central.processes.tails());
    }

    async fn held(&self) -> Value {
        self.row(true).await
    }

    fn running(&self) -> Vec<String> {
        running(&self.edge.cluster)
    }

    /// Deaths of deployments that the edge has published.
    fn deletions(&self) -> usize {
        let of_deployment = "spBv1.0/ACME-Alpha/DDEATH/Sync/deployment-";
        self.recorder.messages().iter().filter(|message| message.topic.starts_with(of_deployment)).count()
    }

    /// Commit of the cluster's repository.
    fn main(&self) -> String {
        let directory = self.central.state_dir("cluster-manager").join(format!("git/{CLUSTER}.git"));
        fs::read_to_string(directory.join("refs/heads/main")).unwrap()
    }

    async fn main_that(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let what = format!("the repository to have {what}");
        wait::until(&what, || is_so(&self.main()).then_some(()), || self.central.processes.tails()).await;
    }

    fn assert_untouched(&self) {
        assert_eq!(self.running(), ["Oven_1", "Oven_2"]);
        assert_eq!(self.deletions(), 0);
    }

    async fn adopt(&self) {
        self.cli.json(&["recover", "adopt", "Alpha", "--timeout", "120s"]).await;
        self.assert_untouched();
        let listed = self.cli.json(&["deployment", "list"]).await;
        let names: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Oven_1", "Oven_2"]);
        self.row(false).await;
        // What is asked for from here on is done.
        self.cli.json(&["deployment", "delete", "Alpha/Oven_2", "--wait", "--timeout", "120s"]).await;
        assert_eq!((self.running(), self.deletions()), (vec!["Oven_1".to_owned()], 1));
    }

    async fn end(self) {
        self.edge.stop().await;
    }
}

async fn set_up(cli: &Cli) -> String {
    let until = Instant::now() + wait::PATIENCE;
    while Instant::now() < until {
        let setup = cli.run(&["config", "get", &CLUSTER.to_string(), "EdgeClusterSetup", "--output", "json"]).await;
        let setup: Value = serde_json::from_str(&setup.stdout).unwrap_or_default();
        if setup["ready"] == true {
            return setup["self_link"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(wait::LOOK).await;
    }
    panic!("Alpha is not set up")
}

fn is_database(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("configdb.sqlite"))
}

/// ConfigDB loses its database.
pub fn remove_database(state: &Path) {
    for path in fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_database(path)) {
        fs::remove_file(path).unwrap();
    }
}

/// Names of the deployments that Kubernetes has at the edge.
pub fn running(cluster: &SimulatedCluster) -> Vec<String> {
    let releases = cluster.kubernetes().list("helm.toolkit.fluxcd.io/v2", "HelmRelease", None);
    let name =
        |release: &Value| Some(release.pointer("/metadata/annotations/sparkfleet.io~1name")?.as_str()?.to_owned());
    let mut names: Vec<String> = releases.iter().filter_map(|release| name(release)).collect();
    names.sort();
    names
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_older_than_a_deployment_deletes_nothing_and_adopt_brings_it_back() {
    let factory = Factory::start().await;
    factory.restore().await;
    let held = factory.held().await;
    assert!(held["held"].as_str().unwrap().contains("older"), "{held:#}");
    assert!(held["alerts"].as_u64() >= Some(1), "{held:#}");
    factory.assert_untouched();
    let status = factory.cli.json(&["recover", "status", "Alpha"]).await;
    assert_eq!(status[0]["only_at_edge"][0]["name"], "Oven_2", "{status:#}");
    factory.adopt().await;
    factory.end().await;
}

/// Flux follows the repository by itself, so what the older ConfigDB wants must not be in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_older_than_a_cluster_changes_nothing_in_its_repository_until_an_operator_decides() {
    let factory = Factory::start().await;
    let before = factory.main();
    let changed = r#"{"values": {"nodeSelector": {"press": "1"}}}"#;
    factory.cli.json_with(&["config", "patch", &CLUSTER.to_string(), "EdgeCluster", "-"], changed).await;
    factory.main_that("another commit", |main| main != before).await;
    let newest = factory.main();
    factory.restore().await;
    factory.held().await;
    factory.central.processes.kill("cluster-manager");
    factory.central.processes.restart("cluster-manager");
    let held = factory.held().await;
    assert!(held["held"].as_str().unwrap().contains("older"), "{held:#}");
    assert_eq!(factory.main(), newest);
    let status = factory.cli.json(&["recover", "status", "Alpha"]).await;
    assert!(status[0]["held"].is_string(), "{status:#}");
    factory.adopt().await;
    factory.main_that("what was decided", |main| main != newest).await;
    factory.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_held_is_deleted_once_its_operator_names_what_runs_there() {
    let factory = Factory::start().await;
    factory.restore().await;
    factory.held().await;
    let refused = factory.cli.run(&["cluster", "delete", "Alpha"]).await;
    refused.refused(5, "Alpha has deployments: Oven_1");
    factory.cli.json(&["deployment", "delete", "Alpha/Oven_1"]).await;
    let refused = factory.cli.run(&["cluster", "delete", "Alpha"]).await;
    refused.refused(5, "does not know: Oven_1, Oven_2; look at them with `sparkfleet recover status Alpha`");
    factory.assert_untouched();
    factory.cli.json(&["cluster", "delete", "Alpha", "--with-deployments", "--wait", "--timeout", "120s"]).await;
    assert!(factory.running().is_empty());
    factory.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_from_before_a_deployment_loaded_into_an_empty_store_deletes_nothing() {
    let factory = Factory::start().await;
    // The dump is of the store without the second deployment.
    let dump = factory.cli.json(&["config", "dump"]).await;
    let second = factory.cli.json(&["deployment", "show", "Alpha/Oven_2"]).await["deployment"]["uuid"].clone();
    let second = second.as_str().unwrap();
    let mut dump = dump;
    for of_application in dump["configs"].as_object_mut().unwrap().values_mut() {
        of_application.as_object_mut().unwrap().shift_remove(second);
    }
    factory.stop_configdb().await;
    remove_database(&factory.central.state_dir("configdb"));
    new_store(&factory).await;
    factory.cli.json_with(&["config", "load", "-"], &dump.to_string()).await;
    let held = factory.held().await;
    assert!(held["held"].as_str().unwrap().contains("another store"), "{held:#}");
    factory.assert_untouched();
    factory.adopt().await;
    factory.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_store_with_the_clusters_old_name_deletes_nothing_and_discard_asks_first() {
    let factory = Factory::start().await;
    factory.stop_configdb().await;
    remove_database(&factory.central.state_dir("configdb"));
    new_store(&factory).await;
    factory.cli.json(&["cluster", "create", "Alpha", "--uuid", &CLUSTER.to_string()]).await;
    let held = factory.held().await;
    assert!(held["held"].as_str().unwrap().contains("another store"), "{held:#}");
    factory.assert_untouched();
    let refused = factory.cli.run(&["recover", "discard", "Alpha"]).await;
    refused.refused(2, "--yes");
    factory.assert_untouched();
    factory.cli.json(&["recover", "discard", "Alpha", "--yes", "--timeout", "120s"]).await;
    wait::until("the deployments to be deleted", || factory.running().is_empty().then_some(()), String::new).await;
    factory.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_control_plane_is_rebuilt_from_what_the_edge_keeps() {
    let factory = Factory::start().await;
    factory.stop_configdb().await;
    remove_database(&factory.central.state_dir("configdb"));
    new_store(&factory).await;
    factory.adopt().await;
    factory.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_dies_while_another_store_answers_is_away_after_the_restore_and_every_list_is_answered() {
    let factory = Factory::start().await;
    factory.stop_configdb().await;
    remove_database(&factory.central.state_dir("configdb"));
    new_store(&factory).await;
    factory.row_that("Alpha to be known by its edge alone", |row| row["setup"] == "not desired").await;
    assert!(factory.edge.processes.kill("edge-sync") && factory.edge.processes.kill("edge-monitor"));
    factory.stop_configdb().await;
    let (file, state) = (factory.backup(), factory.central.state_dir("configdb"));
    factory.cli.json(&["config", "restore", path(&file), "--state", path(&state), "--yes"]).await;
    factory.central.processes.restart("configdb");
    let is_away = |row: &Value| row["alive"] == false && row["seen"] == true && row["setup"] == "ready";
    factory.row_that("Alpha to be away", is_away).await;
    for list in ["cluster", "deployment", "host", "alert"] {
        factory.cli.json(&[list, "list"]).await;
    }
    factory.assert_untouched();
}

#[tokio::test]
async fn a_list_shows_what_is_known_while_configdb_is_away_and_waits_for_it_only_when_asked() {
    let factory = Factory::start().await;
    factory.stop_configdb().await;
    let known = factory.cli.run(&["cluster", "list"]).await;
    assert_eq!(known.code, 0, "{known:?}");
    assert!(known.stdout.contains("Alpha") && known.stdout.contains("alive"), "{known:?}");
    let remark = &known.stderr;
    assert!(remark.contains("not received in time: ConfigDB") && remark.contains("--complete"), "{known:?}");
    for whole in
        [&["cluster", "list", "--complete", "--timeout", "3s"][..], &["alert", "list", "--check", "--timeout", "3s"]]
    {
        factory.cli.run(whole).await.refused(6, "waited 3s for ConfigDB to be born");
    }
    factory.central.processes.restart("configdb");
    factory.row_that("Alpha to be ready", |row| row["setup"] == "ready").await;
    factory.assert_untouched();
}

/// What the cluster manager keeps itself (repositories, records, bdSeq) is as old as its backup, ConfigDB and the edge are not.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_manager_whose_directory_is_older_deletes_nothing_and_continues() {
    let factory = Factory::start().await;
    let (state, backup) =
        (factory.central.state_dir("cluster-manager"), factory.central.directory().join("manager-backup"));
    let copy = |from: &Path, to: &Path| {
        let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    assert!(factory.central.processes.kill("cluster-manager"));
    copy(&state, &backup);
    factory.central.processes.restart("cluster-manager");
    let changed = r#"{"values": {"nodeSelector": {"press": "1"}}}"#;
    let before = factory.main();
    factory.cli.json_with(&["config", "patch", &CLUSTER.to_string(), "EdgeCluster", "-"], changed).await;
    factory.main_that("another commit", |main| main != before).await;
    factory.deploy("Oven_3").await;
    assert!(factory.central.processes.kill("cluster-manager"));
    fs::remove_dir_all(&state).unwrap();
    copy(&backup, &state);
    factory.central.processes.restart("cluster-manager");
    factory.main_that("the change again", |main| main != before).await;
    factory.row_that("Alpha to be as it was", |row| row["setup"] == "ready" && row["held"].is_null()).await;
    factory.deploy("Oven_4").await;
    assert_eq!((factory.running().len(), factory.deletions()), (4, 0), "{:?}", factory.running());
    factory.cli.json(&["deployment", "delete", "Alpha/Oven_3", "--wait", "--timeout", "120s"]).await;
    assert_eq!(
        (factory.running(), factory.deletions()),
        (["Oven_1", "Oven_2", "Oven_4"].map(str::to_owned).to_vec(), 1)
    );
    factory.end().await;
}

/// ConfigDB starts with an empty database where it had one: only with `--new-store`.
async fn new_store(factory: &Factory) {
    factory.central.processes.restart("configdb");
    let refused = || (!factory.central.processes.runs("configdb")).then_some(());
    wait::until("ConfigDB to refuse an empty database", refused, || factory.central.processes.tails()).await;
    assert!(factory.central.processes.logs().contains("--new-store"));
    factory.central.processes.restart_with("configdb", &["--new-store"]);
}
