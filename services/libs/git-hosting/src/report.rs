//! What git answers to a push, changed into a refusal: git has taken the push, and another program has not.
//!
//! The format is git's: lines with their length in front (gitprotocol-common), in bands if the client asked for these (gitprotocol-pack, "Report Status").

use crate::pkt_line;

/// Most bytes of a line that are sent: a client without large bands takes 1,000.
const LINE_BYTES_MAX: usize = 990;

/// Most characters of a reason.
const REASON_CHARACTERS_MAX: usize = 500;

/// The answer in which nothing is accepted, for this reason. None: the client has not asked for a report.
#[must_use]
pub fn refuse(answer: &[u8], reason: &str) -> Option<Vec<u8>> {
    let reason: String = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARACTERS_MAX).collect();
    let outer = lines(answer)?;
    let is_banded = outer.iter().flatten().next()?.first().is_some_and(|band| (1..=3).contains(band));
    let report = if is_banded {
        outer.iter().flatten().filter(|line| line.first() == Some(&1)).flat_map(|line| &line[1..]).copied().collect()
    } else {
        answer.to_vec()
    };
    let mut refused = Vec::new();
    for line in lines(&report)? {
        match line.map(|line| (line, line.strip_prefix(b"ok "))) {
            None => refused.extend(b"0000"),
            Some((_, Some(name))) => {
                let name = name.strip_suffix(b"\n").unwrap_or(name);
                pkt_line::push(&mut refused, &[b"ng ", name, b" ", reason.as_bytes(), b"\n"].concat());
            }
            // What is said of a reference that is accepted.
            Some((line, None)) if line.starts_with(b"option ") => {}
            Some((line, None)) => pkt_line::push(&mut refused, line),
        }
    }
    if !is_banded {
        return Some(refused);
    }
    let mut whole = Vec::new();
    for message in outer.iter().flatten().filter(|line| line.first() == Some(&2)) {
        pkt_line::push(&mut whole, message);
    }
    let said = format!("Refused: {reason}\n");
    for (band, bytes) in [(2, said.as_bytes()), (1, &refused)] {
        for part in bytes.chunks(LINE_BYTES_MAX) {
            pkt_line::push(&mut whole, &[&[band], part].concat());
        }
    }
    whole.extend(b"0000");
    Some(whole)
}

/// The lines; None among them is a flush. None: it is something else.
fn lines(bytes: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    pkt_line::lines(bytes).collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        pkt_line::push(&mut line, text);
        line
    }

    #[test]
    fn nothing_is_accepted_in_a_refusal() {
        let accepted = line(b"ok refs/heads/main\n");
        let option = line(b"option refname refs/heads/main\n");
        let refused = line(b"ng refs/heads/x hook\n");
        let report = [&line(b"unpack ok\n")[..], &accepted, &option, &refused, b"0000"].concat();
        let expected = [&line(b"unpack ok\n")[..], &line(b"ng refs/heads/main not here\n"), &refused, b"0000"].concat();
        assert_eq!(refuse(&report, "not\n here").unwrap(), expected);

        let band = |number: u8, bytes: &[u8]| line(&[&[number], bytes].concat());
        let (first, second) = report.split_at(11);
        let banded = [&band(2, b"hello\n")[..], &band(1, first), &band(1, second), b"0000"].concat();
        let refused = [&band(2, b"hello\n")[..], &band(2, b"Refused: not here\n"), &band(1, &expected), b"0000"];
        assert_eq!(refuse(&banded, "not here").unwrap(), refused.concat());
    }

    #[test]
    fn what_is_not_a_report_is_not_one() {
        for answer in [&b""[..], b"0000", b"x", b"0009ab", b"zzzz", b"ffff"] {
            assert_eq!(refuse(answer, "x"), None, "{answer:?}");
        }
    }

    #[test]
    fn long_reports_are_divided() {
        let all: Vec<u8> = (0..100).flat_map(|n| line(format!("ok refs/heads/{n}\n").as_bytes())).collect();
        let report = [&line(b"unpack ok\n")[..], &all, b"0000"].concat();
        let refused = refuse(&line(&[&[1], &report[..]].concat()), &"x".repeat(10_000)).unwrap();
        for line in lines(&refused).unwrap().into_iter().flatten() {
            assert!(line.len() <= LINE_BYTES_MAX + 1, "{}", line.len());
        }
    }
}
