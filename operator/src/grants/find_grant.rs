//! Finds the grant by which a SyncJob may use a claim of another namespace, or says what to ask for. Pure.

use std::collections::BTreeMap;

use contract::{Reason, Side};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{
    api::{GrantAccess, GrantedNamespace, KnownNamespace, SyncGrant},
    ends::claim_end::NamespacedClaim,
    fault::Fault,
    names,
    volumes::claims::field,
};

/// A claim that a SyncJob of another namespace asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The end that is to use the claim.
    pub side: Side,
    /// The claim.
    pub claim: &'a NamespacedClaim,
    /// The labels of the claim; `None` if it does not exist.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// What the end does with the claim.
    pub access: GrantAccess,
    /// The namespace of the SyncJob.
    pub from: &'a Applicant<'a>,
    /// The present time.
    pub now: Timestamp,
}

/// The namespace of a SyncJob that asks for a claim of another one.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    /// Its name.
    pub namespace: &'a str,
    /// Its UID; `None` if it cannot be read.
    pub uid: Option<&'a str>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// A grant that covers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The grant's name.
    pub name: String,
    /// The grant's UID.
    pub uid: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    /// Whether it is for the SyncJob's namespace because of that namespace's labels.
    pub is_by_labels: bool,
}

/// Why a grant that is for the SyncJob's namespace and for the claim does not cover the request.
#[derive(Debug, PartialEq, Eq)]
enum Shortage {
    Ended(Timestamp),
    ReadsOnly,
    OtherNamespace,
    Unreadable,
}

/// A grant that does not cover the request.
struct ShortGrant {
    name: String,
    shortage: Shortage,
}

/// Returns the grant that covers a request: of several, the one that ends last.
///
/// # Errors
/// Says whom to ask, and for what. `used` is the grant by which a run under way uses the claim.
pub fn find<'a>(
    grants: impl IntoIterator<Item = &'a SyncGrant>,
    request: Request<'_>,
    used: Option<&str>,
) -> Result<Granted, Fault> {
    let mut short = Vec::new();
    let mut covering = Vec::new();
    for grant in grants.into_iter().filter(|grant| is_about(grant, request)) {
        match shortage(grant, request) {
            None => covering.push(granted(grant, request)),
            Some(shortage) => short.push(ShortGrant { name: grant.name_any(), shortage }),
        }
    }
    covering.sort_by_key(|it| (std::cmp::Reverse(it.until.unwrap_or(Timestamp::MAX)), it.name.clone()));
    short.sort_by(|a, b| a.name.cmp(&b.name));
    covering.into_iter().next().ok_or_else(|| refused(request, short.first(), used))
}

/// Returns whether a grant, which may have ended, names the claim and the SyncJob's namespace.
fn is_about(grant: &SyncGrant, request: Request<'_>) -> bool {
    let is_claim = grant.spec.claims.iter().any(|it| {
        let by_labels =
            it.selector.as_ref().zip(request.labels).is_some_and(|(it, labels)| it.selects(labels));
        it.name.as_ref() == Some(&request.claim.name) || by_labels
    });
    let by_name = |it: &GrantedNamespace| it.namespace.as_deref() == Some(request.from.namespace);
    grant.namespace().as_ref() == Some(&request.claim.namespace)
        && grant.metadata.deletion_timestamp.is_none()
        && is_claim
        && (grant.spec.from.iter().any(by_name) || is_by_labels(grant, request))
}

fn shortage(grant: &SyncGrant, request: Request<'_>) -> Option<Shortage> {
    if let Some(until) = grant.spec.until.as_ref().map(|until| until.0).filter(|it| *it <= request.now) {
        return Some(Shortage::Ended(until));
    }
    if grant.spec.access < request.access {
        return Some(Shortage::ReadsOnly);
    }
    if is_by_labels(grant, request) {
        return None;
    }
    let Some(uid) = request.from.uid else { return Some(Shortage::Unreadable) };
    known(grant, request.from.namespace).is_some_and(|known| known != uid).then_some(Shortage::OtherNamespace)
}

/// Returns the namespaces that have used a grant as it is.
pub fn noted(grant: &SyncGrant) -> Vec<KnownNamespace> {
    let status = grant.status.as_ref();
    let status = status.filter(|it| it.observed_generation == grant.metadata.generation);
    status.map(|status| status.namespaces.clone()).unwrap_or_default()
}

/// Returns the UID that the namespace had when a SyncJob of it first used the grant as it is.
fn known<'a>(grant: &'a SyncGrant, namespace: &str) -> Option<&'a str> {
    let status = grant.status.as_ref().filter(|it| it.observed_generation == grant.metadata.generation)?;
    status.namespaces.iter().find(|it| it.name == namespace).map(|it| it.uid.as_str())
}

fn is_by_labels(grant: &SyncGrant, request: Request<'_>) -> bool {
    let mut selectors = grant.spec.from.iter().filter_map(|it| it.namespace_selector.as_ref());
    selectors.any(|it| it.selects(request.from.labels))
}

fn granted(grant: &SyncGrant, request: Request<'_>) -> Granted {
    Granted {
        name: grant.name_any(),
        uid: grant.uid().unwrap_or_default(),
        until: grant.spec.until.as_ref().map(|until| until.0),
        is_by_labels: is_by_labels(grant, request),
    }
}

/// Returns whether a grant has not yet noted which namespace of that name uses it.
pub fn lacks(grant: &SyncGrant, from: &Applicant<'_>) -> bool {
    let is_named = grant.spec.from.iter().any(|it| it.namespace.as_deref() == Some(from.namespace));
    is_named && known(grant, from.namespace).is_none()
}

fn refused(request: Request<'_>, short: Option<&ShortGrant>, used: Option<&str>) -> Fault {
    let Request { side, claim, access, from, .. } = request;
    let (end, namespace, own) = (field(side), &claim.namespace, from.namespace);
    let (verb, access) = match access {
        GrantAccess::Read => ("read", "Read"),
        GrantAccess::Write => ("write", "Write"),
    };
    let what = match (short.map(|grant| (&grant.name, &grant.shortage)), used) {
        (Some((name, Shortage::Ended(until))), _) => {
            format!("The SyncGrant {namespace}/{name} for the {end} claim {claim} ended at {until}.")
        }
        (Some((name, Shortage::ReadsOnly)), _) => {
            format!("The SyncGrant {namespace}/{name} lets the {end} claim {claim} be read, and not written.")
        }
        (Some((name, Shortage::OtherNamespace)), _) => format!(
            "The SyncGrant {namespace}/{name} for the {end} claim {claim} was used by another namespace {own}, before this one \
             was made under its name. Whoever may change the grant consents again by any change of its spec."
        ),
        (Some((name, Shortage::Unreadable)), _) => format!(
            "The SyncGrant {namespace}/{name} is for the {end} claim {claim} and namespace {own}, which the operator cannot read, \
             so that it does not know whether it is the one that used the grant before. Let the operator get that namespace."
        ),
        (None, Some(name)) => format!(
            "The SyncGrant {namespace}/{name}, by which the {end} claim {claim} was used, is withdrawn: it is gone, or is not for \
             that claim and namespace {own} any more."
        ),
        (None, None) => format!(
            "The {end} claim {claim} is of another namespace, and no SyncGrant there lets SyncJobs of namespace {own} {verb} it."
        ),
    };
    let name = names::shorten(&format!("{own}-{}", claim.name), 63);
    let message = format!(
        "{what} Ask whoever may create SyncGrants in namespace {namespace} for this one; the job goes on as soon as it is \
         there:\n\napiVersion: volferry.dev/v1alpha1\nkind: SyncGrant\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  from:\n  - namespace: {own}\n  claims:\n  - name: {}\n  access: {access}\n",
        claim.name
    );
    Fault::new(Reason::NotGranted, message)
}

/// Returns the fault of a claim in a namespace that the operator does not watch.
pub fn not_watched(side: Side, claim: &NamespacedClaim) -> Fault {
    let (end, namespace) = (field(side), &claim.namespace);
    let message = format!(
        "The {end} claim {claim} is of a namespace that this operator does not watch, so it sees neither the claim nor a \
         SyncGrant for it. Add {namespace} to the operator's --watch-namespaces (watchNamespaces of the chart)."
    );
    Fault::new(Reason::NamespaceNotWatched, message)
}
