//! Runs that take a snapshot of their destination.

use std::process::Output;

use contract::SnapshotReport;
use serde_json::Value;

use crate::common::prelude::*;
use crate::damage::{flip, only_file_below};

/// Returns the report of the sink's end; the source has the same unless the run failed.
fn report_of(run: &Run) -> &Report {
    let (Run::Local(end) | Run::Network { sink: end, .. }) = run;
    end.report()
}

#[track_caller]
fn snapshot_of(run: &Run, exit: ExitCode) -> SnapshotReport {
    run.assert_exit(exit);
    report_of(run).snapshot.clone().unwrap()
}

fn snapshot(command: &str, dir: &Path, args: &[&str]) -> Output {
    Command::new(program()).args(["snapshot", command]).arg(dir).args(args).output().unwrap()
}

fn list(pair: &Pair) -> Vec<Value> {
    let said = snapshot("list", &pair.destination, &["--json"]);
    serde_json::from_slice::<Value>(&said.stdout).unwrap().as_array().unwrap().clone()
}

fn cat(pair: &Pair, id: &str, path: &str) -> String {
    String::from_utf8(snapshot("cat", &pair.destination, &[id, path]).stdout).unwrap()
}

#[test]
fn a_run_takes_its_snapshot_by_the_engine_that_was_asked_for() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        fs::write(pair.source.join("file"), "content").unwrap();
        let report =
            snapshot_of(&pair.run_with(&[], &["--snapshot", "--snapshot-engine=copy"]), ExitCode::Done);
        assert!(report.made.is_some(), "{report:?}");
        let report =
            snapshot_of(&pair.run_with(&[], &["--snapshot", "--snapshot-engine=clone"]), ExitCode::Partial);
        assert!(report.made.is_none() && report.message.contains("cannot clone files"), "{report:?}");
    }
}

#[test]
fn each_run_takes_a_snapshot_and_drops_what_the_rules_do_not_keep() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let ids: Vec<String> = (1..=3)
            .map(|version| {
                fs::write(pair.source.join("file"), format!("version {version}")).unwrap();
                let flags = ["--delete", &format!("--run=web-{version}")];
                let demands =
                    ["--snapshot", "--snapshot-tag=web", "--snapshot-job=web", "--snapshot-keep-last=2"];
                let run = pair.run_with(&flags, &demands);
                let told = snapshot_of(&run, ExitCode::Done);
                assert_eq!(run.report().snapshot.as_ref(), Some(&told), "{way:?}: both ends tell the same");
                assert_eq!(told.count, version.min(2));
                let made = told.made.clone().unwrap();
                assert_eq!((&told.kept[0].id, &told.reason), (&made.id, &None));
                assert_eq!((made.entries, made.bytes, made.tags), (1, 9, vec!["web".to_string()]));
                assert!(told.kept[0].reasons.contains(&"last".into()), "{:?}", told.kept);
                assert!(told.dropped_count == version.saturating_sub(2), "{told:?}");
                made.id
            })
            .collect();
        let listed = list(&pair);
        let named: Vec<_> = listed.iter().map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!(named, ids[1..]);
        assert_eq!((&listed[0]["run"], &listed[0]["job"]), (&"web-2".into(), &"web".into()));
        assert_eq!(cat(&pair, &ids[1], "file"), "version 2");
        Snapshot::of(&pair.destination).assert_like(&Snapshot::of(&pair.source), oracle::COPY, "after");
        assert!(snapshot("verify", &pair.destination, &[]).status.success());
    }
}

/// Each later run reports the damage that one run found, whichever part it checks, until a good copy appears.
#[test]
fn runs_check_the_snapshots_in_turn_and_know_damage_until_it_is_healed() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let asked = ["--snapshot", "--snapshot-job=web", "--snapshot-verify=2"];
        let next = |content: &[u8]| {
            fs::write(pair.source.join("large"), content).unwrap();
            pair.run_with(&["--compare=content"], &asked)
        };
        let good = vec![7; 300_000];
        let first = snapshot_of(&next(&good), ExitCode::Done).verify.unwrap();
        assert_eq!((first.part.as_str(), first.damaged, first.healed), ("1/2", 0, 0), "{first:?}");
        snapshot_of(&next(b"other"), ExitCode::Done);
        flip(&only_file_below(&pair.destination.join(".volferry/snapshots/content")), 5);
        next(b"other");
        next(b"other");
        for part in ["1/2", "2/2"] {
            let run = next(b"other");
            let told = snapshot_of(&run, ExitCode::Partial);
            let found = told.verify.unwrap();
            assert_eq!((found.part.as_str(), found.damaged), (part, 1), "{way:?}: {found:?}");
            assert!(found.files[0].starts_with("large in "), "{found:?}");
            assert!(told.made.is_some() && told.message.contains(&found.files[0]), "{}", told.message);
            assert_eq!(report_of(&run).reason.as_deref(), Some("SnapshotsDamaged"));
        }
        let found = snapshot_of(&next(&good), ExitCode::Done).verify.unwrap();
        assert_eq!((found.damaged, found.healed), (0, 0), "{way:?}: the snapshot replaced it: {found:?}");
        // A snapshot reads files again that were changed within a tick of the clock, and repairs them itself.
        let healed = loop {
            flip(&only_file_below(&pair.destination.join(".volferry/snapshots/content")), 5);
            let mut runs = (0..2).map(|_| pair.run_with(&["--compare=content"], &asked));
            let is_healed = |run: &Run| snapshot_of(run, ExitCode::Done).verify.unwrap().healed == 1;
            if let Some(healed) = runs.find(is_healed) {
                break healed;
            }
        };
        let notes = report_of(&healed).notes.join("\n");
        assert!(notes.contains("damaged objects of the snapshots healed: 1"), "{notes}");
        assert!(snapshot("verify", &pair.destination, &[]).status.success());
    }
}

#[test]
fn rules_judge_the_snapshots_of_one_job_only() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    pair.done(&[]);
    snapshot("create", &pair.destination, &["--tag=mine"]);
    pair.run_with(&[], &["--snapshot", "--snapshot-job=other"]).assert_exit(ExitCode::Done);
    for _ in 0..2 {
        let told = snapshot_of(
            &pair.run_with(&[], &["--snapshot", "--snapshot-job=web", "--snapshot-keep-last=1"]),
            ExitCode::Done,
        );
        assert_eq!(told.count, 1);
    }
    let jobs: Vec<String> =
        list(&pair).iter().map(|it| it["job"].as_str().unwrap_or_default().into()).collect();
    assert_eq!(jobs, ["", "other", "web"]);
}

/// Neither the run nor the person names a job.
#[test]
fn the_rules_of_a_run_never_judge_the_snapshots_of_a_person() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    let take = || snapshot_of(&pair.run_with(&[], &["--snapshot", "--snapshot-keep-last=1"]), ExitCode::Done);
    take();
    for _ in 0..2 {
        assert!(snapshot("create", &pair.destination, &["--tag=mine"]).status.success());
        let told = take();
        assert_eq!((told.count, told.dropped_count), (1, 1), "{told:?}");
    }
    let purposes: Vec<String> = list(&pair).iter().map(|it| it["purpose"].as_str().unwrap().into()).collect();
    assert_eq!(purposes, ["manual", "manual", "afterRun"]);
    let reasons = list(&pair)[0]["reasons"].clone();
    assert_eq!(reasons[0]["rule"], "no rule", "{reasons}");
}

/// SyncJobs of the same name in two namespaces may share a volume.
#[test]
fn jobs_of_one_name_in_two_namespaces_do_not_drop_each_others_snapshots() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    for _ in 0..2 {
        for namespace in ["test", "prod"] {
            let job = format!("--snapshot-job={namespace}/web");
            let told = snapshot_of(
                &pair.run_with(&[], &["--snapshot", &job, "--snapshot-keep-last=1"]),
                ExitCode::Done,
            );
            assert_eq!(told.count, 1, "{told:?}");
        }
    }
    let jobs: Vec<String> = list(&pair).iter().map(|it| it["job"].as_str().unwrap().into()).collect();
    assert_eq!(jobs, ["test/web", "prod/web"]);
}

#[test]
fn tags_keep_snapshots_after_a_run_and_bytes_limit_them() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), vec![1; 1000]).unwrap();
    let take = |more: &[&str]| {
        let demands = [&["--snapshot", "--snapshot-job=prod/web"], more].concat();
        snapshot_of(&pair.run_with(&[], &demands), ExitCode::Done)
    };
    let gold = take(&["--snapshot-tag=gold"]).made.unwrap().id;
    take(&[]);
    let told = take(&["--snapshot-keep-tag=gold", "--snapshot-max-bytes=0"]);
    let made = told.made.unwrap().id;
    let kept: Vec<_> = told.kept.iter().map(|it| (it.id.clone(), it.reasons.join(","))).collect();
    assert_eq!(kept, [(made, "newest whole".to_string()), (gold, "tag gold".to_string())]);
    assert_eq!(told.dropped_count, 1);
}

/// The list names only the rules that the job applied last.
#[test]
fn the_list_says_why_each_snapshot_is_kept_and_until_when() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    let take = |more: &[&str]| {
        let demands = [&["--snapshot", "--snapshot-job=prod/web"], more].concat();
        snapshot_of(&pair.run_with(&[], &demands), ExitCode::Done).made.unwrap().id
    };
    let first = take(&[]);
    let reasons = |id: &str| list(&pair).iter().find(|it| it["id"] == id).unwrap()["reasons"].clone();
    let prune = serde_json::json!([{"rule": "no rule", "until": {"event": "prune"}}]);
    assert_eq!(reasons(&first), prune);
    let second = take(&["--snapshot-keep-last=3"]);
    let newer = |count: u32| {
        let until = serde_json::json!({"event": "newer", "period": "snapshot", "count": count});
        serde_json::json!({"rule": "last", "until": until})
    };
    let whole = serde_json::json!({"rule": "newest whole", "until": {"event": "newerWhole"}});
    assert_eq!(reasons(&first), serde_json::json!([newer(2)]));
    assert_eq!(reasons(&second), serde_json::json!([whole, newer(3)]));
    let told = snapshot("list", &pair.destination, &[]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("newest whole (until a newer whole one), last (until 3 newer)\n"), "{text}");
    snapshot("pin", &pair.destination, &[&first]);
    let pinned = serde_json::json!({"rule": "pinned", "until": {"event": "unpinned"}});
    assert_eq!(reasons(&first), serde_json::json!([pinned, newer(2)]));
    take(&[]);
    assert_eq!(reasons(&second), prune, "the last run applied no rules");
}

#[test]
fn rules_with_more_tags_than_the_list_can_have_are_refused_and_the_list_stays_readable() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    let tags: Vec<String> = (0..65).map(|nth| format!("--snapshot-keep-tag=t{nth}")).collect();
    let demands: Vec<&str> = ["--snapshot"].into_iter().chain(tags.iter().map(String::as_str)).collect();
    let told = snapshot_of(&pair.run_with(&[], &demands), ExitCode::Partial);
    assert!(told.message.contains("at most 64 tags"), "{told:?}");
    assert_eq!(snapshot_of(&pair.run_with(&[], &demands[..65]), ExitCode::Done).count, 1);
    assert_eq!(list(&pair).len(), 1);
}

#[test]
fn a_run_that_is_refused_takes_no_snapshot_and_says_so() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        fs::write(pair.source.join("file"), "content").unwrap();
        snapshot_of(&pair.run_with(&["--delete"], &["--snapshot"]), ExitCode::Done);
        fs::remove_file(pair.source.join("file")).unwrap();
        let refused = pair.run_with(&["--delete"], &["--snapshot"]);
        let told = snapshot_of(&refused, ExitCode::Guard);
        assert_eq!((told.reason.as_deref(), told.made), (Some("RunNotWhole"), None));
        assert_eq!(list(&pair).len(), 1, "{way:?}");
    }
}

#[test]
fn a_run_that_leaves_a_file_out_takes_no_snapshot_and_says_so() {
    for pair in Pair::each_unprivileged() {
        let secret = pair.source.join("secret");
        fs::write(&secret, "content").unwrap();
        crate::common::tree::set_mode(&secret, 0);
        let partial = pair.run_with(&[], &["--snapshot"]);
        let told = snapshot_of(&partial, ExitCode::Partial);
        assert_eq!(report_of(&partial).reason.as_deref(), Some("SomeFilesFailed"));
        assert_eq!(told.reason.as_deref(), Some("RunNotWhole"));
        assert_eq!(list(&pair).len(), 0);
    }
}

#[test]
fn a_snapshot_that_fails_is_what_the_run_says_of_itself() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        fs::write(pair.source.join("file"), "content").unwrap();
        pair.done(&[]);
        let store = pair.destination.join(".volferry/snapshots");
        fs::create_dir(&store).unwrap();
        let mut head = [&b"vfroots\0\x09\0\0\0"[..], &[0; 8]].concat();
        head.extend_from_slice(&blake3::hash(&head).as_bytes()[..8]);
        fs::write(store.join("roots"), head).unwrap();
        fs::write(pair.source.join("file"), "other content").unwrap();
        let failed = pair.run_with(&[], &["--snapshot"]);
        let told = snapshot_of(&failed, ExitCode::Partial);
        let report = report_of(&failed);
        assert_eq!(
            (report.result, report.reason.as_deref()),
            (RunResult::PartiallyFailed, Some("SnapshotFailed"))
        );
        assert!(told.message.contains("has format version 9"), "{told:?}");
        assert_eq!(report.message, told.message);
        assert_eq!(fs::read_to_string(pair.destination.join("file")).unwrap(), "other content");
    }
}

#[test]
fn a_dry_run_takes_no_snapshot() {
    let pair = Pair::new(Way::Local);
    fs::write(pair.source.join("file"), "content").unwrap();
    let dry = pair.run_with(&["--dry-run"], &["--snapshot"]);
    dry.assert_exit(ExitCode::Done);
    assert_eq!(report_of(&dry).snapshot, None);
    assert!(!pair.destination.join(".volferry").exists());
}

#[test]
fn shards_take_no_snapshot() {
    let pair = Pair::new(Way::SinkListens);
    fs::write(pair.source.join("file"), "content").unwrap();
    let refused = pair.run_with(&["--run=r", "--shard=0/2"], &["--snapshot"]);
    refused.assert_exit(ExitCode::Usage);
    assert_eq!(report_of(&refused).reason.as_deref(), Some("ShardedSnapshot"));
}

/// A run that changes nothing publishes its own scan. The command scans again, and finds the same tree.
#[test]
fn a_run_that_changes_nothing_publishes_what_a_scan_finds() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        tree::gallery(&pair.source, tree::Shape::Everything);
        tree::random(&pair.source, &mut Rng::new(9), 60, tree::Shape::Everything);
        let taken = ["changed", "same", "same again"].map(|tag| {
            let run = pair
                .run_with(&["--delete"], &["--snapshot", &format!("--snapshot-tag={tag}").replace(' ', "-")]);
            snapshot_of(&run, ExitCode::Done).made.unwrap().id
        });
        assert!(snapshot("create", &pair.destination, &["--tag=scanned"]).status.success());
        for id in taken {
            let said = snapshot("diff", &pair.destination, &[&id, "scanned"]);
            assert_eq!(String::from_utf8(said.stdout).unwrap(), "", "{way:?}: {id}");
        }
    }
}

/// A run lists only its own changes again. The command scans everything, and finds the same tree.
#[test]
fn a_run_that_changes_anything_publishes_what_a_scan_finds() {
    for (way, seed) in Way::EACH.into_iter().flat_map(|way| [(way, 1), (way, 2)]) {
        let (pair, mut rng) = (Pair::new(way), Rng::new(seed));
        tree::gallery(&pair.source, tree::Shape::Everything);
        tree::random(&pair.source, &mut rng, 60, tree::Shape::Everything);
        snapshot_of(&pair.run_with(&[], &["--snapshot"]), ExitCode::Done);
        for round in 0..8 {
            let mut edits = Vec::new();
            for dir in [&pair.source, &pair.source, &pair.source, &pair.source, &pair.destination] {
                let edit = *rng.pick(&Edit::ALL).unwrap();
                edits.push((edit, edit.apply(dir, &mut rng)));
            }
            let what = format!("{way:?}, seed {seed}, round {round}: {edits:?}");
            let taken = pair.run_with(&["--delete", "--force"], &["--snapshot"]);
            let id = snapshot_of(&taken, ExitCode::Done).made.unwrap().id;
            let tag = format!("scanned-{round}");
            assert!(snapshot("create", &pair.destination, &[&format!("--tag={tag}")]).status.success());
            let said = snapshot("diff", &pair.destination, &[&id, &tag]);
            assert_eq!(String::from_utf8(said.stdout).unwrap(), "", "{what}");
        }
    }
}

/// Takes content that a run has in memory into the snapshot. The command reads every file, and finds the same content.
#[test]
fn a_first_run_publishes_what_a_scan_finds() {
    for way in Way::EACH {
        let (pair, mut rng) = (Pair::new(way), Rng::new(way as u64 + 3));
        tree::gallery(&pair.source, tree::Shape::Everything);
        for len in [1, 1 << 10, (1 << 10) + 1, 64 << 10, (64 << 10) + 1, 128 << 10, 5 << 20] {
            fs::write(pair.source.join(format!("of {len}")), rng.bytes(len)).unwrap();
            fs::write(pair.source.join(format!("zeros of {len}")), vec![0; len]).unwrap();
        }
        let sparse = fs::File::create(pair.source.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"the end", 3 << 20).unwrap();
        let taken = snapshot_of(&pair.run_with(&[], &["--snapshot"]), ExitCode::Done).made.unwrap().id;
        assert!(snapshot("create", &pair.destination, &["--tag=scanned"]).status.success());
        let said = snapshot("diff", &pair.destination, &[&taken, "scanned"]);
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "", "{way:?}");
        assert!(snapshot("verify", &pair.destination, &["--no-heal"]).status.success(), "{way:?}");
        let restored = pair.dir().join("restored");
        let to = ["--to", restored.to_str().unwrap(), &taken];
        assert!(snapshot("restore", &pair.destination, &to).status.success(), "{way:?}");
        Snapshot::of(&restored).assert_like(&Snapshot::of(&pair.source), oracle::COPY, "restored");
    }
}
