//! Three event logs of virtual machines (OVMF, systemd's stub, Linux 6.1), and what logs are made of.

/// Secure Boot is off.
pub const PLAIN: &[u8] = include_bytes!("../event_logs/plain.bin");
/// The same machine and image; only the embedded command line is another one.
pub const OTHER_COMMAND_LINE: &[u8] = include_bytes!("../event_logs/other-command-line.bin");
/// The same image, signed, on firmware with Secure Boot.
pub const SECURE_BOOT: &[u8] = include_bytes!("../event_logs/secure-boot.bin");

/// An event with one digest, of SHA-256.
pub fn measured(pcr: u32, kind: u32, digest: &[u8], data: &[u8]) -> Vec<u8> {
    let size = u32::try_from(data.len()).unwrap().to_le_bytes();
    let (pcr, kind, count, id) = (pcr.to_le_bytes(), kind.to_le_bytes(), 1_u32.to_le_bytes(), 0x0b_u16.to_le_bytes());
    [&pcr[..], &kind, &count, &id, digest, &size, data].concat()
}
