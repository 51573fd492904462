//! Repositories of which another process has copies: which refs one shall have, the objects that it lacks as a pack, and pushes that were received there.
//!
//! Git's object names are digests of what they name, so a ref and a pack say all about a state of a repository. This module must not know how they travel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use axum::body::{Body, Bytes};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client;
use crate::gatekeeper::Gatekeeper;
use crate::pkt_line;
use crate::places::Permit;
use crate::pulls::{LOCAL_MAX, chain};
use crate::push::{Allowed, Receiver};
use crate::repositories::{self, Refs};

/// Most bytes of a pack that is made.
pub const PACK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What git calls a ref's object where there is none.
pub const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// A pack without objects: its header, and the SHA-1 of that.
const EMPTY_PACK: &[u8; 32] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";

/// Refs that clients see.
const SERVED: [&str; 2] = ["refs/heads/", "refs/tags/"];

/// A pack in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// SHA-256 of the file, hexadecimal.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
}

/// How a push ended that was received at a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushOutcome {
    /// All its refs are where it wants them.
    Accepted,
    /// None of its refs has moved; why, for the user who pushed.
    Refused(String),
}

/// What a push changes: each ref with its object before and after, [`NO_OBJECT`] for none.
pub type RefChanges = BTreeMap<String, (String, String)>;

/// The branches and tags of the repository in `directory`, each with its object, hexadecimal; of an annotated tag that of the tag. Blocks.
///
/// # Errors
/// What is wrong with the repository, for people.
pub fn refs(directory: &Path) -> Result<Refs, String> {
    repositories::refs(directory, &SERVED).map_err(|error| chain(&error))
}

/// Packs into file `into` what a copy needs that shall have these refs and has all that is reachable from `has`, as far as `has` is known here. None: it lacks nothing.
///
/// # Errors
/// What git says, for people; the pack would be larger than [`PACK_BYTES_MAX`], or takes longer than `limit`.
pub async fn pack(
    directory: &Path,
    refs: &BTreeMap<String, String>,
    has: &BTreeSet<String>,
    into: &Path,
    limit: Duration,
) -> Result<Option<Packed>, String> {
    let known = known(directory, has).await?;
    let mut wanted: String = refs.values().collect::<BTreeSet<_>>().into_iter().map(|id| format!("{id}\n")).collect();
    for object in known {
        let _ = writeln!(wanted, "^{object}");
    }
    let packed = tokio::time::timeout(limit, write_pack(directory, &wanted, into)).await;
    let packed = packed.map_err(|_| format!("packing took longer than {} s", limit.as_secs()))??;
    Ok((packed.bytes > EMPTY_PACK.len() as u64).then_some(packed))
}

/// Of these objects the commits and tags that are in the repository.
async fn known(directory: &Path, objects: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let asked: String = objects.iter().filter(|id| is_object(id)).map(|id| format!("{id}\n")).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let arguments = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
    let listed = client::run(directory, None, &arguments, &asked, LOCAL_MAX).await.map_err(|error| chain(&error))?;
    let of_type = |line: &str| match line.split_once(' ') {
        Some((object, "commit" | "tag")) => Some(object.to_owned()),
        _ => None,
    };
    Ok(listed.lines().filter_map(of_type).collect())
}

async fn write_pack(directory: &Path, wanted: &str, into: &Path) -> Result<Packed, String> {
    let failed = |error: std::io::Error| format!("a pack cannot be made: {error}");
    let mut command = client::command(directory, None);
    // The receiver has what a delta is against, because it said so.
    command.args(["pack-objects", "--quiet", "--revs", "--thin", "--delta-base-offset", "--stdout"]);
    let mut child = command.spawn().map_err(failed)?;
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("git has no input or output".to_owned());
    };
    let feed = async move {
        // A child that has refused does not read the rest.
        let _ = stdin.write_all(wanted.as_bytes()).await;
    };
    let keep = async {
        let mut file = File::create(into).await?;
        let (mut context, mut bytes) = (Context::new(&SHA256), 0_u64);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = stdout.read(&mut buffer).await?;
            if length == 0 {
                break;
            }
            bytes += length as u64;
            if bytes > PACK_BYTES_MAX {
                return Err(std::io::Error::other(format!("it has more than {} MiB", PACK_BYTES_MAX >> 20)));
            }
            context.update(&buffer[..length]);
            file.write_all(&buffer[..length]).await?;
        }
        file.flush().await?;
        Ok(Packed { digest: hex::encode(context.finish().as_ref()), bytes })
    };
    let complaint = async {
        let mut text = Vec::new();
        let _ = (&mut stderr).take(client::OUTPUT_BYTES_MAX).read_to_end(&mut text).await;
        text
    };
    // Where the file cannot be written, the child is ended by dropping it.
    let ((), packed, complaint) = tokio::join!(feed, keep, complaint);
    let packed = packed.map_err(failed)?;
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        let complaint = client::complaint(&String::from_utf8_lossy(&complaint), None);
        return Err(format!("git pack-objects ended with {status}: {complaint}"));
    }
    Ok(packed)
}

/// Takes a push over that was received at a copy; `pack` is empty where no object is new. The receiver is the same as for a push that comes over HTTP. The pack goes into a
/// quarantine, the same hook judges it, and all refs move or none does. One whose refs are there already was taken over before.
///
/// # Errors
/// Git does not work here; for the log.
pub async fn take<G: Gatekeeper>(
    receiver: Receiver<G>,
    allowed: Allowed,
    changes: &RefChanges,
    pack: Bytes,
    place: Permit,
) -> Result<PushOutcome, String> {
    if let Err(rule) = check(changes) {
        return Ok(PushOutcome::Refused(rule.to_owned()));
    }
    if is_taken(&allowed.repository.directory, changes).await? {
        return Ok(PushOutcome::Accepted);
    }
    let head = Bytes::from(request(changes));
    // Where refs are only deleted, no pack follows; else one does, also if nothing is new.
    let pack = match changes.values().any(|(_, after)| after != NO_OBJECT) {
        true if pack.is_empty() => Bytes::from_static(EMPTY_PACK),
        true => pack,
        false => Bytes::new(),
    };
    let body = Body::from_stream(futures::stream::iter([Ok::<_, std::convert::Infallible>(head), Ok(pack)]));
    let answer = receiver.receive(allowed, body, place).await?;
    Ok(outcome(&answer))
}

/// Whether the repository in `directory` has each ref where a push wants it, so that there is nothing left to do.
///
/// # Errors
/// What is wrong with the repository, for people.
pub async fn is_taken(directory: &Path, changes: &RefChanges) -> Result<bool, String> {
    let directory = directory.to_owned();
    let now = tokio::task::spawn_blocking(move || refs(&directory)).await.map_err(|error| error.to_string())??;
    let is_there = |(name, (_, after)): (&String, &(String, String))| {
        now.get(name).map_or(NO_OBJECT, String::as_str) == after.as_str()
    };
    Ok(!changes.is_empty() && changes.iter().all(is_there))
}

/// Lines of git's protocol are made of them, so nothing else may be in them.
fn check(changes: &RefChanges) -> Result<(), &'static str> {
    if changes.is_empty() {
        return Err("the push changes nothing");
    }
    let is_ref = |name: &str| {
        name.starts_with("refs/") && name.len() <= 1024 && !name.contains(|c: char| c.is_control() || c == ' ')
    };
    if changes.keys().all(|name| is_ref(name))
        && changes.values().all(|(before, after)| is_object(before) && is_object(after) && before != after)
    {
        Ok(())
    } else {
        Err("the push names something that is not a change of a ref")
    }
}

fn is_object(id: &str) -> bool {
    id.len() == NO_OBJECT.len() && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What a client of git's protocol sends before the pack.
fn request(changes: &RefChanges) -> Vec<u8> {
    let mut request = Vec::new();
    for (index, (name, (before, after))) in changes.iter().enumerate() {
        let capabilities = if index == 0 { "\0report-status side-band-64k atomic object-format=sha1" } else { "" };
        pkt_line::push(&mut request, format!("{before} {after} {name}{capabilities}\n").as_bytes());
    }
    request.extend(b"0000");
    request
}

/// What git's answer to a push says.
fn outcome(answer: &[u8]) -> PushOutcome {
    let (mut report, mut said) = (Vec::new(), Vec::new());
    for line in lines(answer) {
        match line.split_first() {
            Some((1, data)) => report.extend(data),
            Some((2 | 3, data)) => said.extend(data),
            _ => {}
        }
    }
    let (mut unpacked, mut reasons) = (None, Vec::new());
    for line in lines(&report) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if let Some(result) = line.strip_prefix("unpack ") {
            unpacked = Some(result == "ok");
            if result != "ok" {
                reasons.push(format!("the objects cannot be taken ({result})"));
            }
        } else if let Some(refused) = line.strip_prefix("ng ") {
            reasons.push(refused.to_owned());
        }
    }
    if unpacked == Some(true) && reasons.is_empty() {
        return PushOutcome::Accepted;
    }
    let said = client::complaint(&String::from_utf8_lossy(&said), None);
    let reasons = client::complaint(&reasons.join("; "), None);
    // What the hook says is for the user; that it refused says git of each ref.
    let reason = if said.is_empty() { reasons } else { said };
    PushOutcome::Refused(if reason.is_empty() { "git gave no reason".to_owned() } else { reason })
}

/// The contents of git's lines, as far as they are such.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    pkt_line::lines(bytes).map_while(Result::ok).flatten()
}

#[cfg(test)]
mod tests;
