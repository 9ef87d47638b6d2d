//! The fourth step: applies the built objects to the cluster by server-side apply under one field manager. The service
//! account and its RBAC objects come before the first Job, whose pods need them. An existing Job is left as it is.

use std::fmt::Debug;

use contract::{Reason, Side};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{batch::v1::Job, core::v1::PersistentVolumeClaim},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use thiserror::Error;

use super::stores::Watched;
use crate::{
    fault::Fault,
    human::{clipped, sentence},
    names::{FIELD_MANAGER, LABEL_TRY},
    pods::{Try, accounts::Accounts, build_try, children::Children, pod_permissions, stored_fields},
    run::{
        outcome::Outcome,
        stages::step::{Step, StorageStep},
    },
    volumes::{claim_growth::Growing, claims::Blocked},
};

/// HTTP status codes by which the API server rejects an object as it is: bad request, forbidden, invalid.
pub(crate) const REFUSALS: [u16; 3] = [400, 403, INVALID];
/// The HTTP status code for an object that is inconsistent or breaks a validation rule of its kind.
const INVALID: u16 = 422;
/// The maximum length of an API server message in a status, in bytes.
const MAX_WORDS_BYTES: usize = 2048;

/// The reasons why an object could not be created or changed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The API server rejected an object.
    #[error("cannot apply {kind} {name}")]
    Apply {
        /// The kind of the object.
        kind: String,
        /// The namespace and name of the object.
        name: String,
        /// The API server's error.
        #[source]
        source: kube::Error,
    },
    /// The API server rejected the expansion of a claim.
    #[error("cannot have the claim {name} grow to {size}")]
    Grow {
        /// The name of the claim.
        name: String,
        /// The requested size.
        size: String,
        /// The API server's error.
        #[source]
        source: kube::Error,
    },
}

/// The API server's objection to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The object itself is invalid, and stays rejected until the spec changes.
    Invalid(Fault),
    /// Something outside the object prevents it: a quota, a policy, the operator's RBAC permissions.
    Hindered(Fault),
    /// The destination's claim is rejected, for either reason.
    Claim(Fault),
    /// The VolumeSnapshot of the destination is rejected, for either reason.
    Image(Fault),
}

impl Refusal {
    /// Returns the step by which the run reacts to the rejection.
    pub(crate) fn step(self) -> Step {
        match self {
            Self::Invalid(fault) => Step::Finish(Outcome::stopped(fault)),
            Self::Hindered(fault) => Step::Start(Some(fault)),
            Self::Image(fault) => Step::Image(StorageStep::Wait(Some(fault))),
            Self::Claim(fault) => Step::Block(Blocked::Stalled(fault)),
        }
    }
}

impl ApplyError {
    /// Returns the API server's objection to the object; `None` if the error has another cause, such as an outage.
    pub fn refusal(&self) -> Option<Refusal> {
        let (Self::Apply { source, .. } | Self::Grow { source, .. }) = self;
        let kube::Error::Api(answer) = source else { return None };
        let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
        let (kind, name) = match self {
            Self::Apply { kind, name, .. } => (kind, name),
            Self::Grow { name, size, .. } => {
                let message = format!(
                    "The API server refuses to have the claim {name} grow to {size}: {words} Correct the storage class, the quota \
                     or the operator's rights that stand in the way, or set spec.destination.create.grow to false."
                );
                let fault = Fault::new(Reason::ClaimTooSmall, message);
                return REFUSALS.contains(&answer.code).then_some(Refusal::Claim(fault));
            }
        };
        let refused = format!("The API server refuses the {kind} {name}: {words}");
        if kind == "PersistentVolumeClaim" {
            let cure = "Correct spec.destination.create if that is what it names, else the quota, the admission policy or the \
                        operator's rights that stand in the way, or create the claim by hand.";
            let fault = Fault::new(Reason::ChildRefused, format!("{refused} {cure}"));
            return REFUSALS.contains(&answer.code).then_some(Refusal::Claim(fault));
        }
        let fault = |cure: &str| Fault::new(Reason::ChildRefused, format!("{refused} {cure}"));
        match answer.code {
            // Only Jobs depend on spec.pods; the other objects do not.
            INVALID if kind == "Job" => Some(Refusal::Invalid(fault(
                "No retry can help: correct spec.pods if that is what it names, else the admission policy that says so.",
            ))),
            code if REFUSALS.contains(&code) => Some(Refusal::Hindered(fault(&format!(
                "Correct spec.pods if that is what it names, else the quota, the admission policy or the operator's rights that \
                 stand in the way; the run goes on as soon as the {kind} is let in."
            )))),
            _ => None,
        }
    }
}

/// Creates the destination's claim and returns it; `None` if a claim of that name exists by now, which serves as well.
/// Fails if the API server rejects the claim or cannot be reached.
pub async fn create_claim(
    client: &Client,
    claim: &PersistentVolumeClaim,
) -> Result<Option<PersistentVolumeClaim>, ApplyError> {
    match create(client, claim).await {
        Err(ApplyError::Apply { source: kube::Error::Api(answer), .. }) if answer.code == 409 => Ok(None),
        done => done.map(Some),
    }
}

/// Requests a larger size for a claim, provided that it has not changed since it was read, and returns the claim. Fails
/// if the API server rejects the request, also because of such a change.
pub async fn grow_claim(client: &Client, growing: &Growing) -> Result<PersistentVolumeClaim, ApplyError> {
    let Growing { claim, to, .. } = growing;
    let (name, size) = (claim.name_any(), to.0.clone());
    let metadata = json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version});
    let spec = json!({"resources": {"requests": {"storage": size}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let api =
        Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let grown = api.patch(&name, &params, &Patch::Merge(json!({"metadata": metadata, "spec": spec}))).await;
    grown.map_err(|source| ApplyError::Grow { name, size, source })
}

/// Creates the missing objects of a try next to its existing `children`, and notes the new Jobs in `known`. Fails at
/// the first object that the API server rejects.
pub async fn launch(
    client: &Client,
    known: &Watched<stored_fields::Job>,
    accounts: &Accounts,
    of: &Try<'_>,
    children: &Children,
) -> Result<(), ApplyError> {
    let there = |side| children.job_of(of.names, side).is_some();
    let (has_source, has_sink) = (there(Side::Source), there(Side::Sink));
    grant(client, accounts, of).await?;
    if let Some(side) = of.run.only_side() {
        if !there(side) {
            known.wrote(&apply_job(client, &build_try::only_pod(of)).await?);
        }
        return Ok(());
    }
    let ends = build_try::ends(of);
    if !has_sink {
        known.wrote(&apply_job(client, &ends.sink).await?);
    }
    if !has_source {
        known.wrote(&apply_job(client, &ends.source).await?);
    }
    Ok(())
}

/// Applies a Job. If the API server refuses that because another operator has made it for the same run meanwhile, with
/// pods of other settings, the Job is left as it is. The next look judges its spec, image and node, as those of any Job
/// ([`Children::is_outdated`]), and makes it anew if it has to.
async fn apply_job(client: &Client, job: &Job) -> Result<Job, ApplyError> {
    let refused = match apply(client, job).await {
        Err(ApplyError::Apply { source: kube::Error::Api(answer), .. }) if answer.code == INVALID => answer,
        done => return done,
    };
    let owners = |job: &Job| job.owner_references().iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>();
    let of_try = |job: &Job| job.labels().get(LABEL_TRY).cloned();
    let api = Api::<Job>::namespaced(client.clone(), &job.namespace().unwrap_or_default());
    // The operator may list Jobs, which it watches, and has no right to get one.
    let named = ListParams::default().fields(&format!("metadata.name={}", job.name_any()));
    let there = api.list(&named).await.map_err(failed(job))?.items.into_iter().next();
    let ours = there.filter(|there| owners(there) == owners(job) && of_try(there) == of_try(job));
    ours.ok_or_else(|| failed(job)(kube::Error::Api(refused)))
}

/// Gives a run its service account with the RBAC permissions. If this operator created the account and its binding
/// before, only the role is applied, provided that it is the run's first try.
pub async fn grant(client: &Client, accounts: &Accounts, of: &Try<'_>) -> Result<(), ApplyError> {
    let built = build_try::groundwork(of);
    let (namespace, job) = (of.job.namespace.as_str(), of.job.name.as_str());
    let account = format!(
        "{} of {}",
        built.role_binding.name_any(),
        pod_permissions::service_account_name(of, of.run.only_side().unwrap_or(Side::Sink))
    );
    let is_at_home = built.accounts_abroad.is_empty();
    let is_there = is_at_home && of.run.past_tries() == 0 && accounts.has(namespace, job, &account);
    if let Some(account) = built.service_account.as_ref().filter(|_| !is_there) {
        apply(client, account).await?;
    }
    for account in &built.accounts_abroad {
        apply(client, account).await?;
    }
    apply(client, &built.role).await?;
    if !is_there {
        apply(client, &built.role_binding).await?;
        accounts.note(namespace, job, &account);
    }
    Ok(())
}

/// The kinds of objects that can be made in a namespace.
pub(crate) trait Applicable:
    kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Applicable for K where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

async fn create<K: Applicable>(client: &Client, object: &K) -> Result<K, ApplyError> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.create(&params, object).await.map_err(failed(object))
}

/// Applies an object, and returns it. Fails if the API server rejects it or cannot be reached.
pub(crate) async fn apply<K: Applicable>(client: &Client, object: &K) -> Result<K, ApplyError> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.patch(&object.name_any(), &params, &Patch::Apply(object)).await.map_err(failed(object))
}

fn failed<K: kube::Resource<DynamicType = ()>>(object: &K) -> impl FnOnce(kube::Error) -> ApplyError {
    let kind = K::kind(&()).into_owned();
    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    |source| ApplyError::Apply { kind, name, source }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, message: &str) -> ApplyError {
        let source =
            kube::Error::Api(Box::new(Status { code, message: message.into(), ..Status::default() }));
        ApplyError::Apply { kind: "Job".into(), name: "vf-web-1-sink".into(), source }
    }

    #[test]
    fn what_the_api_server_refuses_is_named_with_its_words() {
        for code in REFUSALS {
            let fault = match answered(code, "exceeded quota: jobs").refusal().unwrap() {
                Refusal::Invalid(fault) if code == 422 => fault,
                Refusal::Hindered(fault) if code != 422 => fault,
                other => panic!("{code}: {other:?}"),
            };
            assert_eq!(fault.reason, "ChildRefused");
            let words = "The API server refuses the Job vf-web-1-sink: exceeded quota: jobs. ";
            assert!(fault.message.starts_with(words), "{}", fault.message);
            assert!(fault.message.to_lowercase().contains("correct spec.pods"), "{}", fault.message);
        }
    }

    #[test]
    fn a_destination_that_is_refused_stalls_and_says_what_to_do() {
        let status = Status { code: 403, message: "exceeded quota: storage".into(), ..Status::default() };
        let source = kube::Error::Api(Box::new(status));
        let refused = ApplyError::Apply { kind: "PersistentVolumeClaim".into(), name: "b".into(), source };
        let Some(Step::Block(Blocked::Stalled(fault))) = refused.refusal().map(Refusal::step) else {
            panic!()
        };
        let words = "The API server refuses the PersistentVolumeClaim b: exceeded quota: storage. Correct spec.destination.create";
        assert!(fault.message.starts_with(words), "{}", fault.message);
    }

    #[test]
    fn what_may_be_over_in_a_moment_is_no_refusal() {
        for code in [401, 404, 409, 429, 500, 503] {
            assert_eq!(answered(code, "m").refusal(), None, "{code}");
        }
    }
}
