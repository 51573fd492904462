//! Lines of git's protocol: each with its length in front, four hexadecimal digits that count themselves (gitprotocol-common, "pkt-line Format").

/// What is not such a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The lines of some bytes, None for a flush. Ends with the bytes, or with the first that are malformed.
pub(crate) fn lines(mut bytes: &[u8]) -> impl Iterator<Item = Result<Option<&[u8]>, Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let line = first(bytes);
        bytes = line.map_or(&[], |(_, rest)| rest);
        Some(line.map(|(line, _)| line).ok_or(Malformed))
    })
}

/// The first line, and what follows it.
fn first(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_at_checked(4)?;
    let length = usize::from_str_radix(std::str::from_utf8(length).ok()?, 16).ok()?;
    match length.checked_sub(4) {
        None => Some((None, rest)),
        Some(length) => rest.split_at_checked(length).map(|(line, rest)| (Some(line), rest)),
    }
}

/// Adds a line.
pub(crate) fn push(to: &mut Vec<u8>, line: &[u8]) {
    to.extend(format!("{:04x}", line.len() + 4).into_bytes());
    to.extend(line);
}
