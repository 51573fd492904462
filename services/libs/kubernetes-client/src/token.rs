//! The bearer token of a file that someone else renews, such as the kubelet that of a pod.
//!
//! It is read again once a minute, and at once when the API server does not take it. In that case the request is sent a second time, if the file has another token meanwhile.

use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use tower::retry::Policy;

/// How long a token is used before the file is looked at again.
const LOOK: Duration = Duration::from_secs(60);

/// The token of a file; clones share it.
#[derive(Clone)]
pub(crate) struct FileToken(Arc<Shared>);

struct Shared {
    file: PathBuf,
    state: Mutex<State>,
}

struct State {
    header: HeaderValue,
    read_at: Instant,
}

impl FileToken {
    /// None: there is no such file, or no token in it.
    pub(crate) fn read(file: PathBuf) -> Option<Self> {
        let header = header(&file)?;
        Some(Self(Arc::new(Shared { file, state: Mutex::new(State { header, read_at: Instant::now() }) })))
    }

    /// Puts the token on a request.
    pub(crate) fn put_on(&self, mut request: Request<Body>) -> Request<Body> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.read_at.elapsed() >= LOOK {
            self.look(&mut state);
        }
        request.headers_mut().insert(AUTHORIZATION, state.header.clone());
        request
    }

    /// True if the file has another token than the one that was refused.
    fn is_renewed(&self) -> bool {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = state.header.clone();
        self.look(&mut state);
        state.header != refused
    }

    /// Takes what is in the file. If it cannot be read the last token stays.
    fn look(&self, state: &mut State) {
        if let Some(header) = header(&self.0.file) {
            state.header = header;
        }
        state.read_at = Instant::now();
    }
}

fn header(file: &PathBuf) -> Option<HeaderValue> {
    let token = std::fs::read_to_string(file).ok()?;
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
    header.set_sensitive(true);
    Some(header)
}

impl<B, E> Policy<Request<Body>, Response<B>, E> for FileToken {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request<Body>, result: &mut Result<Response<B>, E>) -> Option<Ready<()>> {
        let is_unknown = matches!(result, Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED);
        (is_unknown && self.is_renewed()).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
