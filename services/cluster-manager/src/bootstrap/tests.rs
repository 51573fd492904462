//! The script in the shells that are here, and its values with hostile content.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use enrolment_protocol::token::RANDOM_BYTES;
use proptest::prelude::*;

use super::*;

fn values(credentials: Credentials, flux: FluxSource) -> Bootstrap {
    Bootstrap {
        cluster: Uuid::from_u128(7),
        name: "Paint_Shop".to_owned(),
        organisation: "ACME".to_owned(),
        namespace: "fplus-edge".to_owned(),
        self_link: "kind: GitRepository\nmetadata: { name: self-link }\n".to_owned(),
        credentials,
        flux,
    }
}

fn password(text: &str) -> Credentials {
    Credentials::Git { username: Uuid::from_u128(7).to_string(), password: Arc::new(text.into()) }
}

fn enrolment(token: [u8; RANDOM_BYTES]) -> Credentials {
    Credentials::Enrolment(Enrolment {
        token: Token::new(token),
        identity_key: "a".repeat(43),
        image: "registry.example/sparkfleet:1".to_owned(),
        mqtt_servers: vec!["mqtts://a:8883".to_owned(), "mqtts://b:8883".to_owned()],
        login: QuarantineLogin {
            authorities: Some("the authorities\n".to_owned()),
            certificate: Some(("the certificate\n".to_owned(), Arc::new("the key's text\n".into()))),
            password: Some(("ACME-Enrol".to_owned(), Arc::new("open sesame".into()))),
        },
    })
}

fn every_kind() -> Vec<String> {
    let url = || FluxSource::Url("https://mirror.example/flux.yaml".to_owned());
    let kinds = [
        values(password("it's $(secret)"), url()),
        values(enrolment([1; RANDOM_BYTES]), url()),
        values(enrolment([1; RANDOM_BYTES]), FluxSource::Manifests("kind: Namespace\n".into())),
        values(password("x"), FluxSource::Site),
    ];
    kinds.iter().map(|values| script(None, values).unwrap()).collect()
}

/// Runs a program with text on its standard input; what it prints.
fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{program}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn what_is_rendered_is_as_clean_as_the_template() {
    for script in every_kind() {
        run("sh", &["-n", "-"], &script);
        run("shellcheck", &["-"], &script);
        assert!(script.ends_with("\nmain \"$@\"\n"), "the last line starts it, so half a script does nothing");
        assert!(!script.contains("{{"));
    }
}

#[test]
fn no_script_holds_a_nul() {
    let values = Bootstrap { self_link: "a\0b".to_owned(), ..values(password("x"), FluxSource::Site) };
    assert_eq!(script(None, &values), Err(BootstrapError::Nul("self_link_manifests".to_owned())));
}

#[test]
fn another_token_or_image_is_another_job() {
    let job = |credentials: &Credentials| {
        let Credentials::Enrolment(enrolment) = credentials else { panic!("an enrolment") };
        enrolment_job(&values(password("x"), FluxSource::Site), enrolment)
    };
    let first = enrolment([1; RANDOM_BYTES]);
    assert_eq!(job(&first).0, job(&first).0);
    assert_ne!(job(&first).0, job(&enrolment([2; RANDOM_BYTES])).0);
    let Credentials::Enrolment(mut other) = first.clone() else { panic!("an enrolment") };
    other.image.push('2');
    assert_ne!(job(&first).0, job(&Credentials::Enrolment(other)).0);
    let items = job(&first).1["items"].to_string();
    for secret in ["sft_", "the key", "sesame"] {
        assert!(!items.contains(secret), "{secret} is in a Secret alone, not in the Job: {items}");
    }
}

#[test]
fn the_enrolment_finds_what_it_connects_with_in_its_secret() {
    let values = values(enrolment([1; 32]), FluxSource::Site);
    let (secret, list) = credentials(&values);
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let container = &list["items"][3]["spec"]["template"]["spec"]["containers"][0];
    let variable = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter().find(|variable| variable["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(variable("SPARKFLEET_MQTT_USERNAME"), "ACME-Enrol");
    for (name, value) in [
        ("SPARKFLEET_MQTT_CA_FILE", "the authorities\n"),
        ("SPARKFLEET_MQTT_CERT_FILE", "the certificate\n"),
        ("SPARKFLEET_MQTT_KEY_FILE", "the key's text\n"),
        ("SPARKFLEET_MQTT_PASSWORD_FILE", "open sesame"),
    ] {
        let path = variable(name);
        let key = path.strip_prefix(container["volumeMounts"][0]["mountPath"].as_str().unwrap()).unwrap();
        assert_eq!(secret["stringData"][key.trim_start_matches('/')], value, "{name}");
    }
}

#[test]
fn the_line_gives_curl_the_token_on_standard_input_and_its_arguments_hold_none() {
    let directory = tempfile::tempdir().unwrap();
    let curl = directory.path().join("curl");
    fs::write(&curl, "#!/bin/sh\nprintf 'printf %%s \"arguments %s, input ' \"$*\"\nwhile read -r line; do printf '%s' \"$line\" | tr '\"' '~'; done\nprintf '\"'\n").unwrap();
    fs::set_permissions(&curl, fs::Permissions::from_mode(0o755)).unwrap();
    let token = Token::new([3; RANDOM_BYTES]);
    let line = enrolment_protocol::bootstrap::command("https://central.example/it's/", Uuid::from_u128(7), &token);
    let path = format!("PATH='{}':$PATH; {line}", directory.path().display());
    let said = run("sh", &["-c", &path], "");
    let (arguments, input) = said.split_once(", input ").unwrap();
    assert_eq!(
        arguments,
        "arguments -fsS --retry 10 --retry-delay 2 --retry-connrefused -K - https://central.example/it's/bootstrap/00000000-0000-0000-0000-000000000007"
    );
    assert_eq!(input, format!("header = ~Authorization: Bearer {}~", token.expose()));
}

fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("END_OF_FILE"),
        Just("END_OF_FILE_1"),
        Just("\nEND_OF_FILE\n"),
        Just("\nEND_OF_FILE_1\nreboot\n"),
        Just("'"),
        Just("'\"'\"'"),
        Just("$(reboot)"),
        Just("`reboot`"),
        Just("${HOME}"),
        Just("\\"),
        Just("\\\n"),
        Just("\n"),
        Just("\r\n"),
        Just("{{name}}"),
        Just("$m"),
        Just("<<EOF"),
        Just("; exit 1; #"),
        Just("!é𝄞"),
        Just("%s"),
        Just("\u{1}"),
    ];
    proptest::collection::vec(pieces.prop_map(str::to_owned).boxed().prop_union("[^\0]{0,6}".boxed()), 0..8)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// A real shell says what came through.
    #[test]
    fn whatever_is_put_in_comes_through_as_it_is(value in hostile(), manifests in hostile()) {
        let text = "printf '%s|' \"$v\"\nshow() {\n\tcat <<END_OF_FILE || exit 1\n$m\nEND_OF_FILE\n}\nshow\nprintf '|end'\n";
        let script = preamble([("v", value.as_str()), ("m", manifests.as_str())]).unwrap() + text;
        prop_assert_eq!(run("sh", &["-s"], &script), format!("{value}|{manifests}\n|end"));
    }
}
