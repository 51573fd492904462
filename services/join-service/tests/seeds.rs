//! Fleets that join through a bad network while replicas are killed between any two writes, from a seed. After every event no token is without a live attempt, no host has two, no two control
//! planes join at once, and a request has one answer. Nothing that the broker carried holds a disk key, a measurement secret or a token (`token-once`, `no-ticket-without-verdict`, `resume-anywhere`). When the faults end all hosts that may join have joined, and no others.
//!
//! `JOIN_SEEDS=<from>..<to>` runs others, `JOIN_HOSTS=<number>` larger fleets.

#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use std::collections::BTreeSet;
use std::time::Duration;

use join_protocol::terms::{Kind, Role};
use join_service_contract::PolicyState;
use serde_json::json;
use support::host::SimHost;
use support::site::{entry, policy};
use support::world::{Faults, World};
use uuid::Uuid;

const MINUTE: Duration = Duration::from_secs(60);

/// What a host is, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Worker,
    ControlPlane,
    /// Not enrolled.
    Unknown,
    /// Another boot chain.
    Changed,
    /// Revoked while others join.
    Revoked,
    /// Its disk is named by the next host, too.
    Owner,
    /// Names the disk of the host before it. The first of both has it.
    Thief,
}

fn part(number: u64) -> Part {
    match number % 10 {
        0 => Part::ControlPlane,
        5 => Part::Unknown,
        6 => Part::Changed,
        7 => Part::Revoked,
        8 => Part::Owner,
        9 => Part::Thief,
        _ => Part::Worker,
    }
}

fn host(number: u64) -> SimHost {
    match part(number) {
        Part::ControlPlane => SimHost::new(number, Role::ControlPlane),
        Part::Thief => SimHost::with(number, Uuid::from_u128(u128::from(number - 1)), "", Role::Worker),
        Part::Changed => {
            let mut host = SimHost::new(number, Role::Worker);
            host.tpm.extend(4, &[3; 32]);
            host
        }
        _ => SimHost::new(number, Role::Worker),
    }
}

/// Returns how often a replica was killed.
fn fleet(seed: u64, hosts: u64) -> u64 {
    let mut world = World::new(3, seed);
    assert!(world.run_until_so(MINUTE, |world| world.node().is_some()), "seed {seed}: no replica speaks");
    for number in 1..=hosts {
        world.add(host(number));
    }
    let enrolled: Vec<_> = world
        .hosts
        .iter()
        .filter(|host| part(host.number) != Part::Unknown)
        .map(|host| json!({"ek": host.ek(), "controlPlane": part(host.number) == Part::ControlPlane}))
        .collect();
    let revoked: Vec<String> =
        world.hosts.iter().filter(|host| part(host.number) == Part::Revoked).map(SimHost::ek).collect();
    world.send_policy(&policy(1, &entry(&enrolled, &[])));
    let is_in_force = |world: &World| world.node().is_some_and(|node| node.policy_state == PolicyState::InForce);
    assert!(world.run_until_so(MINUTE, is_in_force), "seed {seed}: no policy");

    world.faults = Faults { lost: 15, doubled: 10, delay_ms_max: 800, crashes: 300 };
    for at in 0..world.hosts.len() {
        world.begin(at);
        let wait = world.dice() % 500;
        world.run_for(Duration::from_millis(wait));
    }
    world.run_for(5 * MINUTE);
    world.send_policy(&policy(2, &entry(&enrolled, &revoked)));
    world.run_for(5 * MINUTE);

    world.faults = Faults::default();
    let may_be_in = |world: &World, at: usize| match part(world.hosts[at].number) {
        Part::Worker | Part::ControlPlane => world.is_member(at),
        Part::Thief => world.is_member(at) || world.is_member(at - 1),
        _ => true,
    };
    for _ in 0..20 {
        world.run_for(MINUTE);
        if (0..world.hosts.len()).all(|at| may_be_in(&world, at)) {
            break;
        }
        world.send_policy(&policy(2, &entry(&enrolled, &revoked)));
        for at in 0..world.hosts.len() {
            let stuck = world.hosts[at].machine.condition().name() == "committed" && !world.is_member(at);
            if stuck {
                // Locked, and no replica knows it: a host begins again after a reboot.
                world.hosts[at].reboot(Kind::Join);
                world.begin(at);
            }
        }
        world.run_for(10 * MINUTE);
    }
    // Longer than any token is valid: what was not used is revoked.
    world.run_for(20 * MINUTE);
    judge(&world, seed);
    world.crashes
}

/// All hosts that may join have joined, no others, and nothing is left.
fn judge(world: &World, seed: u64) {
    for at in 0..world.hosts.len() {
        let host = &world.hosts[at];
        let what = format!("seed {seed}, host {} {:?}: {:?}", host.number, part(host.number), host.refusals.last());
        match part(host.number) {
            Part::Worker | Part::ControlPlane => assert!(world.is_member(at), "{what}"),
            Part::Unknown | Part::Changed => assert!(host.tokens.is_empty(), "{what}"),
            Part::Thief => assert!(world.is_member(at) != world.is_member(at - 1), "{what}"),
            Part::Owner | Part::Revoked => {}
        }
    }
    assert!(world.store.tokens.is_empty(), "seed {seed}: tokens are left");
    let secrets = world.secrets();
    assert!(secrets.iter().any(|(name, _)| name.starts_with("token")) && world.wire.bytes() > 100_000);
    assert_eq!(world.wire.found(&secrets), BTreeSet::new(), "seed {seed}: the broker saw secrets");
    // The search finds what is sent of every host.
    let sent = [("endorsement key".to_owned(), world.hosts[0].ek_bytes().to_vec())];
    assert_eq!(world.wire.found(&sent).len(), 1, "seed {seed}: the search finds nothing");
    let again = world.tickets_sent - world.tickets.len() as u64;
    eprintln!(
        "seed {seed}: {} writes, {} crashes, {} tickets, {again} sent again",
        world.writes,
        world.crashes,
        world.tickets.len()
    );
}

#[test]
fn whatever_is_killed_and_lost_every_host_that_may_join_joins_once() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let seeds = std::env::var("JOIN_SEEDS").unwrap_or_else(|_| "1..4".to_owned());
    let (from, to) = seeds.split_once("..").expect("JOIN_SEEDS is <from>..<to>");
    let all = from.parse().unwrap()..to.parse().unwrap();
    let crashes: u64 = all.map(|seed| fleet(seed, number("JOIN_HOSTS", 20))).sum();
    assert!(crashes > 0, "nothing was killed");
}
