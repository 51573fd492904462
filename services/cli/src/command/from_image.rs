//! `sparkfleet policy from-image`: lists what a boot image will measure in the policy (`boot`), so that hosts are admitted by it before one of them was booted with it.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use configdb_schema::document::{AttestationPolicy, BootRelease, BootRules, PcrBank, PcrRule};
use join_attestation::image::{ReferenceValues, command_line_digest};
use join_attestation::{Hash, Image};
use serde_json::{Value, json};
use service_runtime::exit;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::attestation_policy;
use super::signer::Signer;
use crate::arguments::joining::FromImageArguments;
use crate::client::{Client, Scope};
use crate::look_up;
use crate::output;

/// PCRs whose values change with every image, and whose events are judged instead.
const OF_IMAGE: [&str; 3] = ["4", "9", "11"];
/// The same for Secure Boot: its value changes with every signer, and with the keys of each machine's firmware.
const OF_SECURE_BOOT: &str = "7";

/// What is listed about images. Digests are hexadecimal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listed {
    images: Vec<String>,
    command_lines: Vec<String>,
    initrds: Vec<String>,
    signers: Vec<String>,
    /// Values of PCR 11.
    pcr_11: Vec<String>,
    /// What belongs together of it.
    releases: Vec<BootRelease>,
}

/// What of it the arguments say, in hexadecimal digests, and how it is taken.
#[derive(Debug, Clone, Copy)]
struct Choice<'a> {
    command_lines: &'a [String],
    initrds: &'a [String],
    pcr_11: bool,
}

fn wrong(error: anyhow::Error) -> anyhow::Error {
    exit::with_code(exit::CONFIG, error)
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| file.display().to_string()).map_err(wrong)
}

/// The fingerprints of the certificates of a file.
fn fingerprints(file: &Path) -> anyhow::Result<Vec<String>> {
    let bytes = read(file)?;
    let found: Vec<Vec<u8>> = if bytes.starts_with(b"-----") {
        let blocks = Pem::iter_from_buffer(&bytes).collect::<Result<Vec<_>, _>>();
        let blocks = blocks.with_context(|| file.display().to_string()).map_err(wrong)?;
        blocks.into_iter().filter(|block| block.label == "CERTIFICATE").map(|block| block.contents).collect()
    } else {
        vec![bytes]
    };
    let is_certificate = |der: &Vec<u8>| X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty());
    if found.is_empty() || !found.iter().all(is_certificate) {
        return Err(wrong(anyhow!("{} holds no certificate, or more than certificates", file.display())));
    }
    Ok(found.iter().map(|der| hex::encode(Hash::Sha256.digest(&[der]))).collect())
}

/// Puts what an image will measure into `listed`.
fn measure(bytes: &[u8], bank: Hash, choice: Choice<'_>, listed: &mut Listed) -> anyhow::Result<()> {
    let image = Image::parse(bytes)?;
    list(&image.reference_values(bank)?, choice, listed)?;
    if choice.pcr_11 {
        listed.pcr_11.extend(image.image_pcr(bank)?.iter().map(hex::encode));
    }
    Ok(())
}

/// The same of the values that a policy lists.
fn list(values: &ReferenceValues, choice: Choice<'_>, listed: &mut Listed) -> anyhow::Result<()> {
    listed.images.extend(values.images.iter().map(hex::encode));
    if values.command_lines.is_empty() && choice.command_lines.is_empty() {
        return Err(anyhow!("it holds no command line; give it with --command-line"));
    }
    listed.command_lines.extend(values.command_lines.iter().map(hex::encode));
    if !values.added_to_initrd.is_empty() && choice.initrds.is_empty() {
        let sections = values.added_to_initrd.join(", ");
        return Err(anyhow!(
            "its stub adds {sections} to the initrd; give the digest that the event log of a host has in PCR 9 with --initrd"
        ));
    }
    listed.initrds.extend(values.initrd.iter().map(hex::encode));
    listed.releases.push(release(values, choice));
    Ok(())
}

/// What the image measures, and what the arguments say of it.
fn release(values: &ReferenceValues, choice: Choice<'_>) -> BootRelease {
    let own = values.command_lines.iter().map(hex::encode);
    let initrd = values.initrd.as_ref().map(hex::encode);
    // Of several digests for one image it is not known which of them it will be.
    let given = || Some(choice.initrds).filter(|given| given.len() == 1).and_then(|given| given.first().cloned());
    BootRelease {
        images: values.images.iter().map(hex::encode).collect(),
        command_lines: own.chain(choice.command_lines.iter().cloned()).collect(),
        initrds: initrd.or_else(given).into_iter().collect(),
    }
}

/// Puts values behind those that are there, each once; or in their place.
fn put(list: &mut Vec<String>, values: &[String], replace: bool) {
    if replace && !values.is_empty() {
        list.clear();
    }
    for value in values {
        if !list.iter().any(|listed| listed.eq_ignore_ascii_case(value)) {
            list.push(value.clone());
        }
    }
}

/// Lists it in a policy.
fn merge(policy: &mut AttestationPolicy, listed: &Listed, replace: bool, unpin: bool) {
    let boot = policy.boot.get_or_insert_with(BootRules::default);
    put(&mut boot.images, &listed.images, replace);
    put(&mut boot.command_lines, &listed.command_lines, replace);
    put(&mut boot.initrds, &listed.initrds, replace);
    put(&mut boot.signers, &listed.signers, replace);
    if replace && !listed.releases.is_empty() {
        boot.releases.clear();
    }
    for release in &listed.releases {
        boot.releases.retain(|known| known.images != release.images);
        boot.releases.push(release.clone());
    }
    boot.secure_boot |= !listed.signers.is_empty();
    if !listed.pcr_11.is_empty() {
        let none = || PcrRule { expected: Vec::new(), warn_only: false };
        let rule = policy.pcrs.entry("11".to_owned()).or_insert_with(none);
        // One that was only observed is enforced from its first value on.
        rule.warn_only &= !rule.expected.is_empty();
        put(&mut rule.expected, &listed.pcr_11, replace);
    }
    if unpin {
        let judged = judged_by_events(policy);
        policy.pcrs.retain(|index, _| !judged.contains(&index.as_str()));
    }
}

/// The PCRs that a policy judges by events.
fn judged_by_events(policy: &AttestationPolicy) -> Vec<&'static str> {
    let secure = policy.boot.as_ref().is_some_and(|boot| boot.secure_boot);
    OF_IMAGE.into_iter().chain(secure.then_some(OF_SECURE_BOOT)).collect()
}

/// PCRs that the policy judges by events and also by values, which are not those of this image.
fn still_pinned(policy: &AttestationPolicy, listed: &Listed) -> Vec<&'static str> {
    let is_foreign = |index: &&str| {
        let enforced = policy.pcrs.get(*index).is_some_and(|rule| !rule.warn_only);
        let predicted = *index == "11" && !listed.pcr_11.is_empty();
        enforced && !predicted
    };
    judged_by_events(policy).into_iter().filter(is_foreign).collect()
}

fn lines(listed: &Listed, pinned: &[&str], command_lines: &[String]) -> Vec<String> {
    let of = |what: &str, values: &[String]| values.iter().map(|value| format!("{what} {value}")).collect::<Vec<_>>();
    let mut lines = of("image", &listed.images);
    lines.extend(of("command line", &listed.command_lines));
    lines.extend(command_lines.iter().map(|text| format!("  of {text:?}")));
    lines.extend(of("initrd", &listed.initrds));
    lines.extend(of("signer", &listed.signers));
    lines.extend(of("PCR 11:", &listed.pcr_11));
    if !pinned.is_empty() {
        lines.push(format!(
            "`pcrs` enforces PCR {} as well: a host with this image is refused unless its values are there; --unpin takes them out",
            pinned.join(", ")
        ));
    }
    lines
}

/// Carries out the command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(arguments: FromImageArguments) -> anyhow::Result<()> {
    let FromImageArguments { cluster: wanted, images, certificate, command_line, initrd, .. } = &arguments;
    let files = images.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let signers = certificate.iter().map(|file| fingerprints(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut client = Client::open(&arguments.options, Scope::Config).await?;
    let (uuid, cluster) = look_up::cluster_entry(&client.fleet, wanted)?;
    let signer = Signer::open(&arguments.signer, uuid)?;
    let Some((stands, entry)) = attestation_policy::current(&client.fleet, uuid)? else {
        let error = anyhow!("{} has no attestation policy; write one with `sparkfleet policy set`", cluster.name);
        return Err(exit::with_code(exit::REFUSED, error));
    };
    let (before, etag) = (signer.checked(stands)?, entry.etag);
    let bank = match before.bank {
        PcrBank::Sha256 => Hash::Sha256,
        PcrBank::Sha384 => Hash::Sha384,
    };
    let given: Vec<String> = command_line.iter().map(|text| hex::encode(command_line_digest(text, bank))).collect();
    let mut listed = Listed {
        command_lines: given.clone(),
        initrds: initrd.clone(),
        signers: signers.concat(),
        ..Listed::default()
    };
    let choice = Choice { command_lines: &given, initrds: initrd, pcr_11: arguments.pcr_11 };
    for (file, bytes) in images.iter().zip(&files) {
        let measured = measure(bytes, bank, choice, &mut listed);
        measured.with_context(|| file.display().to_string()).map_err(wrong)?;
    }
    let mut policy = before.clone();
    merge(&mut policy, &listed, arguments.replace, arguments.unpin);
    attestation_policy::check(&policy)?;
    let revision = if arguments.dry_run || policy == before {
        None
    } else {
        Some(attestation_policy::write(&mut client, uuid, &policy, Some(etag), &signer).await?.revision)
    };
    let pinned = still_pinned(&policy, &listed);
    let lines = || {
        let mut lines = lines(&listed, &pinned, command_line);
        lines.push(match (revision, arguments.dry_run) {
            (Some(revision), _) => format!("policy of {} written: revision {revision}", cluster.name),
            (None, true) => "nothing is written (--dry-run)".to_owned(),
            (None, false) => format!("policy of {} has these values already", cluster.name),
        });
        lines
    };
    let value = report(&cluster.name, revision, &policy, &listed, &pinned);
    output::print(arguments.options.presentation.output, lines, &value)?;
    client.close().await;
    Ok(())
}

fn report(cluster: &str, revision: Option<u64>, policy: &AttestationPolicy, listed: &Listed, pinned: &[&str]) -> Value {
    json!({
        "cluster": cluster, "revision": revision, "policy": policy, "images": listed.images, "commandLines": listed.command_lines,
        "initrds": listed.initrds, "signers": listed.signers, "register11": listed.pcr_11, "stillPinned": pinned,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn policy() -> AttestationPolicy {
        let entry = json!({"bank": "sha256", "pcrs": {"0": {"expected": ["aa"]}, "4": {"expected": ["bb"]}, "11": {"warnOnly": true}},
            "lock": {"pcr": 15}, "endorsement": {"require": "enrolment"}});
        serde_json::from_value(entry).unwrap()
    }

    fn listed(image: &str) -> Listed {
        let of = |what: &str| vec![format!("{what} of {image}")];
        let release = BootRelease { images: of("image"), command_lines: of("command line"), initrds: of("initrd") };
        let BootRelease { images, command_lines, initrds } = release.clone();
        Listed { images, command_lines, initrds, releases: vec![release], ..Listed::default() }
    }

    #[test]
    fn images_are_added_once_and_replaced_where_asked() {
        let mut merged = policy();
        for image in ["one", "two", "one"] {
            merge(&mut merged, &listed(image), false, false);
        }
        let boot = merged.boot.clone().unwrap();
        assert_eq!(boot.images, ["image of one", "image of two"]);
        assert_eq!((boot.command_lines.len(), boot.initrds.len(), boot.secure_boot), (2, 2, false));
        assert_eq!(
            boot.releases,
            [listed("two").releases, listed("one").releases].concat(),
            "each once, the last one last"
        );
        assert_eq!(merged.pcrs, policy().pcrs);
        assert_eq!(still_pinned(&merged, &listed("one")), ["4"], "11 is only observed");
        merge(&mut merged, &listed("three"), true, true);
        let boot = merged.boot.clone().unwrap();
        assert_eq!((boot.images, boot.initrds), (listed("three").images, listed("three").initrds));
        assert_eq!(boot.releases, listed("three").releases);
        assert_eq!(merged.pcrs.keys().collect::<Vec<_>>(), ["0"]);
    }

    #[test]
    fn what_an_image_measures_makes_a_policy_whose_releases_are_all_listed() {
        let digest = |byte| Hash::Sha256.digest(&[&[byte]]);
        let text = |byte| hex::encode(digest(byte));
        let values = ReferenceValues {
            images: vec![digest(1), digest(2)],
            command_lines: vec![digest(3), digest(4)],
            initrd: Some(digest(5)),
            added_to_initrd: Vec::new(),
        };
        let own = BootRelease {
            images: vec![text(1), text(2)],
            command_lines: vec![text(3), text(4)],
            initrds: vec![text(5)],
        };
        let added = ReferenceValues { initrd: None, added_to_initrd: vec![".pcrsig"], ..values.clone() };
        let (lines, initrds) = ([text(6)], [text(7), text(8)]);
        // Given beside what the image holds; one digest where the stub adds to the initrd; several, of which it is not known which one it will be.
        let cases = [
            (&values, &lines[..0], &initrds[..0], own.clone()),
            (
                &values,
                &lines[..],
                &initrds[..0],
                BootRelease { command_lines: vec![text(3), text(4), text(6)], ..own.clone() },
            ),
            (&added, &lines[..0], &initrds[..1], BootRelease { initrds: vec![text(7)], ..own.clone() }),
            (&added, &lines[..0], &initrds[..], BootRelease { initrds: Vec::new(), ..own.clone() }),
        ];
        for (values, command_lines, initrds, wanted) in cases {
            let choice = Choice { command_lines, initrds, pcr_11: false };
            let mut listed =
                Listed { command_lines: command_lines.to_vec(), initrds: initrds.to_vec(), ..Listed::default() };
            list(values, choice, &mut listed).unwrap();
            assert_eq!((&listed.images, &listed.releases), (&own.images, &vec![wanted]));
            let mut merged = AttestationPolicy { pcrs: BTreeMap::new(), ..policy() };
            merge(&mut merged, &listed, false, false);
            attestation_policy::check(&merged).unwrap();
        }
        let choice = Choice { command_lines: &[], initrds: &[], pcr_11: false };
        let error = list(&added, choice, &mut Listed::default()).unwrap_err().to_string();
        assert!(error.starts_with("its stub adds .pcrsig to the initrd"), "{error}");
    }

    #[test]
    fn a_signer_means_secure_boot_and_values_of_pcr_11_are_enforced() {
        let mut merged = policy();
        let signed = Listed { signers: vec!["s".to_owned()], pcr_11: vec!["v".to_owned()], ..listed("one") };
        merge(&mut merged, &signed, false, false);
        assert!(merged.boot.as_ref().is_some_and(|boot| boot.secure_boot && boot.signers == ["s"]));
        assert_eq!(merged.pcrs["11"], PcrRule { expected: vec!["v".to_owned()], warn_only: false });
        merged.pcrs.insert("7".to_owned(), PcrRule { expected: vec!["w".to_owned()], warn_only: false });
        assert_eq!(still_pinned(&merged, &signed), ["4", "7"]);
        // Without its list replaced, a signer that was there stays.
        merge(&mut merged, &listed("two"), true, true);
        assert!(!merged.pcrs.contains_key("7") && merged.pcrs.contains_key("0"));
        assert!(merged.boot.is_some_and(|boot| boot.secure_boot && boot.signers == ["s"]));
    }

    #[test]
    fn certificates_are_known_by_the_fingerprint_of_their_der_form() {
        let directory = tempfile::tempdir().unwrap();
        let root = include_bytes!("../../../libs/join-attestation/tests/recorded/root.pem");
        let pem = directory.path().join("root.pem");
        std::fs::write(&pem, root).unwrap();
        let block = Pem::iter_from_buffer(root).next().unwrap().unwrap();
        let der = directory.path().join("root.der");
        std::fs::write(&der, &block.contents).unwrap();
        let print = hex::encode(Hash::Sha256.digest(&[&block.contents]));
        assert_eq!(fingerprints(&pem).unwrap(), std::slice::from_ref(&print));
        assert_eq!(fingerprints(&der).unwrap(), [print]);
        std::fs::write(&der, "x").unwrap();
        assert_eq!(exit::code_of(&fingerprints(&der).unwrap_err()), exit::CONFIG);
        assert_eq!(exit::code_of(&fingerprints(Path::new("/nowhere")).unwrap_err()), exit::CONFIG);
    }

    #[test]
    fn what_is_not_an_image_is_refused() {
        let choice = Choice { command_lines: &[], initrds: &[], pcr_11: false };
        let error = measure(b"MZ", Hash::Sha256, choice, &mut Listed::default()).unwrap_err();
        assert!(error.to_string().contains("not a PE image"), "{error}");
    }
}
