//! The exit codes of the reference, and that a refusal has changed nothing and gives no secret away.

use std::process::Command;

use crate::support::factory::user;
use crate::support::mosquitto::{Mosquitto, Settings};
use crate::support::program::User;

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
