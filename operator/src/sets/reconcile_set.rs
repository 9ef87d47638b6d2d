//! Reconciles SyncJobSets: makes a SyncJob for each claim that matches, deals with those whose claim went away, and
//! writes how the set stands.

use contract::{Reason, chain};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::error_boundary::InvalidObject,
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    make_group,
    members::{self, Change, Leftover},
    set_standing,
};
use crate::{
    api::{SyncJobSet, SyncJobSetSpec, SyncJobSetStatus, conditions},
    controller::{
        apply::{ApplyError, REFUSALS},
        context::Context,
        error::Error,
        read::{Guarded, GuardedSet, reading},
        reconcile::OTHERS_PERIOD,
        reconcile_timeout::TIMEOUT,
    },
    fault::Fault,
    human,
    names::FIELD_MANAGER,
    status::merge_patch,
    telemetry::events::Note,
};

/// How many SyncJobs of a set are written at a time.
const AT_A_TIME: usize = 8;
/// How long the status keeps counts that have changed, while nothing else has.
const COUNTS_AGE: Duration = Duration::from_secs(2);
/// The interval between looks at what the API server refuses, which no watch tells of.
const REFUSED_PERIOD: Duration = Duration::from_secs(60);
/// The maximum length of an API server message in a status, in bytes.
const MAX_WORDS_BYTES: usize = 1024;

/// Returns the sets that a change of a SyncJob concerns: its owner, and those that found its name taken.
pub(crate) fn of_job(all: &Store<GuardedSet>, job: &Guarded) -> Vec<ObjectRef<GuardedSet>> {
    let owner = members::owner(job).map(|owner| &owner.uid);
    let name = job.name_any();
    let concerns = |set: &GuardedSet| {
        let names = |set: &SyncJobSet| {
            let problems = set.status.iter().flat_map(|status| &status.problems);
            problems.filter_map(|problem| problem.sync_job.as_ref()).any(|it| *it == name)
        };
        set.namespace() == job.namespace()
            && ((owner.is_some() && owner == set.meta().uid.as_ref()) || set.0.as_ref().is_ok_and(names))
    };
    all.state().iter().filter(|set| concerns(set)).map(|set| ObjectRef::from_obj(&**set)).collect()
}

/// Returns the sets that a change of a claim concerns: all of its namespace, because its labels may have been others.
pub(crate) fn of_claim(all: &Store<GuardedSet>, claim: &PersistentVolumeClaim) -> Vec<ObjectRef<GuardedSet>> {
    let is_near = |set: &&Arc<GuardedSet>| set.namespace() == claim.metadata.namespace;
    all.state().iter().filter(is_near).map(|set| ObjectRef::from_obj(&**set)).collect()
}

/// Reconciles one set. kube's controller calls it for each change.
pub(crate) async fn reconcile(set: Arc<GuardedSet>, context: Arc<Context>) -> Result<Action, Error> {
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let done = timeout(TIMEOUT, Box::pin(reconcile_known(&namespace, &name, &context))).await;
    let done = done.unwrap_or(Err(Error::TimedOut));
    if done.is_ok() {
        context.failures.forget(&path(&namespace, &name));
    }
    done
}

/// Logs a failed reconciliation, and returns when to try it again: the later, the more have failed in a row.
#[allow(clippy::needless_pass_by_value)] // kube calls it so
pub(crate) fn on_error(set: Arc<GuardedSet>, error: &Error, context: Arc<Context>) -> Action {
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let failures = context.failures.failed(&path(&namespace, &name));
    if !error.is_conflict() {
        tracing::warn!(
            namespace,
            name,
            error = chain(error),
            "a SyncJobSet is not reconciled, and tried again"
        );
    }
    Action::requeue(error.pause(failures))
}

/// Returns a key that no SyncJob has.
fn path(namespace: &str, name: &str) -> String {
    format!("set {namespace}/{name}")
}

async fn reconcile_known(namespace: &str, name: &str, context: &Context) -> Result<Action, Error> {
    if !context.namespaces.holds(namespace).await? {
        return Ok(Action::requeue(OTHERS_PERIOD));
    }
    // A store that lacks claims would have their SyncJobs deleted.
    context.known.catch_up(namespace).await?;
    context.known.sets.catch_up(namespace).await?;
    let found = context.known.sets.get(namespace, name);
    // The garbage collector deletes the SyncJobs of a deleted set by their owner references.
    let Some(set) = found.filter(|set| set.meta().deletion_timestamp.is_none()) else {
        context.failures.forget(&path(namespace, name));
        return Ok(Action::await_change());
    };
    match &set.0 {
        Ok(set) => go_on(set, context).await,
        Err(unreadable) => set_aside(unreadable.clone(), context).await,
    }
}

/// Carries out what a set needs, and writes how it stands.
async fn go_on(set: &SyncJobSet, context: &Context) -> Result<Action, Error> {
    let known = &context.known;
    let namespace = set.namespace().unwrap_or_default();
    let (claims, jobs) = (known.claims.in_namespace(&namespace), known.jobs.in_namespace(&namespace));
    let capture = make_group::carry_out(context, set, &jobs).await?;
    let mut plan = members::plan(set, &claims, &jobs);
    for leftover in &plan.delete {
        delete(context, set, leftover).await?;
    }
    let changes = std::mem::take(&mut plan.apply);
    let applied = stream::iter(changes).map(async |change| {
        let done = apply(context, set, &change).await;
        (change, done)
    });
    let applied: Vec<_> = applied.buffer_unordered(AT_A_TIME).collect().await;
    let mut members: BTreeMap<String, Arc<Guarded>> = jobs
        .into_iter()
        .map(|job| (job.name_any(), job))
        .filter(|(name, _)| plan.members.contains(name))
        .collect();
    let mut is_refused = false;
    for (Change { claim, name, .. }, done) in applied {
        match done? {
            Ok(job) if claim.is_some() => drop(members.insert(name, Arc::new(job))),
            Ok(_) => {}
            Err(fault) => {
                is_refused = true;
                plan.complain(claim, Some(name), fault);
            }
        }
    }
    is_refused |= capture.objection.is_some();
    capture.objection.into_iter().for_each(|fault| plan.complain(None, None, fault));
    plan.problems.sort_by(|a, b| (&a.claim, &a.sync_job).cmp(&(&b.claim, &b.sync_job)));
    let members: Vec<_> = members.into_values().collect();
    let mut new = set_standing::status(set, &plan, &members, Timestamp::now());
    new.group_capture = capture.group;
    let again = write(context, set, &new).await?.into_iter();
    let again = again.chain(is_refused.then_some(REFUSED_PERIOD)).chain(capture.again).min();
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Makes or changes a SyncJob, and returns it, or what stands in the way. One that is not the set's own is not changed,
/// also if it was made a moment ago: a SyncJob that is changed is named by its UID, and one that is made is applied
/// without force, which changes no field of anybody else.
async fn apply(
    context: &Context,
    set: &SyncJobSet,
    change: &Change,
) -> Result<Result<Guarded, Fault>, Error> {
    let api = jobs(context, set);
    let Change { name, manifest, uid, .. } = change;
    let mut manifest = manifest.clone();
    let mut params = PatchParams::apply(FIELD_MANAGER);
    if let Some(uid) = uid {
        manifest["metadata"]["uid"] = uid.as_str().into();
        params = params.force();
    } else if let Some(there) = api.get_opt(name).await.map_err(reading("SyncJob"))? {
        context.known.jobs.wrote(&there);
        // The watch has not brought it yet.
        return if members::is_own(&there, set) { Err(Error::Outdated) } else { Ok(Err(taken(&there))) };
    }
    let job = match api.patch(name, &params, &Patch::Apply(&manifest)).await {
        Ok(job) => job,
        Err(kube::Error::Api(answer)) if answer.code == 409 => return Err(Error::Outdated),
        Err(kube::Error::Api(answer)) if REFUSALS.contains(&answer.code) => {
            return Ok(Err(refused(name, &answer.message)));
        }
        Err(source) => {
            let name = format!("{}/{name}", set.namespace().unwrap_or_default());
            return Err(ApplyError::Apply { kind: "SyncJob".into(), name, source }.into());
        }
    };
    context.known.jobs.wrote(&job);
    let of_others = job.meta().managed_fields.iter().flatten().filter_map(|it| it.manager.as_deref());
    if uid.is_none() && of_others.into_iter().any(|manager| manager != FIELD_MANAGER) {
        give_back(&api, &job).await?;
        return Ok(Err(taken(&job)));
    }
    Ok(Ok(job))
}

/// Takes everything back that this operator has applied to a SyncJob which somebody else made at the same moment.
async fn give_back(api: &Api<Guarded>, job: &Guarded) -> Result<(), Error> {
    let nothing = json!({
        "apiVersion": "volferry.dev/v1alpha1",
        "kind": "SyncJob",
        "metadata": {"name": job.name_any(), "uid": job.uid()},
    });
    let params = PatchParams::apply(FIELD_MANAGER);
    let name = job.name_any();
    api.patch(&name, &params, &Patch::Apply(&nothing)).await.map_err(|source| ApplyError::Apply {
        kind: "SyncJob".into(),
        name,
        source,
    })?;
    Ok(())
}

fn taken(there: &Guarded) -> Fault {
    let owner = there.owner_references().iter().find(|owner| owner.controller == Some(true));
    members::name_taken(&there.name_any(), owner.map(|owner| owner.name.as_str()))
}

fn refused(name: &str, words: &str) -> Fault {
    let words = human::sentence(&human::clipped(words, MAX_WORDS_BYTES));
    let message = format!(
        "The API server refuses the SyncJob {name}: {words} Correct spec.template if that is what it names, else the quota or \
         the admission policy that stands in the way. Where it names a field that cannot change, delete the SyncJob: the \
         set makes it anew."
    );
    Fault::new(Reason::ChildRefused, message)
}

/// Deletes a SyncJob whose claim went away, after another look at the claim.
async fn delete(context: &Context, set: &SyncJobSet, leftover: &Leftover) -> Result<(), Error> {
    let Leftover { name, uid, claim } = leftover;
    let claims = Api::<PersistentVolumeClaim>::namespaced(
        context.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let there = claims.get_opt(claim).await.map_err(reading("claim"))?;
    let heard_of = context.known.claims.get(&set.namespace().unwrap_or_default(), claim);
    let version = |claim: Option<&PersistentVolumeClaim>| claim.and_then(kube::ResourceExt::resource_version);
    if version(there.as_ref()) != version(heard_of.as_deref()) {
        there.iter().for_each(|claim| context.known.claims.wrote(claim));
        return Err(Error::Outdated);
    }
    let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match jobs(context, set).delete(name, &params).await {
        Ok(_) => {
            let namespace = set.namespace();
            tracing::info!(
                namespace,
                set = set.name_any(),
                name,
                claim,
                "the SyncJob of a claim that went away is deleted"
            );
            Ok(())
        }
        Err(kube::Error::Api(answer)) if [404, 409].contains(&answer.code) => Err(Error::Outdated),
        Err(source) => Err(ApplyError::Apply { kind: "SyncJob".into(), name: name.clone(), source }.into()),
    }
}

fn jobs(context: &Context, set: &SyncJobSet) -> Api<Guarded> {
    Api::namespaced(context.client.clone(), &set.namespace().unwrap_or_default())
}

/// Writes and announces the status, unless only counts have changed and were written a moment ago. Returns when to look
/// again.
async fn write(
    context: &Context,
    set: &SyncJobSet,
    new: &SyncJobSetStatus,
) -> Result<Option<Duration>, Error> {
    let old = set.status.clone().unwrap_or_default();
    let uid = set.uid().unwrap_or_default();
    let Some(difference) = merge_patch::difference(&old, new).map_err(Error::Render)? else {
        return Ok(None);
    };
    let is_news = set_standing::is_news(&old, new);
    if !is_news && context.told_sets.get(&uid, COUNTS_AGE).is_some() {
        return Ok(Some(COUNTS_AGE));
    }
    let patch =
        json!({"metadata": {"uid": uid, "resourceVersion": set.resource_version()}, "status": difference});
    patch_status(context, set, patch).await?;
    context.told_sets.put(&uid, ());
    if is_news {
        announce(context, set, &old, new).await;
    }
    Ok(None)
}

async fn patch_status(context: &Context, set: &SyncJobSet, patch: Value) -> Result<(), Error> {
    let api = Api::<GuardedSet>::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let written =
        api.patch_status(&set.name_any(), &params, &Patch::Merge(patch)).await.map_err(Error::Status)?;
    context.known.sets.wrote(&written);
    Ok(())
}

/// Announces that a set has stalled, or does so no more.
async fn announce(context: &Context, set: &SyncJobSet, old: &SyncJobSetStatus, new: &SyncJobSetStatus) {
    let stalled = |status: &SyncJobSetStatus| {
        conditions::find(&status.conditions, conditions::STALLED).map(|it| it.reason.clone())
    };
    let Some(ready) = conditions::find(&new.conditions, conditions::READY) else { return };
    let (namespace, name) = (set.namespace(), set.name_any());
    tracing::info!(namespace, name, reason = ready.reason, "{}", ready.message);
    if stalled(old) != stalled(new) {
        let (reason, message) = (ready.reason.as_str().into(), ready.message.clone());
        context.events.publish(set, &Note { warning: stalled(new).is_some(), reason, message }).await;
    }
}

/// Reports in the status of a set that this operator cannot parse it. Its SyncJobs stay as they are.
async fn set_aside(unreadable: InvalidObject, context: &Context) -> Result<Action, Error> {
    let InvalidObject { error, metadata } = unreadable;
    let generation = metadata.generation.unwrap_or(0);
    let set = SyncJobSet { metadata, spec: SyncJobSetSpec::default(), status: None };
    let message = format!("This operator cannot read the SyncJobSet, which may be of a newer one: {error}.");
    let mut new = SyncJobSetStatus { observed_generation: Some(generation), ..SyncJobSetStatus::default() };
    let cause = conditions::Cause { reason: &Reason::InvalidSpec, message: &message, generation };
    conditions::stalled(&mut new.conditions, cause, Timestamp::now());
    let told = json!({"observedGeneration": generation, "conditions": new.conditions});
    patch_status(context, &set, json!({"status": told})).await?;
    announce(context, &set, &SyncJobSetStatus::default(), &new).await;
    Ok(Action::await_change())
}
