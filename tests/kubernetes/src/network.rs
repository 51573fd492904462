//! Addresses of one control plane: a /24 of its own, so that every program has its usual port and no two tests meet.
//!
//! Loopback serves all of it but one thing: Kubernetes takes no loopback address for the endpoint of a Service. The network 198.18.0.0/15 (addresses for benchmarks, RFC
//! 2544) is local in the network namespace that `make kubernetes` makes where it may. Where it is local, addresses come from there, and the API server's service proxy reaches pods.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// The port whose listener reserves a network; nothing else uses it ("discard").
const RESERVED: u16 = 9;

/// How many networks are tried.
const ATTEMPTS: usize = 64;

/// A network, reserved until it is dropped.
#[derive(Debug)]
pub struct Network {
    prefix: [u8; 3],
    _reserved: TcpListener,
}

impl Network {
    /// Takes one that is free.
    ///
    /// # Panics
    /// All that were tried are taken.
    #[must_use]
    pub fn reserve() -> Self {
        let benchmark = (0..ATTEMPTS).find_map(|_| Self::try_reserve(|[one, other]| [198, 18 + (one & 1), other]));
        let loopback = || (0..ATTEMPTS).find_map(|_| Self::try_reserve(|[one, other]| [127, one.max(1), other]));
        benchmark.or_else(loopback).unwrap_or_else(|| panic!("{ATTEMPTS} networks of 127.0.0.0/8 are taken"))
    }

    fn try_reserve(prefix: impl Fn([u8; 2]) -> [u8; 3]) -> Option<Self> {
        let random = uuid::Uuid::new_v4().into_bytes();
        let prefix = prefix([random[0], random[1]]);
        let [a, b, c] = prefix;
        // An ephemeral port shows the same and needs no rights, but reserves nothing: two tests may ask for the same network.
        let reserved = TcpListener::bind((Ipv4Addr::new(a, b, c, 1), RESERVED)).or_else(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => TcpListener::bind((Ipv4Addr::new(a, b, c, 1), 1024 + RESERVED)),
            _ => Err(error),
        });
        reserved.ok().map(|reserved| Self { prefix, _reserved: reserved })
    }

    /// The address with this last number.
    #[must_use]
    pub fn address(&self, last: u8) -> IpAddr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, last).into()
    }

    /// The address of the control plane, with a port.
    #[must_use]
    pub fn control_plane(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(1), port)
    }

    /// Whether Services can have pods of this network, so that the API server's service proxy reaches them.
    #[must_use]
    pub fn has_endpoints(&self) -> bool {
        self.prefix[0] != 127
    }
}
