//! What happens around Kerberos keys: what krb-keys asks for is done, people change what they want, and things break.
//! The model of KDC and Secrets is in [`crate::model::keys`].

use std::collections::BTreeMap;

use kerberos_client::{KdcError, Principal};
use krb_keys::event::{Effect, Event, KeyError, Resource};
use krb_keys::reconcile::{Action, KeySpec, Meta, Validity};
use krb_keys::spec::{KeyType, Kind, ResourceId, SecretKey, Spec};

use crate::model::disk::Disk;
use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::keys::{Content, KeySite, KeyWork, KnownPrincipal, away};
use crate::model::mutation::Mutation;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::model::transition::{Keying, Transition};
use crate::world::{World, trace};

/// Resources of a cluster that people make; each has a principal and a place of its own.
const NAMES: &[&str] = &["robot", "oven", "belt"];

impl World {
    /// krb-keys asks for something; it is done later.
    pub(crate) fn ask_for_keys(&mut self, id: ProcessId, effect: Effect) {
        let Some((site, life)) = self.place_of_keys(id) else { return };
        let lag = self.random.millis(1..100);
        self.after(lag, Happening::Keys(site, id, life, Box::new(KeyWork::Asked(effect))));
    }

    fn place_of_keys(&self, id: ProcessId) -> Option<(ClusterId, u64)> {
        let process = self.processes.get(&id)?;
        Some((process.role.cluster()?, process.life))
    }

    /// It is done. A process that is gone gets no answer.
    // long: an arm for each thing that is asked
    pub(crate) fn on_keys(&mut self, site: ClusterId, id: ProcessId, life: u64, work: KeyWork) {
        let is_alive = self.processes.get(&id).is_some_and(|process| process.life == life && process.program.is_some());
        // What was sent before a process was killed may have arrived, or not.
        if !is_alive && self.random.chance(500) {
            return;
        }
        let is_up = self.clusters.get(&site).is_some_and(|cluster| cluster.down_until.is_none());
        let mono = self.mono;
        let is_doubted = self.mutation == Some(Mutation::DoubtsGoodKeys) && self.random.chance(100);
        let says_nothing = self.random.chance(500);
        let Some(keys) = self.key_sites.get_mut(&site) else { return };
        let is_away = keys.kdc_away_until.is_some_and(|until| mono < until);
        let kdc = || {
            let reason = "no answer that is known".to_owned();
            KeyError::Kdc(if says_nothing { KdcError::Refused(reason) } else { KdcError::Unreachable(reason) })
        };
        let answer = match work {
            KeyWork::Asked(Effect::Observe(of, request)) => {
                let seen = if is_away && !request.principals.is_empty() {
                    Err(kdc())
                } else {
                    keys.look(&request, is_up).map(|mut observed| {
                        let material = observed.secret.as_mut().and_then(|secret| secret.material.as_mut());
                        if let Some(material) = material.filter(|_| is_doubted) {
                            material.validity = Validity::Invalid;
                        }
                        observed
                    })
                };
                Event::Seen(of, seen)
            }
            KeyWork::Asked(Effect::Act { id: of, uid, action }) => {
                let needs_kdc = matches!(
                    action,
                    Action::Create(_) | Action::Allow(..) | Action::MakeKeys { .. } | Action::SetPassword(..)
                );
                let result = if is_away && needs_kdc {
                    Err(kdc())
                } else {
                    match self.act_on_keys((site, id, life), (&of, &uid), action, is_up) {
                        Some(result) => result,
                        // Its second half answers.
                        None => return,
                    }
                };
                Event::Acted(of, result.map(|()| None))
            }
            KeyWork::Asked(Effect::WriteStatus { id: of, status }) => {
                if is_up {
                    if let Some(resource) = keys.resources.get_mut(&of) {
                        resource.status = Some(status);
                        let resource = resource.clone();
                        self.notify_keys(site, Event::Applied(of, resource));
                    }
                    return;
                }
                Event::StatusLost(of)
            }
            KeyWork::Asked(Effect::Node(_)) => return,
            KeyWork::Write { id: of, place, keys: made } => {
                if !is_alive {
                    return;
                }
                let result = if is_up {
                    keys.secrets.insert(place, Content::Keys(made));
                    Ok(None)
                } else {
                    keys.unwritten.insert(((id.0, life), place), made);
                    Err(away())
                };
                Event::Acted(of, result)
            }
        };
        let lag = self.random.millis(1..50);
        self.after(lag, Happening::Input(id, life, Box::new(Input::Keys(answer))));
    }

    /// Does one step; None: it is done in halves, and the other one follows.
    // long: an arm for each step
    fn act_on_keys(
        &mut self,
        (site, id, life): (ClusterId, ProcessId, u64),
        (of, uid): (&ResourceId, &str),
        action: Action,
        is_up: bool,
    ) -> Option<Result<(), KeyError>> {
        trace!(self, "krb-keys of {site:?}: {of}: {action:?}");
        let keys = self.key_sites.get_mut(&site)?;
        let needs_kubernetes = !matches!(action, Action::Create(_) | Action::Allow(..) | Action::MakeKeys { .. });
        if needs_kubernetes && !is_up {
            return Some(Err(away()));
        }
        let gone = |place: &SecretKey| KeyError::Content(place.clone(), "it is gone".to_owned());
        Some(match action {
            Action::Mark { meta, fulfilled } => match keys.mark(of, uid, &meta, fulfilled) {
                Ok(event) => {
                    event.into_iter().for_each(|event| self.notify_keys(site, event));
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Action::Create(principal) => {
                let key = keys.fresh();
                keys.kdc.entry(principal).or_insert(KnownPrincipal { is_enabled: true, key });
                Ok(())
            }
            Action::Allow(principal, is_enabled) => {
                keys.kdc.entry(principal).and_modify(|known| known.is_enabled = is_enabled);
                Ok(())
            }
            Action::MakeKeys { principals, secret, .. } => {
                let kept = keys.unwritten.remove(&((id.0, life), secret.clone()));
                let is_kept = |kept: &BTreeMap<Principal, u64>| {
                    principals.iter().all(|principal| kept.get(principal).copied() == keys.key(principal))
                };
                let made = if let Some(kept) = kept.filter(is_kept) {
                    kept
                } else {
                    let is_proven = keys.is_proven((id.0, life), of, &secret, false);
                    let made: BTreeMap<Principal, u64> =
                        principals.into_iter().map(|principal| (principal, keys.fresh())).collect();
                    for (principal, key) in &made {
                        keys.kdc.entry(principal.clone()).and_modify(|known| known.key = *key);
                    }
                    self.rotated(is_proven, of, &secret);
                    made
                };
                let lag = self.random.millis(1..100);
                let work = KeyWork::Write { id: of.clone(), place: secret, keys: made };
                self.after(lag, Happening::Keys(site, id, life, Box::new(work)));
                return None;
            }
            Action::MakeValue(secret) => {
                let is_proven = keys.is_proven((id.0, life), of, &secret, true);
                let value = keys.fresh();
                keys.secrets.insert(secret.clone(), Content::Text(value));
                self.rotated(is_proven, of, &secret);
                Ok(())
            }
            Action::SetPassword(principal, secret) => match keys.secrets.get(&secret) {
                Some(Content::Text(text)) => {
                    let key = *text;
                    keys.kdc.entry(principal).and_modify(|known| known.key = key);
                    Ok(())
                }
                _ => Err(gone(&secret)),
            },
            Action::Clear(secret) => {
                keys.secrets.remove(&secret);
                Ok(())
            }
            Action::MakeTrust(..)
            | Action::SetTrust(..)
            | Action::MakeSealed(_)
            | Action::Trim(..)
            | Action::ClearSealed(_) => unreachable!("no resource here is sealed, of a trust, or keeps old keys"),
        })
    }

    fn rotated(&mut self, is_proven: bool, of: &ResourceId, place: &SecretKey) {
        self.checks.rotations += 1;
        if !is_proven {
            self.checks.rotated_without_proof(of, place);
        }
    }

    /// Kubernetes says to krb-keys what became of a resource, in order, and not while its API server is away.
    fn notify_keys(&mut self, site: ClusterId, event: Event) {
        let Some(id) = self.process_of(&Role::Keys(site)) else { return };
        let (life, lag) = (self.processes[&id].life, self.random.millis(1..50));
        let down_until = self.clusters.get(&site).and_then(|cluster| cluster.down_until).unwrap_or_default();
        let Some(keys) = self.key_sites.get_mut(&site) else { return };
        let at = (self.mono + lag).max(keys.events_at).max(down_until);
        keys.events_at = at;
        self.at(at, Happening::Input(id, life, Box::new(Input::Keys(event))));
    }

    /// A process of krb-keys lists its resources when it starts.
    pub(crate) fn watch_keys(&mut self, site: ClusterId) {
        for kind in [Kind::KerberosKey, Kind::LocalSecret] {
            let Some(keys) = self.key_sites.get(&site) else { return };
            let of_kind = keys.resources.iter().filter(|(id, _)| id.kind == kind);
            let listed = of_kind.map(|(id, resource)| (id.name.clone(), resource.clone())).collect();
            self.notify_keys(site, Event::Listed(kind, listed));
        }
    }

    /// People do something around keys, or something breaks.
    pub(crate) fn on_keying(&mut self, keying: Keying) {
        let sites: Vec<ClusterId> = self.key_sites.keys().copied().collect();
        let Some(site) = self.random.pick(&sites).copied() else { return };
        if keying == Keying::Create {
            return self.create_key(site);
        }
        let (length, pick) = (self.random.millis(1_000..40_000), self.random.index(64));
        let mono = self.mono;
        let Some(keys) = self.key_sites.get_mut(&site) else { return };
        let nth = |count: usize| pick.checked_rem(count);
        let resource = nth(keys.resources.len()).and_then(|n| keys.resources.keys().nth(n).cloned());
        let place = nth(keys.secrets.len()).and_then(|n| keys.secrets.keys().nth(n).cloned());
        match keying {
            Keying::Create => {}
            Keying::Delete | Keying::Force | Keying::Move | Keying::Disable => {
                if let Some(id) = resource {
                    self.change_key(site, &id, keying);
                }
            }
            Keying::ChangeByHand => {
                let key = keys.fresh();
                let principal = nth(keys.kdc.len()).and_then(|n| keys.kdc.keys().nth(n).cloned());
                principal.and_then(|principal| keys.kdc.get_mut(&principal)).into_iter().for_each(|it| it.key = key);
            }
            Keying::LoseSecret => {
                place.into_iter().for_each(|place| drop(keys.secrets.remove(&place)));
            }
            Keying::SpoilSecret => {
                place.into_iter().for_each(|place| drop(keys.secrets.insert(place, Content::Garbage)));
            }
            Keying::RestoreKdc => {
                let now = keys.kdc.clone();
                // Without a backup there is nothing to restore.
                if !keys.backup.is_empty() {
                    keys.kdc = std::mem::take(&mut keys.backup);
                }
                keys.backup = now;
            }
            Keying::KdcAway => keys.kdc_away_until = Some(mono + length),
        }
    }

    fn create_key(&mut self, site: ClusterId) {
        let name = self.random.pick(NAMES).copied().unwrap_or("robot");
        let types = [KeyType::Random, KeyType::Password, KeyType::Local];
        let key_type = self.random.pick(&types).copied().unwrap_or(KeyType::Random);
        let Some(keys) = self.key_sites.get_mut(&site) else { return };
        let kind = if key_type == KeyType::Local { Kind::LocalSecret } else { Kind::KerberosKey };
        let id = ResourceId { kind, name: name.to_owned() };
        if keys.resources.contains_key(&id) {
            return;
        }
        let principal = format!("{name}/site@ACME.EXAMPLE").parse().expect("names of a run are principals");
        let secret = format!("{name}-{}/key", if kind == Kind::LocalSecret { "local" } else { "kerberos" });
        let spec = Spec {
            key_type,
            principals: if key_type == KeyType::Local { Vec::new() } else { vec![principal] },
            secret: Some(secret.parse().expect("names of a run are places")),
            seal_with: None,
            keep_old_keys: false,
            account: None,
            remark: None,
        };
        let key_spec = KeySpec { meta: Meta::default(), deleting: false, suspended: false, spec: Ok(spec) };
        let resource = Resource { uid: keys.fresh().to_string(), generation: 1, key_spec, status: None };
        keys.resources.insert(id.clone(), resource.clone());
        self.notify_keys(site, Event::Applied(id, resource));
    }

    fn change_key(&mut self, site: ClusterId, id: &ResourceId, keying: Keying) {
        let Some(keys) = self.key_sites.get_mut(&site) else { return };
        let number = keys.fresh();
        let Some(resource) = keys.resources.get_mut(id).filter(|resource| !resource.key_spec.deleting) else { return };
        match (keying, &mut resource.key_spec.spec) {
            (Keying::Delete, _) if resource.key_spec.meta.finalizer => resource.key_spec.deleting = true,
            (Keying::Delete, _) => {
                keys.resources.remove(id);
                return self.notify_keys(site, Event::Deleted(id.clone()));
            }
            (Keying::Force, _) => {
                resource.key_spec.meta.force_rekey = true;
                keys.fulfilled.retain(|(_, of)| of != id);
            }
            (Keying::Move, Ok(spec)) => {
                let place = format!("{}-{number}/key", id.name);
                spec.secret = Some(place.parse().expect("names of a run are places"));
                resource.generation += 1;
            }
            (Keying::Disable, Ok(spec)) if !spec.principals.is_empty() => {
                let is_disabled = spec.key_type == KeyType::Disabled;
                spec.key_type = if is_disabled { KeyType::Random } else { KeyType::Disabled };
                resource.generation += 1;
            }
            _ => return,
        }
        let resource = resource.clone();
        self.notify_keys(site, Event::Applied(id.clone(), resource));
    }

    /// krb-keys of a cluster starts, and people make the first resources.
    pub(crate) fn begin_keys(&mut self, site: ClusterId) {
        self.key_sites.insert(site, KeySite::default());
        self.add_process(Role::Keys(site), Disk::default());
        for _ in 0..2 {
            let later = self.random.millis(0..8_000);
            self.after(later, Happening::Transition(Transition::Keying(Keying::Create)));
        }
    }

    /// The KDCs answer.
    pub(crate) fn mend_keys(&mut self) {
        self.key_sites.values_mut().for_each(|keys| keys.kdc_away_until = None);
    }
}
