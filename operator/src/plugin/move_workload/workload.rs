//! A StatefulSet or Deployment, read and written as it is: a field that this program does not know survives.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{
        DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
        PropagationPolicy,
    },
    core::{ApiResource, GroupVersionKind},
    runtime::wait::conditions::is_deleted,
};
use serde_json::{Value, json};

use super::super::{
    await_object::await_condition,
    cluster::{Cluster, failed},
    error::PluginError,
    move_args::{WorkloadKind, WorkloadName},
};
use super::wait_for_objects::Patience;

/// What the cluster adds to an object.
const ADDED: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
];

/// The API of the workload, and where its pods are.
pub(super) struct Workload<'a> {
    cluster: &'a Cluster,
    pub(super) name: &'a WorkloadName,
    api: Api<DynamicObject>,
    pub(super) pods: Api<Pod>,
}

impl<'a> Workload<'a> {
    pub(super) fn new(cluster: &'a Cluster, name: &'a WorkloadName) -> Self {
        let kind = GroupVersionKind::gvk("apps", "v1", &format!("{:?}", name.kind));
        let kind = ApiResource::from_gvk_with_plural(&kind, name.kind.plural());
        let api = Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind);
        let pods = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { cluster, name, api, pods }
    }

    pub(super) async fn get(&self) -> Result<Option<DynamicObject>, PluginError> {
        self.api.get_opt(&self.name.name).await.map_err(failed(format!("read {}", self.path())))
    }

    pub(super) async fn existing(&self) -> Result<DynamicObject, PluginError> {
        let flags = self.cluster.flags();
        let hint = format!("`kubectl get statefulset,deployment{flags}` lists those of the namespace");
        self.get().await?.ok_or_else(|| PluginError::blocked(format!("there is no {}", self.path()), hint))
    }

    /// Sets the number of pods, if it is another one, and returns the workload with that number.
    pub(super) async fn scale(&self, to: i64) -> Result<DynamicObject, PluginError> {
        let object = self.existing().await?;
        if replicas(&object) == to {
            return Ok(object);
        }
        let patch = Patch::Merge(json!({"spec": {"replicas": to}}));
        let done = self.api.patch(&self.name.name, &PatchParams::default(), &patch).await;
        done.map_err(failed(format!("scale {} to {to}", self.path())))
    }

    /// Waits until all pods are ready that the workload should have.
    pub(super) async fn until_ready(&self, patience: Patience) -> Result<(), PluginError> {
        let is_ready = |found: &DynamicObject| {
            replicas(found) == 0 || number(&found.data, "/status/readyReplicas") >= replicas(found)
        };
        self.until(patience, "is ready", is_ready).await
    }

    /// Waits until the workload has no pods, and makes none.
    pub(super) async fn until_empty(&self, patience: Patience) -> Result<(), PluginError> {
        self.until(patience, "has no pods", |found| number(&found.data, "/status/replicas") == 0).await
    }

    /// Waits until its controller has seen the object as it is, and `holds` is true of it.
    async fn until(
        &self,
        patience: Patience,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Result<(), PluginError> {
        let is_seen = |found: &DynamicObject| {
            number(&found.data, "/status/observedGeneration") >= found.metadata.generation.unwrap_or_default()
        };
        let is_so = |found: Option<&DynamicObject>| found.is_some_and(|found| is_seen(found) && holds(found));
        let so = await_condition(self.api.clone(), &self.name.name, is_so);
        patience.wait(&format!("{} {what}", self.path()), so).await
    }

    /// Deletes the object alone: what belongs to it stays.
    pub(super) async fn delete_alone(
        &self,
        object: &DynamicObject,
        patience: Patience,
    ) -> Result<(), PluginError> {
        let uid = object.uid().unwrap_or_default();
        if object.metadata.deletion_timestamp.is_none() {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), ..Preconditions::default() });
            let propagation_policy = Some(PropagationPolicy::Orphan);
            let how = DeleteParams { preconditions, propagation_policy, ..DeleteParams::default() };
            let deleted = self.api.delete(&self.name.name, &how).await;
            deleted.map(drop).map_err(failed(format!("delete {}", self.path())))?;
        }
        let gone = await_condition(self.api.clone(), &self.name.name, is_deleted(&uid));
        patience.wait(&format!("{} is deleted", self.path()), gone).await
    }

    pub(super) async fn create(&self, manifest: Value) -> Result<(), PluginError> {
        let object: DynamicObject = serde_json::from_value(manifest)?;
        let made = self.api.create(&PostParams::default(), &object).await;
        made.map(drop).map_err(failed(format!("create {}", self.path())))
    }

    /// Returns the pods of the namespace that may use claims.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>, PluginError> {
        let pods = self.pods.list(&ListParams::default()).await;
        Ok(pods.map_err(failed(format!("list pods in namespace {}", self.cluster.namespace)))?.items)
    }

    /// Returns the UIDs of what controls the workload's pods.
    pub(super) async fn controllers(&self, object: &DynamicObject) -> Result<BTreeSet<String>, PluginError> {
        let own = object.uid().unwrap_or_default();
        if self.name.kind == WorkloadKind::StatefulSet {
            return Ok([own].into());
        }
        let sets = Api::<ReplicaSet>::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let sets = sets.list(&ListParams::default()).await.map_err(failed("list ReplicaSets".into()))?;
        let is_own = |set: &&ReplicaSet| set.owner_references().iter().any(|owner| owner.uid == own);
        Ok(sets.items.iter().filter(is_own).filter_map(ReplicaSet::uid).collect())
    }

    pub(super) fn path(&self) -> String {
        format!("{:?} {}/{}", self.name.kind, self.cluster.namespace, self.name.name)
    }
}

/// Returns the number of pods that a workload should have.
pub(super) fn replicas(object: &DynamicObject) -> i64 {
    object.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// Returns a word that is another one after each change of a workload's spec, and for one that is made anew.
pub(super) fn state_of(object: &DynamicObject) -> String {
    let generation = object.metadata.generation.unwrap_or_default();
    format!("{}/{generation}", object.uid().unwrap_or_default())
}

fn number(data: &Value, pointer: &str) -> i64 {
    data.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns an object without its status and what the cluster adds.
pub(super) fn manifest_of(mut object: Value) -> Value {
    if let Some(all) = object.as_object_mut() {
        all.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        ADDED.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    object
}

/// Returns the classes of a StatefulSet's templates.
pub(super) fn template_classes(object: &Value) -> BTreeMap<String, Option<String>> {
    let templates = object.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    let named = |template: &Value| {
        let class = template.pointer("/spec/storageClassName").and_then(Value::as_str).map(String::from);
        Some((template.pointer("/metadata/name")?.as_str()?.to_string(), class))
    };
    templates.into_iter().flatten().filter_map(named).collect()
}

/// Returns the StatefulSet with these classes in its templates, without pods.
pub(super) fn with_classes(mut manifest: Value, classes: &BTreeMap<String, Option<String>>) -> Value {
    manifest["spec"]["replicas"] = json!(0);
    let templates = manifest.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        let name = template.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        match classes.get(name) {
            Some(Some(class)) => template["spec"]["storageClassName"] = json!(class),
            Some(None) => drop(template["spec"].as_object_mut().map(|spec| spec.remove("storageClassName"))),
            None => {}
        }
    }
    manifest
}
