use contract::RunResult;
use serde_json::{Value, json};

use super::*;
use crate::pods::why_not_started::tests::pod;

const TRY: &str = "web-1";

fn job(status: &Value) -> Job {
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "prod"}, "status": status})).unwrap()
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
    let (side, now) = (Side::Sink, Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1));
    end_state(&EndObjects { side, shard: None, job, pods: &pods, warning, report, try_id: TRY, now })
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
fn a_job_without_pod_is_starting_and_the_warning_about_it_is_given() {
    let job = job(&json!({}));
    assert_eq!(state_of(Some(&job), None, None, None), EndState::Starting(None));
    let fault = fault_of(state_of(Some(&job), None, Some("FailedCreate: denied by a webhook"), None));
    assert_eq!(fault.reason, "PodPending");
    for part in ["The sink pod cannot be made in namespace prod", "denied by a webhook"] {
        assert!(fault.message.contains(part), "{part}: {}", fault.message);
    }
}

#[test]
fn a_pod_without_a_running_process_is_starting_with_what_is_in_its_way() {
    let waiting = |why: &str| container(&json!({"waiting": {"reason": why, "message": "denied"}}));
    assert_eq!(with_pod(&waiting("ContainerCreating")), EndState::Starting(None));
    assert_eq!(fault_of(with_pod(&waiting("ErrImagePull"))).reason, "ImagePullFailed");
    let state = state_of(Some(&job(&json!({}))), Some(&pod(&json!({}))), Some("no node fits"), None);
    assert_eq!(fault_of(state).reason, "PodPending");
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
        end_state(&EndObjects {
            side: Side::Sink,
            shard: Some(shard),
            job: Some(&job),
            pods: &[],
            warning: None,
            report: Some(&report(TRY)),
            try_id: TRY,
            now: Timestamp::UNIX_EPOCH,
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
fn a_pod_that_runs_on_long_after_its_deletion_is_lost_with_its_node() {
    let mut pod = pod(&container(&json!({"running": {}})));
    let state = |pod: &Pod| state_of(Some(&job(&json!({}))), Some(pod), None, None);
    assert_eq!(state(&pod), EndState::Running);
    let deleted = |seconds| Some(Time(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)));
    pod.metadata.deletion_timestamp = deleted(31);
    assert_eq!(state(&pod), EndState::Running, "it has until then, and half a minute more");
    let due = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(61);
    assert_eq!(overdue_at(&pod), Some(due), "it is looked at again then");
    pod.metadata.deletion_timestamp = deleted(30);
    assert_eq!(fault_of(state(&pod)).reason, "PodLost");
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
