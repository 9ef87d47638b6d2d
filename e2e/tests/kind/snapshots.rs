//! Snapshots of a destination: restores into a claim of another node and in place, damage, and retention over days.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

use contract::SnapshotReport;
use syncer::snapshot::{Roots, Snapshot, SnapshotId};

use crate::prelude::*;

/// Returns the names of the snapshots that the status lists, the newest first.
fn listed(job: &DynamicObject) -> Vec<String> {
    let items = syncjob::status(job, "/snapshots/items").as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item["name"].as_str().map(Into::into)).collect()
}

#[tokio::test]
async fn each_run_takes_a_snapshot_and_an_older_one_is_restored_into_a_new_claim_and_in_place() {
    let (sandbox, from, to) = Sandbox::with_volumes("snapshots").await;
    from.shell_as_syncer(tree::VARIED).unwrap();
    let first = from.list().unwrap();
    let spec = json!({"trigger": "one", "files": {"delete": true}, "snapshots": {"retain": {"last": 2}}});
    sandbox.sync("copy", spec).await.unwrap();
    let one = listed(&sandbox.until_is("copy", "Ready").await.unwrap());
    from.shell_as_syncer("rm -r site/img; echo new page > site/new.html").unwrap();
    let changed = from.list().unwrap();
    let second = sandbox.run_again("copy", "two").await.unwrap();
    let two = listed(&second);
    assert_eq!((one.len(), two.len(), &two[1]), (1, 2, &one[0]), "{second:#?}");
    assert_eq!(syncjob::text(&second, "/snapshots/latest"), two[0]);
    assert_same(&changed, &to.list().unwrap());

    let restored = sandbox.volume("restored", 0).await.unwrap();
    let source = json!({"persistentVolumeClaim": {"claimName": "to"}, "snapshot": one[0]});
    syncjob::create(&sandbox.jobs, restore(&source)).await.unwrap();
    let done = sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&first, &restored.list().unwrap());
    let notes = syncjob::status(&done, "/notes").to_string();
    assert!(notes.contains(&format!("the source is snapshot {}", one[0])), "{notes}");

    restore_in_place(&sandbox, &one[0]).await;
    assert_same(&first, &to.list().unwrap());
    resume(&sandbox).await;

    let fewer = json!({"spec": {"trigger": "three", "snapshots": {"retain": {"last": 1}}}});
    sandbox.patch("copy", fewer).await.unwrap();
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/cause") == "Trigger";
    let kept = sandbox.until("copy", "the run is over", is_over).await.unwrap();
    let report: SnapshotReport = syncjob::part(&kept, "/lastRun/snapshot").unwrap();
    assert_eq!((report.count, listed(&kept).len()), (1, 1), "{kept:#?}");
    assert!(report.dropped_count >= 1 && report.reason.is_none(), "{report:?}");
    assert_same(&changed, &to.list().unwrap());

    let source = json!({"spec": {"source": {"snapshot": "before-back"}}});
    sandbox.patch("restore", source).await.unwrap();
    sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&changed, &restored.list().unwrap());

    damage(&sandbox, &from, &to).await;
    heal(&sandbox, &from).await;
    days(&sandbox, &to).await;
}

/// Damages content that only the snapshot from before the restore has, and checks that the status, the plugin and an
/// event name it.
async fn damage(sandbox: &Sandbox, from: &Volume, to: &Volume) {
    let script = "for pack in $(grep -l 'new page' .volferry/snapshots/packs/*); do \
                  for at in $(grep -abo 'new page' $pack | cut -d: -f1); do \
                  printf X | dd of=$pack bs=1 seek=$at conv=notrunc status=none; done; done";
    to.shell(script).unwrap();
    from.shell_as_syncer("echo other > site/new.html").unwrap();
    let checked = json!({"spec": {"trigger": "checked", "snapshots": {"verify": {"parts": 1}}}});
    sandbox.patch("copy", checked).await.unwrap();
    let corrupt = sandbox.until_is("copy", "Corrupt").await.unwrap();
    let message = syncjob::message(&corrupt, "Corrupt").to_owned();
    assert!(message.contains("site/new.html in "), "{message}");
    let count = syncjob::status(&corrupt, "/snapshots/damaged").as_u64().unwrap();
    assert!(count > 0, "{corrupt:#?}");
    let said = printed(plugin(sandbox, &["snapshots", "copy"]));
    assert!(said.starts_with(&format!("Corrupt: {message}\n")), "{said}");
    until_told(sandbox, "Corrupt", count).await;
}

/// Writes the lost content to the source again; the next run copies it, and its check repairs the damage.
async fn heal(sandbox: &Sandbox, from: &Volume) {
    from.shell_as_syncer("echo new page > site/new.html").unwrap();
    let healed = sandbox.run_again("copy", "healed").await.unwrap();
    assert!(syncjob::condition(&healed, "Corrupt").is_none(), "{healed:#?}");
    let found = syncjob::status(&healed, "/lastRun/snapshot/verify");
    assert!(found["damaged"] == 0 && found["healed"].as_u64() > Some(0), "{found}");
    assert!(!printed(plugin(sandbox, &["snapshots", "copy"])).contains("Corrupt"));
    until_told(sandbox, "SnapshotsHealed", 0).await;
}

/// Gives the volume two snapshots on each of the last 40 days, by the store's own writer, as a pod's clock cannot be
/// set. The next run keeps those of them that restic would.
async fn days(sandbox: &Sandbox, to: &Volume) {
    const ROOTS: &str = ".volferry/snapshots/roots";
    const DAY: i64 = 24 * 3600;
    let mut roots = Roots::decode(&to.shell(&format!("cat {ROOTS}")).unwrap()).unwrap();
    let job = format!("{}/copy", sandbox.namespace);
    let newest = roots.snapshots.iter().rfind(|snapshot| snapshot.job == job).unwrap().clone();
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 / DAY;
    let at = |day: i64, hour: i64| {
        let mut past = Snapshot { id: SnapshotId::random().unwrap(), ..newest.clone() };
        past.taken.seconds = day * DAY + hour * 3600;
        past.began = past.taken;
        past
    };
    let past: Vec<Snapshot> =
        (1..=40).rev().flat_map(|ago| [at(today - ago, 6), at(today - ago, 18)]).collect();
    roots.snapshots.retain(|snapshot| snapshot.job != job);
    roots.snapshots.splice(0..0, past.iter().cloned());
    to.feed(&format!("cat > {ROOTS}"), &roots.encode()).unwrap();

    // The last snapshot is kept of each of the newest seven days and the newest three weeks, which begin on Mondays.
    let last_of = |period: &dyn Fn(i64) -> i64, count: usize| {
        let lasts: BTreeMap<i64, &Snapshot> =
            past.iter().map(|one| (period(one.taken.seconds / DAY), one)).collect();
        let lasts = lasts.into_iter().rev().filter(|(of, _)| *of != period(today));
        lasts.take(count - 1).map(|(_, one)| one.id.to_string()).collect::<BTreeSet<_>>()
    };
    let mut expected = last_of(&|day| day, 7);
    expected.extend(last_of(&|day| (day + 3) / 7, 3));
    let retain = json!({"last": null, "daily": 7, "weekly": 3});
    let days = json!({"spec": {"trigger": "days", "snapshots": {"retain": retain}}});
    sandbox.patch("copy", days).await.unwrap();
    let kept = sandbox.until_is("copy", "Ready").await.unwrap();
    let report: SnapshotReport = syncjob::part(&kept, "/lastRun/snapshot").unwrap();
    expected.insert(report.made.unwrap().id);
    assert_eq!(listed(&kept).into_iter().collect::<BTreeSet<_>>(), expected, "{kept:#?}");
    assert_eq!(report.count, expected.len() as u64);
    assert_eq!(report.dropped_count as usize, past.len() + 1 - expected.len());
}

/// Waits until an event and the metric, which follow the status, report `count` damaged objects.
async fn until_told(sandbox: &Sandbox, reason: &str, count: u64) {
    let selector = format!("--field-selector=reason={reason}");
    let event = ["get", "events", &selector, "-o=name"];
    let path = "/api/v1/namespaces/volferry-system/services/volferry-operator:8080/proxy/metrics";
    let labels = format!("namespace=\"{}\",name=\"copy\"", sandbox.namespace);
    let line = format!("volferry_snapshot_damaged_objects{{{labels}}} {count}\n");
    let has_event = async || !sandbox.kubectl.run_async(&event).await.unwrap().is_empty();
    wait::poll(&format!("an event tells {reason}"), PATIENCE, has_event).await.unwrap();
    let has_line = async || sandbox.kubectl.run_async(&["get", "--raw", path]).await.unwrap().contains(&line);
    wait::poll(&format!("the metrics have {line}"), PATIENCE, has_line).await.unwrap();
}

/// Restores the destination to a snapshot, and checks that a change of the spec starts no run.
async fn restore_in_place(sandbox: &Sandbox, snapshot: &str) {
    let mut back = syncjob::run_now("back", "copy");
    back["spec"]["restore"] = json!({"snapshot": snapshot});
    syncjob::create(&sandbox.runs, back).await.unwrap();
    let is_over = |job: &DynamicObject| syncjob::text(job, "/lastRun/id") == "back";
    let held = sandbox.until("copy", "the restore is over", is_over).await.unwrap();
    assert!(syncjob::is(&held, "Restored") && syncjob::is(&held, "Ready"), "{held:#?}");
    assert!(!syncjob::is(&held, "Synced"), "the copy is an old state: {held:#?}");
    let notes = syncjob::status(&held, "/notes").to_string();
    assert!(notes.contains("the state before is kept in snapshot"), "{notes}");
    sandbox.patch("copy", json!({"spec": {"schedule": {"interval": "1h"}}})).await.unwrap();
    let held = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&held, "/lastRun/id"), "back", "{held:#?}");
    assert!(syncjob::status(&held, "/nextRunTime").is_null(), "{held:#?}");
}

/// Ends the hold of the restore as a user without the plugin does, and checks that the schedule continues.
async fn resume(sandbox: &Sandbox) {
    let run = sandbox.kubectl.run(&["get", "syncrun", "back", "-o", "jsonpath={.metadata.uid}"]).unwrap();
    let after = format!("volferry.dev/resume-after={}", run.trim());
    sandbox.kubectl.run(&["annotate", "syncjob", "copy", &after]).unwrap();
    let goes_on = |job: &DynamicObject| syncjob::status(job, "/nextRunTime").is_string();
    let resumed = sandbox.until("copy", "the schedule goes on", goes_on).await.unwrap();
    assert!(!syncjob::is(&resumed, "Restored"), "{resumed:#?}");
}

fn restore(source: &Value) -> Value {
    let others = json!({"source": source, "files": {"delete": true}});
    syncjob::manifest("restore", "to", "restored", others)
}
