//! Builds the Jobs of the two ends.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            Affinity, Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSecurityContext, PodSpec,
            PodTemplateSpec, ResourceRequirements, Toleration,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{
    Try,
    object_store::{STORE_KEY_ENTRY, store_variables},
    placement::{self, Placement},
    pod_permissions,
    pod_volumes::{KEY_DIR, changes_since, data_path, devices, mounts, sides, volumes},
    security::{self, PodUser},
};
use crate::{
    api::{OnHookFailure, PodSecurity, PodSettings},
    ends::{bucket_end::BucketEnd, end_kind::EndKind, remote_end::RemoteEnd},
    engine::{self, EndArgs, Folder, RemotePlace, bench_args},
    names,
    run::{restore, shard_pairs},
    snapshots::keep_base_snapshot::Changes,
    spec::validate::ValidatedSyncJob,
    telemetry::LogFormat,
};

pub(crate) const OPERATOR: &str = "/volferry-operator";
pub(crate) const SYNCER: &str = "/volferry";
const REPORT: &str = "/run/volferry/report.json";
/// The entry of a Secret with the key by which endpoints know a SyncJob.
pub const JOB_KEY_ENTRY: &str = "identity.key";
/// Where it leaves the list.
pub(crate) const CHANGED_LIST: &str = "/run/volferry/changed-blocks";
/// The pod's own copy of that key, in memory.
const OWN_KEY: &str = "/run/volferry/identity.key";
/// The pod's own copy of the key by which snapshots in object storage are encrypted, in memory.
const STORE_KEY: &str = "/run/volferry/encryption.key";
/// How long a pod dials an endpoint, in seconds. A lost connection is tried again as any failure.
const DIAL_S: u64 = 60;
/// The port that sinks listen on, over UDP and TCP.
pub const PORT: u16 = 8900;
/// How long a syncer may take to remove its staging files and report when it is stopped, in seconds.
pub(crate) const GRACE_S: i64 = 60;
/// The same for one that is where a grant lets it be: whoever deletes its pod, it is gone 10 s after the grant is.
pub(crate) const GRANTED_GRACE_S: i64 = 7;

/// Builds the Job of the end that sends the files. It dials the sink for as long as the run may take, because the
/// sink's pod may start much later, or be stuck until a person helps.
pub fn source_job(of: &Try<'_>) -> Job {
    let timeout_s = of.job.timeout.as_secs();
    let (end, params) = (end(of, Side::Source), params(of));
    let args = match &of.run.benchmark {
        Some(benchmark) => bench_args::end_args(Side::Source, &end, timeout_s, &params, benchmark),
        None => engine::source_args(&end, timeout_s, &params),
    };
    job(of, Side::Source, Vec::new(), args)
}

/// Builds the Job of the end that receives the files. It listens at its pod's address, which only the agent knows.
pub fn sink_job(of: &Try<'_>) -> Job {
    let agent_args = vec![format!("--listen-port={PORT}")];
    let (end, params) = (end(of, Side::Sink), params(of));
    let args = match &of.run.benchmark {
        Some(benchmark) => {
            bench_args::end_args(Side::Sink, &end, of.job.timeout.as_secs(), &params, benchmark)
        }
        None => engine::sink_args(&end, &params),
    };
    job(of, Side::Sink, agent_args, args)
}

/// Builds the Job of the one pod that mounts both volumes. It bears the sink's name, as it writes to the destination.
pub fn local_job(of: &Try<'_>) -> Job {
    let [source, destination] = [Side::Source, Side::Sink].map(|side| folder(of.job, side));
    let params = params(of);
    let args = match &of.run.benchmark {
        Some(benchmark) => bench_args::local_args([&source, &destination], REPORT, &params.run, benchmark),
        None => engine::local_args(&source, &destination, REPORT, &params),
    };
    job(of, Side::Sink, Vec::new(), args)
}

/// Builds the Job of the one pod of a run whose end `side` is an endpoint. It makes or finds the job's key, and dials.
pub fn remote_job(of: &Try<'_>, side: Side, remote: &RemoteEnd) -> Job {
    let own = shard_pairs::other(side);
    let place =
        RemotePlace { address: remote.to_string(), public_key: remote.public_key, identity: OWN_KEY.into() };
    let mut agent_args = vec![format!("--key={KEY_DIR}/{JOB_KEY_ENTRY}"), format!("--key-copy={OWN_KEY}")];
    if remote.identity.is_none() {
        agent_args.extend([
            format!("--key-secret={}", names::job_key(&of.job.name, of.uid)),
            format!("--syncjob={}", of.job.name),
            format!("--syncjob-uid={}", of.uid),
        ]);
    }
    let args = engine::remote_args(side, &place, &folder(of.job, own), DIAL_S, REPORT, &params(of));
    job(of, own, agent_args, args)
}

/// Builds the Job of the one pod of a run that takes a snapshot into object storage.
pub fn bucket_job(of: &Try<'_>, place: &BucketEnd) -> Job {
    let agent_args =
        vec![format!("--store-key={KEY_DIR}/{STORE_KEY_ENTRY}"), format!("--key-copy={STORE_KEY}")];
    let own = folder(of.job, Side::Source);
    let args = engine::bucket_args(&place.to_string(), STORE_KEY, &own, REPORT, &params(of));
    job(of, Side::Source, agent_args, args)
}

fn end(of: &Try<'_>, side: Side) -> EndArgs {
    let job = format!("{}/{}", of.run_uid, names::try_id(&of.run.id, of.run.past_tries()));
    EndArgs { folder: folder(of.job, side), job, report: REPORT.into() }
}

fn folder(job: &ValidatedSyncJob, side: Side) -> Folder {
    let below = job.ends.of(side).mounted().map_or("/", |end| end.folder.as_str());
    Folder { volume: data_path(job, side).into(), path: below.into() }
}

/// Returns the nodes that the pod is pinned to, by each volume that it mounts.
fn pinned<'a>(of: &Try<'a>, side: Side) -> Vec<&'a Placement> {
    sides(of, side).into_iter().filter_map(|side| of.placements.pinned(side)).collect()
}

/// Returns the pod settings of that end. A pod that mounts both volumes has the settings of both ends. In another
/// namespace, a SyncJob cannot say which Services, policies and secrets of that namespace concern its pod.
fn pods(of: &Try<'_>, side: Side) -> PodSettings {
    let is_abroad = of.ends.of(side).grant().is_some();
    let own = |pods: &PodSettings| if is_abroad { pods.abroad() } else { pods.clone() };
    let both = own(&of.job.pods).over(&of.settings.pods);
    sides(of, side).into_iter().fold(both, |pods, side| {
        let end = of.job.end_pods.of(side);
        if is_abroad { pods.with(&end.abroad()) } else { pods.with(end) }
    })
}

fn params(of: &Try<'_>) -> contract::RunParams {
    let demands = contract::Demands { other_source: of.other_source, ..of.job.params.demands.clone() };
    contract::RunParams {
        run: names::try_id(&of.run.id, of.run.past_tries()),
        demands,
        expect_volume: of.expect_volume,
        force: of.run.force,
        snapshot_before: restore::tag_before(of.run),
        restore_paths: restore::paths(of.run),
        content_hash: *of.changes != Changes::Unlisted,
        ..of.job.params.clone()
    }
}

fn job(of: &Try<'_>, side: Side, more_agent_args: Vec<String>, syncer_args: Vec<String>) -> Job {
    let mut metadata = of.metadata(side);
    metadata.labels.get_or_insert_default().insert(names::LABEL_SIDE.into(), side.to_string());
    let annotations = metadata.annotations.get_or_insert_default();
    let pod_annotations = pod_annotations(of, side, annotations);
    annotations.insert(names::ANNOTATION_GENERATION.into(), of.run.generation.to_string());
    annotations.insert(names::ANNOTATION_BUILT_WITH.into(), of.settings.image.name.clone());
    if let Some(placement) = pinned(of, side).last() {
        annotations.insert(names::ANNOTATION_NODE.into(), placement.node.clone());
    }
    let labels = metadata.labels.clone().unwrap_or_default();
    Job {
        spec: Some(JobSpec {
            pod_replacement_policy: Some("Failed".into()),
            // Normally the operator ends a run at its timeout; this deadline works even without an operator.
            active_deadline_seconds: i64::try_from(of.job.timeout.as_secs()).ok(),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels(of, side, labels)),
                    annotations: Some(pod_annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(of, side, more_agent_args, syncer_args)),
            },
            ..pods_of_a_try(of.run.shard_count())
        }),
        metadata,
        ..Job::default()
    }
}

/// Returns how many pods a Job has, each of which is started only once: the operator decides about another try, by the
/// exit status of both ends. A failed shard does not stop the pods of the others: they notice it themselves, and have
/// to report what they did.
fn pods_of_a_try(shards: u32) -> JobSpec {
    match i32::try_from(shards) {
        Ok(shards @ 2..) => JobSpec {
            completion_mode: Some("Indexed".into()),
            completions: Some(shards),
            parallelism: Some(shards),
            backoff_limit_per_index: Some(0),
            ..JobSpec::default()
        },
        _ => JobSpec { backoff_limit: Some(0), ..JobSpec::default() },
    }
}

/// Returns the user's labels, overridden by those of Volferry.
fn pod_labels(of: &Try<'_>, side: Side, own: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let claims = claim_labels(of, side).map(|label| (label, names::CLAIM_USED.to_string()));
    pods(of, side).labels.into_iter().chain(claims).chain(own).collect()
}

/// Returns the labels for those claims of an end's pod that tie all their users to one node; the destination's last.
fn claim_labels(of: &Try<'_>, side: Side) -> impl Iterator<Item = String> {
    let tied = sides(of, side).into_iter().filter(|side| of.placements.on_one_node(*side));
    tied.filter_map(|side| Some(names::claim_label(&of.job.ends.of(side).claim()?.name)))
}

fn pod_annotations(of: &Try<'_>, side: Side, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let default = ("cluster-autoscaler.kubernetes.io/safe-to-evict".to_string(), "false".to_string());
    [default].into_iter().chain(pods(of, side).annotations).chain(own.clone()).collect()
}

fn pod_spec(of: &Try<'_>, side: Side, more_agent_args: Vec<String>, syncer_args: Vec<String>) -> PodSpec {
    let args = agent_args(of, side, more_agent_args, syncer_args);
    let pods = pods(of, side);
    let user = PodUser::of(
        of.ends.of(side).users.is_privileged(),
        of.ends.of(side).users.is_assigned,
        &pods.security_context,
    );
    let is_granted = of.ends.of(side).grant().is_some();
    PodSpec {
        restart_policy: Some("Never".into()),
        service_account_name: Some(pod_permissions::service_account_name(of, side)),
        automount_service_account_token: Some(true),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(if is_granted { GRANTED_GRACE_S } else { GRACE_S }),
        security_context: Some(pod_security(of, side, user, &pods)),
        containers: vec![Container {
            name: names::CONTAINER.into(),
            image: Some(of.settings.image.name.clone()),
            image_pull_policy: of.settings.image.pull_policy.clone(),
            command: Some(vec![OPERATOR.into()]),
            args: Some(args.iter().map(|arg| verbatim(arg)).collect()),
            env: non_empty(environment(of, side), Vec::is_empty),
            resources: Some(pods.resources.clone().unwrap_or_else(modest_resources)),
            security_context: Some(security::container(user == PodUser::Root, side)),
            volume_mounts: Some(mounts(of, side)),
            volume_devices: non_empty(devices(of, side), Vec::is_empty),
            // If a process panics without writing a message, the end of its log takes its place.
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        }],
        volumes: Some(volumes(of, side)),
        node_selector: non_empty(pods.node_selector.clone(), BTreeMap::is_empty),
        tolerations: non_empty(tolerations(of, side), Vec::is_empty),
        affinity: affinity(of, side),
        priority_class_name: pods.priority_class_name.clone(),
        runtime_class_name: pods.runtime_class_name.clone(),
        topology_spread_constraints: non_empty(pods.topology_spread_constraints.clone(), Vec::is_empty),
        image_pull_secrets: non_empty(pods.image_pull_secrets.clone(), Vec::is_empty),
        ..PodSpec::default()
    }
}

fn affinity(of: &Try<'_>, side: Side) -> Option<Affinity> {
    let wanted = pods(of, side).affinity;
    let pinned = pinned(of, side);
    if !pinned.is_empty() {
        return pinned.iter().fold(wanted, |wanted, it| Some(placement::pinned(wanted, &it.node)));
    }
    let preferred = sides(of, side).into_iter().filter_map(|side| of.placements.of(side));
    let wanted = preferred.fold(wanted, |wanted, it| Some(placement::drawn(wanted, &it.node)));
    // Only one claim's label: all terms must match one pod, so two would match no pod that uses just one of the claims.
    // Always the destination's, so that two pods never wait for each other (operator/doc/design.md).
    match claim_labels(of, side).last() {
        Some(label) => Some(placement::following(wanted, label)),
        None => wanted,
    }
}

fn tolerations(of: &Try<'_>, side: Side) -> Vec<Toleration> {
    let pinned = pinned(of, side);
    let there = pinned.iter().flat_map(|placement| &placement.tolerations);
    pods(of, side).tolerations.into_iter().chain(there.cloned()).collect()
}

fn agent_args(of: &Try<'_>, side: Side, more: Vec<String>, syncer_args: Vec<String>) -> Vec<String> {
    let mut args = Vec::new();
    if of.settings.log_format == LogFormat::Json {
        args.push("--log-format=json".to_string());
    }
    args.push("agent".into());
    args.extend([
        format!("--namespace={}", of.job.namespace),
        format!("--name={}", of.run.id),
        format!("--uid={}", of.run_uid),
        format!("--run={}", names::try_id(&of.run.id, of.run.past_tries())),
        format!("--try={}", of.run.try_number()),
        format!("--side={side}"),
        format!("--report={REPORT}"),
    ]);
    if of.run.shard_count() > 1 {
        args.push(format!("--shards={}", of.run.shard_count()));
    }
    if let Some(hook) = of.awaited_hook {
        args.push(format!(
            "--await-hook={}",
            if hook.on_failure == OnHookFailure::Fail { "Fail" } else { "Continue" }
        ));
    }
    if let Some(since) = changes_since(of, side) {
        args.push(format!("--changed-blocks={}", serde_json::to_string(since).unwrap_or_default()));
    }
    args.extend(more);
    args.extend(["--".into(), SYNCER.into()]);
    args.extend(syncer_args);
    // A benchmark logs nothing.
    if of.settings.log_format == LogFormat::Json && of.run.benchmark.is_none() {
        args.push("--log-format=json".into());
    }
    args
}

/// Returns the security context of a pod. A pod that may write to the source, such as a benchmark's, gets the group
/// only as a supplemental one, so that the kubelet does not change the files' group.
fn pod_security(of: &Try<'_>, side: Side, user: PodUser, pods: &PodSettings) -> PodSecurityContext {
    let own = &pods.security_context;
    let fs_group = of.fs_groups.of(side).filter(|_| user != PodUser::Root).or(own.fs_group);
    let security = security::pod(user, &PodSecurity { fs_group, ..own.clone() });
    if of.run.benchmark.is_some() && sides(of, side).contains(&Side::Source) {
        security::without_fs_group(security)
    } else {
        security
    }
}

/// Escapes an argument so that the kubelet passes it on unchanged: it expands `$(NAME)` as a variable, and `$$` to `$`.
pub(crate) fn verbatim(arg: &str) -> String {
    arg.replace('$', "$$")
}

/// Returns the agent's environment: its pod's address, if it listens, and the destination of its traces.
fn environment(of: &Try<'_>, side: Side) -> Vec<EnvVar> {
    let listens = of.run.only_side().is_none() && side == Side::Sink;
    let value = |(name, value): &(String, String)| EnvVar {
        name: name.clone(),
        value: Some(verbatim(value)),
        ..EnvVar::default()
    };
    let store = match of.job.outside().map(|side| of.job.ends.of(side)) {
        Some(EndKind::Bucket(place)) => store_variables(place),
        _ => Vec::new(),
    };
    listens.then(pod_ip).into_iter().chain(of.settings.trace_env.iter().map(value)).chain(store).collect()
}

/// Returns the variable that holds the address of the pod.
fn pod_ip() -> EnvVar {
    let field = ObjectFieldSelector { field_path: "status.podIP".into(), ..ObjectFieldSelector::default() };
    let value_from = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: names::ENV_POD_IP.into(), value_from: Some(value_from), ..EnvVar::default() }
}

/// Returns the resources if the spec has none: requests that are enough to be scheduled fairly, and a limit on memory
/// that a tree of forty million files stays below (syncer/doc/design.md), so that no run takes a node's memory.
pub(crate) fn modest_resources() -> ResourceRequirements {
    let amounts = |amounts: &[(&str, &str)]| {
        let amount = |(name, amount): &(&str, &str)| ((*name).to_string(), Quantity((*amount).into()));
        Some(amounts.iter().map(amount).collect())
    };
    ResourceRequirements {
        requests: amounts(&[("cpu", "100m"), ("memory", "64Mi")]),
        limits: amounts(&[("memory", "2Gi")]),
        ..ResourceRequirements::default()
    }
}

pub(crate) fn non_empty<T>(value: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    (!is_empty(&value)).then_some(value)
}
