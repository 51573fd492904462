//! Ids as parts of file names and client ids.

/// Ids may hold anything but `/`, `+`, `#`: what could surprise a file system or an MQTT server is written as `=` and the byte in hexadecimal.
/// Injective, and `.` never appears in it, so it can separate two of them.
pub(crate) fn plain_name(id: &str) -> String {
    id.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("={byte:02x}"));
        }
        name
    })
}
