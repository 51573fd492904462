//! The past of a factory, as an operator reads it with the command line.

use std::time::Duration;

use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use serde_json::Value;

use crate::factory::{Up, word_after};

/// Every wait ends here.
const LIMIT: Duration = Duration::from_secs(120);

/// The answer to a command, as soon as `found` accepts it.
async fn until(cli: &Cli, arguments: &[&str], found: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let arguments = [arguments, &["--output", "json"]].concat();
        let outcome = cli.run(&arguments).await;
        // Until the first record there is nothing to be read.
        if outcome.code == 0 && found(&outcome.json()) {
            return outcome.json();
        }
        assert!(tokio::time::Instant::now() < deadline, "{outcome:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn event<'a>(answer: &'a Value, text: &str) -> Option<&'a Value> {
    answer["events"].as_array()?.iter().find(|event| event["text"].as_str().is_some_and(|said| said.starts_with(text)))
}

fn names(answer: &Value) -> Vec<&str> {
    answer["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_and_what_was_there_before_is_read_with_the_command_line() {
    let server = Mosquitto::start();
    let up = Up::on(server.address()).await;
    let line = up.process.says("console   http://").await;
    let console = word_after(&line, "console   ").to_owned();
    let cli = up.cli.clone().with_environment([("SPARKFLEET_CONSOLE".to_owned(), console)]);
    until(&cli, &["events"], |answer| answer["begins"].is_u64()).await;

    cli.json(&["cluster", "create", "Paint_Shop", "--wait"]).await;
    let events = until(&cli, &["events", "--cluster", "Paint_Shop"], |answer| event(answer, "added").is_some()).await;
    let created = event(&events, "added").unwrap()["at"].as_u64().unwrap();
    cli.json(&["deployment", "create", "Oven_1", "--cluster", "Paint_Shop", "--wait"]).await;
    let added = "deployment Oven_1 added";
    let events = until(&cli, &["events", "--cluster", "Paint_Shop"], |answer| event(answer, added).is_some()).await;
    let deployed = event(&events, added).unwrap()["at"].as_u64().unwrap();
    assert!(created <= deployed, "{events:#}");
    cli.json(&["deployment", "delete", "Paint_Shop/Oven_1", "--wait"]).await;
    let removed = "deployment Oven_1 removed";
    let events = until(&cli, &["events"], |answer| event(answer, removed).is_some()).await;
    let deleted = event(&events, removed).unwrap()["at"].as_u64().unwrap();

    let at = |time: u64| time.to_string();
    let before = cli.json(&["at", &at(created - 1), "clusters"]).await;
    assert_eq!(names(&before), [""; 0], "{before:#}");
    let first = cli.json(&["at", &at(deployed - 1), "deployments"]).await;
    assert_eq!(names(&first), [""; 0], "{first:#}");
    let then = cli.json(&["at", &at(deleted - 1), "deployments", "--cluster", "Paint_Shop"]).await;
    assert_eq!(names(&then), ["Oven_1"], "{then:#}");
    let now = cli.json(&["at", "0s", "deployments"]).await;
    assert_eq!(names(&now), [""; 0], "{now:#}");
    let different = cli.json(&["at", &at(created - 1), "--diff", &at(deleted - 1)]).await;
    let texts: Vec<&str> =
        different["differences"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert!(texts.iter().any(|text| text.starts_with(added)), "{different:#}");
    assert!(texts.iter().any(|text| text.starts_with("host paint-shop-1 added")), "{different:#}");

    let shown = cli.run(&["at", &at(deleted - 1), "clusters"]).await;
    assert!(shown.stdout.contains("state at ") && shown.stdout.contains("Paint_Shop"), "{shown:#?}");
    cli.run(&["at", "1000", "clusters"]).await.refused(7, "the history begins at");
    let nowhere = cli.run(&["events", "--console", "http://127.0.0.1:1"]).await;
    nowhere.refused(4, "`sparkfleet up` and `sparkfleet console` serve one");
}
