//! Tells whether a watch works, and begins one anew that would not say so.

use contract::chain;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use kube::runtime::watcher::{self, DefaultBackoff};

/// Passes the events of a watch on, and begins another one, with its list, after it could not be resumed, the later the
/// more have failed in a row. A watch that is resumed says so by no event, and would count as failing until an object
/// changes.
pub(super) fn listing_anew<K: 'static>(
    watch: impl Fn() -> BoxStream<'static, watcher::Result<watcher::Event<K>>> + Send + 'static,
) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
    let begun = (watch(), watch, DefaultBackoff::default(), false);
    let events = stream::unfold(begun, async |(mut events, watch, mut backoff, is_lost)| {
        if is_lost {
            tokio::time::sleep(backoff.next().unwrap_or_default()).await;
            events = watch();
        }
        let event = events.next().await?;
        let is_lost = matches!(event, Err(watcher::Error::WatchStartFailed(_)));
        Some((event, (events, watch, backoff, is_lost)))
    });
    events.boxed()
}

/// Returns what an event says of whether its watch works: `Some(None)` if it does, `Some` with the error if the API
/// server refuses it, and `None` if neither is known, as when a connection ends.
pub(super) fn failure<K>(event: &watcher::Result<watcher::Event<K>>) -> Option<Option<String>> {
    match event {
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
        Ok(_) => Some(None),
        Err(error @ (watcher::Error::InitialListFailed(_) | watcher::Error::WatchStartFailed(_))) => {
            Some(Some(chain(error)))
        }
        Err(_) => None,
    }
}
