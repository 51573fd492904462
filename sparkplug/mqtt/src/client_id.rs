//! MQTT client ids. A server ends the earlier session with a client id, so an id that others can guess lets them end the session: each ends with 128 random bits.
//!
//! An Edge Node has the same id after a restart, so that a half-open old session of it is taken over and its will comes before the next birth: the bits are kept beside the bdSeq,
//! mode 0600. A Host Application has the same id as long as its process lives. Ids are harmless everywhere: some servers refuse `/` and other characters of paths.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sparkplug::{EdgeNodeDescriptor, HostId};

use crate::bd_seq::{BdSeqError, BdSeqStore};
use crate::plain_name::plain_name;

/// Longest id that is made. MQTT 3.1.1 promises only 23; every server in use takes this.
const CLIENT_ID_BYTES_MAX: usize = 120;

/// Random bytes of an id.
const RANDOM_BYTES: usize = 16;

/// `<prefix>.<group>.<edge node>.<random>`. Blocks on the disk.
///
/// # Errors
/// The random part cannot be kept where the bdSeq is.
pub(crate) fn of_edge_node(prefix: &str, node: &EdgeNodeDescriptor, kept: &BdSeqStore) -> Result<String, BdSeqError> {
    let random = match kept {
        BdSeqStore::Memory => random_text(),
        BdSeqStore::File(path) => kept_beside(&path.with_extension("client_id"))?,
    };
    let name = format!("{prefix}.{}.{}", plain_name(node.group.as_str()), plain_name(node.edge_node.as_str()));
    Ok(with(name, &random))
}

/// `<prefix>.host.<host id>.<random>`, or `<prefix>.listener.<random>`.
pub(crate) fn of_host(prefix: &str, host: Option<&HostId>) -> String {
    let name = match host {
        Some(host) => format!("{prefix}.host.{}", plain_name(host.as_str())),
        None => format!("{prefix}.listener"),
    };
    with(name, &random_text())
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
fn with(mut name: String, random: &str) -> String {
    // Only ASCII is in it, so every index is a boundary.
    name.truncate(CLIENT_ID_BYTES_MAX - 1 - random.len());
    format!("{name}.{random}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn ids_are_readable_free_of_slashes_and_end_with_what_no_client_guesses() {
        let node = EdgeNodeDescriptor::parse("ACME-Plant 1", "Sync\\..").unwrap();
        let id = of_edge_node("sparkfleet", &node, &BdSeqStore::Memory).unwrap();
        let random = id.strip_prefix("sparkfleet.ACME-Plant=201.Sync=5c=2e=2e.").unwrap();
        assert!(is_random_text(random), "{id}");
        assert_ne!(of_edge_node("sparkfleet", &node, &BdSeqStore::Memory).unwrap(), id);
        let host = HostId::new("H1").unwrap();
        assert!(of_host("p", Some(&host)).starts_with("p.host.H1."));
        assert_ne!(of_host("p", Some(&host)), of_host("p", Some(&host)));
        assert_ne!(of_host("p", None), of_host("p", None));
    }

    #[test]
    fn an_edge_node_keeps_its_id_where_only_it_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let node = EdgeNodeDescriptor::parse("g", "e").unwrap();
        let store = BdSeqStore::in_directory(&directory.path().join("state"), &node);
        let id = || of_edge_node("p", &node, &store).unwrap();
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
        let long = || of_edge_node("p", &node, &BdSeqStore::Memory).unwrap();
        assert_eq!(long().len(), CLIENT_ID_BYTES_MAX);
        assert_ne!(long(), long());
    }
}
