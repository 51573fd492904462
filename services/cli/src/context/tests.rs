//! Which context a command line is read in, and what comes before what.

use std::os::unix::fs::PermissionsExt as _;

use clap::{FromArgMatches as _, Subcommand as _};

use sparkplug_mqtt::Protocol;

use super::*;
use crate::arguments::Command;
use crate::options::Options;

const FILE: &str = r#"
current = "plant"

[contexts.plant]
broker = "mqtts://plant:8883"
organisation = "WORKS"
console = "https://console.plant"
token_file = "/etc/token"

[contexts.desk]
broker = "mqtt://desk:1883"
protocol = "5"
"#;

/// The user's file with this text.
fn store(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("contexts.toml");
    std::fs::write(&file, text).unwrap();
    (directory, file)
}

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("sparkfleet").chain(line.split(' ')).map(OsString::from).collect()
}

fn matches(file: &Path, of_environment: Option<&str>, line: &str) -> anyhow::Result<clap::ArgMatches> {
    let command = Command::augment_subcommands(clap::Command::new("sparkfleet"));
    read_with(Some(file), of_environment, command, words(line), clap::Command::try_get_matches_from)?
        .map_err(anyhow::Error::new)
}

/// The options of `sparkfleet status` on such a line.
fn status(file: &Path, of_environment: Option<&str>, line: &str) -> anyhow::Result<Options> {
    match Command::from_arg_matches(&matches(file, of_environment, line)?)? {
        Command::Status { options, .. } => Ok(options),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_setting_comes_from_the_option_then_the_context_then_the_default() {
    let (_directory, file) = store(FILE);
    let of = |of_environment: Option<&str>, line: &str| {
        let connection = status(&file, of_environment, line).unwrap().connection;
        (connection.broker, connection.organisation, connection.protocol)
    };
    let expected = |broker: &str, organisation: &str, protocol| (broker.to_owned(), organisation.to_owned(), protocol);
    assert_eq!(of(None, "status"), expected("mqtts://plant:8883", "WORKS", Protocol::Auto));
    assert_eq!(of(Some("desk"), "status"), expected("mqtt://desk:1883", "ACME", Protocol::V5));
    assert_eq!(of(Some("plant"), "status --context desk"), expected("mqtt://desk:1883", "ACME", Protocol::V5));
    assert_eq!(of(None, "status --context=desk --broker mqtt://x"), expected("mqtt://x", "ACME", Protocol::V5));
}

#[test]
fn a_context_that_is_named_and_not_there_is_an_error_for_those_who_need_one() {
    let (_directory, file) = store(FILE);
    let error = status(&file, None, "status --context plnt").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    assert!(error.to_string().contains("did you mean \"plant\"?"), "{error}");
    assert_eq!(exit::code_of(&status(&file, Some("none"), "status").unwrap_err()), exit::NOT_FOUND);
    // The commands that mend the file go on.
    matches(&file, Some("none"), "context list").unwrap();
    let (_directory, dangling) = store("current = \"gone\"");
    matches(&dangling, None, "context list").unwrap();
    assert_eq!(exit::code_of(&status(&dangling, None, "status").unwrap_err()), exit::NOT_FOUND);
}

#[test]
fn a_file_that_is_broken_is_named_with_the_place() {
    for (text, part) in [
        ("current = ", "contexts.toml is not a file of contexts"),
        ("[contexts.a]\nbrokr = \"x\"", "unknown field `brokr`"),
        ("[contexts.a]\nbroker = 5", "expected a string"),
    ] {
        let (_directory, file) = store(text);
        let error = status(&file, None, "status").unwrap_err();
        assert_eq!(exit::code_of(&error), exit::CONFIG, "{text}");
        assert!(format!("{error:#}").contains(part), "{text}: {error:#}");
        matches(&file, None, "acl generate --broker emqx").unwrap();
    }
}

#[test]
fn without_a_file_or_a_home_there_are_no_contexts() {
    let directory = tempfile::tempdir().unwrap();
    let options = status(&directory.path().join("none"), None, "status").unwrap();
    assert_eq!(options.connection.broker, "mqtt://127.0.0.1:1883");
    let command = Command::augment_subcommands(clap::Command::new("sparkfleet"));
    let read = read_with(None, Some("a"), command, words("status"), clap::Command::try_get_matches_from);
    assert_eq!(exit::code_of(&read.unwrap_err()), exit::NOT_FOUND);
}

/// `PATH` is set wherever tests run.
#[test]
fn a_context_that_the_command_line_names_comes_before_the_environment_and_the_current_one_after() {
    let of = |is_named: bool| {
        let context = Context { broker: Some("mqtt://of-context".to_owned()), ..Context::default() };
        let argument = |id: &'static str| clap::Arg::new(id).long(id);
        let command = clap::Command::new("x")
            .arg(argument("context"))
            .arg(argument("broker").env("PATH").default_value("default"));
        let matches = with_defaults(command, &Chosen { context, is_named }).try_get_matches_from(["x"]).unwrap();
        matches.get_one::<String>("broker").cloned().unwrap()
    };
    assert_eq!(of(true), "mqtt://of-context");
    assert_eq!(of(false), std::env::var("PATH").unwrap());
}

#[test]
fn every_setting_is_an_option_of_some_command() {
    fn ids(command: &clap::Command, found: &mut Vec<String>) {
        found.extend(command.get_arguments().map(|argument| argument.get_id().to_string()));
        command.get_subcommands().for_each(|below| ids(below, found));
    }
    let mut found = Vec::new();
    ids(&Command::augment_subcommands(clap::Command::new("sparkfleet")), &mut found);
    for (setting, _) in Context::default().settings() {
        let options = options_of(setting);
        assert!(!options.is_empty() && options.iter().all(|option| found.iter().any(|id| id == option)), "{setting}");
        assert!(Context::default().setting(setting).is_some(), "{setting}");
    }
}

#[test]
fn the_context_of_a_line_is_found_before_it_is_read() {
    for (line, expected) in [
        ("status --context plant", Some("plant")),
        ("--context=plant status", Some("plant")),
        ("status --context", None),
        ("status --context=", None),
        ("status --contexts plant", None),
        ("status -- --context plant", None),
        ("status", None),
    ] {
        assert_eq!(value_of("--context", &words(line)).as_deref(), expected, "{line}");
    }
}

#[test]
fn a_name_is_also_the_name_of_a_file() {
    for good in ["plant", "Plant-2.a_b", "127.0.0.1"] {
        check_name(good).unwrap();
    }
    for bad in ["", ".", "-x", "../x", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert_eq!(exit::code_of(&check_name(bad).unwrap_err()), exit::USAGE, "{bad}");
    }
}

#[test]
fn settings_lie_where_the_environment_says_and_are_for_their_owner_alone() {
    let of = |pairs: &[(&str, &str)]| {
        directory(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    };
    assert_eq!(of(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]), Some("/x/sparkfleet".into()));
    assert_eq!(of(&[("HOME", "/h")]), Some("/h/.config/sparkfleet".into()));
    assert_eq!(of(&[("XDG_CONFIG_HOME", "relative"), ("HOME", "/h")]), Some("/h/.config/sparkfleet".into()));
    assert_eq!(of(&[("HOME", "")]), None);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a/b/contexts.toml");
    let contexts: Contexts = toml::from_str(FILE).unwrap();
    contexts.save(&file).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(Contexts::load(&file).unwrap(), contexts);
}

#[test]
fn the_console_of_a_line_that_is_being_written_is_that_of_its_options_environment_and_context() {
    let contexts: Contexts = toml::from_str(FILE).unwrap();
    let of_file = |contexts: &Contexts, line: &str, variables: &[(&str, &str)]| {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        console_of(contexts, &words(line), variable).map(|console| (console.address, console.access.token_file))
    };
    let of = |line: &str, variables: &[(&str, &str)]| of_file(&contexts, line, variables);
    let plant = || Some(("https://console.plant".to_owned(), Some(PathBuf::from("/etc/token"))));
    let other = |token: Option<&str>| Some(("http://other".to_owned(), token.map(PathBuf::from)));
    let set = [("SPARKFLEET_CONSOLE", "http://other")];
    assert_eq!(of("cluster show P", &[]), plant());
    assert_eq!(of("cluster show P", &set), other(Some("/etc/token")));
    assert_eq!(of("cluster show --context=plant P", &set), plant());
    assert_eq!(of("cluster show --context desk P", &set), other(None));
    assert_eq!(of("cluster show --console http://other --console-token-file t P", &[]), other(Some("t")));
    assert_eq!(of("cluster show P", &[("SPARKFLEET_CONTEXT", "desk")]), None);
    assert_eq!(of("cluster show --context gone P", &set), None, "the command would be refused");
    // Without a context it is that of `sparkfleet up`, unless a broker is named, which may be of another fleet.
    let none = |line: &str, variables: &[(&str, &str)]| of_file(&Contexts::default(), line, variables);
    assert_eq!(none("cluster show P", &[]), Some((CONSOLE_DEFAULT.to_owned(), None)));
    assert_eq!(none("cluster show --broker mqtt://b P", &[]), None);
    assert_eq!(none("cluster show P", &[("SPARKFLEET_BROKER", "mqtt://b")]), None);
    assert_eq!(none("cluster show P", &[("SPARKFLEET_BROKER", "mqtt://b"), set[0]]), other(None));
}
