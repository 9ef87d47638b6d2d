//! Decides between raw block volumes and file systems: which combinations are possible, and which fields apply to a
//! device. Pure.
//!
//! The spec does not say which kind a volume is; its claim does (`volumeMode`). A device is copied to a device, or into
//! an image file on a file system, and back from there.

use contract::{Flag, Reason, RunParams, Side};

use super::claims::{self, Claim};
use crate::{
    ends::{claim_end::ClaimEnd, source_and_sink::Ends},
    fault::Fault,
    run::shard_pairs,
    spec::validate::ValidatedSyncJob,
};

/// Completes the job with the volume modes of its claims. While a claim is missing, nothing is decided.
///
/// # Errors
/// If a device and a directory tree would have to be copied onto each other, or if the spec sets a field for a device
/// that only applies to files.
pub fn settle(job: ValidatedSyncJob, claims: &[Claim]) -> Result<ValidatedSyncJob, Fault> {
    let is_block = |side| claims::is_block(claims.iter().find(|claim| claim.side == side)?);
    if let Some(side) = job.outside() {
        return if is_block(shard_pairs::other(side)) == Some(true) {
            let message = format!(
                "The claim has volumeMode Block, and {} takes and gives files. Name a claim with a file system, or \
                 claims at both ends.",
                job.ends.of(side)
            );
            Err(Fault::new(Reason::BlockVolume, message))
        } else {
            Ok(job)
        };
    }
    let (Some(source), Some(sink)) = (is_block(Side::Source), is_block(Side::Sink)) else { return Ok(job) };
    let params = RunParams { image: source || sink, ..job.params };
    let job = ValidatedSyncJob {
        params,
        ends: Ends { source: job.ends.source.of_kind(source), sink: job.ends.sink.of_kind(sink) },
        ..job
    };
    match check(&job) {
        Some(problem) => Err(Fault::new(Reason::BlockVolume, problem)),
        None => Ok(job),
    }
}

/// Returns what is wrong with the combination, and what to do about it.
fn check(job: &ValidatedSyncJob) -> Option<String> {
    let (source, destination) = (job.ends.source.mounted()?, job.ends.sink.mounted()?);
    if !source.is_block && !destination.is_block {
        return None;
    }
    [("source", source, destination), ("destination", destination, source)]
        .into_iter()
        .find_map(|(field, volume, other)| check_path(field, volume, other))
        .or_else(|| check_fields(job))
}

fn check_path(field: &str, volume: &ClaimEnd, other: &ClaimEnd) -> Option<String> {
    let (claim, other) = (&volume.claim, &other.claim);
    let path = volume.folder.as_str();
    match (volume.is_block, path) {
        (true, "/") => None,
        (true, _) => Some(format!(
            "spec.{field}.path is {path}, and the claim {claim} has volumeMode Block: a device has no folders. Leave the path out."
        )),
        (false, "/") => Some(format!(
            "The claim {other} has volumeMode Block, and the {field} claim {claim} has a file system. Name a claim with volumeMode Block \
             there, or in spec.{field}.path the file that is the device's image, such as /disk.img."
        )),
        (false, _) => None,
    }
}

fn check_fields(job: &ValidatedSyncJob) -> Option<String> {
    let shards = (job.parallelism > 1).then_some("parallelism");
    let flags = job.params.flags_of_trees().chain(job.params.demands.flags_of_trees());
    let mut fields: Vec<_> = flags.map(Flag::field_or_name).chain(shards).collect();
    fields.dedup();
    (!fields.is_empty()).then(|| {
        format!(
            "spec asks for {}, which is for files and folders, and a claim has volumeMode Block. Remove what is named, or set it back to \
             its default.",
            fields.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
    use serde_json::{Value, json};

    use super::*;
    use crate::{ends::end_kind::EndKind, spec::validate::validate, volumes::claims::Class};

    fn job(source: &str, destination: &str, files: &Value) -> ValidatedSyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}, "path": source},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}, "path": destination},
            "files": files,
        });
        validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap()
    }

    fn claims(modes: [Option<&str>; 2]) -> Vec<Claim> {
        let claim = |(side, mode): (Side, Option<&str>)| {
            let volume_mode = mode.map(Into::into);
            let spec = Some(PersistentVolumeClaimSpec { volume_mode, ..Default::default() });
            let found = mode.map(|_| PersistentVolumeClaim { spec, ..Default::default() });
            Claim { side, name: "prod/x".into(), found, class: Class::Unknown }
        };
        [Side::Source, Side::Sink].into_iter().zip(modes).map(claim).collect()
    }

    const BLOCK: Option<&str> = Some("Block");
    const FILES: Option<&str> = Some("Filesystem");

    #[test]
    fn a_device_goes_onto_a_device_or_into_an_image_and_back() {
        for (modes, source, destination) in [
            ([BLOCK, BLOCK], "/", "/"),
            ([BLOCK, FILES], "/", "/backups/disk.img"),
            ([FILES, BLOCK], "/backups/disk.img", "/"),
            ([FILES, FILES], "/", "/"),
        ] {
            let settled = settle(job(source, destination, &json!({})), &claims(modes)).unwrap();
            let kinds = settled.ends.iter().map(EndKind::is_block);
            assert!(kinds.eq(modes.iter().map(|mode| *mode == BLOCK)), "{modes:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_said_with_the_field_to_change() {
        for (modes, source, destination, words) in [
            ([BLOCK, FILES], "/", "/", "spec.destination.path"),
            ([FILES, BLOCK], "/", "/", "spec.source.path"),
            ([BLOCK, BLOCK], "/x", "/", "spec.source.path is /x"),
            ([BLOCK, BLOCK], "/", "/y", "spec.destination.path is /y"),
        ] {
            let refused = settle(job(source, destination, &json!({})), &claims(modes)).unwrap_err();
            assert_eq!(refused.reason, "BlockVolume");
            assert!(refused.message.contains(words), "{}", refused.message);
        }
    }

    #[test]
    fn what_is_for_files_is_refused_by_its_field() {
        let everything = json!({
            "delete": true, "deleteAnyway": true, "deleteLimit": {"percent": 1}, "include": ["a"], "exclude": ["b"], "ignoreFiles": true,
            "minSize": "1", "maxSize": "2", "compare": "Size",
            "preserve": {"ownership": "Never", "permissions": false, "times": false, "xattrs": false, "acls": false,
                "hardLinks": false, "specials": false, "sparse": false},
        });
        let mut asked = job("/", "/", &everything);
        asked.params.demands.snapshot = Some(contract::SnapshotParams::default());
        asked.params.source_snapshot = Some("latest".into());
        asked.params.history = contract::History::All;
        let refused = settle(asked.clone(), &claims([BLOCK, BLOCK])).unwrap_err();
        let fields = "files.delete, files.deleteAnyway, files.deleteLimit, files.include, files.exclude, files.ignoreFiles, files.minSize, \
                      files.maxSize, files.compare, files.preserve.ownership, files.preserve.permissions, files.preserve.times, \
                      files.preserve.xattrs, files.preserve.acls, files.preserve.hardLinks, files.preserve.specials, source.snapshot, \
                      source.history, snapshots";
        assert!(refused.message.starts_with(&format!("spec asks for {fields},")), "{}", refused.message);
        assert!(!refused.message.contains("sparse"), "{}", refused.message);
        assert!(settle(asked, &claims([FILES, FILES])).is_ok());
    }

    #[test]
    fn a_device_is_not_shared_among_pods() {
        let shared = ValidatedSyncJob { parallelism: 2, ..job("/", "/", &json!({})) };
        let refused = settle(shared, &claims([BLOCK, BLOCK])).unwrap_err();
        assert!(refused.message.starts_with("spec asks for parallelism,"), "{}", refused.message);
    }

    #[test]
    fn a_claim_that_is_not_there_decides_nothing() {
        let settled = settle(job("/", "/", &json!({})), &claims([BLOCK, None])).unwrap();
        assert!(!settled.ends.source.is_block());
    }
}
