//! MQTT client ids. A server ends the earlier session with a client id, so an id that others can guess lets them end the session: each ends with 128 random bits.
//!
//! An Edge Node has the same id after a restart. So a half-open old session of it is taken over, and its will comes before the next birth. The bits are kept beside the bdSeq,
//! mode 0600. A Host Application has the same id as long as its process lives. Ids are harmless everywhere: some servers refuse `/` and other characters of paths.
//!
//! A copy of a state directory has the same bits. The processes of both would end each other's sessions before either receives the birth of the other, and so for ever. So an Edge Node
//! with a speaker that meets this continues with other bits, which only its process knows: both are born, and the speakers decide which one ends.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sparkplug::{EdgeNodeDescriptor, HostId};

use crate::bd_seq::{BdSeqError, BdSeqStore};
use crate::plain_name::plain_name;

/// Longest id that is made. MQTT 3.1.1 promises only 23; every server in use takes this.
const CLIENT_ID_BYTES_MAX: usize = 120;

/// Random bytes of an id.
const RANDOM_BYTES: usize = 16;

/// A session that the server ends so soon after CONNACK may have been ended for another one with the same id. MQTT 3.1.1 has no word for that, and rumqttc does not read the DISCONNECT
/// of MQTT 5 in the form that has no length of properties, which is that of Mosquitto.
const SHORT: Duration = Duration::from_secs(10);

/// One short session is not enough: a server that is started again ends one, too.
const SHORT_MAX: u32 = 2;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The server says that another client connected with the same id (MQTT 5, reason 0x8E).
    TakenOver,
    /// The server ended it.
    ByServer,
    /// Its own side, or the network, ended it.
    Other,
}

/// The client id of one machine.
#[derive(Debug, Clone)]
pub(crate) struct ClientId {
    name: String,
    text: String,
    /// Short sessions with this id. None: it stays, whatever happens.
    short: Option<u32>,
    was_replaced: bool,
}

/// `<prefix>.<group>.<edge node>.<random>`. Blocks on the disk. `yields`: it is replaced when another process has it, too.
///
/// # Errors
/// The random part cannot be kept where the bdSeq is.
pub(crate) fn of_edge_node(
    prefix: &str,
    node: &EdgeNodeDescriptor,
    kept: &BdSeqStore,
    yields: bool,
) -> Result<ClientId, BdSeqError> {
    let random = match kept {
        BdSeqStore::Memory => random_text(),
        BdSeqStore::File(path) => kept_beside(&path.with_extension("client_id"))?,
    };
    let name = format!("{prefix}.{}.{}", plain_name(node.group.as_str()), plain_name(node.edge_node.as_str()));
    Ok(ClientId { short: yields.then_some(0), ..ClientId::new(name, &random) })
}

/// `<prefix>.host.<host id>.<random>`, or `<prefix>.listener.<random>`.
pub(crate) fn of_host(prefix: &str, host: Option<&HostId>) -> ClientId {
    let name = match host {
        Some(host) => format!("{prefix}.host.{}", plain_name(host.as_str())),
        None => format!("{prefix}.listener"),
    };
    ClientId::new(name, &random_text())
}

impl ClientId {
    fn new(name: String, random: &str) -> Self {
        Self { text: with(&name, random), name, short: None, was_replaced: false }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// A session with this id is over, so long after its CONNACK. What an operator has to know, once: the next session has another id.
    pub(crate) fn ended(&mut self, end: End, lasted: Duration) -> Option<&'static str> {
        let short = self.short.as_mut()?;
        *short += u32::from(end == End::ByServer && lasted < SHORT);
        if end != End::TakenOver && *short < SHORT_MAX {
            return None;
        }
        *short = 0;
        self.text = with(&self.name, &random_text());
        let is_first = !std::mem::replace(&mut self.was_replaced, true);
        is_first.then_some(match end {
            End::TakenOver => {
                "another process has the client id of this edge node, as after a copy of its state directory; this one continues with another id, so that both are received and one of them ends"
            }
            End::ByServer | End::Other => {
                "the server ended two sessions of this edge node soon after they began: another process may have its client id, as after a copy of its state directory; this one continues with another id, so that both are received and one of them ends"
            }
        })
    }
}

/// A number that two processes do not share.
pub(crate) fn random() -> u64 {
    u64::from_ne_bytes(random_bytes())
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // It fails only where the system has no randomness at all, and then nothing of TLS works either.
    aws_lc_rs::rand::fill(&mut bytes).expect("the system yields random numbers");
    bytes
}

fn random_text() -> String {
    random_bytes::<RANDOM_BYTES>().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_random_text(text: &str) -> bool {
    text.len() == 2 * RANDOM_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What is kept in a file; made if there is nothing of use.
fn kept_beside(path: &Path) -> Result<String, BdSeqError> {
    let failed = |step| move |source| BdSeqError::Io { step, path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) if is_random_text(text.trim()) => return Ok(text.trim().to_owned()),
        Ok(_) => fs::remove_file(path).map_err(failed("replace"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed("read")(source)),
    }
    let random = random_text();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed("create the directory of"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed("create"))?;
    file.write_all(format!("{random}\n").as_bytes()).map_err(failed("write"))?;
    Ok(random)
}

/// Names that are too long are cut; the random part keeps them apart.
fn with(name: &str, random: &str) -> String {
    // Only ASCII is in it, so every index is a boundary.
    let name = &name[..name.len().min(CLIENT_ID_BYTES_MAX - 1 - random.len())];
    format!("{name}.{random}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn kept(prefix: &str, node: &EdgeNodeDescriptor, store: &BdSeqStore) -> String {
        of_edge_node(prefix, node, store, true).unwrap().text
    }

    fn of_a_host(host: Option<&HostId>) -> String {
        of_host("p", host).text
    }

    #[test]
    fn ids_are_readable_free_of_slashes_and_end_with_what_no_client_guesses() {
        let node = EdgeNodeDescriptor::parse("ACME-Plant 1", "Sync\\..").unwrap();
        let id = kept("sparkfleet", &node, &BdSeqStore::Memory);
        let random = id.strip_prefix("sparkfleet.ACME-Plant=201.Sync=5c=2e=2e.").unwrap();
        assert!(is_random_text(random), "{id}");
        assert_ne!(kept("sparkfleet", &node, &BdSeqStore::Memory), id);
        let host = HostId::new("H1").unwrap();
        assert!(of_a_host(Some(&host)).starts_with("p.host.H1."));
        assert_ne!(of_a_host(Some(&host)), of_a_host(Some(&host)));
        assert_ne!(of_a_host(None), of_a_host(None));
    }

    #[test]
    fn an_edge_node_keeps_its_id_where_only_it_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let node = EdgeNodeDescriptor::parse("g", "e").unwrap();
        let store = BdSeqStore::in_directory(&directory.path().join("state"), &node);
        let id = || kept("p", &node, &store);
        let first = id();
        assert_eq!(id(), first);
        let file = directory.path().join("state/g.e.client_id");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "short").unwrap();
        assert_ne!(id(), first, "what is damaged is made again");
        assert_eq!(id().len(), first.len());
    }

    #[test]
    fn long_ids_are_cut_and_still_differ() {
        let node = EdgeNodeDescriptor::parse(&"ü".repeat(100), "a").unwrap();
        let long = || kept("p", &node, &BdSeqStore::Memory);
        assert_eq!(long().len(), CLIENT_ID_BYTES_MAX);
        assert_ne!(long(), long());
    }

    const MOMENT: Duration = Duration::from_secs(1);

    /// An id that changes, and the file that keeps it.
    fn on_disk() -> (tempfile::TempDir, BdSeqStore, EdgeNodeDescriptor, ClientId) {
        let directory = tempfile::tempdir().unwrap();
        let node = EdgeNodeDescriptor::parse("g", "e").unwrap();
        let store = BdSeqStore::in_directory(directory.path(), &node);
        let id = of_edge_node("p", &node, &store, true).unwrap();
        (directory, store, node, id)
    }

    #[test]
    fn an_id_that_was_taken_over_is_replaced_in_this_process_alone_and_that_is_said_once() {
        let (_directory, store, node, mut id) = on_disk();
        let first = id.text.clone();
        assert!(
            id.ended(End::TakenOver, Duration::from_secs(3600)).unwrap().contains("another process has the client id")
        );
        let second = id.text.clone();
        assert!(is_random_text(second.strip_prefix("p.g.e.").unwrap()), "{second}");
        assert_ne!(second, first);
        assert_eq!(kept("p", &node, &store), first, "the file keeps it for the process that continues");
        assert_eq!(id.ended(End::TakenOver, MOMENT), None);
        assert!(id.text != second && id.text != first, "{}", id.text);
    }

    #[test]
    fn an_id_is_replaced_after_two_sessions_that_the_server_ended_soon_and_after_no_others() {
        let (.., mut id) = on_disk();
        let first = id.text.clone();
        for (end, lasted) in
            [(End::ByServer, SHORT), (End::Other, MOMENT), (End::ByServer, MOMENT), (End::Other, MOMENT)]
        {
            assert_eq!(id.ended(end, lasted), None);
            assert_eq!(id.text, first, "{end:?} {lasted:?}");
        }
        // A long session between two short ones changes nothing: the other process ends, and is started again after its back-off.
        assert_eq!(id.ended(End::ByServer, Duration::from_secs(3600)), None);
        assert_eq!(id.text, first);
        assert!(id.ended(End::ByServer, MOMENT).unwrap().contains("another process may have its client id"));
        let second = id.text.clone();
        assert_ne!(second, first);
        assert_eq!(id.ended(End::ByServer, MOMENT), None);
        assert_eq!(id.text, second, "counted from the start again");
        assert_eq!(id.ended(End::ByServer, MOMENT), None, "said once");
        assert_ne!(id.text, second);
    }

    #[test]
    fn hosts_and_nodes_without_a_speaker_keep_their_ids() {
        let node = EdgeNodeDescriptor::parse("g", "e").unwrap();
        let silent = of_edge_node("p", &node, &BdSeqStore::Memory, false).unwrap();
        for mut id in [silent, of_host("p", None)] {
            let first = id.text.clone();
            for end in [End::TakenOver, End::ByServer, End::ByServer] {
                assert_eq!(id.ended(end, MOMENT), None);
            }
            assert_eq!(id.text, first);
        }
    }
}
