//! One entry of `mqtt.servers` as an address.

use std::fmt;

use crate::config_error::MqttConfigError;

/// How bytes travel to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `mqtt://`
    Tcp,
    /// `mqtts://`
    Tls,
    /// `ws://`
    #[cfg(feature = "websocket")]
    WebSocket,
    /// `wss://`
    #[cfg(feature = "websocket")]
    WebSocketTls,
}

impl Scheme {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "mqtt",
            Self::Tls => "mqtts",
            #[cfg(feature = "websocket")]
            Self::WebSocket => "ws",
            #[cfg(feature = "websocket")]
            Self::WebSocketTls => "wss",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Tcp => 1883,
            Self::Tls => 8883,
            #[cfg(feature = "websocket")]
            Self::WebSocket => 80,
            #[cfg(feature = "websocket")]
            Self::WebSocketTls => 443,
        }
    }

    pub(crate) const fn is_tls(self) -> bool {
        match self {
            Self::Tcp => false,
            Self::Tls => true,
            #[cfg(feature = "websocket")]
            Self::WebSocket => false,
            #[cfg(feature = "websocket")]
            Self::WebSocketTls => true,
        }
    }

    const fn has_path(self) -> bool {
        match self {
            Self::Tcp | Self::Tls => false,
            #[cfg(feature = "websocket")]
            Self::WebSocket | Self::WebSocketTls => true,
        }
    }
}

/// One entry of `mqtt.servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) scheme: Scheme,
    /// WebSocket only: empty, or begins with `/`.
    pub(crate) path: String,
}

impl ServerAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, MqttConfigError> {
        let fault = |rule| MqttConfigError::Server { server: text.to_owned(), rule };
        let (scheme, rest) = match text.split_once("://") {
            Some(("mqtt", rest)) => (Scheme::Tcp, rest),
            Some(("mqtts", rest)) => (Scheme::Tls, rest),
            #[cfg(feature = "websocket")]
            Some(("ws", rest)) => (Scheme::WebSocket, rest),
            #[cfg(feature = "websocket")]
            Some(("wss", rest)) => (Scheme::WebSocketTls, rest),
            #[cfg(not(feature = "websocket"))]
            Some(("ws" | "wss", _)) => return Err(fault("is a WebSocket; this program is built without them")),
            _ => return Err(fault("does not begin with mqtt:// or mqtts:// (or ws:// or wss:// for WebSocket)")),
        };
        if rest.contains('@') {
            // The text stays out of the message: it may hold a password.
            return Err(MqttConfigError::Key {
                key: "servers",
                rule: "holds user information (an `@`); use mqtt.username and mqtt.password",
            });
        }
        let (rest, path) = match rest.find('/') {
            Some(at) if scheme.has_path() => rest.split_at(at),
            _ => (rest.strip_suffix('/').unwrap_or(rest), ""),
        };
        if rest.contains(['/', '?', '#', ' ']) || path.contains(['?', '#', ' ']) {
            return Err(fault("has something after the port, or after the path of a WebSocket"));
        }
        let is_bare_ipv6 = rest.starts_with('[') && rest.ends_with(']');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !is_bare_ipv6 => {
                (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(|| fault("has no port from 1 to 65535"))?)
            }
            _ => (rest, scheme.default_port()),
        };
        if host.is_empty() {
            return Err(fault("has no host"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(fault("has an IPv6 address without brackets"));
        }
        if scheme.is_tls() && host.starts_with('[') {
            return Err(fault("uses TLS with an IPv6 address; give the server a name"));
        }
        Ok(Self { host: host.to_owned(), port, scheme, path: path.to_owned() })
    }

    /// The host is this machine, so nothing travels.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}{}", self.scheme.name(), self.host, self.port, self.path)
    }
}
