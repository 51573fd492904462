//! Sessions as they are kept for the next process: the hash of each, never what a browser shows.
//!
//! A reader of the file learns no session: a hash leads to no cookie. Each writing of the file has an id, by which an old copy that is put back is recognised ([`Writing`]). The rules by
//! which the identity provider's claims count are part of the file: under other rules users have to sign in again.

use std::collections::BTreeSet;

use access::{Grant, Principal};
use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::TokenScope;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::api::SessionHash;

/// Version of the file.
const VERSION: u64 = 2;

/// A writing of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writing {
    /// No other writing has it.
    pub id: Uuid,
    /// The writing before; None: that is not known.
    pub after: Option<Uuid>,
}

impl Writing {
    /// Whether this is the writing that is known to be the last one, or the one after it. Where none is known, it is not.
    #[must_use]
    pub(crate) fn follows(&self, last: Option<Uuid>) -> bool {
        last.is_some_and(|last| last == self.id || Some(last) == self.after)
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSession {
    /// Of its id.
    pub hash: SessionHash,
    /// Whose it is.
    pub holder: KeptHolder,
    /// When it began, UTC ms.
    pub began: u64,
    /// When it was used last, UTC ms.
    pub used: u64,
}

/// Who has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptHolder {
    /// The holder of this token.
    Token(TokenHash),
    /// A user whom the identity provider has vouched for.
    Person(Principal),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    writing: Writing,
    /// [`Settings::rules`](crate::config::Settings::rules)
    rules: String,
    sessions: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    person: Option<Person>,
    began: u64,
    used: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Person {
    name: String,
    grants: Vec<GrantRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantRow {
    scope: TokenScope,
    /// None: all.
    clusters: Option<BTreeSet<Uuid>>,
}

/// The content of the file.
#[must_use]
pub(crate) fn to_bytes(writing: Writing, sessions: &[KeptSession], rules: &str) -> Vec<u8> {
    let row = |session: &KeptSession| {
        let (token, person) = match &session.holder {
            KeptHolder::Token(token) => (Some(token.to_hex()), None),
            KeptHolder::Person(Principal { name, grants }) => {
                let grant = |grant: &Grant| GrantRow { scope: grant.scope, clusters: grant.clusters.clone() };
                (None, Some(Person { name: name.clone(), grants: grants.iter().map(grant).collect() }))
            }
        };
        Row { hash: session.hash.to_hex(), token, person, began: session.began, used: session.used }
    };
    let file =
        File { version: VERSION, writing, rules: rules.to_owned(), sessions: sessions.iter().map(row).collect() };
    // Its fields are texts and numbers, so that it has a JSON form.
    serde_json::to_vec(&file).unwrap_or_default()
}

/// The sessions of a file, and which writing it is. Those of users whom an identity provider has vouched for count only under the rules of then.
///
/// # Errors
/// It is not such a file.
pub(crate) fn from_bytes(bytes: &[u8], rules: &str) -> Result<(Writing, Vec<KeptSession>), serde_json::Error> {
    let file: File = serde_json::from_slice(bytes)?;
    let is_same = file.rules == rules;
    let session = |row: Row| {
        let holder = match (row.token, row.person) {
            (Some(token), None) => KeptHolder::Token(TokenHash::from_hex(&token)?),
            (None, Some(Person { name, grants })) if is_same => {
                let grant = |row: GrantRow| Grant { scope: row.scope, clusters: row.clusters };
                KeptHolder::Person(Principal { name, grants: grants.into_iter().map(grant).collect() })
            }
            _ => return None,
        };
        Some(KeptSession { hash: SessionHash::from_hex(&row.hash)?, holder, began: row.began, used: row.used })
    };
    let sessions = if file.version == VERSION { file.sessions } else { Vec::new() };
    Ok((file.writing, sessions.into_iter().filter_map(session).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_manager_contract::api_token::{RANDOM_BYTES, text};
    use service_runtime::config::ExposeSecret as _;

    #[test]
    fn a_file_is_read_as_it_was_written_and_people_only_under_the_same_rules() {
        let token = TokenHash::of(text(&[1; RANDOM_BYTES]).expose_secret()).unwrap();
        let clusters = Some([Uuid::from_u128(7)].into());
        let grants = vec![Grant { scope: TokenScope::Operator, clusters }];
        let ben = Principal { name: "oidc:ben".to_owned(), grants };
        let session = |id: &str, holder| KeptSession { hash: SessionHash::of(id), holder, began: 5, used: 7 };
        let kept = [session("cookie-a", KeptHolder::Token(token)), session("cookie-b", KeptHolder::Person(ben))];
        let writing = Writing { id: Uuid::from_u128(2), after: Some(Uuid::from_u128(1)) };
        let bytes = to_bytes(writing, &kept, "rules");
        assert_eq!(from_bytes(&bytes, "rules").unwrap(), (writing, kept.to_vec()));
        assert_eq!(from_bytes(&bytes, "others").unwrap().1, kept[..1]);
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains("cookie"), "{text}");
        assert!(from_bytes(b"{}", "rules").is_err() && from_bytes(b"", "rules").is_err());
    }
}
