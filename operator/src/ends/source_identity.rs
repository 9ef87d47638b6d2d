//! Remembers which claim a job's source is, so that a claim that was made anew under its name, which its application
//! may have filled with defaults, does not replace the only copy. Pure.

use contract::{OtherSource, Reason, RunResult, Side};
use kube::ResourceExt as _;

use super::{claim_end, end_kind::EndKind};
use crate::{
    api::{ActiveRun, ClaimReference, GROUP, KnownSource, SyncJob, SyncJobStatus},
    fault::Fault,
    names::{self, ANNOTATION_ACCEPT_SOURCE},
    spec::validate::ValidatedSyncJob,
    volumes::claims::{Blocked, Claim},
};

/// The remedy for a run that was refused because the source's claim is not that of the last successful run. It follows
/// the engine's message.
pub const ACCEPT: &str = "If this source shall replace the copy, annotate the SyncJob with its id, \
                          volferry.dev/accept-source=ID, and start a run. Otherwise bring the data back first.";

/// What is known of the source now.
#[derive(Debug, Clone, Copy)]
pub struct SourceNow<'a> {
    /// The claims of both ends.
    pub claims: &'a [Claim],
    /// What a person has accepted as the source: the UID of a claim, or the id of a volume.
    pub accepted: Option<&'a str>,
    /// Whether the source's claim was made from the destination's.
    pub is_copy: bool,
}

/// Returns the UID of the source's claim, if the claim exists.
pub fn uid(claims: &[Claim]) -> Option<&str> {
    let claim = claims.iter().find(|claim| claim.side == Side::Source)?;
    claim.found.as_ref()?.metadata.uid.as_deref()
}

/// Blocks a job whose source is a claim that was made anew since the last successful run, unless a person has accepted
/// it by its UID, or it holds what the destination has.
///
/// # Errors
/// Says how to accept the claim.
pub fn check(
    status: &SyncJobStatus,
    job: &ValidatedSyncJob,
    SourceNow { claims, accepted, is_copy }: SourceNow<'_>,
) -> Result<(), Blocked> {
    let known = status.source.as_ref().filter(|known| is_named(known, job));
    let (Some(known), Some(uid)) = (known, uid(claims)) else { return Ok(()) };
    let name = &known.claim_name;
    if known.claim_uid == uid || accepted == Some(uid) || is_copy {
        return Ok(());
    }
    let message = format!(
        "The source's claim {name} was made anew since the last successful run (UID {uid} in place of {}). A run would \
         replace the copy with what it holds. If that is wanted, annotate the SyncJob with {ANNOTATION_ACCEPT_SOURCE}={uid}. \
         Otherwise bring the data back first: a SyncJob from the destination to that claim does, and is recognised.",
        known.claim_uid
    );
    Err(Blocked::Stalled(Fault::new(Reason::OtherSource, message)))
}

/// Returns whether the destination refuses another source than that of its copy, which it remembers: also after the
/// SyncJob was made anew, and where another volume is behind the claim. `None` where it remembers none: for devices,
/// snapshots, what the storage captured (which may be another volume each time), and a folder that has several sources.
pub fn rule(
    status: &SyncJobStatus,
    job: &ValidatedSyncJob,
    run: &ActiveRun,
    SourceNow { claims, accepted, is_copy }: SourceNow<'_>,
    has_one_source: bool,
) -> Option<OtherSource> {
    let is_device = job.params.image || job.ends.iter().any(EndKind::is_block);
    // An endpoint's owner decides which sources it takes, and a snapshot in object storage replaces none.
    if is_device
        || job.ends.sink.claim().is_none()
        || job.params.source_snapshot.is_some()
        || run.capture.is_some()
        || !has_one_source
    {
        return None;
    }
    let known = status.source.as_ref();
    let is_renamed = known.is_some_and(|known| !is_named(known, job));
    // The UID of a claim that a run has succeeded with accepts no other volume behind that claim.
    let is_known = accepted.is_some() && known.map(|known| known.claim_uid.as_str()) == accepted;
    let is_accepted = accepted.is_some() && accepted == uid(claims) && !is_known;
    if is_renamed || is_accepted || is_copy {
        return Some(OtherSource::Accept);
    }
    let id = accepted.and_then(|accepted| accepted.parse().ok());
    Some(id.map_or(OtherSource::Refuse, OtherSource::Only))
}

/// Returns whether the job names the claim that is known.
fn is_named(known: &KnownSource, job: &ValidatedSyncJob) -> bool {
    let Some(claim) = job.ends.source.claim() else { return false };
    known.claim_name == claim.name && known.namespace == claim.namespace_from(&job.namespace)
}

/// Returns whether the source's claim was made from the destination's: as its clone, by a SyncJob in the other
/// direction that has succeeded with it, or because it names this SyncJob and came up filled with its copy.
pub fn is_copy<'a>(job: &SyncJob, claims: &[Claim], jobs: impl IntoIterator<Item = &'a SyncJob>) -> bool {
    let claim = |job: &SyncJob, of: &ClaimReference| claim_end::NamespacedClaim {
        namespace: of.namespace.clone().or_else(|| job.namespace()).unwrap_or_default(),
        name: of.claim_name.clone(),
    };
    let ends = |job: &SyncJob| {
        let (source, destination) = (&job.spec.source, &job.spec.destination);
        let ends = source.persistent_volume_claim.as_ref().zip(destination.persistent_volume_claim.as_ref());
        ends.map(|(source, destination)| (claim(job, source), claim(job, destination)))
    };
    let Some((uid, (source, destination))) = uid(claims).zip(ends(job)) else { return false };
    let found = claims.iter().find(|claim| claim.side == Side::Source).and_then(|claim| claim.found.as_ref());
    let origin = found.and_then(|claim| claim.spec.as_ref()?.data_source.as_ref());
    let is_clone = origin.is_some_and(|it| it.kind == "PersistentVolumeClaim" && it.name == destination.name)
        && source.namespace == destination.namespace;
    let restores = |other: &SyncJob| {
        let filled = other.status.as_ref().and_then(|status| status.destination.as_ref());
        other.metadata.namespace == job.metadata.namespace
            && ends(other).is_some_and(|(from, to)| from == destination && to == source)
            && filled.is_some_and(|it| it.claim_name == source.name && it.claim_uid.as_deref() == Some(uid))
    };
    let known = job.status.as_ref().and_then(|status| status.source.as_ref());
    // Once a run has succeeded with it, it is a claim like any other.
    let is_new = known.is_none_or(|known| known.claim_uid != uid);
    let is_populated = found.filter(|_| is_new).is_some_and(|claim| {
        let from = names::populated_from(claim);
        let origin = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
        from.is_some_and(|from| from != names::POPULATED_EMPTY)
            && origin.is_some_and(|it| it.api_group.as_deref() == Some(GROUP) && it.name == job.name_any())
    });
    is_clone || is_populated || jobs.into_iter().any(restores)
}

/// Stores the claim that a successful run has read, which may be another than the SyncJob names by then.
pub fn remember(status: &mut SyncJobStatus, run: &ActiveRun, result: RunResult) {
    let uid = run.source_uid.clone().filter(|_| result == RunResult::Succeeded && run.restore.is_none());
    if let Some((claim_uid, folder)) = uid.zip(run.source.as_ref()) {
        let (claim_name, namespace) = (folder.claim_name.clone(), folder.namespace.clone());
        status.source = Some(KnownSource { claim_name, namespace, claim_uid });
    }
}

#[cfg(test)]
mod tests {
    use contract::VolumeId;
    use serde_json::json;

    use super::*;
    use crate::{api::Capture, spec::validate::validate, volumes::claims::Class};

    fn spec(from: &str, to: &str) -> serde_json::Value {
        json!({
            "source": {"persistentVolumeClaim": {"claimName": from}},
            "destination": {"persistentVolumeClaim": {"claimName": to}},
        })
    }

    fn valid() -> ValidatedSyncJob {
        validate(&serde_json::from_value(spec("a", "b")).unwrap(), "web", "prod").unwrap()
    }

    fn claims(uid: &str, origin: Option<&str>) -> [Claim; 1] {
        let data_source = origin.map(|name| json!({"kind": "PersistentVolumeClaim", "name": name}));
        let found = json!({"metadata": {"name": "a", "uid": uid}, "spec": {"dataSource": data_source}});
        let found = Some(serde_json::from_value(found).unwrap());
        [Claim { side: Side::Source, name: "prod/a".into(), found, class: Class::Unknown }]
    }

    fn now<'a>(claims: &'a [Claim], accepted: Option<&'a str>, is_copy: bool) -> SourceNow<'a> {
        SourceNow { claims, accepted, is_copy }
    }

    fn after(result: RunResult) -> SyncJobStatus {
        let mut status = SyncJobStatus::default();
        let (source, source_uid) = (Some(valid().run_folder(Side::Source)), Some("u".into()));
        remember(&mut status, &ActiveRun { source, source_uid, ..ActiveRun::default() }, result);
        status
    }

    #[test]
    fn a_source_that_was_made_anew_blocks_until_its_uid_is_accepted_or_it_holds_the_copy() {
        let status = after(RunResult::Succeeded);
        let judged = |uid: &str, accepted, is_copy| {
            check(&status, &valid(), now(&claims(uid, None), accepted, is_copy))
        };
        assert_eq!(judged("u", None, false), Ok(()));
        for accepted in [None, Some("u"), Some("w")] {
            let Err(Blocked::Stalled(fault)) = judged("v", accepted, false) else { panic!("{accepted:?}") };
            assert_eq!(fault.reason, Reason::OtherSource);
            assert!(fault.message.contains("volferry.dev/accept-source=v"), "{}", fault.message);
        }
        assert_eq!(judged("v", Some("v"), false), Ok(()));
        assert_eq!(judged("v", None, true), Ok(()));
        let never = after(RunResult::Failed);
        assert_eq!(
            check(&never, &valid(), now(&claims("v", None), None, false)),
            Ok(()),
            "no copy depends on it"
        );
    }

    #[test]
    fn the_destination_refuses_another_source_unless_it_is_accepted_holds_the_copy_or_is_named_anew() {
        let known = after(RunResult::Succeeded);
        let anew = SyncJobStatus::default();
        let id = VolumeId::new([9; 16]);
        let id_text = id.to_string();
        for (status, from, uid, accepted, is_copy, expected) in [
            (&anew, "a", "v", None, false, OtherSource::Refuse),
            (&known, "a", "v", Some("w"), false, OtherSource::Refuse),
            (&known, "a", "u", Some("u"), false, OtherSource::Refuse),
            (&known, "a", "u", Some(&*id_text), false, OtherSource::Only(id)),
            (&anew, "a", "v", Some(&*id_text), false, OtherSource::Only(id)),
            (&anew, "a", "v", Some("v"), false, OtherSource::Accept),
            (&known, "a", "v", Some("v"), false, OtherSource::Accept),
            (&anew, "a", "v", None, true, OtherSource::Accept),
            (&known, "c", "v", None, false, OtherSource::Accept),
        ] {
            let job = validate(&serde_json::from_value(spec(from, "b")).unwrap(), "web", "prod").unwrap();
            let run = ActiveRun::default();
            let judged = rule(status, &job, &run, now(&claims(uid, None), accepted, is_copy), true);
            assert_eq!(judged, Some(expected), "{from} {uid} {accepted:?} {is_copy}");
        }
    }

    #[test]
    fn no_source_is_remembered_of_devices_captures_and_a_folder_with_several_sources() {
        let judged = |job: &ValidatedSyncJob, run: &ActiveRun, has_one_source| {
            rule(&SyncJobStatus::default(), job, run, now(&claims("v", None), None, false), has_one_source)
        };
        let (run, mut image, mut device, mut past) = (ActiveRun::default(), valid(), valid(), valid());
        image.params.image = true;
        device.ends.sink = device.ends.sink.of_kind(true);
        past.params.source_snapshot = Some("latest".into());
        let captured = ActiveRun { capture: Some(Capture::default()), ..ActiveRun::default() };
        assert_eq!(judged(&valid(), &run, true), Some(OtherSource::Refuse));
        for (job, run, has_one_source) in [
            (&image, &run, true),
            (&device, &run, true),
            (&past, &run, true),
            (&valid(), &captured, true),
            (&valid(), &run, false),
        ] {
            assert_eq!(judged(job, run, has_one_source), None, "{job:?}");
        }
    }

    #[test]
    fn another_claim_that_the_spec_names_is_no_source_made_anew() {
        let status = after(RunResult::Succeeded);
        let job = validate(&serde_json::from_value(spec("c", "b")).unwrap(), "web", "prod").unwrap();
        assert_eq!(check(&status, &job, now(&claims("v", None), None, false)), Ok(()));
    }

    #[test]
    fn a_clone_of_the_destination_and_what_a_job_has_restored_from_it_are_copies() {
        let job = |name: &str, from: &str, to: &str, filled: serde_json::Value| -> SyncJob {
            serde_json::from_value(json!({
                "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
                "metadata": {"name": name, "namespace": "prod"}, "spec": spec(from, to), "status": filled,
            }))
            .unwrap()
        };
        let web = job("web", "a", "b", json!({}));
        let known = |uid: &str| {
            let volume = "00000000000000000000000000000007";
            json!({"destination": {"claimName": "a", "claimUid": uid, "path": "/", "volume": volume}})
        };
        let judged = |origin, others: &[SyncJob]| is_copy(&web, &claims("v", origin), others);
        assert!(!judged(None, std::slice::from_ref(&web)));
        assert!(judged(Some("b"), &[]) && !judged(Some("c"), &[]));
        assert!(judged(None, &[job("back", "b", "a", known("v"))]));
        assert!(!judged(None, &[job("back", "b", "a", known("u"))]), "it filled the claim before");
        assert!(!judged(None, &[job("back", "c", "a", known("v"))]), "from elsewhere");
    }

    #[test]
    fn a_claim_that_came_up_with_the_copy_is_one_until_a_run_has_succeeded_with_it() {
        let judged = |job: &str, from: Option<&str>, uid: &str, known: &str| {
            let origin = json!({"apiGroup": "volferry.dev", "kind": "SyncJob", "name": "web"});
            let mut claims = claims("v", None);
            let annotations = json!({"volferry.dev/populated": from, "volferry.dev/populated-claim": uid});
            let found = json!({"metadata": {"name": "a", "uid": "v"}, "spec": {"dataSourceRef": origin}});
            let mut found: k8s_openapi::api::core::v1::PersistentVolumeClaim =
                serde_json::from_value(found).unwrap();
            if from.is_some() {
                found.metadata.annotations = serde_json::from_value(annotations).unwrap();
            }
            claims[0].found = Some(found);
            let job = json!({
                "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
                "metadata": {"name": job, "namespace": "prod"}, "spec": spec("a", "b"),
                "status": {"source": {"claimName": "a", "claimUid": known}},
            });
            is_copy(&serde_json::from_value(job).unwrap(), &claims, &[])
        };
        assert!(judged("web", Some("web-7"), "v", "u"));
        assert!(!judged("web", Some("web-7"), "v", "v"), "a run has succeeded with it");
        assert!(!judged("other", Some("web-7"), "v", "u"), "it has the copy of another SyncJob");
        assert!(
            !judged("web", Some("web-7"), "w", "u"),
            "it was made anew from the manifest of one that was filled"
        );
        assert!(!judged("web", Some("empty"), "v", "u") && !judged("web", None, "v", "u"));
    }
}
