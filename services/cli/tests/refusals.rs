//! The exit codes of the reference, and that a refusal has changed nothing and gives no secret away.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use fleet_view::bench::{Bench, CLUSTER, NAME};

use crate::support::factory::user;
use crate::support::made_up::MadeUp;
use crate::support::mosquitto::{Mosquitto, Settings};
use crate::support::program::{Outcome, User};

const PASSWORD: &str = "correct-horse-battery";

/// A server that knows `ada` by her password, and lets her publish to nothing but her own STATE.
fn guarded() -> Mosquitto {
    Mosquitto::with(Settings {
        lines: &["allow_anonymous false", "password_file {dir}/passwords", "acl_file {dir}/rules"],
        tls: false,
        prepare: &|directory| {
            let file = directory.join("passwords");
            let made = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&file).args(["ada", PASSWORD]).status();
            assert!(made.unwrap().success());
            std::fs::write(directory.join("rules"), "user ada\ntopic read spBv1.0/ACME-Central/#\n").unwrap();
        },
    })
}

#[test]
fn a_wrong_password_is_code_4_and_no_password_is_ever_shown() {
    let server = guarded();
    let user = User::of(&server.url());
    user.file("right", format!("{PASSWORD}\n"));
    user.file("wrong", format!("{PASSWORD}-not\n"));
    let anonymous = user.run("cluster list --timeout 20s");
    let error = anonymous.refused(4);
    assert!(error.starts_with("cannot reach the broker mqtt://localhost:"), "{error}");
    let wrong = user.run("cluster list --username ada --password-file @/wrong --timeout 20s");
    wrong.refused(4);
    assert!(!wrong.stderr.contains("correct"), "{wrong:#?}");
    // With the right one she is connected, and then nothing answers.
    let right = user.run("config list --username ada --password-file @/right --timeout 2s");
    let error = right.refused(6);
    assert!(error.contains("waited 2s for ConfigDB to be born; not reached"), "{error}");
    assert!(!right.stderr.contains("correct"), "{right:#?}");
    // The environment is as good as the options, and one who has both is who the option says.
    let user = user.with("SPARKFLEET_USERNAME", "ada");
    let file = user.path("right").display().to_string();
    let user = user.with("SPARKFLEET_PASSWORD_FILE", &file);
    user.run("config list --timeout 2s").refused(6);
    user.run("config list --username bob --timeout 20s").refused(4);
}

#[test]
fn each_exit_code_of_the_reference_is_given_by_what_it_stands_for() {
    let user = user();
    user.file("differs.yaml", "kind: Cluster\nname: Never_1\n");
    let away = User::of("mqtt://127.0.0.1:1");
    assert_eq!(user.run("cluster list").code(), 0);
    assert_eq!(user.run("diff -f @/differs.yaml").code(), 1);
    assert_eq!(user.run("cluster lst").code(), 2);
    assert_eq!(user.run("cluster list --organisation A-B").code(), 3);
    assert_eq!(away.run("cluster list").code(), 4);
    assert_eq!(user.run_with("config put Robot_Cell_1 Info - --if-match none", "{\"name\": \"x\"}").code(), 5);
    assert_eq!(user.run("cluster list --organisation EMPTY --timeout 1s").code(), 6);
    assert_eq!(user.run("cluster show Nowhere").code(), 7);
    assert!(user.run("config get Robot_Cell_1 Info").done().contains("Robot_Cell_1"), "a refusal changes nothing");
}

#[test]
fn a_decision_that_deletes_is_not_made_without_a_terminal_or_yes() {
    let user = user();
    let follows = user.run("recover discard Body_Shop");
    assert_eq!(follows.refused(2), "Body_Shop follows this control plane already; nothing is held");
    let status = user.run("recover status Body_Shop");
    assert!(status.lines()[1].starts_with("Body_Shop ") && status.lines()[1].ends_with(" follows"), "{status:#?}");
    let adopted = user.run("recover adopt Body_Shop");
    assert_eq!(adopted.done(), "Body_Shop follows this control plane already\n");
    let unknown = user.run("recover status Nowhere --timeout 2s");
    unknown.refused(6);
    let wrong = user.run("recover adopt");
    assert_eq!(wrong.code(), 2, "{wrong:#?}");
}

#[test]
fn a_token_is_printed_once_and_nothing_shows_it_again() {
    let user = user();
    let made = user.run("token create night-1 --scope viewer --cluster Body_Shop --expires 1h");
    let token = made.done().trim_end().to_owned();
    assert!(token.starts_with("sfp_") && !token.contains('\n'), "nothing but the token is on standard output");
    let twice = user.run("token create night-1 --scope viewer");
    assert_eq!(twice.refused(5), "there is a token \"night-1\"; revoke it first, or choose another name");
    let listed = user.run("token list");
    let row = listed.lines().into_iter().find(|line| line.starts_with("night-1 ")).unwrap();
    assert!(row.contains(" viewer ") && row.contains(" Body_Shop ") && row.ends_with("sparkfleet-cli/ada"), "{row}");
    for line in ["token list -o json", "token list -o yaml", "config dump"] {
        assert!(!user.run(line).done().contains(&token), "{line}");
    }
    let near = user.run("token revoke night-2");
    assert!(near.refused(7).contains("did you mean \"night-1\"?"), "{near:#?}");
    assert_eq!(user.run("token revoke night-1").done(), "night-1 revoked\n");
    user.run("token revoke night-1").refused(7);
    for (name, more, code) in
        [("a b", "", 2), ("", "", 2), ("over", "--expires 0s", 2), ("over", "--expires 99999999d", 2)]
    {
        let words = [
            vec!["token", "create", name, "--scope", "viewer"],
            more.split(' ').filter(|word| !word.is_empty()).collect(),
        ]
        .concat();
        assert_eq!(user.run_words(&words, "").code(), code, "{words:?}");
    }
}

#[test]
fn alerts_are_acknowledged_by_what_they_are_about_or_not_at_all() {
    let user = user();
    let none = user.run("alert list --cluster Body_Shop");
    assert_eq!(none.done(), "no active alerts\n");
    assert_eq!(user.run("alert list --cluster Body_Shop --check").code(), 0);
    assert_eq!(user.run("alert list --cluster Body_Shop -o json").json(), serde_json::json!([]));
    assert_eq!(user.run("alert list --cluster Body_Shop -o name").done(), "");
    let unknown = user.run("alert ack Body_Shop --note mine");
    assert!(unknown.refused(7).contains("there is no active alert about \"Body_Shop\""), "{unknown:#?}");
    let both = user.run("alert ack Body_Shop --note mine --withdraw");
    assert_eq!(both.code(), 2, "{both:#?}");
}

#[test]
fn a_configdb_that_does_not_answer_is_code_6_and_the_writer_reads_that_it_may_have_been_done() {
    // These nodes speak, and obey no command.
    let fleet = MadeUp::of(&Bench::with_cluster());
    let user = fleet.user();
    let lines = [
        "cluster create Silent_1 --timeout 3s",
        "token create silent --scope viewer --timeout 3s",
        "cluster rollout Paint_Shop --wave 2 --timeout 3s",
        "deployment create Oven_1 --cluster Paint_Shop --chart 3e369413-c7c9-5304-8459-af006cdcf218 --timeout 3s",
    ];
    for outcome in user.run_all(&lines) {
        let error = outcome.refused(6);
        assert!(error.contains("ConfigDB did not answer the request on "), "{outcome:#?}");
        assert!(error.contains("within 3s") && error.ends_with("it may or may not have been carried out"), "{error}");
        assert!(
            !outcome.stderr.contains("sfp_"),
            "a token that may be in force is not known to its maker: {outcome:#?}"
        );
    }
    let read = user.run("config history 00000000-0000-0000-0000-00000000000c --timeout 2s");
    assert_eq!(read.refused(6), "waited 2s for ConfigDB to answer; not reached");
}

#[test]
fn a_server_that_goes_away_while_a_command_waits_ends_it_in_time() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |cluster| cluster.sync_alive = true);
    let mut fleet = MadeUp::of(&bench);
    let words = ["cluster", "list", "--complete", "--timeout", "10s"];
    let mut child = fleet.user().start(&words);
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting for every edge sync"), "{line}");
    fleet.server.kill();
    let outcome = Outcome::of(&words, child);
    // It has no standard error any more either, and ends as it would have.
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (6, ""), "half a list is not shown: {outcome:#?}");
}

#[test]
fn who_connects_with_a_name_reads_what_the_server_needs_for_a_new_cluster() {
    let user = user();
    let made = user.run("cluster create Named_1 --username ada");
    let text = made.done();
    assert!(
        text.contains("The MQTT server must let the cluster publish and subscribe in group ACME-Named_1."),
        "{made:#?}"
    );
    let again = user.run("cluster create Named_1 --username ada");
    assert_eq!(again.lines().len(), 1, "nothing is new: {again:#?}");
}
