//! Reads what the other pods of the claims' namespaces say about a launch: the nodes that volumes are tied to, and the
//! groups of workloads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use contract::Side;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    fs_group,
    placement::{self, Placement, Placements},
};
use crate::{
    api::{FsGroups, SyncJob},
    controller::{
        lookups::Sources,
        read::{Result, reading},
    },
    names::LABEL_TRY,
    volumes::{
        access_modes,
        claims::{self, Claim},
    },
};

/// Selects pods whose processes may run, as the scheduler does. Pods that have ended remain only for their logs.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Returns the namespaces of the claims that were found.
fn namespaces(claims: &[Claim]) -> BTreeSet<String> {
    claims.iter().filter_map(|claim| claim.found.as_ref()?.namespace()).collect()
}

/// Returns the groups that the job's syncers take over from other pods; `None` if the spec does not ask for them, or
/// none is known.
pub(crate) async fn fs_groups(
    sources: Sources<'_>,
    job: &SyncJob,
    claims: &[Claim],
) -> Result<Option<FsGroups>> {
    if job.spec.pods.security_context.fs_group_from.is_none() {
        return Ok(None);
    }
    let of_others = ListParams::default().labels(&format!("!{LABEL_TRY}"));
    let mut pods = Vec::new();
    for namespace in namespaces(claims) {
        let api = Api::<Pod>::namespaced(sources.client.clone(), &namespace);
        pods.extend(api.list(&of_others).await.map_err(reading("namespace's pods"))?.items);
    }
    let known = job.status.as_ref().and_then(|status| status.fs_groups);
    let groups = fs_group::groups(claims, &pods, known);
    Ok(Some(groups).filter(|groups| *groups != FsGroups::default()))
}

/// Returns where the pods of both ends have to run. The pods of a whole namespace are read only if a claim ties its
/// users to a node: before pods are created, and while they are late.
pub(crate) async fn placements(sources: Sources<'_>, claims: &[Claim]) -> Result<Placements> {
    let found = |side| claims.iter().find(|claim| claim.side == side)?.found.as_ref();
    let on_one_node = |side| {
        found(side).is_some_and(|claim| access_modes::sharing(claim, side) == access_modes::Sharing::OneNode)
    };
    let sink_on_one_node = on_one_node(Side::Sink);
    let source_on_one_node = on_one_node(Side::Source) || (sink_on_one_node && claims::is_one(claims));
    let anywhere = Placements { source_on_one_node, sink_on_one_node, ..Placements::default() };
    if !claims.iter().filter_map(|claim| claim.found.as_ref()).any(access_modes::ties) {
        return Ok(anywhere);
    }
    let mut pods = BTreeMap::new();
    for namespace in namespaces(claims) {
        let users = users(sources, &namespace).await?;
        pods.insert(namespace, users);
    }
    let of = |side| {
        let claim = found(side)?;
        let pods = pods.get(&claim.namespace()?)?;
        let attached = || sources.volumes.attached_to(claim).map(Placement::preferred);
        placement::placement(claim, pods).or_else(attached)
    };
    Ok(Placements { source: of(Side::Source), sink: of(Side::Sink), ..anywhere })
}

/// Returns the pods of a namespace that use claims, as they are now. Launches that ask at the same time share a list.
async fn users(sources: Sources<'_>, namespace: &str) -> Result<Arc<Vec<Pod>>> {
    let read = async {
        let not_ended = ListParams::default().fields(NOT_ENDED);
        let pods = Api::<Pod>::namespaced(sources.client.clone(), namespace).list(&not_ended).await;
        let pods = pods.map_err(reading("namespace's pods"))?.items;
        Ok(Arc::new(pods.into_iter().filter_map(placement::user).collect::<Vec<_>>()))
    };
    sources.users.get_or_ask(namespace, Duration::ZERO, read).await
}
