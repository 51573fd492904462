//! The work of a Job's container done by a program of this machine. Its arguments and environment are those of the container. What the container would find mounted lies in a
//! directory of its own, to which paths in the environment lead. It reaches the simulated API by `SPARKFLEET_KUBERNETES_URL`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::process::Command;

use super::{Hook, Job};

/// Characters of its last words that a Job reports of a program that failed.
const REASON_CHARACTERS_MAX: usize = 400;

/// Runs `program` for every Job. What it prints is added to the file `log`.
#[must_use]
pub fn hook(program: PathBuf, log: PathBuf) -> Hook {
    Arc::new(move |job| {
        let (program, log) = (program.clone(), log.clone());
        Box::pin(async move { run(&job, &program, &log).await })
    })
}

async fn run(job: &Job, program: &Path, log: &Path) -> Result<(), String> {
    let text = |error: io::Error| format!("the container cannot be started: {error}");
    let root = tempfile::tempdir().map_err(text)?;
    let mounts = mount(job, root.path())?;
    let mut command = Command::new(program);
    command.args(job.arguments()).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    for (name, value) in job.environment() {
        let at = mounts.iter().find_map(|path| value.strip_prefix(path.as_str()).filter(|rest| rest.starts_with('/')));
        command.env(name, if at.is_some() { format!("{}{value}", root.path().display()) } else { value });
    }
    if let Some(url) = job.kubernetes.url() {
        command.env("SPARKFLEET_KUBERNETES_URL", url);
    }
    let output = command.output().await.map_err(text)?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(log).map_err(text)?;
    for said in [&output.stdout, &output.stderr] {
        file.write_all(said).map_err(text)?;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{}: {}", output.status, last.chars().take(REASON_CHARACTERS_MAX).collect::<String>()))
}

/// Lays out the Secrets that the container mounts; the paths where it expects them.
fn mount(job: &Job, root: &Path) -> Result<Vec<String>, String> {
    let pod = &job.object["spec"]["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut paths = Vec::new();
    for mount in list(&job.container()["volumeMounts"]) {
        let path = mount["mountPath"].as_str().ok_or("a mount has no mountPath")?.to_owned();
        let volumes = list(&pod["volumes"]);
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
        let name = volume.and_then(|volume| volume["secret"]["secretName"].as_str());
        let name = name.ok_or_else(|| format!("what is mounted at {path} is not a Secret"))?;
        let secret = job.kubernetes.get("v1", "Secret", &job.namespace, name).map_err(|error| error.message)?;
        let directory = root.join(path.trim_start_matches('/'));
        lay_out(&secret, &directory).map_err(|error| format!("Secret {name} cannot be mounted: {error}"))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Writes the values of a Secret as files that only the own user reads, as a volume of the Secret shows them.
///
/// # Errors
/// The directory cannot be written, or a value is not base64.
pub fn lay_out(secret: &Value, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).map_err(io::Error::other)?;
        let whole = directory.join(format!("..{key}"));
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&whole)?;
        file.write_all(&bytes)?;
        // Who reads it meanwhile sees the old value or the new one.
        fs::rename(&whole, directory.join(key))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::{Kubernetes, KubernetesOptions};
    use serde_json::json;

    #[tokio::test]
    async fn a_program_finds_its_arguments_its_environment_and_its_secrets() {
        let kubernetes = Kubernetes::new(KubernetesOptions::default());
        let metadata = |name: &str| json!({ "name": name, "namespace": "edge" });
        for object in [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "edge" } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"), "stringData": { "token": "t1" } }),
        ] {
            kubernetes.apply("test", object).unwrap();
        }
        let container = |script: &str| {
            json!({
                "args": ["-c", script], "env": [{ "name": "FILE", "value": "/etc/own/token" }, { "name": "OTHER", "value": "/etc/owner" }],
                "volumeMounts": [{ "name": "own", "mountPath": "/etc/own" }]
            })
        };
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let run = hook(PathBuf::from("/bin/sh"), log.clone());
        let job = |script: &str, secret: &str| {
            let volumes = json!([{ "name": "own", "secret": { "secretName": secret } }]);
            let spec = json!({ "template": { "spec": { "containers": [container(script)], "volumes": volumes } } });
            let object = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("j"), "spec": spec });
            Job {
                kubernetes: kubernetes.clone(),
                namespace: "edge".to_owned(),
                name: "j".to_owned(),
                object: Arc::new(object),
            }
        };
        let good = r#"read -r t <"$FILE" || true; [ "$t $OTHER" = 't1 /etc/owner' ] && echo fine && echo well >&2"#;
        assert_eq!(run(job(good, "s")).await, Ok(()));
        assert_eq!(fs::read_to_string(&log).unwrap(), "fine\nwell\n");
        let failed = run(job("echo first >&2; echo 'no broker' >&2; exit 3", "s")).await.unwrap_err();
        assert!(failed.ends_with(": no broker") && failed.contains('3'), "{failed}");
        let missing = run(job(good, "absent")).await.unwrap_err();
        assert!(missing.contains("absent"), "{missing}");
    }
}
