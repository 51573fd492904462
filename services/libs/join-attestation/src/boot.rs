//! Judges how a host was booted by the events of its event log, where a policy names events instead of values of PCRs.
//!
//! A quote vouches for the digests of a log and their order, by the replay. It vouches neither for the types of events nor, by itself, for their data. So a type decides nothing.
//! A PCR that is judged holds listed digests, and events whose digest is that of data which is known to be harmless. All else is refused.
//!
//! | PCRs | judged by |
//! |---|---|
//! | 0, 1, 3, 5, 6 | the replay alone: firmware and its settings are what `pcrs` of a policy is for |
//! | 2 | `drivers`, unless `pcrs` has values for it |
//! | 4 | `images` |
//! | 7 | `secureBoot`, `signers` |
//! | 9 | `commandLines`, `initrds` |
//! | 11 | the replay, and the phases of the boot that systemd measures and no log of firmware has |

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::document::{BootRelease, BootRules};

use crate::event_log::{Event, EventLog};
use crate::field::{PolicyError, VALUES_MAX, error, measured};
use crate::hash::Hash;
use crate::pcr::{after_event, extended};
use crate::quote::malformed;
use crate::refusal::{PcrDifference, Refusal, RefusalCode};
use crate::wire::{Malformed, Reader};

/// The PCRs that a log has to explain.
pub(crate) const PCRS: [u8; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 9, IMAGE_PCR];
/// Those of them by which the rules decide. An update of firmware leaves them as they are: what was loaded, Secure Boot, the command line with the initrd, the image.
const DECIDING: [u8; 4] = [LOADER_PCR, SECURE_BOOT_PCR, KERNEL_PCR, IMAGE_PCR];

pub(crate) const DRIVER_PCR: u8 = 2;
const LOADER_PCR: u8 = 4;
const SECURE_BOOT_PCR: u8 = 7;
pub(crate) const KERNEL_PCR: u8 = 9;
const IMAGE_PCR: u8 = 11;

/// An image that firmware was to execute, by the log's own word.
const EV_EFI_BOOT_SERVICES_APPLICATION: u32 = 0x8000_0003;

/// Ends what firmware measures by itself. The third form that the specification has reports an error, and is refused.
const SEPARATORS: [&[u8]; 2] = [&[0; 4], &[0xff; 4]];
/// What firmware says about its attempts to boot.
const ATTEMPTS: [&[u8]; 2] =
    [b"Calling EFI Application from Boot Option", b"Returning from EFI Application from Boot Option"];

/// EFI_GLOBAL_VARIABLE and EFI_IMAGE_SECURITY_DATABASE_GUID, as they are in memory.
const GLOBAL: [u8; 16] = [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0, 0xe0, 0x98, 0x03, 0x2b, 0x8c];
const DATABASE: [u8; 16] =
    [0xcb, 0xb2, 0x19, 0xd7, 0x3a, 0x3d, 0x96, 0x45, 0xa3, 0xbc, 0xda, 0xd0, 0x0e, 0x67, 0x65, 0x6f];
/// The variables that firmware measures before it loads anything, each once. A second one of the same name vouches for what was loaded.
const CONFIGURATION: [(&[u8; 16], &str); 10] = [
    (&GLOBAL, "SecureBoot"),
    (&GLOBAL, "PK"),
    (&GLOBAL, "KEK"),
    (&GLOBAL, "AuditMode"),
    (&GLOBAL, "DeployedMode"),
    (&GLOBAL, "SetupMode"),
    (&DATABASE, "db"),
    (&DATABASE, "dbx"),
    (&DATABASE, "dbt"),
    (&DATABASE, "dbr"),
];
/// The most characters of a variable's name.
const NAME_MAX: u64 = 256;
/// The GUID of its owner precedes the data of an entry of db.
const OWNER_BYTES: usize = 16;

/// What systemd measures into PCR 11 after the log ends, in this order; a host is asked at any time. The first two only where systemd runs in the initrd.
const PHASES: [&str; 4] = ["enter-initrd", "leave-initrd", "sysinit", "ready"];
const PHASES_WITHOUT_INITRD: [&str; 2] = ["sysinit", "ready"];

/// The most values that a refusal names.
const NAMED_MAX: usize = 3;
/// The most characters of a text of firmware that a refusal repeats.
const TEXT_MAX: usize = 40;

type Digests = BTreeSet<Vec<u8>>;

/// Valid rules for how a host is booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boot {
    secure_boot: bool,
    signers: Digests,
    images: Digests,
    command_lines: Digests,
    initrds: Digests,
    /// None: `pcrs` has values for the PCR of drivers.
    drivers: Option<Digests>,
    releases: Vec<Release>,
}

/// What one image measures; all of it is listed as well.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release {
    /// The unified kernel image, and what it loads.
    images: Vec<Vec<u8>>,
    /// Of which the kernel measures one.
    command_lines: Vec<Vec<u8>>,
    initrds: Vec<Vec<u8>>,
}

impl Release {
    fn new(at: usize, entry: &BootRelease, boot: &Boot, bank: Hash) -> Result<Self, PolicyError> {
        let list = |name: &str, values: &[String], listed: &Digests| {
            let of = |(number, text): (usize, &String)| {
                let field = format!("boot.releases[{at}].{name}[{number}]");
                let value = measured(&field, text, bank)?;
                if listed.contains(&value) { Ok(value) } else { error(field, format!("is not listed in boot.{name}")) }
            };
            values.iter().enumerate().map(of).collect::<Result<Vec<_>, _>>()
        };
        if entry.images.is_empty() {
            return error(format!("boot.releases[{at}].images"), "names none: a release is known by its image");
        }
        Ok(Self {
            images: list("images", &entry.images, &boot.images)?,
            command_lines: list("commandLines", &entry.command_lines, &boot.command_lines)?,
            initrds: list("initrds", &entry.initrds, &boot.initrds)?,
        })
    }
}

impl Boot {
    /// Checks the rules of a policy. `is_pinned`: the policy enforces values of this PCR.
    pub(crate) fn new(
        entry: &BootRules,
        bank: Hash,
        lock: u8,
        is_pinned: impl Fn(u8) -> bool,
    ) -> Result<Self, PolicyError> {
        let list = |name: &str, values: &[String], hash: Hash| {
            let field = format!("boot.{name}");
            if values.len() > VALUES_MAX {
                return error(field, format!("holds {}, more than {VALUES_MAX} values", values.len()));
            }
            let values = values.iter().enumerate();
            values.map(|(at, text)| measured(&format!("{field}[{at}]"), text, hash)).collect::<Result<Digests, _>>()
        };
        let boot = Self {
            secure_boot: entry.secure_boot,
            signers: list("signers", &entry.signers, Hash::Sha256)?,
            images: list("images", &entry.images, bank)?,
            command_lines: list("commandLines", &entry.command_lines, bank)?,
            initrds: list("initrds", &entry.initrds, bank)?,
            drivers: Some(list("drivers", &entry.drivers, bank)?).filter(|_| !is_pinned(DRIVER_PCR)),
            releases: Vec::new(),
        };
        if entry.releases.len() > VALUES_MAX {
            return error("boot.releases", format!("holds {}, more than {VALUES_MAX}", entry.releases.len()));
        }
        let releases = entry.releases.iter().enumerate();
        let releases: Result<_, _> = releases.map(|(at, release)| Release::new(at, release, &boot, bank)).collect();
        let boot = Self { releases: releases?, ..boot };
        if PCRS.contains(&lock) {
            return error("lock.pcr", format!("{lock} is one that the event log has to explain: choose another"));
        }
        if !boot.signers.is_empty() && !boot.secure_boot {
            return error("boot.signers", "says nothing without secureBoot: firmware then checks no signature");
        }
        if boot.images.is_empty() && boot.signers.is_empty() {
            return error("boot", "names neither images nor, with secureBoot, signers: it would admit any software");
        }
        if boot.command_lines.is_empty() && !boot.initrds.is_empty() {
            return error("boot.initrds", "needs commandLines: both are measured into PCR 9");
        }
        // A kernel that is listed, or that a signer vouches for, would run with whatever command line, initrd and credentials it is given.
        if boot.command_lines.is_empty() && !is_pinned(KERNEL_PCR) {
            let text = "names none, and `pcrs` does not enforce PCR 9: any command line and any initrd would do; \
                list what `sparkfleet policy from-image` prints";
            return error("boot.commandLines", text);
        }
        Ok(boot)
    }

    /// The PCRs by which these rules decide which image may run. Where images are listed, the digest of an image covers what PCR 11 has of it.
    pub(crate) fn deciding(&self) -> &'static [u8] {
        if self.images.is_empty() { &DECIDING } else { &DECIDING[..3] }
    }

    /// The values of PCRs 4 and 9 if each of the releases took the place of the one that this log is of; none if the log is of no release.
    pub(crate) fn predicted(&self, log: &EventLog<'_>, bank: Hash) -> BTreeMap<u8, Vec<Vec<u8>>> {
        let measured = |pcr| log.of_pcr(pcr).filter_map(|event| event.digest(bank)).collect::<Vec<_>>();
        let (loaded, started) = (measured(LOADER_PCR), measured(KERNEL_PCR));
        let is_of = |release: &&Release| release.images.first().is_some_and(|image| loaded.contains(&image.as_slice()));
        let Some(booted) = self.releases.iter().find(is_of) else { return BTreeMap::new() };
        let mut values: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
        for release in &self.releases {
            let loads = replayed(bank, &loaded, |digest| swapped(digest, &booted.images, &release.images));
            values.entry(LOADER_PCR).or_default().extend(loads);
            for line in &release.command_lines {
                let starts =
                    replayed(bank, &started, |digest| match booted.command_lines.iter().any(|one| one == digest) {
                        true => Some(line.as_slice()),
                        false => swapped(digest, &booted.initrds, &release.initrds),
                    });
                values.entry(KERNEL_PCR).or_default().extend(starts);
            }
        }
        values
    }

    /// Judges a log by these rules and the PCRs of a verified quote, among which are [`PCRS`].
    pub(crate) fn judge(&self, log: Option<&[u8]>, quoted: &BTreeMap<u8, Vec<u8>>, bank: Hash) -> Result<(), Refusal> {
        let missing = |text: &str| {
            Refusal::new(RefusalCode::EventLogMissing, format!("the policy judges by the event log, and {text}"))
        };
        let bytes = log.ok_or_else(|| missing("the host's software sends none"))?;
        if bytes.is_empty() {
            return Err(missing(
                "the host has none: its kernel shows no binary_bios_measurements, or more than 64 KiB",
            ));
        }
        let of_log =
            |error: &Malformed| Refusal::new(RefusalCode::EventLogMalformed, malformed("event log", error).text);
        let log = EventLog::parse(bytes).map_err(|error| of_log(&error))?;
        check_replay(&log, quoted, bank)?;
        let judge = Judge { log: &log, bank };
        if self.secure_boot {
            judge.secure_boot(&self.signers)?;
        }
        if !self.images.is_empty() {
            judge.images(&self.images)?;
        }
        if let Some(drivers) = &self.drivers {
            judge.drivers(drivers)?;
        }
        if !self.command_lines.is_empty() {
            judge.kernel(&self.command_lines, &self.initrds)?;
        }
        Ok(())
    }
}

/// What takes the place of a digest: that of another release if it is of the one that was booted, else itself. None: the other release has nothing in its place.
fn swapped<'a>(digest: &'a [u8], booted: &[Vec<u8>], other: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    match booted.iter().position(|one| one == digest) {
        Some(place) => other.get(place).map(Vec::as_slice),
        None => Some(digest),
    }
}

/// The value of a PCR after other measurements; None: one of them has nothing in its place.
fn replayed<'a>(bank: Hash, measured: &[&'a [u8]], other: impl Fn(&'a [u8]) -> Option<&'a [u8]>) -> Option<Vec<u8>> {
    measured.iter().try_fold(vec![0; bank.size()], |value, digest| Some(extended(bank, &value, other(digest)?)))
}

/// The PCRs follow from the log.
fn check_replay(log: &EventLog<'_>, quoted: &BTreeMap<u8, Vec<u8>>, bank: Hash) -> Result<(), Refusal> {
    let replayed = log
        .replay(bank)
        .map_err(|error| Refusal::new(RefusalCode::EventLogMalformed, format!("event log: {error}")))?;
    let differs = |index: &u8| {
        let (wanted, found) = (replayed.get(index)?, quoted.get(index)?);
        let explained = wanted == found || (*index == IMAGE_PCR && after_phases(wanted, bank).contains(found));
        (!explained).then(|| PcrDifference { index: *index, wanted: vec![wanted.clone()], found: found.clone() })
    };
    let differences: Vec<PcrDifference> = PCRS.iter().filter_map(differs).collect();
    if differences.is_empty() {
        return Ok(());
    }
    let mut refusal = Refusal::differences(RefusalCode::EventLogReplay, differences);
    refusal.text = format!("the event log does not lead to the quoted PCRs: {}", refusal.text);
    Err(refusal)
}

/// The values of PCR 11 after each phase of the boot.
pub(crate) fn after_phases(value: &[u8], bank: Hash) -> Vec<Vec<u8>> {
    let run = |phases: &[&str]| {
        let mut value = value.to_vec();
        phases
            .iter()
            .map(|phase| {
                value = after_event(bank, &value, phase.as_bytes());
                value.clone()
            })
            .collect::<Vec<_>>()
    };
    [run(&PHASES), run(&PHASES_WITHOUT_INITRD)].concat()
}

/// A log whose digests the TPM vouches for.
struct Judge<'a> {
    log: &'a EventLog<'a>,
    bank: Hash,
}

impl<'a> Judge<'a> {
    fn digest(&self, event: &'a Event<'a>) -> &'a [u8] {
        // The replay has shown that every event has one.
        event.digest(self.bank).unwrap_or_default()
    }

    /// The event is only one of these texts.
    fn says(&self, event: &Event<'_>, texts: &[&[u8]]) -> bool {
        texts.contains(&event.data) && event.is_of_data(self.bank)
    }

    fn not_listed(&self, code: RefusalCode, what: &str, wanted: &Digests, event: &Event<'a>) -> Refusal {
        let found = hex::encode(event.digest(self.bank).unwrap_or_default());
        let text = format!("PCR {}: {what}: wanted {}, found {found}", event.pcr, named(wanted));
        Refusal::new(code, text)
    }

    /// Secure Boot was on from the first measurement, and what was loaded was admitted by one of the signers.
    fn secure_boot(&self, signers: &Digests) -> Result<(), Refusal> {
        let off = |text: String| Refusal::new(RefusalCode::SecureBootOff, format!("PCR {SECURE_BOOT_PCR}: {text}"));
        let mut configured = BTreeSet::new();
        let (mut booting, mut vouched) = (false, false);
        for event in self.log.of_pcr(SECURE_BOOT_PCR) {
            if self.says(event, &SEPARATORS) {
                booting = true;
                continue;
            }
            if !event.is_of_data(self.bank) {
                let found = hex::encode(self.digest(event));
                let text = format!("PCR {SECURE_BOOT_PCR}: the data of event {found} is not what was measured");
                return Err(Refusal::new(RefusalCode::EventLogMalformed, text));
            }
            let variable = Variable::parse(event.data);
            let name = variable.as_ref().and_then(Variable::configuration);
            if let Some(variable) = &variable
                && name == Some("SecureBoot")
                && variable.data != [1]
            {
                return Err(off(format!("wanted SecureBoot 01, found {}", hex::encode(variable.data))));
            }
            if name.is_some_and(|name| !booting && configured.insert(name)) {
                continue;
            }
            if variable.is_none() && !booting {
                let text: String = String::from_utf8_lossy(event.data).chars().take(TEXT_MAX).collect();
                return Err(off(format!("wanted variables of Secure Boot, found {text:?}")));
            }
            vouched |= check_signer(variable.as_ref(), event, signers)?;
        }
        if !configured.contains("SecureBoot") || !booting {
            return Err(off("wanted SecureBoot 01, found no such variable".to_owned()));
        }
        if !signers.is_empty() && !vouched {
            let text = format!("PCR {SECURE_BOOT_PCR}: wanted one of the signers {}, found none", named(signers));
            return Err(Refusal::new(RefusalCode::SignerNotListed, text));
        }
        Ok(())
    }

    /// Nothing was executed but these images.
    fn images(&self, images: &Digests) -> Result<(), Refusal> {
        for event in self.log.events() {
            let executed = event.pcr == LOADER_PCR || event.kind == EV_EFI_BOOT_SERVICES_APPLICATION;
            let harmless = self.says(event, &SEPARATORS) || self.says(event, &ATTEMPTS);
            if executed && !harmless && !images.contains(self.digest(event)) {
                return Err(self.not_listed(RefusalCode::ImageNotListed, "image", images, event));
            }
        }
        Ok(())
    }

    fn drivers(&self, drivers: &Digests) -> Result<(), Refusal> {
        let unknown = |event: &&Event<'_>| {
            !self.says(event, &SEPARATORS) && !event.digest(self.bank).is_some_and(|digest| drivers.contains(digest))
        };
        match self.log.of_pcr(DRIVER_PCR).find(unknown) {
            Some(event) => Err(self.not_listed(RefusalCode::DriverNotListed, "driver", drivers, event)),
            None => Ok(()),
        }
    }

    /// The kernel was started with one of the command lines, and with no initrd but these.
    fn kernel(&self, command_lines: &Digests, initrds: &Digests) -> Result<(), Refusal> {
        let mut commanded = false;
        for event in self.log.of_pcr(KERNEL_PCR) {
            let digest = self.digest(event);
            if command_lines.contains(digest) {
                commanded = true;
            } else if !initrds.contains(digest) {
                // Which of both it is, is the log's own word; it decides over the code alone.
                return Err(if is_initrd(event) {
                    self.not_listed(RefusalCode::InitrdNotListed, "initrd", initrds, event)
                } else {
                    self.not_listed(RefusalCode::CommandLineNotListed, "command line", command_lines, event)
                });
            }
        }
        if commanded {
            return Ok(());
        }
        let text = format!("PCR {KERNEL_PCR}: command line: wanted {}, found none", named(command_lines));
        Err(Refusal::new(RefusalCode::CommandLineNotListed, text))
    }
}

/// True if the event is of a signer that is listed; an error if it is of another.
fn check_signer(variable: Option<&Variable<'_>>, event: &Event<'_>, signers: &Digests) -> Result<bool, Refusal> {
    let certificate = variable.and_then(|variable| variable.data.get(OWNER_BYTES..)).filter(|data| !data.is_empty());
    let found = [certificate.unwrap_or_default(), event.data].map(|data| Hash::Sha256.digest(&[data]));
    if signers.is_empty() || found.iter().any(|digest| signers.contains(digest)) {
        return Ok(!signers.is_empty());
    }
    let name = variable.map_or("an event", |variable| variable.name.as_str());
    let shown = if certificate.is_some() { &found[0] } else { &found[1] };
    let text =
        format!("PCR {SECURE_BOOT_PCR}: signer: wanted {}, found {} ({name})", named(signers), hex::encode(shown));
    Err(Refusal::new(RefusalCode::SignerNotListed, text))
}

/// Digests for people: the first of them, and how many more there are.
fn named(digests: &Digests) -> String {
    let shown: Vec<String> = digests.iter().take(NAMED_MAX).map(hex::encode).collect();
    match digests.len().saturating_sub(NAMED_MAX) {
        0 if shown.is_empty() => "none".to_owned(),
        0 => shown.join(" or "),
        more => format!("{} or one of {more} more", shown.join(" or ")),
    }
}

fn is_initrd(event: &Event<'_>) -> bool {
    // A tagged event of Linux: two numbers, then the text.
    event.data.get(8..).is_some_and(|text| text.starts_with(b"Linux initrd"))
}

/// A variable of UEFI as it is measured (`UEFI_VARIABLE_DATA`).
#[derive(Debug)]
struct Variable<'a> {
    guid: [u8; 16],
    name: String,
    data: &'a [u8],
}

impl<'a> Variable<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let guid = reader.take("VariableName", 16).ok()?.try_into().ok()?;
        let characters = reader.u64_le("UnicodeNameLength").ok().filter(|characters| *characters <= NAME_MAX)?;
        let size = usize::try_from(reader.u64_le("VariableDataLength").ok()?).ok()?;
        let name = reader.take("UnicodeName", usize::try_from(characters).ok()? * 2).ok()?;
        let name: Vec<u16> = name.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
        let data = reader.take("VariableData", size).ok()?;
        reader.finish("UEFI_VARIABLE_DATA").ok()?;
        let name = String::from_utf16(&name).ok()?;
        Some(Self { guid, name: name.trim_end_matches('\0').to_owned(), data })
    }

    /// Its name, if it is one of those that firmware measures before it loads anything.
    fn configuration(&self) -> Option<&'static str> {
        CONFIGURATION.iter().find(|(guid, name)| self.guid == **guid && self.name == *name).map(|(_, name)| *name)
    }
}
