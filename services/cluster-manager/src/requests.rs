//! Requests to ConfigDB: their ids, and which cluster waits for the answer to each.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_contract::writer::SubmitError;
use configdb_contract::{Change, WriteRequest, Writer, WriterConfig, WriterOutput};
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    node: EdgeNodeDescriptor,
    seed: u64,
    writer: Writer,
    /// Makes ids differ between two processes.
    instance: String,
    made: u64,
    /// Cluster that waits for the answer to a request.
    clusters: BTreeMap<String, Uuid>,
}

/// What comes of requests.
#[derive(Debug)]
pub(crate) enum Output {
    /// To be sent.
    Send(HostRequest),
    /// The request with that id is answered.
    Answered {
        /// Of the request.
        id: String,
        /// Why it was refused, or given up; None: it is done.
        refusal: Option<String>,
    },
}

impl Requests {
    /// To the ConfigDB that is that node.
    pub(crate) fn new(node: EdgeNodeDescriptor, seed: u64, now: Now) -> Self {
        Self {
            writer: Writer::new(WriterConfig::new(node.clone()), seed),
            node,
            seed,
            instance: format!("cluster-manager-{}-{seed:016x}", now.wall),
            made: 0,
            clusters: BTreeMap::new(),
        }
    }

    /// Another ConfigDB answers: what was asked of the other one is not meant for this one.
    pub(crate) fn start_again(&mut self) {
        self.writer = Writer::new(WriterConfig::new(self.node.clone()), self.seed);
    }

    /// No cluster waits for an answer.
    pub(crate) fn forget_clusters(&mut self) {
        self.clusters.clear();
    }

    /// Id of a request that no other one has.
    pub(crate) fn next_id(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.instance, self.made)
    }

    /// Sends a request, and again until it is answered.
    ///
    /// # Errors
    /// [`SubmitError`]; the request was not taken then.
    pub(crate) fn submit(&mut self, write: WriteRequest, now: Now) -> Result<(), SubmitError> {
        self.writer.submit(write, now)
    }

    /// A cluster waits for the answer to a request.
    pub(crate) fn expect(&mut self, id: String, cluster: Uuid) {
        self.clusters.insert(id, cluster);
    }

    /// The cluster that waited for the answer to a request.
    pub(crate) fn cluster_of(&mut self, id: &str) -> Option<Uuid> {
        self.clusters.remove(id)
    }

    /// Takes over what ConfigDB has changed or answered.
    pub(crate) fn on_change(&mut self, change: &Change, now: Now) {
        self.writer.on_change(change, now);
    }

    /// It may be time to send again.
    pub(crate) fn on_deadline(&mut self, now: Now) {
        self.writer.handle_timeout(now);
    }

    /// `Now::mono` at which there is something to send again.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.writer.next_deadline()
    }

    /// What comes of the requests, in order.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        Some(match self.writer.poll_output()? {
            WriterOutput::Send(request) => Output::Send(request),
            WriterOutput::Answered(result) => {
                let refusal = (!result.is_applied()).then(|| {
                    let reason = result.reason.unwrap_or_else(|| "no reason given".to_owned());
                    match result.field {
                        Some(field) => format!("ConfigDB refused {field}: {reason}"),
                        None => format!("ConfigDB refused a step: {reason}"),
                    }
                });
                Output::Answered { id: result.id, refusal }
            }
            WriterOutput::GaveUp { id, attempts, .. } => {
                Output::Answered { id, refusal: Some(format!("ConfigDB did not answer {attempts} requests")) }
            }
        })
    }
}
