//! Relies on the grants of a job's ends only as they are now: looks at them again in time, and anew before anything is
//! made by them.

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    find_grant::{self, Applicant},
    namespace_annotations::NamespaceUsers,
};
use crate::{
    api::{KnownNamespace, SyncGrant, SyncJob},
    controller::{
        context::Context,
        dereference::{self, Dereferenced},
        error::Error,
        lookups::Sources,
        read::{Result, reading},
        stores::{Known, WatchError},
    },
    ends::{
        end_namespaces::{Consent, EndNamespace, Places},
        permission::{self, LABELS_AGE},
        source_and_sink::Ends,
    },
    names::FIELD_MANAGER,
};

/// Waits until the watches have brought what this operator has written in the namespaces of a job's ends. Fails if one
/// of these watches fails.
pub(crate) async fn catch_up(known: &Known, job: &SyncJob) -> std::result::Result<(), WatchError> {
    let own = job.namespace().unwrap_or_default();
    let runs = dereference::runs_of(&known.runs, job);
    let places = Places::of_job(job, runs.iter().map(|run| &**run));
    for namespace in places.abroad().into_iter().filter(|it| **it != own && known.grants.watches(it)) {
        known.catch_up(namespace).await?;
        known.grants.catch_up(namespace).await?;
    }
    Ok(())
}

/// Returns when to look at the grants of a job and of its run under way again: when one of them ends, and soon if no
/// watch tells of a change.
pub(crate) fn next_look(found: &Dereferenced, now: Timestamp) -> Option<Timestamp> {
    let grants = || found.ends.iter().filter_map(EndNamespace::grant).chain(&found.granted);
    let by_labels = found.is_started && grants().any(|grant| grant.is_by_labels);
    let look = now.checked_add(LABELS_AGE).ok().filter(|_| by_labels);
    grants().filter_map(|grant| grant.until).chain(look).min()
}

/// Reads the annotations and labels of the namespaces of both ends anew.
pub(crate) async fn refresh(sources: Sources<'_>, job: &SyncJob, found: &mut Dereferenced) -> Result<()> {
    let own = job.namespace().unwrap_or_default();
    let own = permission::users(sources, &own, Duration::ZERO).await?;
    (found.users, found.are_users_fresh) = (own.users, own.is_fresh);
    for end in [&mut found.ends.source, &mut found.ends.sink] {
        match &end.consent {
            Consent::Own | Consent::Remote => end.users = found.users.clone(),
            Consent::Granted(_) => {
                end.users = permission::users(sources, &end.namespace, Duration::ZERO).await?.users;
            }
            Consent::Refused(_) => {}
        }
    }
    Ok(())
}

/// Makes sure that the grants of both ends are there as the watch brought them, and notes in them which namespace uses
/// them, before anything is made in their namespaces. Fails if one has changed meanwhile.
pub(crate) async fn confirm(
    context: &Context,
    job: &SyncJob,
    ends: &Ends<EndNamespace>,
    users: &NamespaceUsers,
) -> std::result::Result<(), Error> {
    for end in ends.iter() {
        let Some(granted) = end.grant() else { continue };
        let api = Api::<SyncGrant>::namespaced(context.client.clone(), &end.namespace);
        let now = api.get_opt(&granted.name).await.map_err(reading("SyncGrant"))?;
        let heard_of = context.known.grants.get(&end.namespace, &granted.name);
        now.iter().for_each(|now| context.known.grants.wrote(now));
        let is_known = |now: &SyncGrant| {
            heard_of.is_some_and(|heard_of| heard_of.resource_version() == now.resource_version())
        };
        let Some(now) = now.filter(is_known) else { return Err(Error::Outdated) };
        note_user(context, job, &now, users).await?;
    }
    Ok(())
}

async fn note_user(
    context: &Context,
    job: &SyncJob,
    grant: &SyncGrant,
    users: &NamespaceUsers,
) -> std::result::Result<(), Error> {
    let namespace = job.namespace().unwrap_or_default();
    let from = Applicant { namespace: &namespace, uid: users.uid.as_deref(), labels: &users.labels };
    let Some(uid) = users.uid.clone().filter(|_| find_grant::lacks(grant, &from)) else { return Ok(()) };
    let mut known = find_grant::noted(grant);
    known.push(KnownNamespace { name: namespace, uid });
    let metadata = json!({"uid": grant.uid(), "resourceVersion": grant.resource_version()});
    let status = json!({"observedGeneration": grant.metadata.generation, "namespaces": known});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let api = Api::<SyncGrant>::namespaced(context.client.clone(), &grant.namespace().unwrap_or_default());
    let written = api.patch_status(&grant.name_any(), &params, &patch).await.map_err(Error::Grant)?;
    context.known.grants.wrote(&written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::find_grant::Granted;

    #[test]
    fn the_grants_of_a_run_are_looked_at_again_whatever_claims_the_spec_names() {
        let (now, end) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + Duration::from_secs(9));
        let granted = |until, is_by_labels| {
            let (name, uid) = ("lent".into(), "u".into());
            Granted { name, uid, until, is_by_labels }
        };
        let mut found = Dereferenced { is_started: true, ..Dereferenced::default() };
        assert_eq!(next_look(&found, now), None);
        found.granted = vec![granted(None, false), granted(Some(end), false)];
        assert_eq!(next_look(&found, now), Some(end));
        found.granted.push(granted(None, true));
        assert_eq!(next_look(&found, now), Some(now + LABELS_AGE));
    }
}
