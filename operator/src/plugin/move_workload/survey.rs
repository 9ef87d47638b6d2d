//! Reads what a move is about before anything is changed, and refuses what could not be moved whole.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::{Map, Value, json};

use super::super::{
    args::Scope,
    claim_pod::users,
    cluster::{Cluster, failed},
    error::PluginError,
    move_args::{MoveFlags, WorkloadKind},
};
use super::{
    record::{MoveRecord, MovedClaim, Stage},
    rights,
    swap_volumes::volume_of,
    workload::{Workload, replicas, template_classes},
    writers,
};
use crate::{api::ClaimReference, names};

/// Annotations of a claim by which Kubernetes' controllers remember its volume.
const OF_CONTROLLERS: [&str; 4] = [
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "kubectl.kubernetes.io/last-applied",
];
/// Fields of a claim that hold for any volume.
const KEPT_FIELDS: [&str; 4] = ["accessModes", "resources", "volumeMode", "storageClassName"];

/// Returns the record of a move to a class, which has not begun.
pub(super) async fn inspect(
    cluster: &Cluster,
    workload: &Workload<'_>,
    flags: &MoveFlags,
    class: &str,
) -> Result<MoveRecord, PluginError> {
    let object = workload.existing().await?;
    check_owner(workload, &object)?;
    let is_lazy = is_lazy(cluster, class).await?;
    let claims = claims(cluster).await?;
    let found = of_workload(workload.name.kind, &object, &claims);
    let wanted = chosen(&found, flags, class, &cluster.scope)?;
    let pods = workload.pods().await?;
    let controllers = workload.controllers(&object).await?;
    let moved = wanted.iter().map(|(claim, _)| {
        check_claim(claim)?;
        check_users(claim, &pods, &controllers)?;
        Ok(moved(claim, is_lazy.then(|| node_of(claim, &pods)).flatten()))
    });
    let moved = moved.collect::<Result<Vec<_>, PluginError>>()?;
    if is_lazy && moved.len() > 1 && moved.iter().any(|it| it.node.is_none()) {
        let why = format!(
            "class {class} makes a volume where its first pod runs, and a claim has no pod that could say where"
        );
        return Err(PluginError::blocked(why, "start all pods of the workload first"));
    }
    rights::check(cluster, workload.name.kind).await?;
    let templates: BTreeSet<_> = wanted.iter().filter_map(|(_, template)| template.clone()).collect();
    let mut template_classes = template_classes(&object.data);
    template_classes.retain(|name, _| templates.contains(name));
    let record = MoveRecord {
        workload: workload.name.clone(),
        class: class.into(),
        replicas: replicas(&object),
        stage: Stage::Copy,
        is_back: false,
        claims: moved,
        template_classes,
        stopped_at: None,
        manifest: None,
    };
    writers::check(cluster, &record.claims).await?;
    Ok(record)
}

/// Refuses a workload that something else would scale or make anew meanwhile.
fn check_owner(workload: &Workload<'_>, object: &DynamicObject) -> Result<(), PluginError> {
    if let Some(owner) = object.owner_references().iter().find(|owner| owner.controller == Some(true)) {
        let why = format!("{} belongs to {} {}", workload.path(), owner.kind, owner.name);
        return Err(PluginError::blocked(why, "its owner would undo each step: have that move it"));
    }
    let policy = &object.data["spec"]["persistentVolumeClaimRetentionPolicy"];
    if policy.as_object().is_some_and(|policy| policy.values().any(|it| it == "Delete")) {
        let why = format!("{} deletes its claims by persistentVolumeClaimRetentionPolicy", workload.path());
        return Err(PluginError::blocked(why, "set both of its fields to Retain"));
    }
    Ok(())
}

/// Returns whether a class waits for the first pod of a claim.
async fn is_lazy(cluster: &Cluster, class: &str) -> Result<bool, PluginError> {
    let found = Api::<StorageClass>::all(cluster.client.clone()).get_opt(class).await;
    let found = found.map_err(failed(format!("read StorageClass {class}")))?;
    let missing = || {
        PluginError::blocked(
            format!("there is no StorageClass {class}"),
            format!("`kubectl get storageclass{}` lists them", cluster.scope.cluster_flags()),
        )
    };
    Ok(found.ok_or_else(missing)?.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
}

async fn claims(cluster: &Cluster) -> Result<Vec<PersistentVolumeClaim>, PluginError> {
    let api = Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), &cluster.namespace);
    Ok(api.list(&ListParams::default()).await.map_err(failed("list claims".into()))?.items)
}

/// A claim, and the template that it was made by.
type TemplatedClaim<'a> = (&'a PersistentVolumeClaim, Option<String>);

/// Returns the claims of a workload. Those of a StatefulSet's former pods count, too.
fn of_workload<'a>(
    kind: WorkloadKind,
    object: &DynamicObject,
    claims: &'a [PersistentVolumeClaim],
) -> Vec<TemplatedClaim<'a>> {
    let volumes = object.data.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let named =
        |volume: &Value| Some(volume.pointer("/persistentVolumeClaim/claimName")?.as_str()?.to_string());
    let named: BTreeSet<String> = volumes.into_iter().flatten().filter_map(named).collect();
    let templates =
        if kind == WorkloadKind::StatefulSet { template_classes(&object.data) } else { BTreeMap::new() };
    let own = object.name_any();
    let template_of = |claim: &str| {
        templates.keys().find(|template| {
            let ordinal = claim.strip_prefix(&format!("{template}-{own}-"));
            ordinal.is_some_and(|it| !it.is_empty() && it.bytes().all(|digit| digit.is_ascii_digit()))
        })
    };
    let found = claims.iter().filter_map(|claim| {
        let name = claim.name_any();
        let template = template_of(&name).cloned();
        (template.is_some() || named.contains(&name)).then_some((claim, template))
    });
    found.collect()
}

/// Returns the claims that the flags choose and that have another class. `at` is where they are.
fn chosen<'a>(
    found: &[TemplatedClaim<'a>],
    flags: &MoveFlags,
    class: &str,
    at: &Scope,
) -> Result<Vec<TemplatedClaim<'a>>, PluginError> {
    let is_named = |(claim, template): &TemplatedClaim<'_>, name: &String| {
        claim.name_any() == *name || template.as_ref() == Some(name)
    };
    if let Some(missing) = flags.claims.iter().find(|name| !found.iter().any(|it| is_named(it, name))) {
        let known: Vec<_> = found.iter().map(|(claim, _)| claim.name_any()).collect();
        let hint = format!("it has {}", if known.is_empty() { "none".into() } else { known.join(", ") });
        return Err(PluginError::blocked(
            format!("{} has no claim or template {missing}", flags.workload),
            &hint,
        ));
    }
    let is_chosen = |it: &&TemplatedClaim<'_>| {
        flags.claims.is_empty() || flags.claims.iter().any(|name| is_named(it, name))
    };
    let has_other = |it: &&TemplatedClaim<'_>| {
        it.0.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) != Some(class)
    };
    let chosen: Vec<_> = found.iter().filter(is_chosen).filter(has_other).cloned().collect();
    if chosen.is_empty() {
        let why = format!("{} has no claim of another class than {class}", flags.workload);
        let hint = format!("`kubectl get pvc{}` lists the claims with their classes", at.flags());
        return Err(PluginError::blocked(why, hint));
    }
    Ok(chosen)
}

fn check_claim(claim: &PersistentVolumeClaim) -> Result<(), PluginError> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Bound") && claim.metadata.deletion_timestamp.is_none() && volume_of(claim).is_some() {
        return Ok(());
    }
    let why = format!("claim {} has no volume, or is being deleted", claim.name_any());
    Err(PluginError::blocked(why, "start the workload first, or choose other claims with --claim"))
}

/// Refuses a claim that pods of others use, which would lose it.
fn check_users(
    claim: &PersistentVolumeClaim,
    pods: &[Pod],
    controllers: &BTreeSet<String>,
) -> Result<(), PluginError> {
    let foreign = users_of(claim, pods)
        .find(|pod| !pod.owner_references().iter().any(|owner| controllers.contains(&owner.uid)));
    let Some(pod) = foreign else { return Ok(()) };
    let why = format!(
        "claim {} is used by pod {}, too, which is not of the workload",
        claim.name_any(),
        pod.name_any()
    );
    Err(PluginError::blocked(why, "stop what that pod belongs to, and start it after the move"))
}

fn users_of<'a>(claim: &PersistentVolumeClaim, pods: &'a [Pod]) -> impl Iterator<Item = &'a Pod> {
    let name = claim.name_any();
    pods.iter().filter(move |pod| is_user(pod, &name))
}

/// Returns whether a pod that has not ended uses the claim. Those of runs do not count.
pub(super) fn is_user(pod: &Pod, claim: &str) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut claims = volumes.filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name));
    let has_ended = ["Succeeded", "Failed"].contains(&phase);
    !has_ended && !pod.labels().contains_key(names::LABEL_SYNCJOB) && claims.any(|it| it == claim)
}

fn node_of(claim: &PersistentVolumeClaim, pods: &[Pod]) -> Option<String> {
    users_of(claim, pods).find_map(|pod| pod.spec.as_ref()?.node_name.clone())
}

/// Returns a claim without what ties it to its volume.
fn moved(claim: &PersistentVolumeClaim, node: Option<String>) -> MovedClaim {
    let is_own = |key: &&String| !OF_CONTROLLERS.iter().any(|prefix| key.starts_with(prefix));
    let annotations = claim.annotations().iter().filter(|(key, _)| is_own(key));
    let annotations: BTreeMap<_, _> = annotations.collect();
    let spec = json!(claim.spec);
    let spec: Map<String, Value> =
        KEPT_FIELDS.iter().filter_map(|field| Some((field.to_string(), spec.get(field)?.clone()))).collect();
    let metadata = json!({"name": claim.name_any(), "labels": claim.labels(), "annotations": annotations});
    MovedClaim {
        name: claim.name_any(),
        manifest: json!({"metadata": metadata, "spec": spec}),
        old_volume: volume_of(claim).unwrap_or_default().into(),
        new_volume: None,
        node,
    }
}

/// Returns what the user of a move should know.
pub(super) async fn notes(cluster: &Cluster, record: &MoveRecord) -> Result<Vec<String>, PluginError> {
    let mut notes = Vec::new();
    if !users(cluster).await?.is_privileged() {
        notes.push(format!(
            "namespace {} does not let syncers run as root: the copies get the user and groups of the workload's pods",
            cluster.namespace
        ));
    }
    for job in cluster.jobs(false).await? {
        let of_moved = |name: &str| record.claims.iter().any(|claim| claim.name == name);
        let is_here = |claim: &ClaimReference| {
            claim.namespace.as_ref().is_none_or(|namespace| *namespace == cluster.namespace)
        };
        if job.spec.claims().any(|(_, claim)| is_here(claim) && of_moved(&claim.claim_name)) {
            notes.push(format!(
                "SyncJob {} knows the old claim, and says afterwards how to accept the new one",
                job.name_any()
            ));
        }
    }
    Ok(notes)
}

/// Returns the settings of syncer pods that read and write as the workload does.
pub(super) async fn pods(cluster: &Cluster, object: &Value) -> Result<Value, PluginError> {
    let is_privileged = users(cluster).await?.is_privileged();
    Ok(pods_of(is_privileged, object))
}

fn pods_of(is_privileged: bool, object: &Value) -> Value {
    let template = object.pointer("/spec/template/spec").unwrap_or(&Value::Null);
    let mut pods = json!({});
    if let Some(tolerations) = template.get("tolerations") {
        pods["tolerations"] = tolerations.clone();
    }
    if is_privileged {
        return pods;
    }
    let of_pod = template.get("securityContext").unwrap_or(&Value::Null);
    let of_container = template.pointer("/containers/0/securityContext").unwrap_or(&Value::Null);
    let mut security = Map::new();
    for field in ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"] {
        let value = of_container.get(field).or_else(|| of_pod.get(field));
        // Root takes the consent of the namespace.
        if let Some(value) = value.filter(|it| **it != json!(0)) {
            security.insert(field.into(), value.clone());
        }
    }
    if !security.is_empty() {
        pods["securityContext"] = Value::Object(security);
    }
    pods
}

#[cfg(test)]
mod tests;
