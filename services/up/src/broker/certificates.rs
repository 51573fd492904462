//! Birth certificates: what makes the server a Sparkplug Aware one (Sparkplug 3.0, 10.1.4). The latest birth of each Edge Node and device is kept, retained, below
//! `$sparkplug/certificates/`, byte by byte as it came.
//!
//! A certificate says how someone was born, and neither that it lives nor what its values are now. Only the server writes them: a client that may publish a birth gets that birth certified, and
//! no one may publish to the certificates themselves. A member may be born under any name of its own group, so what a group keeps is bounded, and its oldest certificate gives way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sparkplug::topic::{MessageKind, Topic};

/// First levels of the topics that belong to the server.
const RESERVED: &str = "$sparkplug";

/// Certificates of one group, at most.
const GROUP_CERTIFICATES_MAX: usize = 20_000;
/// Bytes of the certificates of one group, at most.
const GROUP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of all certificates, at most. Beyond it the group that takes most gives way.
const BYTES_MAX: usize = 512 * 1024 * 1024;

/// Whether a topic is the server's own, so that no client publishes to it, and no will does.
pub(super) fn is_reserved(topic: &str) -> bool {
    topic.split('/').next() == Some(RESERVED)
}

/// Where a message is kept: the topic of its certificate and its group, if it is a birth.
/// (tck-id-conformance-mqtt-aware-nbirth-mqtt-topic, tck-id-conformance-mqtt-aware-dbirth-mqtt-topic)
pub(super) fn certificate_of(topic: &str) -> Option<(String, String)> {
    let (Topic::Node { node, kind: MessageKind::NBirth } | Topic::Device { node, kind: MessageKind::DBirth, .. }) =
        Topic::parse(topic).ok()?
    else {
        return None;
    };
    Some((format!("{RESERVED}/certificates/{topic}"), node.group.as_str().to_owned()))
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    of_group: usize,
    bytes_of_group: usize,
    bytes: usize,
}

/// Which certificates there are.
#[derive(Debug)]
pub(super) struct Certificates {
    bounds: Bounds,
    groups: HashMap<String, Group>,
    /// Groups by what they take.
    by_bytes: BTreeSet<(usize, String)>,
    bytes: usize,
    /// Number of the latest birth.
    births: u64,
}

#[derive(Debug, Default)]
struct Group {
    bytes: usize,
    /// Number of the birth and bytes, by the topic of the certificate.
    kept: HashMap<String, (u64, usize)>,
    /// Topics by the number of their birth: the first is the oldest.
    by_age: BTreeMap<u64, String>,
}

impl Group {
    fn remove(&mut self, certificate: &str) {
        if let Some((birth, bytes)) = self.kept.remove(certificate) {
            self.by_age.remove(&birth);
            self.bytes -= bytes;
        }
    }

    fn insert(&mut self, certificate: &str, birth: u64, bytes: usize) {
        self.kept.insert(certificate.to_owned(), (birth, bytes));
        self.by_age.insert(birth, certificate.to_owned());
        self.bytes += bytes;
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::within(Bounds { of_group: GROUP_CERTIFICATES_MAX, bytes_of_group: GROUP_BYTES_MAX, bytes: BYTES_MAX })
    }
}

impl Certificates {
    fn within(bounds: Bounds) -> Self {
        Self { bounds, groups: HashMap::new(), by_bytes: BTreeSet::new(), bytes: 0, births: 0 }
    }

    /// Takes a birth in; yields the topics of the certificates that give way to it, its own among them if it is too large.
    pub(super) fn keep(&mut self, group: &str, certificate: &str, payload_bytes: usize) -> Vec<String> {
        self.births += 1;
        let birth = self.births;
        let bytes = certificate.len() + payload_bytes;
        self.change(group, |kept| {
            kept.remove(certificate);
            kept.insert(certificate, birth, bytes);
        });
        let mut gone = Vec::new();
        while let Some(group) = self.group_beyond(group) {
            let Some(oldest) = self.groups.get(&group).and_then(|kept| kept.by_age.values().next().cloned()) else {
                break;
            };
            self.change(&group, |kept| kept.remove(&oldest));
            gone.push(oldest);
        }
        gone
    }

    /// The group that takes more than its share now, after a birth in `group`.
    fn group_beyond(&self, group: &str) -> Option<String> {
        let Bounds { of_group, bytes_of_group, bytes } = self.bounds;
        let is_beyond = |kept: &Group| kept.kept.len() > of_group || kept.bytes > bytes_of_group;
        if self.groups.get(group).is_some_and(is_beyond) {
            return Some(group.to_owned());
        }
        let largest = self.by_bytes.last().filter(|_| self.bytes > bytes);
        largest.map(|(_, group)| group.clone())
    }

    fn change(&mut self, group: &str, change: impl FnOnce(&mut Group)) {
        let kept = self.groups.entry(group.to_owned()).or_default();
        let before = kept.bytes;
        change(kept);
        let after = kept.bytes;
        self.bytes = self.bytes - before + after;
        self.by_bytes.remove(&(before, group.to_owned()));
        if after == 0 {
            self.groups.remove(group);
        } else {
            self.by_bytes.insert((after, group.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tck-id-conformance-mqtt-aware-nbirth-mqtt-topic, tck-id-conformance-mqtt-aware-dbirth-mqtt-topic
    #[test]
    fn births_have_certificates_and_nothing_else_has() {
        for birth in ["spBv1.0/G/NBIRTH/E", "spBv1.0/G/DBIRTH/E/D"] {
            let certificate = format!("$sparkplug/certificates/{birth}");
            assert_eq!(certificate_of(birth), Some((certificate.clone(), "G".to_owned())));
            assert_eq!(certificate_of(&certificate), None);
            assert!(is_reserved(&certificate) && !is_reserved(birth));
        }
        for other in [
            "spBv1.0/G/NDATA/E",
            "spBv1.0/G/NDEATH/E",
            "spBv1.0/G/DDEATH/E/D",
            "spBv1.0/G/NCMD/E",
            "spBv1.0/STATE/H",
            "spBv1.0/G/NBIRTH/E/D",
            "spBv1.0/G/DBIRTH/E",
            "NBIRTH",
        ] {
            assert_eq!(certificate_of(other), None, "{other}");
        }
        assert!(is_reserved("$sparkplug") && !is_reserved("$sparkplugged/x") && !is_reserved("x/$sparkplug"));
    }

    /// A client that is born under ten thousand names crowds out only its own group.
    #[test]
    fn a_group_that_has_its_share_gives_up_its_oldest_and_no_other_groups() {
        let bounds = Bounds { of_group: 3, bytes_of_group: 100, bytes: 150 };
        let mut certificates = Certificates::within(bounds);
        assert!(certificates.keep("weld", "w", 9).is_empty());
        for (name, gone) in [("a", None), ("b", None), ("c", None), ("d", Some("a")), ("b", None), ("e", Some("c"))] {
            assert_eq!(certificates.keep("paint", name, 9), Vec::from_iter(gone.map(str::to_owned)), "{name}");
        }
        assert_eq!((certificates.groups["paint"].bytes, certificates.bytes), (30, 40));
        // By bytes: one that fills the share of its group alone, then one that is larger than that.
        assert_eq!(certificates.keep("paint", "f", 99), ["d", "b", "e"]);
        assert_eq!(certificates.keep("paint", "g", 100), ["f", "g"]);
        assert!(!certificates.groups.contains_key("paint"));
        // Over all: the group that takes most gives way, whichever came last.
        assert!(certificates.keep("paint", "h", 49).is_empty() && certificates.keep("paint", "i", 39).is_empty());
        assert_eq!(certificates.keep("press", "p", 59), ["h"]);
        assert_eq!(certificates.bytes, 10 + 40 + 60);
        let counted: usize = certificates.by_bytes.iter().map(|(bytes, _)| bytes).sum();
        assert_eq!(counted, certificates.bytes);
    }
}
