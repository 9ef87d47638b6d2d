//! The two ends of a run: in which namespace the pods of each run, who consents to that, and who owns what is made
//! there. Pure.

use std::collections::BTreeSet;

use contract::Side;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::source_and_sink::Ends;
use crate::{
    api::{RunFolder, SyncGrant, SyncJob, SyncRun},
    fault::Fault,
    grants::{find_grant::Granted, namespace_annotations::NamespaceUsers},
    names::{self, TryNames},
    pods::stored_fields::Job,
    volumes::claims::LostClaim,
};

/// The namespace of one end of a run, and who consents to the use of its claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndNamespace {
    /// The namespace of its claim, where its pods run.
    pub namespace: String,
    /// What that namespace's annotations say about syncers.
    pub users: NamespaceUsers,
    /// Who consents to the use of the claim.
    pub consent: Consent,
}

/// Who consents to the use of an end's claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Consent {
    /// Nobody has to: the claim is of the SyncJob's own namespace.
    #[default]
    Own,
    /// A grant of the claim's namespace.
    Granted(Granted),
    /// Nobody does.
    Refused(Fault),
    /// Somebody outside of the cluster, by listing the job's key: the end is an endpoint, and mounts nothing here.
    Remote,
}

impl EndNamespace {
    /// Returns the grant that owns what is made for this end; `None` if the end is of the SyncJob's own namespace.
    pub fn grant(&self) -> Option<&Granted> {
        match &self.consent {
            Consent::Granted(granted) => Some(granted),
            Consent::Own | Consent::Refused(_) | Consent::Remote => None,
        }
    }
}

impl Ends<EndNamespace> {
    /// Returns the first claim that may not be used.
    pub fn refusal(&self) -> Option<LostClaim> {
        [Side::Sink, Side::Source].into_iter().find_map(|side| match &self.of(side).consent {
            Consent::Refused(fault) => Some(LostClaim { side, fault: fault.clone() }),
            Consent::Own | Consent::Granted(_) | Consent::Remote => None,
        })
    }

    /// Returns the namespaces that do not let syncers run as root, by this reading of their annotations.
    pub fn without_root(&self) -> Vec<&str> {
        let ends = self.iter().filter(|end| end.consent != Consent::Remote);
        let ends = ends.filter(|end| !end.users.is_privileged());
        let mut namespaces: Vec<&str> = ends.map(|end| end.namespace.as_str()).collect();
        namespaces.dedup();
        namespaces
    }
}

/// Returns the owner of what is made for an end in a granted claim's namespace.
pub fn owner(granted: &Granted) -> OwnerReference {
    OwnerReference {
        api_version: <SyncGrant as kube::Resource>::api_version(&()).into_owned(),
        kind: <SyncGrant as kube::Resource>::kind(&()).into_owned(),
        name: granted.name.clone(),
        uid: granted.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Returns whether a grant owns a child.
pub fn is_of_grant(child: &impl ResourceExt) -> bool {
    let kind = <SyncGrant as kube::Resource>::kind(&());
    child.owner_references().iter().any(|owner| owner.kind == kind)
}

/// Returns the name of the grant that owns a Job.
pub fn grant_of(job: &Job) -> Option<&str> {
    let kind = <SyncGrant as kube::Resource>::kind(&());
    job.owner_references().iter().find(|owner| owner.kind == kind).map(|owner| owner.name.as_str())
}

/// Returns the namespace of the SyncJob that a child belongs to. What is made in another namespace says so.
pub fn job_namespace(child: &impl ResourceExt) -> Option<String> {
    child.annotations().get(names::ANNOTATION_NAMESPACE).cloned().or_else(|| child.namespace())
}

/// Returns whether a child was made in another namespace for the SyncJob of that namespace and UID.
pub fn is_abroad(child: &impl ResourceExt, namespace: &str, uid: &str) -> bool {
    child.namespace().as_deref() != Some(namespace)
        && is_of_grant(child)
        && child.annotations().get(names::ANNOTATION_NAMESPACE).is_some_and(|it| it == namespace)
        && child.annotations().get(names::ANNOTATION_UID).is_some_and(|it| it == uid)
}

/// The namespaces in which a SyncJob's runs have pods or had some, for each end.
#[derive(Debug, Clone, Default)]
pub struct Places {
    own: String,
    all: Ends<BTreeSet<String>>,
    /// The label of the try under way, and the namespaces of its ends.
    current: Option<(String, Ends<String>)>,
}

impl Places {
    /// Collects the namespaces of a SyncJob's ends by its spec, its run under way and its SyncRuns.
    pub fn of_job<'a>(job: &SyncJob, runs: impl IntoIterator<Item = &'a SyncRun>) -> Self {
        let own = job.namespace().unwrap_or_default();
        let mut places = Self { own, ..Self::default() };
        job.spec.claims().for_each(|(side, claim)| places.add(claim.namespace.as_ref(), side));
        runs.into_iter().for_each(|run| places.add_run(run));
        if let Some(run) = job.status.as_ref().and_then(|status| status.active_run.as_ref()) {
            let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
            let names = TryNames::new(&name, &uid, run.number, run.past_tries());
            places.add_folders(run.source.as_ref(), run.destination.as_ref());
            let namespace = |side| run.folder(side)?.namespace.clone();
            let ends = Ends::each(|side| namespace(side).unwrap_or_else(|| places.own.clone()));
            places.current = Some((names.label(), ends));
        }
        places
    }

    /// Collects the namespaces of one run of a SyncJob of that namespace.
    pub fn of_run(own: &str, run: &SyncRun) -> Self {
        let mut places = Self { own: own.into(), ..Self::default() };
        places.add_run(run);
        places
    }

    fn add_run(&mut self, run: &SyncRun) {
        self.add_folders(run.spec.source.as_ref(), run.spec.destination.as_ref());
    }

    fn add_folders(&mut self, source: Option<&RunFolder>, destination: Option<&RunFolder>) {
        self.add(source.and_then(|it| it.namespace.as_ref()), Side::Source);
        self.add(destination.and_then(|it| it.namespace.as_ref()), Side::Sink);
    }

    fn add(&mut self, namespace: Option<&String>, side: Side) {
        self.all.of_mut(side).extend(namespace.filter(|it| **it != self.own).cloned());
    }

    /// Returns the SyncJob's namespace.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Returns the other namespaces.
    pub fn abroad(&self) -> BTreeSet<&String> {
        self.all.iter().flatten().collect()
    }

    /// Returns whether a child with the SyncJob's label is one of its children. In another namespace, where others may
    /// set the same labels, only an end that has its place there counts.
    pub fn have(&self, child: &impl ResourceExt) -> bool {
        let namespace = child.namespace().unwrap_or_default();
        if job_namespace(child).as_ref() != Some(&self.own) {
            return false;
        }
        let side = child.labels().get(names::LABEL_SIDE);
        let side =
            if side.is_some_and(|it| *it == Side::Source.to_string()) { Side::Source } else { Side::Sink };
        let of_try = child.labels().get(names::LABEL_TRY);
        match self.current.as_ref().filter(|(label, _)| of_try == Some(label)) {
            Some((_, ends)) => namespace == *ends.of(side),
            None if namespace == self.own => true,
            None => self.all.of(side).contains(&namespace),
        }
    }
}
