//! The pod by which a user reaches a claim: what is read of the cluster for it, and what is made.

use std::time::Duration;

use contract::Side;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{EnvVar, Namespace, PersistentVolumeClaim, Pod, PodTemplateSpec},
};
use kube::{Api, api::ListParams};

use super::{args::PodFlags, cluster::Cluster, error::PluginError, one_pod::OnePod};
use crate::{
    grants::namespace_annotations::NamespaceUsers,
    names,
    pods::{
        placement::{self, Placement},
        security::PodUser,
    },
    user_pods::one_off_job::{self, OneOff},
    volumes::access_modes,
};

/// Selects the objects of Volferry.
const OF_VOLFERRY: &str = "app.kubernetes.io/name=volferry";
/// Where the chart has the programs by default.
const USUAL_IMAGE: &str = concat!("volferry/volferry:", env!("CARGO_PKG_VERSION"));

/// A claim, and the Job that its pod is made by.
pub(super) struct ClaimPod {
    pub(super) claim: PersistentVolumeClaim,
    job: Job,
}

impl ClaimPod {
    /// Reads what the pod of a claim depends on.
    pub(super) async fn plan(
        cluster: &Cluster,
        claim: &str,
        command: &str,
        side: Side,
        flags: &PodFlags,
    ) -> Result<Self, PluginError> {
        let claim = claim_named(cluster, claim).await?;
        let users = users(cluster).await?;
        let wanted = flags.security();
        if wanted.run_as_user == Some(0) && !users.is_privileged() {
            return Err(PluginError::NoRoot { namespace: cluster.namespace.clone() });
        }
        let placement = placement(cluster, &claim).await?;
        let like = last_template(cluster).await;
        let image = flags.image.as_deref().or_else(|| like.as_ref().and_then(image));
        let of = OneOff {
            claim: &claim,
            command,
            side,
            image: image.unwrap_or(USUAL_IMAGE),
            like: like.as_ref(),
            user: PodUser::of(users.is_privileged(), users.is_assigned, &wanted),
            wanted: &wanted,
            placement: placement.as_ref(),
            timeout_s: seconds(flags.timeout),
        };
        let job = one_off_job::job(&of);
        Ok(Self { claim, job })
    }

    /// Gives the pod the label by which policies for the traffic of syncers hold for it, and a home folder.
    pub(super) fn pass_for_syncer(&mut self, home: &str) {
        let Some(template) = self.job.spec.as_mut().map(|spec| &mut spec.template) else { return };
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert("app.kubernetes.io/component".into(), "syncer".into());
        let home = EnvVar { name: "HOME".into(), value: Some(home.into()), ..EnvVar::default() };
        let containers = template.spec.iter_mut().flat_map(|pod| &mut pod.containers);
        containers.for_each(|container| container.env = Some(vec![home.clone()]));
    }

    /// Makes the Job.
    pub(super) async fn make(&self, cluster: &Cluster) -> Result<OnePod, PluginError> {
        OnePod::make(cluster, &cluster.namespace, &self.job).await
    }

    /// Returns the path of the claim's folder or device in the pod.
    pub(super) fn path(&self) -> &'static str {
        one_off_job::path(&self.claim)
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX).max(1)
}

/// Returns a claim that is there to stay.
pub(super) async fn claim_named(cluster: &Cluster, name: &str) -> Result<PersistentVolumeClaim, PluginError> {
    let namespace = &cluster.namespace;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), namespace);
    let found = claims.get_opt(name).await;
    let found = found.map_err(cluster.failed(format!("read PersistentVolumeClaim {namespace}/{name}")))?;
    let found = found.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    found.ok_or_else(|| PluginError::NoClaim { at: cluster.at(), name: name.into() })
}

/// Returns what the namespace says about root. One that this user may not read says nothing.
pub(super) async fn users(cluster: &Cluster) -> Result<NamespaceUsers, PluginError> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let read = namespaces.get_metadata_opt(&cluster.namespace).await;
    match read.map_err(cluster.failed(format!("read namespace {}", cluster.namespace))) {
        Ok(namespace) => Ok(namespace.map(|it| NamespaceUsers::of(&it)).unwrap_or_default()),
        Err(error) if error.is_forbidden() => Ok(NamespaceUsers::default()),
        Err(error) => Err(error),
    }
}

/// Returns the node of a pod that uses the claim, if the claim ties other pods to it.
async fn placement(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
) -> Result<Option<Placement>, PluginError> {
    if !access_modes::ties(claim) {
        return Ok(None);
    }
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.namespace);
    let listed = pods.list(&ListParams::default()).await;
    let listed = listed.map_err(cluster.failed(format!("list pods in namespace {}", cluster.namespace)))?;
    let users: Vec<Pod> = listed.items.into_iter().filter_map(placement::user).collect();
    Ok(placement::placement(claim, &users))
}

/// Returns what the pods of the newest Job of Volferry in the namespace are made by: their image, and what users want
/// of them. Objects of other namespaces decide nothing: anybody may give a pod there the operator's labels.
async fn last_template(cluster: &Cluster) -> Option<PodTemplateSpec> {
    // A user who may not list them can name the image.
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let listed = jobs.list(&ListParams::default().labels(OF_VOLFERRY)).await.ok()?;
    let newest = listed.items.into_iter().max_by_key(kube::ResourceExt::creation_timestamp)?;
    Some(newest.spec?.template)
}

fn image(template: &PodTemplateSpec) -> Option<&str> {
    let mut containers = template.spec.iter().flat_map(|pod| &pod.containers);
    containers.find(|it| it.name == names::CONTAINER)?.image.as_deref()
}
