//! `sparkfleet trust ...`: the keys that hosts believe. What the files hold is [`join_trust::files`]'s.

use std::path::{Path, PathBuf};

use join_protocol::terms::Purpose;
use serde_json::json;
use uuid::Uuid;

use super::join_secret;
use crate::arguments::joining::TrustCommand;
use crate::client::{Client, Scope};
use crate::look_up;
use crate::options::{Options, Presentation};
use crate::output;
use join_trust::files::{self as trust, Issued, Present, Wanted};

/// Carries out a trust command.
///
/// # Errors
/// As documented for the exit codes.
pub async fn run(command: TrustCommand) -> anyhow::Result<()> {
    match command {
        TrustCommand::Init { dir, force, options } => init(&dir, force, &options.presentation),
        TrustCommand::Issue { cluster, purpose, dir, out, days, epoch, renew, force, options } => {
            let present = match (renew, force) {
                (true, _) => Present::Renew,
                (false, true) => Present::Replace,
                (false, false) => Present::Refuse,
            };
            let uuid = cluster_uuid(&cluster, &options).await?;
            let wanted = Wanted { cluster: uuid, purpose: purpose.purpose(), days, epoch, present };
            let out = out.unwrap_or_else(|| dir.join(uuid.to_string()));
            issue(&dir, &out, &wanted, &options.presentation)
        }
        TrustCommand::Secret(arguments) => {
            let uuid = cluster_uuid(&arguments.cluster, &arguments.options).await?;
            join_secret::run(*arguments, uuid).await
        }
    }
}

/// A UUID is taken as it is, so that the root's key can lie on a machine that reaches no broker.
async fn cluster_uuid(wanted: &str, options: &Options) -> anyhow::Result<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(wanted) {
        return Ok(uuid);
    }
    let client = Client::open(options, Scope::Config).await?;
    let found = look_up::cluster_entry(&client.fleet, wanted);
    client.close().await;
    found.map(|(uuid, _)| uuid)
}

fn init(dir: &Path, force: bool, presentation: &Presentation) -> anyhow::Result<()> {
    let root = trust::init(dir, force)?;
    let public_key = hex::encode(root.public_key);
    let value = json!({ "key_file": root.key_file, "public_file": root.public_file, "public_key": public_key });
    let lines = || {
        vec![
            format!("root made: {public_key}"),
            format!("  {}  its key: keep it off line; who has it can let anything into every cluster", root.key_file.display()),
            format!("  {}  its public half: every host pins it", root.public_file.display()),
            "Next: certify a join service with `sparkfleet trust issue CLUSTER --purpose join-issuer`, and yourself with \
             `--purpose policy-signer` and `--purpose cluster-admin`."
                .to_owned(),
        ]
    };
    output::print(presentation.output, lines, &value)
}

fn issue(dir: &Path, out: &Path, wanted: &Wanted, presentation: &Presentation) -> anyhow::Result<()> {
    let issued = trust::issue(dir, out, wanted, trust::now_ms())?;
    let Issued { key_file, certificates_file, master_file, root_file, not_after_ms } = &issued;
    let value = json!({
        "cluster": wanted.cluster, "purpose": wanted.purpose.name(), "epoch": wanted.epoch, "not_after": output::moment(*not_after_ms),
        "key_file": key_file, "certificates_file": certificates_file, "master_file": master_file, "root_file": root_file
    });
    let lines = || {
        let mut lines = vec![format!(
            "{} certified for cluster {} until {}, epoch {}",
            wanted.purpose,
            wanted.cluster,
            output::moment(*not_after_ms),
            wanted.epoch
        )];
        let file = |path: &PathBuf, what: &str| format!("  {}  {what}", path.display());
        lines.push(file(key_file, "its key: only for its owner"));
        lines.push(file(certificates_file, "its certificates: no secret"));
        lines.extend(master_file.iter().map(|path| {
            file(path, "the cluster's master secret: back it up; without it no disk of the cluster opens again")
        }));
        lines.push(file(root_file, "public key of the root: hosts of the cluster pin it"));
        lines.push(next(wanted.purpose).to_owned());
        lines
    };
    output::print(presentation.output, lines, &value)
}

const fn next(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::JoinIssuer => {
            "Next: give these files to the cluster's join service with `sparkfleet trust secret`, write a policy with `sparkfleet policy init`, and \
             provision hosts with `sparkfleet host prepare`."
        }
        Purpose::PolicySigner => {
            "Next: sign a policy with `sparkfleet policy set`. Who has this key says which hosts are admitted: keep it on your machine, not on a server."
        }
        Purpose::ClusterAdmin | Purpose::Authority => {
            "Next: make the first member with `sparkfleet host init`. Take the key off line again afterwards."
        }
    }
}
