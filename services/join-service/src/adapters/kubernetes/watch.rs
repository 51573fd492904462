//! Watching: the documents, and the names of the cluster's nodes.

use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use kubernetes_client::watch::{News, news};
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
            tasks.spawn(run(stream, inbox.clone(), read, move |observation| Event::Documents(store, observation)));
        }
        let node = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &node);
        let stream = watcher(nodes, watcher::Config::default());
        tasks.spawn(run(stream, inbox.clone(), |node: DynamicObject| node.metadata.name, Event::Nodes));
        Watches { _tasks: tasks }
    }
}

async fn run<K, T>(
    stream: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
    inbox: mpsc::Sender<Event>,
    read: impl Fn(K) -> Option<T> + Send,
    event: impl Fn(Observation<T>) -> Event + Send,
) where
    K: Send,
    T: Send,
{
    let mut news = std::pin::pin!(news(stream, read));
    while let Some(told) = news.next().await {
        let observation = match told {
            News::Listed(all) => Some(Observation::Listed(all)),
            News::Changed(one) => Some(Observation::Changed(one)),
            News::Gone(one) => Some(Observation::Gone(one)),
            News::Interrupted(error) => failed(&error),
        };
        // The inbox is full while the state is busy; then the API server's stream waits, too.
        if let Some(observation) = observation
            && inbox.send(event(observation)).await.is_err()
        {
            return;
        }
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
