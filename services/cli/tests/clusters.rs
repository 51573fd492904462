//! `sparkfleet cluster ...` on the factory, as a user reads it.

use serde_json::json;
use uuid::Uuid;

use crate::support::factory::{until, user};
use crate::support::program::User;

/// Creates a cluster of that name and returns its UUID.
fn created(user: &User, name: &str) -> Uuid {
    let made = user.run(&format!("cluster create {name} -o json")).json();
    assert_eq!((&made["name"], &made["change"]), (&json!(name), &json!("created")), "{made:#}");
    made["uuid"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_cluster_is_created_once_and_again_is_unchanged() {
    let user = user();
    let first = user.run("cluster create Lacquer_1");
    let uuid = first.done().split(['(', ')']).nth(1).unwrap().to_owned();
    assert_eq!(first.done(), format!("Lacquer_1 created ({uuid})\n"));
    assert_eq!(user.run("cluster create Lacquer_1").done(), format!("Lacquer_1 unchanged ({uuid})\n"));
    let again = user.run("cluster create Lacquer_1 -o json").json();
    assert_eq!(
        (&again["uuid"], &again["change"], &again["state"]),
        (&json!(uuid), &json!("unchanged"), &json!("unchanged"))
    );
    assert_eq!(again["broker"], json!(null), "who connects without a name meets no access rules");
    let changed = user.run("cluster create Lacquer_1 --bare");
    assert_eq!(changed.done(), format!("Lacquer_1 changed ({uuid})\n"));
    assert_eq!(user.run("cluster list -o name").lines().iter().filter(|name| **name == "Lacquer_1").count(), 1);
}

#[test]
fn clusters_and_deployments_are_chosen_by_labels_which_stay_when_they_are_created_again() {
    let user = user();
    created(&user, "Lacquer_9");
    let set = user.run("cluster label Lacquer_9 hall=9 pilot=yes");
    assert_eq!(set.done(), "Lacquer_9 labelled: hall=9,pilot=yes\n");
    assert_eq!(user.run("cluster label Lacquer_9 hall=9").done(), "Lacquer_9 unchanged: hall=9,pilot=yes\n");
    assert_eq!(user.run("cluster create Lacquer_9 --bare -o json").json()["change"], "changed");
    assert_eq!(user.run("cluster list -l hall=9,pilot -o name").done(), "Lacquer_9\n");
    let row = user.run("cluster list -l hall=9 -o json").json();
    assert_eq!(row[0]["labels"], json!({ "hall": "9", "pilot": "yes" }));
    assert_eq!(user.run("cluster list -l hall=9,!pilot -o json").json(), json!([]));
    assert_eq!(user.run("cluster label Lacquer_9 pilot-").done(), "Lacquer_9 labelled: hall=9\n");
    user.run("cluster label Lacquer_9 pilot-").refused(7);
    user.run("cluster label Lacquer_8 pilot=yes").refused(7);
    user.run("deployment label Press_Shop/Stacker_1 spare=yes").done();
    assert_eq!(user.run("deployment list -l spare -o name").done(), "Press_Shop/Stacker_1\n");
    user.run("deployment label Press_Shop/Stacker_1 spare-").done();
}

#[test]
fn what_cannot_name_a_cluster_is_refused_before_a_broker_is_reached() {
    let user = User::of("mqtt://127.0.0.1:1");
    for name in ["Central", "Enrol", "9th", "a-b", "a.b", "a/b", "ü", "_x", &"x".repeat(49)] {
        let outcome = user.run(&format!("cluster create {name}"));
        assert!(outcome.refused(2).contains("name"), "{outcome:#?}");
    }
    user.run_words(&["cluster", "create", ""], "").refused(2);
    user.run_words(&["cluster", "create", "a b"], "").refused(2);
}

#[test]
fn a_list_has_a_row_a_cluster_in_each_form() {
    let user = user();
    let rows = user.run("cluster list -o json").json();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"Body_Shop") && names.contains(&"Press_Shop") && names.is_sorted(), "{names:?}");
    let table = user.run("cluster list");
    let header: Vec<&str> = table.lines()[0].split_whitespace().collect();
    assert_eq!(header, ["CLUSTER", "SETUP", "EDGE", "SINCE", "FLUX", "HOSTS", "DEPLOYMENTS", "ALERTS", "REASON"]);
    let row = table.lines().into_iter().find(|line| line.starts_with("Body_Shop ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..4], ["Body_Shop", "ready", "alive", "(simulated)"], "{row}");
    assert_eq!(cells[5..], ["ready", "3/3", "2/2", "0"], "{row}");
    let wide = user.run("cluster list -o wide");
    let row = wide.lines().into_iter().find(|line| line.starts_with("Body_Shop ")).unwrap();
    assert!(row.contains(" ACME-Body_Shop ") && row.contains("223bf83a-cfa3-5830-b851-330e6b5acdc6"), "{row}");
    let listed = user.run("cluster list -o name");
    assert!(listed.lines().contains(&"Body_Shop"), "{listed:#?}");
    assert!(user.run("cluster ls -o name").lines().contains(&"Body_Shop"));
    let yaml = user.run("cluster list -o yaml");
    assert!(yaml.done().contains("name: Body_Shop\n"), "{yaml:#?}");
}

#[test]
fn one_cluster_is_shown_with_what_it_has_by_name_and_by_uuid() {
    let user = user();
    let shown = user.run("cluster show Press_Shop");
    let lines = shown.lines();
    assert!(lines.contains(&"uuid   7732bfab-2ead-59b2-8aa8-11062f71cd08"), "{shown:#?}");
    assert!(lines.contains(&"group  ACME-Press_Shop"), "{shown:#?}");
    let git = lines.iter().find(|line| line.starts_with("git    http://")).unwrap();
    assert!(git.ends_with("/git/cluster/Press_Shop"), "{git}");
    assert!(lines.iter().any(|line| line.starts_with("flux   ready at commit ")), "{shown:#?}");
    for of in ["press-shop-1", "press-shop-2", "press-shop-3", "Press_Line_1", "Stacker_1"] {
        assert!(lines.iter().any(|line| line.starts_with(of)), "{of}: {shown:#?}");
    }
    assert!(!shown.done().contains("Robot_Cell_1"), "{shown:#?}");
    let json = user.run("cluster show 7732bfab-2ead-59b2-8aa8-11062f71cd08 -o json").json();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["cluster", "git", "hosts", "deployments", "alerts"]);
    assert_eq!((json["hosts"].as_array().unwrap().len(), &json["alerts"]), (3, &json!([])));
}

#[test]
fn a_cluster_that_is_not_there_is_named_with_the_nearest_in_every_command() {
    let user = user();
    let lines = [
        "cluster show Boddy_Shop",
        "cluster edit Boddy_Shop",
        "cluster bootstrap Boddy_Shop",
        "cluster identity show Boddy_Shop",
        "cluster identity revoke Boddy_Shop",
        "cluster identity approve Boddy_Shop",
        "cluster identity replace Boddy_Shop",
        "cluster rollout Boddy_Shop --wave 2",
        "cluster delete Boddy_Shop",
        "deployment list --cluster Boddy_Shop",
        "deployment create Oven --cluster Boddy_Shop",
        "host list --cluster Boddy_Shop",
        "policy show Boddy_Shop",
        "rollout free 3e369413-c7c9-5304-8459-af006cdcf218 --cluster Boddy_Shop",
        "token create lost-1 --scope viewer --cluster Boddy_Shop",
    ];
    for outcome in user.run_all(&lines) {
        let error = outcome.refused(7);
        assert!(
            error.contains("there is no cluster \"Boddy_Shop\"; did you mean \"Body_Shop\"? there are: "),
            "{outcome:#?}"
        );
    }
    assert!(!user.run("token list -o name").lines().contains(&"lost-1"), "nothing was written");
}

#[test]
fn a_cluster_with_deployments_is_deleted_only_with_them_and_its_edge_is_named() {
    let user = user();
    let uuid = created(&user, "Scrap_1");
    until(|| user.run("cluster create Scrap_1 --wait --timeout 2m"), |outcome| outcome.code() == 0);
    user.run("deployment create Crusher_1 --cluster Scrap_1 --wait --timeout 2m").done();
    let refused = user.run("cluster delete Scrap_1");
    let error = refused.refused(5);
    assert_eq!(error, "Scrap_1 has deployments: Crusher_1; delete them first, or add --with-deployments");
    assert!(user.run("cluster list -o name").lines().contains(&"Scrap_1"));
    let deleted = user.run("cluster delete Scrap_1 --with-deployments --wait --timeout 2m -o json").json();
    assert_eq!((&deleted["uuid"], &deleted["state"]), (&json!(uuid), &json!("deleted")), "{deleted:#}");
    assert_eq!(deleted["at_edge"]["namespace"], "fplus-edge");
    assert!(deleted["at_edge"]["remove"].as_str().unwrap().starts_with("kubectl delete -n fplus-edge "), "{deleted:#}");
    assert!(!user.run("cluster list -o name").lines().contains(&"Scrap_1"));
    user.run(&format!("config get {uuid} EdgeCluster")).refused(7);
}

#[test]
fn a_wave_is_shown_changed_and_limited_and_a_pin_needs_a_repository() {
    let user = user();
    created(&user, "Wave_1");
    assert_eq!(user.run("cluster rollout Wave_1").lines()[0], "Wave_1: wave 9 of 9");
    assert_eq!(user.run("cluster rollout Wave_1 --wave 2").lines()[0], "Wave_1: wave 2 of 9");
    let shown = user.run("cluster rollout Wave_1 -o json").json();
    assert_eq!((&shown["wave"], &shown["pins"], &shown["waiting"]), (&json!(2), &json!({}), &json!(0)), "{shown:#}");
    for more in ["--wave 0", "--wave 10", "--wave x", "--pin charts", "--pin charts=commit:", "--pin charts=at:x"] {
        assert_eq!(user.run(&format!("cluster rollout Wave_1 {more}")).code(), 2, "{more}");
    }
    let unknown = user.run("cluster rollout Wave_1 --pin nowhere=branch:main");
    assert!(unknown.refused(7).contains("there is no git repository \"nowhere\""), "{unknown:#?}");
    assert_eq!(user.run("cluster rollout Wave_1 -o json").json()["wave"], 2);
}

#[test]
fn a_line_that_bootstraps_is_printed_once_and_revoked_and_no_list_shows_its_token() {
    let user = user();
    created(&user, "Boot_1");
    let ready = |outcome: &crate::support::program::Outcome| outcome.json()["cluster"]["setup"] == "ready";
    until(|| user.run("cluster show Boot_1 -o json"), ready);
    let made = user.run("cluster bootstrap Boot_1 --expires 2h -o json").json();
    let (line, url) = (made["line"].as_str().unwrap(), made["url"].as_str().unwrap());
    assert!(line.contains("curl") && line.contains("sh"), "{line}");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let token = line
        .split(['\'', '"', ' ', '=', ':'])
        .max_by_key(|word| if word.contains('/') { 0 } else { word.len() })
        .unwrap();
    assert!(token.len() > 30, "{line}");
    for line in [
        "cluster identity show Boot_1",
        "cluster identity show Boot_1 -o json",
        "config get Boot_1 EdgeClusterEnrolment",
        "config history Boot_1",
        "config dump",
    ] {
        assert!(!user.run(line).done().contains(token), "{line}");
    }
    let shown = user.run("cluster identity show Boot_1");
    assert!(shown.lines()[0].starts_with("TOKEN ") && shown.lines()[1].contains("sparkfleet-cli/ada"), "{shown:#?}");
    assert!(shown.lines()[1].ends_with("not yet"), "{shown:#?}");
    let text = user.run("cluster bootstrap Boot_1");
    assert!(
        text.done().starts_with("Paste this where kubectl reaches the cluster that is to become Boot_1."),
        "{text:#?}"
    );
    user.run("cluster bootstrap Boot_1 --revoke").done();
    assert_eq!(user.run("cluster identity show Boot_1").done().trim(), "");
    assert_eq!(user.run("cluster identity show Boot_1 -o json").json()["enrolment"]["tokens"], json!(null));
    for expires in ["5s", "40d"] {
        user.run(&format!("cluster bootstrap Boot_1 --expires {expires}")).refused(2);
    }
}

#[test]
fn an_identity_without_a_certificate_has_none_to_revoke_or_approve_and_can_be_fenced_off() {
    let user = user();
    created(&user, "Fence_1");
    let unknown = user.run("cluster identity revoke Fence_1 --serial 4a01");
    assert_eq!(unknown.refused(2), "the cluster has no certificate 4a01 that counts");
    let approved = user.run("cluster identity approve Fence_1");
    assert_eq!(approved.refused(5), "no certificate of the cluster waits for approval");
    for fence in 1..3 {
        let fenced = user.run("cluster identity replace Fence_1 -o json").json();
        assert_eq!((&fenced["fence"], &fenced["state"]), (&json!(fence), &json!("fenced off")), "{fenced:#}");
    }
}

#[test]
fn of_two_clusters_with_one_name_the_caller_chooses() {
    let user = user();
    let first = created(&user, "Twin_1");
    until(|| user.run("cluster show Twin_1 -o json"), |outcome| outcome.json()["cluster"]["setup"] == "ready");
    let second = "0c000000-0000-4000-8000-000000000001";
    user.run(&format!("cluster create Twin_1 --uuid {second}")).done();
    let refused = until(
        || user.run(&format!("cluster show {second} -o json")),
        |outcome| outcome.code() == 0 && outcome.json()["cluster"]["setup"] == "refused",
    );
    assert!(refused.json()["cluster"]["reason"].as_str().unwrap().contains("Twin_1"), "{refused:#?}");
    // What shows takes the one that is set up; what changes asks which.
    assert_eq!(user.run("cluster show Twin_1 -o json").json()["cluster"]["uuid"], json!(first));
    let ambiguous = user.run("cluster rollout Twin_1 --wave 3");
    let error = ambiguous.refused(2);
    assert!(error.contains(&first.to_string()) && error.contains(second), "{error}");
    user.run(&format!("cluster delete {second} --wait --timeout 2m")).done();
    assert_eq!(user.run("cluster rollout Twin_1 --wave 3").lines()[0], "Twin_1: wave 3 of 9");
}
