//! Runs the command that was typed. `status`, `runs`, `run-now`, `cancel`, `suspend`, `resume`, `restore`, `bench`,
//! `snapshots` and `report` are here; the others have files of their own (`plugin/mod.rs` names them).

use contract::RunResult;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    args::{ClusterCommand, Command, Form, PluginArgs},
    browse_and_get::{self, Asked},
    cluster::Cluster,
    copy, doctor,
    error::PluginError,
    lines, logs, migrate, move_workload, output, pair,
    push_and_pull::{self, Way},
    stream, top,
};
use crate::{
    api::{Benchmark, Restore, Run, SyncJob, SyncJobStatus, SyncRun, SyncRunSpec, conditions},
    run::{restore, run_annotations::RunNames},
};

pub(super) async fn run(args: PluginArgs) -> Result<(), PluginError> {
    match args.command {
        Command::InCluster(command) => in_cluster(&Cluster::connect(&args.scope).await?, command).await,
        Command::Copy { from, to, pod, sync } => copy::run(&args.scope, &from, &to, &pod, &sync).await,
        Command::Pairs(command) => pair::run(command, &args.scope).await,
        Command::Migrate(command) => migrate::run(command, args.scope.namespace.as_ref()),
    }
}

async fn in_cluster(cluster: &Cluster, command: ClusterCommand) -> Result<(), PluginError> {
    use ClusterCommand as It;
    match command {
        It::Status { job: Some(job), form, .. } => status(cluster, &job, form).await,
        It::Status { job: None, all_namespaces, form } => statuses(cluster, all_namespaces, form).await,
        It::Top { all_namespaces, once } => top::run(cluster, all_namespaces, once).await,
        It::Runs { job, form } => runs(cluster, &job, form).await,
        It::Logs { name, end, follow } => logs::run(cluster, name, end.map(Into::into), follow).await,
        It::RunNow { job, force, wait, form } => {
            run_now(cluster, &job, SyncRunSpec { force, ..SyncRunSpec::default() }, wait, form).await
        }
        It::Cancel { job } => cancel(cluster, &job).await,
        It::Suspend { job } => suspend(cluster, &job).await,
        It::Resume { job } => resume(cluster, &job).await,
        It::Restore { job, snapshot, paths, no_safety, keep_going, trust_store, wait, form } => {
            let restore = Restore { snapshot, paths, safety: !no_safety, keep_going, trust_store };
            let asked = SyncRunSpec { restore: Some(restore), ..SyncRunSpec::default() };
            let run = ask(cluster, &job, "restore", asked).await?;
            follow(cluster, run, wait, form).await
        }
        It::Bench { job, tree, rounds, wait, form } => {
            let benchmark = Benchmark { tree: Some(tree), rounds, ..Benchmark::default() };
            let asked = SyncRunSpec { benchmark: Some(benchmark), ..SyncRunSpec::default() };
            let run = ask(cluster, &job, "bench", asked).await?;
            follow(cluster, run, wait, form).await
        }
        It::Snapshots { job, form } => snapshots(cluster, &job, form).await,
        It::Browse { job, snapshot, path, limit } => {
            let asked = match snapshot {
                Some(snapshot) => Asked::Folder { snapshot, path },
                None => Asked::List,
            };
            browse_and_get::run(cluster, &job, asked, limit.timeout).await
        }
        It::Get { job, snapshot, path, limit } => {
            browse_and_get::run(cluster, &job, Asked::File { snapshot, path }, limit.timeout).await
        }
        It::Push { source, claim, pod, sync } => {
            push_and_pull::run(cluster, Way::Push, &source, &claim, &pod, &sync).await
        }
        It::Pull { claim, destination, pod, sync } => {
            push_and_pull::run(cluster, Way::Pull, &destination, &claim, &pod, &sync).await
        }
        It::Stream { pod, command } => stream::run(cluster, &pod, &command).await,
        It::Move { flags } => move_workload::run(cluster, &flags).await,
        It::Doctor { job } => doctor::run(cluster, job.as_deref()).await,
        It::Report { job } => report(cluster, &job).await,
    }
}

async fn status(cluster: &Cluster, name: &str, form: Form) -> Result<(), PluginError> {
    let job = cluster.job(name).await?;
    if output::object(form.output, &job)? {
        return Ok(());
    }
    let active = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let run = match active {
        Some(active) => cluster.run_if_any(&active.id).await?,
        None => None,
    };
    let progress = run.and_then(|run| run.status?.progress);
    output::lines(&lines::job(&job, progress.as_ref(), &cluster.scope))
}

async fn statuses(cluster: &Cluster, all_namespaces: bool, form: Form) -> Result<(), PluginError> {
    let jobs = cluster.jobs(all_namespaces).await?;
    if output::object(form.output, &json!({"apiVersion": "v1", "kind": "List", "items": jobs}))? {
        return Ok(());
    }
    if jobs.is_empty() {
        let place =
            if all_namespaces { "any namespace".into() } else { format!("namespace {}", cluster.namespace) };
        output::complain(&format!("no SyncJobs in {place}"));
        return Ok(());
    }
    output::lines(&lines::jobs(&jobs, all_namespaces))
}

async fn runs(cluster: &Cluster, name: &str, form: Form) -> Result<(), PluginError> {
    let runs = cluster.runs(name).await?;
    if runs.is_empty() {
        // Fails if the SyncJob itself is missing.
        cluster.job(name).await?;
        return Err(cluster.no_run(name));
    }
    if output::object(form.output, &json!({"apiVersion": "v1", "kind": "List", "items": runs}))? {
        return Ok(());
    }
    output::lines(&lines::runs(&runs))
}

async fn run_now(
    cluster: &Cluster,
    name: &str,
    asked: SyncRunSpec,
    wait: bool,
    form: Form,
) -> Result<(), PluginError> {
    let job = cluster.job(name).await?;
    let run = cluster.create_run(name, "now", asked).await?;
    if job.spec.suspend {
        let path = lines::path(&job);
        output::complain(&format!("warning: SyncJob {path} is suspended: the run starts once it is resumed"));
        output::complain(&format!("hint: kubectl volferry resume{} {name}", cluster.flags()));
    }
    follow(cluster, run, wait, form).await
}

/// Asks for a run of a SyncJob that exists: for another, none would ever begin.
async fn ask(cluster: &Cluster, name: &str, word: &str, asked: SyncRunSpec) -> Result<SyncRun, PluginError> {
    cluster.job(name).await?;
    cluster.create_run(name, word, asked).await
}

/// Waits for the end of a requested run, if `wait` is set, and prints its result.
async fn follow(cluster: &Cluster, run: SyncRun, wait: bool, form: Form) -> Result<(), PluginError> {
    if !wait {
        if output::object(form.output, &run)? {
            return Ok(());
        }
        output::lines(&[format!("syncrun.volferry.dev/{} created", run.name_any())])?;
        // The SyncJob still says how the run before ended.
        let waits = format!("kubectl wait{} --for=condition=Ready --timeout=1h", cluster.flags());
        output::complain(&format!("hint: {waits} syncrun/{}", run.name_any()));
        return Ok(());
    }
    output::complain(&format!("waiting for SyncRun {}/{}", cluster.namespace, run.name_any()));
    let run = cluster.ended(&run.name_any()).await?;
    let report = run.status.as_ref().and_then(|status| status.report.clone()).unwrap_or_default();
    report_end(&run, &report, form)?;
    if report.result == RunResult::Succeeded {
        return Ok(());
    }
    let how = report.message.clone().unwrap_or_else(|| format!("{:?}", report.result));
    Err(PluginError::RunFailed { at: cluster.at(), name: run.name_any(), how })
}

fn report_end(run: &SyncRun, report: &Run, form: Form) -> Result<(), PluginError> {
    if output::object(form.output, run)? {
        return Ok(());
    }
    match &report.benchmark {
        Some(found) => output::lines(&trend::bench_table(found).lines().collect::<Vec<_>>()),
        None => output::lines(&[lines::ended(report)]),
    }
}

async fn cancel(cluster: &Cluster, name: &str) -> Result<(), PluginError> {
    let status = cluster.job(name).await?.status.unwrap_or_default();
    let idle = || PluginError::NothingToCancel { at: cluster.at(), name: name.into() };
    let run = status.active_run.ok_or_else(idle)?;
    cluster.cancel(name, RunNames::from(&run)).await?;
    output::lines(&[format!("syncrun.volferry.dev/{} is being canceled", run.id)])
}

async fn suspend(cluster: &Cluster, name: &str) -> Result<(), PluginError> {
    let was = cluster.job(name).await?.spec.suspend;
    let job = cluster.suspend(name).await?;
    report_state(name, if was { "is suspended already" } else { "suspended" }, &job)
}

async fn resume(cluster: &Cluster, name: &str) -> Result<(), PluginError> {
    let before = cluster.job(name).await?;
    let status = before.status.clone().unwrap_or_default();
    let restore = restore::held_by(&status);
    if restore.is_none() && restore::holds(&status) {
        output::complain("warning: a restore is in progress, after which no run starts until it is resumed");
        let flags = cluster.flags();
        output::complain(&format!("hint: once it has ended: kubectl volferry resume{flags} {name}"));
    }
    let job = cluster.resume(name, restore.map(RunNames::word)).await?;
    if before.spec.suspend || restore.is_some() {
        // The operator has yet to see this, so the status is that of before.
        return output::lines(&[format!("syncjob.volferry.dev/{name} resumed")]);
    }
    report_state(name, "is not suspended", &job)
}

fn report_state(name: &str, done: &str, job: &SyncJob) -> Result<(), PluginError> {
    output::lines(&[format!("syncjob.volferry.dev/{name} {done} ({})", lines::state(job))])
}

async fn snapshots(cluster: &Cluster, name: &str, form: Form) -> Result<(), PluginError> {
    let job = cluster.job(name).await?;
    let (namespace, name) = (cluster.namespace.clone(), name.to_string());
    let SyncJobStatus { snapshots, conditions, .. } = job.status.unwrap_or_default();
    let status = snapshots.ok_or(PluginError::NoSnapshots { namespace, name })?;
    let damage = conditions::find(&conditions, conditions::CORRUPT).map(|corrupt| corrupt.message.as_str());
    if output::object(form.output, &status)? {
        return Ok(());
    }
    output::lines(&lines::snapshots(&status, damage))
}

async fn report(cluster: &Cluster, name: &str) -> Result<(), PluginError> {
    let status = cluster.job(name).await?.status.unwrap_or_default();
    let run = status.last_run.ok_or_else(|| cluster.no_run(name))?;
    output::json(&lines::report(&run, status.destination.as_ref()))
}
