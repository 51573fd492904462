//! Under which values of PCRs a host that was admitted may open its disk by its TPM: those by which the policy would admit it again.
//!
//! What the policy has values for (`pcrs`) has all of them. What it judges by events has the value of this boot. It also has those that follow from the event log of this boot if another release
//! (`boot.releases`) takes the place of the one that was booted. So a host comes back with an image that the policy has got since its last ticket.

use std::collections::BTreeMap;

use join_protocol::attestation::{Admitted, Expected, Lock, Step};
use join_protocol::limits::UNLOCK_VALUES_MAX;

use crate::event_log::EventLog;
use crate::policy::{Rules, bank_of};

/// Of a host whose quote has been judged as `expected`. None: the policy allows no second key, or the host asks for nothing.
pub(crate) fn admitted(
    rules: &Rules,
    quoted: &BTreeMap<u8, Vec<u8>>,
    log: Option<&[u8]>,
    expected: &Expected,
) -> Option<Admitted> {
    let sealed_to = rules.local_unlock.as_ref().filter(|_| expected.step == Step::Evidence)?;
    // Of a host that is not locked the PCRs are those of its boot.
    let is_open = expected.lock == Lock::Open;
    let log = log.and_then(|log| EventLog::parse(log).ok());
    let predicted = rules.boot.as_ref().zip(log).map(|(boot, log)| boot.predicted(&log, rules.bank));
    let mut predicted = predicted.unwrap_or_default();
    let mut pcrs: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    for index in sealed_to {
        let pinned = rules.pcrs.get(index).filter(|pcr| pcr.enforced);
        let known = pinned.map_or_else(|| predicted.remove(index).unwrap_or_default(), |pcr| pcr.expected.clone());
        // Behind the lock a PCR may have another value than when the key is asked for: systemd measures phases of the boot.
        let of_this_boot = quoted.get(index).filter(|value| is_open || known.contains(value));
        let values = pcrs.entry(*index).or_default();
        for value in of_this_boot.into_iter().chain(&known) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    pcrs.insert(rules.lock.index, vec![rules.lock.before.clone()]);
    bound(&mut pcrs);
    Some(Admitted { bank: bank_of(rules.bank), pcrs })
}

/// Leaves out what was listed first, as an update lists the new image last; the value of this boot stays.
fn bound(pcrs: &mut BTreeMap<u8, Vec<Vec<u8>>>) {
    while pcrs.values().map(Vec::len).sum::<usize>() > UNLOCK_VALUES_MAX {
        match pcrs.values_mut().max_by_key(|values| values.len()) {
            Some(values) if values.len() > 1 => drop(values.remove(1)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_values_lose_those_that_were_listed_first() {
        let values = |numbers: std::ops::Range<u8>| numbers.map(|number| vec![number]).collect::<Vec<_>>();
        let mut pcrs = BTreeMap::from([(4, values(0..3)), (11, values(0..40)), (15, values(0..1))]);
        bound(&mut pcrs);
        assert_eq!((pcrs[&4].len(), pcrs[&15].len()), (3, 1));
        assert_eq!(pcrs[&11], [values(0..1), values(13..40)].concat());
    }
}
