//! Reference values of images: against other people's programs (osslsigncode, systemd-measure), and of files that are not images.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use join_attestation::image::command_line_digest;
use join_attestation::{Hash, Image, ImageError};
use proptest::prelude::*;

const HEADERS: usize = 0x400;
const STUB: &[u8] = b"#### LoaderInfo: systemd-stub 252.39-1~deb12u2 ####\0";

/// A PE image of these sections, in this order; the first of them lies last in the file.
fn image(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let word = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
    let short = |value: u16| value.to_le_bytes();
    let mut bytes = b"MZ".to_vec();
    bytes.resize(0x3c, 0);
    bytes.extend(word(0x40));
    bytes.extend(b"PE\0\0");
    // AMD64; sections; no symbols; size of the optional header; executable.
    bytes.extend([short(0x8664), short(u16::try_from(sections.len()).unwrap())].concat());
    bytes.extend([word(0), word(0), word(0)].concat());
    bytes.extend([short(240), short(0x2022)].concat());
    bytes.extend([short(0x20b), short(0)].concat());
    bytes.extend([word(0); 5].concat());
    bytes.extend([0; 8]);
    bytes.extend([word(0x1000), word(0x200)].concat());
    bytes.extend([0; 16]);
    bytes.extend([word(0x10_0000), word(HEADERS), word(0x1234_5678)].concat());
    // An application of EFI; stack and heap; sixteen directories.
    bytes.extend([short(10), short(0)].concat());
    bytes.extend([0; 36]);
    bytes.extend(word(16));
    bytes.extend([0; 128]);
    let mut places = vec![0; sections.len()];
    let mut end = HEADERS;
    for at in (1..sections.len()).chain([0]) {
        places[at] = end;
        end += sections[at].1.len().next_multiple_of(0x200);
    }
    for (at, (name, content)) in sections.iter().enumerate() {
        let mut field = name.as_bytes().to_vec();
        field.resize(8, 0);
        bytes.extend(field);
        let raw = content.len().next_multiple_of(0x200);
        bytes.extend([word(content.len()), word(0x1000 * (at + 1)), word(raw), word(places[at])].concat());
        bytes.extend([0; 12]);
        bytes.extend(word(0x4000_0040));
    }
    bytes.resize(end, 0);
    for (place, (_, content)) in places.iter().zip(sections) {
        bytes[*place..place + content.len()].copy_from_slice(content);
    }
    bytes
}

fn kernel() -> Vec<u8> {
    image(&[(".text", b"a kernel")])
}

fn unified(command_line: &[u8], stub: &[u8]) -> Vec<u8> {
    image(&[
        (".sdmagic", stub),
        (".osrel", b"ID=sparkfleet-lab\nVERSION_ID=1\n"),
        (".cmdline", command_line),
        (".initrd", b"an initrd"),
        (".linux", &kernel()),
    ])
}

const COMMAND_LINE: &str = "console=ttyS0 quiet lab.roothash=0f1e";

fn hex_of(values: &[Vec<u8>]) -> Vec<String> {
    values.iter().map(hex::encode).collect()
}

#[test]
fn the_digests_are_those_of_other_programs() {
    let bytes = unified(COMMAND_LINE.as_bytes(), STUB);
    let image = Image::parse(&bytes).unwrap();
    let values = image.reference_values(Hash::Sha256).unwrap();
    // `osslsigncode verify` of the image and of the kernel, after they were signed.
    let images = [
        "e8b6861a6573fc72318f80a91335f34f17419dbad7dee7339ad65974f0406ec3",
        "8a6e3c59daa0706d54935da02e428dba623fd5d29d6adc22ca35b184fd538785",
    ];
    assert_eq!(hex_of(&values.images), images);
    // `iconv -t UTF-16LE` and two zeros, `sha256sum`.
    assert_eq!(hex_of(&values.command_lines), ["6f0f2249d01e12f73e67810156420c5cd462deca39add2103d46d512516b9ae1"]);
    assert_eq!(
        values.initrd.as_ref().map(hex::encode).as_deref(),
        Some("d52742203e8e42f16f5bbe48a6e8aa94d9876c5abc0185f12c7f7b9ff94c814d")
    );
    assert_eq!(values.added_to_initrd, [""; 0]);
    // `systemd-measure calculate` (252) of the sections' content.
    let pcr = hex_of(&image.image_pcr(Hash::Sha256).unwrap());
    assert_eq!(pcr.len(), 7);
    assert_eq!(pcr[0], "fd295229dc4fa258dcc7a65f84a9445c1af79a9bcf4c8ea415b69b5b419b511f");
    assert_eq!(
        pcr[4], "a8a4444d016d7caf5f2aec9508ff3841a5e747b7f9dd8c6be0970583df59432c",
        "enter-initrd:leave-initrd:sysinit:ready"
    );
    assert_eq!(pcr[6], "e61b9c7043eecf7d758ff1eabe33377f9c54202d5ce0e246bc2f07cc51caf8b9", "sysinit:ready");
    let long = hex_of(&image.image_pcr(Hash::Sha384).unwrap());
    assert!(long[0].starts_with("48b83c148cf75d182b800cb44505ec0a"), "{}", long[0]);
}

#[test]
fn a_signature_and_the_checksum_change_nothing_and_everything_else_does() {
    let bytes = unified(COMMAND_LINE.as_bytes(), STUB);
    let digest = |bytes: &[u8]| Image::parse(bytes).unwrap().authenticode(Hash::Sha256).unwrap();
    let plain = digest(&bytes);
    let (optional, word) = (0x58, |value: usize| u32::try_from(value).unwrap().to_le_bytes());
    let mut signed = bytes.clone();
    signed[optional + 64] ^= 1;
    signed[optional + 144..optional + 148].copy_from_slice(&word(bytes.len()));
    signed[optional + 148..optional + 152].copy_from_slice(&word(24));
    signed.extend([7; 24]);
    assert_eq!(digest(&signed), plain);
    assert_ne!(digest(&[&bytes[..], &[0; 8]].concat()), plain, "what follows the sections counts");
    for at in [2, optional + 60 + 10, HEADERS - 1, HEADERS, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert_ne!(digest(&changed), plain, "byte {at}");
    }
}

#[test]
fn command_lines_of_which_stubs_make_different_things_have_both_digests() {
    let of = |section: &[u8]| {
        let bytes = unified(section, STUB);
        Image::parse(&bytes).unwrap().reference_values(Hash::Sha256).map(|values| values.command_lines)
    };
    let digests = |texts: &[&str]| texts.iter().map(|text| command_line_digest(text, Hash::Sha256)).collect::<Vec<_>>();
    assert_eq!(of(b"quiet"), Ok(digests(&["quiet"])));
    assert_eq!(of(b"quiet\0\0"), Ok(digests(&["quiet"])));
    assert_eq!(of(b" quiet\tsplash\n"), Ok(digests(&[" quiet\tsplash\n", "quiet splash"])));
    assert_eq!(of(b"\xff"), Err(ImageError::CommandLine));
    assert_eq!(
        hex::encode(command_line_digest("quiet", Hash::Sha256)),
        "2d7d7381227937c3ac164a2f36c1e8e8268e91eb28814d8a75ba4c72c2be0155"
    );
}

#[test]
fn what_the_stub_adds_to_the_initrd_and_stubs_that_are_not_known() {
    let kernel = kernel();
    let parts: [(&str, &[u8]); 5] = [
        (".sdmagic", STUB),
        (".cmdline", b"quiet"),
        (".initrd", b"an initrd"),
        (".linux", &kernel),
        (".pcrsig", b"{}"),
    ];
    let bytes = image(&parts);
    let values = Image::parse(&bytes).unwrap().reference_values(Hash::Sha256).unwrap();
    assert_eq!((values.initrd, values.added_to_initrd), (None, vec![".pcrsig"]));

    let error = |stub: &[u8]| {
        let bytes = unified(b"quiet", stub);
        Image::parse(&bytes).unwrap().image_pcr(Hash::Sha256).unwrap_err().to_string()
    };
    let newer = error(b"#### LoaderInfo: systemd-stub 257.9-1 ####\0");
    assert!(newer.contains("and this is 257.9-1; use systemd-measure"), "{newer}");
    assert!(error(b"#### LoaderInfo: systemd-stub 2520 ####\0").contains("2520"));
    assert!(error(b"something else").contains("another stub"));

    let error = |parts: &[(&str, &[u8])]| {
        let bytes = image(parts);
        Image::parse(&bytes).unwrap().reference_values(Hash::Sha256).unwrap_err()
    };
    assert_eq!(error(&[(".text", b"a boot loader")]), ImageError::Missing(".linux"));
    assert!(matches!(error(&[(".linux", b"an ELF file")]), ImageError::Format(_)));
    let twice: [(&str, &[u8]); 3] = [(".linux", &kernel), (".cmdline", b"a"), (".cmdline", b"b")];
    assert_eq!(error(&twice), ImageError::Ambiguous(".cmdline".to_owned()));
}

proptest! {
    #[test]
    fn files_that_are_cut_off_or_changed_are_an_error_or_another_image(
        end in 0_usize..4608, at in 0_usize..HEADERS, byte in any::<u8>(),
    ) {
        let mut bytes = unified(COMMAND_LINE.as_bytes(), STUB);
        bytes[at] = byte;
        for bytes in [&bytes[..end.min(bytes.len())], &bytes[..]] {
            if let Ok(image) = Image::parse(bytes) {
                let _ = image.reference_values(Hash::Sha256);
                let _ = image.image_pcr(Hash::Sha256);
            }
        }
    }
}
