use contract::RunResult;
use serde_json::{Value, json};

use super::*;

const TRY: &str = "web-1";

fn job(status: &Value) -> Job {
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "prod"}, "status": status})).unwrap()
}

fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": CONTAINER, "image": "example.com/volferry:1"}]},
        "status": status,
    }))
    .unwrap()
}

fn container(state: &Value) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]})
}

fn state_of(
    job: Option<&Job>,
    pod: Option<&Pod>,
    warning: Option<&str>,
    report: Option<&Report>,
) -> EndState {
    let pods: Vec<&Pod> = pod.into_iter().collect();
    end_state(&End { side: Side::Sink, shard: None, job, pods: &pods, warning, report, try_id: TRY })
}

fn with_pod(status: &Value) -> EndState {
    state_of(Some(&job(&json!({}))), Some(&pod(status)), None, None)
}

fn fault_of(state: EndState) -> Fault {
    match state {
        EndState::Starting(Some(fault)) => fault,
        EndState::Ended(ending) => ending.fault.unwrap(),
        other => panic!("no fault in {other:?}"),
    }
}

fn report(run: &str) -> Report {
    Report { run: run.into(), result: RunResult::Succeeded, ..Report::default() }
}

#[test]
fn an_end_without_job_is_absent_only_once_its_pods_are_gone() {
    let pod = pod(&json!({}));
    assert_eq!(state_of(None, None, None, None), EndState::Absent);
    assert_eq!(state_of(None, Some(&pod), None, None), EndState::Stopping);
    let deleted: Job =
        serde_json::from_value(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).unwrap();
    assert_eq!(state_of(Some(&deleted), None, None, None), EndState::Stopping);
}

#[test]
fn a_job_without_pod_is_starting_and_a_quota_that_forbids_the_pod_is_named() {
    let job = job(&json!({}));
    assert_eq!(state_of(Some(&job), None, None, None), EndState::Starting(None));
    for (words, cure) in [
        ("exceeded quota: pods, used: pods=2, limited: pods=2", "Raise that ResourceQuota"),
        (
            "violates PodSecurity \"restricted:latest\": runAsUser=0",
            "remove its annotation volferry.dev/privileged-syncers",
        ),
        ("denied by a webhook", "denied by a webhook. The run goes on"),
        ("Pod \"x\" is invalid: cpu", "or the LimitRange that adds to it. The run goes on"),
    ] {
        let warning = format!("FailedCreate: Error creating: pods \"x\" is forbidden: {words}");
        let fault = fault_of(state_of(Some(&job), None, Some(&warning), None));
        assert_eq!(fault.reason, "PodPending");
        for part in ["The sink pod cannot be made in namespace prod", words, cure] {
            assert!(fault.message.contains(part), "{part}: {}", fault.message);
        }
    }
}

#[test]
fn a_pending_pod_gives_the_schedulers_reason() {
    let fault = fault_of(with_pod(&json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient cpu.",
    }]})));
    assert_eq!(fault.reason, "PodPending");
    assert!(fault.message.contains("0/2 nodes are available: 2 Insufficient cpu."));
}

#[test]
fn a_claim_that_another_pod_has_alone_is_named_with_how_to_find_that_pod() {
    let words = "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod \
                 access mode.";
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words});
    let mut pod = pod(&json!({"phase": "Pending", "conditions": [condition]}));
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "db-data"}});
    pod.spec.as_mut().unwrap().volumes = Some(vec![serde_json::from_value(volume).unwrap()]);
    let fault = fault_of(state_of(Some(&job(&json!({}))), Some(&pod), None, None));
    assert_eq!(fault.reason, "PodPending");
    for part in [words, "`kubectl describe pvc db-data`", "as soon as that pod is gone"] {
        assert!(fault.message.contains(part), "{part}: {}", fault.message);
    }
}

#[test]
fn an_image_that_cannot_be_pulled_is_named() {
    for why in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"] {
        let fault = fault_of(with_pod(&container(&json!({"waiting": {"reason": why, "message": "denied"}}))));
        assert_eq!(fault.reason, "ImagePullFailed");
        assert!(fault.message.contains("example.com/volferry:1") && fault.message.contains(why));
    }
}

#[test]
fn a_container_that_does_not_start_is_named() {
    let waiting =
        json!({"waiting": {"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"}});
    let fault = fault_of(with_pod(&container(&waiting)));
    assert_eq!(fault.reason, "PodFailed");
    assert!(
        fault.message.contains("CreateContainerConfigError")
            && fault.message.contains("secret \"s\" not found")
    );
}

#[test]
fn a_pod_that_waits_for_its_volume_gives_the_last_warning() {
    let creating = container(&json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!(with_pod(&creating.clone()), EndState::Starting(None));
    let mut pod = pod(&creating);
    pod.spec.as_mut().unwrap().node_name = Some("node".into());
    let state = state_of(Some(&job(&json!({}))), Some(&pod), Some("FailedMount: no such device"), None);
    let message = fault_of(state).message;
    assert!(message.contains("waits on its node: FailedMount: no such device"), "{message}");
    let stale = Some("FailedScheduling: 0/2 nodes fit.");
    assert_eq!(state_of(Some(&job(&json!({}))), Some(&pod), stale, None), EndState::Starting(None));
}

#[test]
fn the_schedulers_event_says_as_much_as_what_it_writes_into_the_pod() {
    let refused = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit."},
    ]});
    let waiting = json!({"phase": "Pending"});
    for (status, warning) in [(refused, None), (waiting, Some("FailedScheduling: 0/2 nodes fit."))] {
        let fault = fault_of(state_of(Some(&job(&json!({}))), Some(&pod(&status)), warning, None));
        assert_eq!(fault.reason, "PodPending");
        assert!(
            fault.message.contains("0/2 nodes fit.") && fault.message.contains("nodeSelector"),
            "{}",
            fault.message
        );
    }
}

#[test]
fn a_container_that_runs_is_running() {
    assert_eq!(with_pod(&container(&json!({"running": {}}))), EndState::Running);
}

#[test]
fn a_report_is_read_from_the_termination_message_when_the_status_has_none_of_this_try() {
    let text = serde_json::to_string(&report(TRY)).unwrap();
    let over = pod(&container(&json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:09Z", "message": text,
    }})));
    let stale = report("web-0");
    let EndState::Ended(ending) = state_of(Some(&job(&json!({}))), Some(&over), None, Some(&stale)) else {
        panic!()
    };
    assert_eq!((ending.exit, ending.report), (Some(0), Some(report(TRY))));
    assert_eq!(ending.at, Some("2026-01-01T00:00:09Z".parse().unwrap()));
    assert_eq!((ending.fault, ending.last_words), (None, None));
}

#[test]
fn a_message_that_is_no_report_is_kept_as_last_words() {
    let over = container(&json!({"terminated": {"exitCode": 101, "reason": "Error", "message": "panicked"}}));
    let EndState::Ended(ending) = with_pod(&over) else { panic!() };
    assert_eq!((ending.exit, ending.last_words.as_deref()), (Some(101), Some("panicked")));
}

#[test]
fn a_process_killed_for_its_memory_says_which_limit_to_raise() {
    let fault =
        fault_of(with_pod(&container(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))));
    assert_eq!(fault.reason, "OutOfMemory");
    assert!(fault.message.contains("spec.pods.resources.limits.memory"));
}

#[test]
fn evicted_and_drained_pods_are_named() {
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk."});
    assert!(fault_of(with_pod(&evicted)).message.contains("Evicted). The node was low on disk."));
    let mut drained = container(&json!({"terminated": {"exitCode": 1, "reason": "Error"}}));
    drained["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    let fault = fault_of(with_pod(&drained));
    assert_eq!(fault.reason, "PodDisrupted");
    assert!(fault.message.contains("EvictionByEvictionAPI"));
}

#[test]
fn a_finished_job_without_pod_still_has_an_ending() {
    let over = |type_: &str| job(&json!({"conditions": [{"type": type_, "status": "True"}]}));
    let EndState::Ended(complete) = state_of(Some(&over("Complete")), None, None, Some(&report(TRY))) else {
        panic!()
    };
    assert_eq!((complete.exit, complete.report), (Some(0), Some(report(TRY))));
    assert_eq!(fault_of(state_of(Some(&over("Failed")), None, None, None)).reason, "PodLost");
}

#[test]
fn a_shard_without_pod_is_as_the_indexes_of_its_job_say_and_else_starts() {
    let job = job(&json!({"completedIndexes": "0,3-5", "failedIndexes": "2,7-9"}));
    let state = |shard| {
        end_state(&End {
            side: Side::Sink,
            shard: Some(shard),
            job: Some(&job),
            pods: &[],
            warning: None,
            report: Some(&report(TRY)),
            try_id: TRY,
        })
    };
    for shard in [0, 3, 4, 5] {
        let EndState::Ended(well) = state(shard) else { panic!("{shard}") };
        assert_eq!((well.exit, well.report), (Some(0), Some(report(TRY))));
    }
    for shard in [2, 7, 8, 9] {
        assert_eq!(fault_of(state(shard)).reason, "PodLost");
    }
    for shard in [1, 6, 10] {
        assert_eq!(state(shard), EndState::Starting(None));
    }
}

#[test]
fn a_pod_that_was_told_to_stop_because_it_is_deleted_says_so() {
    let stopped = Report { result: contract::RunResult::Canceled, ..report("web-1") };
    let message = serde_json::to_string(&stopped).unwrap();
    let terminated = json!({"terminated": {"exitCode": 1, "message": message}});
    let mut pod = pod(&container(&terminated));
    let fault = |pod: &Pod| match state_of(Some(&job(&json!({}))), Some(pod), None, None) {
        EndState::Ended(ending) => ending.fault.map(|fault| fault.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(&pod), None);
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(fault(&pod).as_deref(), Some("PodDeleted"));
}
