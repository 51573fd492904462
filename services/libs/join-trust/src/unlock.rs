//! What the second key of a host's disk is sealed to, as a ticket or a renewal has it.

use std::collections::BTreeMap;

use join_attestation::Hash;
use join_protocol::attestation::Admitted;
use join_protocol::issuer::Verified;
use join_protocol::message::local_unlock::{LocalUnlock, UnlockValue};
use join_protocol::selection::Bank;
use join_tickets::unlock::{NOTHING, approved, authorized, selected};

use crate::keys::KeyProvider;
use crate::unlock_key::{UnlockError, UnlockKey};

/// Signs the values by which the policy admits a verified host. None: the policy allows no second key, or the host takes none.
///
/// # Errors
/// [`UnlockError`]
pub fn local_unlock(keys: &dyn KeyProvider, verified: &Verified) -> Result<Option<LocalUnlock>, UnlockError> {
    let (body, disk) = (verified.body(), verified.recipient().hello().disk);
    let (Some(admitted), Some(id)) = (&verified.claims().local_unlock, &body.local_unlock) else { return Ok(None) };
    let key = keys.unlock_key(disk, body.disk_generation.as_ref(), id)?;
    signed(&key, admitted).map(Some)
}

/// Signs admitted values.
///
/// # Errors
/// [`UnlockError`]
pub fn signed(key: &UnlockKey, admitted: &Admitted) -> Result<LocalUnlock, UnlockError> {
    let bank = match admitted.bank {
        Bank::Sha256 => Hash::Sha256,
        Bank::Sha384 => Hash::Sha384,
    };
    let chain = selected(admitted.pcrs.keys().copied());
    let (mut pcrs, mut previous) = (BTreeMap::new(), NOTHING);
    for (pcr, values) in &admitted.pcrs {
        let sign = |value: &Vec<u8>| {
            let signature = key.sign(&approved(&previous, bank.id(), *pcr, value), *pcr, chain)?;
            Ok(UnlockValue { value: value.clone(), signature })
        };
        pcrs.insert(*pcr, values.iter().map(sign).collect::<Result<_, _>>()?);
        previous = authorized(key.public(), *pcr, chain);
    }
    Ok(LocalUnlock { bank: admitted.bank, key: *key.public(), pcrs })
}
