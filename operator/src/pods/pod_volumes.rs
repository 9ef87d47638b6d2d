//! Decides what a syncer's pod mounts, and where: the claims of its ends, keys, tokens, and folders that go with it.

use contract::Side;
use k8s_openapi::{
    api::core::v1::{
        EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, ProjectedVolumeSource, SecretVolumeSource,
        ServiceAccountTokenProjection, Volume, VolumeDevice, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{Try, object_store::store_entries};
use crate::{
    ends::end_kind::EndKind,
    names,
    snapshots::keep_base_snapshot::{ChangedDemand, Changes},
    spec::validate::ValidatedSyncJob,
};

const SOURCE_DIR: &str = "/source";
/// Where the destination is mounted.
pub const DESTINATION_DIR: &str = "/destination";
/// The device paths of claims with volumeMode Block in a container.
pub(crate) const SOURCE_DEVICE: &str = "/dev/volferry-source";
const DESTINATION_DEVICE: &str = "/dev/volferry-destination";
/// The name of the data volume in a pod.
pub(crate) const DATA: &str = "data";
/// The name of the source's volume, in a pod that mounts the destination's as well.
const SOURCE_DATA: &str = "source";
pub(crate) const SCRATCH_DIR: &str = "/run/volferry";
/// Where a syncer stores directory listings that are too large for memory, and the space limit for them: enough for 80
/// million entries of 50 bytes.
pub(crate) const TMP_DIR: &str = "/tmp";
pub(crate) const TMP_SIZE: &str = "4Gi";
/// Where a pod finds the Secret with a key, and the name of that volume.
pub const KEY_DIR: &str = "/etc/volferry/key";
pub(crate) const KEY: &str = "key";
/// Where a pod finds its token for the service that lists changed blocks, as a file of that name, and the name of that
/// volume.
pub(crate) const CHANGED_DIR: &str = "/var/run/secrets/volferry.dev/changed-blocks";
pub(crate) const CHANGED_TOKEN: &str = "token";
const CHANGED: &str = "changed-blocks";

/// Returns the ends whose volumes that end's pod mounts.
pub(super) fn sides(of: &Try<'_>, side: Side) -> Vec<Side> {
    if of.run.local { vec![Side::Source, Side::Sink] } else { vec![side] }
}

/// Returns the path of an end's data in its pod: a folder, or a device.
pub(super) fn data_path(job: &ValidatedSyncJob, side: Side) -> &'static str {
    match (side, job.ends.of(side).is_block()) {
        (Side::Source, false) => SOURCE_DIR,
        (Side::Source, true) => SOURCE_DEVICE,
        (Side::Sink, false) => DESTINATION_DIR,
        (Side::Sink, true) => DESTINATION_DEVICE,
    }
}

/// Returns the name of an end's data volume in a pod. Two folders of one claim are one volume, mounted twice.
fn data_name(of: &Try<'_>, side: Side) -> &'static str {
    let is_second =
        of.run.local && side == Side::Source && of.job.ends.source.claim() != of.job.ends.sink.claim();
    if is_second { SOURCE_DATA } else { DATA }
}

pub(super) fn devices(of: &Try<'_>, side: Side) -> Vec<VolumeDevice> {
    let devices = sides(of, side).into_iter().filter(|side| of.job.ends.of(*side).is_block());
    let device =
        |side| VolumeDevice { name: data_name(of, side).into(), device_path: data_path(of.job, side).into() };
    devices.map(device).collect()
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}

/// Makes a volume that begins empty and goes with the pod.
pub(crate) fn empty_dir(name: &str, medium: Option<&str>, size_limit: &str) -> Volume {
    Volume {
        name: name.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(Into::into),
            size_limit: Some(Quantity(size_limit.into())),
        }),
        ..Volume::default()
    }
}

pub(super) fn mounts(of: &Try<'_>, side: Side) -> Vec<VolumeMount> {
    let folders = sides(of, side).into_iter().filter(|side| !of.job.ends.of(*side).is_block());
    let data =
        folders.map(|side| mount(data_name(of, side), data_path(of.job, side), is_read_only(of, side)));
    let key = of.job.outside().map(|_| mount(KEY, KEY_DIR, true));
    let token = changes_since(of, side).map(|_| mount(CHANGED, CHANGED_DIR, true));
    data.chain(key)
        .chain(token)
        .chain([mount("scratch", SCRATCH_DIR, false), mount("tmp", TMP_DIR, false)])
        .collect()
}

pub(super) fn volumes(of: &Try<'_>, side: Side) -> Vec<Volume> {
    let others = |it: &Side| *it == side || data_name(of, *it) != DATA;
    let data = sides(of, side).into_iter().filter(others).filter_map(|side| data_volume(of, side));
    let key = of.job.outside().and_then(|side| key_volume(of, of.job.ends.of(side)));
    // A key is copied to the scratch folder, and shall be on no disk.
    let medium = key.as_ref().map(|_| "Memory");
    let own = [empty_dir("scratch", medium, "16Mi"), empty_dir("tmp", None, TMP_SIZE)];
    data.chain(key).chain(changes_since(of, side).map(token_volume)).chain(own).collect()
}

/// Returns the volume of the Secret with the key for an end that is no claim. The job's own for endpoints is optional,
/// because the first pod makes it.
fn key_volume(of: &Try<'_>, end: &EndKind) -> Option<Volume> {
    let secret = match end {
        EndKind::Claim(_) => return None,
        EndKind::Remote(remote) => SecretVolumeSource {
            secret_name: remote.identity.clone().or_else(|| Some(names::job_key(&of.job.name, of.uid))),
            optional: Some(remote.identity.is_none()),
            ..SecretVolumeSource::default()
        },
        EndKind::Bucket(place) => store_entries(place),
    };
    Some(Volume { name: KEY.into(), secret: Some(secret), ..Volume::default() })
}

fn data_volume(of: &Try<'_>, side: Side) -> Option<Volume> {
    Some(Volume {
        name: data_name(of, side).into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: of.job.ends.of(side).claim()?.name.clone(),
            // Set here and not only at the mount, or the kubelet would change the group of the source's files to
            // `fsGroup`. For a device, only this prevents writes.
            read_only: Some(is_read_only(of, side)),
        }),
        ..Volume::default()
    })
}

/// Returns whether the pod only reads the volume of that end.
fn is_read_only(of: &Try<'_>, side: Side) -> bool {
    side == Side::Source && of.run.benchmark.is_none()
}

/// Returns what the pod has to ask the storage for, if it reads the source and there is a base.
pub(super) fn changes_since<'a>(of: &Try<'a>, side: Side) -> Option<&'a ChangedDemand> {
    match of.changes {
        Changes::Since(since) if sides(of, side).contains(&Side::Source) => Some(since),
        _ => None,
    }
}

/// Returns the volume with a token that only the service for changed blocks takes.
fn token_volume(since: &ChangedDemand) -> Volume {
    let token = ServiceAccountTokenProjection {
        audience: Some(since.audience.clone()),
        expiration_seconds: None,
        path: CHANGED_TOKEN.into(),
    };
    let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    Volume {
        name: CHANGED.into(),
        projected: Some(ProjectedVolumeSource { default_mode: None, sources: Some(vec![source]) }),
        ..Volume::default()
    }
}
