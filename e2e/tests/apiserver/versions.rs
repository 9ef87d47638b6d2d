//! The migration to the next version of the API, as operator/doc/versions.md plans it, on copies of the CRDs. It has a
//! server of its own: kubectl would take `syncjob` for one of a copy.

use std::{fs, process::Command};

use e2e::{
    programs,
    scripted::{PATIENCE, Stage},
    wait,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// Another group than that of the CRDs, which the server's other tests use.
const GROUP: &str = "versions.volferry.test";

/// Runs a script with all rights in the stage's namespace. Returns what it printed, or its complaints.
fn bash(stage: &Stage, script: &str) -> Result<String, String> {
    let kubectl = programs::of_cluster("kubectl").unwrap();
    let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let done = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", path)
        .env("KUBECONFIG", stage.kubeconfig())
        .env("NAMESPACE", &stage.namespace)
        .output()
        .unwrap();
    let [said, complaints] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
    if done.status.success() { Ok(said) } else { Err(complaints) }
}

/// Returns a copy of a CRD in [`GROUP`] that serves these versions with one schema, and stores one of them.
fn copy(mut crd: CustomResourceDefinition, served: &[&str], stored: &str) -> Value {
    crd.spec.group = GROUP.into();
    crd.metadata.name = Some(format!("{}.{GROUP}", crd.spec.names.plural));
    crd.spec.names.short_names = None;
    crd.spec.names.categories = None;
    let only = crd.spec.versions.remove(0);
    let version = |name: &&str| {
        let mut version = only.clone();
        (version.name, version.storage) = ((*name).to_owned(), *name == stored);
        version
    };
    crd.spec.versions = served.iter().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": crd.metadata, "spec": crd.spec})
}

/// Asks the server to have the copies of all CRDs in these versions.
fn ask_for(stage: &Stage, served: &[&str], stored: &str) -> Result<String, String> {
    let copies = operator::api::crds().into_iter().map(|crd| copy(crd, served, stored).to_string());
    let copies = copies.collect::<Vec<_>>().join("\n---\n");
    let done = stage.kubectl.pipe(&["apply", "--server-side", "-f", "-"], &copies);
    done.map_err(|error| error.to_string())
}

/// Brings the copies of all CRDs to these versions, and waits until the server tells kubectl so, with hashes of the
/// stored version that are `right`: it serves and stores others a moment after it has taken the CRDs.
async fn serve(stage: &Stage, served: &[&str], stored: &str, right: impl Fn(&[Value]) -> bool) {
    ask_for(stage, served, stored).unwrap();
    let is_told = async || {
        let known = stage.kubectl.run(&["api-resources", "--api-group", GROUP, "-o", "name"]).unwrap();
        let is_right = |version: &&str| match hashes(stage, version) {
            Some(hashes) => served.contains(version) && right(&hashes),
            None => !served.contains(version),
        };
        known.lines().count() == operator::api::crds().len() && ["v1alpha1", "v1beta1"].iter().all(is_right)
    };
    wait::poll(&format!("{served:?} are served, and {stored} is stored"), PATIENCE, is_told).await.unwrap();
}

/// Returns the hashes of the stored versions, which the server tells with each version that it serves.
fn hashes(stage: &Stage, version: &str) -> Option<Vec<Value>> {
    let list = stage.kubectl.run(&["get", "--raw", &format!("/apis/{GROUP}/{version}")]).ok()?;
    let list: Value = serde_json::from_str(&list).unwrap();
    let hashes = list["resources"].as_array().unwrap().iter().map(|it| it["storageVersionHash"].clone());
    let mut hashes: Vec<Value> = hashes.filter(Value::is_string).collect();
    hashes.sort_by_key(Value::to_string);
    (hashes.len() == operator::api::crds().len()).then_some(hashes)
}

/// Returns the spec of every object, as a version tells it.
fn specs(stage: &Stage, version: &str) -> Result<Vec<Value>, String> {
    let kinds = operator::api::crds();
    let kinds = kinds.iter().map(|crd| format!("{}.{version}.{GROUP}", crd.spec.names.plural));
    let kinds = kinds.collect::<Vec<_>>().join(",");
    let list = bash(stage, &format!("kubectl get {kinds} -n \"$NAMESPACE\" -o json"))?;
    let list: Value = serde_json::from_str(&list).unwrap();
    let of_version = |it: &Value| {
        assert_eq!(it["apiVersion"], format!("{GROUP}/{version}"));
        json!([it["kind"], it["metadata"]["uid"], it["spec"]])
    };
    Ok(list["items"].as_array().unwrap().iter().map(of_version).collect())
}

/// Runs the commands of the plan.
#[tokio::test]
async fn each_object_outlives_the_version_that_it_was_stored_in_once_the_plan_is_carried_out() {
    let stage = Stage::with_own_server("versions").await.unwrap();
    let plan = fs::read_to_string(programs::repository().join("operator/doc/versions.md")).unwrap();
    let commands = plan.split_once("```sh\n").and_then(|(_, after)| after.split_once("```")).unwrap().0;
    let commands = commands.replace(".volferry.dev", &format!(".{GROUP}"));
    let chart = fs::read_to_string(programs::repository().join("charts/volferry/Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    let examples = chart["annotations"]["artifacthub.io/crdsExamples"].as_str().unwrap();
    let examples = examples.replace("volferry.dev/v1alpha1", &format!("{GROUP}/v1alpha1"));
    let examples: Vec<Value> = serde_saphyr::from_str(&examples).unwrap();
    assert_eq!(examples.len(), operator::api::crds().len());

    serve(&stage, &["v1alpha1"], "v1alpha1", |_| true).await;
    let first = hashes(&stage, "v1alpha1").unwrap();
    examples.iter().for_each(|example| drop(stage.kubectl.apply(&example.to_string()).unwrap()));
    let before = specs(&stage, "v1alpha1").unwrap();

    serve(&stage, &["v1alpha1", "v1beta1"], "v1alpha1", |now| now == first).await;
    serve(&stage, &["v1alpha1", "v1beta1"], "v1beta1", |now| now.iter().all(|hash| !first.contains(hash)))
        .await;
    let early = ask_for(&stage, &["v1beta1"], "v1beta1").unwrap_err();
    assert!(early.contains("storedVersions"), "{early}");
    bash(&stage, &commands).unwrap();
    serve(&stage, &["v1beta1"], "v1beta1", |_| true).await;

    assert_eq!(specs(&stage, "v1beta1").unwrap(), before);
    assert!(specs(&stage, "v1alpha1").is_err(), "v1alpha1 is gone");
    bash(&stage, &format!("kubectl get crd -o name | grep '{GROUP}$' | xargs kubectl delete")).unwrap();
}
