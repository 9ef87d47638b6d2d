//! SyncJobs and SyncRuns as the libraries of GitOps tools see them: kstatus, Flux's server-side apply, and Argo CD's
//! engine. The program `e2e/gitops` contains these libraries.

use std::{collections::BTreeMap, fs, path::Path, pin::pin, process::Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::apiserver::{ApiServer, User};
use futures::StreamExt as _;
use kube::{
    api::TypeMeta,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
};

use crate::prelude::*;

#[path = "../../../operator/tests/states/mod.rs"]
mod states;

/// The kinds of objects that are made for a run.
const OF_A_RUN: [&str; 6] = ["syncruns", "jobs", "pods", "serviceaccounts", "roles", "rolebindings"];

/// All versions of a namespace's SyncJobs and SyncRuns, in their order.
struct Album {
    seen: watch::Receiver<Vec<DynamicObject>>,
    /// The watching tasks, which end when this is dropped.
    _watching: JoinSet<()>,
}

impl Album {
    /// Starts to collect versions. The namespace has no objects yet.
    fn new(stage: &Stage) -> Self {
        let (sender, seen) = watch::channel(Vec::new());
        let mut watching = JoinSet::new();
        watching.spawn(collect(stage.jobs.clone(), "SyncJob", sender.clone()));
        watching.spawn(collect(stage.runs.clone(), "SyncRun", sender));
        Self { seen, _watching: watching }
    }

    /// Waits for a version of which `is_last` is true, and returns kstatus's verdicts on each object, from its first
    /// version to its last, without consecutive repetitions.
    async fn judged(
        &mut self,
        is_last: impl Fn(&DynamicObject) -> bool,
    ) -> Result<BTreeMap<String, Vec<String>>> {
        let ended = self.seen.wait_for(|seen| seen.iter().any(&is_last));
        let seen = tokio::time::timeout(PATIENCE, ended).await??.clone();
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (object, verdict) in seen.iter().zip(kstatus(&seen).await?) {
            let of_object = told.entry(object.name_any()).or_default();
            if of_object.last() != Some(&verdict.status) {
                of_object.push(verdict.status);
            }
        }
        Ok(told)
    }
}

async fn collect(api: Api<DynamicObject>, kind: &str, seen: watch::Sender<Vec<DynamicObject>>) {
    let types = Some(TypeMeta { api_version: "volferry.dev/v1alpha1".into(), kind: kind.into() });
    let mut versions = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(version) = versions.next().await {
        let version = version.ok().map(|version| DynamicObject { types: types.clone(), ..version });
        seen.send_modify(|seen| seen.extend(version));
    }
}

#[derive(Deserialize)]
struct Verdict {
    status: String,
}

/// Returns kstatus's verdicts on objects.
async fn kstatus(objects: &[impl Serialize]) -> Result<Vec<Verdict>> {
    judged(objects, &["kstatus"]).await
}

/// Returns the verdicts on objects of Flux's expressions in `config/flux`.
async fn flux(objects: &[impl Serialize]) -> Result<Vec<Verdict>> {
    let expressions = programs::repository().join("config/flux/health.yaml");
    judged(objects, &["expressions", &expressions.display().to_string()]).await
}

async fn judged(objects: &[impl Serialize], by: &[&str]) -> Result<Vec<Verdict>> {
    let mut judge = start(Command::new(programs::of_cluster("gitops")?).args(by))?;
    let mut input = judge.stdin.take().context("gitops has no standard input")?;
    let text: Vec<String> = objects.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let written = async {
        input.write_all(text.join("\n").as_bytes()).await?;
        drop(input);
        anyhow::Ok(())
    };
    let (written, judged) = tokio::join!(written, judge.wait_with_output());
    let (judged, ()) = (judged?, written?);
    ensure!(judged.status.success(), "{judged:?}");
    let verdicts =
        serde_json::Deserializer::from_slice(&judged.stdout).into_iter().collect::<Result<Vec<_>, _>>()?;
    ensure!(verdicts.len() == objects.len(), "{} verdicts on {} objects", verdicts.len(), objects.len());
    Ok(verdicts)
}

fn start(command: &mut Command) -> Result<Child> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.kill_on_drop(true).spawn().context("cannot start gitops")
}

#[tokio::test]
async fn kstatus_never_takes_what_is_under_way_for_done() {
    let stage = Stage::new("kstatus").await.unwrap();
    let mut album = Album::new(&stage);
    stage.sync("web", json!({"trigger": "one", "limits": {"retries": 0}})).await.unwrap();
    stage.sync("idle", json!({"suspend": true})).await.unwrap();
    let missing = json!({"destination": {"persistentVolumeClaim": {"claimName": "none"}}});
    stage.sync("lost", missing).await.unwrap();
    syncjob::create(&stage.runs, syncjob::run_now("astray", "nobody")).await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();

    stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_done("web").await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let second = stage.kubelet.start_both("web", &[]).await.unwrap();
    let full = serde_json::to_string(&bad_report("web-2", "NoSpace", "no space left")).unwrap();
    for pod in &second {
        stage.kubelet.end(pod, 1, &full).await.unwrap();
    }
    stage.until_is("web", "Stalled").await.unwrap();
    let is_done = |run: &DynamicObject| syncjob::text(run, "/stage") == "Done";
    stage.run("web-2", "it is done", is_done).await.unwrap();
    stage.until_is("idle", "Ready").await.unwrap();
    stage.until_is("lost", "Stalled").await.unwrap();
    stage.run("astray", "it is stalled", |run| syncjob::is(run, "Stalled")).await.unwrap();
    stage.patch("web", json!({"metadata": {"finalizers": ["volferry.test/held"]}})).await.unwrap();
    stage.jobs.delete("web", &DeleteParams::default()).await.unwrap();
    let leaves = |job: &DynamicObject| job.name_any() == "web" && job.metadata.deletion_timestamp.is_some();
    let judged = album.judged(leaves).await.unwrap();
    let told = |name: &str| judged[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(told("web"), ["InProgress", "Current", "InProgress", "Failed", "Terminating"]);
    assert_eq!(told("web-1"), ["InProgress", "Current"]);
    assert_eq!(told("web-2"), ["InProgress", "Failed"]);
    assert_eq!(told("idle"), ["InProgress", "Current"]);
    assert_eq!(told("lost"), ["InProgress", "Failed"]);
    assert_eq!(told("astray"), ["InProgress", "Failed"]);
    stage.patch("web", json!({"metadata": {"finalizers": null}})).await.unwrap();
}

#[tokio::test]
async fn kstatus_and_flux_know_a_job_in_each_of_its_states() {
    let states = states::all();
    let objects: Vec<Value> = states.iter().map(|state| in_status(&state.status)).collect();
    let (by_kstatus, by_flux) = (kstatus(&objects).await.unwrap(), flux(&objects).await.unwrap());
    for (state, (kstatus, flux)) in states.iter().zip(by_kstatus.iter().zip(&by_flux)) {
        assert_eq!((&*kstatus.status, &*flux.status), (state.kstatus, state.flux), "{}", state.name);
    }
}

/// Returns a SyncJob of the first generation with that status.
fn in_status(status: &impl Serialize) -> Value {
    let mut job = syncjob::manifest("web", "from", "to", json!({}));
    job["metadata"]["generation"] = json!(1);
    job["status"] = json!(status);
    job
}

/// The run by the schedule is under way for as long as the tools look.
#[tokio::test]
async fn a_run_of_the_schedule_changes_nothing_for_tools_and_a_failure_makes_the_copy_old() {
    let stage = Stage::new("routine").await.unwrap();
    let mut album = Album::new(&stage);
    stage.sync("web", json!({"schedule": {"interval": "1s"}, "limits": {"retries": 0}})).await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    let first = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_is("web", "Synced").await.unwrap();
    let second = stage.kubelet.start_any(&first).await.unwrap();
    let broken = serde_json::to_string(&bad_report("web-2", "PeerLost", "gone")).unwrap();
    for pod in &second {
        stage.kubelet.end(pod, 1, &broken).await.unwrap();
    }
    let missed = |job: &DynamicObject| syncjob::has_reason(job, "Synced", "PeerLost");
    let told = album.judged(missed).await.unwrap();
    assert_eq!(told["web"], ["InProgress", "Current"]);
}

#[tokio::test]
async fn flux_applies_waits_finds_no_drift_and_prunes() {
    round_trip("flux").await;
}

#[tokio::test]
async fn argo_cd_syncs_finds_no_difference_and_prunes() {
    round_trip("argo").await;
}

/// Applies two states of a repository to a namespace and removes them again, while its runs are simulated.
async fn round_trip(tool: &str) {
    let (stage, _controller) = Stage::with_controller(tool).await.unwrap();
    let repository = tempfile::tempdir().unwrap();
    write_state(&repository.path().join("first"), "one");
    write_state(&repository.path().join("second"), "two");
    let mut program = Command::new(programs::of_cluster("gitops").unwrap());
    program
        .arg(tool)
        .arg(ApiServer::shared().kubeconfig(User::Admin))
        .arg(&stage.namespace)
        .arg(repository.path());
    let trip = start(&mut program).unwrap();
    let script = async {
        let done = trip.wait_with_output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        for kind in OF_A_RUN {
            let gone = ["wait", "--for=delete", kind, "-l", "volferry.dev/syncjob", "--timeout=60s"];
            stage.kubectl.run_async(&gone).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = script => done.unwrap(),
        error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
    }
}

/// Writes a SyncJob with that trigger, and an unrelated object.
fn write_state(folder: &Path, trigger: &str) {
    let job = syncjob::manifest(
        "web",
        "from",
        "to",
        json!({"trigger": trigger, "pods": {"labels": {"team": "shop"}}}),
    );
    let beside: Value =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}, "data": {"a": "b"}});
    fs::create_dir(folder).unwrap();
    for (name, object) in [("job.yaml", job), ("beside.yaml", beside)] {
        fs::write(folder.join(name), object.to_string()).unwrap();
    }
}
