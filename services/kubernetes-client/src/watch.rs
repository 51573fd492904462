//! A watch as the services take it: a list, then what changes of it.

use std::future::ready;

use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use tokio::sync::mpsc::Sender;

/// What a watch tells.
#[derive(Debug)]
pub enum News<T> {
    /// All there are: replaces what was known.
    Listed(Vec<T>),
    /// One came or changed.
    Changed(T),
    /// One went; its last state.
    Gone(T),
    /// The watch is interrupted and is tried again, after a pause that grows; what is known may be old.
    Interrupted(watcher::Error),
}

/// Puts what a watch tells into an inbox, each object as `read` reads it, until the inbox is gone. Of what `event` makes nothing, nothing is told.
/// While the inbox is full the API server's stream waits.
pub async fn forward<K, T, E>(
    watch: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
    read: impl Fn(K) -> Option<T> + Send,
    inbox: Sender<E>,
    event: impl Fn(News<T>) -> Option<E> + Send,
) where
    K: Send,
    T: Send,
    E: Send,
{
    let mut news = std::pin::pin!(news(watch, read));
    while let Some(told) = news.next().await {
        if let Some(event) = event(told)
            && inbox.send(event).await.is_err()
        {
            return;
        }
    }
}

/// What a watch tells. Objects that `read` reads nothing of are left out; a list is told when it is whole.
fn news<K, T>(
    watch: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
    read: impl Fn(K) -> Option<T> + Send,
) -> impl Stream<Item = News<T>> + Send
where
    K: Send,
    T: Send,
{
    let mut listing = Vec::new();
    watch.default_backoff().filter_map(move |item| {
        ready(match item {
            Ok(watcher::Event::Init) => {
                listing.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.extend(read(object));
                None
            }
            Ok(watcher::Event::InitDone) => Some(News::Listed(std::mem::take(&mut listing))),
            Ok(watcher::Event::Apply(object)) => read(object).map(News::Changed),
            Ok(watcher::Event::Delete(object)) => read(object).map(News::Gone),
            Err(error) => Some(News::Interrupted(error)),
        })
    })
}
