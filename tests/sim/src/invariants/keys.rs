//! Keys: another one is made for a reason only, and in the end each is where it shall be.

use krb_keys::spec::KeyType;

use crate::model::checks::Violation;
use crate::world::World;

/// Every resource says that it is ready, and is.
pub(crate) fn keys_are_in_step(world: &World) -> Result<(), Violation> {
    for (site, keys) in &world.key_sites {
        for (id, resource) in &keys.resources {
            let fault = |what: &str| {
                let detail = format!("{id} of {site:?} {what}: {:?}", resource.status);
                Err(Violation::new("applied-or-visible", detail))
            };
            if resource.key_spec.deleting {
                return fault("is not gone");
            }
            let Ok(spec) = &resource.key_spec.spec else { continue };
            let is_enabled = |principal| keys.kdc.get(principal).is_some_and(|known| known.is_enabled);
            let is_disabled = spec.key_type == KeyType::Disabled;
            if spec.principals.iter().any(|principal| is_enabled(principal) == is_disabled) {
                return fault("has principals that get tickets and shall not, or the reverse");
            }
            if !keys.is_right(spec, spec.secret.as_ref().and_then(|place| keys.secrets.get(place))) {
                return fault("has a key that is not that of the KDC");
            }
            let status = resource.status.as_ref();
            let is_known = |status: &krb_keys::event::Status| {
                status.status == "True" && status.observed_generation == resource.generation
            };
            if resource.key_spec.meta.force_rekey || !status.is_some_and(is_known) {
                return fault("does not say that it is ready");
            }
        }
    }
    Ok(())
}
