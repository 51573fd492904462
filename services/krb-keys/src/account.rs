//! The account of a KerberosKey: from `spec.account` to the published request, and the state of the account. This module does not know who makes accounts: the request is published on Sparkplug, and answered.

use kerberos_client::Principal;
use krb_keys_contract::{AccountError, AccountRequest, NodeAddress};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Said of a resource that has `aces`.
pub(crate) const ACES_IGNORED: &str = "spec.account.aces is ignored: permissions are not kept here";

const UUID_RULE: &str = "must be a UUID";

/// `spec.account`, as it is in the resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountFields {
    /// `uuid`
    pub uuid: Option<String>,
    /// `class`
    pub class: Option<String>,
    /// `name`
    pub name: Option<String>,
    /// `groups`
    pub groups: Vec<String>,
    /// There are `aces`.
    pub has_aces: bool,
    /// `sparkplug`
    pub sparkplug: Option<NodeAddress>,
}

impl AccountFields {
    /// Checks the account of that principal.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn validate(&self, principal: &Principal) -> Result<AccountRequest, AccountError> {
        let uuid = |field, text: &str| text.parse::<Uuid>().map_err(|_| AccountError { field, rule: UUID_RULE });
        let mut groups: Vec<Uuid> =
            self.groups.iter().map(|group| uuid("groups", group)).collect::<Result<_, AccountError>>()?;
        groups.sort_unstable();
        groups.dedup();
        let request = AccountRequest {
            principal: principal.as_str().to_owned(),
            uuid: self.uuid.as_deref().map(|text| uuid("uuid", text)).transpose()?,
            class: self.class.as_deref().map(|text| uuid("class", text)).transpose()?,
            name: self.name.clone(),
            groups,
            sparkplug: self.sparkplug.clone(),
        };
        request.check()?;
        Ok(request)
    }
}

/// What is recorded of an account. This is published of the resource, whatever becomes of its spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAccount {
    /// What is requested.
    #[serde(rename = "wish")]
    pub request: AccountRequest,
    /// The account, as it was answered to this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
}

impl RecordedAccount {
    /// What shall be recorded: what is known of the same request stays. `answer` is that to the request that is recorded.
    #[must_use]
    pub fn of(request: &AccountRequest, before: Option<&Self>, answer: Option<&Result<Uuid, String>>) -> Self {
        let same = before.filter(|before| before.request == *request);
        let answered = answer.filter(|_| same.is_some()).and_then(|answer| answer.as_ref().ok()).copied();
        Self { request: request.clone(), uuid: answered.or(same.and_then(|same| same.uuid)) }
    }
}

/// The state of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountState {
    /// It is as wanted, or none is.
    InStep,
    /// No one has answered yet.
    Pending,
    /// Someone has, with this reason.
    Refused(String),
}

impl AccountState {
    /// Of what is recorded for the present request, and the answer to it since the service started.
    #[must_use]
    pub fn of(recorded: Option<&RecordedAccount>, answer: Option<&Result<Uuid, String>>) -> Self {
        match (recorded, answer) {
            (None, _) => Self::InStep,
            (Some(_), Some(Err(reason))) => Self::Refused(reason.clone()),
            (Some(recorded), _) if recorded.uuid.is_some() => Self::InStep,
            (Some(_), _) => Self::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);

    fn fields() -> AccountFields {
        AccountFields {
            class: Some(A.to_string()),
            name: Some("Robot".to_owned()),
            groups: vec![B.to_string(), A.to_string(), B.to_string()],
            ..AccountFields::default()
        }
    }

    fn principal() -> Principal {
        "nd1/Paint/Robot@ACME.EXAMPLE".parse().unwrap()
    }

    #[test]
    fn groups_stand_once_and_in_order_so_that_the_same_account_is_the_same_request() {
        let request = fields().validate(&principal()).unwrap();
        assert_eq!((request.principal.as_str(), &*request.groups), ("nd1/Paint/Robot@ACME.EXAMPLE", &[A, B][..]));
        let other = AccountFields { groups: vec![A.to_string(), B.to_string()], ..fields() };
        assert_eq!(other.validate(&principal()).unwrap().digest(), request.digest());
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_field() {
        let some = |text: &str| Some(text.to_owned());
        let table = [
            (AccountFields { uuid: some("x"), ..fields() }, "uuid must be a UUID"),
            (AccountFields { class: some("x"), ..fields() }, "class must be a UUID"),
            (AccountFields { groups: vec!["x".to_owned()], ..fields() }, "groups must be a UUID"),
            (AccountFields { class: None, name: None, ..fields() }, "uuid is missing"),
            (AccountFields { class: None, uuid: Some(A.to_string()), ..fields() }, "name needs class"),
        ];
        for (fields, part) in table {
            let error = fields.validate(&principal()).unwrap_err().to_string();
            assert!(error.starts_with(part), "{error} should begin with {part}");
        }
    }

    #[test]
    fn an_account_is_known_for_its_own_request_only_and_a_refusal_outdoes_it() {
        let request = fields().validate(&principal()).unwrap();
        let known = RecordedAccount { request: request.clone(), uuid: Some(B) };
        assert_eq!(RecordedAccount::of(&request, Some(&known), None), known);
        let other = AccountRequest { name: None, ..request.clone() };
        let fresh = RecordedAccount::of(&other, Some(&known), Some(&Ok(A)));
        assert_eq!(fresh.uuid, None, "it answers what was wanted before");
        assert_eq!(RecordedAccount::of(&other, Some(&fresh), Some(&Ok(A))).uuid, Some(A));
        assert_eq!(AccountState::of(None, None), AccountState::InStep);
        assert_eq!(AccountState::of(Some(&fresh), None), AccountState::Pending);
        assert_eq!(AccountState::of(Some(&known), None), AccountState::InStep);
        let refusal = Err("no".to_owned());
        assert_eq!(AccountState::of(Some(&known), Some(&refusal)), AccountState::Refused("no".to_owned()));
        assert_eq!(RecordedAccount::of(&request, Some(&known), Some(&refusal)), known, "it is left as it was");
    }
}
