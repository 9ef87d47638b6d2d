//! Takes the snapshot that a run requests, and drops those that the job's rules do not keep.

use std::{path::Path, time::SystemTime};

use contract::{MAX_SNAPSHOTS, Reason, SnapshotEntry, SnapshotParams, SnapshotReport, chain, human::plural};
use jiff::{Timestamp, tz::TimeZone};

use super::{
    check_after_run::verify_after_run,
    drop_snapshots::{drop_snapshots, of_job},
    make_room::make_room,
};
use crate::{
    destination::Destination,
    failures::{Failures, FilesInMotion},
    filter::Filter,
    monitor::Monitor,
    root::Root,
    snapshot::{
        create::{KnownFromRun, WantedSnapshot, create_in},
        retention::{KeptBy, Verdict, judge, not_kept},
        store::{JobRules, Labels, Purpose, Roots, Snapshot, SnapshotError, Writer, check_tags},
        typed_time::time_of,
    },
};

/// Takes the snapshot of the destination at `path` that `asked` describes, once the run `run` has committed, and drops
/// the snapshots that the job's rules do not keep. Scans only the entries that may differ from the scan in `known`.
/// Errors go to the report.
pub(crate) fn snapshot_after_run(
    destination: &Destination,
    path: &Path,
    asked: &SnapshotParams,
    run: &str,
    known: KnownFromRun<'_>,
    monitor: &Monitor,
) -> SnapshotReport {
    let mut report = SnapshotReport::default();
    let root = destination.root();
    match Writer::open(destination.state(), root, path, monitor) {
        Ok(mut writer) => {
            let done = create_and_drop(&mut writer, root, asked, run, known, monitor, &mut report);
            done.unwrap_or_else(|error| report_error(&mut report, &error));
            if let Some(verify) = asked.verify {
                let by = if run.is_empty() { user() } else { run.into() };
                verify_after_run(&mut writer, root, verify, &by, monitor, &mut report);
            }
        }
        Err(error) => report_error(&mut report, &error),
    }
    report
}

/// Reports a snapshot that was not taken because of an error.
pub(crate) fn snapshot_refused(error: &SnapshotError) -> SnapshotReport {
    let mut report = SnapshotReport::default();
    report_error(&mut report, error);
    report
}

/// Reports an error: of a snapshot that was not taken, or of those that its rules drop.
pub(crate) fn report_error(report: &mut SnapshotReport, error: &SnapshotError) {
    let (reason, what) = match report.made {
        None => (Reason::SnapshotFailed, "the run succeeded, and its snapshot failed"),
        Some(_) => (Reason::RetentionFailed, "the snapshot was taken, and old ones could not be dropped"),
    };
    report.reason = Some(reason);
    report.message = format!("{what}: {}", chain(error));
}

fn create_and_drop(
    writer: &mut Writer<'_>,
    root: &Root,
    asked: &SnapshotParams,
    run: &str,
    known: KnownFromRun<'_>,
    monitor: &Monitor,
    report: &mut SnapshotReport,
) -> Result<(), SnapshotError> {
    let labels = labels(asked, run);
    labels.check()?;
    let failures = Failures::default();
    let create = |writer: &mut Writer<'_>| {
        remember_rules(&mut writer.roots, asked)?;
        let wanted =
            WantedSnapshot { labels: labels.clone(), engine: asked.engine, filter: Filter::default() };
        create_in(writer, root, wanted, &failures, known, monitor)
    };
    let by = if run.is_empty() { labels.user.as_str() } else { run };
    let made = match create(writer) {
        Err(error) if error.is_no_room() && make_room(writer, asked, by, report, monitor)? => create(writer)?,
        result => result?,
    };
    report_failures(report, &made, &failures);
    report.made = Some(entry(&made, &[]));
    list(report, &writer.roots, &asked.job, &[]);
    if asked.keep.has_rule() {
        apply_rules(writer, asked, by, report, monitor)?;
    }
    Ok(())
}

/// Records the job's rules in the list of snapshots, which is published together with the new snapshot.
pub(crate) fn remember_rules(roots: &mut Roots, asked: &SnapshotParams) -> Result<(), SnapshotError> {
    roots.rules.remove(&asked.job);
    if asked.keep.has_rule() {
        let zone = TimeZone::system().iana_name().unwrap_or_default().into();
        let retention = asked.keep.clone();
        check_tags(&retention.tags)?;
        roots.rules.insert(asked.job.clone(), JobRules { retention, zone });
    }
    Ok(())
}

/// Returns the labels of a snapshot that a run takes.
pub(crate) fn labels(asked: &SnapshotParams, run: &str) -> Labels {
    Labels {
        tags: asked.tags.iter().cloned().collect(),
        run: run.into(),
        job: asked.job.clone(),
        purpose: Purpose::AfterRun,
        user: user(),
        ..Labels::default()
    }
}

fn user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

/// Reports what a snapshot lacks, or may have as a mix.
pub(crate) fn report_failures(report: &mut SnapshotReport, made: &Snapshot, failures: &Failures) {
    if made.is_whole() {
        return report_in_motion(report, made, failures);
    }
    report.reason = Some(Reason::SnapshotNotWhole);
    let first = failures.named().into_iter().next();
    let first = first.map(|it| format!(", first {}: {}: {}", it.path, it.operation, it.error));
    report.message = format!(
        "snapshot {} lacks {} entries that could not be read{}",
        made.id,
        made.failed,
        first.unwrap_or_default()
    );
}

fn report_in_motion(report: &mut SnapshotReport, made: &Snapshot, failures: &Failures) {
    let FilesInMotion { count, first } = failures.in_motion();
    if let Some(first) = first.first() {
        report.reason = Some(Reason::SnapshotInMotion);
        let files = plural(count, "file that kept changing", "files that kept changing");
        report.message = format!("snapshot {} may have a mix of {files} while it was read: {first}", made.id);
    }
}

/// Drops the snapshots of this job that its rules do not keep. Leaves forgotten ones, and those of other jobs and of
/// persons.
fn apply_rules(
    writer: &mut Writer<'_>,
    asked: &SnapshotParams,
    by: &str,
    report: &mut SnapshotReport,
    monitor: &Monitor,
) -> Result<(), SnapshotError> {
    let judged: Vec<&Snapshot> = of_job(&writer.roots, &asked.job).collect();
    let now = time_of(SystemTime::now());
    let verdicts = judge(&judged, &asked.keep, now, &TimeZone::system())?;
    drop_snapshots(writer, &not_kept(&verdicts).collect(), by, report, monitor)?;
    list(report, &writer.roots, &asked.job, &verdicts);
    Ok(())
}

/// Lists the job's snapshots in the report, the newest first.
pub(crate) fn list(report: &mut SnapshotReport, roots: &Roots, job: &str, verdicts: &[Verdict]) {
    let mut kept: Vec<&Snapshot> = of_job(roots, job).collect();
    kept.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.taken, snapshot.id)));
    report.count = kept.len() as u64;
    report.bytes = kept.iter().fold(0, |sum, snapshot| sum.saturating_add(snapshot.added_bytes));
    let reasons = |id| verdicts.iter().find(|verdict| verdict.id == id).map(|it| &it.reasons[..]);
    let newest = kept.iter().take(MAX_SNAPSHOTS);
    report.kept = newest.map(|snapshot| entry(snapshot, reasons(snapshot.id).unwrap_or_default())).collect();
}

/// Returns a snapshot as reports list it.
pub(crate) fn entry(snapshot: &Snapshot, reasons: &[KeptBy]) -> SnapshotEntry {
    let taken = Timestamp::from_second(snapshot.taken.seconds);
    SnapshotEntry {
        id: snapshot.id.to_string(),
        // A time outside the calendar's range of years is left out.
        taken: taken.map(|taken| taken.to_string()).unwrap_or_default(),
        entries: snapshot.entries,
        bytes: snapshot.bytes,
        added_bytes: snapshot.added_bytes,
        tags: snapshot.tags.iter().cloned().collect(),
        reasons: reasons.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        fs,
        os::fd::AsFd as _,
        time::{Duration, Instant},
    };

    use contract::SnapshotEngine;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        entry::Time,
        kept_xattrs::Classes,
        path::RelPath,
        scan::{ChangedEntries, EarlierScan, ScanOptions, scan},
        snapshot::{
            Store,
            create::{WrittenFiles, is_like_own_scan},
        },
        sys::stat::modified,
        tree::{Tree, dir::ROOT},
    };

    /// Scans as a run does that takes a snapshot.
    fn scan_all(root: &Root) -> Tree {
        let options = ScanOptions {
            hard_links: true,
            attrs: Classes::ALL,
            stamps: Some(Time { seconds: i64::MAX, nanos: 0 }),
            list_sockets: true,
            unreadable_attrs: true,
            ..ScanOptions::default()
        };
        scan(root, &options, &Failures::default(), &Monitor::default()).unwrap()
    }

    /// Counts the scanned entries by the checks of the monitor.
    #[test]
    fn a_tree_that_the_run_knows_is_not_scanned_and_gives_the_same_snapshot() {
        const FILES: u64 = 600;
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for nth in 0..FILES {
            fs::write(dir.path().join(format!("folder/{nth}")), nth.to_string()).unwrap();
        }
        fs::create_dir(dir.path().join("links")).unwrap();
        fs::write(dir.path().join("links/one"), "content").unwrap();
        fs::hard_link(dir.path().join("links/one"), dir.path().join("links/other")).unwrap();
        let destination = Destination::of_test(dir.path());
        let root = destination.root();
        let tree = scan_all(root);
        assert!(is_like_own_scan(&tree));
        let linked = tree.groups.iter().flat_map(|group| &group.members);
        let changed: HashMap<_, _> = linked.map(|place| (place.dir, ChangedEntries::All)).collect();
        let known = EarlierScan { tree: &tree, changed: &changed };
        let taken = |scan: Option<EarlierScan<'_>>| {
            let (monitor, known) = (Monitor::default(), KnownFromRun { scan, written: None });
            let report = snapshot_after_run(
                &destination,
                dir.path(),
                &SnapshotParams::default(),
                "run",
                known,
                &monitor,
            );
            assert_eq!(report.reason, None, "{report:?}");
            let store = Store::open(root, dir.path()).unwrap().unwrap();
            let tree = store.roots().unwrap().snapshots.last().unwrap().tree;
            (tree.id, monitor.checks())
        };
        // Each snapshot reads the content of files that are younger than a tick of the clock.
        let deadline = Instant::now() + Duration::from_secs(60);
        let (first, _) = taken(Some(known));
        let second = loop {
            let (second, checks) = taken(Some(known));
            if checks < 20 {
                break second;
            }
            assert!(Instant::now() < deadline, "{checks} checks");
        };
        let (third, checks) = taken(None);
        assert!(checks > FILES, "{checks} checks");
        assert!(first == second && second == third);
        std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let tree = scan_all(root);
        assert!(!is_like_own_scan(&tree), "a snapshot lists no sockets");
    }

    /// Adds an entry that the run does not know, which shows whether a snapshot reads the names of a directory.
    #[test]
    fn names_are_read_again_only_where_the_run_may_have_made_some() {
        for may_have_new in [false, true] {
            let dir = TempDir::new().unwrap();
            ["changed", "gone", "same"].iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
            let destination = Destination::of_test(dir.path());
            let tree = scan_all(destination.root());
            fs::write(dir.path().join("changed"), "content").unwrap();
            fs::write(dir.path().join("added"), "").unwrap();
            fs::remove_file(dir.path().join("gone")).unwrap();
            let names = [&b"changed"[..], b"gone"].map(Box::from).into();
            let changed = [(ROOT, ChangedEntries::Named { names, may_have_new })].into();
            let scan = Some(EarlierScan { tree: &tree, changed: &changed });
            let known = KnownFromRun { scan, written: None };
            let asked = SnapshotParams::default();
            let report =
                snapshot_after_run(&destination, dir.path(), &asked, "run", known, &Monitor::default());
            assert_eq!(report.reason, None, "{report:?}");
            let store = Store::open(destination.root(), dir.path()).unwrap().unwrap();
            let folder = store.folder(&store.roots().unwrap().snapshots.last().unwrap().tree).unwrap();
            let listed: Vec<_> = folder.listing.iter().map(|entry| entry.name.to_vec()).collect();
            let expected: &[&[u8]] =
                if may_have_new { &[b"added", b"changed", b"same"] } else { &[b"changed", b"same"] };
            assert_eq!(listed, expected);
            assert_eq!(folder.contents.len(), 1, "the new content is in the snapshot");
        }
    }

    /// Records content as written by the run that the files do not have, which shows whether a snapshot reads them.
    #[test]
    fn the_snapshot_after_a_run_has_files_as_the_run_wrote_them_and_the_next_one_has_later_changes() {
        let dir = TempDir::new().unwrap();
        let destination = Destination::of_test(dir.path());
        let written = WrittenFiles::begin(&destination, SnapshotEngine::Copy).unwrap();
        for name in ["changed", "linked", "same"] {
            fs::write(dir.path().join(name), "live").unwrap();
            let file = fs::File::open(dir.path().join(name)).unwrap();
            let mtime = modified(&rustix::fs::fstat(&file).unwrap());
            written.add_new(&RelPath::root(), name.as_bytes(), file.as_fd(), mtime, b"told");
        }
        fs::write(dir.path().join("changed"), "later").unwrap();
        written.forget(&RelPath::parse(b"linked").unwrap());
        let asked = SnapshotParams { engine: SnapshotEngine::Copy, ..SnapshotParams::default() };
        let contents = |known: KnownFromRun<'_>| {
            let report =
                snapshot_after_run(&destination, dir.path(), &asked, "run", known, &Monitor::default());
            assert_eq!(report.reason, None, "{report:?}");
            let store = Store::open(destination.root(), dir.path()).unwrap().unwrap();
            let folder = store.folder(&store.roots().unwrap().snapshots.last().unwrap().tree).unwrap();
            let files = folder.files().map(|file| store.small(&file.content, file.len).unwrap());
            files.map(|content| String::from_utf8(content).unwrap()).collect::<Vec<_>>()
        };
        let known = KnownFromRun { scan: None, written: Some(&written) };
        assert_eq!(contents(known), ["told", "live", "told"]);
        fs::write(dir.path().join("same"), "live").unwrap();
        assert_eq!(contents(KnownFromRun::default()), ["later", "live", "live"]);
    }

    /// Stops a snapshot at each check of the monitor in turn, until it completes: a stopped one leaves nothing behind.
    #[test]
    fn a_snapshot_that_is_told_to_stop_leaves_the_store_as_it_was() {
        let dir = TempDir::new().unwrap();
        for nth in 0..20_u8 {
            fs::write(dir.path().join(format!("small{nth}")), [nth; 100]).unwrap();
        }
        fs::write(dir.path().join("large"), vec![1; 3 << 20]).unwrap();
        let destination = Destination::of_test(dir.path());
        let asked = SnapshotParams::default();
        let mut stopped = 0;
        loop {
            let monitor = Monitor::canceled_at(stopped + 1);
            let report = snapshot_after_run(
                &destination,
                dir.path(),
                &asked,
                "run",
                KnownFromRun::default(),
                &monitor,
            );
            let store = Store::open(destination.root(), dir.path()).unwrap().unwrap();
            let there = store.roots().unwrap().snapshots.len();
            assert_eq!(there, usize::from(report.made.is_some()), "{stopped}: {report:?}");
            if report.made.is_some() {
                break;
            }
            assert_eq!(report.reason.as_deref(), Some("SnapshotFailed"), "{stopped}");
            let left = fs::read_dir(dir.path().join(".volferry/snapshots/new")).unwrap().count();
            assert_eq!(left, 0, "{stopped}: {report:?}");
            stopped += 1;
        }
        assert!(stopped > 20, "it was seen to stop at {stopped} checks only");
    }
}
