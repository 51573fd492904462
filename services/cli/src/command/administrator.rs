//! `sparkfleet host init` and `host recover`: the administrator's side of the join protocol. It is for the first member of a cluster, which no join service can admit. It is also
//! for members that wait for the key of their disk when no join service is left. Speaks with the host directly over the broker; the host proves the same as any other, by the same policy.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use bootstrapper_contract::InitParameters;
use configdb_schema::document::{AttestationPolicy, EnrolledHost};
use join_attestation::policy::Policy;
use join_attestation::signed;
use join_attestation::{HostVerifier, check_clock, ek_hash};
use join_protocol::issuer::{EvidenceAnswer, HelloAnswer, Issuer, IssuerKeys, IssuerPolicy, Phase, Record};
use join_protocol::message::challenge::{Challenge, ChallengeBody};
use join_protocol::message::evidence::Evidence;
use join_protocol::message::grant::{Grant, Setup};
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::refusal::Refusal;
use join_protocol::result::ResultKey;
use join_protocol::secret::{Entropy, SecretBytes, cluster_id};
use join_protocol::terms::{Address, HostClock, Kind, Suite};
use join_trust::files as trust;
use join_trust::keys::{DerivedKeys, KeyProvider as _};
use join_trust::unlock;
use serde_json::json;
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{Clock, HostHandle};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::signer::Signer;
use super::{attestation_policy, signer, waiting};
use crate::arguments::joining::{InitArguments, POLICY_DAYS, RecoverArguments};
use crate::client::{self, Client, Scope, mqtt_config};
use crate::look_up;
use crate::options::Options;
use crate::output;
use crate::usage_error::usage;

/// How often a host is reminded that an administrator waits for it.
const REMIND: std::time::Duration = std::time::Duration::from_secs(10);

/// Makes a host the first member of its cluster and writes the kubeconfig.
///
/// # Errors
/// As documented for the exit codes.
pub async fn init(arguments: InitArguments) -> anyhow::Result<()> {
    let InitArguments { host, cluster: wanted, trust, kubeconfig, parameters, name, force, options } = arguments;
    if kubeconfig.exists() && !force {
        let error = anyhow!("{} is there already; --force replaces it", kubeconfig.display());
        return Err(exit::with_code(exit::REFUSED, error));
    }
    let place = JoinTarget::find(host.as_deref(), &[Kind::Join, Kind::Init], &wanted, trust, &options).await?;
    let (cluster, host) = (place.cluster.clone(), place.host);
    let parameters = init_parameters(parameters.as_deref(), name, &cluster, host)?;
    let node_name = parameters.node_name.clone();
    let result_key = ResultKey::generate(Suite::XWing, entropy()?);
    let task = Task::Init { parameters: Box::new(parameters), result_key: Box::new(result_key) };
    let mut administrator = Administrator::new(&place, task)?;
    let opened = speak(&mut administrator, &options).await?;
    write_kubeconfig(&kubeconfig, &opened, force)?;
    let ek = administrator.ek.context("a host that is a member has proven its endorsement key")?;
    let member = EnrolledHost { ek, host: Some(node_name), disk: Some(host), iak: None, control_plane: true };
    // The cluster is made, whatever becomes of this.
    let adopted = adopt(&place, member.clone(), &options).await;
    let missing = adopted.as_ref().err().map(|error| format!("{error:#}"));
    let value = json!({ "cluster": cluster, "disk": host, "kubeconfig": kubeconfig, "enrolment": member,
        "revision": adopted.as_ref().ok().copied().flatten(), "not_enrolled": missing });
    let lines = || {
        let enrolled = match &missing {
            None => "  it is enrolled with its name, its disk and as a control plane, so the join service will know it"
                .to_owned(),
            Some(reason) => not_adopted(&cluster, &member, reason),
        };
        vec![
            format!("{host} is the first member of {cluster}"),
            enrolled,
            format!("  {}  its kubeconfig: who has it is the cluster's administrator", kubeconfig.display()),
            "Next: bootstrap the edge services there, start the join service, and let the other hosts join.".to_owned(),
        ]
    };
    output::print(options.presentation.output, lines, &value)
}

/// Enrols the first member as what it is: with its name, its disk and as a control plane. By that the join service, which has no record of its join, gives it the key of its disk at
/// its next boot. The revision of the policy; None: it is enrolled so already.
///
/// # Errors
/// With [`exit::CONFIG`] if the signer's key is not in the directory of the cluster; as documented for the exit codes.
async fn adopt(place: &JoinTarget, member: EnrolledHost, options: &Options) -> anyhow::Result<Option<u64>> {
    let mut client = Client::open(options, Scope::Config).await?;
    let adopted = async {
        let Some((stands, entry)) = attestation_policy::current(&client.fleet, place.uuid)? else {
            return Err(exit::with_code(exit::REFUSED, anyhow!("its attestation policy is gone")));
        };
        let mut policy = stands.clone();
        if !attestation_policy::enrol(&mut policy, member) {
            return Ok(None);
        }
        let signer = Signer::of_directory(&place.trust, place.uuid, POLICY_DAYS, None)?;
        signer.checked(stands)?;
        let written = attestation_policy::write(&mut client, place.uuid, &policy, Some(entry.etag), &signer).await?;
        Ok(Some(written.revision))
    }
    .await;
    client.close().await;
    adopted
}

/// What an operator does for a first member that could not be enrolled.
fn not_adopted(cluster: &str, member: &EnrolledHost, reason: &str) -> String {
    let EnrolledHost { ek, host, disk, .. } = member;
    let (name, disk) = (host.as_deref().unwrap_or_default(), disk.map(|disk| disk.to_string()).unwrap_or_default());
    format!(
        "  WARNING: it is not enrolled as what it is ({reason}), and stays locked at its next boot: write the line `{ek},{name},{disk},control-plane` to a file, then `sparkfleet host enrol {cluster} FILE` where the signer's key is"
    )
}

/// Gives a member the key of its disk when no join service can.
///
/// # Errors
/// As documented for the exit codes.
pub async fn recover(arguments: RecoverArguments) -> anyhow::Result<()> {
    let RecoverArguments { host, cluster: wanted, trust, options } = arguments;
    let place = JoinTarget::find(host.as_deref(), &[Kind::Rejoin, Kind::Recover], &wanted, trust, &options).await?;
    let (cluster, host) = (place.cluster.clone(), place.host);
    speak(&mut Administrator::new(&place, Task::Recover)?, &options).await?;
    let value = json!({ "cluster": cluster, "disk": host });
    let lines = || {
        vec![
            format!("{host} has the key of its disk and is locked to {cluster} again"),
            "Next: when enough control planes are back, the join service unlocks the others by itself.".to_owned(),
        ]
    };
    output::print(options.presentation.output, lines, &value)
}

/// Where a host is to become a member, and by what it is judged.
struct JoinTarget {
    /// Its state disk.
    host: Uuid,
    uuid: Uuid,
    cluster: String,
    policy: AttestationPolicy,
    revision: u64,
    address: Address,
    trust: PathBuf,
}

impl JoinTarget {
    async fn find(
        host: Option<&str>,
        kinds: &[Kind],
        wanted: &str,
        trust: Option<PathBuf>,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let client = Client::open(options, Scope::Config).await?;
        let found = look_up::cluster_entry(&client.fleet, wanted)
            .and_then(|(uuid, entry)| Ok((uuid, entry.name, attestation_policy::current(&client.fleet, uuid)?)));
        let organisation = client.fleet.organisation().clone();
        client.close().await;
        let (uuid, cluster, policy) = found?;
        let Some((policy, entry)) = policy else {
            let error = anyhow!("{cluster} has no attestation policy; write one with `sparkfleet policy set`");
            return Err(exit::with_code(exit::REFUSED, error));
        };
        let directory = trust.unwrap_or_else(|| PathBuf::from("trust").join(uuid.to_string()));
        // ConfigDB and the broker only carry it.
        let own = trust::certificates(&directory.join("admin.certificates"))?;
        let anchor = signer::anchor(&directory, uuid, &own)?;
        signed::verify(&policy, &anchor, HostClock::Trusted(trust::now_ms()))
            .with_context(|| format!("the attestation policy of {cluster}"))
            .map_err(|error| exit::with_code(exit::REFUSED, error))?;
        let group = organisation.join_group(&configdb_schema::ClusterName::new(cluster.clone())?);
        let host = waiting::find(host, &group, kinds, options).await?;
        let address = Address::of_disk(group, host);
        Ok(Self { host, uuid, cluster, policy, revision: entry.revision, address, trust: directory })
    }
}

fn write_kubeconfig(file: &Path, content: &[u8], force: bool) -> anyhow::Result<()> {
    let written = if force {
        atomic_file::write(file, content, Some(OWNER_ONLY))
    } else {
        atomic_file::create(file, content, Some(OWNER_ONLY))
    };
    written.context("the host is a member, but its kubeconfig cannot be written; repeat with another --kubeconfig within ten minutes")
}

pub(super) fn init_parameters(
    file: Option<&Path>,
    name: Option<String>,
    cluster: &str,
    host: Uuid,
) -> anyhow::Result<InitParameters> {
    let mut document = match file {
        Some(file) => crate::input::read_document(file)?,
        None => json!({}),
    };
    let Some(members) = document.as_object_mut() else {
        return Err(exit::with_code(exit::CONFIG, anyhow!("--parameters must hold an object")));
    };
    if let Some(name) = name {
        members.insert("nodeName".to_owned(), json!(name));
    }
    if !members.contains_key("nodeName") {
        return Err(usage(anyhow!("say with --name what the Node of {host} is to be called")));
    }
    members.entry("clusterName").or_insert_with(|| json!(cluster));
    InitParameters::from_bytes(document.to_string().as_bytes())
        .map_err(|error| exit::with_code(exit::CONFIG, anyhow!(error)))
}

/// What an administrator does for a host.
enum Task {
    Init { parameters: Box<InitParameters>, result_key: Box<ResultKey> },
    Recover,
}

impl Task {
    const fn kind(&self) -> Kind {
        match self {
            Self::Init { .. } => Kind::Init,
            Self::Recover => Kind::Recover,
        }
    }

    const fn goal(&self) -> &'static str {
        match self {
            Self::Init { .. } => "to become the first member",
            Self::Recover => "to be recovered",
        }
    }
}

/// The issuer of one task, and what it remembers.
struct Administrator {
    issuer: Issuer,
    verifier: HostVerifier,
    address: Address,
    keys: DerivedKeys,
    task: Task,
    record: Option<Record>,
    /// Endorsement key that the host has proven, as a policy names it.
    ek: Option<String>,
}

/// What a message of the host leads to.
enum Step {
    Answer(IssuerMessage),
    /// The host is locked to its cluster; of an init the kubeconfig, else nothing.
    Done(Zeroizing<Vec<u8>>),
    /// The host was refused.
    Refused(Refusal, IssuerMessage),
    Nothing,
}

impl Administrator {
    fn new(place: &JoinTarget, task: Task) -> anyhow::Result<Self> {
        let JoinTarget { uuid: cluster, policy, revision, address, trust: directory, .. } = place;
        let (cluster, revision) = (*cluster, *revision);
        let signing_key = trust::signing_key(&directory.join("admin.key"))?;
        let certificates = trust::certificates(&directory.join("admin.certificates"))?;
        let keys = trust::cluster_keys(directory, cluster)?;
        let verifier = HostVerifier::new(Policy::new(policy, revision));
        if let Some(error) = verifier.policy().error() {
            let error = anyhow!("{error}").context("the policy of the cluster admits no host");
            return Err(exit::with_code(exit::REFUSED, error));
        }
        let issuer_policy = IssuerPolicy {
            locked_to: None,
            cluster,
            group: address.group.clone(),
            kinds: vec![task.kind()],
            suites: vec![Suite::XWing, Suite::X25519],
            variants: verifier.variants(),
            policy_epoch: revision,
        };
        // No other process shares these keys: an administrator is one process, and one that is started again begins again.
        let issuer_keys = IssuerKeys::new((1, &trust::random()?), None);
        Ok(Self {
            issuer: Issuer::new(issuer_policy, issuer_keys, signing_key, certificates),
            verifier,
            address: address.clone(),
            keys,
            task,
            record: None,
            ek: None,
        })
    }

    fn on_message(&mut self, message: &HostMessage, now_ms: u64) -> anyhow::Result<Step> {
        match message {
            HostMessage::Hello(bytes) => self.on_hello(bytes, now_ms),
            HostMessage::Evidence(bytes) => self.on_evidence(bytes, now_ms),
            HostMessage::Acknowledgement(bytes) => self.on_acknowledgement(bytes),
            HostMessage::Progress(bytes) => {
                if let Some(record) = &mut self.record
                    && let Ok(progress) = self.issuer.on_progress(record, &self.address, bytes)
                {
                    record.sequence = progress.sequence;
                    output::progress(&format!("{} {}", progress.stage, progress.detail));
                }
                Ok(Step::Nothing)
            }
        }
    }

    fn on_hello(&self, bytes: &[u8], now_ms: u64) -> anyhow::Result<Step> {
        Ok(match self.issuer.on_hello(&self.address, bytes, now_ms, entropy()?, &self.verifier) {
            HelloAnswer::Challenge { message, .. } => Step::Answer(IssuerMessage::Challenge(message)),
            // A host also speaks with the join service on the same topic; what it asks that is not for here.
            HelloAnswer::Refused(_) | HelloAnswer::Ignored(_) => Step::Nothing,
        })
    }

    fn on_evidence(&mut self, bytes: &[u8], now_ms: u64) -> anyhow::Result<Step> {
        if let Some(ticket) = self.record.as_ref().and_then(|record| record.answer_to(bytes)) {
            return Ok(Step::Answer(IssuerMessage::Ticket(ticket.to_vec())));
        }
        let verified = match self.issuer.on_evidence(&self.address, bytes, now_ms, &self.verifier) {
            EvidenceAnswer::Verified(verified) => verified,
            EvidenceAnswer::Rejected(rejected) => {
                if let Some(pcrs) = &rejected.pcrs {
                    // No join service is there that would show them.
                    output::progress(&format!("PCRs of {}, if a policy is to have them:", self.address.node));
                    for (index, value) in pcrs {
                        output::progress(&format!("  {index}: {}", hex::encode(value)));
                    }
                }
                let answer = self.issuer.refuse(rejected.recipient(), rejected.refusal.clone())?;
                return Ok(Step::Refused(rejected.refusal.clone(), IssuerMessage::Ticket(answer.message)));
            }
            EvidenceAnswer::Refused(refused) => {
                return Ok(Step::Answer(IssuerMessage::ClearRefusal(refused.message)));
            }
            EvidenceAnswer::Ignored(_) => return Ok(Step::Nothing),
        };
        // Nothing is known of the TPM of a first member. That of a member continues from what the join service knows, and it is the join service that is not there.
        if let (Task::Init { .. }, Err(refusal)) = (&self.task, check_clock(verified.claims(), None)) {
            let answer = self.issuer.refuse(verified.recipient(), refusal.clone())?;
            return Ok(Step::Refused(refusal, IssuerMessage::Ticket(answer.message)));
        }
        let ek = ek_hash(&verified.recipient().keys()).map_err(|refusal| anyhow!("{refusal}"))?;
        self.ek = Some(hex::encode(ek));
        let setup = match &mut self.task {
            Task::Init { parameters, result_key } => {
                // The host seals the result with the suite of the challenge that it answered.
                let challenge = Challenge::decode(&Evidence::decode(bytes)?.challenge)?;
                **result_key = ResultKey::generate(ChallengeBody::decode(&challenge.body)?.suite, entropy()?);
                let parameters = SecretBytes::new(parameters.to_bytes());
                Some(Setup { result_key: result_key.public().to_vec(), parameters })
            }
            Task::Recover => None,
        };
        let (measurement_secret, measurement_salt) = self.keys.measurement();
        let body = verified.body();
        let disk_key = self.keys.state_disk_key(verified.recipient().hello().disk, body.disk_generation.as_ref());
        let local_unlock = unlock::local_unlock(&self.keys, &verified)?;
        let grant = Grant { disk_key, measurement_secret, measurement_salt, membership: None, setup, local_unlock };
        let answer = self.issuer.grant(&verified, grant, entropy()?)?;
        self.record = Some(verified.record().granted(&answer));
        Ok(Step::Answer(IssuerMessage::Ticket(answer.message)))
    }

    fn on_acknowledgement(&self, bytes: &[u8]) -> anyhow::Result<Step> {
        let Some(record) = &self.record else { return Ok(Step::Nothing) };
        let (secret, salt) = self.keys.measurement();
        let id = cluster_id(&secret, &salt);
        let Ok(acknowledged) = self.issuer.on_acknowledgement(record, &self.address, bytes, &id, &self.verifier) else {
            return Ok(Step::Nothing);
        };
        let Task::Init { result_key, .. } = &self.task else { return Ok(Step::Done(Zeroizing::default())) };
        let (Some((key, text)), Phase::Granted { th4, .. }) = (&acknowledged.sealed_result, &record.phase) else {
            return Ok(Step::Nothing);
        };
        let opened = result_key.open(&self.address, record.request, th4, (key, text));
        Ok(Step::Done(opened.context("the kubeconfig of the host")?))
    }
}

fn entropy() -> anyhow::Result<Entropy> {
    Ok(Entropy::new(*trust::random()?.expose()))
}

/// Speaks with the host until it is a member, or the time of the command is over.
async fn speak(administrator: &mut Administrator, options: &Options) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let node = EdgeNodeDescriptor::parse(&administrator.address.group, &administrator.address.node)?;
    let topic = format!("spBv1.0/{}/+/{}", node.group, node.edge_node);
    let config = HostConfig {
        filters: vec![(topic, QoS::AtLeastOnce)],
        messages: HostMessage::NAMES.into(),
        ..HostConfig::of_contracts(None)
    };
    let clock = Clock::new();
    let mut session = sparkplug_mqtt::spawn_host(config, &mqtt_config(&options.connection)?, clock)?;
    session.request(HostRequest::Expect { node: node.clone() }).await?;
    let deadline = tokio::time::Instant::now() + options.presentation.timeout;
    let mut remind = tokio::time::interval(REMIND);
    let mut is_received = false;
    let opened = loop {
        let event = tokio::select! {
            event = session.recv() => event.context("the session has ended")?,
            _ = remind.tick(), if is_received => {
                // Commands are QoS 0, and a host asks an administrator only while one says that he is there.
                command(&session, &node, Metric::new(bootstrapper_contract::names::ADMINISTRATOR, true)).await?;
                continue;
            }
            () = tokio::time::sleep_until(deadline) => {
                session.stop().await;
                return Err(not_reached(&node, administrator.task.goal(), is_received, options));
            }
        };
        let metrics: &[Metric] = match &event {
            HostEvent::NodeMessages { metrics, .. } => metrics,
            HostEvent::NodeBirth { .. } | HostEvent::NodeData { .. } => &[],
            _ => continue,
        };
        if !std::mem::replace(&mut is_received, true) {
            remind.reset_immediately();
        }
        let mut done = None;
        for metric in metrics {
            // What cannot be read is not a message of a host.
            let Ok(Some(message)) = HostMessage::from_metric(metric) else { continue };
            match administrator.on_message(&message, clock.now().wall)? {
                Step::Answer(answer) => command(&session, &node, answer.to_metric()).await?,
                Step::Refused(refusal, answer) => {
                    command(&session, &node, answer.to_metric()).await?;
                    session.stop().await;
                    // The policy of this command does not change any more.
                    return Err(exit::with_code(exit::REFUSED, anyhow!("refused: {refusal}")));
                }
                Step::Done(kubeconfig) => done = Some(kubeconfig),
                Step::Nothing => {}
            }
        }
        if let Some(kubeconfig) = done {
            break kubeconfig;
        }
    };
    session.stop().await;
    Ok(opened)
}

async fn command(session: &HostHandle, node: &EdgeNodeDescriptor, metric: Metric) -> anyhow::Result<()> {
    let request = HostRequest::Command { node: node.clone(), device: None, metrics: vec![metric] };
    Ok(session.request(request).await?)
}

fn not_reached(node: &EdgeNodeDescriptor, goal: &str, is_received: bool, options: &Options) -> anyhow::Error {
    let timeout = options.presentation.timeout;
    let error = if is_received {
        client::not_reached(timeout, &format!("{node} {goal}"))
    } else {
        let timeout = humantime::format_duration(timeout);
        anyhow!("waited {timeout} for {node}; it was never received: is the host on, and does it know this broker?")
    };
    exit::with_code(exit::TIMEOUT, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::enrol;

    #[test]
    fn the_line_that_an_operator_enrols_is_the_first_member() {
        let member = EnrolledHost {
            ek: "ab".repeat(32),
            host: Some("press-1".to_owned()),
            disk: Some(Uuid::from_u128(7)),
            iak: None,
            control_plane: true,
        };
        let text = not_adopted("Paint_Shop", &member, "policy-signer.key is missing");
        assert!(text.contains("(policy-signer.key is missing)") && text.contains("host enrol Paint_Shop"), "{text}");
        let line = text.split('`').nth(1).unwrap();
        assert_eq!(enrol::parse(line).unwrap(), [member]);
    }
}
