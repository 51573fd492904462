//! Writes to ConfigDB: at most one for a cluster at a time, and pauses that grow while one is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_contract::{Change, WriteRequest, Writer, WriterConfig, WriterOutput};
use sparkplug::backoff::Backoff;
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

/// What comes of writes.
#[derive(Debug)]
pub(crate) enum Output {
    /// To be sent.
    Send(HostRequest),
    /// The write of that cluster has ended.
    Ended(Uuid),
}

/// The write of one cluster, or the pause after one that was refused.
#[derive(Debug)]
struct Write {
    /// Id of the request; None: it has ended.
    id: Option<String>,
    backoff: Backoff,
    /// `Now::mono` until which nothing is written.
    until: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Writes {
    node: EdgeNodeDescriptor,
    seed: u64,
    retry: (Duration, Duration),
    writer: Writer,
    /// Makes ids differ between two processes.
    instance: String,
    made: u64,
    by_cluster: BTreeMap<Uuid, Write>,
    by_id: BTreeMap<String, Uuid>,
}

impl Writes {
    /// To the ConfigDB that is that node.
    pub(crate) fn new(node: EdgeNodeDescriptor, retry: (Duration, Duration), seed: u64, now: Now) -> Self {
        Self {
            writer: Writer::new(WriterConfig::new(node.clone()), seed),
            node,
            seed,
            retry,
            instance: format!("identity-{}-{seed:016x}", now.wall),
            made: 0,
            by_cluster: BTreeMap::new(),
            by_id: BTreeMap::new(),
        }
    }

    /// Another ConfigDB answers: what was asked of the other one is not meant for this one.
    pub(crate) fn start_again(&mut self) {
        self.writer = Writer::new(WriterConfig::new(self.node.clone()), self.seed);
        self.by_cluster.clear();
        self.by_id.clear();
    }

    /// Nothing of the cluster is being written, and no pause lasts.
    pub(crate) fn may_write(&self, uuid: Uuid, now: Now) -> bool {
        let write = self.by_cluster.get(&uuid);
        write.is_none_or(|write| write.id.is_none() && write.until.is_none_or(|until| until <= now.mono))
    }

    /// Sends a write of a cluster, and again until it is answered.
    pub(crate) fn submit(&mut self, uuid: Uuid, write: WriteRequest, now: Now) {
        self.made += 1;
        let id = format!("{}-{}", self.instance, self.made);
        let write = WriteRequest { id: id.clone(), ..write }.by(identity_contract::names::SERVICE);
        let seed = (self.seed ^ uuid.as_u64_pair().1).rotate_left(1);
        let retry = self.retry;
        let own = self.by_cluster.entry(uuid).or_insert_with(|| Write {
            id: None,
            backoff: Backoff::new(retry, seed),
            until: None,
        });
        match self.writer.submit(write, now) {
            Ok(()) => {
                own.id = Some(id.clone());
                own.until = None;
                self.by_id.insert(id, uuid);
            }
            // Too many wait already.
            Err(error) => {
                tracing::debug!(cluster_id = %uuid, error = %error, "a write waits");
                own.until = Some(now.mono + own.backoff.next_delay());
            }
        }
    }

    /// Takes over what ConfigDB has changed or answered.
    pub(crate) fn on_change(&mut self, change: &Change, now: Now) {
        self.writer.on_change(change, now);
    }

    /// It may be time to send again. Says for which clusters a pause is over.
    pub(crate) fn on_deadline(&mut self, now: Now) -> Vec<Uuid> {
        self.writer.handle_timeout(now);
        let mut over = Vec::new();
        for (uuid, write) in &mut self.by_cluster {
            if write.until.is_some_and(|until| until <= now.mono) {
                write.until = None;
                over.push(*uuid);
            }
        }
        over
    }

    /// `Now::mono` at which there is something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let pauses = self.by_cluster.values().filter_map(|write| write.until);
        self.writer.next_deadline().into_iter().chain(pauses).min()
    }

    /// What comes of the writes, in order.
    pub(crate) fn poll(&mut self, now: Now) -> Option<Output> {
        loop {
            let (id, refusal) = match self.writer.poll_output()? {
                WriterOutput::Send(request) => return Some(Output::Send(request)),
                WriterOutput::Answered(result) => {
                    let reason = || result.reason.clone().unwrap_or_else(|| "no reason given".to_owned());
                    let refusal = (!result.is_applied()).then(reason);
                    (result.id, refusal)
                }
                WriterOutput::GaveUp { id, attempts, .. } => {
                    (id, Some(format!("ConfigDB did not answer {attempts} requests")))
                }
            };
            let Some(uuid) = self.by_id.remove(&id) else { continue };
            if let (Some(reason), Some(write)) = (refusal, self.by_cluster.get_mut(&uuid)) {
                tracing::warn!(cluster_id = %uuid, reason, "ConfigDB refused the record of a cluster's identities");
                write.id = None;
                write.until = Some(now.mono + write.backoff.next_delay());
            } else {
                self.by_cluster.remove(&uuid);
            }
            return Some(Output::Ended(uuid));
        }
    }
}
