//! `kubectl volferry`, started by kubectl as users start it.

use std::{collections::BTreeMap, process::Output, time::Duration};

use e2e::apiserver::{ApiServer, User};
use jiff::Timestamp;

use crate::pair::Pair;
use crate::prelude::*;

/// Runs `kubectl volferry` in the stage's namespace.
async fn volferry(stage: &Stage, arguments: &[&str]) -> Output {
    let program = programs::of_workspace("kubectl-volferry").unwrap();
    tokio::process::Command::new(programs::of_cluster("kubectl").unwrap())
        .arg("volferry")
        .args(arguments)
        .args(["-n", &stage.namespace])
        .env("PATH", program.parent().unwrap())
        .env("KUBECONFIG", ApiServer::shared().kubeconfig(User::Admin))
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

/// Returns the output of a command that succeeds.
pub(crate) async fn told(stage: &Stage, arguments: &[&str]) -> String {
    printed(&volferry(stage, arguments).await)
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the error of a command that fails.
async fn refused(stage: &Stage, arguments: &[&str]) -> String {
    let output = volferry(stage, arguments).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn the_plugin_shows_a_job_and_asks_for_a_run_now() {
    let (stage, _controller) = Stage::with_controller("plugin").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let first = stage.kubelet.start_both("web", &[]).await.unwrap();
    let running = told(&stage, &["status", "web"]).await;
    assert!(running.contains("Run now       web-1, "), "{running}");
    stage.kubelet.succeed(&first[0], &first[1], &good_report("web-1")).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    let status = told(&stage, &["status", "web"]).await;
    assert!(status.starts_with(&format!("SyncJob       {}/web\n", stage.namespace)), "{status}");
    assert!(status.contains("State         Succeeded\n"), "{status}");
    assert!(status.contains("Last run      web-1, Succeeded, ended "), "{status}");
    let table = told(&stage, &["status"]).await;
    assert!(table.lines().nth(1).unwrap().starts_with("web "), "{table}");
    let job: Value = serde_json::from_str(&told(&stage, &["status", "web", "-o", "json"]).await).unwrap();
    assert_eq!((&job["kind"], &job["status"]["phase"]), (&json!("SyncJob"), &json!("Succeeded")));

    let second = async {
        let pods = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
        let job = stage.jobs.get("web").await.unwrap();
        let run = syncjob::text(&job, "/activeRun/id").to_string();
        stage.kubelet.succeed(&pods[0], &pods[1], &good_report(&run)).await.unwrap();
        run
    };
    let (waited, run) = tokio::join!(volferry(&stage, &["run-now", "web", "--wait"]), second);
    assert!(printed(&waited).starts_with(&format!("{run}, Succeeded, ended ")), "{waited:?}");
    let made = stage.runs.get(&run).await.unwrap();
    assert_eq!((&made.data["spec"]["cause"], &made.data["spec"]["number"]), (&json!("Manual"), &json!(2)));
    let runs = told(&stage, &["runs", "web"]).await;
    let names: Vec<_> = runs.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, [&run, "web-1"]);
    let report: Report = serde_json::from_str(&told(&stage, &["report", "web"]).await).unwrap();
    assert_eq!((report.run, report.work), (run, good_report("").work));
}

/// Runs a command of tmux on a server of the test's own.
async fn tmux(socket: &std::path::Path, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new("tmux").arg("-S").arg(socket).args(arguments).output().await;
    printed(&output.unwrap())
}

/// Begins the second run of `web`, which tells how far it is, while a run of `other` waits for its turn. Returns the
/// pods of `web`, source first.
async fn run_while_another_waits(stage: &Stage) -> [Pod; 2] {
    stage.sync("web", json!({"trigger": "one"})).await.unwrap();
    let first = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let pods = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    let runs = |job: &DynamicObject| syncjob::text(job, "/activeRun/stage") == "Running";
    stage.until("web", "it runs", runs).await.unwrap();
    let progress = json!({"run": "web-2", "phase": "Transfer", "files": 3, "filesTotal": 10,
        "bytes": 1 << 30, "bytesTotal": 4_u64 << 30, "rate": 100 << 20});
    stage.kubelet.publish(&pods[1], "/progress", &progress).await.unwrap();

    stage.claim("to-other", "Bound").await.unwrap();
    let destination = json!({"persistentVolumeClaim": {"claimName": "to-other"}});
    stage.sync("other", json!({"destination": destination})).await.unwrap();
    let waits = |job: &DynamicObject| syncjob::text(job, "/activeRun/message").contains(" in the queue: ");
    stage.until("other", "it is queued", waits).await.unwrap();
    pods
}

/// Returns the cells of a SyncJob's line in what `top` shows, by the headings of their columns.
fn cells<'a>(shown: &'a str, job: &str) -> BTreeMap<&'a str, &'a str> {
    // Columns are three blanks apart, and words one.
    let split = |line: &'a str| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty());
    let mut lines = shown.lines().skip(1);
    let headings = lines.next().unwrap();
    let line = lines.find(|line| line.split_whitespace().next() == Some(job));
    split(headings).zip(split(line.unwrap_or_else(|| panic!("no {job}: {shown}")))).collect()
}

/// Checks that `top` shows what the statuses say of a run that moves and of one that waits.
async fn assert_tells_statuses(stage: &Stage, shown: &str) {
    let web = cells(shown, "web");
    assert_eq!([web["DOES"], web["DONE"], web["FILES"]], ["Transfer", "25%", "3/10"], "{shown}");
    assert_eq!([web["BYTES"], web["RATE"], web["LEFT"]], ["1.0Gi/4.0Gi", "100.0Mi/s", "30.0s"], "{shown}");
    let job = stage.jobs.get("web").await.unwrap();
    let success: Timestamp = syncjob::text(&job, "/lastSuccessTime").parse().unwrap();
    let headline: Timestamp = shown.split_whitespace().next().unwrap().parse().unwrap();
    let lag = Duration::try_from(headline.duration_since(success)).unwrap();
    // The headline leaves out the fraction of its second.
    let mut lags = (0..1000).map(|ms| operator::human::duration(lag + Duration::from_millis(ms)));
    assert!(lags.any(|lag| lag == web["LAG"]), "since {success}: {shown}");

    let (other, job) = (cells(shown, "other"), stage.jobs.get("other").await.unwrap());
    assert_eq!([other["DOES"], other["RATE"], other["LAG"]], ["Queued", "-", "-"], "{shown}");
    let why = syncjob::text(&job, "/activeRun/message");
    assert!(other["WHY"].contains(" in the queue: ") && why.starts_with(other["WHY"]), "{why}: {shown}");
}

#[tokio::test]
async fn top_shows_in_a_terminal_what_jobs_do_and_follows_them() {
    let stage = Stage::new("plugin-top").await.unwrap();
    let _controller = stage.controller_with(&["--leader-elect=false", "--max-runs=1"]).await.unwrap();
    let pods = run_while_another_waits(&stage).await;
    let once = told(&stage, &["top", "--once"]).await;
    assert!(once.lines().next().unwrap().contains(" 1 running ("), "{once}");
    assert!(once.lines().nth(2).unwrap().starts_with("web "), "{once}");

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tmux");
    let kubeconfig = format!("KUBECONFIG={}", ApiServer::shared().kubeconfig(User::Admin).display());
    let plugin = programs::of_workspace("kubectl-volferry").unwrap();
    let command = format!("{} top -n {}; printf ended; cat", plugin.display(), stage.namespace);
    let started = ["new-session", "-d", "-x", "160", "-y", "12", "-e", &kubeconfig, &command];
    tmux(&socket, &started).await;
    let shown = async |part: &str| {
        let look = async || {
            let screen = tmux(&socket, &["capture-pane", "-p"]).await;
            screen.contains(part).then_some(screen)
        };
        wait::poll_for(&format!("the terminal shows {part:?}"), PATIENCE, look).await.unwrap()
    };
    let running = shown(" 1 running (100.0Mi/s), 0 starting, 1 waiting, 0 at rest").await;
    assert!(running.lines().nth(1).unwrap().starts_with("SYNCJOB   DOES"), "{running}");
    assert_tells_statuses(&stage, &running).await;
    stage.kubelet.succeed(&pods[0], &pods[1], &good_report("web-2")).await.unwrap();
    let rested = shown(" 1 at rest").await;
    assert_eq!(cells(&rested, "web")["DOES"], "Succeeded", "{rested}");
    tmux(&socket, &["send-keys", "C-c"]).await;
    shown("ended").await;
    tmux(&socket, &["kill-server"]).await;
}

#[tokio::test]
async fn the_plugin_cancels_a_run_in_progress() {
    let (stage, _controller) = Stage::with_controller("plugin-cancel").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    assert_eq!(told(&stage, &["cancel", "web"]).await, "syncrun.volferry.dev/web-1 is being canceled\n");
    let ended = |job: &_| syncjob::text(job, "/lastRun/reason") == "Canceled";
    let job = stage.until("web", "a canceled run", ended).await.unwrap();
    assert_eq!(syncjob::text(&job, "/lastRun/id"), "web-1");
    assert!(syncjob::text(&job, "/activeRun/id").is_empty());
    assert!(refused(&stage, &["cancel", "web"]).await.contains("no run that is queued or in progress"));
}

#[tokio::test]
async fn the_plugin_suspends_and_resumes_and_its_errors_name_the_object() {
    let stage = Stage::new("plugin-suspend").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let is_suspended = async || stage.jobs.get("web").await.unwrap().data["spec"]["suspend"].clone();
    let said = told(&stage, &["suspend", "web"]).await;
    assert_eq!(said, "syncjob.volferry.dev/web suspended (Suspended)\n");
    assert_eq!(is_suspended().await, json!(true));
    let made = volferry(&stage, &["run-now", "web"]).await;
    assert!(printed(&made).starts_with("syncrun.volferry.dev/web-now-"), "{made:?}");
    assert!(
        String::from_utf8_lossy(&made.stderr).contains("\nhint: kubectl volferry resume -n "),
        "{made:?}"
    );
    let forced = told(&stage, &["run-now", "web", "--force", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&forced).unwrap()["spec"]["force"], json!(true));
    assert_eq!(told(&stage, &["resume", "web"]).await, "syncjob.volferry.dev/web resumed\n");
    assert_eq!(is_suspended().await, json!(false));

    let made = told(&stage, &["restore", "web", "gold", "--no-safety", "-o", "json"]).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("web-restore-"), "{made}");
    assert_eq!(made["spec"]["restore"], json!({"snapshot": "gold", "safety": false}));

    let namespace = &stage.namespace;
    let none = refused(&stage, &["status", "none"]).await;
    assert!(
        none.starts_with(&format!("error: there is no SyncJob none in namespace {namespace}\n")),
        "{none}"
    );
    assert!(none.contains("\nhint: "), "{none}");
    for command in [&["suspend", "none"][..], &["runs", "none"], &["run-now", "none"]] {
        assert!(refused(&stage, command).await.contains("there is no SyncJob none"), "{command:?}");
    }
    let logs = refused(&stage, &["logs", "web"]).await;
    assert!(logs.starts_with(&format!("error: SyncJob {namespace}/web has had no run\n")), "{logs}");
    let snapshots = refused(&stage, &["snapshots", "web"]).await;
    assert!(snapshots.contains("/web has no snapshots in its status\nhint: "), "{snapshots}");
}

#[tokio::test]
async fn the_plugin_looks_into_the_namespaces_of_claims_that_are_elsewhere() {
    let (pair, _controller) = Pair::with_controller("plugin-abroad").await;
    let there = pair.there.namespace.as_str();
    pair.read_from_there(json!({})).await;
    pair.refused(&["no SyncGrant there lets"]).await;
    let doctor = volferry(&pair.here, &["doctor", "web"]).await;
    let found = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(found.matches("kind: SyncGrant").count(), 1, "what Stalled says is not repeated: {found}");
    assert!(found.contains(&format!("ok: syncers of namespace {there} run as user 65532")), "{found}");

    pair.grant("lent", json!({"until": "2099-01-01T00:00:00Z"})).await;
    pair.start(&[]).await;
    let doctor = volferry(&pair.here, &["doctor", "web"]).await;
    let found = String::from_utf8(doctor.stdout).unwrap();
    let granted = format!(
        "ok: the SyncGrant {there}/lent lets the source claim {there}/from be used, until 2099-01-01T00:00:00Z"
    );
    assert!(found.contains(&granted), "{found}");
    // No kubelet has the log, so the pod's name shows where it was looked for.
    let logs = refused(&pair.here, &["logs", "web", "--end", "source"]).await;
    assert!(logs.contains(&format!("cannot read the log of pod {there}/")), "{logs}");
}
