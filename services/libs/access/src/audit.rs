//! The record of a write: who, what, when, from where, and how it ended. It names keys of secrets and never holds a value.

use serde::Serialize;
use uuid::Uuid;

use super::Operation;

/// One write, done or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    /// When it ended, UTC ms.
    pub at: u64,
    /// Who: [`super::Principal::name`].
    pub who: String,
    /// From where: an address.
    pub from: String,
    /// What.
    #[serde(serialize_with = "as_text")]
    pub operation: Operation,
    /// On which cluster; None: it concerns all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Uuid>,
    /// On what, such as `fplus-edge/press-login/password`.
    pub target: String,
    /// Id of the request to ConfigDB that it led to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub result: AuditResult,
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "result")]
pub enum AuditResult {
    /// They may, and it is under way; a later record says how it ended.
    Accepted,
    /// It was done.
    Done {
        /// The commit that it ended in, hexadecimal; None: it was a dry run, or changed nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        commit: Option<String>,
    },
    /// They may not, or it cannot be.
    Refused {
        /// Why.
        reason: String,
    },
    /// It was tried and did not work.
    Failed {
        /// Why.
        reason: String,
    },
}

impl AuditResult {
    /// As it is counted.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Done { .. } => "done",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
        }
    }
}

fn as_text<S: serde::Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json_whatever_a_text_holds() {
        let record = AuditRecord {
            at: 1,
            who: "token:a\nb".to_owned(),
            from: "192.0.2.1".to_owned(),
            operation: Operation::PutSecret,
            cluster: Some(Uuid::nil()),
            target: "n/s/k".to_owned(),
            request: None,
            result: AuditResult::Failed { reason: "line 1\nline 2".to_owned() },
        };
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains('\n'));
        let expected = r#"{"at":1,"who":"token:a\nb","from":"192.0.2.1","operation":"put-secret","cluster":"00000000-0000-0000-0000-000000000000","target":"n/s/k","result":"failed","reason":"line 1\nline 2"}"#;
        assert_eq!(text, expected);
    }
}
