//! `kubectl volferry push`, `pull` and `copy`: the pods that they make, and that these are gone however the commands
//! end. Only a kubelet can start a process in a pod, so what moves is a test of the kind cluster.

use std::process::{Output, Stdio};

use e2e::apiserver::{ApiServer, User};
use k8s_openapi::api::batch::v1::Job;
use tokio::process::{Child, Command};

use crate::prelude::*;

/// Starts `kubectl-volferry` in the stage's namespace.
fn start(stage: &Stage, arguments: &[&str]) -> Child {
    Command::new(programs::of_workspace("kubectl-volferry").unwrap())
        .args(arguments)
        .env("KUBECONFIG", ApiServer::shared().kubeconfig(User::Admin))
        .env("VOLFERRY_CONFIG", "none")
        .args(["-n", &stage.namespace])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn ended(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = output_of(child).await;
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

async fn refused(stage: &Stage, arguments: &[&str]) -> String {
    let (code, said) = ended(start(stage, arguments)).await;
    assert_eq!(code, Some(1), "{said}");
    said
}

/// Waits for the Job of a command on a claim, and for its pod.
async fn made(stage: &Stage, claim: &str) -> (Job, Pod) {
    let label = format!("volferry.dev/one-off={claim}");
    let jobs = stage.api::<Job>();
    let job = wait::until_any(&jobs, &label, "there is a Job", PATIENCE, |_| true).await.unwrap();
    let pods = stage.api::<Pod>();
    let pod = wait::until_any(&pods, &label, "its pod is there", PATIENCE, |_| true).await.unwrap();
    (job, pod)
}

async fn assert_nothing_stays(stage: &Stage) {
    let jobs = stage.api::<Job>();
    wait::until_none(&jobs, "volferry.dev/one-off", PATIENCE).await.unwrap();
}

async fn stop(child: &Child) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
}

/// Has a pod of an application use the claim `to` on the node `n1`.
async fn use_claim(stage: &Stage) {
    let pods = stage.api::<Pod>();
    let app = json!({"metadata": {"name": "app"}, "spec": {
        "nodeName": "n1", "tolerations": [{"key": "storage", "operator": "Exists"}],
        "containers": [{"name": "app", "image": "app"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "to"}}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(app).unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_pod_of_a_push_lies_where_the_claim_is_used_and_is_gone_however_the_command_ends() {
    let stage = Stage::new("push").await.unwrap();
    let missing = refused(&stage, &["push", ".", "none"]).await;
    assert!(missing.contains("there is no PersistentVolumeClaim none"), "{missing}");
    let root = refused(&stage, &["push", ".", "to", "--user=0"]).await;
    assert!(root.contains("does not let syncers run as root"), "{root}");

    // It is stopped while the pod waits.
    use_claim(&stage).await;
    let stopped = start(&stage, &["push", ".", "to", "--image=i:1", "--user=7:8", "--timeout=2h"]);
    let (job, pod) = made(&stage, "to").await;
    assert_writes(&job);
    stage.kubelet.unschedulable(&pod, "0/3 nodes are available").await.unwrap();
    stop(&stopped).await;
    let (code, said) = ended(stopped).await;
    assert!(code == Some(1) && said.contains("stopped on request"), "{said}");
    assert_nothing_stays(&stage).await;

    // No process can be started in the pod, as its node is not there.
    let lost = start(&stage, &["push", ".", "to"]);
    let (job, pod) = made(&stage, "to").await;
    let image = json!(job)["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image, json!(concat!("volferry/volferry:", env!("CARGO_PKG_VERSION"))));
    stage.kubelet.start(&pod).await.unwrap();
    let (code, said) = ended(lost).await;
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("kubectl-volferry did not get through to to-push-"), "{said}");
    assert!(said.contains("cannot start a process in pod") && !said.contains("ssh to"), "{said}");
    assert_nothing_stays(&stage).await;
}

/// Checks the Job that was made for `push`.
#[track_caller]
fn assert_writes(job: &Job) {
    assert!(job.name_any().starts_with("to-push-"), "{}", job.name_any());
    let job = json!(job);
    let at = |pointer: &str| job.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/spec/activeDeadlineSeconds"), json!(7200));
    assert_eq!((at("/spec/backoffLimit"), at("/spec/ttlSecondsAfterFinished")), (json!(0), json!(60)));
    let pod = at("/spec/template/spec");
    let security = &pod["securityContext"];
    assert_eq!((&security["runAsUser"], &security["fsGroup"]), (&json!(7), &json!(8)));
    assert_eq!(security["runAsNonRoot"], json!(true));
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], json!("i:1"));
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], json!(true));
    let node =
        "nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0";
    assert_eq!(pod["affinity"].pointer(&format!("/{node}/values")), Some(&json!(["n1"])));
    assert_eq!(pod["tolerations"][0]["key"], json!("storage"));
    let claim = &pod["volumes"][0]["persistentVolumeClaim"];
    assert_eq!((&claim["claimName"], &claim["readOnly"]), (&json!("to"), &Value::Null));
}

#[tokio::test]
async fn a_copy_makes_a_pod_that_reads_and_one_that_writes_and_removes_both() {
    let stage = Stage::new("copy").await.unwrap();
    let (from, to) = (format!("{}/from", stage.namespace), format!("{}/to", stage.namespace));
    let one = refused(&stage, &["copy", &from, "from"]).await;
    assert!(one.contains("both are the claim"), "{one}");
    let far = refused(&stage, &["copy", "nowhere/prod/web", "to"]).await;
    assert!(far.contains("cannot use the kubeconfig"), "{far}");

    let stopped = start(&stage, &["copy", &from, &to]);
    for (claim, reads) in [("from", json!(true)), ("to", Value::Null)] {
        let (job, _) = made(&stage, claim).await;
        let job: Value = json!(job);
        let mounted = &job["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"];
        assert_eq!((&mounted["claimName"], &mounted["readOnly"]), (&json!(claim), &reads));
    }
    stop(&stopped).await;
    let (code, said) = ended(stopped).await;
    assert!(code == Some(1) && said.contains("stopped on request"), "{said}");
    assert_nothing_stays(&stage).await;
}
