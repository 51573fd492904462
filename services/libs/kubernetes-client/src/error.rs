//! Errors of the Kubernetes API, sorted by how to go on.

use std::future::Future;
use std::time::Duration;

use kube::core::Status;

/// Of an error that is reported on Sparkplug.
const MESSAGE_CHARACTERS_MAX: usize = 512;

/// How to go on after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The API server gave no answer, said that it cannot answer at present, or does not know the caller. A single one says nothing about other requests.
    Unreachable,
    /// Someone else made or changed the object in the meantime: look again.
    Conflict,
    /// The API server answered that it did not do it: it refused, or it failed at this very request.
    Refused,
}

/// An error of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KubernetesError {
    /// How to go on.
    pub class: ErrorClass,
    /// For people, without secrets.
    pub message: String,
}

impl From<&kube::Error> for KubernetesError {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from(status.as_ref()),
            kube::Error::SerdeError(error) => {
                Self { class: ErrorClass::Refused, message: format!("the answer cannot be read: {error}") }
            }
            other => Self { class: ErrorClass::Unreachable, message: chain(other) },
        }
    }
}

impl From<&Status> for KubernetesError {
    fn from(status: &Status) -> Self {
        // A proxy before the API server may answer with a page; its beginning is enough.
        let message: String = status.message.trim().chars().take(MESSAGE_CHARACTERS_MAX).collect();
        // The server refuses the credentials, not this request.
        let of_what = if status.code == 401 { "it does not take this service's credentials: " } else { "" };
        Self { class: class_of(status.code), message: format!("{of_what}{message} ({})", status.code) }
    }
}

/// The class of an HTTP status. A 500 is an answer: for example to a server-side apply of a value whose type the schema does not allow.
fn class_of(code: u16) -> ErrorClass {
    match code {
        409 => ErrorClass::Conflict,
        // 401 lasts until someone renews the credentials, whatever is asked; 502 comes from a proxy that got no answer itself.
        401 | 429 | 502 | 503 | 504 => ErrorClass::Unreachable,
        _ => ErrorClass::Refused,
    }
}

/// The error with its causes, each text once.
fn chain(error: &kube::Error) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// One request.
///
/// # Errors
/// [`KubernetesError`]: that of the answer, or that none came within `limit`.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, KubernetesError> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| KubernetesError::from(&error)),
        Err(_) => Err(KubernetesError {
            class: ErrorClass::Unreachable,
            message: format!("no answer within {} s", limit.as_secs()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_nothing_of_the_request_is_unreachable() {
        for code in [401, 429, 502, 503, 504] {
            assert_eq!(class_of(code), ErrorClass::Unreachable, "{code}");
        }
        for code in [400, 403, 404, 410, 422, 500, 501] {
            assert_eq!(class_of(code), ErrorClass::Refused, "{code}");
        }
        assert_eq!(class_of(409), ErrorClass::Conflict);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_unreachable() {
        let error = within(Duration::from_secs(3), std::future::pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!((error.class, &*error.message), (ErrorClass::Unreachable, "no answer within 3 s"));
    }
}
