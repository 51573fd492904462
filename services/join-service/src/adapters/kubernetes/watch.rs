//! Watching: the documents, and the names of the cluster's nodes.

use kube::api::DynamicObject;
use kube::runtime::watcher::Config;
use kubernetes_client::watch::{WatchEvent, Watches};
use tokio::sync::mpsc;

use super::{Kubernetes, LABEL, MANAGER, document};
use crate::document::Store;
use crate::event::{ErrorClass, Event, Observation, StoreError};

impl Kubernetes {
    /// Watches until the inbox is gone or the result is dropped.
    #[must_use]
    pub fn watch(&self, inbox: &mpsc::Sender<Event>) -> Watches {
        let mut watches = Watches::default();
        for store in [Store::ConfigMaps, Store::Leases] {
            let ours = Config::default().labels(&format!("{LABEL}={MANAGER}"));
            let read = move |object: DynamicObject| document(store, &object);
            let event = move |watch_event| Some(Event::Documents(store, observation(watch_event)));
            watches.follow(self.api(store), ours, read, inbox.clone(), event);
        }
        let name = |node: DynamicObject| node.metadata.name;
        watches.follow(self.nodes(), Config::default(), name, inbox.clone(), |watch_event| {
            Some(Event::Nodes(observation(watch_event)))
        });
        watches
    }
}

fn observation<T>(watch_event: WatchEvent<T>) -> Observation<T> {
    match watch_event {
        WatchEvent::Listed(all) => Observation::Listed(all),
        WatchEvent::Changed(one) => Observation::Changed(one),
        WatchEvent::Gone(one) => Observation::Gone(one),
        // What is watched is part of every Kubernetes.
        WatchEvent::NotInstalled => Observation::Failed(StoreError {
            class: ErrorClass::Refused,
            message: "the API server does not know the kind (404)".to_owned(),
        }),
        WatchEvent::Interrupted(error) => Observation::Failed(error),
    }
}
