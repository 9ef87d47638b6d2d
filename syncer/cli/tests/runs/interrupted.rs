//! Runs that are interrupted: killed, stopped, or met by another run. At any time, every file at the destination is
//! wholly old or wholly new, and the next run completes.

use crate::common::oracle::Kind;
use crate::common::{prelude::*, watch::until_written};

/// The flags of runs that may replace everything.
const FORCED: [&str; 2] = ["--delete", "--force"];

/// The numbers of bytes after which the link stops, in runs of more than 5 MB: about when the trees are compared, when
/// small files arrive, and when large ones do.
const CUTS: [u64; 3] = [40_000, 400_000, 3_000_000];

/// The number of large files that [`all_changed`] makes.
const LARGE_FILES: usize = 5;

/// Makes a pair in step, then replaces everything at the source.
fn all_changed(way: Way, seed: u64) -> Pair {
    let pair = Pair::new(way);
    let mut rng = Rng::new(seed);
    let mut fill = || {
        tree::many(&pair.source, 200, 4000);
        for i in 0..LARGE_FILES {
            tree::file(&pair.source.join(format!("large{i}")), &rng.bytes(1_200_000 + i * 7));
        }
        let dirs = fs::read_dir(&pair.source).unwrap().count();
        (0..20).for_each(|i| tree::file(&pair.source.join(format!("small{i}")), &rng.bytes(900 + dirs)));
    };
    fill();
    pair.sync("before");
    fs::remove_dir_all(&pair.source).unwrap();
    fs::create_dir(&pair.source).unwrap();
    tree::file(&pair.source.join("small0"), b"becomes one of many");
    fs::create_dir(pair.source.join("small1 is a directory")).unwrap();
    let mut rng = Rng::new(seed + 1);
    for number in 0..200 {
        let dir = pair.source.join(format!("d{:04}", number / 100));
        fs::create_dir_all(&dir).unwrap();
        tree::file(&dir.join(format!("f{number:06}")), &rng.bytes(4000));
    }
    (0..LARGE_FILES).for_each(|i| tree::file(&pair.source.join(format!("large{i}")), &rng.bytes(1_300_000)));
    pair
}

/// Checks that each file is as before the run or as at the source.
#[track_caller]
fn assert_old_or_new(pair: &Pair, old: &Snapshot, what: &str) {
    let new = Snapshot::of(&pair.source);
    for (path, node) in Snapshot::of(&pair.destination).entries() {
        let known = [old.at(path), new.at(path)].into_iter().flatten().any(|there| there.kind == node.kind);
        assert!(known, "{what}: {} is neither old nor new", show(path));
    }
    for (path, node) in old.entries() {
        let gone = fs::symlink_metadata(pair.destination.join(show(path))).is_err();
        let meant = new.at(path).is_none() || node.kind == Kind::Dir;
        assert!(!gone || meant, "{what}: {} is gone", show(path));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Source,
    Sink,
}

fn kill_in_mid_run(way: Way, victim: Victim, cut: u64) {
    let what = format!("{way:?}, {victim:?} killed after {cut} bytes");
    let pair = all_changed(way, cut);
    let old = Snapshot::of(&pair.destination);
    let (source, sink, _relay) = pair.start_over(cut, &FORCED);
    let (killed, survivor) = match victim {
        Victim::Source => (source, sink),
        Victim::Sink => (sink, source),
    };
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait().exit, None, "{what}");
    let survivor = survivor.wait();
    survivor.assert_exit(ExitCode::PeerLost);
    assert_eq!((survivor.reason(), survivor.report().result), ("PeerLost", RunResult::Failed), "{what}");
    assert_old_or_new(&pair, &old, &what);
    let report = pair.sync(&format!("after: {what}"));
    assert!(report.work.files_created + report.work.files_updated > 0, "{what}: the run was over before");
    pair.sync_unchanged(&what);
}

#[test]
fn an_end_that_is_killed_leaves_each_file_old_or_new_and_the_next_run_gets_to_the_end() {
    // Most of the time is the wait for a peer that is gone, so all cases run concurrently.
    thread::scope(|scope| {
        for (cut, ways) in
            CUTS.into_iter().zip([Way::NETWORK, [Way::SourceListens, Way::SinkListens]].iter().cycle())
        {
            for (victim, way) in [Victim::Source, Victim::Sink].into_iter().zip(*ways) {
                scope.spawn(move || kill_in_mid_run(way, victim, cut));
            }
        }
    });
}

/// Checks that an end was asked to stop, or told so by its peer: one that loses its peer says that.
#[track_caller]
fn assert_canceled(end: &Ended, what: &str) {
    assert_eq!((end.report().result, end.reason()), (RunResult::Canceled, "Canceled"), "{what}");
    end.assert_exit(ExitCode::Failed);
}

#[test]
fn an_end_that_is_told_to_stop_stops_at_once_in_order_and_so_does_its_peer() {
    for (way, victim) in [
        (Way::SinkListens, Victim::Sink),
        (Way::SinkListens, Victim::Source),
        (Way::SourceListens, Victim::Sink),
        (Way::SourceListens, Victim::Source),
    ] {
        let what = format!("{way:?}, {victim:?} stopped");
        let pair = all_changed(way, 1);
        let old = Snapshot::of(&pair.destination);
        let (source, sink, relay) = pair.start_over(2_000_000, &FORCED);
        let (stopped, other) = match victim {
            Victim::Source => (source, sink),
            Victim::Sink => (sink, source),
        };
        relay.release();
        stopped.signal(Signal::TERM);
        assert_canceled(&stopped.wait(), &what);
        assert_canceled(&other.wait(), &format!("{what}, its peer"));
        assert_old_or_new(&pair, &old, &what);
        pair.assert_only_parts_staged(LARGE_FILES);
        pair.sync(&format!("after: {what}"));
    }
}

/// While small files are on their way, many threads of the source find the connection closed, perhaps before the thread
/// that requested them.
#[test]
fn an_end_that_is_told_to_stop_amid_small_files_says_so_and_its_peer_says_the_same() {
    for (number, way) in (0..4).zip(Way::NETWORK.iter().cycle()) {
        let pair = Pair::new(*way);
        tree::many(&pair.source, 5_000, 3_000);
        stop_after(&pair, 4_000_000, &[usize::from(number >= 2)]);
        pair.sync("after small files");
    }
}

#[test]
fn a_local_run_that_is_told_to_stop_stops_at_once_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let pair = Pair::new(Way::Local);
        tree::many(&pair.source, 8_000, 100);
        let old = Snapshot::of(&pair.destination);
        // Not over before the signal comes, on a machine that is slow to send it.
        let mut run = pair.start_sync(&["--delete", "--bandwidth-limit=100k"]);
        run.moved();
        run.signal(signal);
        let ended = run.wait();
        assert_canceled(&ended, "a local run");
        assert!(ended.stderr.contains("hint: the next run continues"), "{}", ended.stderr);
        let work = ended.report().work;
        assert!((1..work.files_scanned).contains(&work.files_created), "what was done is told: {work:?}");
        assert_old_or_new(&pair, &old, "a local run");
        pair.assert_staging_empty();
        pair.sync("after a local run that was stopped");
    }
}

#[test]
fn a_destination_in_mid_run_is_refused_to_others_and_the_run_goes_on() {
    let pair = all_changed(Way::SinkListens, 3);
    let (source, sink, relay) = pair.start_over(2_000_000, &FORCED);
    let other =
        pair.start(&["sync", text(&pair.source), text(&pair.destination), "--progress=json", "--force"]);
    let other = other.wait();
    other.assert_exit(ExitCode::Failed);
    assert_eq!(other.reason(), "DestinationBusy");
    relay.release();
    [source, sink].into_iter().for_each(|end| end.wait().assert_exit(ExitCode::Done));
    pair.assert_copy("after another was refused");
    pair.assert_staging_empty();
}

#[test]
fn a_run_whose_destination_was_taken_over_changes_nothing_more() {
    for way in Way::NETWORK {
        let mut pair = all_changed(way, 6);
        let (source, sink, relay) = pair.start_over(2_000_000, &FORCED);
        // A network file system that cannot reach a node gives the node's lock to the next process that requests it.
        fs::remove_file(pair.destination.join(".volferry/lock")).unwrap();
        let other = pair.dir().join("other");
        fs::create_dir(&other).unwrap();
        tree::many(&other, 30, 500);
        pair.source = other;
        let run = pair.start_sync(&FORCED).wait();
        run.assert_exit(ExitCode::Done);
        let successors = Snapshot::of(&pair.destination);
        // A run trusts its last check of the volume for this time.
        thread::sleep(Duration::from_millis(50));
        relay.release();
        for end in [sink.wait(), source.wait()] {
            end.assert_exit(ExitCode::Failed);
            assert_eq!((end.reason(), end.report().result), ("DestinationTakenOver", RunResult::Failed));
        }
        Snapshot::of(&pair.destination).assert_like(
            &successors,
            UNTOUCHED,
            "after the run that was taken over",
        );
        pair.assert_copy("of the successor");
        pair.assert_staging_empty();
    }
}

#[test]
fn an_end_that_serves_outlives_a_peer_that_is_killed() {
    let pair = all_changed(Way::SinkListens, 5);
    let mut sink = pair.start_receive(&["--listen", ANY_PORT]);
    let address = sink.listening();
    let relay = Relay::holding(address, 2_000_000);
    let source = pair.start_send(&["--connect", &relay.address().to_string()], &FORCED);
    relay.wait_holding();
    source.signal(Signal::KILL);
    // The source connects while the sink still waits for the peer that is gone.
    pair.start_send(&["--connect", &address.to_string()], &FORCED).wait().assert_exit(ExitCode::Done);
    let told = [sink.finished(), sink.finished()].map(|report| report.reason);
    assert_eq!(told, [Some("PeerLost".into()), None]);
    pair.assert_copy("after the second run");
    pair.assert_staging_empty();
    sink.signal(Signal::TERM);
    sink.wait().assert_exit(ExitCode::Done);
}

/// The bytes that a connection lets cross before the sink takes them, and that may therefore cross twice.
const WINDOW: u64 = 24 << 20;

#[test]
fn what_has_arrived_of_a_large_file_is_not_sent_again() {
    const CROSSED: u64 = 50_000_000;
    for (number, killed) in [&[0][..], &[1], &[0, 1]].into_iter().enumerate() {
        let pair = Pair::new(Way::NETWORK[number % 2]);
        let content = Rng::new(number as u64).bytes(64_000_000);
        tree::file(&pair.source.join("large"), &content);
        let (source, sink, _relay) = pair.start_over(CROSSED, &FORCED);
        let ends = [source, sink];
        killed.iter().for_each(|&end| ends[end].signal(Signal::KILL));
        drop(ends.map(Running::wait));
        let report = pair.sync("the run after the one that was cut off");
        let sent = report.work.bytes_on_wire;
        assert!(
            sent < 64_000_000 - CROSSED + WINDOW + 2_000_000,
            "{sent} bytes sent after {CROSSED} had crossed"
        );
        pair.assert_staging_empty();
    }
}

/// Stops a run once `bytes` have crossed, by a signal to these ends (0 is the source). Returns the number of bytes that
/// crossed.
fn stop_after(pair: &Pair, bytes: u64, stopped: &[usize]) -> u64 {
    stop(pair.start_over(bytes, &FORCED), stopped)
}

fn stop((source, sink, relay): (Running, Running, Relay), stopped: &[usize]) -> u64 {
    let ends = [source, sink];
    stopped.iter().for_each(|&end| ends[end].signal(Signal::TERM));
    relay.release();
    for end in ends.map(Running::wait) {
        end.assert_exit(ExitCode::Failed);
        assert_eq!((end.report().result, end.reason()), (RunResult::Canceled, "Canceled"));
    }
    relay.crossed()
}

/// Each of three tries is told to stop after a quarter of the file.
#[test]
fn a_large_file_arrives_over_several_runs_that_are_told_to_stop() {
    const LEN: u64 = 128_000_000;
    for (number, stopped) in [&[0][..], &[1], &[0, 1]].into_iter().enumerate() {
        let pair = Pair::new(Way::NETWORK[number % 2]);
        tree::file(&pair.source.join("large"), &Rng::new(number as u64).bytes(LEN as usize));
        let crossed: u64 = (0..3).map(|_| stop_after(&pair, LEN / 4, stopped)).sum();
        pair.assert_only_parts_staged(1);
        let last = pair.sync("the run that gets to the end").work;
        let sent = crossed + last.bytes_on_wire;
        assert!(
            sent < LEN + LEN / 4,
            "{stopped:?} stopped: {sent} bytes sent for {LEN}, {crossed} of them before"
        );
        assert!(last.bytes_reused > LEN / 2, "{stopped:?} stopped: {last:?}");
    }
}

/// Stops a run by a signal to one end once the first half of a file of 8 MB has crossed, and a part of it is staged,
/// which is not worth keeping as long as it is empty.
fn stop_once_staged(pair: &Pair, stopped: usize) {
    let (staging, before) = (pair.destination.join(".volferry/staging"), pair.staged());
    let run = pair.start_over(4_000_000, &FORCED);
    let has_content = |name: &String| fs::metadata(staging.join(name)).is_ok_and(|staged| staged.len() > 0);
    let is_staged = || pair.staged().iter().any(|name| !before.contains(name) && has_content(name));
    until_written(&staging, is_staged);
    stop(run, &[stopped]);
}

/// The first try leaves a part of a file that does not exist in the second.
#[test]
fn a_part_that_nobody_can_use_goes_with_the_next_run_that_is_stopped() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("first"), &Rng::new(1).bytes(8_000_000));
    stop_once_staged(&pair, 0);
    let first = pair.staged();
    assert_eq!(first.len(), 1, "{first:?}");
    fs::rename(pair.source.join("first"), pair.source.join("second")).unwrap();
    stop_once_staged(&pair, 1);
    let second = pair.staged();
    assert_eq!(second.len(), 1, "{second:?}");
    assert_ne!(first[0][..32], second[0][..32]);
}

/// A refusal changes nothing, so a stopped run's parts remain for the run after it.
#[test]
fn a_run_that_is_refused_keeps_what_an_earlier_one_left() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.destination.join("only here"), b"content");
    tree::file(&pair.source.join("large"), &Rng::new(1).bytes(8_000_000));
    stop_once_staged(&pair, 0);
    let left = pair.staged();
    assert_eq!(left.len(), 1, "{left:?}");
    pair.run_to(ExitCode::Guard, &["--delete", "--delete-limit=10"]);
    assert_eq!(pair.staged(), left);
}

/// The run sends neither the part that has arrived nor the content that the old version has.
#[test]
fn an_update_that_was_cut_off_costs_no_more_than_what_is_left_of_it() {
    const CROSSED: u64 = 50_000_000;
    // So slow that what crosses is not lost at a sink that is behind, to cross again.
    let flags = [&FORCED[..], &["--bandwidth-limit=50M"]].concat();
    for (way, old_len) in Way::NETWORK.into_iter().flat_map(|way| [(way, 48_000_000), (way, 112_000_000)]) {
        let pair = Pair::new(way);
        let content = Rng::new(3).bytes(112_000_000);
        // One old version is shorter, so the file grows at its start; the other one is as long and differs there.
        let old = [vec![7; old_len - 48_000_000], content[64_000_000..].to_vec()].concat();
        tree::file(&pair.source.join("large"), &old);
        pair.sync("the old version");
        tree::file(&pair.source.join("large"), &content);
        let (source, sink, _relay) = pair.start_over(CROSSED, &flags);
        [&source, &sink].iter().for_each(|end| end.signal(Signal::KILL));
        drop([source.wait(), sink.wait()]);
        let sent = pair.sync("the run after the one that was cut off").work.bytes_on_wire;
        assert!(sent < 64_000_000 - CROSSED + WINDOW + 2_000_000, "{way:?}: {sent} bytes sent");
        pair.assert_staging_empty();
    }
}

#[test]
fn what_is_left_of_another_version_is_never_spliced() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(1).bytes(12_000_000));
    let (source, sink, _relay) = pair.start_over(8_000_000, &FORCED);
    sink.signal(Signal::KILL);
    drop([source.wait(), sink.wait()]);
    let other = Rng::new(2).bytes(12_000_000);
    tree::file(&pair.source.join("large"), &other);
    pair.sync("another version of the same length");
    let (source, sink, relay) = pair.start_relayed(40_000, &FORCED);
    drop((source.wait(), sink.wait(), relay));
    tree::file(&pair.source.join("large"), &other[..5_000_000]);
    pair.sync("a shorter one");
}
