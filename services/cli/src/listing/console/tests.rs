//! Frames, tables, and a console that answers as a test says.

use clap::{FromArgMatches as _, Parser as _, Subcommand as _};
use fleet_view::bench::{Bench, NAME};
use fleet_view::{AlertRow, ClusterRow, DeploymentRow};
use serde_json::json;

use super::*;
use crate::arguments::ConfigCommand;
use crate::options::OutputForm;
use crate::served::{Served, ServedResponse};

fn frames(parts: &[&str]) -> Vec<Frame> {
    let mut frames = Frames::default();
    let mut found = Vec::new();
    for part in parts {
        frames.take(&Bytes::copy_from_slice(part.as_bytes())).unwrap();
        found.extend(std::iter::from_fn(|| frames.next()));
    }
    found
}

#[test]
fn frames_are_put_together_and_heartbeats_left_out() {
    let frame = |is_whole, data: &str| Frame { is_whole, data: data.to_owned() };
    let parts =
        ["retry: 1000\n\n: alive\n\nevent: table\nda", "ta: {\"a\":1}\n", "\nevent: table\nid: 7\ndata: {}\n\n: al"];
    assert_eq!(frames(&parts), [frame(false, "{\"a\":1}"), frame(true, "{}")]);
}

#[test]
fn a_frame_without_end_is_given_up() {
    let mut frames = Frames::default();
    let part = Bytes::from(vec![b'x'; FRAME_BYTES_MAX]);
    frames.take(&part).unwrap();
    assert!(frames.take(&part).unwrap_err().to_string().contains("larger than"));
}

#[test]
fn a_table_is_as_its_frames_say() {
    let mut tables = ConsoleTables::default();
    let mut take = |is_whole, data: &str| {
        let whole = tables.take(&Frame { is_whole, data: data.to_owned() }).unwrap();
        let keys: Vec<&str> = tables.rows("clusters").map(|row| row["key"].as_str().unwrap()).collect();
        (whole, keys.join(","), tables.rows("console").count())
    };
    let full = r#"{"table":"clusters","full":true,"set":[{"key":"a"},{"key":"b"}],"del":[]}"#;
    assert_eq!(take(false, full), (false, "a,b".to_owned(), 0));
    assert_eq!(take(true, r#"{"table":"console","full":true,"set":[{"key":"console"}],"del":[]}"#).2, 1);
    let change = r#"{"table":"clusters","full":false,"set":[{"key":"c"}],"del":["a"]}"#;
    assert_eq!(take(true, change), (true, "b,c".to_owned(), 1));
    assert_eq!(take(true, r#"{"table":"clusters","full":true,"set":[],"del":[]}"#).1, "");
    let frame = |data: &str| Frame { is_whole: true, data: data.to_owned() };
    assert!(tables.take(&frame("<html>")).is_err());
    assert!(tables.take(&frame(r#"{"table":"clusters","full":false,"set":[{}],"del":[]}"#)).is_err());
}

#[test]
fn a_console_that_does_not_know_everything_is_not_shown() {
    let row = |complete: bool| serde_json::json!({ "complete": complete, "reasons": ["the broker is away"] });
    check_complete(&[row(true)], "http://c").unwrap();
    let error = check_complete(&[row(false)], "http://c").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
    assert!(error.to_string().ends_with("at present: the broker is away"), "{error}");
    assert!(check_complete(&[], "http://c").is_err());
}

#[test]
fn rows_of_another_version_are_not_guessed() {
    let row = serde_json::json!({ "key": "k", "name": "Paint_Shop" });
    let error = read::<ClusterRow>([row].iter(), "http://c").unwrap_err();
    assert!(exit::code_of(&error) == exit::UNAVAILABLE && error.to_string().contains("of another version"), "{error}");
}

/// Options of a list as the command line reads them.
#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    reading: ListOptions,
    #[command(flatten)]
    options: Options,
}

fn line(more: &str) -> Line {
    let words = ["list", "--broker", "mqtt://127.0.0.1:1", "--timeout", "20s"];
    Line::parse_from(words.into_iter().chain(more.split(' ').filter(|word| !word.is_empty())))
}

fn page(rows: impl IntoIterator<Item = Value>) -> String {
    json!({ "rev": 1, "at": null, "rows": rows.into_iter().collect::<Vec<_>>() }).to_string()
}

/// What a console answers that has seen a cluster with a deployment, and whose own row says that it knows everything, or not.
fn answers(is_complete: bool) -> (Bench, Vec<ServedResponse>) {
    let mut bench = Bench::with_cluster();
    bench.deployment(uuid::Uuid::from_u128(0x0E), "Oven", None);
    bench.cluster(uuid::Uuid::from_u128(0xB), "Body_Shop", |_| {});
    bench.monitor(NAME, &["Oven_1", "Oven_2"]);
    let tables = fleet_view::tables::Rows::of(&bench.fleet);
    let console = json!({ "key": "console", "complete": is_complete, "reasons": ["births of Paint_Shop are missing"] });
    let answers = vec![
        ("/api/v1/console", 200, page([console])),
        ("/api/v1/clusters", 200, page(tables.clusters().into_values())),
        ("/api/v1/deployments", 200, page(tables.deployments().into_values())),
        ("/api/v1/alerts", 200, page(tables.alerts().into_values())),
    ];
    (bench, answers)
}

#[tokio::test]
async fn a_list_is_read_with_the_token_and_the_rows_are_those_of_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "sfp_abc\n").unwrap();
    let (bench, answers) = answers(true);
    let served = Served::start(answers).await;
    let Line { reading, options } = line(&format!("--console-token-file {}", token.display()));
    let mut screen = Screen::<ClusterRow>::new(OutputForm::Json, false);
    run(&served.address, Filter::default(), &reading, &options, &mut screen).await.unwrap();
    assert_eq!(served.paths(), ["/api/v1/console", "/api/v1/clusters"]);
    assert!(served.asked().iter().all(|head| head.to_lowercase().contains("authorization: bearer sfp_abc")));
    let page: Page = ConsoleApi::open(&served.address, &reading.source.access, options.presentation.timeout)
        .unwrap()
        .get("/api/v1/clusters", &[])
        .await
        .unwrap();
    assert_eq!(read::<ClusterRow>(page.rows.iter(), "").unwrap(), bench.fleet.clusters(), "in the order of names, too");
}

#[tokio::test]
async fn a_cluster_that_the_console_does_not_have_is_named() {
    let (_, answers) = answers(true);
    let served = Served::start(answers).await;
    let Line { reading, options } = line("--from console");
    let mut screen = Screen::<DeploymentRow>::new(OutputForm::Json, false);
    run(&served.address, Filter::of_cluster(Some(NAME)), &reading, &options, &mut screen).await.unwrap();
    let error =
        run(&served.address, Filter::of_cluster(Some("Paint_Shp")), &reading, &options, &mut screen).await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    assert!(error.to_string().contains("did you mean \"Paint_Shop\"?"), "{error}");
}

#[tokio::test]
async fn who_asks_for_the_console_alone_gets_its_reason_and_others_the_broker() {
    let (_, answers) = answers(false);
    let served = Served::start(answers).await;
    let console = format!("--console {}", served.address);
    let Line { reading, options } = line(&format!("{console} --from console"));
    let error =
        crate::listing::run::<ClusterRow>(crate::listing::Filter::default(), &reading, &options).await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
    assert!(error.to_string().contains("births of Paint_Shop are missing"), "{error}");
    let Line { reading, options } = line(&console);
    let error =
        crate::listing::run::<ClusterRow>(crate::listing::Filter::default(), &reading, &options).await.unwrap_err();
    assert!(format!("{error:#}").contains("cannot reach the broker mqtt://127.0.0.1:1"), "{error:#}");
}

#[tokio::test]
async fn a_console_that_refuses_is_not_passed_over() {
    let refusal = r#"{"error":"sign in; this console shows nothing to others"}"#.to_owned();
    let served = Served::start(vec![("/api/v1/console", 401, refusal)]).await;
    let Line { reading, options } = line(&format!("--console {}", served.address));
    let error =
        crate::listing::run::<ClusterRow>(crate::listing::Filter::default(), &reading, &options).await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(error.to_string().contains("sign in") && error.to_string().contains("`sparkfleet login http"), "{error}");
}

#[tokio::test]
async fn alerts_are_read_the_oldest_first_and_a_check_ends_with_one() {
    let (bench, answers) = answers(true);
    let served = Served::start(answers).await;
    let Line { reading, options } = line(&format!("--console {} --from console", served.address));
    let mut screen = Screen::<AlertRow>::new(OutputForm::Json, false);
    run(&served.address, Filter::default(), &reading, &options, &mut screen).await.unwrap();
    assert_eq!(screen.rows(), bench.fleet.alerts().len());
    let ended = async |line: &str| {
        let line = format!("sparkfleet alert list --console {} --from console {line}", served.address);
        let command = crate::arguments::parsed(line.split(' ').filter(|word| !word.is_empty())).unwrap();
        crate::run(command).await
    };
    ended("").await.unwrap();
    let error = ended("--check").await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::FAILURE);
    assert_eq!(error.to_string(), format!("{} active alerts", bench.fleet.alerts().len()));
    let of_one = ended(&format!("--cluster {NAME} --check")).await.unwrap_err();
    assert_eq!(of_one.to_string(), "2 active alerts");
    ended("--cluster Body_Shop --check").await.unwrap();
    let nowhere = ended("--cluster Nowhere --check").await.unwrap_err();
    assert_eq!(exit::code_of(&nowhere), exit::NOT_FOUND);
}

#[tokio::test]
async fn a_stream_is_followed_and_its_end_is_said() {
    let (bench, _) = answers(true);
    let rows: Vec<Value> = fleet_view::tables::Rows::of(&bench.fleet).clusters().into_values().collect();
    let frame = |id: &str, table: &str, full: bool, set: &[Value], del: &[&str]| {
        let data = json!({ "table": table, "rev": 1, "full": full, "set": set, "del": del });
        format!("event: table\n{id}data: {data}\n\n")
    };
    let console = json!({ "key": "console", "complete": true });
    let gone = rows.iter().find(|row| row["name"] == NAME).unwrap()["key"].as_str().unwrap().to_owned();
    let body = [
        "retry: 1000\n\n".to_owned(),
        frame("", "console", true, &[console], &[]),
        frame("id: 1\n", "clusters", true, &rows, &[]),
        ": alive\n\n".to_owned(),
        frame("id: 2\n", "clusters", false, &[], &[&gone]),
    ];
    let served = Served::start(vec![("/api/v1/stream", 200, body.concat())]).await;
    let Line { reading, options } = line("");
    let api = ConsoleApi::open(&served.address, &reading.source.access, options.presentation.timeout).unwrap();
    let mut screen = Screen::<ClusterRow>::new(OutputForm::Json, true);
    let ended = follow(&api, "clusters", (Filter::default(), None), Clock::new(), &mut screen).await.unwrap_err();
    assert!(is_away(&ended) && ended.to_string().contains("has ended the stream"), "{ended}");
    assert_eq!(served.paths(), ["/api/v1/stream?tables=console%2Cclusters"]);
    let names: Vec<&str> = screen.shown().iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["Body_Shop"]);
}

#[tokio::test]
async fn one_of_the_fleet_is_shown_of_the_console_and_the_broker_is_left_alone() {
    let (bench, mut answers) = answers(true);
    let oven = uuid::Uuid::from_u128(0x0E);
    let entries = fleet_view::config::entries(&bench.fleet, oven).into_values();
    answers.push(("/api/v1/hosts", 200, page(fleet_view::tables::hosts(&bench.fleet).into_values())));
    answers.push(("/api/v1/entries:00000000-0000-0000-0000-00000000000e", 200, page(entries)));
    let of_cluster = fleet_view::config::entries(&bench.fleet, fleet_view::bench::CLUSTER).into_values();
    answers.push(("/api/v1/entries:00000000-0000-0000-0000-00000000000c", 200, page(of_cluster)));
    answers.push(("/api/v1/entries:00000000-0000-0000-0000-0000000000ff", 200, page([])));
    answers.push(("/api/v1/objects", 200, page(fleet_view::config::objects(&bench.fleet).into_values())));
    answers.push(("/api/v1/applications", 200, page(fleet_view::config::applications(&bench.fleet).into_values())));
    let rollout = fleet_view::tables::Rows::of(&bench.fleet).rollout();
    answers.push(("/api/v1/rollout", 200, page(rollout.into_values())));
    answers.push(("/api/v1/services", 200, page([])));
    let served = Served::start(answers).await;
    let shown = async |line: &str| {
        let at = format!("--console {} --broker mqtt://127.0.0.1:1 --timeout 20s", served.address);
        if let Some(line) = line.strip_prefix("config ") {
            let command = ConfigCommand::augment_subcommands(clap::Command::new("config"));
            let matches = command.try_get_matches_from(format!("config {line} {at}").split(' ')).unwrap();
            return crate::command::config::run(ConfigCommand::from_arg_matches(&matches).unwrap()).await;
        }
        let line = format!("sparkfleet {line} {at}");
        crate::run(crate::arguments::parsed(line.split(' ')).unwrap()).await
    };
    shown(&format!("cluster show {NAME}")).await.unwrap();
    shown(&format!("deployment show {NAME}/Oven")).await.unwrap();
    for line in [
        "rollout list",
        "status",
        &format!("policy show {NAME}"),
        &format!("config get {oven} EdgeDeployment"),
        &format!("config get {oven} Membership"),
        &format!("config get {oven} {}", configdb_schema::application::EDGE_DEPLOYMENT.uuid),
    ] {
        shown(line).await.unwrap_or_else(|error| panic!("{line}: {error:#}"));
    }
    for (line, hint) in [
        ("cluster show Paint_Shp", "did you mean \"Paint_Shop\"?"),
        ("deployment show Ovn", "Paint_Shop/Oven"),
        ("host show press-1", "have proven their TPM"),
        ("policy show Paint_Shp", "did you mean \"Paint_Shop\"?"),
        ("config get Ovn EdgeDeployment", "there is no object named \"Ovn\""),
        ("config get 00000000-0000-0000-0000-00000000000e EdgeDeploymnt", "did you mean \"EdgeDeployment\"?"),
        ("config get 00000000-0000-0000-0000-00000000000e EdgeCluster", "has no entry EdgeCluster"),
        ("config get 00000000-0000-0000-0000-0000000000ff Info", "there is no object"),
    ] {
        let error = shown(line).await.unwrap_err();
        assert_eq!(exit::code_of(&error), exit::NOT_FOUND, "{line}: {error:#}");
        assert!(format!("{error:#}").contains(hint), "{line}: {error:#}");
    }
    let error = shown(&format!("cluster show {NAME} --from broker")).await.unwrap_err();
    assert!(format!("{error:#}").contains("cannot reach the broker"), "{error:#}");
}
