//! ERROR logs of the code under test: one of them fails a run.

use std::cell::RefCell;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

thread_local! {
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The first ERROR since the last call.
pub fn take() -> Option<String> {
    SEEN.with(|seen| seen.borrow_mut().take())
}

/// Runs something with ERROR logs of this thread noted.
pub fn watched<T>(run: impl FnOnce() -> T) -> T {
    take();
    tracing::subscriber::with_default(Watcher, run)
}

struct Watcher;

impl Subscriber for Watcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{}:", event.metadata().target()));
        event.record(&mut text);
        SEEN.with(|seen| seen.borrow_mut().get_or_insert(text.0).len());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        // Writing to a String cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
