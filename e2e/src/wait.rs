//! Waits for objects by watches; an error shows the last state when the time ran out. What cannot be watched is polled.

use std::{fmt::Debug, future::ready, pin::pin, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::{Serialize, de::DeserializeOwned};

/// The pause between two looks of [`poll`]: those who wait leave the processors to what they wait for.
const PAUSE: Duration = Duration::from_millis(50);

/// The kinds of objects to wait for.
pub trait Kind: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static {}
impl<K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static> Kind for K {}

/// Passes on what a watch tells, but for one error: that of a version which the API server no longer knows, as it may
/// be for a kind that was made a moment ago. The watch then lists anew by itself.
pub fn unexpired<T>(watch: impl Stream<Item = watcher::Result<T>>) -> impl Stream<Item = watcher::Result<T>> {
    let is_expired = |told: &watcher::Result<T>| matches!(told, Err(watcher::Error::WatchError(status)) if status.code == 410);
    watch.filter(move |told| ready(!is_expired(told)))
}

/// Returns the object `name` once `holds` is true of it.
///
/// # Errors
/// `limit` passes before that; `what` finishes the sentence "waited in vain until …".
pub async fn until<K: Kind>(
    api: &Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    holds: impl Fn(&K) -> bool,
) -> Result<K> {
    let mut last = None;
    let mut objects = pin!(watcher::watch_object(api.clone(), name).default_backoff());
    let found = tokio::time::timeout(limit, async {
        while let Some(object) = objects.next().await {
            last = object.with_context(|| format!("watching {name}"))?;
            if let Some(object) = last.as_ref().filter(|object| holds(object)) {
                return Ok(object.clone());
            }
        }
        bail!("the watch of {name} ended")
    });
    match found.await {
        Ok(result) => result,
        Err(_) => bail!("waited in vain until {what}; {name} is {}", shown(last.as_ref())),
    }
}

/// Waits until no object of that name exists.
pub async fn until_gone<K: Kind>(api: &Api<K>, name: &str, limit: Duration) -> Result<()> {
    let mut last = None;
    let mut objects = pin!(watcher::watch_object(api.clone(), name).default_backoff());
    let gone = tokio::time::timeout(limit, async {
        while let Some(object) = objects.try_next().await? {
            last = object;
            if last.is_none() {
                break;
            }
        }
        Ok::<_, watcher::Error>(())
    });
    match gone.await {
        Ok(result) => result.with_context(|| format!("watching {name}")),
        Err(_) => bail!("{name} is still there: {}", shown(last.as_ref())),
    }
}

/// Returns the first object with those labels of which `holds` is true.
pub async fn until_any<K: Kind>(
    api: &Api<K>,
    labels: &str,
    what: &str,
    limit: Duration,
    holds: impl Fn(&K) -> bool,
) -> Result<K> {
    let config = watcher::Config::default().labels(labels);
    let objects = watcher(api.clone(), config).default_backoff().applied_objects();
    let mut matching = pin!(objects.try_filter(|object| ready(holds(object))));
    match tokio::time::timeout(limit, matching.try_next()).await {
        Ok(found) => found.context("watching a list")?.context("the watch ended"),
        Err(_) => bail!("waited in vain until {what}, among {}", listed(api, labels).await),
    }
}

/// Waits until there is no object with those labels.
///
/// # Errors
/// `limit` passes before that.
pub async fn until_none<K: Kind>(api: &Api<K>, labels: &str, limit: Duration) -> Result<()> {
    let params = kube::api::ListParams::default().labels(labels);
    for object in api.list(&params).await?.items {
        let name = object.meta().name.clone().unwrap_or_default();
        until_gone(api, &name, limit).await?;
    }
    Ok(())
}

/// Polls until `holds` is true of a state that cannot be watched.
///
/// # Errors
/// `limit` passes before that; `what` finishes the sentence "waited in vain until …".
pub async fn poll(what: &str, limit: Duration, holds: impl AsyncFn() -> bool) -> Result<()> {
    poll_for(what, limit, async || holds().await.then_some(())).await
}

/// Polls as [`poll`] does, and returns what `look` finds.
pub async fn poll_for<T>(what: &str, limit: Duration, look: impl AsyncFn() -> Option<T>) -> Result<T> {
    // On the heap: tests are so long that their futures fill the stacks of their threads.
    let found = Box::pin(async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    tokio::time::timeout(limit, found).await.with_context(|| format!("waited in vain until {what}"))
}

/// Returns whether a pod is ready and not being deleted.
pub fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn listed<K: Kind>(api: &Api<K>, labels: &str) -> String {
    match api.list(&kube::api::ListParams::default().labels(labels)).await {
        Ok(list) => list.items.iter().map(|item| shown(Some(item))).collect::<Vec<_>>().join("\n"),
        Err(error) => error.to_string(),
    }
}

fn shown<K: Kind>(object: Option<&K>) -> String {
    let Some(object) = object else { return "not there".into() };
    let mut object = object.clone();
    object.meta_mut().managed_fields = None;
    serde_json::to_string_pretty(&object).unwrap_or_else(|error| error.to_string())
}
