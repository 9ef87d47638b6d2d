//! SyncJobs as their users see them: their manifests and their status.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns the API of a namespace's SyncJobs.
pub fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncJob");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "syncjobs"))
}

/// Returns the API of a namespace's SyncRuns.
pub fn runs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncRun");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "syncruns"))
}

/// Returns the manifest of a SyncRun that requests a run of a SyncJob now.
pub fn run_now(name: &str, job: &str) -> Value {
    json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": name},
        "spec": {"syncJob": {"name": job}}})
}

/// Returns a manifest that copies one claim onto another, with the other fields of `spec`.
pub fn manifest(name: &str, source: &str, destination: &str, others: Value) -> Value {
    let mut spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": source}},
        "destination": {"persistentVolumeClaim": {"claimName": destination}},
    });
    merge(&mut spec, others);
    json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": name}, "spec": spec})
}

/// Creates a SyncJob from a manifest.
pub async fn create(api: &Api<DynamicObject>, manifest: Value) -> Result<DynamicObject> {
    let job: DynamicObject = serde_json::from_value(manifest).context("not a manifest")?;
    api.create(&PostParams::default(), &job).await.context("creating a SyncJob")
}

/// Merges `over` into `base`, field by field; a null removes a field.
pub fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match value {
                    Value::Null => drop(base.remove(&key)),
                    value => merge(base.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (base, over) => *base = over,
    }
}

/// Returns a part of the status, by JSON pointer; null where it is absent.
pub fn status<'a>(job: &'a DynamicObject, pointer: &str) -> &'a Value {
    job.data.get("status").and_then(|status| status.pointer(pointer)).unwrap_or(&Value::Null)
}

/// Returns a string of the status; empty where it is absent.
pub fn text<'a>(job: &'a DynamicObject, pointer: &str) -> &'a str {
    status(job, pointer).as_str().unwrap_or_default()
}

/// Returns a part of the status as a type of the contract.
pub fn part<T: DeserializeOwned>(job: &DynamicObject, pointer: &str) -> Result<T> {
    serde_json::from_value(status(job, pointer).clone())
        .with_context(|| format!("status{pointer} of {job:#?}"))
}

/// Returns a condition if it is about the present spec.
pub fn condition<'a>(job: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    status(job, "/conditions").as_array()?.iter().find(|condition| {
        condition["type"] == kind && condition["observedGeneration"].as_i64() == job.metadata.generation
    })
}

/// Returns whether a condition of the present spec is true.
pub fn is(job: &DynamicObject, kind: &str) -> bool {
    condition(job, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Returns whether a condition of the present spec has that reason, with any status.
pub fn has_reason(job: &DynamicObject, kind: &str, reason: &str) -> bool {
    condition(job, kind).is_some_and(|condition| condition["reason"] == reason)
}

/// Returns a condition's message; empty where it is absent.
pub fn message<'a>(job: &'a DynamicObject, kind: &str) -> &'a str {
    condition(job, kind).and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}
