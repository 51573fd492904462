//! The account that a KerberosKey wants: the request, its Device, and the answer to it.

use configdb_schema::address::v5;
use serde::{Deserialize, Serialize};
use sparkplug::typed::{Form, form};
use sparkplug::{DataType, EdgeNodeId, Metric, Value};
use uuid::Uuid;

use crate::names::account as names;

/// Groups of one account.
pub const GROUPS_MAX: usize = 64;
/// Characters of a name.
pub const NAME_CHARACTERS_MAX: usize = 255;
/// Characters of a group id or node id, as in a Sparkplug address of ConfigDB.
pub const ID_CHARACTERS_MAX: usize = 255;
/// Bytes of a request as JSON. The largest that keeps the rules has some 6 KiB.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Characters of a reason that are published.
const REASON_CHARACTERS_MAX: usize = 300;

/// The rule that an account breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct AccountError {
    /// Which field, below `account`.
    pub field: &'static str,
    /// The rule, to be read behind it.
    pub rule: &'static str,
}

/// Where an account is an Edge Node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    /// Edge Node id.
    pub node: String,
    /// Group; None: that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// What is wanted of an account. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountRequest {
    /// Whose account it is: a Kerberos principal with its realm.
    pub principal: String,
    /// An object that exists and stays when the account goes; None: one is made, and goes with the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Class of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Uuid>,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Groups that it is a member of, each once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Uuid>,
    /// Where it is an Edge Node; None: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparkplug: Option<NodeAddress>,
}

impl AccountRequest {
    /// Checks what can be checked without knowing any object.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), AccountError> {
        let broken = |field, rule| Err(AccountError { field, rule });
        if self.uuid.is_none() && self.class.is_none() {
            return broken("uuid", "is missing: an account needs a uuid, or a class to make one of");
        }
        if self.name.is_some() && self.class.is_none() {
            return broken("name", "needs class");
        }
        let characters = self.name.as_ref().map(|name| name.chars().count());
        if characters.is_some_and(|characters| !(1..=NAME_CHARACTERS_MAX).contains(&characters)) {
            return broken("name", "must have 1 to 255 characters");
        }
        if self.groups.len() > GROUPS_MAX {
            return broken("groups", "has more than 64 items");
        }
        let Some(address) = &self.sparkplug else { return Ok(()) };
        // Some MQTT servers take a dot for a level of the topic.
        let is_id =
            |id: &str| EdgeNodeId::new(id).is_ok() && !id.contains('.') && id.chars().count() <= ID_CHARACTERS_MAX;
        if !is_id(&address.node) {
            return broken("sparkplug.node", "must be an Edge Node id: 1 to 255 characters, none of + / # and no dot");
        }
        if address.group.as_deref().is_some_and(|group| !is_id(group)) {
            return broken("sparkplug.group", "must be a group id: 1 to 255 characters, none of + / # and no dot");
        }
        Ok(())
    }

    /// As JSON, always the same for the same request.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, UUIDs and lists of them have a JSON form")
    }

    /// Differs for another request.
    #[must_use]
    pub fn digest(&self) -> Uuid {
        v5(&["Account wish", &self.to_json()])
    }
}

/// An [`AccountRequest`] as JSON.
struct RequestJson;

impl Form<AccountRequest> for RequestJson {
    const DATATYPE: DataType = DataType::String;

    fn write(field: &AccountRequest) -> Option<Value> {
        Some(field.to_json().into())
    }

    fn read(value: Option<&Value>) -> Result<AccountRequest, String> {
        let text = value.and_then(Value::as_str).ok_or("must be a String")?;
        if text.len() > REQUEST_BYTES_MAX {
            return Err(format!("has more than {REQUEST_BYTES_MAX} bytes"));
        }
        serde_json::from_str(text).map_err(|error| format!("must be the JSON of an account: {error}"))
    }
}

/// What Keys says of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountDevice {
    /// What is wanted.
    pub request: AccountRequest,
    /// The account, as it was answered to this request.
    pub uuid: Option<Uuid>,
    /// Why this request is refused, as it was answered.
    pub refused: Option<String>,
    /// Since when [`AccountDevice::state`] is what it is, UTC ms.
    pub since: u64,
}

sparkplug::typed_metrics! {
    AccountDevice {
        /// pending (not answered), ready or refused.
        (|device| device.state().into()) => names::STATE,
        /// Why the account is not as wanted; null: it is, or the cluster manager has not answered.
        refused => names::REASON,
        /// Since when it is in that state.
        #[optional]
        since as form::DateTime => names::SINCE,
        /// The account that is wanted, JSON.
        request as RequestJson => names::REQUEST,
        /// Object of the account; null until the cluster manager has answered that it is as wanted.
        uuid as form::Nullable<form::Uuid> => names::UUID,
    }
}

impl AccountDevice {
    /// `pending`, `ready` or `refused`.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match (&self.refused, &self.uuid) {
            (Some(_), _) => "refused",
            (None, Some(_)) => "ready",
            (None, None) => "pending",
        }
    }

    /// Whether it shows that result for an answer to its request.
    #[must_use]
    pub fn shows(&self, result: &Result<Uuid, String>) -> bool {
        match result {
            Ok(uuid) => self.refused.is_none() && self.uuid == Some(*uuid),
            Err(reason) => self.refused.as_ref() == Some(&cut(reason)),
        }
    }
}

fn cut(reason: &str) -> String {
    reason.chars().take(REASON_CHARACTERS_MAX).collect()
}

/// The answer to a request. Closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountDecision {
    /// [`AccountRequest::digest`] of the request that it answers.
    #[serde(rename = "wish")]
    pub request: Uuid,
    /// The account is as wanted, and this is its object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// It is not, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl AccountDecision {
    /// To that request, with that result. Long reasons are cut.
    #[must_use]
    pub fn new(request: &AccountRequest, result: &Result<Uuid, String>) -> Self {
        let refused = result.as_ref().err().map(|reason| cut(reason));
        Self { request: request.digest(), uuid: result.as_ref().ok().copied(), refused }
    }

    /// The metrics of the DCMD.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let json = serde_json::to_string(self).expect("texts and UUIDs have a JSON form");
        vec![Metric::new(names::ANSWER, json)]
    }

    /// From the metrics of a DCMD. None: it is not an answer.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn from_metrics(metrics: &[Metric]) -> Option<Result<Self, String>> {
        let metric = metrics.iter().find(|metric| &*metric.name == names::ANSWER)?;
        let text = metric.as_str().ok_or_else(|| "must be a String".to_owned());
        let answer = text.and_then(|text| {
            if text.len() > REQUEST_BYTES_MAX {
                return Err(format!("has more than {REQUEST_BYTES_MAX} bytes"));
            }
            serde_json::from_str::<Self>(text).map_err(|error| format!("must be the JSON of an answer: {error}"))
        });
        Some(answer.and_then(|answer| match (&answer.uuid, &answer.refused) {
            (Some(_), None) | (None, Some(_)) => Ok(answer),
            _ => Err("must have either uuid or refused".to_owned()),
        }))
    }

    /// What it says.
    ///
    /// # Errors
    /// Why there is no account.
    pub fn result(&self) -> Result<Uuid, String> {
        self.uuid.ok_or_else(|| cut(self.refused.as_deref().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    fn request() -> AccountRequest {
        AccountRequest {
            principal: "nd1/Paint/Robot@A".to_owned(),
            class: Some(Uuid::from_u128(1)),
            name: Some("Robot".to_owned()),
            groups: vec![Uuid::from_u128(2)],
            sparkplug: Some(NodeAddress { node: "Robot".to_owned(), group: None }),
            ..AccountRequest::default()
        }
    }

    #[test]
    fn a_request_and_its_decision_travel() {
        let device = AccountDevice { request: request(), uuid: Some(Uuid::from_u128(3)), refused: None, since: 5 };
        assert_eq!(AccountDevice::from_metrics(&device.to_metrics()), Ok(device.clone()));
        let answer = AccountDecision::new(&request(), &Ok(Uuid::from_u128(3)));
        assert_eq!(AccountDecision::from_metrics(&answer.to_metrics()), Some(Ok(answer.clone())));
        assert_eq!(answer.result(), Ok(Uuid::from_u128(3)));
        assert_ne!(AccountDecision::new(&AccountRequest { name: None, ..request() }, &Ok(Uuid::from_u128(3))), answer);
        assert!(device.shows(&answer.result()) && !device.shows(&Ok(Uuid::nil())));
        let long = Err("x".repeat(1000));
        let refusal = AccountDecision::new(&request(), &long);
        assert_eq!(refusal.result().unwrap_err().len(), REASON_CHARACTERS_MAX);
        assert!(!device.shows(&long));
        let refused = AccountDevice { refused: refusal.refused, ..device };
        assert!(refused.shows(&long) && !refused.shows(&answer.result()));
        assert_eq!(AccountDecision::from_metrics(&[]), None);
    }

    #[test]
    fn what_is_not_an_answer_is_refused() {
        let command =
            |json: &str| AccountDecision::from_metrics(&[Metric::new(names::ANSWER, json)]).unwrap().unwrap_err();
        let request = Uuid::from_u128(1);
        assert!(command(&format!(r#"{{"wish":"{request}"}}"#)).contains("either uuid or refused"));
        assert!(command(&format!(r#"{{"wish":"{request}","uuid":"{request}","refused":"x"}}"#)).contains("either"));
        assert!(command("[]").contains("must be the JSON of an answer"));
        assert!(command(&"x".repeat(REQUEST_BYTES_MAX + 1)).contains("bytes"));
        assert_eq!(
            AccountDecision::from_metrics(&[Metric::new(names::ANSWER, 1_u32)]),
            Some(Err("must be a String".to_owned()))
        );
    }

    #[test]
    fn a_request_that_breaks_a_rule_is_refused_by_field() {
        assert_eq!(request().check(), Ok(()));
        let node = |node: &str| Some(NodeAddress { node: node.to_owned(), group: None });
        let group = Some(NodeAddress { node: "a".to_owned(), group: Some("a/b".to_owned()) });
        let table = [
            (AccountRequest { class: None, name: None, ..request() }, "uuid is missing"),
            (AccountRequest { class: None, uuid: Some(Uuid::nil()), ..request() }, "name needs class"),
            (AccountRequest { name: Some(String::new()), ..request() }, "name must have"),
            (AccountRequest { groups: vec![Uuid::nil(); GROUPS_MAX + 1], ..request() }, "groups has more"),
            (AccountRequest { sparkplug: node("a+b"), ..request() }, "sparkplug.node must"),
            (AccountRequest { sparkplug: node(""), ..request() }, "sparkplug.node must"),
            (AccountRequest { sparkplug: node("a.b"), ..request() }, "sparkplug.node must"),
            (AccountRequest { sparkplug: group, ..request() }, "sparkplug.group must"),
        ];
        for (request, part) in table {
            let error = request.check().unwrap_err().to_string();
            assert!(error.starts_with(part), "{error} should begin with {part}");
        }
    }

    #[test]
    fn the_largest_request_is_read() {
        let long = "\u{1}".repeat(NAME_CHARACTERS_MAX);
        let id = "ü".repeat(ID_CHARACTERS_MAX);
        let request = AccountRequest {
            principal: "x".repeat(255),
            name: Some(long),
            groups: vec![Uuid::nil(); GROUPS_MAX],
            sparkplug: Some(NodeAddress { node: id.clone(), group: Some(id) }),
            ..request()
        };
        assert_eq!(request.check(), Ok(()));
        assert_eq!(RequestJson::read(RequestJson::write(&request).as_ref()), Ok(request));
    }
}
