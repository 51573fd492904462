//! What an identity provider says of a user -> who the user is here. The signature was checked before.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::document::TokenScope;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Grant, Principal};

/// Longest subject that is recorded.
const SUBJECT_BYTES_MAX: usize = 255;

/// Which values of a claim give which scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRules {
    /// The claim: a text, or a list of texts, such as `groups`.
    pub claim: String,
    /// Values that make a viewer.
    pub viewers: BTreeSet<String>,
    /// Values that make an operator.
    pub operators: BTreeSet<String>,
    /// Values that make an administrator.
    pub administrators: BTreeSet<String>,
    /// Values that count on these clusters only; those that are not named here count on all.
    pub clusters: BTreeMap<String, BTreeSet<Uuid>>,
}

/// Why claims do not make a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// A user without a name cannot be recorded.
    #[error("the identity has no subject, or one that is longer than {SUBJECT_BYTES_MAX} bytes")]
    Subject,
    /// No rule fits.
    #[error("the identity provider gives you no scope here")]
    NoScope,
}

impl ClaimRules {
    /// The rules of a configuration. `clusters`: lines `VALUE=UUID`, of which several name several clusters.
    ///
    /// # Errors
    /// What is wrong with `clusters`.
    pub fn new(
        claim: &str,
        [viewers, operators, administrators]: [&[String]; 3],
        clusters: &[String],
    ) -> Result<Self, &'static str> {
        let set = |values: &[String]| values.iter().cloned().collect::<BTreeSet<_>>();
        let (viewers, operators, administrators) = (set(viewers), set(operators), set(administrators));
        let mut of_clusters = BTreeMap::<String, BTreeSet<Uuid>>::new();
        for line in clusters {
            let (value, cluster) = line.rsplit_once('=').ok_or("must be VALUE=UUID")?;
            let cluster = Uuid::try_parse(cluster).map_err(|_| "must end with the UUID of a cluster")?;
            if ![&viewers, &operators, &administrators].iter().any(|values| values.contains(value)) {
                return Err("names a value that grants nothing; put it into viewers, operators or administrators");
            }
            of_clusters.entry(value.to_owned()).or_default().insert(cluster);
        }
        Ok(Self { claim: claim.to_owned(), viewers, operators, administrators, clusters: of_clusters })
    }

    /// Who a user with these claims is: each value that a rule names is a grant.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, ClaimError> {
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.filter(|subject| subject.len() <= SUBJECT_BYTES_MAX).ok_or(ClaimError::Subject)?;
        let values: Vec<&str> = match claims.get(&self.claim) {
            Some(Value::String(value)) => vec![value],
            Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let grants: BTreeSet<Grant> = values.into_iter().filter_map(|value| self.grant(value)).collect();
        if grants.is_empty() {
            return Err(ClaimError::NoScope);
        }
        Ok(Principal { name: format!("oidc:{subject}"), grants: grants.into_iter().collect() })
    }

    fn grant(&self, value: &str) -> Option<Grant> {
        let rules = [
            (TokenScope::Administrator, &self.administrators),
            (TokenScope::Operator, &self.operators),
            (TokenScope::Viewer, &self.viewers),
        ];
        let (scope, _) = rules.into_iter().find(|(_, values)| values.contains(value))?;
        Some(Grant { scope, clusters: self.clusters.get(value).cloned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Denied, Operation};
    use serde_json::json;

    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);

    fn principal(claims: &Value) -> Result<Principal, ClaimError> {
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let rules = ClaimRules {
            claim: "groups".to_owned(),
            viewers: set(&["all"]),
            operators: set(&["ops", "night-shift"]),
            administrators: set(&["it"]),
            clusters: [("night-shift".to_owned(), [A].into())].into(),
        };
        rules.principal(claims.as_object().unwrap())
    }

    fn highest_scope(claims: &Value) -> Result<(String, TokenScope), ClaimError> {
        let highest = |principal: &Principal| principal.grants.iter().map(|grant| grant.scope).max().unwrap();
        principal(claims).map(|principal| (principal.name.clone(), highest(&principal)))
    }

    #[test]
    fn the_highest_scope_of_all_groups_counts() {
        let ada = |scope| Ok(("oidc:ada".to_owned(), scope));
        assert_eq!(highest_scope(&json!({"sub": "ada", "groups": ["all", "ops"]})), ada(TokenScope::Operator));
        assert_eq!(highest_scope(&json!({"sub": "ada", "groups": ["ops", "it", "x"]})), ada(TokenScope::Administrator));
        assert_eq!(highest_scope(&json!({"sub": "ada", "groups": "all"})), ada(TokenScope::Viewer));
    }

    #[test]
    fn a_group_that_is_for_some_clusters_counts_there_alone() {
        let ada = principal(&json!({"sub": "ada", "groups": ["night-shift", "all"]})).unwrap();
        assert_eq!(ada.may(Operation::PutSecret, Some(A)), Ok(()));
        let (operation, scope) = (Operation::PutSecret, TokenScope::Viewer);
        assert_eq!(ada.may(operation, Some(B)), Err(Denied::Scope { operation, scope }));
        let ben = principal(&json!({"sub": "ben", "groups": "night-shift"})).unwrap();
        assert_eq!(ben.may(Operation::ReadRepository, Some(B)), Err(Denied::Cluster));
    }

    #[test]
    fn a_user_without_group_or_name_is_refused() {
        for claims in [
            json!({"sub": "ada"}),
            json!({"sub": "ada", "groups": []}),
            json!({"sub": "ada", "groups": [1, {"it": true}]}),
            json!({"sub": "ada", "groups": "IT"}),
            json!({"sub": "ada", "scope": "it"}),
        ] {
            assert_eq!(highest_scope(&claims), Err(ClaimError::NoScope), "{claims}");
        }
        for claims in [
            json!({"groups": "it"}),
            json!({"sub": "", "groups": "it"}),
            json!({"sub": "x".repeat(256), "groups": "it"}),
        ] {
            assert_eq!(highest_scope(&claims), Err(ClaimError::Subject));
        }
    }
}
