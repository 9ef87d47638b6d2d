//! A controller that is killed at any point of a run: between any two of its writes, after any write whose answer it
//! has not received, at requests of any kind, and while the pods continue without it. Another controller takes over,
//! with the same run and the same pods.

use anyhow::{Context as _, Result, bail, ensure};
use contract::OwnKey;
use e2e::{cut::random_below, witness::Witness};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::prelude::*;

/// The number of scenarios that run concurrently.
const AT_ONCE: usize = 4;
/// The number of concurrent scenarios that mostly wait for the next try.
const AT_ONCE_WAITING: usize = 12;
/// The least number of writes until the pods of a next run are made.
const TAKEOVER: usize = 9;
/// The number of lives that are cut at a random request.
const AT_RANDOM: usize = 5;
/// The kinds of the objects that remain of a run, apart from its pods: its Jobs for their logs, and the rights of its
/// pods.
const OF_A_RUN: [&str; 5] = [
    "job.batch",
    "job.batch",
    "role.rbac.authorization.k8s.io",
    "rolebinding.rbac.authorization.k8s.io",
    "serviceaccount",
];

/// The settings of a run and its outcome.
#[derive(Debug, Clone, Copy)]
struct Plot {
    shards: u64,
    ending: Play,
    /// The job has hooks. They fail, since no pod exists to run them in, and the run ignores that.
    hooked: bool,
    /// The destination is an endpoint, so the run has a source alone.
    remote: bool,
}

impl Plot {
    fn is_retried(self) -> bool {
        self.ending == Play::FirstFails
    }

    fn ends(self) -> u64 {
        if self.remote { 1 } else { 2 }
    }
}

const PLAIN: Plot = Plot { shards: 1, ending: Play::Succeeds, hooked: false, remote: false };
const SHARED: Plot = Plot { shards: 2, ..PLAIN };
const RETRIED: Plot = Plot { ending: Play::FirstFails, ..PLAIN };
const HOOKED: Plot = Plot { hooked: true, ..PLAIN };
const REMOTE: Plot = Plot { remote: true, ..PLAIN };

#[tokio::test]
async fn a_run_is_the_same_run_wherever_the_controller_is_killed() {
    let writes = run(PLAIN, Cut::Never).await.unwrap().writes;
    assert!(writes > 9, "the record, five children, that it runs, the report: more than {writes} writes");
    each(PLAIN, all_cuts(writes), AT_ONCE).await.unwrap();
}

#[tokio::test]
async fn a_run_into_an_endpoint_is_the_same_run_wherever_the_controller_is_killed() {
    let writes = run(REMOTE, Cut::Never).await.unwrap().writes;
    each(REMOTE, cuts_before(writes), AT_ONCE).await.unwrap();
}

#[tokio::test]
async fn a_run_of_shards_is_the_same_run_wherever_the_controller_is_killed() {
    let writes = run(SHARED, Cut::Never).await.unwrap().writes;
    each(SHARED, cuts_before(writes), AT_ONCE).await.unwrap();
}

#[tokio::test]
async fn a_run_is_tried_again_once_wherever_the_controller_is_killed_from_the_failure_on() {
    let plain = run(PLAIN, Cut::Never).await.unwrap().writes;
    let writes = run(RETRIED, Cut::Never).await.unwrap().writes;
    assert!(writes > plain, "the failure, a sweep, and a second set of children: more than {writes} writes");
    // The writes before these are as in any run.
    each(
        RETRIED,
        cut_writes(plain).into_iter().map(|write| Cut::Before(writes - plain + write)),
        AT_ONCE_WAITING,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_run_has_both_its_hooks_and_is_let_go_wherever_the_controller_is_killed() {
    let plain = run(PLAIN, Cut::Never).await.unwrap().writes;
    let writes = run(HOOKED, Cut::Never).await.unwrap().writes;
    assert!(
        writes > plain + 4,
        "the beginning and the end of each hook, and the hold: more than {writes} writes"
    );
    each(HOOKED, cuts_before(writes), AT_ONCE).await.unwrap();
}

#[tokio::test]
async fn the_next_run_takes_over_once_wherever_the_controller_is_killed() {
    let writes = taken_over(Cut::Never).await.unwrap();
    assert!(
        writes > TAKEOVER,
        "what the last run left, the record, five children: more than {writes} writes"
    );
    // Later writes are the same as in any run.
    cut::each(cuts_before(TAKEOVER), AT_ONCE, taken_over).await.unwrap();
}

/// Starts a job's second run under a controller that is killed at the cut. Returns the number of its writes.
async fn taken_over(cut: Cut) -> Result<usize> {
    let stage = Stage::new("takeover").await?;
    let lived = async {
        let controller = stage.controller(Cut::Never).await?;
        stage.sync("web", json!({"trigger": "one"})).await?;
        stage.until_done("web").await?;
        drop(controller);
        ensure!(stage.kept("web").await? == ["web-1"; 2], "{:?}", stage.kept("web").await?);
        stage.patch("web", json!({"spec": {"trigger": "two"}})).await?;
        let first = stage.controller(cut).await?;
        first.until_cut_or(until_second_is_done(&stage)).await?;
        let writes = first.writes();
        drop(first);
        let _second = stage.controller(Cut::Never).await?;
        until_second_is_done(&stage).await?;
        ensure!(stage.kept("web").await? == ["web-2"; 2], "{:?}", stage.kept("web").await?);
        anyhow::Ok(writes)
    };
    let lived = async {
        tokio::select! {
            writes = lived => writes,
            error = stage.kubelet.play("web", Play::Succeeds) => bail!("{error:?}"),
        }
    };
    lived.await.inspect_err(|_| stage.print_diagnosis())
}

async fn until_second_is_done(stage: &Stage) -> Result<()> {
    let is_done = |run: &DynamicObject| syncjob::text(run, "/stage") == "Done";
    stage.run("web-2", "it is done", is_done).await.map(drop)
}

#[tokio::test]
async fn a_run_is_the_same_run_at_whatever_request_the_controller_is_killed() {
    let requests = run(SHARED, Cut::Never).await.unwrap().requests;
    let cuts = (0..AT_RANDOM).map(|_| Cut::Request(random_below(requests)));
    each(SHARED, cuts, AT_ONCE).await.unwrap();
}

/// Returns a cut before and after each of some writes. The objects are the same in both cases, so one test tries both.
fn all_cuts(writes: usize) -> impl Iterator<Item = Cut> {
    cut_writes(writes).into_iter().flat_map(|write| [Cut::Before(write), Cut::After(write)])
}

/// Runs one scenario for each cut.
async fn each(plot: Plot, cuts: impl Iterator<Item = Cut>, at_once: usize) -> Result<()> {
    cut::each(cuts, at_once, |cut| run(plot, cut)).await.with_context(|| format!("{plot:?}"))
}

/// The requests that a controller has made.
struct Asked {
    writes: usize,
    requests: usize,
}

/// Takes a job from its creation until its run is done, with a controller that is killed at the cut and another one
/// after it. Returns the requests of the first.
async fn run(plot: Plot, cut: Cut) -> Result<Asked> {
    let stage = Stage::new("kills").await?;
    run_on(&stage, plot, cut).await.inspect_err(|_| stage.print_diagnosis())
}

async fn run_on(stage: &Stage, plot: Plot, cut: Cut) -> Result<Asked> {
    let witness = Witness::new(stage);
    let mut spec = json!({"trigger": "one", "parallelism": plot.shards});
    if plot.hooked {
        stage.may_run_hooks().await?;
        // `before` waits for an application for as long as it may take.
        let hook = json!({
            "target": {"matchLabels": {"app": "db"}}, "command": ["sync"], "onFailure": "Continue", "timeout": "1s",
        });
        syncjob::merge(&mut spec, json!({"hooks": {"before": hook, "after": hook}}));
    }
    if plot.remote {
        let key = OwnKey::generate()?.public().to_string();
        let endpoint =
            json!({"address": "far.example::web", "publicKey": key, "identity": {"secretName": "mine"}});
        let destination = json!({"persistentVolumeClaim": null, "endpoint": endpoint});
        syncjob::merge(&mut spec, json!({ "destination": destination }));
    }
    let first = stage.controller(cut).await?;
    stage.sync("web", spec).await?;
    let played = async {
        first.until_cut_or(stage.until_done("web")).await?;
        let asked = Asked { writes: first.writes(), requests: first.requests() };
        drop(first);
        ensure!(recorded_if_made(stage).await?, "there are children of a run that is not recorded");
        let _second = stage.controller(Cut::Never).await?;
        stage.until_done("web").await?;
        anyhow::Ok(asked)
    };
    let asked = tokio::select! {
        asked = played => asked?,
        error = stage.kubelet.play("web", plot.ending) => bail!("{error:?}"),
    };
    check(stage, plot).await?;
    let tries = if plot.is_retried() { 2 } else { 1 };
    witness.testify(usize::try_from(plot.ends() * plot.shards)? * tries)?;
    Ok(asked)
}

/// Checks that there was exactly one run, with the report of all its shards.
async fn check(stage: &Stage, plot: Plot) -> Result<()> {
    let done = stage.jobs.get("web").await?;
    let of_run = |field: &str| syncjob::status(&done, &format!("/lastRun/{field}"));
    ensure!(of_run("id") == "web-1", "{done:#?}");
    ensure!(*of_run("retries") == u64::from(plot.is_retried()), "{done:#?}");
    ensure!(*of_run("work/filesCreated") == 2 * plot.shards, "the report is lost: {done:#?}");
    ensure!(syncjob::status(&done, "/history").as_array().is_some_and(|runs| runs.len() == 1), "{done:#?}");
    ensure!(syncjob::status(&done, "/activeRun").is_null(), "{done:#?}");
    let runs = stage.runs.list(&ListParams::default()).await?.items;
    ensure!(runs.len() == 1 && runs[0].name_any() == "web-1", "other runs than one: {runs:#?}");
    let report = syncjob::status(&runs[0], "/report/work/filesCreated");
    ensure!(*report == 2 * plot.shards, "the run's own record lacks its report: {runs:#?}");
    for point in ["before", "after"].iter().filter(|_| plot.hooked) {
        let ended = of_run(&format!("hooks/{point}/completionTime"));
        ensure!(ended.is_string(), "{point} did not run: {done:#?}");
    }
    ensure!(runs[0].owner_references().len() == 1, "nobody lets go of it: {runs:#?}");
    let last = if plot.is_retried() { "web-1.retry1" } else { "web-1" };
    let kept = stage.kept("web").await?;
    let is_all = kept.len() as u64 == plot.ends() * plot.shards && kept.iter().all(|it| it == last);
    ensure!(is_all, "other pods than those of the last try are left, or not all of them: {kept:?}");
    let left = stage.children("web")?;
    let kinds: Vec<_> = left.iter().filter_map(|child| Some(child.split_once('/')?.0)).collect();
    ensure!(kinds == OF_A_RUN[usize::from(plot.remote)..], "something else is left: {left:?}");
    Ok(())
}

async fn recorded_if_made(stage: &Stage) -> Result<bool> {
    let made = stage.children("web")?.iter().any(|child| child.starts_with("job.batch/"));
    let job = stage.jobs.get("web").await?;
    let is_recorded = |run: &str| syncjob::text(&job, run) == "web-1";
    Ok(!made || is_recorded("/activeRun/id") || is_recorded("/lastRun/id"))
}

/// The actions of a run's pods, in order.
const STEPS: [(Side, Act); 4] =
    [(Side::Source, Act::Start), (Side::Sink, Act::Start), (Side::Source, Act::End), (Side::Sink, Act::End)];

#[derive(Debug, Clone, Copy)]
enum Act {
    Start,
    End,
}

#[tokio::test]
async fn a_run_goes_on_while_there_is_no_controller_and_the_next_one_takes_it_as_it_is() {
    let times = 0..=STEPS.len();
    let lives = times.clone().flat_map(|killed| times.clone().map(move |back| (killed, back)));
    let lives = lives.filter(|(killed, back)| killed <= back).map(|(killed, back)| async move {
        let stage = Stage::new("absence").await?;
        let lived = absence(&stage, killed, back).await.inspect_err(|_| stage.print_diagnosis());
        lived.with_context(|| format!("killed before step {killed}, back before step {back}"))
    });
    stream::iter(lives).buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
}

/// Kills the controller before one step of the pods, and starts another one before that step or a later one.
async fn absence(stage: &Stage, killed: usize, back: usize) -> Result<()> {
    let witness = Witness::new(stage);
    let mut controller = Some(stage.controller(Cut::Never).await?);
    stage.sync("web", json!({})).await?;
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await?;
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await?;
    for step in 0..=STEPS.len() {
        if step == killed {
            drop(controller.take());
        }
        if step == back {
            controller = Some(stage.controller(Cut::Never).await?);
        }
        if let Some((side, act)) = STEPS.get(step) {
            let pod = if *side == Side::Source { &source } else { &sink };
            do_step(stage, pod, *side, *act).await?;
        }
    }
    tokio::select! {
        done = stage.until_done("web") => done?,
        error = stage.kubelet.release("web") => bail!("{error:?}"),
    }
    check(stage, PLAIN).await?;
    witness.testify(2)
}

async fn do_step(stage: &Stage, pod: &Pod, side: Side, act: Act) -> Result<()> {
    match act {
        Act::Start => stage.kubelet.start(pod).await,
        Act::End => stage.kubelet.succeed_one(side, pod, &good_report("web-1")).await,
    }
}
