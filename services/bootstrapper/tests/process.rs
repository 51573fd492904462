//! The program: what it prints, how it ends, and that its systemd unit knows both.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use std::path::Path;
use std::process::{Command, Output};

use service_runtime::exit;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sparkfleet-bootstrapper")).args(arguments).output().unwrap()
}

fn code(output: &Output) -> u8 {
    u8::try_from(output.status.code().unwrap()).unwrap()
}

#[test]
fn help_and_version_are_printed() {
    let help = run(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.starts_with("Takes this machine into a Sparkfleet cluster") && text.contains("attestation.lock_pcr"));
    assert_eq!(
        run(&["--version"]).stdout,
        format!("sparkfleet-bootstrapper {}\n", env!("CARGO_PKG_VERSION")).as_bytes()
    );
}

#[test]
fn what_is_wrong_is_printed_in_one_line_and_by_the_code() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (unknown, lacking) =
        (file("unknown.toml", "devise = 1\n"), file("lacking.toml", "[cluster]\nname = \"Paint\"\n"));
    let cases = [
        (vec!["join"], exit::USAGE, "unknown argument \"join\"; see --help"),
        (vec!["--config", "/nonexistent.toml"], exit::CONFIG, "/nonexistent.toml"),
        (vec!["--config", &unknown], exit::CONFIG, "devise"),
        (vec!["--config", &lacking], exit::CONFIG, "the configuration is not usable: cluster.uuid is missing"),
    ];
    for (arguments, wanted, message) in cases {
        let output = run(&arguments);
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!((code(&output), text.lines().count()), (wanted, 1), "{text}");
        assert!(text.contains(message), "{text}");
    }
}

#[test]
fn a_machine_without_a_usable_tpm_is_reported_and_nothing_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrapper.toml");
    let text = format!(
        "state_dir = \"{0}\"\n[cluster]\nname = \"Paint\"\nuuid = \"00000000-0000-0000-0000-000000000005\"\n\
         [trust]\nroot = \"{1}\"\n[attestation]\ntcti = \"device:{0}/no-tpm\"\n[disk]\ndevice = \"{0}/disk\"\n",
        directory.path().display(),
        "ab".repeat(32)
    );
    std::fs::write(&path, text).unwrap();
    let output = run(&["--config", &path.display().to_string()]);
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let (wanted, message) = match cfg!(feature = "tpm") {
        true => (exit::REFUSED, "sparkfleet: TPM: it cannot be reached"),
        false => (exit::CONFIG, "this program was built without a TPM"),
    };
    assert_eq!(code(&output), wanted, "{text}");
    assert!(text.contains(message), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the configuration is there");
}

#[test]
fn the_systemd_unit_starts_the_program_and_waits_longer_than_a_join_may_take() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/sparkfleet-bootstrapper.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let value = |key: &str| {
        let line = unit.lines().find(|line| line.starts_with(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("{key} is missing"))[key.len() + 1..].to_owned()
    };
    assert_eq!(value("ExecStart"), "/usr/local/bin/sparkfleet-bootstrapper --config /etc/sparkfleet/bootstrapper.toml");
    assert_eq!(value("RestartPreventExitStatus"), format!("{} {}", exit::USAGE, exit::CONFIG));
    assert_eq!((value("Type").as_str(), value("RuntimeDirectoryPreserve").as_str()), ("notify", "yes"));
    let minutes: u64 = value("TimeoutStopSec").strip_suffix("min").unwrap().parse().unwrap();
    assert!(minutes * 60_000 > bootstrapper::config::TimeoutsConfig::default().member_ms);
    let is_after = value("After").split(' ').any(|unit| unit == "systemd-pcrphase.service");
    assert!(is_after, "what is quoted before has another value in PCR 11");
    let paths = bootstrapper::config::PathsConfig::default();
    assert_eq!(paths.run, Path::new("/run").join(value("RuntimeDirectory")), "what is gone with the boot");
}

#[test]
fn a_timer_starts_the_program_again_on_a_member_every_day() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let timer = read("sparkfleet-bootstrapper-renew.timer");
    assert!(timer.lines().any(|line| line == "OnUnitActiveSec=1d"), "{timer}");
    let service = read("sparkfleet-bootstrapper-renew.service");
    for wanted in [
        // Without it a host on its way in would be started again in the middle of it.
        "ExecCondition=/usr/bin/systemctl is-active --quiet sparkfleet-bootstrapper.service",
        "After=sparkfleet-bootstrapper.service",
        "ExecStart=/usr/bin/systemctl restart --no-block sparkfleet-bootstrapper.service",
    ] {
        assert!(service.lines().any(|line| line == wanted), "{wanted} is not in {service}");
    }
    // systemd restarts what requires a unit together with it.
    let requires = ["Requires=", "Requisite=", "BindsTo=", "PartOf="];
    assert!(!service.lines().any(|line| requires.iter().any(|key| line.starts_with(key))), "{service}");
}

/// With `SPARKFLEET_WRITE_DOCS=1` in the environment the table is written instead of compared.
#[test]
fn the_documentation_lists_every_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bootstrapper.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let heading = "## Configuration keys\n\n";
    let start = text.split(heading).next().unwrap();
    let generated = format!(
        "{start}{heading}{}",
        service_runtime::keys::markdown(&<bootstrapper::Config as service_runtime::config::ConfigTable>::keys())
    );
    if std::env::var_os("SPARKFLEET_WRITE_DOCS").is_some() {
        std::fs::write(page, generated).unwrap();
    } else {
        assert!(
            text == generated,
            "docs/bootstrapper.md is not what the program says; run this test with SPARKFLEET_WRITE_DOCS=1"
        );
    }
}
