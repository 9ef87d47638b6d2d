//! The fourth step: brings into the cluster what was built, by server-side apply under one field manager. The account
//! and its rights come before the first Job, whose pods need them. A Job that is there is left as it is.

use std::fmt::Debug;

use contract::Side;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{batch::v1::Job, core::v1::PersistentVolumeClaim},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{build, watched::Watched};
use crate::{
    api::conditions::reason,
    fault::Fault,
    human::{clipped, sentence},
    model::{children::Children, claims::Blocked, outcome::Outcome},
    names::FIELD_MANAGER,
    resources::Try,
    stages::situation::Step,
};

/// What the API server answers to an object that it does not take as it is: bad request, forbidden, invalid.
const REFUSALS: [u16; 3] = [400, 403, INVALID];
/// What it answers to an object that contradicts itself or breaks a rule of its kind.
const INVALID: u16 = 422;
/// The most of the API server's words that get into a status.
const MAX_WORDS_BYTES: usize = 2048;

/// What could not be made.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The API server refused an object.
    #[error("cannot apply {kind} {name}")]
    Apply {
        /// Of which kind.
        kind: String,
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

/// What the API server has against an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The object is at fault, and is refused until the spec is another.
    Invalid(Fault),
    /// Something beside it is: a quota, a policy, the operator's rights.
    Hindered(Fault),
    /// The destination's claim is refused, for either reason.
    Claim(Fault),
}

impl Refusal {
    /// What becomes of the run.
    pub(super) fn step(self) -> Step {
        match self {
            Self::Invalid(fault) => Step::Finish(Outcome::stopped(fault)),
            Self::Hindered(fault) => Step::Start(Some(fault)),
            Self::Claim(fault) => Step::Block(Blocked::Stalled(fault)),
        }
    }
}

impl ApplyError {
    /// What the API server has against an object, if that is why it was not made.
    pub fn refusal(&self) -> Option<Refusal> {
        let Self::Apply { kind, name, source } = self;
        let kube::Error::Api(answer) = source else { return None };
        let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
        let refused = format!("The API server refuses the {kind} {name}: {words}");
        if kind == "PersistentVolumeClaim" {
            let cure = "Correct spec.destination.create if that is what it names, else the quota, the admission policy or the \
                        operator's rights that stand in the way, or create the claim by hand.";
            let fault = Fault::new(reason::CHILD_REFUSED, format!("{refused} {cure}"));
            return REFUSALS.contains(&answer.code).then_some(Refusal::Claim(fault));
        }
        let fault = |cure: &str| Fault::new(reason::CHILD_REFUSED, format!("{refused} {cure}"));
        match answer.code {
            // What is asked for besides Jobs does not depend on spec.pods.
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

/// Creates the destination's claim, and returns it. One of its name that somebody has made in between is as good.
pub async fn create_claim(
    client: &Client,
    claim: &PersistentVolumeClaim,
) -> Result<Option<PersistentVolumeClaim>, ApplyError> {
    match create(client, claim).await {
        Err(ApplyError::Apply { source: kube::Error::Api(answer), .. }) if answer.code == 409 => Ok(None),
        done => done.map(Some),
    }
}

/// Makes what is missing of a try, given what there is, and notes the Jobs among the `known` ones.
pub async fn launch(
    client: &Client,
    known: &Watched<Job>,
    of: &Try<'_>,
    children: &Children,
) -> Result<(), ApplyError> {
    let there = |side| children.job_of(of.names, side).is_some();
    let (has_source, has_sink) = (there(Side::Source), there(Side::Sink));
    groundwork(client, of).await?;
    if of.run.local {
        if !has_sink {
            known.wrote(&apply(client, &build::both_ends(of)).await?);
        }
        return Ok(());
    }
    let ends = build::ends(of);
    if !has_sink {
        known.wrote(&apply(client, &ends.sink).await?);
    }
    if !has_source {
        known.wrote(&apply(client, &ends.source).await?);
    }
    Ok(())
}

async fn groundwork(client: &Client, of: &Try<'_>) -> Result<(), ApplyError> {
    let built = build::groundwork(of);
    if let Some(account) = &built.service_account {
        apply(client, account).await?;
    }
    apply(client, &built.role).await?;
    apply(client, &built.role_binding).await?;
    Ok(())
}

async fn create<K>(client: &Client, object: &K) -> Result<K, ApplyError>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.create(&params, object).await.map_err(failed(object))
}

async fn apply<K>(client: &Client, object: &K) -> Result<K, ApplyError>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    api.patch(&object.name_any(), &params, &Patch::Apply(object)).await.map_err(failed(object))
}

fn failed<K: kube::Resource<DynamicType = ()>>(object: &K) -> impl FnOnce(kube::Error) -> ApplyError {
    let (kind, name) = (K::kind(&()).into_owned(), object.name_any());
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
