//! The common start of a service that is a process of its own: signals, and health where the configuration says so. So no service can forget to serve it.
//!
//! This module must not know any service. What runs several services in one process serves health once, and calls their `run` itself.

use std::future::Future;

use anyhow::Context as _;

use crate::exit;
use crate::health::{self, Health, HttpConfig};
use crate::shutdown::Shutdown;

/// The configuration of a service that can be a process of its own.
pub trait ServiceConfig {
    /// Where health and metrics are served.
    fn http(&self) -> &HttpConfig;
}

/// Runs a service until it ends, or is told to by a signal.
///
/// Health is served from before the service starts, so that one that waits for its store or its broker is alive and not ready.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if nothing can listen at `http.listen`; signals cannot be received; or what the service returns.
pub async fn run<C, R, F>(config: C, service: R) -> anyhow::Result<()>
where
    C: ServiceConfig,
    R: FnOnce(C, Shutdown, Health) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    let health = Health::new();
    if let Some(addr) = config.http().listen {
        let serving = health::serve(addr, health.clone(), shutdown.child()).await;
        serving.context("http.listen").map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    }
    service(config, shutdown, health).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    struct Config(HttpConfig);

    impl ServiceConfig for Config {
        fn http(&self) -> &HttpConfig {
            &self.0
        }
    }

    fn listening_at(addr: SocketAddr) -> Config {
        Config(HttpConfig { listen: Some(addr) })
    }

    #[tokio::test]
    async fn an_address_that_is_taken_names_the_key_and_the_service_is_not_started() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = listening_at(taken.local_addr().unwrap());
        let error = run(config, |_, _, _| async { panic!("it was started") }).await.unwrap_err();
        assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
        assert!(format!("{error:#}").starts_with("http.listen: cannot listen on 127.0.0.1:"), "{error:#}");
    }

    #[tokio::test]
    async fn what_a_service_returns_is_returned() {
        let config = listening_at("127.0.0.1:0".parse().unwrap());
        let refused = |_, _, _| async { Err(exit::with_code(exit::REFUSED, anyhow::anyhow!("no"))) };
        assert_eq!(exit::code_of(&run(config, refused).await.unwrap_err()), exit::REFUSED);
    }
}
