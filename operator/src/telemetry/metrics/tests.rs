use contract::Work;

use super::*;

fn job() -> JobLabels {
    JobLabels { namespace: "prod".into(), name: "web".into() }
}

#[test]
fn a_run_is_counted_by_result_reason_bytes_and_files() {
    let metrics = Metrics::default();
    let run = Run {
        result: RunResult::Failed,
        reason: Some("PeerLost".into()),
        timings: Timings { pod_start: 1500, scan: 250, total: 4000, ..Timings::default() },
        work: Work { files_created: 3, bytes_on_wire: 700, ..Work::default() },
        ..Run::default()
    };
    metrics.run_ended(&job(), &run);
    let text = metrics.to_text();
    for line in [
        "volferry_runs_total{namespace=\"prod\",result=\"failed\"} 1",
        "volferry_run_failures_total{namespace=\"prod\",reason=\"PeerLost\"} 1",
        "volferry_run_duration_seconds_sum{namespace=\"prod\",result=\"failed\"} 2.5",
        "volferry_run_phase_seconds_sum{phase=\"podStart\"} 1.5",
        "volferry_run_phase_seconds_sum{phase=\"scan\"} 0.25",
        "volferry_run_phase_seconds_count{phase=\"commit\"} 1",
        "volferry_files_total{namespace=\"prod\",kind=\"created\"} 3",
        "volferry_bytes_total{namespace=\"prod\",kind=\"wire\"} 700",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_job_that_is_gone_leaves_no_series() {
    let metrics = Metrics::default();
    let standing = JobState {
        active: true,
        regressed: true,
        damaged_snapshot_objects: Some(3),
        last_success_s: Some(7.0),
        success_deadline_s: Some(9.0),
        last_run_s: Some(2.5),
        ..JobState::default()
    };
    metrics.stands(&job(), standing);
    let deadline = "volferry_success_deadline_timestamp_seconds{namespace=\"prod\",name=\"web\"} 9";
    assert!(metrics.to_text().contains(deadline));
    let took = "volferry_last_run_duration_seconds{namespace=\"prod\",name=\"web\"} 2.5";
    assert!(metrics.to_text().contains(took));
    let damaged = "volferry_snapshot_damaged_objects{namespace=\"prod\",name=\"web\"} 3";
    assert!(metrics.to_text().contains(damaged));
    assert!(metrics.to_text().contains("volferry_performance_regressed{namespace=\"prod\",name=\"web\"} 1"));
    assert!(
        metrics
            .to_text()
            .contains("volferry_last_success_timestamp_seconds{namespace=\"prod\",name=\"web\"} 7")
    );
    metrics.forget(&job());
    assert!(!metrics.to_text().contains("name=\"web\""));
}

#[test]
fn a_job_that_is_suspended_has_no_deadline() {
    let metrics = Metrics::default();
    metrics.stands(&job(), JobState { success_deadline_s: Some(9.0), ..JobState::default() });
    metrics.stands(&job(), JobState::default());
    assert!(!metrics.to_text().contains("success_deadline"));
}
