//! After the ticket: the host locks itself to the cluster, shows it, and reports its progress.

use std::sync::Arc;

use super::settings::HostSettings;
use crate::limits::{RESULT_BYTES_MAX, SECOND_QUOTE_BYTES_MAX};
use crate::message::acknowledgement::{Acknowledgement, Authenticated, Progress, Stage};
use crate::message::grant::Grant;
use crate::message::renewal::Renewal;
use crate::message::{Fields, WireError};
use crate::refusal::detail_that_fits;
use crate::result::seal_result;
use crate::secret::{Entropy, Secret, cluster_id};
use crate::selection::Selection;
use crate::terms::{RequestId, Suite};
use crate::transcript::{self, Hash};

/// A ticket is opened; the host has to lock itself to the cluster.
#[derive(Debug)]
pub struct Opened {
    pub(super) settings: Arc<HostSettings>,
    pub(super) request: RequestId,
    pub(super) suite: Suite,
    pub(super) selection: Selection,
    pub(super) grant: Grant,
    pub(super) member: Member,
}

/// The host is locked to the cluster.
#[derive(Debug)]
pub struct Committed {
    grant: Grant,
    member: Member,
    acknowledgement: Vec<u8>,
}

/// A member has other certificates.
#[derive(Debug)]
pub struct Renewed {
    pub(super) renewal: Renewal,
    pub(super) member: Member,
}

/// What a host with a ticket signs its progress with.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) request: RequestId,
    pub(super) acknowledgement_key: Secret,
    pub(super) th4: Hash,
}

impl Opened {
    /// What the host received.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// What the lock PCR is to be extended with.
    #[must_use]
    pub fn cluster_id(&self) -> Hash {
        cluster_id(&self.grant.measurement_secret, &self.grant.measurement_salt)
    }

    /// What the TPM has to quote over after the lock.
    #[must_use]
    pub fn qualifying_data(&self) -> Hash {
        transcript::second_qualifying_data(&self.member.th4)
    }

    /// Which PCRs it has to quote: those of the first quote.
    #[must_use]
    pub const fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Takes the second quote. `result`: of an init only, what goes back to the administrator.
    ///
    /// # Errors
    /// Quote or result is too large, or there is a result without a key for it.
    pub fn on_locked(self, quote: Vec<u8>, result: Option<&[u8]>, entropy: &Entropy) -> Result<Committed, WireError> {
        let fields = Fields("acknowledgement");
        fields.some("quote", &quote, SECOND_QUOTE_BYTES_MAX)?;
        let Self { settings, request, suite, grant, member, .. } = self;
        let (encapsulated_key, ciphertext) = match (result, &grant.setup) {
            (None, _) => Default::default(),
            (Some(_), None) => return Err(fields.error("result", "belongs to an init only")),
            (Some(result), Some(setup)) => {
                fields.at_most("result", result, RESULT_BYTES_MAX)?;
                let about = (&settings.address, request, &member.th4);
                let sealed = seal_result(suite, &setup.result_key, result, about, entropy.secret("result"))
                    .map_err(|_| fields.error("result_key", "cannot be sealed to"))?;
                (sealed.encapsulated_key, sealed.ciphertext)
            }
        };
        let body = Acknowledgement { request, quote, encapsulated_key, ciphertext }.encode();
        let mac = member.acknowledgement_key.mac(&transcript::acknowledgement_input(&member.th4, &body));
        Ok(Committed { grant, member, acknowledgement: Authenticated { body, mac }.encode() })
    }

    /// A progress message.
    #[must_use]
    pub fn progress(&self, sequence: u32, stage: Stage, detail: &str) -> Vec<u8> {
        self.member.progress(sequence, stage, detail)
    }
}

impl Renewed {
    /// What the host received.
    #[must_use]
    pub const fn renewal(&self) -> &Renewal {
        &self.renewal
    }

    /// A progress message.
    #[must_use]
    pub fn progress(&self, sequence: u32, stage: Stage, detail: &str) -> Vec<u8> {
        self.member.progress(sequence, stage, detail)
    }
}

impl Committed {
    /// What the host received.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The acknowledgement; a repeat is the same bytes.
    #[must_use]
    pub fn acknowledgement(&self) -> &[u8] {
        &self.acknowledgement
    }

    /// A progress message.
    #[must_use]
    pub fn progress(&self, sequence: u32, stage: Stage, detail: &str) -> Vec<u8> {
        self.member.progress(sequence, stage, detail)
    }
}

impl Member {
    fn progress(&self, sequence: u32, stage: Stage, detail: &str) -> Vec<u8> {
        let detail = detail_that_fits(detail);
        let body = Progress { request: self.request, sequence, stage, detail }.encode();
        let mac = self.acknowledgement_key.mac(&transcript::progress_input(&self.th4, &body));
        Authenticated { body, mac }.encode()
    }
}
