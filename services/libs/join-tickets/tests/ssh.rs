//! Certificates of hosts' SSH keys, read and verified by `ssh-keygen`.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use crate::openssl;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use join_tickets::keys::{MasterSecret, Secret};
use join_tickets::ssh::{HostRequest, SshAuthority, SshError, validity};
use openssl::Bench;

const NOW: Duration = Duration::from_secs(1_800_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn authority() -> SshAuthority {
    let master = MasterSecret::new((0x40..0x60).collect(), (0x60..0x80).collect()).unwrap();
    SshAuthority::from_seed(&master.ssh_authority_seed()).unwrap()
}

/// A host's public key, made by `ssh-keygen`.
fn host_key(bench: &Bench, kind: &str) -> Vec<u8> {
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", "", "-C", "host", "-f"])
        .arg(bench.path("host"))
        .status();
    assert!(made.unwrap().success());
    let line = String::from_utf8(bench.read("host.pub")).unwrap();
    STANDARD.decode(line.split(' ').nth(1).unwrap()).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_life_of_a_certificate_is_read_from_its_line_and_of_nothing_else() {
    let bench = Bench::new();
    let key = host_key(&bench, "ed25519");
    let principals = names(&["press-shop-2", "10.2.0.7"]);
    let request = HostRequest { key: &key, principals: &principals, allowed: &principals };
    let line = authority().certify(&request, 77, &[5; 32], NOW, 30 * DAY).unwrap().line;
    let seconds = |time: Duration| time.as_secs();
    assert_eq!(validity(&line), Some((seconds(NOW) - 3600, seconds(NOW + 30 * DAY))));
    let [kind, text, _] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let bytes = STANDARD.decode(text).unwrap();
    for end in 0..bytes.len() {
        // Cut off anywhere it may be read no further than that; no panic.
        let cut = format!("{kind} {}", STANDARD.encode(&bytes[..end]));
        assert!(validity(&cut).is_none_or(|found| Some(found) == validity(&line)), "{end}");
    }
    for other in ["", kind, "ssh-ed25519 AAAA", &format!("{kind} ////"), &authority().line()] {
        assert_eq!(validity(other), None, "{other}");
    }
}

#[test]
fn ssh_keygen_reads_what_was_certified() {
    let bench = Bench::new();
    let key = host_key(&bench, "ed25519");
    let principals = names(&["press-shop-2", "press-shop-2.plant.example", "10.2.0.7", "fd00::7"]);
    let request = HostRequest { key: &key, principals: &principals, allowed: &principals };
    let certificate = authority().certify(&request, 77, &[5; 32], NOW, 30 * DAY).unwrap();
    bench.write("host-cert.pub", format!("{}\n", certificate.line));
    bench.write("ca.pub", format!("{}\n", authority().line()));
    let text = String::from_utf8(
        std::process::Command::new("ssh-keygen")
            .args(["-L", "-f"])
            .arg(bench.path("host-cert.pub"))
            .env("TZ", "UTC")
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    let fingerprint =
        |file: &str| bench.succeed("ssh-keygen", &format!("-l -f {file}")).split(' ').nth(1).unwrap().to_owned();
    for wanted in [
        "Type: ssh-ed25519-cert-v01@openssh.com host certificate",
        &format!("Public key: ED25519-CERT {}", fingerprint("host.pub")),
        &format!("Signing CA: ED25519 {} (using ssh-ed25519)", fingerprint("ca.pub")),
        "Key ID: \"press-shop-2\"",
        "Serial: 77",
        "Valid: from 2027-01-15T07:00:00 to 2027-02-14T08:00:00",
        "Critical Options: (none)",
        "Extensions: (none)",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    for principal in &principals {
        assert!(text.contains(&format!("                {principal}\n")), "{principal} is not in\n{text}");
    }
    assert_eq!(certificate.valid_before, NOW + 30 * DAY);
}

#[test]
fn ssh_keygen_refuses_what_was_changed() {
    let bench = Bench::new();
    let key = host_key(&bench, "ed25519");
    let principals = names(&["a"]);
    let request = HostRequest { key: &key, principals: &principals, allowed: &principals };
    let line = authority().certify(&request, 1, &[5; 32], NOW, DAY).unwrap().line;
    let mut parts = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut blob = STANDARD.decode(&parts[1]).unwrap();
    let principal = blob.windows(5).rposition(|window| window == b"\0\0\0\x01a").unwrap();
    blob[principal + 4] = b'b';
    parts[1] = STANDARD.encode(blob);
    bench.write("host-cert.pub", parts.join(" "));
    assert!(!bench.run("ssh-keygen", "-L -f host-cert.pub").status.success());
}

#[test]
fn no_certificate_lives_for_ever() {
    let bench = Bench::new();
    let key = host_key(&bench, "ed25519");
    let principals = names(&["a"]);
    let request = HostRequest { key: &key, principals: &principals, allowed: &principals };
    let certificate = authority().certify(&request, 1, &[5; 32], NOW, Duration::MAX).unwrap();
    assert_eq!(certificate.valid_before, NOW + 366 * DAY);
}

#[test]
fn the_authority_follows_from_its_seed() {
    assert_eq!(authority().line(), authority().line());
    let other = SshAuthority::from_seed(&Secret::new([1; 32])).unwrap();
    assert_ne!(other.line(), authority().line());
    assert_eq!(format!("{other:?}"), "SshAuthority(..)");
}

#[test]
fn other_keys_and_principals_that_are_not_the_hosts_are_refused() {
    let bench = Bench::new();
    let allowed = names(&["press-shop-2", "10.2.0.7"]);
    let certify = |key: &[u8], principals: &[&str]| {
        let principals = names(principals);
        let request = HostRequest { key, principals: &principals, allowed: &allowed };
        authority().certify(&request, 1, &[5; 32], NOW, DAY).map(|_| ())
    };
    let key = host_key(&bench, "ed25519");
    assert_eq!(certify(&key, &["10.2.0.7"]), Ok(()));
    assert_eq!(certify(&key, &[]), Err(SshError::Principals));
    assert_eq!(certify(&key, &["press-shop-2"; 33]), Err(SshError::Principals));
    for bad in ["press-shop-3", "", "*", "-a", "a b", "a,b", "a\nb"] {
        assert_eq!(certify(&key, &["press-shop-2", bad]), Err(SshError::Principal(bad.to_owned())));
    }
    for end in 0..key.len() {
        assert_eq!(certify(&key[..end], &["press-shop-2"]), Err(SshError::HostKey));
    }
    assert_eq!(certify(&[key.as_slice(), &[0]].concat(), &["press-shop-2"]), Err(SshError::HostKey));
    std::fs::remove_file(bench.path("host")).unwrap();
    assert_eq!(certify(&host_key(&bench, "ecdsa"), &["press-shop-2"]), Err(SshError::HostKey));
    let error = certify(&key, &["press-shop-3"]).unwrap_err().to_string();
    assert_eq!(error, "SSH principals: \"press-shop-3\" is not a name or address of this host");
}
