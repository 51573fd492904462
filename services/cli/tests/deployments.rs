//! `sparkfleet deployment ...`, `apply` and `diff` on the factory.

use serde_json::json;

use crate::support::factory::{until, user};
use crate::support::program::User;

#[test]
fn a_list_has_a_row_a_deployment_in_each_form_and_of_one_cluster() {
    let user = user();
    let of = "deployment list --cluster Body_Shop";
    let table = user.run(of);
    let header: Vec<&str> = table.lines()[0].split_whitespace().collect();
    assert_eq!(header, ["DEPLOYMENT", "CLUSTER", "CHART", "HOST", "STATE", "READY", "SINCE", "MESSAGE"]);
    let row = table.lines().into_iter().find(|line| line.starts_with("Robot_Cell_1 ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..7], ["Robot_Cell_1", "Body_Shop", "Edge", "agent", "body-shop-2", "applied", "yes"], "{row}");
    let names = user.run(&format!("{of} -o name"));
    assert!(names.lines().iter().all(|name| name.starts_with("Body_Shop/")), "{names:#?}");
    assert!(names.lines().contains(&"Body_Shop/Robot_Cell_2"), "{names:#?}");
    let rows = user.run(&format!("{of} -o json")).json();
    assert_eq!(rows.as_array().unwrap().len(), names.lines().len());
    let wide = user.run(&format!("{of} -o wide"));
    assert!(wide.done().contains("7756f240-e3a0-5f7a-92a7-5881757b2fc0"), "{wide:#?}");
    // What a list names, another command takes.
    for name in names.lines() {
        assert_eq!(user.run(&format!("deployment show {name} -o json")).json()["deployment"]["cluster"], "Body_Shop");
    }
}

#[test]
fn one_is_shown_with_its_entry_and_one_that_is_not_there_with_the_nearest() {
    let user = user();
    let shown = user.run("deployment show Press_Shop/Stacker_1");
    let lines = shown.lines();
    assert!(lines[1].contains("(floating)"), "{shown:#?}");
    assert!(lines.contains(&"uuid   38606390-a659-576c-b7f7-1740c848a030"), "{shown:#?}");
    assert!(lines.contains(&"name: Stacker_1"), "the entry is read as YAML: {shown:#?}");
    let missing = user.run("deployment show Press_Shop/Staker_1");
    assert!(missing.refused(7).contains("did you mean \"Press_Shop/Stacker_1\"?"), "{missing:#?}");
    let elsewhere = user.run("deployment show Body_Shop/Stacker_1");
    assert!(elsewhere.refused(7).contains("there is no deployment \"Body_Shop/Stacker_1\""), "{elsewhere:#?}");
    for outcome in user.run_all(&["deployment move Stackr_1", "deployment delete Stackr_1", "deployment edit Stackr_1"])
    {
        assert!(outcome.refused(7).contains("did you mean \"Press_Shop/Stacker_1\"?"), "{outcome:#?}");
    }
}

#[test]
fn one_is_created_moved_and_deleted_and_each_step_is_done_once() {
    let user = user();
    let name = "Press_Shop/Grinder_1";
    let made = user.run("deployment create Grinder_1 --cluster Press_Shop --host press-shop-1 --wait --timeout 2m");
    assert_eq!(made.done(), format!("{name} created, ready\n"));
    let again = user.run("deployment create Grinder_1 --cluster Press_Shop --host press-shop-1");
    assert_eq!(again.done(), format!("{name} unchanged\n"));
    let moved = user.run(&format!("deployment move {name} --host press-shop-3 -o json")).json();
    assert_eq!((&moved["change"], &moved["deployment"]["name"]), (&json!("moved"), &json!("Grinder_1")), "{moved:#}");
    assert_eq!(user.run(&format!("deployment move {name} --host press-shop-3")).done(), format!("{name} unchanged\n"));
    let floating = user.run(&format!("deployment move {name} --wait --timeout 2m"));
    assert_eq!(floating.done(), format!("{name} moved, ready\n"));
    assert_eq!(user.run(&format!("deployment show {name} -o json")).json()["deployment"]["host"], json!(null));
    let deleted = user.run(&format!("deployment delete {name} --wait --timeout 2m"));
    assert_eq!(deleted.done(), format!("{name} deleted\n"));
    user.run(&format!("deployment show {name}")).refused(7);
}

#[test]
fn a_host_a_chart_or_values_that_are_not_there_are_refused_and_nothing_is_written() {
    let user = user();
    let create = "deployment create Welder_9 --cluster Body_Shop";
    let host = user.run(&format!("{create} --host body-shop-9"));
    let error = host.refused(7);
    assert!(
        error.contains("cluster Body_Shop: there is no host \"body-shop-9\"; did you mean \"body-shop-"),
        "{error}"
    );
    let chart = user.run_words(&[create.split(' ').collect(), vec!["--chart", "Edge agnt"]].concat(), "");
    assert!(
        chart.refused(7).starts_with("there is no chart template \"Edge agnt\"; did you mean \"Edge agent\"?"),
        "{chart:#?}"
    );
    let class = user.run_words(&[create.split(' ').collect(), vec!["--chart", "Edge Agent"]].concat(), "");
    assert!(class.refused(7).contains("did you mean \"Edge agent\"?"), "a class is not taken for a chart: {class:#?}");
    for (values, code) in [("[1, 2]", 2), ("\"text\"", 2), ("a: [", 3)] {
        let outcome = user.run_with(&format!("{create} --values -"), values);
        outcome.refused(code);
    }
    let missing = user.run(&format!("{create} --values @/none.yaml"));
    assert!(missing.refused(3).contains("none.yaml"), "{missing:#?}");
    let names = ["Sync", "Monitor", "Join", "Keys", "Identity", "a.b", "a/b", "+"];
    let lines = names.map(|name| format!("deployment create {name} --cluster Body_Shop"));
    for outcome in user.run_all(&lines.each_ref().map(String::as_str)) {
        assert!(outcome.refused(2).starts_with("name: "), "{outcome:#?}");
        assert_eq!(outcome.explained().len(), 1, "{outcome:#?}");
    }
    user.run_words(&["deployment", "create", "", "--cluster", "Body_Shop"], "").refused(2);
    user.run("deployment show Welder_9").refused(7);
}

#[test]
fn a_name_that_two_clusters_have_needs_the_cluster() {
    let user = user();
    user.run("cluster create Pair_1").done();
    user.run("deployment create Robot_Cell_2 --cluster Pair_1").done();
    let shown = user.run("deployment show Robot_Cell_2");
    let error = shown.refused(2);
    assert!(error.contains("Body_Shop/Robot_Cell_2") && error.contains("Pair_1/Robot_Cell_2"), "{error}");
    user.run("deployment delete Robot_Cell_2").refused(2);
    user.run("deployment delete Pair_1/Robot_Cell_2 --wait --timeout 2m").done();
    assert_eq!(user.run("deployment show Robot_Cell_2 -o json").json()["deployment"]["cluster"], "Body_Shop");
}

fn applied(user: &User, line: &str) -> Vec<String> {
    let changes = user.run(&format!("{line} -o json")).json();
    let change = |change: &serde_json::Value| {
        format!("{} {}", change["name"].as_str().unwrap(), change["change"].as_str().unwrap())
    };
    changes["changes"].as_array().unwrap().iter().map(change).collect()
}

#[test]
fn files_are_tried_compared_applied_and_then_nothing_differs() {
    let user = user();
    let file = "kind: Cluster\nname: Filed_1\nwave: 3\n---\nkind: Deployment\ncluster: Filed_1\nname: Saw_1\nvalues: { blade: 3 }\n";
    user.file("site/10.yaml", file);
    user.file("site/README.md", "kind: [");
    let all = ["Filed_1 created", "Filed_1/Saw_1 created"];
    assert_eq!(applied(&user, "apply -f @/site --dry-run"), all);
    let differs = user.run("diff -f @/site");
    assert_eq!(differs.code(), 1, "{differs:#?}");
    assert!(differs.stdout.starts_with("cluster Filed_1 created\n"), "{differs:#?}");
    assert!(!user.run("cluster list -o name").lines().contains(&"Filed_1"), "neither of both has written");
    assert_eq!(applied(&user, "apply -f @/site"), all);
    assert_eq!(applied(&user, "apply -f @/site"), ["Filed_1 unchanged", "Filed_1/Saw_1 unchanged"]);
    assert_eq!(user.run("diff -f @/site").done(), "nothing differs\n");
    // From standard input as well, and what a document does not name stays.
    let same = user.run_with("diff -f -", "kind: Deployment\ncluster: Filed_1\nname: Saw_1\n");
    assert_eq!(same.done(), "nothing differs\n");
    // The sum of both files is applied or nothing.
    user.file("bad.yaml", "kind: Cluster\nname: Filed_2\n---\nkind: Deployment\ncluster: Filed_3\nname: Saw_1\n");
    let refused = user.run("apply -f @/bad.yaml");
    assert!(refused.refused(7).contains("there is no cluster \"Filed_3\"; did you mean \"Filed_"), "{refused:#?}");
    assert!(!user.run("cluster list -o name").lines().contains(&"Filed_2"));
    for (text, code) in [("kind: Nothing\n", 3), ("kind: Cluster\nname: [\n", 3), ("kind: Cluster\nname: a b\n", 2)] {
        let outcome = user.run_with("apply -f -", text);
        assert_eq!(outcome.code(), code, "{outcome:#?}");
        assert_eq!((outcome.stdout.as_str(), outcome.explained().len()), ("", 1), "{outcome:#?}");
    }
    let gone = user.run("cluster delete Filed_1 --with-deployments");
    assert!(gone.done().starts_with("Filed_1 deleting"), "{gone:#?}");
}

#[test]
fn a_rollout_is_held_and_resumed_and_both_are_shown_with_who_decided() {
    let user = user();
    let words = |line: &str| -> Vec<String> {
        line.split(' ')
            .map(|word| word.replace("Edge_agent", "Edge agent").replace("wait_for_monday", "wait for monday"))
            .collect()
    };
    let run = |line: &str| {
        let words = words(line);
        user.run_words(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
    };
    assert_eq!(run("rollout hold Edge_agent --note wait_for_monday").done(), "held: rollout of Edge agent\n");
    let shown = until(|| user.run("rollout list"), |outcome| outcome.done().contains(" held "));
    let held = shown.lines().into_iter().find(|line| line.contains(" held ")).unwrap();
    assert!(
        held.starts_with("Edge agent") && held.ends_with("held, says sparkfleet-cli/ada: wait for monday"),
        "{held}"
    );
    let row = user.run("rollout list -o json").json();
    let row = row.as_array().unwrap().iter().find(|row| row["template"] == "Edge agent").unwrap().clone();
    assert_eq!(row["hold"]["note"], "wait for monday", "{row:#}");
    assert_eq!(run("rollout resume Edge_agent").done(), "resumed: rollout of Edge agent\n");
    until(|| user.run("rollout list"), |outcome| !outcome.done().contains(" held "));
    let unknown = run("rollout hold Edge_agnt");
    assert!(unknown.refused(7).contains("there is no chart template \"Edge_agnt\"; did you mean"), "{unknown:#?}");
    let twice = run("rollout resume Edge_agent");
    assert_eq!(twice.refused(5), "the rollout of Edge agent is not held");
    let long = format!("rollout hold Edge_agent --note {}", "x".repeat(10_000));
    assert!(run(&long).refused(2).starts_with("note: must have 1 to "));
}
