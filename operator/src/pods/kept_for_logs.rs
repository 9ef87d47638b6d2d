//! Decides which Jobs of ended runs are kept, so that the logs of their pods can be read. Pure.
//!
//! `operator/doc/design.md` (Logs) says what a pod that has ended still holds, and what it does not.

use contract::RunResult;
use kube::ResourceExt;

use super::{
    children::{Children, is_of_job},
    pod_state,
    stored_fields::{Job, Pod},
};
use crate::{
    api::{ActiveRun, SyncJob, SyncJobStatus},
    names,
    volumes::claims::Claim,
};

/// Takes the objects that are kept for readers of logs out of `children`, given the claims that were read. Returns
/// those of them that are removed as soon as the next run has its turn.
pub fn take(children: &mut Children, job: &SyncJob, claims: &[Claim]) -> Children {
    let Some(status) = &job.status else { return Children::default() };
    let mut take = |run| take_run(children, run, |namespace, name| is_kept(namespace, name, job, claims));
    last_failed(status).map(&mut take);
    let Some(last) = status.last_run.as_ref().map(|run| run.id.as_str()) else { return Children::default() };
    if status.active_run.as_ref().is_some_and(ActiveRun::is_started) {
        forget_leaving(children, last);
        Children::default()
    } else {
        take(last)
    }
}

/// Returns the last run in the history that did not succeed.
fn last_failed(status: &SyncJobStatus) -> Option<&str> {
    let failed = status.history.iter().find(|entry| entry.result != RunResult::Succeeded);
    failed.map(|entry| entry.id.as_str())
}

/// Drops an ended run's terminating objects, so that the next run does not wait for them: pods that have ended write
/// nothing.
fn forget_leaving(children: &mut Children, run: &str) {
    let Children { jobs, pods } = children;
    let is_going = |pod: &Pod| {
        let mut jobs = jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none());
        pod.metadata.deletion_timestamp.is_some() || !jobs.any(|job| is_of_job(pod, job))
    };
    pods.retain(|pod| !(labelled(pod, run) && !pod_state::is_alive(pod) && is_going(pod)));
    jobs.retain(|job| {
        let is_going = labelled(job, run) && job.metadata.deletion_timestamp.is_some();
        !is_going || pods.iter().any(|pod| is_of_job(pod, job))
    });
}

fn take_run(children: &mut Children, run: &str, is_kept: impl Fn(&str, &str) -> bool) -> Children {
    let pods = std::mem::take(&mut children.pods);
    let stays = |job: &Job| {
        let mut own = pods.iter().filter(|pod| is_of_job(pod, job)).peekable();
        is_of_run(job, run) && own.peek().is_some() && own.all(|pod| stays(pod, &is_kept))
    };
    let (kept, jobs) = std::mem::take(&mut children.jobs).into_iter().partition::<Vec<_>, _>(stays);
    let is_of_kept = |pod: &Pod| kept.iter().any(|job| is_of_job(pod, job));
    let (kept_pods, pods) = pods.into_iter().partition(is_of_kept);
    *children = Children { jobs, pods };
    Children { jobs: kept, pods: kept_pods }
}

fn is_of_run(job: &Job, run: &str) -> bool {
    job.metadata.deletion_timestamp.is_none() && labelled(job, run)
}

fn labelled(child: &impl ResourceExt, run: &str) -> bool {
    child.labels().get(names::LABEL_RUN).is_some_and(|it| it == run)
}

/// Returns whether a pod has ended and keeps no claim from being deleted.
fn stays(pod: &Pod, is_kept: impl Fn(&str, &str) -> bool) -> bool {
    let namespace = pod.namespace().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    !pod_state::is_alive(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && claims.all(|claim| is_kept(&namespace, &claim.claim_name))
}

/// Returns whether the SyncJob names that claim and the claim is not deleted. While a restore in place is due, the
/// source's claim is not read, and counts as kept.
fn is_kept(namespace: &str, name: &str, job: &SyncJob, claims: &[Claim]) -> bool {
    let full_name = format!("{namespace}/{name}");
    match claims.iter().find(|claim| claim.name == full_name) {
        Some(claim) => claim.found.as_ref().is_some_and(|found| found.metadata.deletion_timestamp.is_none()),
        None => {
            let own = job.metadata.namespace.as_deref().unwrap_or_default();
            job.spec.source.persistent_volume_claim.as_ref().is_some_and(|named| {
                named.claim_name == name && named.namespace.as_deref().unwrap_or(own) == namespace
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::Side;
    use serde_json::{Value, json};

    use super::*;
    use crate::volumes::claims::Class;

    /// Returns a SyncJob from the claim `a` to the claim `b` with that status, including its history.
    fn job(status: &Value) -> SyncJob {
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        serde_json::from_value(json!({
            "apiVersion": "volferry.dev/v1alpha1",
            "kind": "SyncJob",
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {"source": claim("a"), "destination": claim("b")},
            "status": status,
        }))
        .unwrap()
    }

    fn run(id: &str, result: &str) -> Value {
        json!({"id": id, "number": 1, "generation": 1, "result": result})
    }

    /// Returns the Jobs of these runs, each with a pod in that phase that uses the claim `b`.
    fn children(runs: &[(&str, &str)]) -> Children {
        let mut children = Children::default();
        for (run, phase) in runs {
            let labels = json!({"volferry.dev/run": run});
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": run, "uid": run});
            let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "b"}});
            let job = json!({"metadata": {"name": run, "uid": run, "labels": &labels}});
            // The kubelet reports the end of a container before the end of its pod.
            let (phase, state) = match *phase {
                "Ending" => ("Running", json!({"terminated": {"exitCode": 0}})),
                phase => (phase, json!({})),
            };
            let containers = json!([{"name": "syncer", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state}]);
            let status = json!({"phase": phase, "containerStatuses": containers});
            let pod = json!({"metadata": {"name": run, "namespace": "n", "ownerReferences": [owner], "labels": labels}, "status": status,
                "spec": {"containers": [], "volumes": [volume]}});
            children.jobs.push(serde_json::from_value(job).unwrap());
            children.pods.push(serde_json::from_value(pod).unwrap());
        }
        children
    }

    fn claim(name: &str, others: &Value) -> Claim {
        let mut metadata = json!({"name": name});
        metadata.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        let found = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Claim { side: Side::Sink, name: format!("n/{name}"), found, class: Class::Unknown }
    }

    fn names(children: &Children) -> Vec<String> {
        let (jobs, pods): (Vec<_>, Vec<_>) = (
            children.jobs.iter().map(ResourceExt::name_any).collect(),
            children.pods.iter().map(ResourceExt::name_any).collect(),
        );
        assert_eq!(jobs, pods);
        jobs
    }

    #[test]
    fn the_last_run_stays_until_the_next_has_its_turn_and_the_last_failed_one_longer() {
        let history = [run("web-3", "Succeeded"), run("web-2", "Failed"), run("web-1", "Failed")];
        let ended = [("web-1", "Failed"), ("web-2", "Failed"), ("web-3", "Succeeded")];
        let status = |active: &Value| json!({"lastRun": history[0], "history": history, "activeRun": active});
        let waiting = json!({"id": "web-4", "number": 4, "generation": 1});
        let mut started = waiting.clone();
        started["startTime"] = json!("2027-01-06T05:00:00Z");
        let claims = [claim("a", &json!({})), claim("b", &json!({}))];
        for active in [Value::Null, waiting] {
            let mut children = children(&ended);
            let goes = take(&mut children, &job(&status(&active)), &claims);
            assert_eq!((names(&goes), names(&children)), (vec!["web-3".into()], vec!["web-1".into()]));
        }
        let mut children = children(&ended);
        let goes = take(&mut children, &job(&status(&started)), &claims);
        assert_eq!((names(&goes), names(&children)), (vec![], vec!["web-1".into(), "web-3".into()]));
    }

    #[test]
    fn a_run_that_has_started_does_not_wait_for_pods_that_have_ended_and_are_about_to_go() {
        let mut status = json!({"lastRun": run("web-1", "Succeeded")});
        status["activeRun"] =
            json!({"id": "web-2", "number": 2, "generation": 1, "startTime": "2027-01-06T05:00:00Z"});
        let left = |phase: &str, jobs_are_there: bool| {
            let mut children = children(&[("web-1", phase)]);
            children.jobs.retain(|_| jobs_are_there);
            take(&mut children, &job(&status), &[]);
            children.jobs.len() + children.pods.len()
        };
        assert_eq!(left("Succeeded", false), 0, "the garbage collector removes the pod");
        assert_eq!((left("Running", false), left("Succeeded", true)), (1, 2));
    }

    #[test]
    fn what_runs_and_what_uses_a_claim_that_is_deleted_does_not_stay() {
        let job = job(&json!({"lastRun": run("web-1", "Succeeded")}));
        let (there, a) = (claim("b", &json!({})), claim("a", &json!({})));
        let leaving = claim("b", &json!({"deletionTimestamp": "2027-01-06T05:00:00Z"}));
        let gone = Claim { found: None, ..there.clone() };
        let stays = |phase: &str, claims: &[Claim]| {
            let mut children = children(&[("web-1", phase)]);
            !take(&mut children, &job, claims).jobs.is_empty()
        };
        assert!(
            stays("Succeeded", &[a.clone(), there.clone()]) && stays("Failed", std::slice::from_ref(&there))
        );
        assert!(stays("Ending", std::slice::from_ref(&there)));
        assert!(!stays("Running", &[there]) && !stays("Succeeded", &[leaving]) && !stays("Failed", &[gone]));
        assert!(!stays("Succeeded", &[a]), "the SyncJob names other claims by now");
    }
}
