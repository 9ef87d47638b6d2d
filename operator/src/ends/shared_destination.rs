//! Whether other SyncJobs write to the destination of one, so that each undoes what the other does. Pure.

use contract::{Reason, Side};
use kube::ResourceExt as _;

use super::end_kind::EndKind;
use crate::{
    api::{SyncJob, conditions},
    human,
};

/// The bound for the names of other SyncJobs in a note.
const MAX_NAMES_BYTES: usize = 512;

/// Returns a note about the other SyncJobs that write to the destination of `job`; `None` if there are none. Each
/// undoes what the other does.
pub fn shared<'a>(job: &SyncJob, others: impl IntoIterator<Item = &'a SyncJob>) -> Option<String> {
    let folder = |job: &SyncJob| {
        let own = job.namespace().unwrap_or_default();
        let end = EndKind::parse(&job.spec, Side::Sink, &own).ok()?;
        Some(end.run_folder(&own).seen_from(&own))
    };
    // A store takes the snapshots of any number of SyncJobs.
    let own = folder(job).filter(|own| !own.is_object_storage())?;
    let is_other = |other: &&SyncJob| {
        if other.metadata.namespace == job.metadata.namespace {
            other.name_any() != job.name_any()
        } else {
            may_write(other)
        }
    };
    let name = |other: &SyncJob| {
        if other.metadata.namespace == job.metadata.namespace {
            other.name_any()
        } else {
            format!("{}/{}", other.namespace().unwrap_or_default(), other.name_any())
        }
    };
    let others = others.into_iter().filter(is_other).filter(|other| !other.spec.suspend);
    let mut names: Vec<String> =
        others.filter(|other| folder(other).is_some_and(|it| it.overlaps(&own))).map(name).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| {
        format!(
            "The destination is also that of SyncJob {}: each run replaces what the other made. Give each a folder \
             (spec.destination.path) or a claim of its own.",
            human::clipped(&names.join(", "), MAX_NAMES_BYTES)
        )
    })
}

/// Returns whether a SyncJob of another namespace has run as its spec is now, and has not lost its grant since: else it
/// writes nothing there.
fn may_write(other: &SyncJob) -> bool {
    let Some(status) = other.status.as_ref().filter(|it| it.observed_generation == other.metadata.generation)
    else {
        return false;
    };
    let refused = [Reason::NotGranted, Reason::NamespaceNotWatched];
    let stalled = conditions::find(&status.conditions, conditions::STALLED);
    let is_refused =
        stalled.is_some_and(|it| it.status == "True" && refused.iter().any(|why| it.reason == **why));
    let reason = status.last_run.as_ref().map(|run| run.reason.clone());
    !is_refused && reason.is_some_and(|reason| reason.is_none_or(|reason| !refused.contains(&reason)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_job_onto_the_same_folder_is_named_and_one_beside_it_is_not() {
        let job = |name: &str, path: &str, suspend: bool| {
            let spec = json!({
                "source": {"persistentVolumeClaim": {"claimName": "a"}},
                "destination": {"persistentVolumeClaim": {"claimName": "b"}, "path": path},
                "suspend": suspend,
            });
            SyncJob::new(name, serde_json::from_value(spec).unwrap())
        };
        let own = job("web", "/x", false);
        let beside = [own.clone(), job("beside", "/y", false), job("paused", "/x", true)];
        assert_eq!(shared(&own, &beside), None);
        let note = shared(&own, &[job("below", "/x/z", false), job("all", "/", false)]).unwrap();
        assert!(note.starts_with("The destination is also that of SyncJob all, below:"), "{note}");
    }
    #[test]
    fn a_job_of_another_namespace_counts_while_it_may_write() {
        let job = |namespace: &str, claim: serde_json::Value, status: serde_json::Value| {
            let spec = json!({
                "source": {"persistentVolumeClaim": {"claimName": "a"}},
                "destination": {"persistentVolumeClaim": claim},
            });
            let mut job = SyncJob::new("x", serde_json::from_value(spec).unwrap());
            job.metadata.namespace = Some(namespace.into());
            job.status = serde_json::from_value(status).unwrap();
            job
        };
        let own = job("victim", json!({"claimName": "copy"}), json!(null));
        let abroad = |status| job("evil", json!({"namespace": "victim", "claimName": "copy"}), status);
        let run = |reason: Option<&str>| json!({"id": "x-1", "result": "Failed", "reason": reason});
        let stalled = json!({
            "type": "Stalled", "status": "True", "reason": "NotGranted", "message": "",
            "lastTransitionTime": "2027-01-06T05:00:00Z",
        });
        for (status, counts) in [
            (json!(null), false),
            (json!({}), false),
            (json!({"lastRun": run(None)}), true),
            (json!({"lastRun": run(Some("PeerLost"))}), true),
            (json!({"lastRun": run(Some("NotGranted"))}), false),
            (json!({"lastRun": run(None), "conditions": [stalled]}), false),
            (json!({"lastRun": run(None), "observedGeneration": 1}), false),
        ] {
            assert_eq!(shared(&own, &[abroad(status.clone())]).is_some(), counts, "{status}");
        }
    }
}
