//! A watch as a stream of JSON lines: initial objects, events from the log, bookmarks, the error that ends it. Knows time and tasks; the events
//! themselves come from `watch.rs`.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Kubernetes;
use super::error::ApiError;
use super::faults::Break;
use super::form::Form;
use super::kinds::Kind;
use super::selector::Selector;
use super::store::ListOptions;
use super::watch::Cursor;

/// What a watch asks for.
#[derive(Debug)]
pub struct WatchRequest {
    /// One namespace, or all.
    pub namespace: Option<String>,
    pub selector: Selector,
    /// Start after this version; none or 0 starts with the objects there are.
    pub version: Option<u64>,
    /// Whether bookmarks are welcome.
    pub bookmarks: bool,
    /// A streaming list: the objects there are, then a bookmark that says so.
    pub send_initial_events: bool,
    /// When the watch ends by itself.
    pub timeout: Duration,
    /// Representation of the objects.
    pub form: Form,
}

struct Watch {
    kubernetes: Kubernetes,
    kind: Kind,
    form: Form,
    cursor: Cursor,
    bookmarks: bool,
    lines: VecDeque<Bytes>,
    is_over: bool,
    deadline: Instant,
    next_bookmark: Instant,
    changed: watch::Receiver<u64>,
    breaks: watch::Receiver<Option<Break>>,
}

/// Opens a watch; errors that are known at once are answered instead of streamed.
pub fn body(kubernetes: Kubernetes, kind: Kind, request: WatchRequest) -> Result<Body, ApiError> {
    let changed = kubernetes.changes();
    let breaks = kubernetes.breaks();
    let now = Instant::now();
    let mut watch = Watch {
        form: request.form,
        bookmarks: request.bookmarks,
        lines: VecDeque::new(),
        is_over: false,
        deadline: now + request.timeout,
        next_bookmark: now + kubernetes.bookmark_interval(),
        changed,
        breaks,
        cursor: Cursor {
            resource: kind.id(),
            namespace: request.namespace.clone(),
            selector: request.selector.clone(),
            version: 0,
        },
        kubernetes,
        kind,
    };
    let from_now = request.send_initial_events || request.version.unwrap_or(0) == 0;
    if from_now {
        let options = ListOptions { selector: request.selector, ..ListOptions::default() };
        let page = watch.kubernetes.store().list(&watch.kind, request.namespace.as_deref(), &options)?;
        watch.cursor.version = page.version;
        for object in &page.items {
            watch.push("ADDED", object);
        }
        if request.send_initial_events {
            watch.push_bookmark(true);
        }
    } else {
        watch.cursor.version = request.version.unwrap_or(0);
    }
    Ok(Body::from_stream(futures::stream::unfold(watch, |watch| watch.next())))
}

impl Watch {
    fn line(&mut self, kind: &str, object: &Value) {
        let mut text = json!({ "type": kind, "object": object }).to_string();
        text.push('\n');
        self.lines.push_back(Bytes::from(text));
    }

    fn push(&mut self, event: &str, object: &Value) {
        let single = self.form.single(&self.kind, object);
        self.line(event, &single);
    }

    fn push_bookmark(&mut self, ends_initial_events: bool) {
        let mut metadata = json!({ "resourceVersion": self.cursor.version.to_string(), "creationTimestamp": null });
        if ends_initial_events {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({ "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata });
        self.line("BOOKMARK", &object);
    }

    /// Reads on in the log. True when there was something to say.
    fn advance(&mut self) -> bool {
        self.changed.mark_unchanged();
        let polled = {
            let store = self.kubernetes.store();
            let is_served = store.kinds().get(&self.kind.group, &self.kind.version, &self.kind.plural).is_some();
            let polled = store.poll(&mut self.cursor);
            if !is_served {
                self.is_over = true;
            }
            polled
        };
        match polled {
            Ok(events) => {
                for event in &events {
                    self.push(event.kind, &event.object);
                }
                !events.is_empty() || self.is_over
            }
            Err(error) => {
                self.line("ERROR", &error.to_status());
                self.is_over = true;
                true
            }
        }
    }

    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some((Ok(line), self));
            }
            if self.is_over {
                return None;
            }
            if self.advance() {
                continue;
            }
            let behind = self.cursor.version < self.kubernetes.store().version();
            if behind {
                continue;
            }
            tokio::select! {
                () = self.kubernetes.stopped() => return None,
                changed = self.changed.changed() => if changed.is_err() { return None },
                broken = self.breaks.changed() => {
                    let how = *self.breaks.borrow_and_update();
                    self.is_over = true;
                    if broken.is_ok() && how == Some(Break::Cut) {
                        return Some((Err(io::Error::new(io::ErrorKind::ConnectionReset, "simulated break of the connection")), self));
                    }
                }
                () = tokio::time::sleep_until(self.deadline) => {
                    if self.bookmarks {
                        self.push_bookmark(false);
                    }
                    self.is_over = true;
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + self.kubernetes.bookmark_interval();
                    self.push_bookmark(false);
                }
            }
        }
    }
}
