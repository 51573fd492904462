//! A simulated Sealed Secrets controller. It has the same cryptography as the real one: RSA-OAEP with SHA-256 for a session key, AES-256-GCM for the value, and the
//! scope as label. Its key pair is public, because it is part of this package. What is sealed for a simulated cluster is secret from no one who has the source.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::flux::condition;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::{Kubernetes, ObjectRef};

/// Self-signed certificate of the controller. It says in its subject what it is.
pub const CERTIFICATE: &str = include_str!("../data/sealing-simulated.crt");

const PRIVATE_KEY: &str = include_str!("../data/sealing-simulated.key");
const KIND: (&str, &str) = ("bitnami.com/v1alpha1", "SealedSecret");
const MANAGER: &str = "sealed-secrets-controller";

/// Why a value cannot be unsealed. Says nothing about the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// The text is not what a sealing client makes.
    #[error("value {key:?} is not a sealed value")]
    Form {
        /// Name of the value.
        key: String,
    },
    /// Sealed for another certificate, namespace or name, or changed since.
    #[error("no key could decrypt secret ({key})")]
    Key {
        /// Name of the value.
        key: String,
    },
}

struct Unsealer {
    key: OaepPrivateDecryptingKey,
}

impl std::fmt::Debug for Unsealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unsealer").finish_non_exhaustive()
    }
}

fn pem_body(pem: &str) -> Vec<u8> {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    STANDARD.decode(lines.collect::<String>()).expect("the key in the package is PEM, as a test shows")
}

impl Unsealer {
    fn new() -> Self {
        let key = PrivateDecryptingKey::from_pkcs8(&pem_body(PRIVATE_KEY))
            .expect("the key in the package is PKCS#8, as a test shows");
        Self { key: OaepPrivateDecryptingKey::new(key).expect("an RSA key of 2048 bits can do OAEP") }
    }

    /// Opens `u16 length | session key | AES-GCM of the value under nonce 0`.
    fn open(&self, key: &str, sealed: &str, label: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let form = || UnsealError::Form { key: key.to_string() };
        let wrong = || UnsealError::Key { key: key.to_string() };
        let bytes = STANDARD.decode(sealed).map_err(|_| form())?;
        let (length, rest) = bytes.split_first_chunk::<2>().ok_or_else(form)?;
        let (session, value) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or_else(form)?;
        let mut buffer = vec![0; self.key.min_output_size()];
        let session =
            self.key.decrypt(&OAEP_SHA256_MGF1SHA256, session, &mut buffer, Some(label)).map_err(|_| wrong())?;
        let session = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, session).map_err(|_| wrong())?);
        let mut value = value.to_vec();
        let plain = session
            .open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut value)
            .map_err(|_| wrong())?;
        Ok(plain.to_vec())
    }

    /// The `data` of the Secret that a SealedSecret stands for.
    fn unseal(&self, object: &Value) -> Result<Value, UnsealError> {
        let label = label(object);
        let mut data = Map::new();
        for (key, sealed) in object["spec"]["encryptedData"].as_object().into_iter().flatten() {
            let plain = self.open(key, sealed.as_str().unwrap_or_default(), label.as_bytes())?;
            data.insert(key.clone(), json!(STANDARD.encode(plain)));
        }
        Ok(Value::Object(data))
    }
}

/// What a value was bound to when it was sealed: name and namespace unless an annotation widens the scope.
fn label(object: &Value) -> String {
    let metadata = &object["metadata"];
    let is = |scope: &str| metadata["annotations"][format!("sealedsecrets.bitnami.com/{scope}")] == "true";
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    if is("cluster-wide") {
        String::new()
    } else if is("namespace-wide") {
        text("namespace").to_string()
    } else {
        format!("{}/{}", text("namespace"), text("name"))
    }
}

#[derive(Debug)]
pub struct SealedSecrets {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SealedSecrets {
    /// Starts a controller on an API.
    pub fn start(kubernetes: Kubernetes) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let unsealer = Unsealer::new();
            let mut changes = kubernetes.changes();
            loop {
                changes.mark_unchanged();
                for object in kubernetes.list(KIND.0, KIND.1, None) {
                    if !condition::is_observed(&object) && !condition::is_deleted(&object) {
                        reconcile(&kubernetes, &unsealer, &object);
                    }
                }
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = kubernetes.stopped() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
        Self { stop, task }
    }

    /// Stops it; Secrets stay.
    pub async fn stop(self) {
        self.stop.cancel();
        // A panic of the controller has been reported by the panic hook.
        let _ = self.task.await;
    }
}

fn reconcile(kubernetes: &Kubernetes, unsealer: &Unsealer, object: &Value) {
    let synced = unsealer.unseal(object).map_err(|error| error.to_string());
    let synced = synced.and_then(|data| apply(kubernetes, object, data).map_err(|error| error.message));
    let (status, message) = match &synced {
        Ok(()) => ("True", ""),
        Err(message) => ("False", message.as_str()),
    };
    let time = crate::kubernetes::store::timestamp(crate::kubernetes::wall_ms());
    let report = json!({
        "observedGeneration": object["metadata"]["generation"],
        "conditions": [{ "type": "Synced", "status": status, "message": message, "lastTransitionTime": time, "lastUpdateTime": time }]
    });
    match kubernetes.merge_status(MANAGER, &ObjectRef::of(object), report) {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => tracing::warn!(%error, "simulated Sealed Secrets controller could not report"),
    }
}

fn apply(kubernetes: &Kubernetes, object: &Value, data: Value) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    let template = &object["spec"]["template"];
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"],
            "ownerReferences": [{ "apiVersion": KIND.0, "kind": KIND.1, "name": metadata["name"], "uid": metadata["uid"], "controller": true }]
        }
    });
    if let Some(secret_type) = template["type"].as_str() {
        secret["type"] = json!(secret_type);
    }
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            secret["metadata"][field] = template["metadata"][field].clone();
        }
    }
    kubernetes.apply(MANAGER, secret).map(|_| ())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rsa::{OaepPublicEncryptingKey, PublicEncryptingKey};

    use super::*;
    use crate::kubernetes::KubernetesOptions;

    fn public() -> PublicEncryptingKey {
        PrivateDecryptingKey::from_pkcs8(&pem_body(PRIVATE_KEY)).unwrap().public_key()
    }

    fn seal(plain: &[u8], label: &str) -> String {
        let key = OaepPublicEncryptingKey::new(public()).unwrap();
        let session = [7; 32];
        let mut wrapped = vec![0; key.ciphertext_size()];
        let wrapped = key.encrypt(&OAEP_SHA256_MGF1SHA256, &session, &mut wrapped, Some(label.as_bytes())).unwrap();
        let mut value = plain.to_vec();
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &session).unwrap());
        cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut value).unwrap();
        let length = u16::try_from(wrapped.len()).unwrap().to_be_bytes();
        STANDARD.encode([&length[..], wrapped, &value].concat())
    }

    #[test]
    fn the_certificate_is_that_of_the_key() {
        let certificate = pem_body(CERTIFICATE);
        let key = public().as_der().unwrap();
        assert!(certificate.windows(key.as_ref().len()).any(|part| part == key.as_ref()));
    }

    #[test]
    fn a_value_opens_only_under_its_label() {
        let unsealer = Unsealer::new();
        let sealed = seal(b"pa\"ss", "n/s");
        assert_eq!(unsealer.open("k", &sealed, b"n/s").unwrap(), b"pa\"ss");
        assert_eq!(unsealer.open("k", &sealed, b"n/other"), Err(UnsealError::Key { key: "k".into() }));
        for text in ["", "AA==", "not base64", "/////w=="] {
            assert_eq!(unsealer.open("k", text, b""), Err(UnsealError::Form { key: "k".into() }), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_sealed_secret_becomes_a_secret_and_says_so() {
        let kubernetes = Kubernetes::new(KubernetesOptions::default());
        let controller = SealedSecrets::start(kubernetes.clone());
        let object = |name: &str, sealed: String| {
            json!({"apiVersion": KIND.0, "kind": KIND.1, "metadata": {"name": name, "namespace": "default"},
                "spec": {"encryptedData": {"k": sealed}, "template": {"type": "Opaque", "data": null}}})
        };
        kubernetes.apply("test", object("good", seal(b"hello", "default/good"))).unwrap();
        kubernetes.apply("test", object("bad", seal(b"hello", "default/good"))).unwrap();
        let mut changes = kubernetes.changes();
        let synced = |name: &str| {
            let object = kubernetes.get(KIND.0, KIND.1, "default", name).unwrap();
            condition::is_observed(&object).then(|| object["status"]["conditions"][0]["status"] == "True")
        };
        let both = async {
            while synced("good").is_none() || synced("bad").is_none() {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), both).await.expect("in time");
        assert_eq!((synced("good"), synced("bad")), (Some(true), Some(false)));
        let secret = kubernetes.get("v1", "Secret", "default", "good").unwrap();
        assert_eq!(secret["data"]["k"], json!(STANDARD.encode("hello")));
        assert!(kubernetes.get("v1", "Secret", "default", "bad").is_err());
        kubernetes
            .delete(&ObjectRef { api_version: KIND.0, kind: KIND.1, namespace: "default", name: "good" })
            .unwrap();
        assert!(kubernetes.get("v1", "Secret", "default", "good").is_err(), "it goes with its owner");
        controller.stop().await;
    }
}
