//! Chooses the pods, and the container in each, that the command of a hook runs in.

use std::{future, pin::pin};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::ListParams,
    core::Selector,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::time::{Instant, timeout_at};

use super::{
    hook_error::{HookError, MAX_PODS, TAIL_BYTES},
    hook_state::Point,
};
use crate::{api::Hook, human::clipped};

/// Returns the pods for a hook, at the latest at `until`. `before` waits for a ready one for as long as the command may
/// take, since the application may have been created with the SyncJob. Both wait for an API server that does not
/// answer.
pub(super) async fn awaited(
    api: &Api<Pod>,
    hook: &Hook,
    point: Point,
    until: Instant,
) -> Result<Vec<Pod>, HookError> {
    let of_hook = watcher::Config::default().labels_from(&selector(hook));
    let changes = watcher(api.clone(), of_hook).default_backoff();
    // The first list is one event. An error is one, too: a watch that is refused begins anew after a pause.
    let is_whole =
        |event: &watcher::Result<Event<Pod>>| !matches!(event, Ok(Event::Init | Event::InitApply(_)));
    let mut changes = pin!(changes.filter(|event| future::ready(is_whole(event))));
    let mut obstacle = HookError::NoAnswer { point };
    loop {
        let Ok(found) = timeout_at(until, selected(api, hook, point)).await else { return Err(obstacle) };
        obstacle = match (found, point) {
            (Err(none @ HookError::NoPod { .. }), Point::Before) => none,
            (Err(HookError::List { point, source }), _) if may_pass(&source) => {
                HookError::List { point, source }
            }
            (found, _) => return found,
        };
        let _ = timeout_at(until, changes.next()).await;
    }
}

/// Returns whether the same request may be accepted later: the API server, or the kubelet behind it, was not there.
pub(super) fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(answer) => answer.code >= 500 || answer.code == 429,
        _ => true,
    }
}

fn selector(hook: &Hook) -> Selector {
    hook.target.match_labels.clone().into_iter().collect()
}

async fn selected(api: &Api<Pod>, hook: &Hook, point: Point) -> Result<Vec<Pod>, HookError> {
    let selector = selector(hook);
    let labels = clipped(&selector.to_string(), TAIL_BYTES);
    // Those that have ended stay until somebody deletes them, and may be many.
    let running = ListParams::default().labels_from(&selector).fields("status.phase=Running");
    let params = running.limit(MAX_PODS + 1);
    let mut pods = api.list(&params).await.map_err(|source| HookError::List { point, source })?.items;
    let found = pods.len();
    if found > MAX_PODS as usize {
        return Err(HookError::TooManyPods { point, labels });
    }
    pods.retain(|pod| can_run(pod, point));
    let wanted = if point == Point::Before { "is ready" } else { "stays" };
    if pods.is_empty() { Err(HookError::NoPod { point, found, labels, wanted }) } else { Ok(pods) }
}

/// Returns whether a hook may run in a pod. A quiesced application may not be ready, but still has to be resumed.
fn can_run(pod: &Pod, point: Point) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    is_running && pod.metadata.deletion_timestamp.is_none() && (point == Point::After || is_ready)
}

/// Returns the name of the container: the first one, unless the hook names another.
pub(super) fn container(pod: &Pod, hook: &Hook) -> String {
    let first = || pod.spec.as_ref()?.containers.first().map(|it| it.name.clone());
    hook.target.container.clone().or_else(first).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, ready: &str) -> Pod {
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    #[test]
    fn before_needs_a_ready_pod_and_after_one_that_runs() {
        for (pod, before, after) in [
            (pod("Running", "True"), true, true),
            (pod("Running", "False"), false, true),
            (pod("Pending", "False"), false, false),
            (pod("Succeeded", "False"), false, false),
        ] {
            assert_eq!(
                (can_run(&pod, Point::Before), can_run(&pod, Point::After)),
                (before, after),
                "{pod:?}"
            );
        }
        let mut leaving = pod("Running", "True");
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(!can_run(&leaving, Point::Before) && !can_run(&leaving, Point::After));
    }
}
