//! Errors of rumqttc in words for operators: what both versions of the protocol have in common. A reason names the server, and the key of the configuration to look at.

use std::error::Error;
use std::io;

use rumqttc::TlsError;
use rumqttc::mqttbytes::Error as CodecError;
use rustls::CertificateError;

use crate::client_id::End;
use crate::server_address::ServerAddress;

pub(super) fn credentials(server: &ServerAddress) -> String {
    format!("{server} refuses the credentials; check mqtt.username, mqtt.password and the client certificate")
}

pub(super) fn client_id(server: &ServerAddress) -> String {
    format!("{server} refuses the client id; check mqtt.client_id_prefix")
}

pub(super) fn too_slow(server: &ServerAddress) -> String {
    format!("{server} did not answer in time (mqtt.connect_timeout_s)")
}

pub(crate) fn takes_nothing(server: &ServerAddress) -> String {
    format!("{server} takes no data (mqtt.connect_timeout_s)")
}

pub(super) fn no_pong(server: &ServerAddress) -> String {
    format!("{server} does not answer pings")
}

pub(super) fn closed(server: &ServerAddress) -> String {
    format!("{server} closed the connection")
}

pub(super) fn too_large_to_take(server: &ServerAddress, bytes: usize, max: usize) -> String {
    format!("a packet of {bytes} bytes arrived from {server}; at most {max} are taken (mqtt.packet_bytes_max)")
}

pub(crate) fn too_large_to_send(bytes: usize, max: usize) -> String {
    format!("a packet of {bytes} bytes was to be sent; at most {max} may be (mqtt.packet_bytes_max)")
}

/// The socket failed while it was in use.
pub(super) fn io(server: &ServerAddress, error: &io::Error) -> String {
    match rustls_error(error) {
        // With TLS 1.3 the server looks at the client certificate when the client takes itself for connected.
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("{server} ended TLS with {alert:?}; check the client certificate, mqtt.cert_file and mqtt.key_file")
        }
        _ if is_close(error) => closed(server),
        _ => format!("{server}: {error}"),
    }
}

/// The bytes were not what they should be. `version`: of MQTT.
pub(super) fn codec(server: &ServerAddress, error: &CodecError, max: usize, version: &str) -> String {
    match error {
        CodecError::PayloadSizeLimitExceeded(bytes) => too_large_to_take(server, *bytes, max),
        CodecError::OutgoingPacketTooLarge { pkt_size, .. } => too_large_to_send(*pkt_size, max),
        CodecError::Io(error) => io(server, error),
        other => format!("{server} sent what is not MQTT {version}: {other}"),
    }
}

/// TLS did not come about.
pub(super) fn tls(server: &ServerAddress, error: &TlsError) -> String {
    let advice = advice(error);
    match error {
        // Its own text would be `I/O: ` and the same.
        TlsError::Io(error) => format!("TLS with {server} failed: {error}{advice}"),
        other => format!("TLS with {server} failed: {other}{advice}"),
    }
}

/// The WebSocket did not come about; or TLS below it.
#[cfg(feature = "websocket")]
pub(super) fn websocket(server: &ServerAddress, error: &(dyn Error + 'static)) -> String {
    match rustls_error(error) {
        Some(cause) => format!("TLS with {server} failed: {cause}{}", advice(error)),
        None => format!("{server} opens no WebSocket for MQTT: {error}; check the port and the path in mqtt.servers"),
    }
}

/// What to do about it.
fn advice(error: &(dyn Error + 'static)) -> &'static str {
    use CertificateError as Fault;
    match rustls_error(error) {
        Some(rustls::Error::InvalidCertificate(fault)) => match fault {
            // A bad signature: an authority of the same name, but with another key.
            Fault::UnknownIssuer | Fault::BadSignature => {
                "; the authority that signed the server's certificate is not in mqtt.ca_file"
            }
            Fault::Expired | Fault::ExpiredContext { .. } => {
                "; the server's certificate has expired, or the clock of this machine is wrong"
            }
            Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
                "; the server's certificate is not valid yet, or the clock of this machine is wrong"
            }
            Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
                "; the server's certificate is for another name than the one in mqtt.servers"
            }
            _ => "; check mqtt.ca_file and the server's certificate",
        },
        _ => "",
    }
}

/// The error of rustls among the causes; it hides in I/O errors.
fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Who ended a connection whose socket failed while it was in use.
pub(super) fn end(error: &io::Error) -> End {
    if is_close(error) { End::ByServer } else { End::Other }
}

fn is_close(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}
