//! Sealed secrets: from their entries into the repositories of their clusters, and what the Devices say of them.

use configdb_schema::document::SealedSecret;

use super::*;
use cluster_manager_contract::SecretsReport;

const SECRET: Uuid = Uuid::from_u128(0x5EC);
const EARLY: &str = "2027-01-15T08:00:00.000Z";
const LATE: &str = "2027-01-15T09:00:00.000Z";

impl Disk {
    /// As the adapter does it on a repository.
    pub(super) fn bring_secrets(&mut self, cluster: Uuid, wanted: &[Arc<SealedSecret>]) -> SecretsReport {
        let mut faults = Vec::new();
        for secret in wanted {
            let path = crate::secrets::path(secret).unwrap();
            let key = format!("{cluster}/{path}");
            let before = self.secrets.get(&key).cloned();
            match crate::secrets::bring(secret, before.as_deref()) {
                Ok(file) => {
                    faults.extend(file.fault);
                    if file.content != before {
                        match file.content {
                            Some(content) => drop(self.secrets.insert(key, content)),
                            None => drop(self.secrets.remove(&key)),
                        }
                        self.push(cluster);
                    }
                }
                Err(fault) => faults.push(fault),
            }
        }
        let prefix = format!("{cluster}/");
        let own = self.secrets.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&prefix)?, bytes)));
        let own = own.map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect();
        let (stored, _) = cluster_manager_contract::StoredSecrets::bounded(crate::secrets::stored(&own));
        let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
        SecretsReport { stored, reason: (!reasons.is_empty()).then(|| reasons.join("; ")) }
    }
}

impl World {
    fn secret(&mut self, cluster: Uuid, key: &str, value: Option<&str>, at: &str) {
        let mut of_key = json!({ "at": at });
        if let Some(value) = value {
            of_key["value"] = json!(value);
        }
        let entry = json!({ "cluster": cluster, "namespace": "fplus-edge", "name": "login", "keys": { key: of_key } });
        self.put(SECRET, "SealedSecret", entry);
        self.settle();
    }

    fn stored(&self, cluster: Uuid) -> Vec<String> {
        let stored = self.devices[&cluster].secrets.stored.clone();
        let secrets = stored.into_iter().flat_map(|stored| stored.0);
        let keys = |secret: cluster_manager_contract::StoredSecret| {
            secret.keys.into_keys().map(move |key| format!("{}/{key}", secret.name))
        };
        secrets.flat_map(keys).collect()
    }
}

#[test]
fn a_secret_comes_into_the_repository_of_its_cluster_and_only_what_is_deleted_goes() {
    let mut world = running();
    world.put_cluster(OTHER, "Weld_Shop");
    world.settle();
    let before = world.device().git_commit.clone();
    world.secret(CLUSTER, "password", Some("AAAA"), EARLY);
    assert_eq!(world.stored(CLUSTER), ["login/password"]);
    assert_eq!(world.stored(OTHER), [""; 0]);
    assert_ne!(world.device().git_commit, before, "the edge is to have this commit");
    assert_eq!(world.device().setup.state, SetupState::Ready);
    // An entry that is gone says nothing: it may have been lost.
    world.delete(SECRET, "SealedSecret");
    world.settle();
    assert_eq!(world.stored(CLUSTER), ["login/password"]);
    world.secret(CLUSTER, "user", Some("BBBB"), EARLY);
    assert_eq!(world.stored(CLUSTER), ["login/password", "login/user"]);
    world.secret(CLUSTER, "password", None, LATE);
    assert_eq!(world.stored(CLUSTER), ["login/user"]);
}

#[test]
fn a_backup_of_configdb_takes_nothing_back_and_that_is_shown() {
    let mut world = running();
    world.secret(CLUSTER, "password", Some("OLD"), EARLY);
    let backup = world.db.clone();
    world.secret(CLUSTER, "password", Some("NEW"), LATE);
    let now = world.disk.secrets.clone();
    world.db = backup;
    world.db.timelines.begin(2, world.db.revision);
    let births = world.db.birth();
    world.feed(births);
    world.run(Duration::from_secs(300));
    assert_eq!(world.disk.secrets, now);
    let reason = world.device().secrets.reason.clone().unwrap();
    assert!(reason.starts_with("the repository has later values of fplus-edge/login (password)"), "{reason}");
    world.secret(CLUSTER, "password", Some("AGAIN"), "2027-01-15T10:00:00.000Z");
    assert_eq!(world.device().secrets.reason, None);
    assert_ne!(world.disk.secrets, now);
}

#[test]
fn a_manager_that_is_killed_or_has_a_full_disk_writes_it_later_and_a_bad_entry_changes_nothing() {
    let mut world = running();
    world.disk.broken = true;
    world.secret(CLUSTER, "password", Some("AAAA"), EARLY);
    assert_eq!(world.stored(CLUSTER), [""; 0]);
    world.start();
    world.settle();
    world.disk.broken = false;
    world.run(Duration::from_secs(300));
    assert_eq!(world.stored(CLUSTER), ["login/password"]);
    world.put(SECRET, "SealedSecret", json!({"cluster": CLUSTER, "namespace": "fplus-edge", "name": 7}));
    world.settle();
    assert_eq!(world.stored(CLUSTER), ["login/password"]);
    // It is of another cluster from now on: what was written before stays.
    world.put_cluster(OTHER, "Weld_Shop");
    world.secret(OTHER, "password", Some("AAAA"), LATE);
    assert_eq!((world.stored(CLUSTER).len(), world.stored(OTHER).len()), (1, 1));
}
