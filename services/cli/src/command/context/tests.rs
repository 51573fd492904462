//! Contexts as commands make them, and what `login` leaves behind.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::Command;
use crate::served::Served;

const TOKEN: &str = "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn store() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sparkfleet/contexts.toml");
    (directory, file)
}

fn ran(file: &Path, line: &str) -> anyhow::Result<()> {
    let words = ["sparkfleet", "context"].into_iter().chain(line.split(' '));
    let Command::Context(command) = crate::arguments::parsed(words)? else { panic!("{line}") };
    run_in(command, file)
}

#[track_caller]
fn refused(file: &Path, line: &str) -> (u8, String) {
    let error = ran(file, line).expect_err(line);
    (exit::code_of(&error), format!("{error:#}"))
}

fn load(file: &Path) -> Contexts {
    Contexts::load(file).unwrap()
}

#[test]
fn the_first_context_is_the_current_one_and_a_setting_stays_until_it_is_taken_away() {
    let (_directory, file) = store();
    ran(&file, "set plant --broker mqtts://b:8883 --organisation WORKS --token-file token").unwrap();
    ran(&file, "set desk --broker mqtt://desk").unwrap();
    assert_eq!(load(&file).current.as_deref(), Some("plant"));
    ran(&file, "set plant --console https://c/ --unset organisation").unwrap();
    let plant = load(&file).get("plant").unwrap().clone();
    assert_eq!((plant.broker.as_deref(), plant.organisation), (Some("mqtts://b:8883"), None));
    assert_eq!(plant.console.as_deref(), Some("https://c"));
    let token = plant.token_file.unwrap();
    assert!(Path::new(&token).is_absolute() && token.ends_with("/token"), "{token}");
    ran(&file, "set third --use").unwrap();
    assert_eq!(load(&file).current.as_deref(), Some("third"));
    ran(&file, "use desk").unwrap();
    assert_eq!(load(&file).current.as_deref(), Some("desk"));
}

#[test]
fn what_cannot_be_a_context_is_refused_and_changes_nothing() {
    let (_directory, file) = store();
    ran(&file, "set plant").unwrap();
    let before = load(&file);
    for (line, code, part) in [
        ("set a/b", exit::USAGE, "the name of a context"),
        ("set plant --cert-file c.pem", exit::USAGE, "cert_file and key_file go together"),
        ("set plant --console c:8482", exit::USAGE, "http://HOST:PORT"),
        ("set plant --unset brokr", exit::USAGE, "did you mean \"broker\"?"),
        ("use plnt", exit::NOT_FOUND, "did you mean \"plant\"?"),
        ("show none", exit::NOT_FOUND, "no context \"none\""),
        ("delete none", exit::NOT_FOUND, "no context \"none\""),
        ("rename none other", exit::NOT_FOUND, "no context \"none\""),
        ("rename plant plant", exit::USAGE, "already"),
        ("rename plant ../plant", exit::USAGE, "the name of a context"),
    ] {
        let (ended, error) = refused(&file, line);
        assert!(ended == code && error.contains(part), "{line}: {ended}: {error}");
    }
    assert_eq!(load(&file), before);
    let error = ran(&file, "set plant --protocol 4").unwrap_err();
    assert!(error.to_string().contains("3.1.1"), "{error}");
}

#[test]
fn a_list_marks_the_current_context_and_shows_no_more_than_is_set() {
    let mut contexts = Contexts::default();
    assert!(list(&contexts)[0].starts_with("no contexts"));
    let plant = Context { broker: Some("mqtt://b".to_owned()), ..Context::default() };
    contexts.contexts = [("plant".to_owned(), plant.clone()), ("desk".to_owned(), Context::default())].into();
    contexts.current = Some("plant".to_owned());
    assert_eq!(list(&contexts), ["   CONTEXT  BROKER    CONSOLE  ORGANISATION", "   desk", "*  plant    mqtt://b"]);
    assert_eq!(shown("plant", &plant), ["context plant", "SETTING  VALUE", "broker   mqtt://b"]);
    assert_eq!(shown("desk", &Context::default())[1], "nothing is set");
}

/// A console that says of who asks what `session` is.
async fn console(session: &str) -> Served {
    Served::start(vec![("/api/v1/session", 200, session.to_owned())]).await
}

async fn login_with(file: &Path, url: &str, more: &str, typed: &str) -> anyhow::Result<()> {
    let words = ["sparkfleet", "login", url].into_iter().chain(more.split(' ').filter(|word| !word.is_empty()));
    let Command::Login(arguments) = crate::arguments::parsed(words)? else { panic!("login") };
    login_in(arguments, file, || Ok(Zeroizing::new(typed.to_owned()))).await
}

const KNOWN: &str = r#"{"organisation":"WORKS","user":"ada","role":"operator","version":"1","actions":[]}"#;

#[tokio::test]
async fn a_token_that_the_console_knows_makes_a_context_and_is_stored_for_its_owner_alone() {
    let (_directory, file) = store();
    let served = console(KNOWN).await;
    login_with(&file, &served.address, "--name plant --broker mqtt://b", &format!("{TOKEN}\n")).await.unwrap();
    let request = served.asked()[0].to_lowercase();
    assert!(request.starts_with("get /api/v1/session ") && request.contains("authorization: bearer sfp_"), "{request}");
    let contexts = load(&file);
    let plant = contexts.get("plant").unwrap();
    assert_eq!((contexts.current.as_deref(), plant.console.as_ref()), (Some("plant"), Some(&served.address)));
    assert_eq!((plant.organisation.as_deref(), plant.broker.as_deref()), (Some("WORKS"), Some("mqtt://b")));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("sfp_"));
    let token = PathBuf::from(plant.token_file.as_ref().unwrap());
    assert_eq!(std::fs::read_to_string(&token).unwrap().trim(), TOKEN);
    assert_eq!(std::fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);

    // The token goes with its context, under its new name as well.
    ran(&file, "rename plant works").unwrap();
    assert!(!token.exists());
    let moved = PathBuf::from(load(&file).get("works").unwrap().token_file.as_ref().unwrap());
    assert_eq!(moved, token_file(&file, "works"));
    ran(&file, "delete works").unwrap();
    assert!(!moved.exists() && load(&file) == Contexts::default());
}

#[tokio::test]
async fn the_file_of_a_token_that_is_named_is_used_where_it_is_and_stays() {
    let (directory, file) = store();
    let own = directory.path().join("own-token");
    std::fs::write(&own, TOKEN).unwrap();
    let served = console(KNOWN).await;
    login_with(&file, &served.address, &format!("--token-file {}", own.display()), "").await.unwrap();
    let contexts = load(&file);
    let context = contexts.get("127.0.0.1").unwrap();
    assert_eq!(context.token_file.as_deref(), own.to_str());
    ran(&file, "delete 127.0.0.1").unwrap();
    assert!(own.exists());
}

#[tokio::test]
async fn a_token_that_is_not_known_leaves_nothing_behind() {
    let (_directory, file) = store();
    let served = console(r#"{"organisation":"WORKS","user":null,"role":"viewer"}"#).await;
    let error = login_with(&file, &served.address, "--name plant", TOKEN).await.unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(error.to_string().contains("does not know this token") && !error.to_string().contains("sfp_"), "{error}");
    assert!(!file.exists() && !token_file(&file, "plant").exists());
}

#[tokio::test]
async fn a_token_is_not_sent_over_an_open_network_or_when_it_is_none() {
    let (_directory, file) = store();
    for (url, token, code, part) in [
        ("http://console.example", TOKEN, exit::USAGE, "https://HOST:PORT"),
        ("console.example", TOKEN, exit::USAGE, "http://HOST:PORT"),
        ("http://ada:pw@127.0.0.1:1", TOKEN, exit::USAGE, "http://HOST:PORT"),
        ("http://127.0.0.1:1", "", exit::CONFIG, "must hold a token and nothing else"),
        ("http://127.0.0.1:1", "two words", exit::CONFIG, "must hold a token and nothing else"),
        ("http://127.0.0.1:1", TOKEN, exit::UNAVAILABLE, "there is no console at http://127.0.0.1:1"),
    ] {
        let error = login_with(&file, url, "", token).await.unwrap_err();
        assert_eq!(exit::code_of(&error), code, "{url}: {error:#}");
        assert!(format!("{error:#}").contains(part) && !format!("{error:#}").contains("sfp_"), "{url}: {error:#}");
    }
    assert!(!file.exists());
}

#[test]
fn a_context_is_named_after_the_host_of_its_console() {
    for (address, name) in [
        ("https://console.example:8443", "console.example"),
        ("http://127.0.0.1:8482", "127.0.0.1"),
        ("http://[::1]:8482", "__1"),
    ] {
        assert_eq!(name_of(address).unwrap(), name);
        check_name(name).unwrap();
    }
}
