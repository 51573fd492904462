//! What the command line takes and refuses, without a broker: every command at least once, every rule between options.

use clap::error::ErrorKind;

use super::*;
use crate::options::{OutputForm, ReadingSource, Source};

/// Reads `sparkfleet <line>`; words are separated by blanks.
fn read(line: &str) -> Result<Command, clap::Error> {
    parsed(std::iter::once("sparkfleet").chain(line.split(' ').filter(|word| !word.is_empty())))
}

#[track_caller]
fn taken(line: &str) -> Command {
    read(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The kind of error and its text.
#[track_caller]
fn refused(line: &str) -> (ErrorKind, String) {
    let error = read(line).expect_err(line);
    (error.kind(), error.to_string())
}

const HASH: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

#[test]
fn no_two_options_of_a_command_contradict_each_other() {
    Command::augment_subcommands(clap::Command::new("sparkfleet")).debug_assert();
}

#[test]
fn every_command_and_every_argument_is_explained() {
    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        assert!(command.get_about().is_some() || command.get_name() == "sparkfleet", "{path}");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
        command.get_subcommands().for_each(|below| check(below, &path));
    }
    check(&Command::augment_subcommands(clap::Command::new("sparkfleet")), "");
}

/// The words of a line as a shell has them: parted at blanks, literal between single quotes.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut characters) = (Vec::new(), String::new(), false, line.chars());
    while let Some(character) = characters.next() {
        match character {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.extend(characters.next()),
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words
}

#[test]
fn every_command_that_the_page_of_the_console_shows_is_taken() {
    let examples = include_str!("../../../console/web/test/commands.txt");
    assert!(examples.lines().count() > 40);
    for line in examples.lines() {
        let (_, command) = line.rsplit_once(" | ").unwrap_or(("", line));
        // The program has `config` beside the commands of this package.
        let config = ConfigCommand::augment_subcommands(clap::Command::new("config"));
        let program = Command::augment_subcommands(clap::Command::new("sparkfleet")).subcommand(config);
        let taken = program.try_get_matches_from(shell_words(command));
        assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
    }
    let words = shell_words(r"printf '%s' 'it'\''s'");
    assert_eq!(words, ["printf", "%s", "it's"]);
}

#[test]
fn the_help_of_lists_has_examples_that_are_commands_of_their_own() {
    let fleet = Command::augment_subcommands(clap::Command::new("sparkfleet"));
    for name in ["cluster", "host", "deployment", "alert"] {
        let list = fleet.find_subcommand(name).and_then(|group| group.find_subcommand("list")).unwrap();
        let text = list.get_after_help().unwrap_or_else(|| panic!("{name} list has no examples")).to_string();
        let examples: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("sparkfleet ")).collect();
        assert!(examples.len() > 1, "{name} list: {text}");
        for example in examples {
            assert!(example.starts_with(&format!("{name} list ")), "{name} list: {example}");
            taken(example.split(['#', '|']).next().unwrap());
        }
    }
}

#[test]
fn commands_have_the_short_names_that_people_try() {
    for line in [
        "check",
        "check --bundle support.tar.gz --console http://127.0.0.1:8482",
        "cluster reconcile Paint",
        "cluster rm Paint",
        "clusters ls",
        "deployments get Paint/Oven",
        "deployment suspend Paint/Oven --wait",
        "deployment resume Paint/Oven",
        "deployment reconcile Paint/Oven",
        "alert silence Paint --for 4h",
        "apply -f site.yaml --wait",
    ] {
        taken(line);
    }
    assert!(refused("deployment suspend").1.contains("<DEPLOYMENT>"));
    assert!(refused("alert silence Paint").1.contains("--for <TIME>"));
    assert_eq!(refused("apply -f site.yaml --wait --dry-run").0, ErrorKind::ArgumentConflict);
}

#[test]
fn every_command_is_taken_with_its_shortest_line() {
    for line in [
        "watch",
        "replay recording",
        "write ACME-Plant/Node Setpoint 5",
        "ui",
        "context list",
        "context use plant",
        "context show",
        "context set plant --broker mqtt://b",
        "context rename plant works",
        "context delete plant",
        "login https://console.example",
        "cluster create Paint",
        "cluster list",
        "cluster show Paint",
        "cluster edit Paint",
        "cluster bootstrap Paint",
        "cluster identity show Paint",
        "cluster identity revoke Paint",
        "cluster identity approve Paint",
        "cluster identity replace Paint",
        "cluster rollout Paint",
        "cluster delete Paint",
        "deployment create Oven --cluster Paint",
        "deployment list",
        "deployment show Paint/Oven",
        "deployment manifests Paint/Oven",
        "deployment edit Paint/Oven",
        "deployment move Paint/Oven",
        "deployment delete Paint/Oven",
        "status",
        "rollout list",
        "rollout hold Agent",
        "rollout resume Agent",
        "rollout free Agent --cluster Paint",
        "alert list",
        "alert ack Paint/Oven",
        "events",
        "recover status",
        "recover adopt Paint",
        "recover adopt --all",
        "recover discard Paint",
        "host list",
        "host show press-1",
        "host revoke press-1",
        "policy show Paint",
        "policy set Paint policy.yaml",
        "policy from-image Paint host.efi",
        "trust init",
        "trust issue Paint --purpose join-issuer",
        "secret seal Paint --name press --from-file password=-",
        "secret put Paint press password",
        "secret list Paint",
        "cluster label Paint site=Graz line-",
        "cluster list -l site=Graz,!retired",
        "deployment label Paint/Oven critical=yes",
        "deployment list -l critical",
        "secret delete Paint press password --no-wait",
        "token create ci --scope viewer",
        "token list",
        "token revoke ci",
        "audit verify audit.jsonl",
        "acl generate --broker mosquitto --cluster Paint",
        "acl crl --ca ca.pem --list revoked.pem --out crl.pem",
        "acl operator ada --ca ca.pem --ca-key ca.key --directory pki",
    ] {
        taken(line);
    }
}

#[test]
fn what_is_missing_is_named() {
    for (line, missing) in [
        ("cluster create", "<NAME>"),
        ("cluster show", "<CLUSTER>"),
        ("deployment create Oven", "--cluster"),
        ("recover adopt", "<CLUSTER>"),
        ("recover discard", "<CLUSTER>"),
        ("policy set Paint", "<FILE>"),
        ("policy from-image Paint", "<IMAGES>"),
        ("trust issue Paint", "--purpose"),
        ("secret seal --name a --from-file k=-", "<CLUSTER>"),
        ("secret seal Paint --name a", "--from-file"),
        ("secret put Paint press", "<KEY>"),
        ("secret list", "<CLUSTER>"),
        ("cluster label Paint", "<LABELS>"),
        ("secret delete Paint press", "<KEYS>"),
        ("token create ci", "--scope"),
        ("acl generate --cluster Paint", "--broker"),
        ("acl crl --ca ca.pem --out crl.pem", "--list"),
        ("acl operator ada --ca ca.pem --directory pki", "--ca-key"),
        ("login", "<URL>"),
        ("context use", "<NAME>"),
        ("context rename hall", "<NEW>"),
        ("alert ack", "<ABOUT>"),
        ("at", "<TIME>"),
        ("deployment edit", "<DEPLOYMENT>"),
        ("rollout free Agent", "--cluster"),
        ("replay", "<FILE>"),
        ("write ACME-Paint/Press", "<NAME>"),
        ("status --key-file k.pem", "--cert-file"),
        ("status --cert-file c.pem", "--key-file"),
    ] {
        let (kind, text) = refused(line);
        assert_eq!(kind, ErrorKind::MissingRequiredArgument, "{line}: {text}");
        assert!(text.contains(missing), "{line}: {text}");
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_together() {
    for line in [
        "recover adopt Paint --all",
        "secret seal Paint --name a --from-file k=- --certificate c.pem",
        "trust issue Paint --purpose cluster-admin --renew --force",
        "alert list --check --watch",
        "alert ack Paint --note later --withdraw",
        "events --export night.jsonl --cluster Paint",
        "events --export night.jsonl --limit 5",
        "watch --read file --record other",
        "watch --read file --rebirth",
        "watch --read file --for 5s",
    ] {
        let (kind, text) = refused(line);
        assert_eq!(kind, ErrorKind::ArgumentConflict, "{line}: {text}");
    }
}

#[test]
fn a_value_that_breaks_its_rule_is_refused_with_the_rule() {
    for (line, rule) in [
        ("cluster rollout Paint --wave 0", "1..=9"),
        ("cluster rollout Paint --wave 10", "1..=9"),
        ("cluster rollout Paint --pin charts", "REPOSITORY=commit:HASH"),
        ("cluster rollout Paint --pin charts=head:x", "REPOSITORY=commit:HASH"),
        ("cluster bootstrap Paint --expires soon", "expected number"),
        ("status --timeout 5", "time unit"),
        ("status --protocol 4", "3.1.1"),
        ("trust issue Paint --purpose join-issuer --days 0", "1..=3660"),
        ("trust issue Paint --purpose authority", "policy-signer"),
        ("host revoke press-1 --serial 0", "1.."),
        ("host revoke press-1 --valid-days 5000", "1..=3660"),
        ("secret put Paint press password --fingerprint 0f", "64 hexadecimal digits"),
        ("secret put Paint press password --scope node", "namespace-wide"),
        ("cluster label Paint site", "KEY=VALUE"),
        ("cluster label Paint site=", "KEY=VALUE"),
        ("cluster list -l =", "KEY=VALUE"),
        ("token create ci --scope root", "administrator"),
        ("acl generate --broker nanomq --cluster Paint", "vernemq"),
        ("watch --count 0", "1.."),
        ("events --limit 0", "1..=100000"),
        ("events --since yesterday", "how long ago"),
        ("at tomorrow", "milliseconds since 1970"),
        ("at 1h pods", "deployments"),
        ("cluster list --from api", "console"),
        ("alert list --from cache", "broker"),
        ("context set hall --protocol 4", "3.1.1"),
        ("replay night.jsonl --speed -1", "speed"),
        ("status -o xml", "yaml"),
    ] {
        let (kind, text) = refused(line);
        assert!(matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue), "{line}: {kind:?} {text}");
        assert!(text.contains(rule), "{line}: {text}");
    }
}

#[test]
fn a_command_that_is_mistyped_suggests_the_right_one() {
    for (line, right) in
        [("clustr list", "cluster"), ("cluster lst", "list"), ("deployment mov", "move"), ("polcy show P", "policy")]
    {
        let (kind, text) = refused(line);
        assert_eq!(kind, ErrorKind::InvalidSubcommand, "{text}");
        assert!(text.contains(&format!("'{right}'")), "{line}: {text}");
    }
    let (kind, text) = refused("cluster list --brokr x");
    assert!(kind == ErrorKind::UnknownArgument && text.contains("--broker"), "{text}");
}

#[test]
fn without_options_a_command_speaks_with_the_broker_on_this_machine() {
    let Command::Status { options: Options { connection, presentation }, .. } = taken("status") else {
        panic!("status")
    };
    assert_eq!((&*connection.broker, &*connection.organisation), ("mqtt://127.0.0.1:1883", "ACME"));
    assert_eq!((&*connection.host_id, connection.protocol), ("sparkfleet-cli", sparkplug_mqtt::Protocol::Auto));
    assert!(connection.username.is_none() && connection.password_file.is_none() && connection.ca_file.is_none());
    assert_eq!((presentation.output, presentation.timeout.as_secs()), (OutputForm::Table, 30));
}

#[test]
fn connection_options_are_taken_behind_any_command() {
    let line = "status --broker mqtts://b:8883 --organisation WORKS --username ada --password-file p --ca-file ca.pem \
                --cert-file c.pem --key-file k.pem --protocol 5 --host-id desk -o json --timeout 2m";
    let Command::Status { options: Options { connection, presentation }, .. } = taken(line) else { panic!("status") };
    assert_eq!((&*connection.broker, &*connection.organisation), ("mqtts://b:8883", "WORKS"));
    assert_eq!((connection.username.as_deref(), &*connection.host_id), (Some("ada"), "desk"));
    let files = [connection.password_file, connection.ca_file, connection.cert_file, connection.key_file];
    let files: Vec<String> = files.into_iter().map(|file| file.unwrap().display().to_string()).collect();
    assert_eq!(files, ["p", "ca.pem", "c.pem", "k.pem"]);
    assert_eq!((presentation.output, presentation.timeout.as_secs()), (OutputForm::Json, 120));
}

#[test]
fn a_deployment_runs_the_edge_agent_unless_another_chart_is_named() {
    let Command::Deployment(DeploymentCommand::Create { name, cluster, chart, host, values, wait, .. }) =
        taken("deployment create Oven --cluster Paint")
    else {
        panic!("create")
    };
    assert_eq!((&*name, &*cluster, &*chart), ("Oven", "Paint", "Edge agent"));
    assert!(host.is_none() && values.is_none() && !wait, "it floats, and nothing waits");
    let line = "deployment create Oven --cluster Paint --chart c --host paint-1 --values - --wait";
    let Command::Deployment(DeploymentCommand::Create { chart, host, values, wait, .. }) = taken(line) else {
        panic!("create")
    };
    assert_eq!((&*chart, host.as_deref(), values), ("c", Some("paint-1"), Some(PathBuf::from("-"))));
    assert!(wait);
}

#[test]
fn a_rollout_has_a_wave_and_places_to_stay_at() {
    let line = "cluster rollout Paint --wave 2 --pin charts=tag:v1 --pin edge=branch:main --unpin old";
    let Command::Cluster(ClusterCommand::Rollout { cluster, wave, pin, unpin, .. }) = taken(line) else {
        panic!("rollout")
    };
    assert_eq!((&*cluster, wave, unpin), ("Paint", Some(2), vec!["old".to_owned()]));
    let expected =
        [("charts".to_owned(), GitRef::Tag("v1".to_owned())), ("edge".to_owned(), GitRef::Branch("main".to_owned()))];
    assert_eq!(pin, expected);
}

#[test]
fn a_bootstrap_command_lives_a_day_unless_it_is_said() {
    let expires = |line: &str| match taken(line) {
        Command::Cluster(ClusterCommand::Bootstrap { expires, revoke, .. }) => (expires.as_secs(), revoke),
        other => panic!("{other:?}"),
    };
    assert_eq!(expires("cluster bootstrap Paint"), (24 * 3600, false));
    assert_eq!(expires("cluster bootstrap Paint --expires 90m"), (90 * 60, false));
    assert_eq!(expires("cluster bootstrap Paint --revoke"), (24 * 3600, true));
}

#[test]
fn a_secret_is_bound_to_its_name_unless_it_is_said() {
    let Command::Secret(SecretCommand::Put(put)) = taken("secret put Paint press password") else { panic!("put") };
    assert_eq!((&*put.place.cluster, &*put.place.name, &*put.place.namespace), ("Paint", "press", "fplus-edge"));
    assert_eq!((&*put.key, put.file, &*put.secret_type), ("password", PathBuf::from("-"), "Opaque"));
    assert!(put.scope == secret::SealingScope::Strict && put.fingerprint.is_none() && !put.dry_run);
    let line = format!(
        "secret put Paint press password --namespace shop --file f --type kubernetes.io/tls \
         --scope cluster-wide --fingerprint {HASH} --dry-run"
    );
    let Command::Secret(SecretCommand::Put(put)) = taken(&line) else { panic!("put") };
    assert_eq!((&*put.place.namespace, put.file, &*put.secret_type), ("shop", "f".into(), "kubernetes.io/tls"));
    assert_eq!((put.scope, put.fingerprint.as_deref()), (secret::SealingScope::ClusterWide, Some(HASH)));
    assert!(put.dry_run && !put.no_wait);
}

#[test]
fn an_acl_is_for_one_kind_of_server_and_any_number_of_clusters() {
    let line =
        "acl generate --broker emqx --cluster Paint --cluster Body --viewer-host historian --own-host-credentials";
    let Command::Acl(AclCommand::Generate(AclGenerateArguments { broker, site, directory, .. })) = taken(line) else {
        panic!("generate")
    };
    assert_eq!((broker, site.cluster.len()), (BrokerKind::Emqx, 2));
    assert_eq!((site.operator_host, site.viewer_host.len()), (vec!["sparkfleet-cli".to_owned()], 1));
    assert!(site.own_host_credentials && site.clusters_from.is_none() && directory.is_none());
    let line = "acl check --cluster Paint --credentials pki --broker mqtts://b:8883 --ca-file ca.pem -o json";
    let Command::Acl(AclCommand::Check(arguments)) = taken(line) else { panic!("check") };
    assert_eq!((arguments.credentials, arguments.site.cluster.len()), (PathBuf::from("pki"), 1));
    assert_eq!(arguments.options.connection.broker, "mqtts://b:8883");
    let line = "acl generate --broker emqx --cluster Paint --operator ada --operator bob";
    let Command::Acl(AclCommand::Generate(arguments)) = taken(line) else { panic!("generate") };
    assert_eq!(arguments.site.operator, ["ada", "bob"]);
    for kind in ["mosquitto", "mosquitto-dynsec", "emqx", "hivemq", "vernemq"] {
        taken(&format!("acl generate --broker {kind} --cluster Paint"));
    }
}

#[test]
fn a_key_is_certified_for_a_year_and_a_policy_signed_for_as_long() {
    let Command::Trust(TrustCommand::Issue { cluster, purpose, dir, out, days, epoch, renew, force, .. }) =
        taken("trust issue Paint --purpose policy-signer")
    else {
        panic!("issue")
    };
    assert_eq!((&*cluster, purpose, dir, out), ("Paint", joining::IssuedPurpose::PolicySigner, "trust".into(), None));
    assert_eq!((days, epoch, renew, force), (365, 1, false, false));
    let Command::Policy(PolicyCommand::Set { if_match, signer, .. }) = taken("policy set Paint p.yaml --if-match none")
    else {
        panic!("set")
    };
    assert_eq!((if_match.as_deref(), signer.valid_days, signer.serial), (Some("none"), 366, None));
}

#[test]
fn entries_are_read_and_written_by_object_and_application() {
    fn config(line: &str) -> ConfigCommand {
        let words = std::iter::once("config").chain(line.split(' '));
        let matches = ConfigCommand::augment_subcommands(clap::Command::new("config")).try_get_matches_from(words);
        <ConfigCommand as clap::FromArgMatches>::from_arg_matches(&matches.unwrap()).unwrap()
    }
    let ConfigCommand::Put { object, application, file, if_match, class, .. } =
        config("put Paint EdgeCluster - --if-match none --class edge")
    else {
        panic!("put")
    };
    assert_eq!((&*object, &*application, file), ("Paint", "EdgeCluster", PathBuf::from("-")));
    assert_eq!((if_match.as_deref(), class.as_deref()), (Some("none"), Some("edge")));
    let ConfigCommand::Delete { application, .. } = config("delete Paint") else { panic!("delete") };
    assert_eq!(application, None, "the object itself");
    let ConfigCommand::History { since, limit, .. } = config("history Paint") else { panic!("history") };
    assert_eq!((since, limit), (0, 100));
    let ConfigCommand::Load { dry_run, allow_delete, .. } = config("load dump.yaml --dry-run") else { panic!("load") };
    assert!(dry_run && !allow_delete);
    assert!(matches!(config("list"), ConfigCommand::List { application: None, class: None, .. }));
    assert!(matches!(config("get Paint EdgeCluster"), ConfigCommand::Get { .. }));
    assert!(matches!(config("patch Paint EdgeCluster -"), ConfigCommand::Patch { if_match: None, .. }));
    assert!(matches!(config("dump"), ConfigCommand::Dump { file: None, .. }));
    assert!(matches!(config("dump all.yaml"), ConfigCommand::Dump { file: Some(_), .. }));
}

#[test]
fn a_pin_names_repository_kind_and_place() {
    let commit = "0123456789012345678901234567890123456789";
    let pinned = |repository: &str, place| Ok((repository.to_owned(), place));
    assert_eq!(pin(&format!("shared/helm=commit:{commit}")), pinned("shared/helm", GitRef::Commit(commit.to_owned())));
    assert_eq!(pin("a=semver:>=1.0 <2"), pinned("a", GitRef::Semver(">=1.0 <2".to_owned())));
    for bad in ["shared/helm", "a=main", "a=commit:", "a=sha:1"] {
        assert!(pin(bad).unwrap_err().contains("REPOSITORY=tag:NAME"), "{bad}");
    }
}

#[test]
fn a_list_is_printed_once_from_wherever_it_can_be_read_unless_it_is_said() {
    let reading = |line: &str| match taken(line) {
        Command::Cluster(ClusterCommand::List { reading, .. }) => reading,
        Command::Deployment(DeploymentCommand::List { reading, .. }) => reading,
        Command::Alert(AlertCommand::List { reading, .. }) => reading,
        Command::Host(HostCommand::List { reading, .. }) => reading,
        other => panic!("{other:?}"),
    };
    for noun in ["cluster", "deployment", "alert", "host"] {
        let plain = reading(&format!("{noun} ls"));
        let ReadingSource { from, access, .. } = &plain.source;
        assert!(!plain.watch && !plain.complete && from.is_none() && access.token_file.is_none(), "{plain:?}");
        let line =
            format!("{noun} list -w --from console --console http://c --console-token-file t --console-ca-file ca");
        let ListOptions { watch, complete, source: said } = reading(&format!("{line} --complete"));
        assert!(watch && complete && said.from == Some(Source::Console), "{said:?}");
        assert_eq!((said.console.as_deref(), said.access.token_file), (Some("http://c"), Some("t".into())));
        assert_eq!(said.access.ca_file, Some("ca".into()));
    }
    for line in ["status -w", "alert list -w", "host list --watch", "host ls -w --cluster Paint"] {
        taken(line);
    }
    assert_eq!(refused("alert list -w --check").0, ErrorKind::ArgumentConflict);
    for line in [
        "cluster show Paint",
        "deployment show Paint/Oven",
        "deployment manifests Paint/Oven",
        "host show Paint/press-1",
    ] {
        let found = match taken(&format!("{line} --from console --console http://c")) {
            Command::Cluster(ClusterCommand::Show { source, .. }) => source,
            Command::Deployment(
                DeploymentCommand::Show { source, .. } | DeploymentCommand::Manifests { source, .. },
            ) => source,
            Command::Host(HostCommand::Show { source, .. }) => source,
            other => panic!("{other:?}"),
        };
        assert_eq!((found.from, found.console.as_deref()), (Some(Source::Console), Some("http://c")), "{line}");
    }
    assert_eq!(refused("cluster list --from disk").0, ErrorKind::InvalidValue);
}

#[test]
fn a_context_is_named_where_settings_of_one_are_needed_and_nowhere_else() {
    for line in [
        "status --context plant",
        "cluster list --context plant",
        "events --context plant",
        "at 1h --context plant",
        "ui --context plant",
        "watch --context plant",
        "secret list Paint --context plant",
    ] {
        taken(line);
    }
    for line in
        ["context list --context plant", "audit verify f --context plant", "acl generate --broker emqx --context a"]
    {
        assert_eq!(refused(line).0, ErrorKind::UnknownArgument, "{line}");
    }
}

#[test]
fn the_address_of_the_console_is_given_as_url_or_console() {
    for (line, url, print) in [
        ("ui", "http://127.0.0.1:8482/", false),
        ("ui --url http://a", "http://a", false),
        ("ui --console http://b --print", "http://b", true),
    ] {
        let Command::Ui(arguments) = taken(line) else { panic!("ui") };
        assert_eq!((&*arguments.url, arguments.print), (url, print), "{line}");
    }
}

#[test]
fn a_login_reads_the_token_from_standard_input_and_never_from_the_line() {
    let Command::Login(arguments) = taken("login https://c") else { panic!("login") };
    assert_eq!((arguments.token_file, arguments.name, arguments.broker), (PathBuf::from("-"), None, None));
    assert_eq!(refused("login https://c --token sfp_abc").0, ErrorKind::UnknownArgument);
    assert_eq!(refused("login https://c sfp_abc").0, ErrorKind::UnknownArgument);
    assert_eq!(refused("login").0, ErrorKind::MissingRequiredArgument);
}

/// The words of a line in a shell, up to a comment or what another program does with it; what stands for something has a value. None: it is not a command.
fn command_words(line: &str) -> Option<Vec<String>> {
    let line = line.trim().strip_prefix("sparkfleet ")?;
    let (mut words, mut word, mut is_quoted) = (vec!["sparkfleet".to_owned()], String::new(), false);
    for c in line.chars().chain([' ']) {
        match c {
            '\'' | '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                if matches!(word.as_str(), "#" | "|" | ">" | "<" | "&&") {
                    break;
                }
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    let uuid = "00000000-0000-0000-0000-000000000001";
    let value = |word: String| match word.as_str() {
        "NUMBER" => "7".to_owned(),
        "$(uuidgen)" => uuid.to_owned(),
        word if word.ends_with("UUID") => uuid.to_owned(),
        _ => word,
    };
    Some(words.into_iter().map(value).collect())
}

#[test]
fn every_command_on_a_fleet_in_the_documentation_is_taken() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    // `config` is a command of the program, which adds those on files of its store.
    let config = ConfigCommand::augment_subcommands(clap::Command::new("config")).subcommand_required(true);
    let program = Command::augment_subcommands(clap::Command::new("sparkfleet")).subcommand(config);
    let mut found = 0;
    for path in documents.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        let blocks = text.split("\n```").skip(1).step_by(2);
        for words in blocks.flat_map(str::lines).filter_map(command_words) {
            let below = program.find_subcommand(&words[1]);
            let is_ours = below.is_some_and(|below| words[1] != "config" || below.find_subcommand(&words[2]).is_some());
            if !is_ours {
                continue;
            }
            let read = program.clone().try_get_matches_from(&words);
            // Where the token is, an environment variable says in the guide.
            let error = read.err().filter(|error| !error.to_string().contains("--token-file"));
            assert!(error.is_none(), "{}: {}: {}", path.display(), words.join(" "), error.unwrap());
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}
