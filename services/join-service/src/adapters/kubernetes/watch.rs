//! Watching: the documents, and the names of the cluster's nodes.

use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use kubernetes_client::watch::{News, forward};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Kubernetes, LABEL, MANAGER, classified, document};
use crate::document::Store;
use crate::event::{ErrorClass, Event, Observation, StoreError};

/// Running watches; they end when this is dropped.
#[derive(Debug)]
pub struct Watches {
    _tasks: JoinSet<()>,
}

impl Kubernetes {
    /// Watches until the inbox is gone or the result is dropped.
    #[must_use]
    pub fn watch(&self, inbox: &mpsc::Sender<Event>) -> Watches {
        let mut tasks = JoinSet::new();
        for store in [Store::ConfigMaps, Store::Leases] {
            let ours = watcher::Config::default().labels(&format!("{LABEL}={MANAGER}"));
            let stream = watcher(self.api(store), ours);
            let read = move |object: DynamicObject| document(store, &object);
            let event = move |news| Some(Event::Documents(store, observation(news)?));
            tasks.spawn(forward(stream, read, inbox.clone(), event));
        }
        let node = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &node);
        let stream = watcher(nodes, watcher::Config::default());
        let event = |news| observation(news).map(Event::Nodes);
        tasks.spawn(forward(stream, |node: DynamicObject| node.metadata.name, inbox.clone(), event));
        Watches { _tasks: tasks }
    }
}

/// None: nothing to tell.
fn observation<T>(news: News<T>) -> Option<Observation<T>> {
    match news {
        News::Listed(all) => Some(Observation::Listed(all)),
        News::Changed(one) => Some(Observation::Changed(one)),
        News::Gone(one) => Some(Observation::Gone(one)),
        News::Interrupted(error) => failed(&error),
    }
}

/// None: no failure, the watch begins again from a list.
fn failed<T>(error: &watcher::Error) -> Option<Observation<T>> {
    let refused = |message: String| Some(Observation::Failed(StoreError { class: ErrorClass::Refused, message }));
    match error {
        watcher::Error::WatchError(status) if status.code == 410 => None,
        watcher::Error::WatchError(status) => refused(format!("{} ({})", status.message, status.code)),
        watcher::Error::NoResourceVersion => refused(error.to_string()),
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(Observation::Failed(classified(error))),
    }
}
