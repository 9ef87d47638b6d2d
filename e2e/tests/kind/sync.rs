//! The main job: a claim on one node is copied onto a claim on another.

use std::collections::BTreeMap;

use crate::prelude::*;

#[tokio::test]
async fn a_tree_arrives_on_another_node_as_it_is() {
    let (sandbox, from, to) = Sandbox::with_volumes("sync").await;
    assert_ne!(from.node, to.node);
    from.shell_as_syncer(tree::VARIED).unwrap();

    sandbox.sync("copy", json!({})).await.unwrap();
    sandbox.kubectl.run(&["wait", "--for=condition=Synced", "syncjob/copy", "--timeout=180s"]).unwrap();

    let source = from.list().unwrap();
    assert_same(&source, &to.list().unwrap());
    let job = sandbox.jobs.get("copy").await.unwrap();
    let work: Work = syncjob::part(&job, "/lastRun/work").unwrap();
    assert_eq!(work.files_created, source.0.len() as u64);
    assert_eq!((work.files_updated, work.files_deleted, work.files_failed), (0, 0, 0));
    assert_eq!((work.bytes_total, work.bytes_changed), (source.bytes(), source.bytes()));
    assert!(work.bytes_on_wire > 20_000_000, "20 MB of the tree are random: {work:?}");
    assert_whole(&syncjob::part(&job, "/lastRun/timings").unwrap());
    assert_conditions_are_kstatus(&job);
    assert_shown_in_columns(&sandbox.kubectl.run(&["get", "syncjob", "copy"]).unwrap());
    assert_logs_can_be_read(&sandbox);
}

/// Checks that the logs of a succeeded run's pods can be read, by the plugin and by kubectl.
fn assert_logs_can_be_read(sandbox: &Sandbox) {
    let done = ["wait", "--for=jsonpath={.status.stage}=Done", "syncrun/copy-1", "--timeout=60s"];
    sandbox.kubectl.run(&done).unwrap();
    let said = printed(plugin(sandbox, &["logs", "copy"]));
    for end in ["source", "sink"] {
        let prefix = format!("[{end}] ");
        let own: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert!(!own.is_empty(), "the {end} said nothing: {said}");
        let selector = format!("volferry.dev/run=copy-1,volferry.dev/side={end}");
        let log = sandbox.kubectl.run(&["logs", "-l", &selector, "--tail=-1"]).unwrap();
        assert_eq!(log.lines().collect::<Vec<_>>(), own);
    }
}

/// Checks that every phase is present and that their sum is the whole, to a tenth.
fn assert_whole(timings: &BTreeMap<String, u64>) {
    let phases =
        ["queue", "podStart", "connect", "scan", "plan", "delta", "transfer", "apply", "commit", "snapshot"];
    let (total, sum) = (timings["total"], phases.iter().map(|phase| timings[*phase]).sum::<u64>());
    assert!(timings["podStart"] > 0 && timings["transfer"] > 0, "{timings:?}");
    assert!(sum.abs_diff(total) * 10 <= total, "the phases add up to {sum}: {timings:?}");
}

fn assert_conditions_are_kstatus(job: &DynamicObject) {
    assert!(syncjob::is(job, "Ready") && syncjob::is(job, "Synced"));
    assert!(!syncjob::is(job, "Reconciling") && !syncjob::is(job, "Stalled"));
    assert_eq!(syncjob::status(job, "/observedGeneration").as_i64(), job.metadata.generation);
}

fn assert_shown_in_columns(table: &str) {
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let header =
        ["NAME", "READY", "SYNCED", "PHASE", "LAST", "SUCCESS", "NEXT", "DURATION", "SUSPENDED", "AGE"];
    assert_eq!(lines[0], header, "{table}");
    // No next run is scheduled, so its cell is blank.
    let [name, ready, synced, phase, _ago, duration, suspended, _age] = lines[1][..] else {
        panic!("{table}")
    };
    assert_eq!(
        [name, ready, synced, phase, suspended],
        ["copy", "True", "True", "Succeeded", "false"],
        "{table}"
    );
    assert!(duration.ends_with('s'), "{table}");
}
