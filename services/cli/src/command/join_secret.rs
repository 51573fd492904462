//! `sparkfleet trust secret`: the Secret that a cluster's join service begins with, from the files of trust on this machine and the authority of its Kubernetes. It is checked as the
//! join service reads it, before anything is written.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use join_tickets::kubeadm::CONTROL_PLANE_FILES;
use join_trust::replica::{FILES, Files, Trust};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Map, Value, json};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::arguments::joining::JoinSecretArguments;
use crate::output;

/// Who has written the Secret, for Kubernetes.
const MANAGER: &str = "sparkfleet";
/// The most bytes of one file: the join service takes no more.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Writes the Secret to the cluster, or to a file.
///
/// # Errors
/// With [`exit::CONFIG`]: a file is missing or wrong; with [`exit::UNAVAILABLE`]: Kubernetes is not reached; else Kubernetes does not take it.
pub async fn run(arguments: JoinSecretArguments, cluster: Uuid) -> anyhow::Result<()> {
    let JoinSecretArguments { dir, pki, server_token, namespace, name, kubernetes_url, out, options, .. } = arguments;
    let mut files = collect(&dir.join(cluster.to_string()), pki.as_deref(), server_token.as_deref())?;
    let client = match &out {
        Some(_) => None,
        None => Some(connect(kubernetes_url.as_deref()).await?),
    };
    if !files.contains_key("ca.crt")
        && let Some(client) = &client
    {
        files.insert("ca.crt".to_owned(), authority(client, &namespace).await?);
    }
    let trust = Trust::read(&files, cluster).context("the join service could not use these files");
    let trust = trust.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let manifest = manifest(&files, &namespace, &name, cluster);
    match (&out, &client) {
        (Some(out), _) => write(out, &manifest)?,
        (None, Some(client)) => apply(client, &namespace, &name, &manifest).await?,
        (None, None) => {}
    }
    let serves = serves(&trust);
    let names: Vec<&String> = files.keys().collect();
    let value = json!({ "cluster": cluster, "namespace": namespace, "name": name, "keys": names, "serves": serves });
    let place = out.filter(|out| out != Path::new("-"));
    let lines = || {
        let written = match &place {
            Some(out) => format!("{} holds Secret {namespace}/{name}; mode 0600, and not for git", out.display()),
            None => format!("Secret {namespace}/{name} written"),
        };
        std::iter::once(written).chain(serves.iter().map(|line| format!("  {line}"))).collect()
    };
    match client.is_some() || place.is_some() {
        true => output::print(options.presentation.output, lines, &value),
        // The manifest went to standard output, for `kubectl apply -f -`.
        false => Ok(()),
    }
}

/// The files of the join service: those in `trust`, and of kubeadm's directory those that are there.
fn collect(trust: &Path, pki: Option<&Path>, server_token: Option<&Path>) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for name in FILES {
        files.extend(optional(&trust.join(name))?.map(|content| ((*name).to_owned(), content)));
    }
    for path in pki.iter().flat_map(|_| ["ca.crt", "ca.key"].iter().chain(&CONTROL_PLANE_FILES)) {
        let content = pki.and_then(|pki| optional(&pki.join(path)).transpose()).transpose()?;
        files.extend(content.map(|content| (path.replace('/', "-"), content)));
    }
    if pki.is_some() && !files.contains_key("ca.crt") {
        let error = anyhow!("there is no ca.crt in the directory of --pki");
        return Err(exit::with_code(exit::CONFIG, error));
    }
    if let Some(file) = server_token {
        let Some(token) = optional(file)? else {
            return Err(exit::with_code(exit::CONFIG, anyhow!("--server-token: {} is missing", file.display())));
        };
        files.insert("k3s-server-token".to_owned(), token);
    }
    Ok(files)
}

/// A file that need not be there.
fn optional(path: &Path) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    match std::fs::read(path).map(Zeroizing::new) {
        Ok(content) if content.len() > FILE_BYTES_MAX => {
            Err(wrong(anyhow!("{} has more than {FILE_BYTES_MAX} bytes", path.display())))
        }
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))),
    }
}

async fn connect(url: Option<&str>) -> anyhow::Result<kube::Client> {
    let client = kubernetes_client::connect(url).await;
    client.map_err(|error| exit::with_code(exit::UNAVAILABLE, anyhow::Error::new(error).context("Kubernetes")))
}

fn api(client: &kube::Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The cluster's authority as Kubernetes gives it to every namespace.
async fn authority(client: &kube::Client, namespace: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let read = || format!("cannot read the authority of the cluster (ConfigMap {namespace}/kube-root-ca.crt)");
    let map = api(client, namespace, "ConfigMap").get("kube-root-ca.crt").await.with_context(read)?;
    let text = map.data["data"]["ca.crt"].as_str().with_context(read)?;
    Ok(Zeroizing::new(text.as_bytes().to_vec()))
}

fn manifest(files: &Files, namespace: &str, name: &str, cluster: Uuid) -> Value {
    let data: Map<String, Value> =
        files.iter().map(|(name, content)| (name.clone(), Value::from(STANDARD.encode(&**content)))).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"namespace": namespace, "name": name, "annotations": {"sparkfleet/cluster": cluster}},
    })
}

async fn apply(client: &kube::Client, namespace: &str, name: &str, manifest: &Value) -> anyhow::Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    let written = api(client, namespace, "Secret").patch(name, &params, &Patch::Apply(manifest)).await;
    written.map(drop).with_context(|| format!("cannot write Secret {namespace}/{name}"))
}

fn write(out: &Path, manifest: &Value) -> anyhow::Result<()> {
    let text = Zeroizing::new(output::yaml(manifest)?);
    if out == Path::new("-") {
        return std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    }
    Ok(atomic_file::write(out, text.as_bytes(), Some(OWNER_ONLY))?)
}

/// What a join service can do with these keys.
fn serves(trust: &Trust) -> Vec<String> {
    let kubernetes = &trust.kubernetes;
    let so = |is: bool, yes: &str, no: &str| if is { yes.to_owned() } else { no.to_owned() };
    vec![
        format!("the issuer's certificate is valid until {}", output::moment(trust.not_after_ms)),
        so(
            kubernetes.authority.is_some(),
            "certifies kubelets (kubeadm)",
            "certifies no kubelets: kubeadm needs ca.key (--pki), k3s does it by itself",
        ),
        so(
            kubernetes.control_plane_files.is_some() || kubernetes.server_token.is_some(),
            "admits further control planes",
            "admits no further control planes: that needs all keys of --pki (kubeadm) or --server-token (k3s)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_protocol::terms::Purpose;
    use join_trust::files::{Present, Wanted, init, issue};

    const CLUSTER: Uuid = Uuid::from_u128(7);

    /// A directory with the trust of one cluster in `trust/`, and kubeadm's keys in `pki/`.
    fn site() -> tempfile::TempDir {
        let site = tempfile::tempdir().unwrap();
        let (trust, pki) = (site.path().join("trust"), site.path().join("pki"));
        init(&trust, false).unwrap();
        let wanted =
            Wanted { cluster: CLUSTER, purpose: Purpose::JoinIssuer, days: 1, epoch: 1, present: Present::Refuse };
        issue(&trust, &trust.join(CLUSTER.to_string()), &wanted, 1_800_000_000_000).unwrap();
        std::fs::create_dir_all(pki.join("etcd")).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = parameters.self_signed(&key).unwrap().pem();
        std::fs::write(pki.join("ca.crt"), ca).unwrap();
        std::fs::write(pki.join("ca.key"), key.serialize_pem()).unwrap();
        for path in CONTROL_PLANE_FILES {
            if !path.starts_with("ca.") {
                std::fs::write(pki.join(path), path).unwrap();
            }
        }
        site
    }

    #[test]
    fn the_secret_is_what_the_join_service_reads() {
        let site = site();
        let trust = site.path().join("trust").join(CLUSTER.to_string());
        let files = collect(&trust, Some(&site.path().join("pki")), None).unwrap();
        let secret = manifest(&files, "fplus-edge", "sparkfleet-join", CLUSTER);
        let data = secret["data"].as_object().unwrap();
        let read = |(name, value): (&String, &Value)| {
            (name.clone(), Zeroizing::new(STANDARD.decode(value.as_str().unwrap()).unwrap()))
        };
        let read: Files = data.iter().map(read).collect();
        assert!(read.keys().all(|name| FILES.contains(&name.as_str())), "nothing else goes in");
        let trust = Trust::read(&read, CLUSTER).unwrap();
        assert!(trust.kubernetes.authority.is_some() && trust.kubernetes.control_plane_files.is_some());
        assert!(serves(&trust)[1..].iter().all(|line| !line.contains("no ")));
        assert_eq!(Trust::read(&read, Uuid::from_u128(8)).unwrap_err().file, "issuer.certificates");
        // Neither the root's key nor the administrator's lies where it is taken from.
        assert!(!data.contains_key("root.key") && !data.contains_key("admin.key"));
    }

    #[test]
    fn what_is_missing_is_named_and_a_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let site = site();
        let trust = site.path().join("trust").join(CLUSTER.to_string());
        let without = collect(&trust, None, None).unwrap();
        assert_eq!(Trust::read(&without, CLUSTER).unwrap_err().file, "ca.crt", "the cluster's own is taken then");
        assert!(format!("{:#}", collect(&trust, Some(&trust), None).unwrap_err()).contains("no ca.crt"));
        let token = site.path().join("token");
        let error = format!("{:#}", collect(&trust, None, Some(&token)).unwrap_err());
        assert!(error.starts_with("--server-token: ") && error.ends_with("is missing"), "{error}");
        let out = site.path().join("secret.yaml");
        write(&out, &manifest(&without, "n", "s", CLUSTER)).unwrap();
        assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
