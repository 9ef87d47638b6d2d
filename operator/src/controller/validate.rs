//! From a [`SyncJobSpec`] as it was written to a [`ValidatedSyncJob`] that pods can be built from without a
//! further question. Pure: whether the claims are there is for the step before, which asks the cluster.

use std::{fmt, time::Duration};

use contract::{Compression, DeleteLimit, RunParams};
use thiserror::Error;

use crate::api::{
    ClaimReference, CompressionMode, ConcurrencyPolicy, DeletionPolicy, Files, Placement, PodSettings,
    PointInTime, SyncJobSpec, Transfer, conditions::reason,
};

/// A field that the API has and whose behaviour is still to come, and whether a spec in that namespace asks for
/// it. To enable a feature, remove its entry: what it says is carried into [`ValidatedSyncJob`] already, or has to
/// be.
type Unsupported = (&'static str, fn(&SyncJobSpec, &str) -> bool);

const NOT_SUPPORTED_YET: [Unsupported; 17] = [
    ("source.remote", |spec, _| spec.source.remote.is_some()),
    ("source.persistentVolumeClaim.namespace", |spec, own| {
        is_elsewhere(spec.source.persistent_volume_claim.as_ref(), own)
    }),
    ("source.pointInTime", |spec, _| spec.source.point_in_time != PointInTime::None),
    ("source.snapshot", |spec, _| spec.source.snapshot.is_some()),
    ("destination.remote", |spec, _| spec.destination.remote.is_some()),
    ("destination.persistentVolumeClaim.namespace", |spec, own| {
        is_elsewhere(spec.destination.persistent_volume_claim.as_ref(), own)
    }),
    ("destination.create", |spec, _| spec.destination.create.is_some()),
    ("schedule", |spec, _| spec.schedule.is_some()),
    ("concurrencyPolicy: Replace", |spec, _| spec.concurrency_policy == ConcurrencyPolicy::Replace),
    ("transfer.connections", |spec, _| spec.transfer.connections != 0),
    ("transfer.placement: Local", |spec, _| spec.transfer.placement == Placement::Local),
    ("snapshots", |spec, _| spec.snapshots.is_some()),
    ("regression", |spec, _| spec.regression.is_some()),
    ("parallelism", |spec, _| spec.parallelism > 1),
    ("hooks", |spec, _| spec.hooks.is_some()),
    ("deletionPolicy: Delete", |spec, _| spec.deletion_policy == DeletionPolicy::Delete),
    ("source.volumeSnapshotClassName", |spec, _| spec.source.volume_snapshot_class_name.is_some()),
];

/// The zstd level where `compression: Zstd` names none; zstd's own default.
const DEFAULT_ZSTD_LEVEL: i32 = 3;

/// Why no run can be made from a spec. Only a change of the spec can help.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ValidationError {
    /// Fields whose behaviour is still to come.
    #[error("not supported yet: {}; remove what is named, or set it back to its default", fields.join(", "))]
    NotSupportedYet {
        /// Their paths below `spec`, with the value where only that one is refused.
        fields: Vec<&'static str>,
    },
    /// A field that the CRD's rules would have refused. It gets here where the installed CRD is older than the
    /// operator, or where a rule would have to know the SyncJob's namespace.
    #[error("spec.{field}: {problem}")]
    Invalid {
        /// Its path below `spec`.
        field: &'static str,
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
}

impl ValidationError {
    /// The reason for the condition `Stalled`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotSupportedYet { .. } => reason::NOT_SUPPORTED_YET,
            Self::Invalid { .. } => reason::INVALID_SPEC,
        }
    }
}

/// A SyncJob that can be run as far as its spec can tell.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedSyncJob {
    /// The SyncJob's name.
    pub name: String,
    /// The SyncJob's namespace.
    pub namespace: String,
    /// Where the files are.
    pub source: VolumeFolder,
    /// Where they are to be. Never overlaps with `source`.
    pub destination: VolumeFolder,
    /// Any change asks for one more run.
    pub trigger: Option<String>,
    /// No run is to be started.
    pub suspend: bool,
    /// What the engine is told, but for the run's name, which is still to be given.
    pub params: RunParams,
    /// The longest that a run may take, retries included.
    pub timeout: Duration,
    /// How often a failed run is tried again.
    pub retries: u32,
    /// How many finished runs the status keeps.
    pub history_limit: usize,
    /// Settings of the syncer pods.
    pub pods: PodSettings,
}

/// A folder of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFolder {
    /// The claim.
    pub claim: Claim,
    /// The folder inside its volume.
    pub folder: Folder,
}

/// A PersistentVolumeClaim, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A folder inside a volume: `/`, or an absolute path that does not end with `/` and has no part that is empty,
/// `.`, `..` or `.volferry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(String);

impl Folder {
    /// Reads a path; `None` where it is no folder.
    pub fn new(path: &str) -> Option<Self> {
        let legal = |part: &str| !matches!(part, "" | "." | ".." | ".volferry") && !part.contains('\0');
        let below = path.strip_prefix('/')?;
        (below.is_empty() || below.split('/').all(legal)).then(|| Self(path.into()))
    }

    /// The folder's path inside the volume; begins with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn holds(&self, other: &Self) -> bool {
        match other.0.strip_prefix(self.0.trim_end_matches('/')) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// Judges the spec of the SyncJob of that name and namespace.
pub fn validate(
    spec: &SyncJobSpec,
    name: &str,
    namespace: &str,
) -> Result<ValidatedSyncJob, ValidationError> {
    refuse_unsupported(spec, namespace)?;
    let (source, destination) = volumes(spec, namespace)?;
    Ok(ValidatedSyncJob {
        name: name.into(),
        namespace: namespace.into(),
        source,
        destination,
        trigger: spec.trigger.clone(),
        suspend: spec.suspend,
        params: params(spec)?,
        timeout: timeout(&spec.limits.timeout)?,
        retries: number("limits.retries", spec.limits.retries)?,
        history_limit: number("historyLimit", spec.history_limit)?,
        pods: spec.pods.clone(),
    })
}

fn refuse_unsupported(spec: &SyncJobSpec, namespace: &str) -> Result<(), ValidationError> {
    let asked = NOT_SUPPORTED_YET.iter().filter(|(_, is_asked)| is_asked(spec, namespace));
    let fields: Vec<_> = asked.map(|(field, _)| *field).collect();
    if fields.is_empty() { Ok(()) } else { Err(ValidationError::NotSupportedYet { fields }) }
}

fn is_elsewhere(claim: Option<&ClaimReference>, own: &str) -> bool {
    claim.and_then(|claim| claim.namespace.as_deref()).is_some_and(|namespace| namespace != own)
}

fn volumes(spec: &SyncJobSpec, own: &str) -> Result<(VolumeFolder, VolumeFolder), ValidationError> {
    let source = Volume {
        claim: spec.source.persistent_volume_claim.as_ref(),
        path: &spec.source.path,
        claim_field: "source.persistentVolumeClaim",
        path_field: "source.path",
    };
    let destination = Volume {
        claim: spec.destination.persistent_volume_claim.as_ref(),
        path: &spec.destination.path,
        claim_field: "destination.persistentVolumeClaim",
        path_field: "destination.path",
    };
    apart(source.folder(own)?, destination.folder(own)?)
}

/// One side of the spec, with what its fields are called.
struct Volume<'a> {
    claim: Option<&'a ClaimReference>,
    path: &'a str,
    claim_field: &'static str,
    path_field: &'static str,
}

impl Volume<'_> {
    fn folder(&self, own: &str) -> Result<VolumeFolder, ValidationError> {
        let claim = self.claim.ok_or_else(|| invalid(self.claim_field, "name a claim"))?;
        let folder = Folder::new(self.path).ok_or_else(|| {
            let problem =
                format!("`{}` is not a folder inside the volume; write / or /data/uploads", self.path);
            invalid(self.path_field, problem)
        })?;
        let namespace = claim.namespace.clone().unwrap_or_else(|| own.into());
        Ok(VolumeFolder { claim: Claim { namespace, name: claim.claim_name.clone() }, folder })
    }
}

fn apart(
    source: VolumeFolder,
    destination: VolumeFolder,
) -> Result<(VolumeFolder, VolumeFolder), ValidationError> {
    let overlap = source.folder.holds(&destination.folder) || destination.folder.holds(&source.folder);
    if source.claim == destination.claim && overlap {
        let problem =
            "overlaps with the source; name another claim, or folders of which neither holds the other";
        return Err(invalid("destination", problem));
    }
    Ok((source, destination))
}

fn params(spec: &SyncJobSpec) -> Result<RunParams, ValidationError> {
    let files = &spec.files;
    let (min_size, max_size) = sizes(files)?;
    Ok(RunParams {
        run: String::new(),
        dry_run: false,
        verify: false,
        delete: files.delete,
        delete_limit: DeleteLimit(number("files.deleteLimit.percent", files.delete_limit.percent)?),
        force: false,
        include: files.include.clone(),
        exclude: files.exclude.clone(),
        ignore_files: files.ignore_files,
        min_size,
        max_size,
        compare: files.compare,
        preserve: files.preserve.into(),
        write: files.write,
        compression: compression(&spec.transfer)?,
        bandwidth_limit: bandwidth_limit(&spec.transfer)?,
        connections: number("transfer.connections", spec.transfer.connections)?,
        shard: None,
        expect_volume: None,
    })
}

/// The least and the greatest size of the files that take part.
fn sizes(files: &Files) -> Result<(Option<u64>, Option<u64>), ValidationError> {
    let read = |field, size: Option<&String>| {
        size.map(|size| contract::parse_bytes(size).map_err(|error| invalid(field, error.to_string())))
            .transpose()
    };
    let (min, max) =
        (read("files.minSize", files.min_size.as_ref())?, read("files.maxSize", files.max_size.as_ref())?);
    match min.zip(max).is_some_and(|(min, max)| min > max) {
        true => {
            Err(invalid("files.minSize", "is above maxSize, so no file would be synced; change one of them"))
        }
        false => Ok((min, max)),
    }
}

fn compression(transfer: &Transfer) -> Result<Compression, ValidationError> {
    let level = transfer.compression_level.unwrap_or(DEFAULT_ZSTD_LEVEL);
    Ok(match transfer.compression {
        CompressionMode::Auto => Compression::Auto,
        CompressionMode::None => Compression::None,
        CompressionMode::Zstd => Compression::Level(number("transfer.compressionLevel", level)?),
    })
}

fn bandwidth_limit(transfer: &Transfer) -> Result<Option<u64>, ValidationError> {
    let parsed = transfer.bandwidth_limit.as_deref().map(contract::parse_bytes).transpose();
    parsed.map_err(|error| invalid("transfer.bandwidthLimit", error.to_string()))
}

fn timeout(text: &str) -> Result<Duration, ValidationError> {
    match text.parse::<kube::core::Duration>() {
        Ok(timeout) if !timeout.is_negative() && timeout > Duration::ZERO => Ok(timeout.into()),
        _ => Err(invalid("limits.timeout", format!("`{text}` is not a duration; write 90s, 10m or 1h30m"))),
    }
}

fn number<T: TryFrom<i32>>(field: &'static str, value: i32) -> Result<T, ValidationError> {
    T::try_from(value).map_err(|_| invalid(field, format!("{value} is out of range")))
}

fn invalid(field: &'static str, problem: impl Into<String>) -> ValidationError {
    ValidationError::Invalid { field, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: &Value) -> SyncJobSpec {
        let mut spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        merge(&mut spec, more);
        serde_json::from_value(spec).unwrap()
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn judged(more: &Value) -> Result<ValidatedSyncJob, ValidationError> {
        validate(&spec(more), "web", "prod")
    }

    fn claim(name: &str) -> Claim {
        Claim { namespace: "prod".into(), name: name.into() }
    }

    #[test]
    fn the_least_spec_gets_the_documented_defaults() {
        let job = judged(&json!({})).unwrap();
        assert_eq!((&job.source.claim, &job.destination.claim), (&claim("a"), &claim("b")));
        assert_eq!((job.source.folder.as_str(), job.timeout.as_secs(), job.retries), ("/", 6 * 3600, 3));
        assert_eq!((job.history_limit, job.params), (10, RunParams::default()));
    }

    #[test]
    fn what_works_is_carried_over() {
        let job = judged(&json!({
            "source": {"path": "/in", "persistentVolumeClaim": {"namespace": "prod"}},
            "destination": {"path": "/out/x"},
            "trigger": "t", "suspend": true, "historyLimit": 3,
            "files": {"delete": true, "deleteLimit": {"percent": 7}, "include": ["i"], "exclude": ["-e"]},
            "limits": {"timeout": "1h30m", "retries": 0},
            "transfer": {"placement": "Network"},
            "pods": {"priorityClassName": "high"},
        }))
        .unwrap();
        assert_eq!((job.source.folder.as_str(), job.destination.folder.as_str()), ("/in", "/out/x"));
        assert_eq!((job.trigger.as_deref(), job.suspend, job.history_limit), (Some("t"), true, 3));
        assert_eq!((job.timeout.as_secs(), job.retries), (5400, 0));
        assert_eq!(job.params.to_args(), ["--delete", "--delete-limit=7", "--include=i", "--exclude=-e"]);
        assert_eq!(job.pods.priority_class_name.as_deref(), Some("high"));
    }

    #[test]
    fn which_files_take_part_and_what_makes_them_equal_reaches_the_engine() {
        let files = json!({"ignoreFiles": true, "minSize": "1k", "maxSize": "2Gi", "compare": "Content"});
        let job = judged(&json!({"files": files})).unwrap();
        let flags = ["--ignore-files", "--min-size=1000", "--max-size=2147483648", "--compare=content"];
        assert_eq!(job.params.to_args(), flags);
    }

    #[test]
    fn every_field_without_behaviour_is_refused_by_its_own_name() {
        let remote = json!({"dial": {"secretName": "s"}});
        let specs = [
            ("source.remote", json!({"source": {"remote": remote}})),
            (
                "source.persistentVolumeClaim.namespace",
                json!({"source": {"persistentVolumeClaim": {"namespace": "other"}}}),
            ),
            ("source.pointInTime", json!({"source": {"pointInTime": "Clone"}})),
            ("source.snapshot", json!({"source": {"snapshot": "latest"}})),
            ("source.volumeSnapshotClassName", json!({"source": {"volumeSnapshotClassName": "c"}})),
            ("destination.remote", json!({"destination": {"remote": remote}})),
            (
                "destination.persistentVolumeClaim.namespace",
                json!({"destination": {"persistentVolumeClaim": {"namespace": "other"}}}),
            ),
            ("destination.create", json!({"destination": {"create": {"size": "1Gi"}}})),
            ("schedule", json!({"schedule": {"cron": "0 3 * * *"}})),
            ("concurrencyPolicy: Replace", json!({"concurrencyPolicy": "Replace"})),
            ("transfer.connections", json!({"transfer": {"connections": 2}})),
            ("transfer.placement: Local", json!({"transfer": {"placement": "Local"}})),
            ("snapshots", json!({"snapshots": {}})),
            ("regression", json!({"regression": {}})),
            ("parallelism", json!({"parallelism": 2})),
            ("hooks", json!({"hooks": {}})),
            ("deletionPolicy: Delete", json!({"deletionPolicy": "Delete"})),
        ];
        for (field, more) in &specs {
            assert_eq!(judged(more), Err(ValidationError::NotSupportedYet { fields: vec![field] }), "{more}");
        }
        let tried: std::collections::BTreeSet<_> = specs.iter().map(|(field, _)| field).collect();
        assert_eq!(tried, NOT_SUPPORTED_YET.iter().map(|(field, _)| field).collect());
    }

    #[test]
    fn the_message_names_all_that_is_refused() {
        let error = judged(&json!({"parallelism": 2, "snapshots": {}})).unwrap_err();
        assert_eq!(error.reason(), "NotSupportedYet");
        assert_eq!(
            error.to_string(),
            "not supported yet: snapshots, parallelism; remove what is named, or set it back to its default"
        );
    }

    #[test]
    fn a_job_onto_itself_is_refused_however_its_namespace_is_written() {
        let onto = |from: &str, to: &str| {
            judged(&json!({
                "source": {"path": from, "persistentVolumeClaim": {"claimName": "b", "namespace": "prod"}},
                "destination": {"path": to},
            }))
        };
        for (from, to) in [("/", "/"), ("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a"), ("/a", "/")]
        {
            assert_eq!(onto(from, to).unwrap_err().reason(), "InvalidSpec", "{from} {to}");
        }
        for (from, to) in [("/a", "/b"), ("/a", "/ab"), ("/ab", "/a"), ("/x/a", "/x/b")] {
            assert!(onto(from, to).is_ok(), "{from} {to}");
        }
    }

    #[test]
    fn a_path_never_leads_out_of_the_volume() {
        for path in
            ["", "a", "..", "/..", "/a/../b", "/a/", "//", "/./a", "/.volferry", "/a/.volferry/x", "/a\0"]
        {
            assert_eq!(Folder::new(path), None, "{path:?}");
            let error = judged(&json!({"source": {"path": path}})).unwrap_err();
            assert!(error.to_string().starts_with("spec.source.path: "), "{error}");
        }
        for path in ["/", "/a", "/a/b.c/..d", "/ a "] {
            assert!(Folder::new(path).is_some(), "{path:?}");
        }
    }

    #[test]
    fn what_an_older_crd_let_through_is_refused_with_the_field() {
        for (field, more) in [
            ("source.persistentVolumeClaim", json!({"source": {"persistentVolumeClaim": null}})),
            ("limits.timeout", json!({"limits": {"timeout": "tomorrow"}})),
            ("limits.timeout", json!({"limits": {"timeout": "0s"}})),
            ("limits.timeout", json!({"limits": {"timeout": "-1h"}})),
            ("limits.retries", json!({"limits": {"retries": -1}})),
            ("files.deleteLimit.percent", json!({"files": {"deleteLimit": {"percent": 300}}})),
            ("historyLimit", json!({"historyLimit": -1})),
            ("files.minSize", json!({"files": {"minSize": "big"}})),
            ("files.maxSize", json!({"files": {"maxSize": "1.5Gi"}})),
            ("files.minSize", json!({"files": {"minSize": "2k", "maxSize": "1k"}})),
        ] {
            let error = judged(&more).unwrap_err();
            assert_eq!(error.reason(), "InvalidSpec");
            assert!(error.to_string().starts_with(&format!("spec.{field}: ")), "{error}");
        }
    }

    #[test]
    fn parameters_of_features_to_come_are_carried_already() {
        let spec = spec(&json!({
            "transfer": {"compression": "Zstd", "bandwidthLimit": "100Mi", "connections": 4},
            "files": {"compare": "Content", "write": "InPlace", "preserve": {"xattrs": false}},
        }));
        let params = params(&spec).unwrap();
        assert_eq!((params.compression, params.bandwidth_limit), (Compression::Level(3), Some(100 << 20)));
        assert_eq!((params.connections, params.preserve.xattrs), (4, false));
        assert_eq!(
            (params.compare, params.write),
            (contract::Compare::Content, contract::WriteMode::InPlace)
        );
    }
}
