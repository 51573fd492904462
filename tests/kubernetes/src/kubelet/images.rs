//! Which program runs for which image.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::{Images, Program};
use crate::programs::Programs;

/// Images whose programs are built with Kubernetes.
const OTHERS: [&str; 3] = ["helm-controller", "kustomize-controller", "sealed-secrets-controller"];

/// This project's programs.
#[derive(Debug, Clone)]
pub struct Ours {
    /// `sparkfleet`.
    pub sparkfleet: PathBuf,
    /// `sparkfleet-edge`.
    pub edge: PathBuf,
    /// `sparkfleet-edge-agent`.
    pub edge_agent: PathBuf,
}

impl Ours {
    /// All of them in one directory, such as `target/release`.
    ///
    /// # Errors
    /// Those that are not there.
    pub fn within(directory: &Path) -> Result<Self, String> {
        let found = |name: &str| {
            let path = directory.join(name);
            if path.is_file() { Ok(path) } else { Err(format!("{} is not there", path.display())) }
        };
        let (sparkfleet, edge) = (found("sparkfleet")?, found("sparkfleet-edge")?);
        Ok(Self { sparkfleet, edge, edge_agent: found("sparkfleet-edge-agent")? })
    }
}

/// The programs that stand for images, whatever their registry and tag. Each listens on its pod's address.
#[must_use]
pub fn of(programs: &Programs, ours: Ours) -> Images {
    let ours =
        [("sparkfleet", ours.sparkfleet), ("sparkfleet-edge", ours.edge), ("sparkfleet-edge-agent", ours.edge_agent)];
    let others = OTHERS.map(|name| (name, programs.program(name)));
    let known: Vec<(&str, PathBuf)> = ours.into_iter().chain(others).collect();
    Box::new(move |image: &str, address: IpAddr| {
        let name = image.rsplit('/').next()?.split(':').next()?;
        let (_, path) = known.iter().find(|(known, _)| *known == name)?;
        let mut program = Program::new(path.clone());
        match name {
            "sparkfleet" => {}
            "sealed-secrets-controller" => {
                program.arguments =
                    vec![format!("--listen-addr={address}:8080"), format!("--listen-metrics-addr={address}:8081")];
            }
            "helm-controller" | "kustomize-controller" => {
                program.arguments =
                    vec![format!("--metrics-addr={address}:8080"), format!("--health-addr={address}:9440")];
            }
            _ => program.environment = vec![("SPARKFLEET__HTTP__LISTEN".to_owned(), format!("{address}:8080"))],
        }
        Some(program)
    })
}
