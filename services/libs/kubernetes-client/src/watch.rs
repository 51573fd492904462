//! Watches as the services take them: a list, then what changes of it.
//!
//! A watch never ends by itself. After an error it begins again with a list, after a pause that grows up to [`PAUSE_MAX`]. Where the API server does not have the changes any more
//! (410), the list comes at once, and nothing is said of it. When one watch of a set has listed again, those that pause try at once.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{ErrorClass, KubernetesError};

/// First pause after an error, without jitter.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// Longest pause after an error, with jitter. A watch that has run as long was well: its next pause is a first one.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Lists that follow 410 without a pause are at least that far from each other.
const AT_ONCE: Duration = Duration::from_secs(1);

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// All there are: replaces what was known. The first one, and the first after [`WatchEvent::Interrupted`].
    Listed(Vec<T>),
    /// One came or changed.
    Changed(T),
    /// One went; its last state.
    Gone(T),
    /// The API server does not know this kind: there are none. It is asked again.
    NotInstalled,
    /// The watch is interrupted and is tried again; what is known may be old.
    Interrupted(KubernetesError),
}

/// Running watches of one API server; they end when this is dropped.
#[derive(Debug, Default)]
pub struct Watches {
    tasks: JoinSet<()>,
    resumed: Arc<Notify>,
}

impl Watches {
    /// Puts the events of a watch into an inbox, each object as `read` reads it, until the inbox is gone. Objects for which `read` returns None are left out; if `event` returns
    /// None, nothing is put there. While the inbox is full the API server's stream waits.
    pub fn follow<K, T, E>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        read: impl Fn(K) -> Option<T> + Send + 'static,
        inbox: Sender<E>,
        event: impl Fn(WatchEvent<T>) -> Option<E> + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let resource = api.resource_url().to_owned();
        let begin = move || watcher(api.clone(), config.clone());
        let address = move |watch_event| event(watch_event).map(|event| (inbox.clone(), event));
        self.tasks.spawn(run(resource, begin, read, address, self.resumed.clone()));
    }
}

/// Watches until the inbox is gone.
// long: one loop whose arms share the state of one watch.
async fn run<K, T, E, W>(
    resource: String,
    begin: impl Fn() -> W + Send,
    read: impl Fn(K) -> Option<T> + Send,
    address: impl Fn(WatchEvent<T>) -> Option<(Sender<E>, E)> + Send,
    resumed: Arc<Notify>,
) where
    K: Send,
    T: Send,
    E: Send,
    W: Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
{
    let mut pauses = Pauses::new();
    let mut is_interrupted = false;
    let mut warned = String::new();
    loop {
        let mut watch = pin!(begin());
        let mut listing = Vec::new();
        let error = loop {
            let watch_event = match watch.next().await {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(watcher::Event::Init)) => {
                    listing.clear();
                    None
                }
                Some(Ok(watcher::Event::InitApply(object))) => {
                    listing.extend(read(object));
                    None
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    pauses.listed();
                    if std::mem::take(&mut is_interrupted) {
                        tracing::info!(resource, "watch runs again");
                        resumed.notify_waiters();
                    }
                    Some(WatchEvent::Listed(std::mem::take(&mut listing)))
                }
                Some(Ok(watcher::Event::Apply(object))) => read(object).map(WatchEvent::Changed),
                Some(Ok(watcher::Event::Delete(object))) => read(object).map(WatchEvent::Gone),
            };
            if let Some((inbox, event)) = watch_event.and_then(&address)
                && inbox.send(event).await.is_err()
            {
                return;
            }
        };
        let Some(error) = error else { continue };
        if is_gone(&error) && pauses.may_list_at_once() {
            tracing::debug!(resource, "the API server does not have the changes any more: listing again");
            continue;
        }
        let pause = pauses.next();
        let watch_event = interrupted(&error);
        // A refusal that stays is said once.
        let text = error.to_string();
        if text != warned {
            tracing::warn!(resource, error = text, ?pause, "watch is interrupted and begins again with a list");
            warned = text;
        }
        is_interrupted = true;
        let others = resumed.notified();
        if let Some((inbox, event)) = address(watch_event)
            && inbox.send(event).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = others => pauses = Pauses::new(),
        }
    }
}

/// The API server does not have the changes since the last list any more.
fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

fn interrupted<T>(error: &watcher::Error) -> WatchEvent<T> {
    let refused = |message| WatchEvent::Interrupted(KubernetesError { class: ErrorClass::Refused, message });
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => WatchEvent::NotInstalled,
        watcher::Error::WatchError(status) => WatchEvent::Interrupted(KubernetesError::from(status.as_ref())),
        watcher::Error::NoResourceVersion => refused(error.to_string()),
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => WatchEvent::Interrupted(error.into()),
    }
}

/// How long a watch pauses after an error.
struct Pauses {
    growing: ExponentialBackoff,
    listed_at: Option<Instant>,
    at_once_at: Option<Instant>,
}

impl Pauses {
    fn new() -> Self {
        Self { growing: Self::from_first(), listed_at: None, at_once_at: None }
    }

    fn from_first() -> ExponentialBackoff {
        // The jitter adds up to the pause itself.
        let pauses = ExponentialBuilder::new().with_min_delay(PAUSE_FIRST).with_max_delay(PAUSE_MAX / 2);
        pauses.with_jitter().without_max_times().build()
    }

    fn listed(&mut self) {
        self.listed_at = Some(Instant::now());
    }

    /// A list alone is not a success: a client that may list and not watch would list several times a second.
    fn next(&mut self) -> Duration {
        if self.listed_at.take().is_some_and(|at| at.elapsed() >= PAUSE_MAX) {
            self.growing = Self::from_first();
        }
        self.growing.next().unwrap_or(PAUSE_MAX)
    }

    fn may_list_at_once(&mut self) -> bool {
        let may = self.at_once_at.is_none_or(|at| at.elapsed() >= AT_ONCE);
        if may {
            self.at_once_at = Some(Instant::now());
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use futures::stream;
    use kube::core::Status;
    use tokio::sync::mpsc;

    use super::*;
    use watcher::Event::{Apply, Init, InitApply, InitDone};

    type Item = Result<watcher::Event<u32>, watcher::Error>;

    fn error(code: u16) -> Item {
        Err(watcher::Error::WatchError(Box::new(Status { code, message: format!("code {code}"), ..Status::default() })))
    }

    fn list(objects: &[u32]) -> Vec<Item> {
        let objects = objects.iter().map(|object| Ok(InitApply(*object)));
        [Ok(Init)].into_iter().chain(objects).chain([Ok(InitDone)]).collect()
    }

    /// A watch whose streams are those, one after the other; the last one stays open. Yields its events, and the seconds since the start.
    fn watch(resumed: &Arc<Notify>, streams: Vec<Vec<Item>>) -> mpsc::Receiver<(String, f32)> {
        let (inbox, events) = mpsc::channel(64);
        let streams = Mutex::new(VecDeque::from(streams));
        let begin = move || {
            let mut streams = streams.lock().unwrap();
            let items = streams.pop_front().unwrap_or_default();
            let open = streams.is_empty().then(stream::pending);
            stream::iter(items).chain(stream::iter(open).flatten())
        };
        let start = Instant::now();
        let address = move |watch_event: WatchEvent<u32>| {
            let text = match watch_event {
                WatchEvent::Listed(all) => format!("listed {all:?}"),
                WatchEvent::Changed(one) => format!("changed {one}"),
                WatchEvent::Gone(one) => format!("gone {one}"),
                WatchEvent::NotInstalled => "not installed".to_owned(),
                WatchEvent::Interrupted(error) => format!("interrupted: {error}"),
            };
            Some((inbox.clone(), (text, start.elapsed().as_secs_f32())))
        };
        tokio::spawn(run("/x".to_owned(), begin, Some, address, resumed.clone()));
        events
    }

    fn followed_by(mut items: Vec<Item>, more: Item) -> Vec<Item> {
        items.push(more);
        items
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_have_any_more_is_listed_at_once_without_a_word() {
        let first = followed_by(list(&[1]), error(410));
        let mut events = watch(&Arc::default(), vec![first, followed_by(list(&[2]), Ok(Apply(3)))]);
        for expected in ["listed [1]", "listed [2]", "changed 3"] {
            assert_eq!(events.recv().await, Some((expected.to_owned(), 0.0)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_has_the_changes_is_not_asked_again_and_again() {
        let lists = (0..100).map(|_| followed_by(list(&[]), error(410))).collect();
        let mut events = watch(&Arc::default(), lists);
        let mut listed = 0;
        while let Ok(Some((text, at))) = tokio::time::timeout(Duration::from_secs(60), events.recv()).await {
            listed += usize::from(text == "listed []" && at < 60.0);
        }
        assert!((5..=30).contains(&listed), "{listed} lists in a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_longest_and_begin_again_after_a_watch_that_was_well() {
        let mut streams: Vec<_> = (0..12).map(|_| vec![error(503)]).collect();
        streams.push(list(&[1]));
        let mut events = watch(&Arc::default(), streams);
        let mut times = Vec::new();
        for _ in 0..12 {
            let (text, at) = events.recv().await.unwrap();
            assert_eq!(text, "interrupted: code 503 (503)");
            times.push(at);
        }
        let (text, at) = events.recv().await.unwrap();
        assert_eq!(text, "listed [1]");
        times.push(at);
        let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let longest = PAUSE_MAX.as_secs_f32();
        assert!(pauses[0] <= 0.5 && pauses.iter().all(|pause| *pause <= longest + 0.01), "{pauses:?}");
        assert!(pauses[8..].iter().all(|pause| *pause >= longest / 2.0 - 0.01), "{pauses:?}");
        assert!(pauses[8..].windows(2).any(|pair| pair[0] != pair[1]), "jitter: {pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_list_and_not_watch_lists_ever_more_seldom() {
        let mut events = watch(&Arc::default(), (0..9).map(|_| followed_by(list(&[]), error(403))).collect());
        let mut last = 0.0;
        while let Ok(Some((_, at))) = tokio::time::timeout(2 * PAUSE_MAX, events.recv()).await {
            last = at;
        }
        assert!(last > 20.0, "9 lists within {last} s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_watch_that_lists_again_ends_the_pauses_of_all() {
        let resumed = Arc::default();
        let mut streams: Vec<_> = (0..9).map(|_| vec![error(503)]).collect();
        streams.push(list(&[1]));
        let mut late = watch(&resumed, streams);
        for _ in 0..9 {
            late.recv().await.unwrap();
        }
        // It pauses for seconds now; another one lists a moment later.
        let mut early = watch(&resumed, vec![vec![error(503)], list(&[2])]);
        early.recv().await.unwrap();
        let (text, after) = early.recv().await.unwrap();
        assert_eq!(text, "listed [2]");
        assert!(after <= 0.5, "{after}");
        let before = Instant::now();
        assert_eq!(late.recv().await.unwrap().0, "listed [1]");
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
