//! Hello and evidence: from a message to a challenge, a refusal, or the writes that come before a ticket.

use join_attestation::{EkHash, ek_hash};
use join_protocol::issuer::{Claim, EvidenceAnswer, HelloAnswer, Phase, Recipient, Record, Rejected, Verified, claim};
use join_protocol::message::evidence::Evidence;
use join_protocol::message::hello::Hello;
use join_protocol::message::ticket::TicketPayload;
use join_protocol::metrics::IssuerMessage;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::terms::{Address, Kind, Role};
use join_protocol::transcript::Hash;
use join_service_contract::HostState;
use join_tickets::kubeadm::BootstrapToken;
use service_runtime::Effects;
use sparkplug::Now;

use super::seen::Seen;
use super::{Admitting, State, WORK_MAX, Work, to_host};
use crate::document::{Binding, ControlPlaneLease, HostRecord, Key, Request, to_text};
use crate::event::{NewToken, Operation, Version};
use crate::identity::{self, Admission};
use crate::issue::{Issuing, needs_token, token_group};
use crate::limits::{BUSY_RETRY_MS, HostClass, Permit, Source};
use crate::reconcile::Ending;

/// How long a replica may take to make a ticket before it is made again, ms. Longer than any request to Kubernetes takes.
const CLAIM_MS: u64 = 60_000;

impl State {
    pub(super) fn on_hello(&mut self, address: &Address, hello: &[u8], now: Now) {
        let (source, class) = match Hello::decode(hello) {
            Ok(hello) => self.named(&hello),
            Err(_) => (Source::Unreadable, HostClass::Stranger),
        };
        if !self.limits.host(source, class, now.mono) {
            return self.counters.ignore("rate");
        }
        match self.limits.hello(class, now.mono) {
            Permit::Granted => {}
            Permit::Busy => {
                if let Ok(refused) = self.issuer.refuse_busy(hello, BUSY_RETRY_MS) {
                    self.counters.refusal(refused.refusal.code.name());
                    self.send(address, &IssuerMessage::ClearRefusal(refused.message));
                }
                return;
            }
            Permit::Drop => return self.counters.ignore("rate"),
        }
        let entropy = self.draw_entropy();
        match self.issuer.on_hello(address, hello, now.wall, entropy, self.policy.verifier()) {
            HelloAnswer::Challenge { message, .. } => self.send(address, &IssuerMessage::Challenge(message)),
            HelloAnswer::Refused(refused) => {
                self.counters.refusal(refused.refusal.code.name());
                self.send(address, &IssuerMessage::ClearRefusal(refused.message));
            }
            HelloAnswer::Ignored(ignored) => self.counters.ignore(ignored.name()),
        }
    }

    /// In whose name a hello is.
    fn named(&self, hello: &Hello) -> (Source, HostClass) {
        let variant = self.issuer.policy().variants.iter().find(|variant| hello.variants.contains(variant));
        let keys = variant.map(|variant| hello.keys(*variant));
        keys.and_then(|keys| ek_hash(&keys).ok())
            .map_or((Source::Unreadable, HostClass::Stranger), |ek| self.source(ek))
    }

    fn source(&self, ek: EkHash) -> (Source, HostClass) {
        let policy = self.policy.verifier().policy();
        let is_known = policy.enrolment(&ek).is_some() || self.cache.host(&ek).is_some();
        let class = if is_known && !policy.is_revoked(&ek) { HostClass::Known } else { HostClass::Stranger };
        (Source::Named(ek), class)
    }

    pub(super) fn on_evidence(&mut self, address: &Address, message: &[u8], now: Now) {
        let Ok(Evidence { request: id, .. }) = Evidence::decode(message) else {
            return self.counters.ignore("malformed");
        };
        let known = self.cache.request(id).map(|entry| &entry.is);
        // An answer that exists is sent again as it is, to the host that it is for.
        if let Some(known) = known.filter(|known| known.record.address == *address)
            && let Some(ticket) = known.record.answer_to(message)
        {
            let ticket = IssuerMessage::Ticket(ticket.to_vec());
            if !self.limits.host(Source::Member(known.ek), HostClass::Known, now.mono) {
                return self.counters.ignore("rate");
            }
            self.totals.resent += 1;
            return self.send(address, &ticket);
        }
        if self.busy.contains(&id) || self.busy.len() >= WORK_MAX {
            return self.counters.ignore("waiting");
        }
        let (source, class) = match self.issuer.recognise(address, message) {
            Ok(recognised) => {
                let ek = ek_hash(&recognised.keys());
                ek.map_or((Source::Unreadable, HostClass::Stranger), |ek| self.source(ek))
            }
            Err(ignored) => return self.counters.ignore(ignored.name()),
        };
        if !self.limits.host(source, class, now.mono) || !self.limits.evidence(class, now.mono) {
            return self.counters.ignore("rate");
        }
        match self.issuer.on_evidence(address, message, now.wall, self.policy.verifier()) {
            EvidenceAnswer::Verified(verified) => {
                self.counters.request(verified.recipient().hello().kind.name());
                self.on_verified(verified, now);
            }
            EvidenceAnswer::Rejected(rejected) => {
                self.counters.request(rejected.recipient().hello().kind.name());
                self.on_rejected(&rejected, now);
            }
            EvidenceAnswer::Refused(refused) => {
                self.counters.refusal(refused.refusal.code.name());
                self.send(address, &IssuerMessage::ClearRefusal(refused.message));
            }
            EvidenceAnswer::Ignored(ignored) => self.counters.ignore(ignored.name()),
        }
    }

    fn on_rejected(&mut self, rejected: &Rejected, now: Now) {
        let refusal = match rejected.refusal.code {
            // The host owns its TPM and could join, if an operator enrolled it.
            RefusalCode::EndorsementUnknown => {
                let detail = format!("an operator has to approve this host: {}", rejected.refusal.detail);
                Refusal::new(RefusalCode::ApprovalPending, detail)
            }
            _ => rejected.refusal.clone(),
        };
        let name = rejected.body.as_ref().map(|body| body.node_name.clone()).unwrap_or_default();
        self.refuse(rejected.recipient(), refusal, name, rejected.pcrs.as_deref(), now);
    }

    pub(super) fn refuse_verified(&mut self, verified: &Verified, refusal: Refusal, now: Now) {
        let name = verified.body().node_name.clone();
        self.refuse(verified.recipient(), refusal, name, Some(&verified.claims().pcrs), now);
    }

    /// Refuses under seal, and remembers for people.
    fn refuse(
        &mut self,
        recipient: &Recipient,
        refusal: Refusal,
        name: String,
        pcrs: Option<&[(u32, Hash)]>,
        now: Now,
    ) {
        let hello = recipient.hello();
        self.counters.refusal(refusal.code.name());
        tracing::info!(disk = %hello.disk, kind = %hello.kind, %refusal, "host refused");
        if let Ok(ek) = ek_hash(&recipient.keys()) {
            let seen = Seen {
                disk: hello.disk,
                name,
                role: hello.role.name(),
                variant: recipient.variant().name(),
                kind: hello.kind,
                verdict: refusal.code,
                detail: refusal.detail.clone(),
                pcrs: pcrs.map(pcrs_json),
                policy_revision: self.policy.desired().map_or(0, |desired| desired.revision),
                first_seen: now.wall,
                last_seen: now.wall,
            };
            self.seen.note(ek, seen);
        }
        match self.issuer.refuse(recipient, refusal) {
            Ok(answer) => self.send(recipient.address(), &IssuerMessage::Ticket(answer.message)),
            Err(error) => tracing::warn!(disk = %hello.disk, %error, "refusal not sealed"),
        }
    }

    fn on_verified(&mut self, verified: Box<Verified>, now: Now) {
        let policy = self.policy.verifier().policy();
        let admission = match identity::admit(&verified, policy, &self.cache, &self.settings) {
            Ok(admission) => admission,
            Err(refusal) => return self.refuse_verified(&verified, refusal, now),
        };
        if let Some(refusal) = self.control_plane_busy(&verified, &admission, now) {
            return self.refuse_verified(&verified, refusal, now);
        }
        let id = verified.recipient().hello().request;
        let existing = self.cache.request(id);
        let record = match claim(
            existing.map(|entry| &entry.is.record),
            &verified,
            &self.settings.replica,
            now.wall,
            CLAIM_MS,
        ) {
            Claim::Create(record) | Claim::TakeOver(record) => record,
            Claim::Resend(ticket) => {
                let address = verified.recipient().address().clone();
                self.totals.resent += 1;
                return self.send(&address, &IssuerMessage::Ticket(ticket));
            }
            Claim::Wait { .. } => return self.counters.ignore("waiting"),
            Claim::Over => return self.counters.ignore("over"),
            Claim::Conflict => {
                tracing::warn!(request = %id, "one request with two kinds of evidence");
                let refusal = Refusal::new(RefusalCode::Superseded, "the request has other evidence already");
                return self.refuse_verified(&verified, refusal, now);
            }
        };
        let version = existing.map(|entry| entry.version.clone());
        let operations = self.admission_operations(record, version, &verified, &admission, now);
        self.busy.insert(id);
        self.run(Work::Admitting(Box::new(Admitting { verified, admission })), operations, Effects::new());
    }

    /// One control plane joins at a time, because two that become members of etcd at once can cost its quorum.
    fn control_plane_busy(&self, verified: &Verified, admission: &Admission, now: Now) -> Option<Refusal> {
        let hello = verified.recipient().hello();
        let wants = hello.kind == Kind::Join && hello.role == Role::ControlPlane;
        let lease = self.cache.control_plane().filter(|_| wants)?;
        // Its time may be over; but as long as its attempt has not been ended, it may still become a member.
        let holder =
            self.cache.requests().values().find(|entry| entry.is.record.request.to_string() == lease.is.request);
        let is_over = lease.is.until_ms < now.wall && !holder.is_some_and(|holder| holder.is.is_live());
        let is_free = is_over || lease.is.disk == admission.disk;
        (!is_free).then(|| {
            let wait_ms = lease.is.until_ms.saturating_sub(now.wall).min(60_000);
            let detail = format!("the host with disk {} is joining the control plane", lease.is.disk);
            Refusal::new(RefusalCode::ControlPlaneBusy, detail).retry_after_ms(wait_ms)
        })
    }

    /// The writes before a ticket: the claim, the lease of the control plane, whose disk and name they are, the host's record; and the end of an earlier attempt.
    fn admission_operations(
        &self,
        record: Record,
        version: Option<String>,
        verified: &Verified,
        admission: &Admission,
        now: Now,
    ) -> Vec<Operation> {
        let hello = verified.recipient().hello();
        let token = self.token(&record).map(|token| token.id().to_owned());
        let request = Request { record, ek: admission.ek, token, changed_ms: now.wall };
        let put = |key: Key, version: Option<String>, text: String| match version {
            None => Operation::Create { key, text },
            Some(version) => Operation::Replace { key, text, version: Version::Known(version) },
        };
        let mut operations = vec![put(Key::Request(hello.request), version, request.to_text())];
        if hello.kind == Kind::Join && hello.role == Role::ControlPlane {
            let lifetime_ms = u64::try_from(self.settings.control_plane_lifetime.as_millis()).unwrap_or(u64::MAX);
            let lease = ControlPlaneLease {
                request: hello.request.to_string(),
                disk: admission.disk,
                until_ms: now.wall.saturating_add(lifetime_ms),
            };
            let version = self.cache.version(&Key::ControlPlane).cloned();
            operations.push(put(Key::ControlPlane, version, to_text(&lease)));
        }
        let binding = to_text(&Binding { ek: admission.ek, since_ms: now.wall });
        if self.cache.disk_owner(admission.disk).is_none() {
            operations.push(Operation::Create { key: Key::Disk(admission.disk), text: binding.clone() });
        }
        if !admission.name.is_empty() && self.cache.name_owner(&admission.name).is_none() {
            operations.push(Operation::Create { key: Key::Name(admission.name.clone()), text: binding });
        }
        let key = Key::Host(admission.ek);
        let version = self.cache.host(&admission.ek).map(|entry| entry.version.clone());
        operations.push(put(key, version, to_text(&self.host_record(verified, admission, now))));
        operations.extend(self.supersede(&request, now));
        operations
    }

    fn host_record(&self, verified: &Verified, admission: &Admission, now: Now) -> HostRecord {
        let hello = verified.recipient().hello();
        let known = self.cache.host(&admission.ek).map(|entry| &entry.is);
        let claims = verified.claims();
        let is_rejoin = hello.kind != Kind::Join;
        // Its certificates name addresses.
        let is_certified = matches!(hello.kind, Kind::Join | Kind::Renew);
        let counters = claims.counters.map(|counters| (counters.resets, counters.restarts, counters.powered_ms));
        HostRecord {
            variant: verified.recipient().variant().name().to_owned(),
            disk: admission.disk,
            name: admission.name.clone(),
            role: match known.filter(|_| is_rejoin) {
                // Whatever its bootstrapper is configured for.
                _ if admission.is_first_member => Role::ControlPlane.name().to_owned(),
                Some(known) => known.role.clone(),
                None => hello.role.name().to_owned(),
            },
            addresses: known
                .filter(|_| !is_certified)
                .map_or_else(|| admission.addresses.clone(), |known| known.addresses.clone()),
            state: known
                .filter(|_| is_rejoin)
                .map_or_else(|| HostState::Admitted.to_string(), |known| known.state.clone()),
            bound: known.is_some_and(|known| known.bound),
            kind: hello.kind.name().to_owned(),
            request: Some(hello.request.to_string()),
            counters: counters.or_else(|| known.and_then(|known| known.counters)),
            policy_revision: self.policy.desired().map_or(0, |desired| desired.revision),
            pcrs: Some(pcrs_json(&claims.pcrs)),
            warnings: (!claims.warnings.is_empty()).then(|| claims.warnings.join("; ")),
            detail: None,
            stage: None,
            first_seen: known.map_or(now.wall, |known| known.first_seen),
            last_seen: now.wall,
        }
    }

    /// Ends the earlier attempt of the same host: its token is revoked before another is made.
    fn supersede(&self, request: &Request, now: Now) -> Vec<Operation> {
        let id = request.record.request;
        let earlier = self
            .cache
            .requests()
            .values()
            .filter(|entry| entry.is.ek == request.ek && entry.is.record.request != id && entry.is.is_live());
        let mut operations = Vec::new();
        for entry in earlier {
            operations.extend(entry.is.token.iter().map(|id| Operation::DeleteToken { id: id.clone() }));
            let mut done = entry.is.clone();
            (done.record.phase, done.changed_ms) = (Phase::Done, now.wall);
            operations.push(Operation::Replace {
                key: Key::Request(entry.is.record.request),
                text: done.to_text(),
                version: Version::Known(entry.version.clone()),
            });
        }
        operations
    }

    fn token(&self, record: &Record) -> Option<BootstrapToken> {
        let needs = needs_token(self.settings.distribution, record.kind, record.role);
        needs.then(|| self.keys.join_token(record.request, &record.evidence_hash)).flatten()
    }

    /// The claim is written: makes the ticket, and stores it before it is sent.
    pub(super) fn on_admitted(&mut self, admitting: Admitting, now: Now) {
        let Admitting { verified, admission } = admitting;
        let id = verified.recipient().hello().request;
        let Some(entry) = self.cache.request(id).cloned() else { return self.free(id, now) };
        let token = self.token(&entry.is.record);
        let grant = match self.grant(&verified, &admission, token.as_ref(), now) {
            Ok(grant) => grant,
            Err(reason) => {
                self.refuse_verified(&verified, Refusal::new(RefusalCode::IssuingFailed, reason), now);
                self.busy.remove(&id);
                return self.end(id, Ending::Failed, None, now);
            }
        };
        let entropy = self.draw_entropy();
        let sealed = match grant {
            TicketPayload::Grant(grant) => self.issuer.grant(&verified, *grant, entropy),
            TicketPayload::Renewal(renewal) => self.issuer.renew(&verified, renewal, entropy),
        };
        let answer = match sealed {
            Ok(answer) => answer,
            Err(error) => {
                self.refuse_verified(&verified, Refusal::new(RefusalCode::IssuingFailed, error.to_string()), now);
                self.busy.remove(&id);
                return self.end(id, Ending::Failed, None, now);
            }
        };
        let mut operations = Vec::new();
        if let Some(token) = token {
            let seconds = |ms: u128| i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
            let times = (seconds(now.wall.into()), seconds(self.settings.token_lifetime.as_millis()));
            let group = token_group(self.settings.distribution);
            operations.push(Operation::CreateToken(NewToken { token, request: id, group, times }));
        }
        let mut request = entry.is;
        request.record = request.record.granted(&answer);
        request.changed_ms = now.wall;
        operations.push(Operation::Replace {
            key: Key::Request(id),
            text: request.to_text(),
            version: Version::Known(entry.version),
        });
        self.seen.forget(&admission.ek);
        let then =
            to_host(verified.recipient().address(), &IssuerMessage::Ticket(answer.message)).into_iter().collect();
        self.run(Work::Granting(id), operations, then);
    }

    fn grant(
        &mut self,
        verified: &Verified,
        admission: &Admission,
        token: Option<&BootstrapToken>,
        now: Now,
    ) -> Result<TicketPayload, String> {
        let randomness = self.draw();
        let Self { settings, keys, kubernetes, .. } = self;
        let issuing = Issuing { keys: &**keys, kubernetes, settings, wall_ms: now.wall };
        issuing.grant(verified, admission, token, &randomness)
    }
}

fn pcrs_json(pcrs: &[(u32, Hash)]) -> String {
    let listed: Vec<String> =
        pcrs.iter().map(|(index, value)| format!("\"{index}\":\"{}\"", hex::encode(value))).collect();
    format!("{{{}}}", listed.join(","))
}
