//! The accounts that resources want: published as Devices, answered by commands.
//!
//! What is published of a resource is what is recorded on it. So a restart publishes the same, and a resource that is suspended or full of mistakes keeps what it had. The answer
//! is kept in memory until it is recorded.

use std::collections::BTreeMap;

use krb_keys_contract::names::{account_device, resource_of};
use krb_keys_contract::{AccountDecision, AccountDevice, AccountRequest};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{DeviceId, Metric, Now, TypedMetrics};

use super::{Entry, State};
use crate::event::{Effect, Resource};
use crate::spec::{Kind, ResourceId};

/// The Devices as they were published last.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<DeviceId, AccountDevice>);

/// The account that is published of a resource. One that is being deleted wants none.
pub(super) fn published(resource: &Resource) -> Option<&AccountRequest> {
    let recorded = resource.key_spec.meta.record.account.as_ref().filter(|_| !resource.key_spec.deleting)?;
    Some(&recorded.request)
}

fn device(id: &ResourceId, entry: &Entry) -> Option<(DeviceId, AccountDevice)> {
    let request = published(&entry.resource).filter(|_| id.kind == Kind::KerberosKey)?.clone();
    let recorded = entry.resource.key_spec.meta.record.account.as_ref().and_then(|account| account.uuid);
    let (answered, refused) = match &entry.answer {
        Some(Ok(uuid)) => (Some(*uuid), None),
        Some(Err(reason)) => (None, Some(reason.clone())),
        None => (None, None),
    };
    Some((account_device(&id.name)?, AccountDevice { request, uuid: answered.or(recorded), refused, since: 0 }))
}

impl State {
    /// Takes an answer over, if it is to the published request.
    pub(super) fn on_account_command(&mut self, device: &DeviceId, metrics: &[Metric], now: Now) {
        let answer = match AccountDecision::from_metrics(metrics) {
            Some(Ok(answer)) => answer,
            Some(Err(reason)) => return tracing::warn!(device_id = %device, reason, "an answer cannot be read"),
            None => return tracing::debug!(device_id = %device, "command ignored: it is not an answer"),
        };
        let Some(name) = resource_of(device) else { return };
        let id = ResourceId { kind: Kind::KerberosKey, name };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if published(&entry.resource).is_none_or(|request| request.digest() != answer.request) {
            return tracing::debug!(resource = %id, "an answer to another request is ignored");
        }
        let result = answer.result();
        if entry.answer.as_ref() == Some(&result) {
            return;
        }
        entry.answer = Some(result);
        entry.due = now.mono;
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.id == id) {
            pass.is_outdated = true;
        }
    }

    /// Publishes which accounts are wanted. Before all resources are known nothing is published, so that no reader takes half of them for all.
    pub(super) fn publish_accounts(&mut self, now: Now) {
        if !self.is_complete() {
            return;
        }
        let mut wanted: BTreeMap<DeviceId, AccountDevice> =
            self.entries.iter().filter_map(|(id, entry)| device(id, entry)).collect();
        for (device, account) in &mut wanted {
            let before = self.accounts.0.get(device).filter(|before| before.state() == account.state());
            account.since = before.map_or(now.wall, |before| before.since);
        }
        for (device, account) in &wanted {
            let before = self.accounts.0.get(device);
            let update = match before {
                Some(before) if before == account => continue,
                Some(before) => {
                    NodeUpdate::Set { device: Some(device.clone()), metrics: account.changes_since(before) }
                }
                None => NodeUpdate::DeviceBirth { device: device.clone(), metrics: account.to_metrics() },
            };
            self.effects.push(Effect::Node(update));
        }
        for device in self.accounts.0.keys().filter(|device| !wanted.contains_key(*device)) {
            self.effects.push(Effect::Node(NodeUpdate::DeviceDeath { device: device.clone() }));
        }
        self.node.accounts = Some(u32::try_from(wanted.len()).unwrap_or(u32::MAX));
        self.accounts.0 = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::RecordedAccount;
    use crate::event::Event;
    use crate::reconcile::Action;
    use crate::reconcile::Validity;
    use crate::state::tests::{Run, id, in_step, looked_at, resource, status_reason as status};
    use sparkplug::edge_node::NodeEvent;
    use uuid::Uuid;

    const ACCOUNT: Uuid = Uuid::from_u128(0xACC);

    fn request(name: &str) -> AccountRequest {
        let class = Some(Uuid::from_u128(1));
        AccountRequest { principal: format!("{name}/Test@A"), class, ..AccountRequest::default() }
    }

    /// It wants an account; `recorded`: what is recorded on it already.
    fn with_account(name: &str, recorded: Option<RecordedAccount>) -> Resource {
        let mut resource = resource(name);
        resource.key_spec.spec.as_mut().unwrap().account = Some(Box::new(request(name)));
        resource.key_spec.meta.record.account = recorded.map(Box::new);
        resource
    }

    fn pending(name: &str) -> Option<RecordedAccount> {
        Some(RecordedAccount { request: request(name), uuid: None })
    }

    fn answer(name: &str, request: &AccountRequest, result: Result<Uuid, String>) -> Event {
        let device = account_device(name);
        let metrics = AccountDecision::new(request, &result).to_metrics();
        Event::Node(NodeEvent::Command { device, timestamp: None, metrics })
    }

    /// What the updates of one event publish of accounts, and the number of them.
    fn updates(run: &mut Run, event: Event) -> (Vec<String>, Option<u32>) {
        run.0.on_event(event, crate::state::tests::at(1));
        let effects = run.0.poll_effects().into_iter();
        let text = |effect| match effect {
            Effect::Node(NodeUpdate::DeviceBirth { device, .. }) => Some(format!("born {device}")),
            Effect::Node(NodeUpdate::DeviceDeath { device }) => Some(format!("dead {device}")),
            Effect::Node(NodeUpdate::Set { device: Some(device), .. }) => Some(format!("changed {device}")),
            _ => None,
        };
        (effects.filter_map(text).collect(), run.0.node().accounts)
    }

    #[test]
    fn nothing_is_said_of_accounts_before_both_lists_and_then_what_is_recorded() {
        let mut run = Run::new(&[]);
        let applied = Event::Applied(id("a"), with_account("a", pending("a")));
        assert_eq!(updates(&mut run, applied), (vec![], None));
        let listed = Event::Listed(Kind::LocalSecret, BTreeMap::new());
        assert_eq!(updates(&mut run, listed), (vec!["born Account-a".to_owned()], Some(1)));
        let applied = Event::Applied(id("b"), with_account("b", None));
        assert_eq!(updates(&mut run, applied), (vec![], Some(1)), "first it is recorded");
        let applied = Event::Applied(id("b"), with_account("b", pending("b")));
        assert_eq!(updates(&mut run, applied), (vec!["born Account-b".to_owned()], Some(2)));
        let mut broken = with_account("b", pending("b"));
        broken.key_spec.spec = Err("a rule".to_owned());
        assert_eq!(updates(&mut run, Event::Applied(id("b"), broken)).1, Some(2), "mistakes end nothing");
        let mut ending = with_account("b", pending("b"));
        ending.key_spec.deleting = true;
        let applied = Event::Applied(id("b"), ending);
        assert_eq!(updates(&mut run, applied), (vec!["dead Account-b".to_owned()], Some(1)));
    }

    #[test]
    fn a_resource_is_in_step_when_its_account_is_answered_and_recorded() {
        let mut run = Run::new(&[]);
        run.begin();
        run.on(Event::Applied(id("a"), with_account("a", pending("a"))), 0);
        let seen = || Event::Seen(id("a"), Ok(in_step("a", Validity::Valid)));
        assert_eq!(status(&run.on(seen(), 0)), Some("AccountPending"));
        assert_eq!(run.0.node().problems.len(), 1);
        let other = AccountRequest { name: Some("x".to_owned()), ..request("a") };
        assert_eq!(looked_at(&run.on(answer("a", &other, Ok(ACCOUNT)), 1)), None, "to another request");
        let effects = run.on(answer("a", &request("a"), Err("not here".to_owned())), 1);
        assert_eq!(looked_at(&effects), Some("a"));
        assert_eq!(status(&run.on(seen(), 1)), Some("Refused"));
        assert_eq!(run.0.node().problems["KerberosKey a"], "the account is refused: not here");
        run.on(answer("a", &request("a"), Ok(ACCOUNT)), 2);
        let effects = run.on(seen(), 2);
        let recorded = RecordedAccount { request: request("a"), uuid: Some(ACCOUNT) };
        assert!(
            matches!(&effects[..], [Effect::Act { action: Action::Mark { meta, .. }, .. }] if meta.record.account.as_deref() == Some(&recorded)),
            "{effects:?}"
        );
        run.on(Event::Acted(id("a"), Ok(None)), 2);
        run.on(Event::Applied(id("a"), with_account("a", Some(recorded))), 2);
        assert_eq!(status(&run.on(seen(), 2)), Some("InStep"));
        assert_eq!(looked_at(&run.on(answer("a", &request("a"), Ok(ACCOUNT)), 3)), None, "a repeat");
    }

    #[test]
    fn what_is_recorded_needs_no_second_answer_and_another_request_does() {
        let mut run = Run::new(&[]);
        run.begin();
        let recorded = RecordedAccount { request: request("a"), uuid: Some(ACCOUNT) };
        run.on(Event::Applied(id("a"), with_account("a", Some(recorded.clone()))), 0);
        let seen = || Event::Seen(id("a"), Ok(in_step("a", Validity::Valid)));
        assert_eq!(status(&run.on(seen(), 0)), Some("InStep"), "after a restart, with no one there to answer");
        let mut other = with_account("a", Some(recorded));
        let renamed = AccountRequest { name: Some("x".to_owned()), ..request("a") };
        other.key_spec.spec.as_mut().unwrap().account = Some(Box::new(renamed.clone()));
        run.on(Event::Applied(id("a"), other.clone()), 1);
        let effects = run.on(seen(), 1);
        let asked = RecordedAccount { request: renamed, uuid: None };
        assert!(
            matches!(&effects[..], [Effect::Act { action: Action::Mark { meta, .. }, .. }] if meta.record.account.as_deref() == Some(&asked)),
            "{effects:?}"
        );
        run.on(Event::Acted(id("a"), Ok(None)), 1);
        other.key_spec.meta.record.account = Some(Box::new(asked));
        run.on(Event::Applied(id("a"), other), 1);
        assert_eq!(status(&run.on(seen(), 1)), Some("AccountPending"));
    }

    #[test]
    fn an_account_that_is_no_longer_wanted_goes_last() {
        let mut run = Run::new(&[]);
        run.begin();
        let mut resource = with_account("a", pending("a"));
        resource.key_spec.spec.as_mut().unwrap().account = None;
        run.on(Event::Applied(id("a"), resource), 0);
        assert_eq!(run.0.node().accounts, Some(1));
        let effects = run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Valid))), 0);
        assert!(
            matches!(&effects[..], [Effect::Act { action: Action::Mark { meta, .. }, .. }] if meta.record.account.is_none()),
            "{effects:?}"
        );
    }

    #[test]
    fn what_is_not_an_answer_is_ignored() {
        let mut run = Run::new(&[]);
        run.begin();
        run.on(Event::Applied(id("a"), with_account("a", pending("a"))), 0);
        run.on(Event::Seen(id("a"), Ok(in_step("a", Validity::Valid))), 0);
        for metrics in [vec![], vec![Metric::new(krb_keys_contract::names::account::ANSWER, "[]")]] {
            for device in ["a", "b"].map(account_device) {
                let command = NodeEvent::Command { device, timestamp: None, metrics: metrics.clone() };
                assert_eq!(run.on(Event::Node(command), 1), []);
            }
        }
    }
}
