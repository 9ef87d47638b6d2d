//! Waits for objects, by watches that are begun again when the API server was away.

use std::{fmt::Debug, pin::pin};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        wait::{self, Condition},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use super::{error::told, output};

/// Waits until `condition` holds of the object `name`, and returns the object, if it exists then.
///
/// # Errors
/// If the API server refuses the watch.
pub(super) async fn await_condition<K>(
    api: Api<K>,
    name: &str,
    condition: impl Condition<K>,
) -> Result<Option<K>, wait::Error>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let mut seen = pin!(watcher::watch_object(api, name).default_backoff());
    while let Some(found) = next_seen(&mut seen).await.map_err(wait::Error::ProbeFailed)? {
        if condition.matches_object(found.as_ref()) {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns what a watch sees next; `None` at its end. Errors of the connection are told, and the watch goes on.
///
/// # Errors
/// If the API server refuses the watch.
pub(super) async fn next_seen<T>(
    seen: &mut (impl Stream<Item = Result<T, watcher::Error>> + Unpin),
) -> Result<Option<T>, watcher::Error> {
    loop {
        match seen.next().await {
            Some(Err(error)) if !is_refused(&error) => {
                output::complain(&format!("note: the API server is asked again: {}", told(&error)));
            }
            next => return next.transpose(),
        }
    }
}

/// Returns whether the API server refuses a watch, which asking again does not change.
fn is_refused(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) = error else {
        return false;
    };
    matches!(source, kube::Error::Api(answer) if [401, 403, 404].contains(&answer.code))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::Status;

    use super::*;

    fn refusal(code: u16) -> watcher::Error {
        let answer = Status { code, ..Status::default() };
        watcher::Error::WatchStartFailed(kube::Error::Api(answer.boxed()))
    }

    #[tokio::test]
    async fn a_watch_that_breaks_goes_on_and_one_that_is_refused_ends() {
        let mut seen = stream::iter([Err(watcher::Error::NoResourceVersion), Err(refusal(503)), Ok(1)]);
        assert_eq!(next_seen(&mut seen).await.unwrap(), Some(1));
        assert_eq!(next_seen(&mut seen).await.unwrap(), None);
        let mut seen = stream::iter([Err(refusal(403)), Ok(1)]);
        assert!(next_seen(&mut seen).await.is_err());
    }
}
