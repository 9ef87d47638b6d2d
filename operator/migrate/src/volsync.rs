//! Converts VolSync's objects to SyncJobs, and destinations that are reached from outside to SyncEndpoints.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    draft::{Draft, UNKNOWN_CLAIM},
    fields::Fields,
    migrate_error::MigrateError,
    restic_retention,
};
use api::{
    AccessMode, CaptureMethod, ClaimReference, CreateClaim, EndpointAccess, EndpointClaim, EndpointService,
    ObjectStore, ObjectStoreSecret, PodSecurity, PodSettings, PointInTime, RetainImages, Schedule,
    ServiceType, Snapshots, SyncEndpointSpec, SyncJobSpec, VolumeSnapshots,
};

/// The fields of VolSync's rsync movers, the newer one first.
const BY_RSYNC: [&str; 2] = ["rsyncTLS", "rsync"];
/// The interval between runs for objects that VolSync synchronizes without a pause.
const WITHOUT_PAUSE: &str = "5m";

/// The address of a bucket that the objects do not name. No bucket can have this name, so the API server rejects it
/// until a person writes theirs.
pub(super) const UNKNOWN_BUCKET: &str = "s3://(NAME-THIS-BUCKET)";
/// What VolSync's movers leave out.
const LOST_FOUND: &str = "/lost+found/";

const ONE_HALF: &str = "The other half of the pair is not among the objects: name its claim.";
const OTHER_END: &str = "Peers come from outside of the cluster. Tell each the address and the public key of this object's \
                         status, and add its own public key to spec.peers.";
/// The types of Service by which a destination is reached from outside of its cluster.
const FROM_OUTSIDE: [&str; 2] = ["LoadBalancer", "NodePort"];

/// A ReplicationSource or ReplicationDestination.
#[derive(Debug)]
struct Half {
    is_source: bool,
    name: String,
    namespace: Option<String>,
    /// The field of the spec that chooses the mover, such as `rsyncTLS`.
    mover: String,
    spec: Value,
    status: Value,
}

impl Half {
    fn new(object: &Value) -> Option<Self> {
        let is_source = match object["kind"].as_str()? {
            "ReplicationSource" => true,
            "ReplicationDestination" => false,
            _ => return None,
        };
        let movers = ["rsyncTLS", "rsync", "restic", "rclone", "syncthing", "kopia", "external"];
        let mover = movers.into_iter().find(|mover| object["spec"][mover].is_object()).unwrap_or("");
        Some(Self {
            is_source,
            name: object["metadata"]["name"].as_str().unwrap_or("unnamed").into(),
            namespace: object["metadata"]["namespace"].as_str().map(Into::into),
            mover: mover.into(),
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        })
    }

    fn title(&self) -> String {
        let kind = if self.is_source { "ReplicationSource" } else { "ReplicationDestination" };
        match &self.namespace {
            Some(namespace) => format!("{kind} {namespace}/{}", self.name),
            None => format!("{kind} {}", self.name),
        }
    }

    fn mover_text(&self, part: &Value, field: &str) -> Option<String> {
        part[&self.mover][field].as_str().map(Into::into)
    }

    /// Returns whether sources reach this destination from outside of its cluster.
    fn is_for_outside(&self) -> bool {
        let service = self.mover_text(&self.spec, "serviceType");
        service.is_some_and(|it| FROM_OUTSIDE.contains(&it.as_str()))
    }

    /// Returns the address that this source names, unless it is a Service's in its cluster.
    fn far_address(&self) -> Option<String> {
        let address = self.mover_text(&self.spec, "address")?;
        let is_here = address.ends_with(".svc") || address.contains(".svc.");
        (!address.is_empty() && !is_here).then_some(address)
    }

    /// Returns whether a source names this destination's address, Service or key.
    fn is_reached_by(&self, source: &Self) -> bool {
        let address = source.mover_text(&source.spec, "address");
        let service = if self.mover == "rsync" { "volsync-rsync-dst" } else { "volsync-rsync-tls-dst" };
        let service = format!("{service}-{}.{}.", self.name, self.namespace.as_deref().unwrap_or("default"));
        let is_own = |address: &str| {
            format!("{address}.").starts_with(&service)
                || self.mover_text(&self.status, "address").as_deref() == Some(address)
        };
        let key = |half: &Self, part: &Value| half.mover_text(part, "keySecret");
        let is_key = |key: String| {
            self.namespace == source.namespace
                && [self.mover_text(&self.status, "keySecret"), self.mover_text(&self.spec, "keySecret")]
                    .contains(&Some(key))
        };
        address.as_deref().is_some_and(is_own) || key(source, &source.spec).is_some_and(is_key)
    }
}

/// Returns a SyncJob for each pair of objects, and for each object whose other half is not among them.
pub(super) fn drafts(objects: &[Value]) -> Result<Vec<Draft>, MigrateError> {
    let (sources, mut destinations): (Vec<_>, Vec<_>) =
        objects.iter().filter_map(Half::new).partition(|half| half.is_source);
    let mut drafts = Vec::new();
    let mut lonely = Vec::new();
    for source in sources {
        let is_pair = |other: &Half| other.mover == source.mover && other.is_reached_by(&source);
        match destinations.iter().position(is_pair) {
            Some(at) => drafts.push(rsync(&source, Some(&source), Some(&destinations.remove(at)))?),
            None => lonely.push(source),
        }
    }
    // If one of each remains, they can only belong together.
    if let ([source], [destination]) = (lonely.as_slice(), destinations.as_slice())
        && source.mover == destination.mover
        && BY_RSYNC.contains(&source.mover.as_str())
    {
        drafts.push(rsync(source, Some(source), Some(destination))?);
        return Ok(drafts);
    }
    for half in lonely.iter().chain(&destinations) {
        drafts.push(single(half)?);
    }
    Ok(drafts)
}

fn single(half: &Half) -> Result<Draft, MigrateError> {
    match (half.mover.as_str(), half.is_source) {
        ("restic", true) => backup(half),
        ("restic", false) => restore(half),
        (mover, true) if BY_RSYNC.contains(&mover) => rsync(half, Some(half), None),
        (mover, false) if BY_RSYNC.contains(&mover) && half.is_for_outside() => endpoint(half),
        (mover, false) if BY_RSYNC.contains(&mover) => rsync(half, None, Some(half)),
        (mover, _) => {
            let mut draft = Draft::empty(half);
            let mover = if mover.is_empty() { "It has no mover that is known here, so it" } else { mover };
            draft.notes.push(format!("{mover} has no counterpart. Correct or remove this SyncJob."));
            Ok(draft)
        }
    }
}

impl Draft {
    /// Returns a draft between two claims that still have to be named.
    fn empty(half: &Half) -> Self {
        let mut spec = SyncJobSpec::default();
        spec.source.persistent_volume_claim = Some(claim(UNKNOWN_CLAIM));
        spec.destination.persistent_volume_claim = Some(claim(UNKNOWN_CLAIM));
        let (name, namespace) = (half.name.clone(), half.namespace.clone());
        Self { origin: half.title(), name, namespace, spec, endpoint: None, notes: Vec::new() }
    }
}

fn claim(name: &str) -> ClaimReference {
    ClaimReference { claim_name: name.into(), namespace: None }
}

/// Returns the SyncJob of a pair of an rsync mover, or of one half of it, with the name of `first`.
fn rsync(first: &Half, source: Option<&Half>, destination: Option<&Half>) -> Result<Draft, MigrateError> {
    let mut draft = Draft::empty(first);
    let titles: Vec<_> = [source, destination].into_iter().flatten().map(Half::title).collect();
    draft.origin = titles.join(" and ");
    mirrors(&mut draft.spec);
    if let Some(source) = source {
        add_source(&mut draft, source)?;
    }
    if let Some(destination) = destination {
        add_destination(&mut draft, destination, source.is_none())?;
    }
    match (source, destination) {
        (Some(source), Some(destination)) if source.namespace != destination.namespace => {
            let namespace = destination.namespace.clone();
            draft.notes.extend(namespace.as_deref().map(super::needs_grant));
            let claim = draft.spec.destination.persistent_volume_claim.as_mut();
            claim.into_iter().for_each(|claim| claim.namespace.clone_from(&namespace));
        }
        (Some(_), Some(_)) => {}
        (Some(source), None) => match source.far_address() {
            Some(address) => to_endpoint(&mut draft, &address, &source.name),
            None => draft.notes.push(ONE_HALF.into()),
        },
        _ => draft.notes.push(ONE_HALF.into()),
    }
    Ok(draft)
}

/// Sends to the SyncEndpoint that takes the place of a destination in another cluster.
fn to_endpoint(draft: &mut Draft, host: &str, name: &str) {
    draft.send_to_endpoint(host, name);
    draft.notes.push(
        "The other half is in another cluster: this command makes a SyncEndpoint of it there. Fill in the address, before \
         the path if there is one, and the publicKey of its status, and list this SyncJob's status.identity.publicKey among its peers."
            .into(),
    );
}

/// Returns the SyncEndpoint that takes the place of a destination whose source is outside of the cluster.
fn endpoint(half: &Half) -> Result<Draft, MigrateError> {
    let mut draft = Draft::empty(half);
    let mut mover = Fields::new(&half.title(), "spec", half.spec.clone()).take_fields(&half.mover);
    let service_type = match half.mover_text(&half.spec, "serviceType").as_deref() {
        Some("NodePort") => ServiceType::NodePort,
        _ => ServiceType::LoadBalancer,
    };
    let annotations = mover.take("serviceAnnotations")?.unwrap_or_default();
    draft.notes.push(OTHER_END.into());
    add_destination(&mut draft, half, false)?;
    let spec = std::mem::take(&mut draft.spec);
    if spec.destination.create.is_some() {
        draft.notes.push("A SyncEndpoint makes no claim: make it if it is not there.".into());
    }
    if spec.destination.volume_snapshots.is_some() {
        draft.notes.push(
            "A SyncEndpoint takes no VolumeSnapshots. spec.snapshots keeps states on the volume.".into(),
        );
    }
    draft.endpoint = Some(SyncEndpointSpec {
        persistent_volume_claim: EndpointClaim {
            claim_name: spec.destination.persistent_volume_claim.unwrap_or_default().claim_name,
        },
        path: "/".into(),
        access: EndpointAccess::Write,
        service: EndpointService { service_type, annotations, ..EndpointService::default() },
        pods: spec.pods,
        suspend: half.spec["paused"].as_bool().unwrap_or_default(),
        ..SyncEndpointSpec::default()
    });
    Ok(draft)
}

/// Sets the options of VolSync's rsync, which deletes extraneous files and leaves out `lost+found`.
fn mirrors(spec: &mut SyncJobSpec) {
    spec.files.delete = true;
    spec.files.exclude = vec![LOST_FOUND.into()];
}

fn add_source(draft: &mut Draft, half: &Half) -> Result<(), MigrateError> {
    let mut spec = Fields::new(&half.title(), "spec", half.spec.clone());
    let mut mover = spec.take_fields(&half.mover);
    if let Some(name) = spec.take::<String>("sourcePVC")? {
        draft.spec.source.persistent_volume_claim = Some(claim(&name));
    }
    add_trigger(draft, &mut spec)?;
    add_point_in_time(draft, &mut mover)?;
    if let Some(path) = mover.take::<String>("path")? {
        draft.spec.destination.path = path;
    }
    add_pods(draft, &mut mover)?;
    drop_connection(&mut mover);
    draft.notes.extend(spec.leftovers().chain(mover.leftovers()));
    Ok(())
}

fn add_destination(draft: &mut Draft, half: &Half, is_alone: bool) -> Result<(), MigrateError> {
    let mut spec = Fields::new(&half.title(), "spec", half.spec.clone());
    let mut mover = spec.take_fields(&half.mover);
    if is_alone {
        add_trigger(draft, &mut spec)?;
    } else {
        // The destination of a pair only waits for its source.
        spec.drop(&["trigger", "paused"]);
    }
    add_target(draft, &mut mover, &half.name)?;
    if mover.take::<String>("copyMethod")?.as_deref() == Some("Snapshot") {
        draft.spec.destination.volume_snapshots = Some(VolumeSnapshots {
            retain: RetainImages { last: 1 },
            volume_snapshot_class_name: mover.take("volumeSnapshotClassName")?,
            ..VolumeSnapshots::default()
        });
    }
    add_pods(draft, &mut mover)?;
    drop_connection(&mut mover);
    draft.notes.extend(spec.leftovers().chain(mover.leftovers()));
    Ok(())
}

/// Takes the claim that a destination writes to: the one that it names, or the one that VolSync created for it.
fn add_target(draft: &mut Draft, mover: &mut Fields, name: &str) -> Result<(), MigrateError> {
    let named = mover.take::<String>("destinationPVC")?;
    let storage_class_name = mover.take("storageClassName")?;
    let size = mover.take("capacity")?;
    let access_modes: Vec<AccessMode> = mover.take("accessModes")?.unwrap_or_default();
    if let Some(named) = named {
        draft.spec.destination.persistent_volume_claim = Some(claim(&named));
        return Ok(());
    }
    let made = format!("volsync-{name}-dst");
    draft.notes.push(format!(
        "{made} is the claim that VolSync made. It is used if it is there, and created if not."
    ));
    draft.spec.destination.persistent_volume_claim = Some(claim(&made));
    let access_modes = if access_modes.is_empty() { vec![AccessMode::ReadWriteOnce] } else { access_modes };
    draft.spec.destination.create = Some(CreateClaim { storage_class_name, access_modes, size, grow: false });
    Ok(())
}

fn add_trigger(draft: &mut Draft, spec: &mut Fields) -> Result<(), MigrateError> {
    draft.spec.suspend = spec.take("paused")?.unwrap_or_default();
    let has_trigger = spec.has("trigger");
    let mut trigger = spec.take_fields("trigger");
    let cron = trigger.take::<String>("schedule")?;
    draft.spec.trigger = trigger.take("manual")?;
    if cron.is_some() {
        draft.spec.schedule = Some(Schedule { cron, ..Schedule::default() });
    } else if !has_trigger {
        draft.notes.push(format!(
            "Without a trigger, VolSync starts a run as soon as the last one has ended. Here a run starts each {WITHOUT_PAUSE}."
        ));
        draft.spec.schedule = Some(Schedule { interval: Some(WITHOUT_PAUSE.into()), ..Schedule::default() });
    }
    draft.notes.extend(trigger.leftovers());
    Ok(())
}

fn add_point_in_time(draft: &mut Draft, mover: &mut Fields) -> Result<(), MigrateError> {
    let method = match mover.take::<String>("copyMethod")?.as_deref() {
        Some("Snapshot") => CaptureMethod::Snapshot,
        Some("Clone") => CaptureMethod::Clone,
        _ => {
            // These fields describe the point-in-time copy.
            mover.drop(&["capacity", "storageClassName", "accessModes", "volumeSnapshotClassName"]);
            return Ok(());
        }
    };
    draft.spec.source.point_in_time = Some(PointInTime {
        method,
        volume_snapshot_class_name: mover.take("volumeSnapshotClassName")?,
        storage_class_name: mover.take("storageClassName")?,
        access_modes: mover.take("accessModes")?.unwrap_or_default(),
        ..PointInTime::default()
    });
    // The temporary claim is as large as it has to be.
    mover.drop(&["capacity"]);
    Ok(())
}

/// Drops the connection's fields: Volferry creates keys in memory for each run, and the pods find each other.
fn drop_connection(mover: &mut Fields) {
    mover.drop(&["keySecret", "sshKeys", "sshUser", "address", "port", "serviceType", "serviceAnnotations"]);
    mover.drop(&["moverServiceAccount"]);
}

fn add_pods(draft: &mut Draft, mover: &mut Fields) -> Result<(), MigrateError> {
    let pods: &mut PodSettings = &mut draft.spec.pods;
    if let Some(resources) = mover.take("moverResources")? {
        pods.resources = Some(resources);
    }
    if let Some(affinity) = mover.take("moverAffinity")? {
        pods.affinity = Some(affinity);
    }
    pods.labels.extend(mover.take::<BTreeMap<_, _>>("moverPodLabels")?.unwrap_or_default());
    if !mover.has("moverSecurityContext") {
        return Ok(());
    }
    let mut context = mover.take_fields("moverSecurityContext");
    pods.security_context = PodSecurity {
        run_as_user: context.take("runAsUser")?,
        run_as_group: context.take("runAsGroup")?,
        fs_group: context.take("fsGroup")?,
        fs_group_from: None,
        supplemental_groups: context.take("supplementalGroups")?.unwrap_or_default(),
        se_linux_options: context.take("seLinuxOptions")?,
    };
    // Syncer pods always set both, by the restricted Pod Security Standard.
    context.drop(&["runAsNonRoot", "seccompProfile"]);
    draft.notes.extend(context.leftovers());
    Ok(())
}

/// Returns the SyncJob that keeps snapshots in object storage instead of a backup by restic.
fn backup(half: &Half) -> Result<Draft, MigrateError> {
    let mut draft = Draft::empty(half);
    draft.spec.files.exclude = vec![LOST_FOUND.into()];
    let mut spec = Fields::new(&half.title(), "spec", half.spec.clone());
    let mut mover = spec.take_fields("restic");
    if let Some(name) = spec.take::<String>("sourcePVC")? {
        draft.spec.source.persistent_volume_claim = Some(claim(&name));
    }
    let secret_ref =
        ObjectStoreSecret { name: half.mover_text(&half.spec, "repository").unwrap_or_default() };
    draft.notes.push(format!(
        "Name the bucket, and a prefix beside that of restic's repository. The Secret {} has the credentials: add the entries \
         encryption.key, which `volferry snapshot key` makes, and AWS_ENDPOINT_URL if the store is not Amazon S3.",
        secret_ref.name
    ));
    note_authorities(&mut draft, &mut mover, &secret_ref.name)?;
    let url = format!("{UNKNOWN_BUCKET}/{}", half.name);
    draft.spec.destination.persistent_volume_claim = None;
    draft.spec.destination.object_store = Some(ObjectStore { url, secret_ref });
    add_trigger(&mut draft, &mut spec)?;
    add_point_in_time(&mut draft, &mut mover)?;
    let rules = mover.take_fields("retain");
    let retain = restic_retention::of_restic(rules, &mut draft.notes)?;
    draft.spec.snapshots = Some(Snapshots { retain, ..Snapshots::default() });
    add_pods(&mut draft, &mut mover)?;
    drop_repository(&mut draft, &mut mover)?;
    draft.notes.extend(spec.leftovers().chain(mover.leftovers()));
    Ok(draft)
}

/// Says where the certificates have to be by which the store is trusted.
fn note_authorities(draft: &mut Draft, mover: &mut Fields, secret: &str) -> Result<(), MigrateError> {
    let mut custom = mover.take_fields("customCA");
    let key = custom.take::<String>("key")?.unwrap_or_default();
    let from = match (custom.take::<String>("secretName")?, custom.take::<String>("configMapName")?) {
        (Some(name), _) => format!("the Secret {name}"),
        (None, Some(name)) => format!("the ConfigMap {name}"),
        (None, None) => return Ok(()),
    };
    draft.notes.push(format!(
        "Add the certificate of {from}, which is its entry {key}, to the Secret {secret} as ca.crt."
    ));
    Ok(())
}

/// Returns the SyncJob that restores a snapshot of a copy instead of a restore by restic.
fn restore(half: &Half) -> Result<Draft, MigrateError> {
    let mut draft = Draft::empty(half);
    let mut spec = Fields::new(&half.title(), "spec", half.spec.clone());
    let mut mover = spec.take_fields("restic");
    draft.notes.push(
        "Name the claim that has the snapshots of Volferry. It cannot read a repository of restic. Snapshots in object \
         storage come to a claim by `volferry snapshot copy s3://BUCKET/PREFIX DIR --all`."
            .into(),
    );
    add_trigger(&mut draft, &mut spec)?;
    if draft.spec.trigger.is_some() {
        draft.spec.schedule = None;
    }
    add_target(&mut draft, &mut mover, &half.name)?;
    let as_of = mover.take::<String>("restoreAsOf")?;
    draft.spec.source.snapshot = Some(as_of.map_or_else(|| "latest".into(), |time| format!("as-of:{time}")));
    mover.drop(&["copyMethod", "volumeSnapshotClassName"]);
    add_pods(&mut draft, &mut mover)?;
    drop_repository(&mut draft, &mut mover)?;
    draft.notes.extend(spec.leftovers().chain(mover.leftovers()));
    Ok(draft)
}

fn drop_repository(draft: &mut Draft, mover: &mut Fields) -> Result<(), MigrateError> {
    if let Some(secret) = mover.take::<String>("repository")? {
        draft.notes.push(format!(
            "The repository of the Secret {secret} stays as it is; what is in it is not carried over."
        ));
    }
    mover.drop(&["customCA", "pruneIntervalDays", "unlock", "moverServiceAccount"]);
    mover.drop(&[
        "cacheCapacity",
        "cacheStorageClassName",
        "cacheAccessModes",
        "cleanupCachePVC",
        "cleanupTempPVC",
    ]);
    Ok(())
}
