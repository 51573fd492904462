//! HTTP probes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A probe that takes longer has failed: Kubernetes' default.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Asks. True without a probe, and for one that is not over HTTP.
pub async fn passes(probe: Option<&Probe>, container: &Container, address: IpAddr) -> bool {
    let Some(get) = probe.and_then(|probe| probe.http_get.as_ref()) else { return true };
    let Some(port) = port(&get.port, container) else { return false };
    let path = get.path.as_deref().unwrap_or("/");
    let status = tokio::time::timeout(TIMEOUT, status(SocketAddr::new(address, port), path)).await;
    matches!(status, Ok(Some(200..=399)))
}

fn port(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let ports = container.ports.as_deref().unwrap_or_default();
            ports.iter().find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    u16::try_from(number).ok()
}

async fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(64).read_to_end(&mut answer).await.ok()?;
    let line = String::from_utf8_lossy(&answer).into_owned();
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}
