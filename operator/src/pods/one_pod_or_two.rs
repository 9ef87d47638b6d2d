//! Decides whether one pod mounts both volumes of a job, so that its files cross no network. Pure.

use contract::Side;

use crate::{
    api::Placement,
    ends::end_kind::EndKind,
    spec::validate::ValidatedSyncJob,
    volumes::{access_modes, claims::Claim},
};

/// Completes the job with the placement that its claims allow, if the spec leaves it open. If a claim is unknown, the
/// network is chosen, which does not need both volumes on one node.
pub fn settle(job: ValidatedSyncJob, claims: &[Claim]) -> ValidatedSyncJob {
    let namespace = |end: &EndKind| end.claim().map(|claim| claim.namespace.clone());
    let is_local = match job.placement {
        _ if job.outside().is_some() || namespace(&job.ends.source) != namespace(&job.ends.sink) => false,
        Placement::Local => true,
        Placement::Network => false,
        Placement::Auto => wants_nothing_of_a_network(&job) && one_pod_can(&job, claims),
    };
    ValidatedSyncJob { is_local: is_local || is_in_place(&job), ..job }
}

/// Returns whether a volume is restored from its own snapshot, which always happens in one pod.
fn is_in_place(job: &ValidatedSyncJob) -> bool {
    job.params.source_snapshot.is_some() && is_one_claim(job)
}

fn is_one_claim(job: &ValidatedSyncJob) -> bool {
    job.ends.source.claim().is_some() && job.ends.source.claim() == job.ends.sink.claim()
}

fn wants_nothing_of_a_network(job: &ValidatedSyncJob) -> bool {
    job.parallelism == 1 && job.params.bandwidth_limit.is_none()
}

/// Returns whether one pod can mount both volumes. Volumes that are each tied to a node may be tied to different ones.
fn one_pod_can(job: &ValidatedSyncJob, claims: &[Claim]) -> bool {
    let is_anywhere = |side| {
        let found = claims.iter().find(|claim| claim.side == side).and_then(|claim| claim.found.as_ref());
        found.is_some_and(|found| access_modes::is_for_many_nodes(found, side))
    };
    is_one_claim(job) || (is_anywhere(Side::Source) && is_anywhere(Side::Sink))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{spec::validate, volumes::claims::Class};

    fn job(spec: &Value) -> ValidatedSyncJob {
        let mut whole = json!({
            "source": {"persistentVolumeClaim": {"claimName": "from"}},
            "destination": {"persistentVolumeClaim": {"claimName": "to"}},
        });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        validate::validate(&serde_json::from_value(whole).unwrap(), "web", "prod").unwrap()
    }

    fn claims(source: &str, sink: &str) -> Vec<Claim> {
        let claim = |side, mode: &str| {
            let found = serde_json::from_value(json!({"spec": {"accessModes": [mode]}})).unwrap();
            Claim { side, name: "prod/data".into(), found: Some(found), class: Class::default() }
        };
        vec![claim(Side::Source, source), claim(Side::Sink, sink)]
    }

    #[test]
    fn volumes_that_any_node_can_mount_meet_in_one_pod() {
        for (source, sink, is_local) in [
            ("ReadWriteMany", "ReadWriteMany", true),
            ("ReadOnlyMany", "ReadWriteMany", true),
            ("ReadWriteMany", "ReadWriteOnce", false),
            ("ReadWriteOnce", "ReadWriteMany", false),
            ("ReadWriteOnce", "ReadWriteOnce", false),
        ] {
            assert_eq!(settle(job(&json!({})), &claims(source, sink)).is_local, is_local, "{source} {sink}");
        }
        assert!(!settle(job(&json!({})), &[]).is_local, "nothing is known");
    }

    #[test]
    fn two_folders_of_one_claim_meet_in_one_pod() {
        let of_one = json!({
            "source": {"persistentVolumeClaim": {"claimName": "one"}, "path": "/a"},
            "destination": {"persistentVolumeClaim": {"claimName": "one"}, "path": "/b"},
        });
        assert!(settle(job(&of_one), &claims("ReadWriteOncePod", "ReadWriteOncePod")).is_local);
    }

    #[test]
    fn what_is_asked_of_a_network_has_one() {
        let many = claims("ReadWriteMany", "ReadWriteMany");
        for spec in [
            json!({"parallelism": 2}),
            json!({"transfer": {"bandwidthLimit": "1Mi"}}),
            json!({"transfer": {"placement": "Network"}}),
        ] {
            assert!(!settle(job(&spec), &many).is_local, "{spec}");
        }
        assert!(settle(job(&json!({"transfer": {"placement": "Local"}})), &[]).is_local);
    }

    /// Volumes on two nodes cannot be mounted by one pod; the one volume of a restore in place can.
    #[test]
    fn a_snapshot_goes_the_way_of_its_volumes() {
        let source =
            |claim: &str| json!({"persistentVolumeClaim": {"claimName": claim}, "snapshot": "latest"});
        for (claim, modes, more, is_local) in [
            ("from", "ReadWriteOnce", json!({}), false),
            ("from", "ReadWriteMany", json!({}), true),
            ("from", "ReadWriteOnce", json!({"transfer": {"placement": "Local"}}), true),
            ("from", "ReadWriteMany", json!({"transfer": {"placement": "Network"}}), false),
            ("to", "ReadWriteOnce", json!({"transfer": {"bandwidthLimit": "1Mi"}}), true),
        ] {
            let mut spec = json!({"source": source(claim)});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let settled = settle(job(&spec), &claims(modes, modes));
            assert_eq!(settled.is_local, is_local, "{spec} {modes}");
        }
    }
}
