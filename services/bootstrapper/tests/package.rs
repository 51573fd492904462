//! The Debian package as `make packages` makes it, of the program that these tests are built with: what dpkg reads of it.

use std::path::Path;
use std::process::Command;

/// Runs a program; what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_package_brings_the_program_its_units_and_what_they_need() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let site = tempfile::tempdir().unwrap();
    let (out, unpacked) = (site.path().join("out").display().to_string(), site.path().join("unpacked"));
    let script = root.join(".ci/packages").display().to_string();
    let binary = env!("CARGO_BIN_EXE_sparkfleet-bootstrapper");
    let made = run(&script, &["--binary", binary, "--out", &out, "--compression", "none"]);
    let package = made.trim();
    let field = |name| run("dpkg-deb", &["--field", package, name]).trim().to_owned();
    assert_eq!(field("Package"), "sparkfleet-bootstrapper");
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    let needs = field("Depends");
    for needed in ["libc6 (>= ", "libtss2-tcti-device0", "cryptsetup-bin", "e2fsprogs"] {
        assert!(needs.contains(needed), "{needed}: {needs}");
    }
    for line in run("dpkg-deb", &["--contents", package]).lines() {
        let (mode, owner) = line.split_once(' ').unwrap();
        assert!(owner.starts_with("root/root"), "{line}");
        assert!(mode.as_bytes()[5] == b'-' && mode.as_bytes()[8] == b'-', "no other user can write: {line}");
    }
    run("dpkg-deb", &["--raw-extract", package, &unpacked.display().to_string()]);
    let file =
        |path: &str| std::fs::read_to_string(unpacked.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let unit = file("usr/lib/systemd/system/sparkfleet-bootstrapper.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/")).unwrap();
    let program = start.split(' ').next().unwrap();
    assert!(run(&unpacked.join(program).display().to_string(), &["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let settings =
        [("usr/lib/tmpfiles.d", "/etc/sparkfleet/mqtt 0700 root root"), ("usr/lib/modules-load.d", "br_netfilter")];
    for (directory, setting) in settings {
        assert!(file(&format!("{directory}/sparkfleet-bootstrapper.conf")).contains(setting), "{directory}");
    }
    // systemd holds back what makes a host a member, and what runs below it, until the host is attested.
    for held in ["kubelet", "k3s", "k3s-agent", "containerd", "crio"] {
        assert_holds_until_attested(&file(&format!("usr/lib/systemd/system/{held}.service.d/50-attested.conf")));
    }
    // The network of pods that the documentation names.
    let network = file("usr/share/sparkfleet/network/flannel.yaml");
    let images: Vec<&str> = network.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    let guide = std::fs::read_to_string(root.join("docs/bootstrapper.md")).unwrap();
    assert!(images.len() == 3 && images.iter().all(|image| guide.contains(image)), "{images:?}");
    // Nothing is enabled or started by the installation: a machine joins because an operator enables the units.
    let scripts = [file("DEBIAN/postinst"), file("DEBIAN/prerm")].concat();
    assert!(!scripts.contains("enable ") && !scripts.contains("systemctl start"), "{scripts}");
    assert!(!unpacked.join("etc").exists(), "the configuration is the site's");
}

/// By the words of the real systemd, on a host where the paths of the drop-in lie below another directory.
fn assert_holds_until_attested(drop_in: &str) {
    let host = tempfile::tempdir().unwrap();
    let [configuration, attested] = ["/etc/sparkfleet/bootstrapper.toml", "/run/sparkfleet/attested"].map(|path| {
        let below = host.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(below.parent().unwrap()).unwrap();
        (path, below)
    });
    let here = [&configuration, &attested].iter().fold(drop_in.to_owned(), |text, (path, below)| {
        assert!(text.contains(path), "{text}");
        text.replace(path, &below.display().to_string())
    });
    let asserts: Vec<&str> = here.lines().filter(|line| line.starts_with("Assert")).collect();
    let starts = || {
        let output = Command::new("systemd-analyze").arg("condition").args(&asserts).output();
        let output = output.unwrap_or_else(|error| panic!("systemd-analyze (Debian package systemd): {error}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("Asserts succeeded") || said.contains("Asserts failed"), "{said}");
        output.status.success()
    };
    assert!(starts(), "a host without the bootstrapper is not held back");
    std::fs::write(&configuration.1, "").unwrap();
    assert!(!starts(), "a host that is not attested is");
    std::fs::write(&attested.1, "").unwrap();
    assert!(starts(), "until it is attested");
}
