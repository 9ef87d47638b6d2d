//! Whether other SyncJobs write to the destination of one, so that each undoes what the other does. Pure.

use contract::Side;
use kube::ResourceExt as _;

use super::end_kind::EndKind;
use crate::{api::SyncJob, human};

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
    // One of another namespace that has never run may have no grant.
    let has_run = |other: &SyncJob| other.status.as_ref().is_some_and(|status| status.last_run.is_some());
    let is_other = |other: &&SyncJob| {
        if other.metadata.namespace == job.metadata.namespace {
            other.name_any() != job.name_any()
        } else {
            has_run(other)
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
}
