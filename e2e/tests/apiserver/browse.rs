//! `kubectl volferry browse` and `get`: the pod that they make, and that it is gone however they end. Only a kubelet
//! can start a process there, so what the pod answers is a test of the kind cluster.

use std::process::{Output, Stdio};

use e2e::apiserver::{ApiServer, User};
use k8s_openapi::api::batch::v1::Job;
use tokio::process::{Child, Command};

use crate::prelude::*;

const LABEL: &str = "volferry.dev/browse=web";

/// Starts `kubectl-volferry` in the stage's namespace.
fn start(stage: &Stage, arguments: &[&str]) -> Child {
    Command::new(programs::of_workspace("kubectl-volferry").unwrap())
        .args(arguments)
        .args(["-n", &stage.namespace])
        .env("KUBECONFIG", ApiServer::shared().kubeconfig(User::Admin))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn errors(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for the Job of a command, and for its pod.
async fn made(stage: &Stage, known: &[String]) -> (Job, Pod) {
    let jobs = stage.api::<Job>();
    let is_new = |job: &Job| !known.contains(&job.name_any());
    let job = wait::until_any(&jobs, LABEL, "there is a Job", PATIENCE, is_new).await.unwrap();
    let pods = stage.api::<Pod>();
    let labels = format!("batch.kubernetes.io/job-name={}", job.name_any());
    let pod = wait::until_any(&pods, &labels, "its pod is there", PATIENCE, |_| true).await.unwrap();
    (job, pod)
}

async fn assert_gone(stage: &Stage, job: &Job) {
    let jobs = stage.api::<Job>();
    wait::until_gone(&jobs, &job.name_any(), PATIENCE).await.unwrap();
}

#[tokio::test]
async fn the_pod_by_which_snapshots_are_looked_into_only_reads_and_is_gone_however_the_command_ends() {
    let (stage, _controller) = Stage::with_controller("browse").await.unwrap();
    let spec = json!({"snapshots": {}, "destination": {
        "persistentVolumeClaim": {"claimName": "to"}, "path": "/web"}});
    stage.sync("idle", json!({"suspend": true, "snapshots": {}})).await.unwrap();
    let early = output_of(start(&stage, &["browse", "idle"])).await;
    assert!(errors(&early).contains("has no Job of a run"), "{early:?}");
    stage.sync("web", spec).await.unwrap();
    let [_, sink] = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    // It is stopped while the pod waits.
    let stopped = start(&stage, &["get", "web", "latest", "/a file", "--timeout=10m"]);
    let (first, pod) = made(&stage, &[]).await;
    assert_reads(&first, &sink);
    stage.kubelet.unschedulable(&pod, "0/3 nodes are available").await.unwrap();
    let pid = stopped.id().unwrap().to_string();
    let done = Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
    assert!(done.success());
    let said = errors(&output_of(stopped).await);
    assert!(said.contains("stopped on request"), "{said}");
    assert_gone(&stage, &first).await;

    // The pod ends before it answers.
    let fails = start(&stage, &["browse", "web"]);
    let mut known = vec![first.name_any()];
    let (second, pod) = made(&stage, &known).await;
    stage.kubelet.end(&pod, 1, "no such program").await.unwrap();
    let said = errors(&output_of(fails).await);
    assert!(said.contains("has ended before it answered: no such program"), "{said}");
    assert_gone(&stage, &second).await;
    known.push(second.name_any());

    // No process can be started in the pod, as its node is not there.
    let lost = start(&stage, &["browse", "web", "latest", "/below"]);
    let (third, pod) = made(&stage, &known).await;
    stage.kubelet.start(&pod).await.unwrap();
    let said = errors(&output_of(lost).await);
    assert!(said.contains("cannot start a process in pod"), "{said}");
    assert_gone(&stage, &third).await;

    // It takes too long.
    let late = output_of(start(&stage, &["browse", "web", "--timeout=1s"])).await;
    assert!(errors(&late).contains("it took longer than 1.0s"), "{late:?}");
    let jobs = stage.api::<Job>();
    wait::until_none(&jobs, LABEL, PATIENCE).await.unwrap();
}

/// Checks the Job that was made for `get`, beside the pod of the run that it is derived from.
#[track_caller]
fn assert_reads(job: &Job, sink: &Pod) {
    let (job, sink) = (json!(job), json!(sink));
    let at = |pointer: &str| job.pointer(pointer).cloned().unwrap_or_default();
    let of_sink = |pointer: &str| sink.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/spec/activeDeadlineSeconds"), json!(600));
    assert_eq!((at("/spec/backoffLimit"), at("/spec/ttlSecondsAfterFinished")), (json!(0), json!(60)));
    assert_eq!(at("/metadata/ownerReferences/0/kind"), json!("SyncJob"));
    assert_eq!(at("/metadata/ownerReferences/0/controller"), Value::Null);
    let pod = "/spec/template/spec";
    let container = format!("{pod}/containers/0");
    for same in ["image", "resources"] {
        assert_eq!(
            at(&format!("{container}/{same}")),
            of_sink(&format!("/spec/containers/0/{same}")),
            "{same}"
        );
    }
    assert_eq!(at(&format!("{pod}/securityContext")), of_sink("/spec/securityContext"));
    let security = at(&format!("{container}/securityContext"));
    assert_eq!(security["readOnlyRootFilesystem"], json!(true));
    assert_eq!(security["allowPrivilegeEscalation"], json!(false));
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    let claim = at(&format!("{pod}/volumes/0/persistentVolumeClaim"));
    assert_eq!(claim, json!({"claimName": "to", "readOnly": true}));
    assert_eq!(at(&format!("{container}/volumeMounts/0/readOnly")), json!(true));
    assert_eq!(at(&format!("{pod}/automountServiceAccountToken")), json!(false));
    assert_eq!(at(&format!("{container}/args")), json!(["hold", "--idle=600"]));
    assert_eq!(at(&format!("{container}/stdin")), Value::Null);
}
