//! The post office is a man in the middle. In virtual time and from a seed it drops, delays, duplicates, reorders, replays, misdirects, changes and invents messages. It does so
//! between many hosts and several replicas of the join service, which crash between claim and ticket. After each event the invariants must hold; once the faults end, every honest host gets in.
//!
//! `SPARKFLEET_SEEDS=<n>` runs more seeds; a failure names its seed.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use join_protocol::host::{Condition, Effect, Event, Machine};
use join_protocol::issuer::{Claim, EvidenceAnswer, HelloAnswer, Issuer, Phase, Record, Verified, claim};
use join_protocol::message::challenge::{Challenge, ChallengeBody};
use join_protocol::message::evidence::Evidence;
use join_protocol::message::hello::Hello;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::secret::cluster_id;
use join_protocol::simulated::{SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Address, HostClock, RequestId, Suite};
use join_protocol::transcript::endorsement_key_id;
use support::{CLOCK, GROUP, NOW_MS, entropy, grant_for, host, ms, replica, secret};
use uuid::Uuid;

const REPLICAS: usize = 3;
const FAULTS_END_MS: u64 = 300_000;
const END_MS: u64 = 3_000_000;
const LEASE_MS: u64 = 5_000;

/// SplitMix64: enough to choose faults, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        (!items.is_empty()).then(|| &items[usize::try_from(self.below(items.len() as u64)).unwrap()])
    }
}

/// What a host is in truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Truth {
    Honest,
    Unknown,
    Revoked,
    Changed,
    AnothersTpm,
}

struct SimulatedHost {
    truth: Truth,
    machine: Machine,
    tpm: SimulatedTpm,
    address: Address,
    name: String,
    clock: HostClock,
    activated: BTreeSet<RequestId>,
}

#[derive(Clone)]
enum Mail {
    ToIssuer { replica: usize, from: Address, message: HostMessage },
    ToHost { host: usize, message: IssuerMessage },
}

/// What a replica does between reading and writing, when others may come first.
struct Work {
    replica: usize,
    verified: Box<Verified>,
    seen: Option<Record>,
    step: Step,
}

enum Step {
    Claim,
    Grant,
}

enum DueItem {
    Mail(Mail),
    Work(Box<Work>),
}

struct World {
    dice: Dice,
    now_ms: u64,
    drawn: u64,
    hosts: Vec<SimulatedHost>,
    issuers: Vec<Issuer>,
    verifier: SimulatedVerifier,
    store: BTreeMap<RequestId, Record>,
    queue: BTreeMap<(u64, u64), DueItem>,
    queued: u64,
    seen_mail: Vec<Mail>,
    tickets: BTreeMap<RequestId, Vec<u8>>,
    verdicts: BTreeSet<RequestId>,
    credentials: BTreeSet<Vec<u8>>,
    counts: Counts,
}

/// How often what the faults are for was seen: a simulation that never sees it proves nothing.
#[derive(Default)]
struct Counts {
    misbelieved: usize,
    crashes: usize,
    takeovers: usize,
    lost_races: usize,
    resends: usize,
}

impl World {
    fn new(seed: u64, hosts: u8) -> Self {
        let mut dice = Dice(seed);
        let hosts: Vec<_> = (1..=hosts).map(|number| simulated_host(number, &mut dice)).collect();
        let ids = |truth: Truth| {
            let of = hosts.iter().zip(1_u8..).filter(move |(host, _)| host.truth == truth);
            of.map(|(_, number)| endorsement_key_id(&host(number).settings.endorsement_key)).collect::<BTreeSet<_>>()
        };
        let mut enrolled = ids(Truth::Honest);
        enrolled.extend(ids(Truth::Changed));
        enrolled.extend(ids(Truth::AnothersTpm));
        let verifier = SimulatedVerifier {
            enrolled: Some(enrolled),
            revoked: ids(Truth::Revoked),
            control_planes: None,
            reference_values: [(4, [0; 32]), (11, [0; 32])].into(),
        };
        let issuers = (0..REPLICAS).map(|number| replica(u8::try_from(number).unwrap())).collect();
        Self {
            dice,
            now_ms: 0,
            drawn: seed << 32,
            hosts,
            issuers,
            verifier,
            store: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            seen_mail: Vec::new(),
            tickets: BTreeMap::new(),
            verdicts: BTreeSet::new(),
            credentials: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    fn entropy(&mut self) -> join_protocol::secret::Entropy {
        self.drawn += 1;
        entropy(self.drawn)
    }

    const fn faulty(&self) -> bool {
        self.now_ms < FAULTS_END_MS
    }

    fn enqueue(&mut self, delay_ms: u64, due: DueItem) {
        self.queued += 1;
        self.queue.insert((self.now_ms + delay_ms, self.queued), due);
    }

    // ---- The post office

    fn post(&mut self, mail: Mail) {
        self.seen_mail.push(mail.clone());
        if !self.faulty() {
            let delay_ms = self.dice.below(200);
            return self.enqueue(delay_ms, DueItem::Mail(mail));
        }
        if !self.dice.percent(30) {
            // Delays of seconds reorder whatever was sent meanwhile.
            let delay_ms = if self.dice.percent(30) { self.dice.below(40_000) } else { self.dice.below(1_000) };
            self.enqueue(delay_ms, DueItem::Mail(mail.clone()));
        }
        if self.dice.percent(20) {
            let delay_ms = self.dice.below(90_000);
            self.enqueue(delay_ms, DueItem::Mail(mail));
        }
        if self.dice.percent(25) {
            let mail = self.attack();
            let delay_ms = self.dice.below(10_000);
            self.enqueue(delay_ms, DueItem::Mail(mail));
        }
    }

    /// A message that its sender did not post: a replay, perhaps to another host, perhaps changed, or put together from parts.
    fn attack(&mut self) -> Mail {
        let mut mail = self.dice.one_of(&self.seen_mail).expect("something was posted").clone();
        let addresses: Vec<_> = self.hosts.iter().map(|host| host.address.clone()).collect();
        if self.dice.percent(40) {
            match &mut mail {
                Mail::ToIssuer { from, .. } => *from = self.dice.one_of(&addresses).unwrap().clone(),
                Mail::ToHost { host, .. } => *host = usize::try_from(self.dice.below(addresses.len() as u64)).unwrap(),
            }
        }
        if self.dice.percent(60) {
            let other = self.dice.one_of(&self.seen_mail).unwrap().clone();
            match (&mut mail, other) {
                (Mail::ToIssuer { message, .. }, Mail::ToIssuer { message: other, .. }) => self.forge(message, &other),
                (Mail::ToHost { message, .. }, _) => self.flip_issuer(message),
                _ => {}
            }
        }
        mail
    }

    fn forge(&mut self, message: &mut HostMessage, other: &HostMessage) {
        let forged = match (&*message, other) {
            (HostMessage::Hello(hello), _) => Hello::decode(hello).ok().map(|mut hello| {
                match self.dice.below(3) {
                    0 => hello.suites = vec![Suite::X25519],
                    1 => hello.disk = Uuid::from_u128(self.dice.below(30).into()),
                    _ => hello.host_nonce = [1; 32],
                }
                HostMessage::Hello(hello.encode())
            }),
            (HostMessage::Evidence(one), HostMessage::Evidence(two)) => {
                let parts = Evidence::decode(one).ok().zip(Evidence::decode(two).ok());
                parts.map(|(mut one, two)| {
                    match self.dice.below(3) {
                        0 => one.challenge = two.challenge,
                        1 => one.hello = two.hello,
                        _ => (one.encapsulated_key, one.ciphertext) = (two.encapsulated_key, two.ciphertext),
                    }
                    HostMessage::Evidence(one.encode())
                })
            }
            _ => None,
        };
        match forged {
            Some(forged) => *message = forged,
            None => {
                let (HostMessage::Hello(bytes)
                | HostMessage::Evidence(bytes)
                | HostMessage::Progress(bytes)
                | HostMessage::Acknowledgement(bytes)) = message;
                self.flip(bytes);
            }
        }
    }

    fn flip_issuer(&mut self, message: &mut IssuerMessage) {
        if self.dice.percent(20) {
            *message = IssuerMessage::AskAgain;
            return;
        }
        match message {
            IssuerMessage::Challenge(bytes) | IssuerMessage::ClearRefusal(bytes) | IssuerMessage::Ticket(bytes) => {
                self.flip(bytes);
            }
            // Of what says nothing but that it is there, the broker can make any other message.
            IssuerMessage::AskAgain => *message = IssuerMessage::ClearRefusal(Vec::new()),
        }
    }

    fn flip(&mut self, bytes: &mut Vec<u8>) {
        match self.dice.below(4) {
            0 => bytes.truncate(usize::try_from(self.dice.below(bytes.len() as u64 + 1)).unwrap()),
            1 => *bytes = (0..self.dice.below(300)).map(|_| self.dice.next().to_be_bytes()[0]).collect(),
            _ if bytes.is_empty() => {}
            _ => {
                let at = usize::try_from(self.dice.below(bytes.len() as u64)).unwrap();
                bytes[at] ^= 1 << self.dice.below(8);
            }
        }
    }

    // ---- The replicas

    fn send_to_host(&mut self, address: &Address, message: IssuerMessage) {
        if let Some(host) = self.hosts.iter().position(|host| host.address == *address) {
            self.post(Mail::ToHost { host, message });
        }
    }

    fn on_mail_to_issuer(&mut self, replica: usize, from: &Address, message: &HostMessage) {
        match message {
            HostMessage::Hello(bytes) => self.on_hello(replica, from, bytes),
            HostMessage::Evidence(bytes) => self.on_evidence(replica, from, bytes),
            HostMessage::Progress(bytes) => self.on_progress(replica, from, bytes),
            HostMessage::Acknowledgement(bytes) => self.on_acknowledgement(replica, from, bytes),
        }
    }

    fn on_hello(&mut self, replica: usize, from: &Address, bytes: &[u8]) {
        let entropy = self.entropy();
        match self.issuers[replica].on_hello(from, bytes, NOW_MS + self.now_ms, entropy, &self.verifier) {
            HelloAnswer::Challenge { message, .. } => {
                let body = ChallengeBody::decode(&Challenge::decode(&message).unwrap().body).unwrap();
                self.credentials.insert(body.credential);
                self.send_to_host(from, IssuerMessage::Challenge(message));
            }
            HelloAnswer::Refused(refused) => self.send_to_host(from, IssuerMessage::ClearRefusal(refused.message)),
            HelloAnswer::Ignored(_) => {}
        }
    }

    fn on_evidence(&mut self, replica: usize, from: &Address, bytes: &[u8]) {
        let request = Evidence::decode(bytes).ok().map(|evidence| evidence.request);
        let record = request.and_then(|request| self.store.get(&request));
        if let Some(ticket) = record.and_then(|record| record.answer_to(bytes)) {
            let (ticket, address) = (ticket.to_vec(), record.unwrap().address.clone());
            return self.send_ticket(request.unwrap(), &address, ticket);
        }
        match self.issuers[replica].on_evidence(from, bytes, NOW_MS + self.now_ms, &self.verifier) {
            EvidenceAnswer::Verified(verified) => {
                let request = verified.recipient().hello().request;
                self.verdicts.insert(request);
                let seen = self.store.get(&request).cloned();
                let delay_ms = self.dice.below(2_000);
                self.enqueue(delay_ms, DueItem::Work(Box::new(Work { replica, verified, seen, step: Step::Claim })));
            }
            EvidenceAnswer::Rejected(rejected) => {
                let answer = self.issuers[replica].refuse(rejected.recipient(), rejected.refusal.clone()).unwrap();
                self.send_to_host(from, IssuerMessage::Ticket(answer.message));
            }
            EvidenceAnswer::Refused(refused) => self.send_to_host(from, IssuerMessage::ClearRefusal(refused.message)),
            EvidenceAnswer::Ignored(_) => {}
        }
    }

    fn on_work(&mut self, work: Work) {
        if self.faulty() && self.dice.percent(15) {
            self.counts.crashes += 1;
            return;
        }
        let Work { replica, verified, seen, step } = work;
        let request = verified.recipient().hello().request;
        if self.store.get(&request) != seen.as_ref() {
            // Another was first. The host repeats its evidence, and the replica that gets it reads again.
            self.counts.lost_races += 1;
            return;
        }
        match step {
            Step::Claim => {
                let holder = format!("replica-{replica}");
                let claim = claim(seen.as_ref(), &verified, &holder, NOW_MS + self.now_ms, LEASE_MS);
                self.counts.takeovers += usize::from(matches!(claim, Claim::TakeOver(_)));
                match claim {
                    Claim::Create(record) | Claim::TakeOver(record) => {
                        self.store.insert(request, record.clone());
                        let delay_ms = self.dice.below(3_000);
                        let seen = Some(record);
                        self.enqueue(
                            delay_ms,
                            DueItem::Work(Box::new(Work { replica, verified, seen, step: Step::Grant })),
                        );
                    }
                    Claim::Resend(ticket) => self.send_ticket(request, verified.recipient().address(), ticket),
                    Claim::Wait { .. } | Claim::Over => {}
                    Claim::Conflict => panic!("two evidences of one request: only the host can make them"),
                }
            }
            Step::Grant => {
                let grant = grant_for(verified.recipient().hello().kind, &verified.body().node_name);
                let entropy = self.entropy();
                let answer = self.issuers[replica].grant(&verified, grant, entropy).unwrap();
                self.store.insert(request, seen.unwrap().granted(&answer));
                self.send_ticket(request, verified.recipient().address(), answer.message);
            }
        }
    }

    fn send_ticket(&mut self, request: RequestId, address: &Address, ticket: Vec<u8>) {
        assert!(self.verdicts.contains(&request), "no-ticket-without-verdict");
        self.counts.resends += usize::from(self.tickets.contains_key(&request));
        let first = self.tickets.entry(request).or_insert_with(|| ticket.clone());
        assert_eq!(*first, ticket, "one ticket a request, byte by byte");
        self.send_to_host(address, IssuerMessage::Ticket(ticket));
    }

    fn record_of(&self, from: &Address) -> Vec<Record> {
        self.store.values().filter(|record| record.address == *from).cloned().collect()
    }

    fn on_progress(&mut self, replica: usize, from: &Address, bytes: &[u8]) {
        for record in self.record_of(from) {
            if let Ok(progress) = self.issuers[replica].on_progress(&record, from, bytes) {
                assert!(progress.sequence > record.sequence);
                self.store.get_mut(&record.request).unwrap().sequence = progress.sequence;
            }
        }
    }

    fn on_acknowledgement(&mut self, replica: usize, from: &Address, bytes: &[u8]) {
        let grant = grant_for(join_protocol::terms::Kind::Join, "any");
        let id = cluster_id(&grant.measurement_secret, &grant.measurement_salt);
        for record in self.record_of(from) {
            if self.issuers[replica].on_acknowledgement(&record, from, bytes, &id, &self.verifier).is_ok() {
                let request = record.request;
                self.store.insert(request, record.acknowledged());
            }
        }
    }

    // ---- The hosts

    fn feed_host(&mut self, at: usize, event: Event<'_>) {
        let entropy = self.entropy();
        let (mono, host) = (ms(self.now_ms), &mut self.hosts[at]);
        let effects = host.machine.on_event(event, mono, host.clock, entropy);
        for effect in effects {
            self.carry_out(at, effect);
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Publish(message) => {
                let from = self.hosts[at].address.clone();
                for replica in 0..REPLICAS {
                    self.post(Mail::ToIssuer { replica, from: from.clone(), message: message.clone() });
                }
            }
            Effect::ActivateCredential { request, credential } => {
                assert!(self.credentials.contains(&credential), "the TPM is asked only about what an issuer made");
                let host = &mut self.hosts[at];
                assert!(host.activated.insert(request), "the TPM is asked once an attempt");
                match host.tpm.activate_credential(&credential) {
                    Some(secret) => self.feed_host(at, Event::CredentialActivated(request, secret)),
                    // A host that plays another's TPM continues with a guess.
                    None if host.truth == Truth::AnothersTpm => {
                        self.feed_host(at, Event::CredentialActivated(request, secret(0)));
                    }
                    None => panic!("{request}: an honest TPM opens what was made for it"),
                }
            }
            Effect::Quote { request, qualifying_data, selection, .. } => {
                let quote = self.hosts[at].tpm.quote_of(&qualifying_data, &selection);
                self.feed_host(at, Event::Quoted(request, quote));
            }
            Effect::Renew { .. } => panic!("no host asked to renew"),
            Effect::Lock { request, cluster_id, qualifying_data, selection } => {
                let host = &mut self.hosts[at];
                assert_eq!(host.truth, Truth::Honest, "only honest hosts get a ticket");
                assert!(self.verdicts.contains(&request), "no-ticket-without-verdict");
                let membership = host.machine.grant().and_then(|grant| grant.membership.as_ref()).unwrap();
                assert_eq!(membership.node_name, host.name, "a host opens its own ticket only");
                host.tpm.lock(&cluster_id);
                let quote = host.tpm.quote_of(&qualifying_data, &selection);
                self.feed_host(at, Event::Locked { request, quote, result: None });
            }
            Effect::Ignored { .. } | Effect::Hindered { .. } => self.counts.misbelieved += 1,
            Effect::Refused(_) => {}
        }
    }

    // ---- Time

    fn run(&mut self) {
        for at in 0..self.hosts.len() {
            self.feed_host(at, Event::Start);
        }
        loop {
            let mail = self.queue.keys().next().map(|key| key.0);
            let timers = self.hosts.iter().filter_map(|host| host.machine.next_deadline());
            let timer = timers.min().map(|at| u64::try_from(at.as_micros().div_ceil(1_000)).unwrap());
            let Some(next) = mail.into_iter().chain(timer).min().filter(|next| *next <= END_MS) else { return };
            self.now_ms = next.max(self.now_ms);
            if mail.is_some_and(|at| at <= self.now_ms) {
                let (_, due) = self.queue.pop_first().unwrap();
                match due {
                    DueItem::Mail(Mail::ToIssuer { replica, from, message }) => {
                        self.on_mail_to_issuer(replica, &from, &message);
                    }
                    DueItem::Mail(Mail::ToHost { host, message }) => self.on_mail_to_host(host, &message),
                    DueItem::Work(work) => self.on_work(*work),
                }
                continue;
            }
            for at in 0..self.hosts.len() {
                if self.hosts[at].machine.next_deadline().is_some_and(|due| due <= ms(self.now_ms)) {
                    self.feed_host(at, Event::Timer);
                }
            }
            if self.hosts.iter().all(|host| host.truth != Truth::Honest || self.is_in(host)) && !self.faulty() {
                return;
            }
        }
    }

    fn on_mail_to_host(&mut self, host: usize, message: &IssuerMessage) {
        match message {
            IssuerMessage::Challenge(bytes) => self.feed_host(host, Event::Challenge(bytes)),
            IssuerMessage::ClearRefusal(bytes) => self.feed_host(host, Event::ClearRefusal(bytes)),
            IssuerMessage::Ticket(bytes) => self.feed_host(host, Event::Ticket(bytes)),
            IssuerMessage::AskAgain => self.feed_host(host, Event::AskAgain),
        }
    }

    /// Committed, and the join service knows it.
    fn is_in(&self, host: &SimulatedHost) -> bool {
        let request = host.machine.request();
        let record = request.and_then(|request| self.store.get(&request));
        host.machine.condition() == Condition::Committed
            && record.is_some_and(|record| matches!(record.phase, Phase::Acknowledged { .. }))
    }
}

fn simulated_host(number: u8, dice: &mut Dice) -> SimulatedHost {
    let support::Host { mut tpm, mut settings } = host(number);
    let truth = match dice.below(10) {
        0 => Truth::Unknown,
        1 => Truth::Revoked,
        2 => Truth::Changed,
        3 => Truth::AnothersTpm,
        _ => Truth::Honest,
    };
    match truth {
        Truth::Changed => tpm.extend(11, &[1; 32]),
        Truth::AnothersTpm => tpm = SimulatedTpm::new(&secret(200)).unwrap(),
        Truth::Honest | Truth::Unknown | Truth::Revoked => {}
    }
    if dice.percent(10) {
        settings.suites = vec![Suite::XWing, Suite::X25519];
    }
    let clock = if dice.percent(30) { HostClock::Unset } else { CLOCK };
    let (address, name) = (settings.address.clone(), settings.body.node_name.clone());
    assert_eq!(address.group, GROUP);
    SimulatedHost { truth, machine: Machine::new(settings), tpm, address, name, clock, activated: BTreeSet::new() }
}

#[test]
fn whatever_the_post_office_does_each_honest_host_gets_one_ticket_and_no_other_gets_any() {
    let seeds = std::env::var("SPARKFLEET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let (mut attempts, mut tickets, mut total) = (0, 0, Counts::default());
    for seed in 1..=seeds {
        let hosts = if seed % 3 == 0 { 30 } else { 10 };
        let mut world = World::new(seed, hosts);
        world.run();
        for host in &world.hosts {
            let condition = host.machine.condition();
            match host.truth {
                Truth::Honest => assert!(world.is_in(host), "seed {seed}: {} is {condition:?}", host.name),
                other => assert_ne!(condition, Condition::Committed, "seed {seed}: {} is {other:?}", host.name),
            }
        }
        let honest: BTreeSet<_> =
            world.hosts.iter().filter(|host| host.truth == Truth::Honest).map(|host| host.address.clone()).collect();
        assert!(world.store.values().all(|record| honest.contains(&record.address)), "seed {seed}");
        attempts += world.hosts.iter().map(|host| host.activated.len()).sum::<usize>();
        tickets += world.tickets.len();
        total.misbelieved += world.counts.misbelieved;
        total.crashes += world.counts.crashes;
        total.takeovers += world.counts.takeovers;
        total.lost_races += world.counts.lost_races;
        total.resends += world.counts.resends;
    }
    let Counts { misbelieved, crashes, takeovers, lost_races, resends } = total;
    println!("{seeds} seeds, {attempts} attempts reached a TPM, {tickets} tickets, {resends} sent again");
    println!("{crashes} crashes, {takeovers} takeovers, {lost_races} lost races, {misbelieved} messages not believed");
    for (count, what) in [
        (misbelieved, "no host disbelieved anything"),
        (crashes, "no replica crashed"),
        (takeovers, "no replica took over"),
        (lost_races, "no replica lost a race"),
        (resends, "no ticket was sent again"),
    ] {
        assert!(count > 0, "{what}: the faults are too weak");
    }
}
