//! Reference values of a boot image: what firmware, the stub and the kernel will measure of a PE file, such as a unified kernel image.

use object::LittleEndian as LE;
use object::pe::IMAGE_DIRECTORY_ENTRY_SECURITY;
use object::read::pe::PeFile64;

use crate::boot::after_phases;
use crate::hash::Hash;
use crate::pcr::{after_event, extended};

/// Of the NT headers: where the optional header begins, and in it the checksum and the entry of the certificates.
const OPTIONAL_HEADER: usize = 24;
const CHECKSUM: usize = 64;
const CERTIFICATES: usize = 112 + 8 * IMAGE_DIRECTORY_ENTRY_SECURITY;

/// The sections that systemd's stub measures into PCR 11, in its order.
const MEASURED: [&str; 7] = [".linux", ".osrel", ".cmdline", ".initrd", ".splash", ".dtb", ".pcrpkey"];
/// The versions of the stub that measure these and no others.
const STUBS: [u32; 2] = [252, 253];
/// The stub packs these into archives behind the initrd.
const ADDED_TO_INITRD: [&str; 4] = [".pcrsig", ".pcrpkey", ".ucode", ".profile"];

/// Why a file has no reference values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Not a 64-bit PE image.
    #[error("it is not a PE image of a 64-bit machine: {0}")]
    Format(String),
    /// A part lies outside of the file.
    #[error("{0} lies outside of the file")]
    Outside(&'static str),
    /// A section that must be there.
    #[error("it has no section {0}: it is not a unified kernel image")]
    Missing(&'static str),
    /// One name for several sections.
    #[error("it has more than one section {0}: images with several profiles are not supported")]
    Ambiguous(String),
    /// The command line is not text.
    #[error("the section .cmdline is not UTF-8")]
    CommandLine,
    /// The stub measures what is not known here.
    #[error(
        "PCR 11 is predicted for systemd's stub of the versions 252 and 253, and this is {0}; use systemd-measure of that version, or take the value of a host"
    )]
    Stub(String),
}

/// A PE image.
#[derive(Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    file: PeFile64<'a>,
}

/// What a policy lists about an image (`boot`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceValues {
    /// Digests of the image, and of the kernel in it, which is measured by itself without Secure Boot.
    pub images: Vec<Vec<u8>>,
    /// Digests of its command line. Two where versions of the stub differ in what they make of white space; none without one.
    pub command_lines: Vec<Vec<u8>>,
    /// The digest of its initrd; None: it has none, or the stub adds to it.
    pub initrd: Option<Vec<u8>>,
    /// Sections that the stub adds to the initrd: then the digest of the initrd does not follow from the file alone.
    pub added_to_initrd: Vec<&'static str>,
}

impl<'a> Image<'a> {
    /// Reads the headers of an image.
    ///
    /// # Errors
    /// [`ImageError::Format`]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let file = PeFile64::parse(bytes).map_err(|error| ImageError::Format(error.to_string()))?;
        Ok(Self { bytes, file })
    }

    /// The Authenticode digest, as firmware measures the image that it executes. It holds for the file as it is booted: a signature that is added later may pad the file.
    ///
    /// # Errors
    /// [`ImageError::Outside`]
    pub fn authenticode(&self, bank: Hash) -> Result<Vec<u8>, ImageError> {
        let range = |what, from: usize, to: usize| self.bytes.get(from..to).ok_or(ImageError::Outside(what));
        let headers = self.file.nt_headers();
        let headers_end = headers.optional_header.size_of_headers.get(LE) as usize;
        let optional = self.file.dos_header().nt_headers_offset() as usize + OPTIONAL_HEADER;
        // By its place: one without an address is not hashed either.
        let certificates = self.file.data_directories().iter().nth(IMAGE_DIRECTORY_ENTRY_SECURITY);
        let mut parts = vec![range("the header", 0, optional + CHECKSUM)?];
        // Neither the checksum nor where the signature lies is hashed.
        let after_checksum = optional + CHECKSUM + 4;
        match certificates {
            Some(_) => parts.extend([
                range("the header", after_checksum, optional + CERTIFICATES)?,
                range("the header", optional + CERTIFICATES + 8, headers_end)?,
            ]),
            None => parts.push(range("the header", after_checksum, headers_end)?),
        }
        let sections = self.file.section_table();
        let place = |section: &object::pe::ImageSectionHeader| {
            (section.pointer_to_raw_data.get(LE) as usize, section.size_of_raw_data.get(LE) as usize)
        };
        let mut places: Vec<(usize, usize)> = sections.iter().map(place).filter(|(_, size)| *size > 0).collect();
        places.sort_unstable();
        let mut hashed = headers_end;
        for (from, size) in places {
            parts.push(range("a section", from, from + size)?);
            hashed += size;
        }
        // What follows the sections, but for the signature at the end. Firmware counts bytes, it does not look for their place.
        let signature = certificates.map_or(0, |entry| entry.size.get(LE) as usize);
        let end = self.bytes.len().checked_sub(signature).ok_or(ImageError::Outside("the signature"))?;
        parts.push(range("what follows the sections", hashed.min(end), end)?);
        Ok(bank.digest(&parts))
    }

    /// The content of a section as it lies in memory; None: there is none of that name.
    ///
    /// # Errors
    /// [`ImageError::Ambiguous`], [`ImageError::Outside`]
    pub fn section(&self, name: &str) -> Result<Option<&'a [u8]>, ImageError> {
        let mut found = self.file.section_table().iter().filter(|section| section.raw_name() == name.as_bytes());
        let Some(section) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(ImageError::Ambiguous(name.to_owned()));
        }
        let outside = ImageError::Outside("a section");
        if section.virtual_size.get(LE) > section.size_of_raw_data.get(LE) {
            return Err(outside);
        }
        section.pe_data(self.bytes).map(Some).map_err(|_| outside)
    }

    /// The values that a policy lists about this image.
    ///
    /// # Errors
    /// It is not a unified kernel image, or what is in it cannot be read.
    pub fn reference_values(&self, bank: Hash) -> Result<ReferenceValues, ImageError> {
        let kernel = self.section(".linux")?.ok_or(ImageError::Missing(".linux"))?;
        let kernel = Image::parse(kernel)?;
        let command_line = self.section(".cmdline")?.map(command_lines).transpose()?.unwrap_or_default();
        let mut added_to_initrd = Vec::new();
        for name in ADDED_TO_INITRD {
            added_to_initrd.extend(self.section(name)?.map(|_| name));
        }
        let initrd = self.section(".initrd")?.filter(|_| added_to_initrd.is_empty());
        Ok(ReferenceValues {
            images: vec![self.authenticode(bank)?, kernel.authenticode(bank)?],
            command_lines: command_line.iter().map(|text| command_line_digest(text, bank)).collect(),
            initrd: initrd.map(|initrd| bank.digest(&[initrd])),
            added_to_initrd,
        })
    }

    /// The values that PCR 11 can have in operation: as the stub leaves it, and after each phase of the boot that systemd measures.
    ///
    /// # Errors
    /// [`ImageError::Stub`], or a section cannot be read.
    pub fn image_pcr(&self, bank: Hash) -> Result<Vec<Vec<u8>>, ImageError> {
        let version = self.stub_version()?;
        if !STUBS.iter().any(|known| version.split(['.', '-', ' ', '~']).next() == Some(&known.to_string())) {
            return Err(ImageError::Stub(version));
        }
        let mut value = vec![0; bank.size()];
        for name in MEASURED {
            if let Some(content) = self.section(name)? {
                value = after_event(bank, &value, format!("{name}\0").as_bytes());
                value = extended(bank, &value, &bank.digest(&[content]));
            }
        }
        let mut values = after_phases(&value, bank);
        values.insert(0, value);
        Ok(values)
    }

    /// What the stub says of itself: `#### LoaderInfo: systemd-stub 252.39-1~deb12u2 ####`.
    fn stub_version(&self) -> Result<String, ImageError> {
        let text = String::from_utf8_lossy(self.section(".sdmagic")?.unwrap_or_default()).into_owned();
        let version =
            text.split_once("systemd-stub ").map(|(_, rest)| rest.trim_end_matches(['\0', '#', ' ']).to_owned());
        version.ok_or_else(|| ImageError::Stub("another stub".to_owned()))
    }
}

/// What stubs make of a command line: since version 254 without white space at its ends and with spaces for control characters, before as it is.
fn command_lines(section: &[u8]) -> Result<Vec<String>, ImageError> {
    let text = section.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = str::from_utf8(text).map_err(|_| ImageError::CommandLine)?;
    let tidied: String = text.chars().map(|c| if c <= '\u{1f}' { ' ' } else { c }).collect();
    let tidied = tidied.trim_matches(' ').to_owned();
    Ok(if tidied == text { vec![tidied] } else { vec![text.to_owned(), tidied] })
}

/// The digest of a command line as the kernel measures it: UTF-16LE, with a NUL at its end.
#[must_use]
pub fn command_line_digest(text: &str, bank: Hash) -> Vec<u8> {
    let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    bank.digest(&[&units])
}
