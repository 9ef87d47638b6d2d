//! Hooks without a kubelet: their record, their failures, the permission to write them, and the fate of `after` when
//! its SyncJob is deleted. No command runs here.

use anyhow::Result;

use crate::prelude::*;

fn hook(on_failure: &str) -> Value {
    json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"], "onFailure": on_failure})
}

fn both(on_failure: &str) -> Value {
    let mut before = hook(on_failure);
    // So long it waits for an application.
    before["timeout"] = json!("1s");
    let mut after = hook(on_failure);
    // So long it is tried again, since no kubelet takes the command.
    after["timeout"] = json!("1s");
    json!({"hooks": {"before": before, "after": after}})
}

fn failure(run: &DynamicObject, point: &str) -> String {
    syncjob::text(run, &format!("/lastRun/hooks/{point}/failure")).into()
}

fn owners(run: &DynamicObject) -> Vec<String> {
    run.owner_references().iter().map(|owner| owner.kind.clone()).collect()
}

/// Starts both pods of a run, and returns them once the hook `before` is over, for which they wait.
async fn start_both(stage: &Stage) -> [Pod; 2] {
    let pods = stage.kubelet.start_both("web", &[]).await.unwrap();
    until_over(stage).await;
    pods
}

/// Returns the SyncJob once the hook `before` of its run is over.
async fn until_over(stage: &Stage) -> DynamicObject {
    let over =
        |job: &DynamicObject| syncjob::status(job, "/activeRun/hooks/before/completionTime").is_string();
    stage.until("web", "the hook before is over", over).await.unwrap()
}

/// Makes the application's pod, ready on a node that does not exist.
async fn application(stage: &Stage) -> Result<()> {
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}},
        "spec": {"containers": [{"name": "db", "image": "db"}], "automountServiceAccountToken": false}});
    let pods = stage.api::<Pod>();
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    stage.kubelet.start(&pod).await
}

#[tokio::test]
async fn a_failed_before_ends_the_run_and_after_runs_all_the_same() {
    let (stage, _controller) = Stage::with_controller("hooks").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    stage.sync("web", both("Fail")).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    let failed = async {
        tokio::select! {
            failed = stage.until_is("web", "Stalled") => failed.unwrap(),
            error = stage.kubelet.release("web") => panic!("{error:?}"),
        }
    };
    let failed = failed.await;
    assert!(syncjob::has_reason(&failed, "Ready", "HookFailed"), "{failed:#?}");
    for point in ["before", "after"] {
        let words = format!("The hook {point} found no pod to run in: 0 with the labels app=db run");
        assert!(failure(&failed, point).starts_with(&words), "{failed:#?}");
    }
    let run = tokio::select! {
        run = stage.run("web-1", "it is done", |run| syncjob::text(run, "/stage") == "Done") => run.unwrap(),
        error = stage.kubelet.release("web") => panic!("{error:?}"),
    };
    assert_eq!(owners(&run), ["SyncJob"]);
}

#[tokio::test]
async fn before_begins_once_both_pods_have_found_their_volumes_free() {
    let (stage, _controller) = Stage::with_controller("hooks-free").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    application(&stage).await.unwrap();
    stage.sync("web", both("Continue")).await.unwrap();
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await.unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    stage.kubelet.start(&source).await.unwrap();
    stage.kubelet.run(&sink).await.unwrap();
    // The sink finds another run at its volume.
    let busy =
        serde_json::to_string(&bad_report("web-1", "DestinationBusy", "another run is writing")).unwrap();
    stage.kubelet.end(&sink, 1, &busy).await.unwrap();
    stage.kubelet.end(&source, 5, &busy).await.unwrap();
    let waits = |job: &DynamicObject| syncjob::status(job, "/activeRun/postponed") == &json!(1);
    let waiting = stage.until("web", "it waits for the volume", waits).await.unwrap();
    assert!(syncjob::status(&waiting, "/activeRun/hooks").is_null(), "{waiting:#?}");
    assert!(syncjob::message(&waiting, "Ready").contains("waits for a volume"), "{waiting:#?}");
}

#[tokio::test]
async fn before_waits_for_an_application_that_starts_with_the_syncjob() {
    let (stage, _controller) = Stage::with_controller("hooks-wait").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    let mut patient = both("Continue");
    patient["hooks"]["before"]["timeout"] = json!("1m");
    stage.sync("web", patient).await.unwrap();
    let begun = |job: &DynamicObject| syncjob::status(job, "/activeRun/hooks/before/startTime").is_string();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "the hook has begun", begun).await.unwrap();
    application(&stage).await.unwrap();
    let failure = until_over(&stage).await;
    let failure = syncjob::text(&failure, "/activeRun/hooks/before/failure");
    assert!(failure.starts_with("The hook before failed in 1 of 1 pods. db-0: "), "{failure}");
}

#[tokio::test]
async fn hooks_that_fail_and_do_not_matter_are_notes_of_a_good_run() {
    let (stage, _controller) = Stage::with_controller("hooks").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    application(&stage).await.unwrap();
    stage.sync("web", both("Continue")).await.unwrap();
    let [source, sink] = start_both(&stage).await;
    let held = stage.runs.get("web-1").await.unwrap();
    assert_eq!(owners(&held), ["SyncJob", "Namespace"]);
    assert_eq!(held.finalizers(), [""; 0], "nothing waits for the operator");
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    for point in ["before", "after"] {
        let words = format!("The hook {point} failed in 1 of 1 pods. db-0: ");
        assert!(failure(&done, point).starts_with(&words), "{done:#?}");
        assert!(syncjob::status(&done, "/notes").to_string().contains(&words), "{done:#?}");
    }
    stage.run("web-1", "it is let go", |run| owners(run) == ["SyncJob"]).await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_deleted_during_its_run_runs_after_and_leaves_nothing() {
    for killed in [false, true] {
        let stage = Stage::new("hooks").await.unwrap();
        stage.may_run_hooks().await.unwrap();
        let controller = stage.controller(Cut::Never).await.unwrap();
        stage.sync("web", both("Continue")).await.unwrap();
        start_both(&stage).await;
        let controller = (!killed).then_some(controller);
        stage.jobs.delete("web", &DeleteParams::default()).await.unwrap();
        let again = if killed { Some(stage.controller(Cut::Never).await.unwrap()) } else { None };
        tokio::select! {
            gone = wait::until_gone(&stage.runs, "web-1", PATIENCE) => gone.unwrap(),
            error = stage.kubelet.release("web") => panic!("{error:?}"),
        }
        drop((controller, again));
    }
}

/// As `kubectl delete syncjobs,syncruns --all` does: the operator has the record in mind.
#[tokio::test]
async fn a_job_that_is_deleted_together_with_its_run_runs_after_all_the_same() {
    let (stage, controller) = Stage::with_controller("hooks").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    application(&stage).await.unwrap();
    stage.sync("web", both("Continue")).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    controller.until_asked("GET pods/exec", 1).await.unwrap();
    stage.kubectl.run(&["delete", "syncruns,syncjobs", "--all", "--wait=false"]).unwrap();
    tokio::select! {
        asked = controller.until_asked("GET pods/exec", 2) => asked.unwrap(),
        error = stage.kubelet.release("web") => panic!("{error:?}"),
    }
}

/// Else what `before` holds still is resumed first, and stays so.
#[tokio::test]
async fn after_waits_for_a_before_that_runs_while_its_job_is_deleted() {
    let (stage, controller) = Stage::with_controller("hooks-overtaken").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    let mut patient = both("Continue");
    patient["hooks"]["before"]["timeout"] = json!("1m");
    stage.sync("web", patient).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    let begun = |job: &DynamicObject| syncjob::status(job, "/activeRun/hooks/before/startTime").is_string();
    stage.until("web", "the hook has begun", begun).await.unwrap();
    stage.jobs.delete("web", &DeleteParams::default()).await.unwrap();
    stage.kubelet.deleted_pod("web", Side::Source).await.unwrap();
    application(&stage).await.unwrap();
    tokio::select! {
        asked = controller.until_asked("GET pods/exec", 2) => asked.unwrap(),
        error = stage.kubelet.release("web") => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn after_of_a_deleted_run_is_that_of_its_own_spec() {
    let (stage, controller) = Stage::with_controller("hooks-own").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    application(&stage).await.unwrap();
    stage.sync("web", both("Continue")).await.unwrap();
    start_both(&stage).await;
    stage.patch("web", json!({"spec": {"hooks": null}})).await.unwrap();
    stage.runs.delete("web-1", &DeleteParams::default()).await.unwrap();
    tokio::select! {
        asked = controller.until_asked("GET pods/exec", 2) => asked.unwrap(),
        error = stage.kubelet.release("web") => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn an_operator_without_the_right_says_so_and_goes_on_once_it_has_it() {
    let (stage, _controller) = Stage::with_controller("hooks").await.unwrap();
    stage.until_hooks_are_guarded().await.unwrap();
    stage.sync("web", both("Continue")).await.unwrap();
    let waits = |job: &DynamicObject| syncjob::message(job, "Ready").contains("hooks.enabled");
    let waiting = stage.until("web", "it lacks the right", waits).await.unwrap();
    assert!(syncjob::has_reason(&waiting, "Ready", "ChildRefused"), "{waiting:#?}");
    stage.may_run_hooks().await.unwrap();
    start_both(&stage).await;
}

#[tokio::test]
async fn who_may_not_run_commands_in_pods_may_not_write_hooks() {
    let stage = Stage::new("hooks").await.unwrap();
    stage.until_hooks_are_guarded().await.unwrap();
    let allow = |name: &str, verbs: &str, resource: &str| {
        let (verbs, resource) = (format!("--verb={verbs}"), format!("--resource={resource}"));
        stage.kubectl.run(&["create", "role", name, &verbs, &resource]).unwrap();
        let role = format!("--role={name}");
        stage.kubectl.run(&["create", "rolebinding", name, &role, "--user=alice"]).unwrap();
    };
    allow("writes", "create,patch,get", "syncjobs.volferry.dev");
    stage.until_may("alice", "create", "syncjobs.volferry.dev").await.unwrap();
    let manifest = |others: Value| syncjob::manifest("web", "from", "to", others).to_string();
    let apply = |others: Value| stage.kubectl.pipe(&["--as=alice", "apply", "-f", "-"], &manifest(others));
    let refused = apply(both("Fail")).unwrap_err().to_string();
    assert!(refused.contains("alice needs the right to create pods/exec"), "{refused}");
    apply(json!({})).unwrap();
    let refused = apply(both("Fail")).unwrap_err().to_string();
    assert!(refused.contains("alice needs the right to create pods/exec"), "{refused}");

    stage.patch("web", json!({"spec": both("Fail")})).await.unwrap();
    let later = |others: Value| {
        let patch = json!({"spec": others}).to_string();
        stage.kubectl.run(&["--as=alice", "patch", "syncjob", "web", "--type=merge", "-p", &patch])
    };
    later(json!({"trigger": "again"})).unwrap();
    later(json!({"hooks": {"after": {"command": ["other"]}}})).unwrap_err();
    later(json!({"hooks": null})).unwrap();

    allow("sets", "create,patch,get", "syncjobsets.volferry.dev");
    stage.until_may("alice", "create", "syncjobsets.volferry.dev").await.unwrap();
    let set = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet", "metadata": {"name": "web"},
        "spec": {"claimSelector": {"matchLabels": {"app": "web"}},
            "template": {"spec": syncjob::manifest("web", "{{ .claim.name }}", "to", both("Fail"))["spec"]}}});
    let refused = stage.kubectl.pipe(&["--as=alice", "apply", "-f", "-"], &set.to_string());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("alice needs the right to create pods/exec"), "{refused}");
    allow("runs", "create", "pods/exec");
    stage.until_may("alice", "create", "pods/exec").await.unwrap();
    later(both("Fail")).unwrap();
    stage.kubectl.pipe(&["--as=alice", "apply", "-f", "-"], &set.to_string()).unwrap();
}
