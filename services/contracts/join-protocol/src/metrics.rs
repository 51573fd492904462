//! How the messages travel as Sparkplug metrics: bytes as they are, one metric a kind of message.
//!
//! A host is the Edge Node `<disk uuid>` of the quarantine group. Its birth has every metric that it will ever publish, those without a message as null; data brings one. What an issuer
//! sends comes as a node command. A command may hold several metrics; each is read alone.

use sparkplug::{DataType, Metric, Value};

use crate::limits;

/// Hello (Bytes; in NBIRTH and NDATA).
pub const HELLO: &str = "Join/Hello";
/// Challenge (Bytes; in NCMD).
pub const CHALLENGE: &str = "Join/Challenge";
/// Refusal in clear (Bytes; in NCMD).
pub const CLEAR_REFUSAL: &str = "Join/Refusal";
/// Evidence (Bytes; in NBIRTH and NDATA).
pub const EVIDENCE: &str = "Join/Evidence";
/// Ticket (Bytes; in NCMD).
pub const TICKET: &str = "Join/Ticket";
/// What was refused may be granted now (Boolean, true; in NCMD). It proves nothing and grants nothing.
pub const ASK_AGAIN: &str = "Join/Ask Again";
/// Progress (Bytes; in NBIRTH and NDATA).
pub const PROGRESS: &str = "Join/Progress";
/// Acknowledgement (Bytes; in NBIRTH and NDATA).
pub const ACKNOWLEDGEMENT: &str = "Join/Acknowledgement";

/// A message of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "one variant a message, named like it")]
pub enum HostMessage {
    Hello(Vec<u8>),
    Evidence(Vec<u8>),
    Progress(Vec<u8>),
    Acknowledgement(Vec<u8>),
}

/// A message of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "one variant a message, named like it")]
pub enum IssuerMessage {
    Challenge(Vec<u8>),
    ClearRefusal(Vec<u8>),
    Ticket(Vec<u8>),
    AskAgain,
}

/// A metric is not a message: wrong type or too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {name:?} {rule}")]
pub struct MetricError {
    /// Name of the metric.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: String,
}

impl HostMessage {
    /// Names of the metrics, all of them Bytes. Each message vouches for itself, so an issuer takes them whatever it thinks of the host's birth.
    pub const NAMES: [&'static str; 4] = [HELLO, EVIDENCE, PROGRESS, ACKNOWLEDGEMENT];

    /// Name of its metric.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => HELLO,
            Self::Evidence(_) => EVIDENCE,
            Self::Progress(_) => PROGRESS,
            Self::Acknowledgement(_) => ACKNOWLEDGEMENT,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let (Self::Hello(bytes) | Self::Evidence(bytes) | Self::Progress(bytes) | Self::Acknowledgement(bytes)) = self;
        bytes
    }

    /// As a metric of NDATA.
    #[must_use]
    pub fn to_metric(&self) -> Metric {
        metric(self.name(), self.bytes())
    }

    /// The metrics of an NBIRTH that carries `messages`.
    #[must_use]
    pub fn birth_metrics(messages: &[Self]) -> Vec<Metric> {
        let metric = |name| {
            let message = messages.iter().find(|message| message.name() == name);
            message.map_or_else(|| Metric::null(name, DataType::Bytes), Self::to_metric)
        };
        Self::NAMES.into_iter().map(metric).collect()
    }

    /// Reads a metric of a host. None: it is not a message, or says that there is none.
    ///
    /// # Errors
    /// It has another type, or is larger than its message may be.
    pub fn from_metric(metric: &Metric) -> Result<Option<Self>, MetricError> {
        let read = |name, max| bytes_of(metric, name, max);
        Ok(match &*metric.name {
            HELLO => read(HELLO, limits::HELLO_BYTES_MAX)?.map(Self::Hello),
            EVIDENCE => read(EVIDENCE, limits::EVIDENCE_BYTES_MAX)?.map(Self::Evidence),
            PROGRESS => read(PROGRESS, limits::PROGRESS_BYTES_MAX)?.map(Self::Progress),
            ACKNOWLEDGEMENT => read(ACKNOWLEDGEMENT, limits::ACKNOWLEDGEMENT_BYTES_MAX)?.map(Self::Acknowledgement),
            _ => None,
        })
    }
}

impl IssuerMessage {
    /// Name of its metric.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Challenge(_) => CHALLENGE,
            Self::ClearRefusal(_) => CLEAR_REFUSAL,
            Self::Ticket(_) => TICKET,
            Self::AskAgain => ASK_AGAIN,
        }
    }

    /// As a metric of NCMD.
    #[must_use]
    pub fn to_metric(&self) -> Metric {
        match self {
            Self::Challenge(bytes) | Self::ClearRefusal(bytes) | Self::Ticket(bytes) => metric(self.name(), bytes),
            Self::AskAgain => Metric::new(self.name(), true),
        }
    }

    /// Reads a metric of a command. None: it is not a message.
    ///
    /// # Errors
    /// It has another type, or is larger than its message may be.
    pub fn from_metric(metric: &Metric) -> Result<Option<Self>, MetricError> {
        let read = |name, max| bytes_of(metric, name, max);
        Ok(match &*metric.name {
            CHALLENGE => read(CHALLENGE, limits::CHALLENGE_BYTES_MAX)?.map(Self::Challenge),
            CLEAR_REFUSAL => read(CLEAR_REFUSAL, limits::CLEAR_REFUSAL_BYTES_MAX)?.map(Self::ClearRefusal),
            TICKET => read(TICKET, limits::TICKET_BYTES_MAX)?.map(Self::Ticket),
            ASK_AGAIN => match &metric.value {
                None | Some(Value::Boolean(false)) => None,
                Some(Value::Boolean(true)) => Some(Self::AskAgain),
                Some(_) => {
                    let rule = format!("must be Boolean, but is {:?}", metric.datatype);
                    return Err(MetricError { name: ASK_AGAIN, rule });
                }
            },
            _ => None,
        })
    }
}

fn metric(name: &str, bytes: &[u8]) -> Metric {
    Metric::new(name, Value::Bytes(bytes.into()))
}

fn bytes_of(metric: &Metric, name: &'static str, max: usize) -> Result<Option<Vec<u8>>, MetricError> {
    let error = |rule| MetricError { name, rule };
    match &metric.value {
        None => Ok(None),
        Some(Value::Bytes(bytes)) if bytes.len() > max => {
            Err(error(format!("has {} bytes; at most {max} are allowed", bytes.len())))
        }
        Some(Value::Bytes(bytes)) => Ok(Some(bytes.to_vec())),
        Some(_) => Err(error(format!("must be Bytes, but is {:?}", metric.datatype))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_both_ways() {
        for message in [
            HostMessage::Hello(vec![1]),
            HostMessage::Evidence(vec![2]),
            HostMessage::Progress(vec![3]),
            HostMessage::Acknowledgement(vec![4]),
        ] {
            assert_eq!(HostMessage::from_metric(&message.to_metric()), Ok(Some(message)));
        }
        for message in [
            IssuerMessage::Challenge(vec![1]),
            IssuerMessage::ClearRefusal(vec![2]),
            IssuerMessage::Ticket(vec![3]),
            IssuerMessage::AskAgain,
        ] {
            assert_eq!(IssuerMessage::from_metric(&message.to_metric()), Ok(Some(message.clone())));
            assert_eq!(HostMessage::from_metric(&message.to_metric()), Ok(None), "a host does not send it");
        }
    }

    #[test]
    fn a_birth_has_every_metric_that_the_host_will_ever_publish() {
        let metrics = HostMessage::birth_metrics(&[HostMessage::Evidence(vec![7])]);
        let shown: Vec<_> = metrics.iter().map(|metric| (&*metric.name, metric.value.is_some())).collect();
        let wanted = [(HELLO, false), (EVIDENCE, true), (PROGRESS, false), (ACKNOWLEDGEMENT, false)];
        assert_eq!(shown, wanted);
        assert!(metrics.iter().all(|metric| metric.datatype == DataType::Bytes));
    }

    #[test]
    fn what_is_not_a_message_is_refused_by_name() {
        let error = HostMessage::from_metric(&Metric::new(HELLO, 1_u64)).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Join/Hello\" must be Bytes, but is UInt64");
        let ten_megabytes = HostMessage::Evidence(vec![0; 10_000_000]).to_metric();
        let error = HostMessage::from_metric(&ten_megabytes).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Join/Evidence\" has 10000000 bytes; at most 163840 are allowed");
        let error = IssuerMessage::from_metric(&Metric::new(TICKET, "text")).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Join/Ticket\" must be Bytes, but is String");
        let error = IssuerMessage::from_metric(&Metric::new(ASK_AGAIN, "text")).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Join/Ask Again\" must be Boolean, but is String");
        assert_eq!(IssuerMessage::from_metric(&Metric::new(ASK_AGAIN, false)), Ok(None));
    }
}
