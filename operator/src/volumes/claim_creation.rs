//! Builds the claim that `spec.destination.create` asks for. Pure.

use contract::{Reason, Side};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Resource as _, api::ObjectMeta};

use super::claims::{self, Claim};
use crate::{
    api::{AccessMode, CreateClaim, DeletionPolicy, SyncJob},
    fault::Fault,
    names,
    spec::validate::ValidatedSyncJob,
};

/// Builds the claim that is to be created now; `None` if the spec asks for none, it exists, or the source cannot be
/// used. The claim gets no owner yet, so that the copy outlives the SyncJob: see [`given_to`].
pub fn due(job: &ValidatedSyncJob, claims: &[Claim]) -> Option<PersistentVolumeClaim> {
    let wanted = job.create.as_ref()?;
    let of = |side| claims.iter().find(|claim| claim.side == side);
    let (source, sink) = (of(Side::Source)?, of(Side::Sink)?);
    if sink.found.is_some() || claims::check(source).is_err() {
        return None;
    }
    let source = source.found.as_ref()?.spec.as_ref()?;
    let requested = source.resources.as_ref().and_then(|it| it.requests.as_ref()?.get("storage").cloned());
    let size = wanted.size.clone().map(Quantity).or(requested)?;
    let labels = [
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.to_string()),
        (names::LABEL_SYNCJOB, names::label_value(&job.name)),
    ];
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(job.ends.sink.claim()?.name.clone()),
            namespace: Some(job.namespace.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_string(), value)).into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            storage_class_name: wanted.storage_class_name.clone(),
            access_modes: Some(modes(wanted)),
            volume_mode: source.volume_mode.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_string(), size)].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

/// Makes the SyncJob the claim's owner if its deletion policy asks for that, so that the garbage collector deletes the
/// claim with the SyncJob, even without the operator.
pub fn given_to(mut claim: PersistentVolumeClaim, job: &SyncJob) -> PersistentVolumeClaim {
    if job.spec.deletion_policy == DeletionPolicy::Delete {
        claim.metadata.owner_references = job.owner_ref(&()).map(|owner| vec![owner]);
    }
    claim
}

/// Returns the status message about the creation of that claim.
pub fn announced(claim: &PersistentVolumeClaim) -> Fault {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let spec = claim.spec.as_ref();
    let size = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    let size = size.map_or("", |size| size.0.as_str());
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
    let class =
        class.map_or("the default storage class".into(), |class| format!("the storage class {class}"));
    Fault::new(Reason::Preparing, format!("The claim {name} is created, with {size} of {class}."))
}

fn modes(wanted: &CreateClaim) -> Vec<String> {
    let word = |mode: &AccessMode| match mode {
        AccessMode::ReadWriteOnce => "ReadWriteOnce",
        AccessMode::ReadWriteMany => "ReadWriteMany",
        AccessMode::ReadWriteOncePod => "ReadWriteOncePod",
    };
    wanted.access_modes.iter().map(|mode| word(mode).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{spec::validate::validate, volumes::claims::Class};

    fn job(create: Value) -> ValidatedSyncJob {
        let mut spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        spec["destination"]["create"] = create;
        validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap()
    }

    fn claim(side: Side, spec: Option<Value>) -> Claim {
        let found = spec
            .map(|spec| serde_json::from_value(json!({"spec": spec, "status": {"phase": "Bound"}})).unwrap());
        Claim { side, name: "prod/x".into(), found, class: Class::Unknown }
    }

    fn source() -> Claim {
        claim(
            Side::Source,
            Some(json!({"resources": {"requests": {"storage": "3Gi"}}, "volumeMode": "Block"})),
        )
    }

    fn made(create: Value) -> Option<Value> {
        let claim = due(&job(create), &[source(), claim(Side::Sink, None)])?;
        Some(serde_json::to_value(claim).unwrap())
    }

    #[test]
    fn a_claim_belongs_to_its_syncjob_only_where_that_is_wanted() {
        let owners = |policy: &str| {
            let job: SyncJob = serde_json::from_value(json!({
                "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
                "metadata": {"name": "web", "namespace": "prod", "uid": "u-1"},
                "spec": {
                    "source": {"persistentVolumeClaim": {"claimName": "a"}},
                    "destination": {"persistentVolumeClaim": {"claimName": "b"}, "create": {}},
                    "deletionPolicy": policy,
                },
            }))
            .unwrap();
            given_to(PersistentVolumeClaim::default(), &job).metadata.owner_references
        };
        assert_eq!(owners("Retain"), None);
        let [owner] = owners("Delete").unwrap().try_into().unwrap();
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("SyncJob", "u-1", None));
    }

    #[test]
    fn a_claim_is_of_the_sources_size_and_kind_unless_the_spec_says_more() {
        let least = made(json!({})).unwrap();
        assert_eq!(
            least["spec"],
            json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "3Gi"}}})
        );
        assert_eq!(
            (&least["metadata"]["name"], &least["metadata"]["namespace"]),
            (&json!("b"), &json!("prod"))
        );
        assert_eq!(least["metadata"]["ownerReferences"], Value::Null, "the copy outlives the SyncJob");
        let all = json!({"storageClassName": "fast", "accessModes": ["ReadWriteMany"], "size": "9Gi"});
        let spec = &made(all).unwrap()["spec"];
        assert_eq!(
            (&spec["storageClassName"], &spec["accessModes"]),
            (&json!("fast"), &json!(["ReadWriteMany"]))
        );
        assert_eq!(spec["resources"]["requests"]["storage"], "9Gi");
    }

    #[test]
    fn nothing_is_created_beside_a_claim_that_is_there_or_without_a_source() {
        let there = claim(Side::Sink, Some(json!({})));
        assert_eq!(due(&job(json!({})), &[source(), there]), None);
        let missing = [claim(Side::Source, None), claim(Side::Sink, None)];
        assert_eq!(due(&job(json!({"size": "1Gi"})), &missing), None);
        assert_eq!(made(Value::Null), None);
    }

    #[test]
    fn the_message_names_the_claim_its_size_and_its_class() {
        let said = |create| announced(&due(&job(create), &[source(), claim(Side::Sink, None)]).unwrap());
        assert_eq!(said(json!({})).message, "The claim b is created, with 3Gi of the default storage class.");
        let fast = said(json!({"storageClassName": "fast"}));
        assert_eq!(fast.message, "The claim b is created, with 3Gi of the storage class fast.");
    }
}
