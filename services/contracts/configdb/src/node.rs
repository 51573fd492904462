//! The metrics of ConfigDB's own node, without those that every Edge Node has.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sparkplug::replication::Timelines;
use sparkplug::typed::form;
use uuid::Uuid;

use crate::names;
use crate::result::RequestResult;

/// The applications by their slugs: `SLUG/UUID`, separated by blanks. A slug has neither.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applications(pub BTreeMap<Arc<str>, Uuid>);

impl fmt::Display for Applications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (slug, uuid)) in self.0.iter().enumerate() {
            let blank = if place > 0 { " " } else { "" };
            write!(f, "{blank}{slug}/{uuid}")?;
        }
        Ok(())
    }
}

impl FromStr for Applications {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let (slug, uuid) = part.split_once('/')?;
            Some((slug.into(), uuid.parse().ok()?))
        };
        let all = text.split_ascii_whitespace().map(|part| one(part).ok_or_else(|| format!("{part} is not SLUG/UUID")));
        all.collect::<Result<_, _>>().map(Self)
    }
}

/// What ConfigDB says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigNode {
    /// Version of the program.
    pub version: String,
    /// Identity of the store.
    pub store: Option<Uuid>,
    /// Highest epoch that an operator has raised in it.
    pub epoch: u64,
    /// Which session of the process wrote which revisions.
    pub timelines: Timelines,
    /// What objects can have entries under.
    pub applications: Applications,
    /// No message of the node is larger, in bytes.
    pub message_bytes_max: Option<u64>,
    /// The answer to the last request; None: there was none yet.
    pub last_request: Option<RequestResult>,
    /// Revision of the last committed transaction.
    pub revision: u64,
    /// Number of objects that are born; None: not published.
    pub objects: Option<u64>,
    /// What an operator has to do something about.
    pub alert: Option<String>,
}

sparkplug::typed_metrics! {
    ConfigNode {
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        #[optional]
        version => names::PROPERTIES_VERSION,
        /// What stands behind the node is a simulator.
        (|_| false.into()) => names::PROPERTIES_SIMULATED,
        /// Identity of the store; another one means another database.
        store as form::Nullable<form::Uuid> => names::CONFIG_STORE,
        /// Highest epoch that an operator has raised for a cluster in this store; 0 before the first.
        #[optional]
        epoch => names::CONFIG_EPOCH,
        /// Which session of the process wrote which revisions: TIMELINE/FIRST REVISION, separated by blanks.
        #[optional]
        timelines as form::Parsed => names::CONFIG_TIMELINES,
        /// Applications that objects can have entries under: SLUG/UUID, separated by blanks.
        #[optional]
        applications as form::Parsed => names::CONFIG_APPLICATIONS,
        /// No message of the node is larger.
        #[optional]
        #[properties("engUnit" = "B")]
        message_bytes_max => names::CONFIG_MESSAGE_BYTES_MAX,
        /// Answer to the last request, JSON; null before the first.
        #[optional]
        last_request => names::REQUEST_RESULT,
        /// Revision of the last committed transaction.
        #[optional]
        revision => names::CONFIG_REVISION,
        /// Object devices that are alive.
        #[optional]
        objects => names::CONFIG_OBJECTS,
        /// What an operator has to do something about, such as a disk without room; null: nothing.
        #[optional]
        alert => names::CONFIG_ALERT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Outcome;
    use sparkplug::{DataType, Metric, TypedMetrics};

    #[test]
    fn what_is_written_is_read_and_the_types_are_those_of_the_reference() {
        let result = RequestResult {
            id: "r".to_owned(),
            object: Uuid::nil(),
            outcome: Outcome::Applied,
            revision: 3,
            etags: [].into(),
            reason: None,
            field: None,
            store: None,
            at: 5,
        };
        let node = ConfigNode {
            version: "1.2.3".to_owned(),
            store: Some(Uuid::from_u128(7)),
            epoch: 4,
            timelines: "00000000000000aa/0 00000000000000bb/3".parse().unwrap(),
            applications: "Info/00000000-0000-0000-0000-000000000001 Shiftplan/00000000-0000-0000-0000-000000000002"
                .parse()
                .unwrap(),
            message_bytes_max: Some(1000),
            last_request: Some(result.clone()),
            revision: 3,
            objects: Some(2),
            alert: Some("the disk is full".to_owned()),
        };
        let metrics = node.to_metrics();
        assert_eq!(ConfigNode::from_metrics(&metrics), Ok(node));
        let types: Vec<DataType> = metrics.iter().map(|metric| metric.datatype).collect();
        use DataType as T;
        assert_eq!(
            types,
            [
                T::String,
                T::String,
                T::Boolean,
                T::Uuid,
                T::UInt64,
                T::String,
                T::String,
                T::UInt64,
                T::String,
                T::UInt64,
                T::UInt64,
                T::String
            ]
        );
        let answer = result.to_metric();
        assert_eq!((&metrics[8].name, &metrics[8].value), (&answer.name, &answer.value));
        let none = &ConfigNode::default().to_metrics()[8];
        assert_eq!((&*none.name, none.datatype, &none.value), (names::REQUEST_RESULT, T::String, &None));
    }

    #[test]
    fn applications_that_cannot_be_read_are_refused() {
        assert_eq!("".parse(), Ok(Applications::default()));
        for text in ["Info", "Info/7", "/"] {
            assert!(text.parse::<Applications>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_result_that_is_not_json_is_refused_by_name() {
        let error = ConfigNode::default().merge(&[Metric::new(names::REQUEST_RESULT, "{")]).unwrap_err();
        assert!(error.to_string().starts_with("metric \"Request/Result\" must be the JSON of a result: "), "{error}");
    }
}
