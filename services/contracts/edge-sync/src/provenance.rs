//! Where a desired state comes from, as each of the commands says it, and what is wrong with a command that cannot be used.

use std::str::FromStr;

use serde_json::{Map, Value, json};
use sparkplug::replication::{Origin, OriginError, Point};
use uuid::Uuid;

use crate::digest::Digest;

/// A command could not be used. It names the field and the rule; `digest` is what the sender finds in the report as refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct CommandError {
    /// To which deployment's device it came; None for an index.
    pub deployment: Option<Uuid>,
    /// The version that the sender gave, if it could be read.
    pub version: Option<u64>,
    /// The digest that the sender gave, if it could be read.
    pub digest: Option<Digest>,
    /// Path of the field, for example `Desired/Index deployments.<uuid>.version`.
    pub field: String,
    /// The rule that it breaks.
    pub rule: String,
}

/// Writes where a desired state comes from.
pub(crate) fn put_origin(value: &mut Value, origin: Option<Origin>, follows: Option<Point>) {
    if let Some(origin) = origin {
        value["origin"] = json!(origin.to_string());
    }
    if let Some(follows) = follows {
        value["follows"] = json!(follows.to_string());
    }
}

/// Where a desired state comes from, and what of that the receiver knows.
type Provenance = (Option<Origin>, Option<Point>);

/// Reads what [`put_origin`] wrote; the error has the member and its rule.
pub(crate) fn origin_of(members: &Map<String, Value>) -> Result<Provenance, (&'static str, OriginError)> {
    fn read<T: FromStr<Err = OriginError>>(value: Option<&Value>) -> Result<Option<T>, OriginError> {
        value.map(|value| value.as_str().unwrap_or_default().parse()).transpose()
    }
    let origin = read(members.get("origin")).map_err(|rule| ("origin", rule))?;
    Ok((origin, read(members.get("follows")).map_err(|rule| ("follows", rule))?))
}
