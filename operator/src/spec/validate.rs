//! Converts a [`SyncJobSpec`] to a [`ValidatedSyncJob`], from which pods can be built without further checks. Pure:
//! whether the claims exist is checked by the step before, which asks the cluster.

use std::time::Duration;

use contract::{Compression, DeleteLimit, Demands, RunParams, Side, regression::Rule};

use super::fields::{ValidationError, duration, invalid, number};
use crate::{
    api::{
        CompressionMode, ConcurrencyPolicy, CreateClaim, EndPodSettings, HistoryLimit, MAX_PARALLELISM,
        Placement, PodSettings, REMOTE_LIMITS, Regression, RunFolder, SyncJobSpec, Transfer,
    },
    ends::{claim_end::NamespacedClaim, end_kind::EndKind, remote_end::RemoteEnd, source_and_sink::Ends},
    hooks::hook_state,
    run::due_times::Schedule,
    snapshots::{
        capture_demand::{self, CaptureDemand, ImageDemand},
        engine_snapshots,
    },
};

/// The zstd level if `compression: Zstd` names none; zstd's own default.
const DEFAULT_ZSTD_LEVEL: i32 = 3;

/// A SyncJob that can be run as far as its spec is concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedSyncJob {
    /// The SyncJob's name.
    pub name: String,
    /// The SyncJob's namespace.
    pub namespace: String,
    /// What is at the two ends. They never overlap.
    pub ends: Ends<EndKind>,
    /// How the source is captured at one instant; `None` if it is read as it is.
    pub capture: Option<CaptureDemand>,
    /// How the destination's VolumeSnapshots are taken; `None` if none are.
    pub images: Option<ImageDemand>,
    /// How to create the destination's claim if it does not exist.
    pub create: Option<CreateClaim>,
    /// The schedule; `None` if only changes trigger runs.
    pub schedule: Option<Schedule>,
    /// The trigger: any change of it starts one more run.
    pub trigger: Option<String>,
    /// Whether no run may start.
    pub suspend: bool,
    /// Whether a run that falls due stops the one under way.
    pub replaces: bool,
    /// The priority of runs in the queue; the highest comes first.
    pub priority: i32,
    /// The parameters of the engine, except the run's name and the shard, which are set later. The bandwidth limit is
    /// that of each shard.
    pub params: RunParams,
    /// The number of shards that the tree is divided into; 1 to [`MAX_PARALLELISM`].
    pub parallelism: u32,
    /// Where the two volumes are mounted together, as the spec says.
    pub placement: Placement,
    /// Whether one pod mounts both volumes. If the spec leaves it open,
    /// [`one_pod_or_two`](crate::pods::one_pod_or_two) decides by the claims.
    pub is_local: bool,
    /// The maximum duration of a run, including retries.
    pub timeout: Duration,
    /// The maximum number of retries of a failed run.
    pub retries: u32,
    /// The numbers of ended runs that the status keeps.
    pub history_limit: KeptRuns,
    /// When a run counts as slower than earlier ones; `None` if runs are not compared.
    pub regression: Option<Rule>,
    /// Settings of the syncer pods of both ends.
    pub pods: PodSettings,
    /// The settings that override them at each end.
    pub end_pods: Ends<EndPodSettings>,
}

impl ValidatedSyncJob {
    /// Returns the folder of that end as runs and statuses record it.
    pub fn run_folder(&self, side: Side) -> RunFolder {
        self.ends.of(side).run_folder(&self.namespace)
    }

    /// Returns the end that is no claim, if there is one: the run has one pod then, with the claim of the other end.
    pub fn outside(&self) -> Option<Side> {
        [Side::Source, Side::Sink].into_iter().find(|side| self.ends.of(*side).claim().is_none())
    }

    /// Returns the end that another cluster or machine serves.
    pub fn remote(&self) -> Option<&RemoteEnd> {
        self.ends.iter().find_map(EndKind::remote)
    }
}

/// The numbers of ended runs that a status keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptRuns {
    /// The number of successful runs; the newest are kept.
    pub succeeded: usize,
    /// The number of all other runs; the newest are kept.
    pub failed: usize,
}

/// Validates the spec of the SyncJob of that name and namespace. Fails at the first invalid field.
pub fn validate(
    spec: &SyncJobSpec,
    name: &str,
    namespace: &str,
) -> Result<ValidatedSyncJob, ValidationError> {
    hook_state::check(spec.hooks.as_ref())?;
    if let Some(limit) = REMOTE_LIMITS.iter().find(|limit| (limit.is_asked)(spec)) {
        return Err(invalid(limit.field, limit.problem));
    }
    let ends = ends(spec, namespace)?;
    if let (Some(source), Some(destination)) = (ends.source.claim(), ends.sink.claim()) {
        check_namespaces(spec, source, destination, namespace)?;
    }
    Ok(ValidatedSyncJob {
        name: name.into(),
        namespace: namespace.into(),
        ends,
        capture: capture_demand::demand(spec)?,
        images: capture_demand::images(spec)?,
        create: spec.destination.create.clone(),
        schedule: spec.schedule.as_ref().map(Schedule::new).transpose()?,
        trigger: spec.trigger.clone(),
        suspend: spec.suspend,
        replaces: spec.concurrency_policy == ConcurrencyPolicy::Replace,
        priority: spec.priority,
        params: RunParams { demands: demands(spec, name, namespace)?, ..params(spec)? },
        parallelism: parallelism(spec)?,
        placement: spec.transfer.placement,
        is_local: spec.transfer.placement == Placement::Local
            || (spec.source.snapshot.is_some() && !spec.has_remote_end()),
        timeout: duration("limits.timeout", &spec.limits.timeout)?,
        retries: number("limits.retries", spec.limits.retries)?,
        history_limit: KeptRuns {
            succeeded: number("historyLimit.succeeded", spec.history_limit.succeeded)?,
            failed: number("historyLimit.failed", spec.history_limit.failed)?,
        },
        regression: spec.regression.as_ref().map(|it| rule(it, &spec.history_limit)).transpose()?,
        pods: spec.pods.clone(),
        end_pods: Ends { source: spec.source.pods.clone(), sink: spec.destination.pods.clone() },
    })
}

/// Returns both ends. Fails if they overlap, except that a snapshot on the destination may be restored to itself.
fn ends(spec: &SyncJobSpec, own: &str) -> Result<Ends<EndKind>, ValidationError> {
    let source = EndKind::parse(spec, Side::Source, own)?;
    let sink = EndKind::parse(spec, Side::Sink, own)?;
    let is_restored = spec.source.snapshot.is_some() && source == sink;
    let mounted = source.mounted().zip(sink.mounted());
    if !is_restored && mounted.is_some_and(|(source, sink)| source.overlaps(sink)) {
        let problem =
            "overlaps with the source; name another claim, or folders of which neither holds the other";
        return Err(invalid("destination", problem));
    }
    Ok(Ends { source, sink })
}

/// Refuses what cannot be done with claims of other namespaces.
fn check_namespaces(
    spec: &SyncJobSpec,
    source: &NamespacedClaim,
    destination: &NamespacedClaim,
    own: &str,
) -> Result<(), ValidationError> {
    if spec.destination.create.is_some() && destination.namespace != own {
        let problem = format!(
            "is for a claim of the SyncJob's own namespace, {own}: remove it, and create the claim in {}",
            destination.namespace
        );
        return Err(invalid("destination.create", problem));
    }
    if spec.source.point_in_time.is_some() && source.namespace != own {
        let problem =
            "is for a claim of the SyncJob's own namespace, where the temporary claim is made; remove it";
        return Err(invalid("source.pointInTime", problem));
    }
    if spec.destination.volume_snapshots.is_some() && destination.namespace != own {
        let problem =
            "is for a claim of the SyncJob's own namespace, where VolumeSnapshots are made; remove it";
        return Err(invalid("destination.volumeSnapshots", problem));
    }
    if spec.transfer.placement == Placement::Local && source.namespace != destination.namespace {
        let problem = "Local is one pod with both claims, which have to be of one namespace; write Auto";
        return Err(invalid("transfer.placement", problem));
    }
    Ok(())
}

fn parallelism(spec: &SyncJobSpec) -> Result<u32, ValidationError> {
    let shards: u32 = number("parallelism", spec.parallelism)?;
    if !(1..=MAX_PARALLELISM).contains(&shards) {
        return Err(invalid("parallelism", format!("{shards} is not a number from 1 to {MAX_PARALLELISM}")));
    }
    if shards > 1 && spec.transfer.placement == Placement::Local {
        return Err(invalid(
            "parallelism",
            "above 1 is for several pods a side, and transfer.placement: Local is one pod; set either back to its default",
        ));
    }
    Ok(shards)
}

fn params(spec: &SyncJobSpec) -> Result<RunParams, ValidationError> {
    let files = &spec.files;
    let min_size = size("files.minSize", files.min_size.as_ref())?;
    let max_size = size("files.maxSize", files.max_size.as_ref())?;
    if min_size.zip(max_size).is_some_and(|(min, max)| min > max) {
        let problem = "is above maxSize, so no file would be synced; change one of them";
        return Err(invalid("files.minSize", problem));
    }
    let params = RunParams {
        delete: files.delete,
        // The owner of a SyncJob names the claim, and its first run keeps the delete limit.
        adopt: files.delete,
        delete_timing: if files.delete { files.delete_timing } else { Default::default() },
        delete_anyway: files.delete && files.delete_anyway,
        delete_limit: DeleteLimit(number("files.deleteLimit.percent", files.delete_limit.percent)?),
        include: files.include.clone(),
        exclude: files.exclude.clone(),
        ignore_files: files.ignore_files,
        min_size,
        max_size,
        compare: files.compare,
        preserve: files.preserve.into(),
        write: files.write,
        compression: compression(&spec.transfer)?,
        bandwidth_limit: bandwidth_limit(spec)?,
        source_snapshot: spec.source.snapshot.clone(),
        trust_store: spec.source.trust_store,
        keep_going: spec.source.keep_going,
        history: spec.source.history,
        ..RunParams::default()
    };
    if spec.destination.object_store.is_some()
        && let Some(flag) = params.flags_without_bucket().next()
    {
        let problem = "does not go with destination.objectStore, which keeps files as they are; remove it";
        return Err(invalid(flag.field_or_name(), problem));
    }
    engine_snapshots::check_source(spec, &params)?;
    engine_snapshots::check_history(spec, &params)?;
    Ok(params)
}

/// Returns the parameters for the destination's end only.
fn demands(spec: &SyncJobSpec, name: &str, namespace: &str) -> Result<Demands, ValidationError> {
    Ok(Demands {
        snapshot: engine_snapshots::params(spec, format!("{namespace}/{name}"))?,
        ..Demands::default()
    })
}

/// Returns the size that a field states, in bytes.
fn size(field: &'static str, text: Option<&String>) -> Result<Option<u64>, ValidationError> {
    let read = |text: &String| contract::parse_bytes(text).map_err(|error| invalid(field, error.to_string()));
    text.map(read).transpose()
}

fn compression(transfer: &Transfer) -> Result<Compression, ValidationError> {
    let level = transfer.compression_level.unwrap_or(DEFAULT_ZSTD_LEVEL);
    Ok(match transfer.compression {
        CompressionMode::Auto => Compression::Auto,
        CompressionMode::None => Compression::None,
        CompressionMode::Zstd => Compression::Level(number("transfer.compressionLevel", level)?),
    })
}

/// Returns the bandwidth limit of each shard, which is an equal share of the run's.
fn bandwidth_limit(spec: &SyncJobSpec) -> Result<Option<u64>, ValidationError> {
    let shards = u64::from(parallelism(spec)?);
    let parsed = spec.transfer.bandwidth_limit.as_deref().map(contract::parse_bytes).transpose();
    let limit = parsed.map_err(|error| invalid("transfer.bandwidthLimit", error.to_string()))?;
    Ok(limit.map(|limit| limit / shards))
}

/// Returns the rule for comparing runs. Fails if it needs more runs than the history keeps.
fn rule(regression: &Regression, kept: &HistoryLimit) -> Result<Rule, ValidationError> {
    let window = number("regression.window", regression.window)?;
    if regression.window > kept.succeeded {
        let problem = format!(
            "{window} runs cannot be compared, because historyLimit.succeeded keeps {}; raise that, or lower this",
            kept.succeeded
        );
        return Err(invalid("regression.window", problem));
    }
    match regression.threshold.parse::<f64>() {
        Ok(threshold) if threshold > 1.0 && threshold.is_finite() => Ok(Rule { window, threshold }),
        _ => {
            let problem = format!("`{}` is not a factor above 1; write \"1.5\"", regression.threshold);
            Err(invalid("regression.threshold", problem))
        }
    }
}

#[cfg(test)]
mod tests;
