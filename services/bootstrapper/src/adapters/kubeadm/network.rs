//! The network of pods of a first member. kubeadm brings none, and without one every node stays `NotReady`.

use std::fs;
use std::path::{Path, PathBuf};

use bootstrapper_contract::{InitParameters, Manifests};

use crate::adapters::files::below;
use crate::platform::{Outcome, PlatformError};

/// The network of pods in the bootstrapper's package: flannel.
const PACKAGE: &str = "/usr/share/sparkfleet/network/flannel.yaml";
/// The addresses of pods that it has as it is.
const PACKAGE_SUBNET: &str = "10.244.0.0/16";
/// Plugins that it takes from the host.
const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
/// Where they are.
const PLUGIN_DIRECTORY: &str = "/opt/cni/bin";

/// What is applied once the API answers.
#[derive(Debug)]
pub(super) struct PodNetwork {
    /// Addresses of pods; empty: kubeadm's default, none.
    pub subnet: String,
    /// Manifests that are applied as they are.
    pub files: Vec<PathBuf>,
    /// The package's manifest with these addresses.
    pub rendered: Option<String>,
}

impl PodNetwork {
    /// The network that these parameters name, of files below `root`.
    ///
    /// # Errors
    /// A file or a plugin is not on this host, or the package's network cannot have these addresses.
    pub(super) fn of(parameters: &InitParameters, root: &Path) -> Outcome<Self> {
        let subnet = parameters.pod_subnet.clone();
        let files = match &parameters.manifests {
            Manifests::Package => return Self::of_package(subnet, root),
            Manifests::None => &[][..],
            Manifests::Files(paths) => paths,
        };
        let paths = files.iter().map(|path| below(root, Path::new(path)));
        let files = paths.map(there).collect::<Outcome<_>>()?;
        Ok(Self { subnet, files, rendered: None })
    }

    fn of_package(subnet: String, root: &Path) -> Outcome<Self> {
        let subnet = if subnet.is_empty() { PACKAGE_SUBNET.to_owned() } else { subnet };
        // It would need a second network, and a flannel that was built for it.
        if subnet.contains([',', ':']) {
            let text = format!("podSubnet: the network of pods in the package has one IPv4 subnet, not {subnet:?}");
            return Err(PlatformError(format!("{text}; name another one in manifests, or write none")));
        }
        let choice = |error: PlatformError| {
            PlatformError(format!("{error}; name the network of pods in manifests, or write none"))
        };
        let path = there(below(root, Path::new(PACKAGE))).map_err(choice)?;
        for plugin in PLUGINS.map(|plugin| below(root, Path::new(PLUGIN_DIRECTORY)).join(plugin)) {
            if !plugin.is_file() {
                let text = format!("the network of pods needs the plugin {}", plugin.display());
                return Err(PlatformError(format!("{text}; install it, or write none in manifests")));
            }
        }
        let text = fs::read_to_string(&path).map_err(|error| PlatformError::new(path.display(), error))?;
        Ok(Self { rendered: Some(text.replace(PACKAGE_SUBNET, &subnet)), subnet, files: Vec::new() })
    }
}

fn there(path: PathBuf) -> Outcome<PathBuf> {
    if path.is_file() {
        return Ok(path);
    }
    Err(PlatformError(format!("manifests: {} is missing on this host", path.display())))
}
