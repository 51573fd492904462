//! Contexts as a user has them: one file, and what it does to the commands that follow.

use serde_json::json;

use crate::support::factory::{factory, user};
use crate::support::program::{User, mode};

/// A user without an environment.
fn stranger() -> User {
    User::of("")
}

#[test]
fn a_context_takes_the_place_of_options_until_an_option_or_the_environment_says_otherwise() {
    let mut user = stranger();
    user.forget("SPARKFLEET_BROKER");
    let set = user.run(&format!("context set plant --broker {} --organisation ACME", factory().broker));
    assert_eq!(set.done(), "plant created, the current context\n");
    assert!(user.run("cluster list -o name").lines().contains(&"Body_Shop"));
    user.run("context set nowhere --broker mqtt://127.0.0.1:1").done();
    assert!(user.run("cluster list -o name").lines().contains(&"Body_Shop"), "the first stays the current one");
    user.run("cluster list --context nowhere").refused(4);
    user.run("context use nowhere").done();
    user.run("cluster list").refused(4);
    assert!(user.run("cluster list -o name --context plant").lines().contains(&"Body_Shop"));
    let user = user.with("SPARKFLEET_CONTEXT", "plant");
    assert!(user.run("cluster list -o name").lines().contains(&"Body_Shop"));
    let user = user.with("SPARKFLEET_BROKER", "mqtt://127.0.0.1:2");
    let outcome = user.run("cluster list --context plant -o name");
    assert!(
        outcome.lines().contains(&"Body_Shop"),
        "a context that the command line names comes before the environment"
    );
    let named = user.run("cluster list --context plnt");
    assert_eq!(named.refused(7), "there is no context \"plnt\"; did you mean \"plant\"? there are: nowhere, plant");
}

#[test]
fn what_a_user_reads_of_contexts() {
    let mut user = stranger();
    user.forget("SPARKFLEET_BROKER");
    assert_eq!(
        user.run("context list").done(),
        "no contexts; `sparkfleet login URL` or `sparkfleet context set NAME` makes one\n"
    );
    assert_eq!(user.run("context show").refused(2), "no context is the current one; name one");
    user.run("context set a --broker mqtt://a --organisation ORG").done();
    user.run("context set b --console http://127.0.0.1:1 --password-file secret").done();
    let expected = "   CONTEXT  BROKER    CONSOLE             ORGANISATION\n*  a        mqtt://a                      ORG\n   b                  http://127.0.0.1:1\n";
    assert_eq!(user.run("context list").done(), expected);
    assert_eq!(
        user.run("context show").done(),
        "context a\nSETTING       VALUE\nbroker        mqtt://a\norganisation  ORG\n"
    );
    let shown = user.run("context show b -o json").json();
    assert_eq!((&shown["name"], &shown["settings"]["console"]), (&json!("b"), &json!("http://127.0.0.1:1")));
    assert!(
        shown["settings"]["password_file"].as_str().unwrap().starts_with('/'),
        "a path means the same wherever it is used"
    );
    assert_eq!(user.run("context rename b c").done(), "b is c now\n");
    assert_eq!(user.run("context rename c a").refused(2), "there is a context a already");
    assert_eq!(user.run("context delete c").done(), "c deleted\n");
    assert_eq!(
        user.run("context set a --unset broker --unset organisation").done(),
        "a changed, the current context\n"
    );
    assert_eq!(user.run("context show").done(), "context a\nnothing is set\n");
    let file = user.path("sparkfleet/contexts.toml");
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn what_cannot_be_a_context_is_refused_and_the_file_stays() {
    let mut user = stranger();
    user.forget("SPARKFLEET_BROKER");
    user.run("context set a --broker mqtt://a").done();
    let before = std::fs::read(user.path("sparkfleet/contexts.toml")).unwrap();
    for line in [
        "context set ../x --broker mqtt://x",
        "context set .x",
        "context set -- -x",
        "context set a --cert-file x",
        "context set a --unset brokr",
        "context set a --console ftp://x",
        "context set a --protocol 9",
        "context rename a ../b",
    ] {
        let outcome = user.run(line);
        assert_eq!((outcome.code(), outcome.stdout.as_str()), (2, ""), "{outcome:#?}");
    }
    user.run_words(&["context", "set", "a b"], "").refused(2);
    user.run_words(&["context", "set", "a\u{1b}[2J"], "").refused(2);
    assert!(user.run("context use b").refused(7).contains("there is no context \"b\""));
    assert!(user.run("context delete b").refused(7).contains("there are: a"));
    assert_eq!(std::fs::read(user.path("sparkfleet/contexts.toml")).unwrap(), before);
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_line_and_kept() {
    let user = user();
    for (text, part) in [
        ("current = \n", "line 1"),
        ("[contexts.a]\nbrokr = \"x\"\n", "brokr"),
        ("[contexts.a]\nbroker = 7\n", "line 2"),
        ("current = \"gone\"\n", "there is no context \"gone\""),
        ("\u{1b}[2J", "contexts.toml"),
    ] {
        let file = user.file("sparkfleet/contexts.toml", text);
        let outcome = user.run("cluster list");
        let code = if part.starts_with("there is") { 7 } else { 3 };
        let error = outcome.refused(code);
        assert!(error.contains(part), "{text:?}: {error}");
        assert_eq!(outcome.explained().len(), 1, "{outcome:#?}");
        if code == 3 {
            user.run("context set a --broker mqtt://a").refused(3);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "what a user may still mend is not written over");
        }
    }
}

#[test]
fn a_login_needs_a_token_that_the_console_knows_and_keeps_it_for_its_owner_alone() {
    let user = user();
    let console = &factory().console;
    let token = user.run("token create login-1 --scope operator").done().to_owned();
    let login = format!("login {console} --name hall");
    let unknown = user.run_with(&login, &format!("sfp_{}", "A".repeat(43)));
    let error = unknown.refused(5);
    assert!(error.contains("does not know this token, or no longer"), "{error}");
    assert!(!unknown.stderr.contains("AAAA") && !user.path("sparkfleet").exists(), "{unknown:#?}");
    for (input, code) in [("", 3), ("two words", 3), ("sfp_\u{1b}[2J", 3)] {
        let outcome = user.run_with(&login, input);
        assert_eq!(outcome.code(), code, "{input:?}: {outcome:#?}");
    }
    let known = crate::support::factory::until(|| user.run_with(&login, &token), |outcome| outcome.code() == 0);
    assert_eq!(
        known.done(),
        format!("token:login-1 (operator) at {console}, organisation ACME; hall is the current context\n")
    );
    let stored = user.path("sparkfleet/tokens/hall");
    assert_eq!((mode(&stored), std::fs::read_to_string(&stored).unwrap().trim_end()), (0o600, token.trim_end()));
    assert!(!user.run("context show -o json").done().contains("sfp_"));
    // Lists are read of the console now, and are the same.
    let listed = user.run("deployment list --cluster Body_Shop -o name");
    assert!(listed.lines().contains(&"Body_Shop/Robot_Cell_1"), "{listed:#?}");
    user.run("context delete hall").done();
    assert!(!stored.exists(), "a token that was stored goes with its context");
    user.run("token revoke login-1").done();
}
