//! Decides which SyncJobs a SyncJobSet makes, changes, suspends and deletes, and how it stands. Pure.

use contract::Reason;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Resource as _, ResourceExt as _,
    core::{DeserializeGuard, Selector, SelectorExt as _},
};
use serde_json::{Value, json};

use super::template::{self, Filled, Values};
use crate::{
    api::{SetDeletionPolicy, SetProblem, SyncJob, SyncJobSet, SyncJobSpec},
    fault::Fault,
    names,
};

/// The number of problems that a status names.
pub const MAX_PROBLEMS: usize = 10;

/// A SyncJob that is there, or only its metadata if it cannot be read.
type MemberJob = Arc<DeserializeGuard<SyncJob>>;

/// Returns the set that owns a SyncJob.
pub fn owner(job: &impl kube::ResourceExt) -> Option<&OwnerReference> {
    let is_set = |it: &&OwnerReference| {
        it.kind == SyncJobSet::kind(&())
            && it.api_version == SyncJobSet::api_version(&())
            && it.controller == Some(true)
    };
    job.owner_references().iter().find(is_set)
}

/// What a set does next.
#[derive(Debug, Default)]
pub struct Plan {
    /// The number of claims that match.
    pub matched: usize,
    /// The names of the SyncJobs of these claims, as far as they are the set's own.
    pub members: BTreeSet<String>,
    /// The SyncJobs to make or to change.
    pub apply: Vec<Change>,
    /// The SyncJobs to delete.
    pub delete: Vec<Leftover>,
    /// The names of the SyncJobs that stay without a claim.
    pub kept: BTreeSet<String>,
    /// What stands in the way.
    pub problems: Vec<SetProblem>,
}

/// A SyncJob to make or to change.
#[derive(Debug)]
pub struct Change {
    /// The claim; `None` if it went away.
    pub claim: Option<String>,
    /// The SyncJob's name.
    pub name: String,
    /// The fields that are the set's.
    pub manifest: Value,
    /// The UID of the SyncJob that is changed; `None` if it is made.
    pub uid: Option<String>,
}

/// A SyncJob to delete.
#[derive(Debug)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The claim that it was made for.
    pub claim: String,
}

/// Returns whether a set is for a claim, whatever its SyncJobs write to. Fails if the selector is not valid.
pub fn selects(set: &SyncJobSet, claim: &PersistentVolumeClaim) -> Result<bool, Fault> {
    let is_empty = set.spec.claim_selector.match_labels.iter().flatten().next().is_none()
        && set.spec.claim_selector.match_expressions.iter().flatten().next().is_none();
    let selector = Selector::try_from(set.spec.claim_selector.clone())
        .map_err(|error| Fault::new(Reason::InvalidTemplate, format!("spec.claimSelector: {error}")))?;
    let is_of_run = claim.labels().contains_key(names::LABEL_RUN);
    Ok(!is_empty && !is_of_run && selector.matches(claim.labels()))
}

/// Decides what a set does next. `claims` and `jobs` are all of its namespace.
pub fn plan(set: &SyncJobSet, claims: &[Arc<PersistentVolumeClaim>], jobs: &[MemberJob]) -> Plan {
    let mut plan = Plan::default();
    let own =
        |job: &&MemberJob| owner(&***job).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref());
    let owned: Vec<&MemberJob> = jobs.iter().filter(own).collect();
    let mut selected = Vec::new();
    for claim in claims {
        match selects(set, claim) {
            Ok(true) => selected.push(claim),
            Ok(false) => {}
            Err(fault) => {
                plan.complain(None, None, fault);
                return plan;
            }
        }
    }
    selected.sort_by_key(|claim| claim.name_any());
    let filled: Vec<_> = selected
        .iter()
        .map(|it| (it.name_any(), template::fill(set, Values::new(&it.name_any(), it.labels()))))
        .collect();
    let written = written(set, &filled, &owned);
    let matches: Vec<_> = filled
        .into_iter()
        .filter(|(claim, _)| written.get(claim).is_none_or(|writers| writers.iter().all(|by| by == claim)))
        .collect();
    plan.matched = matches.len();
    let wished: BTreeSet<String> = matches.iter().map(|(claim, _)| claim.clone()).collect();
    if matches.is_empty() {
        plan.judge_sample(set);
    }
    let mut taken = BTreeMap::new();
    for (claim, filled) in matches {
        match filled {
            Ok(filled) => plan.settle(set, claim, filled, jobs, &mut taken),
            Err(fault) => plan.complain(Some(claim), None, fault),
        }
    }
    let in_place: BTreeSet<&String> = taken.values().collect();
    for job in owned.iter().filter(|job| job.meta().deletion_timestamp.is_none()) {
        let claim = job.annotations().get(names::ANNOTATION_CLAIM).cloned().unwrap_or_default();
        // The SyncJob of a claim that its template does not suit stays as it is.
        if taken.contains_key(&job.name_any()) {
            continue;
        }
        if in_place.contains(&claim) {
            // The claim matches: the template only has another name for its SyncJob.
            plan.keep(job);
        } else if !wished.contains(&claim) {
            plan.leave(set, job, claim);
        }
    }
    plan
}

/// Returns the claims of the set's namespace that its SyncJobs write to, and the claims for which they do.
fn written(
    set: &SyncJobSet,
    filled: &[(String, Result<Filled, Fault>)],
    owned: &[&MemberJob],
) -> BTreeMap<String, Vec<String>> {
    let own = set.namespace().unwrap_or_default();
    let mut written = BTreeMap::<String, Vec<String>>::new();
    let mut note = |spec: &Value, by: &str| {
        let end = &spec["destination"]["persistentVolumeClaim"];
        let is_here = end["namespace"].as_str().is_none_or(|namespace| namespace == own);
        if let Some(claim) = end["claimName"].as_str().filter(|_| is_here) {
            written.entry(claim.into()).or_default().push(by.into());
        }
    };
    filled.iter().filter_map(|(claim, it)| Some((claim, it.as_ref().ok()?))).for_each(|(claim, it)| {
        note(it.spec(), claim);
    });
    for job in owned {
        let Ok(job) = &job.0 else { continue };
        let spec =
            json!({"destination": {"persistentVolumeClaim": job.spec.destination.persistent_volume_claim}});
        note(&spec, job.annotations().get(names::ANNOTATION_CLAIM).map_or("", String::as_str));
    }
    written
}

impl Plan {
    /// Notes a problem, unless enough are known.
    pub fn complain(&mut self, claim: Option<String>, job: Option<String>, fault: Fault) {
        if self.problems.len() < MAX_PROBLEMS {
            let Fault { reason, message } = fault;
            self.problems.push(SetProblem { claim, sync_job: job, reason, message });
        }
    }

    /// Judges the template while no claim matches, so that a mistake is told before the first one does.
    fn judge_sample(&mut self, set: &SyncJobSet) {
        let judged = template::fill(set, Values::sample())
            .and_then(|filled| template::judge(&filled, "sample", &set.namespace().unwrap_or_default()));
        if let Err(fault) = judged {
            self.complain(None, None, fault);
        }
    }

    /// Decides about the SyncJob of a claim.
    fn settle(
        &mut self,
        set: &SyncJobSet,
        claim: String,
        filled: Filled,
        jobs: &[MemberJob],
        taken: &mut BTreeMap<String, String>,
    ) {
        let name = filled.name.clone();
        if let Some(other) = taken.get(&name) {
            let message = format!(
                "spec.template.metadata.name: the claims {other} and {claim} would share the SyncJob {name}; write \
                 {{{{ .claim.name }}}} in it"
            );
            return self.complain(Some(claim), Some(name), Fault::new(Reason::InvalidTemplate, message));
        }
        let there = jobs.iter().find(|job| job.name_any() == name);
        if let Some(there) = there.filter(|it| !is_own(it.as_ref(), set)) {
            let fault = name_taken(&name, owner(&**there).map(|owner| owner.name.as_str()));
            return self.complain(Some(claim), Some(name), fault);
        }
        taken.insert(name.clone(), claim.clone());
        self.members.insert(name.clone());
        let is_going = there.is_some_and(|there| there.meta().deletion_timestamp.is_some());
        if is_going || there.is_some_and(|there| is_as_wished(there, &filled)) {
            return;
        }
        // Each is judged in full, which takes about a millisecond, and not once enough is known to be wrong.
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        match template::judge(&filled, &claim, &set.namespace().unwrap_or_default()) {
            Err(fault) => self.complain(Some(claim), Some(name), fault),
            Ok(()) => {
                let uid = there.and_then(|there| there.uid());
                self.apply.push(Change { claim: Some(claim), name, manifest: filled.manifest, uid });
            }
        }
    }

    /// Decides about a SyncJob whose claim is gone or does not match any more.
    fn leave(&mut self, set: &SyncJobSet, job: &MemberJob, claim: String) {
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        if set.spec.deletion_policy == SetDeletionPolicy::Delete {
            return self.delete.push(Leftover { name, uid, claim });
        }
        self.keep(job);
    }

    /// Leaves a SyncJob there, suspended, with the copy that it owns.
    fn keep(&mut self, job: &MemberJob) {
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        self.kept.insert(name.clone());
        let Ok(job) = &job.0 else { return };
        if !job.spec.suspend {
            self.apply.push(Change { claim: None, name, manifest: suspended(job), uid: Some(uid) });
        }
    }
}

/// Returns whether a set owns a SyncJob.
pub fn is_own(job: &impl kube::ResourceExt, set: &SyncJobSet) -> bool {
    owner(job).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

/// Returns the fault of a SyncJob that is there and not the set's own.
pub fn name_taken(name: &str, other: Option<&str>) -> Fault {
    let whose = other.map_or_else(|| "no SyncJobSet's".into(), |other| format!("the SyncJobSet {other}'s"));
    let message = format!(
        "The SyncJob {name} is there already, and is {whose}: it is left as it is. Delete it, or write another name in \
         spec.template.metadata.name."
    );
    Fault::new(Reason::NameTaken, message)
}

/// Returns the manifest of a SyncJob as it is, but suspended. It has no hash, so that the template is applied again if
/// the claim comes back.
fn suspended(job: &SyncJob) -> Value {
    let mut annotations = job.annotations().clone();
    annotations.retain(|key, _| key == names::ANNOTATION_CLAIM);
    let mut labels = job.labels().clone();
    labels.retain(|key, _| [names::LABEL_MANAGED_BY, names::LABEL_SYNCJOBSET].contains(&key.as_str()));
    let spec = SyncJobSpec { suspend: true, ..job.spec.clone() };
    json!({
        "apiVersion": SyncJob::api_version(&()),
        "kind": SyncJob::kind(&()),
        "metadata": {"name": job.metadata.name, "namespace": job.metadata.namespace, "labels": labels,
            "annotations": annotations, "ownerReferences": [owner(job)]},
        "spec": spec,
    })
}

/// Returns whether a SyncJob has what the template says: its hash, and in each of its fields the same value.
fn is_as_wished(there: &MemberJob, filled: &Filled) -> bool {
    if there.annotations().get(names::ANNOTATION_TEMPLATE).map(String::as_str) != Some(filled.hash()) {
        return false;
    }
    let Ok(job) = &there.0 else { return true };
    let wished = &filled.manifest["metadata"];
    let metadata = json!({"labels": job.labels(), "annotations": job.annotations()});
    let (Ok(spec), Ok(there)) =
        (serde_json::from_value::<SyncJobSpec>(filled.spec().clone()), serde_json::to_value(&job.spec))
    else {
        return false;
    };
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let is_same = |field: &str| holds(&wished[field], &wished[field], &metadata[field]);
    is_same("labels") && is_same("annotations") && holds(filled.spec(), &spec, &there)
}

/// Returns whether `there` has the value of `wished` in each field that `written` names. Both have come through the
/// same types, so that one value has one form.
fn holds(written: &Value, wished: &Value, there: &Value) -> bool {
    match written {
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            let of = |all: &Value| all.get(name).cloned().unwrap_or_default();
            holds(value, &of(wished), &of(there))
        }),
        _ => wished == there,
    }
}

#[cfg(test)]
mod tests;
