//! One run that several pairs of processes share; each pair syncs a shard of the tree.

use contract::Work;

use crate::common::expect;
use crate::common::prelude::*;
use crate::common::wait;

const COUNT: u32 = 3;

/// Runs all pairs of processes that share a run concurrently. `flags` are those of `sync` and `send`.
fn run_shards(pair: &Pair, run: &str, flags: &[&str]) -> Vec<Run> {
    let one = |index| {
        let shard = shard(run, index);
        let own: Vec<&str> = shard.iter().map(String::as_str).collect();
        pair.run(&[flags, &own].concat())
    };
    let one = &one;
    thread::scope(|scope| {
        let shards: Vec<_> = (0..COUNT).map(|index| scope.spawn(move || one(index))).collect();
        shards.into_iter().map(|shard| shard.join().unwrap()).collect()
    })
}

fn shard(run: &str, index: u32) -> [String; 2] {
    [format!("--run={run}"), format!("--shard={index}/{COUNT}")]
}

fn start_shard(pair: &Pair, run: &str, index: u32) -> Running {
    let [run, shard] = shard(run, index);
    pair.start_sync(&["--delete", &run, &shard])
}

/// Runs all shards with success, and checks everything that [`Pair::sync`] checks of one process.
#[track_caller]
fn sync(pair: &Pair, what: &str) -> Report {
    let in_doubt = !pair.marks().is_empty();
    let before = Snapshot::of(&pair.destination);
    let after = Snapshot::of(&pair.source);
    let shards = run_shards(pair, what, &["--delete", "--delete-limit=100"]);
    shards.iter().for_each(|shard| shard.assert_exit(ExitCode::Done));
    let reports: Vec<Report> = shards.iter().map(|shard| shard.report().clone()).collect();
    let sum = Report::of_shards(&reports);
    let what = format!("{:?}, {what}", pair.way);
    Snapshot::of(&pair.destination).assert_like(&after, oracle::COPY, &what);
    if !in_doubt && !before.has_links() && !after.has_links() {
        assert_eq!(
            expect::foretold(&sum.work),
            expect::work(&before, &after, rustix::process::geteuid().as_raw()),
            "{what}"
        );
    }
    assert_eq!((sum.result, &sum.reason), (RunResult::Succeeded, &None), "{what}");
    pair.assert_staging_empty();
    assert_eq!(pair.marks(), [] as [PathBuf; 0], "{what}: all is durable");
    sum
}

/// Waits until a shard of `run` has reached `stage`, by the board on the volume, which may still be the board of the
/// run before: see `syncer/doc/format.md`.
#[track_caller]
fn await_stage(destination: &Path, run: &str, index: usize, stage: u8) {
    let run = blake3::hash(run.as_bytes());
    let board = || fs::read(destination.join(".volferry/shards/board")).unwrap_or_default();
    let is_there = || {
        let board = board();
        let is_at = board.get(36 + 17 * index).is_some_and(|there| *there >= stage);
        is_at && board[16..32] == run.as_bytes()[..16]
    };
    wait::poll(is_there, || format!("shard {index} does not get to stage {stage}: {:?}", board()));
}

const PLANNED: u8 = 2;

#[test]
fn shards_make_a_copy_and_their_reports_add_up() {
    for pair in Pair::each(Way::ALL) {
        tree::many(&pair.source, 900, 700);
        tree::random(&pair.source, &mut Rng::new(3), 80, Shape::Everything);
        tree::file(&pair.source.join("becomes a folder"), b"content");
        sync(&pair, "first");
        fs::remove_file(pair.source.join("becomes a folder")).unwrap();
        for dir in 0..9 {
            let dir = pair.source.join("becomes a folder").join(dir.to_string());
            fs::create_dir_all(&dir).unwrap();
            (0..9).for_each(|file| tree::file(&dir.join(file.to_string()), b"content"));
        }
        sync(&pair, "a folder in the place of a file");
        let again = sync(&pair, "unchanged");
        let Work { files_scanned, files_skipped, bytes_total, .. } = again.work;
        let nothing_done = Work { files_scanned, files_skipped, bytes_total, ..Work::default() };
        assert_eq!(expect::foretold(&again.work), nothing_done);
        pair.sync_unchanged("by one process, after several");
    }
}

#[test]
fn every_shard_has_its_part_of_what_is_to_be_done() {
    let pair = Pair::new(Way::Local);
    tree::many(&pair.source, 3000, 100);
    for shard in run_shards(&pair, "r", &[]) {
        shard.assert_exit(ExitCode::Done);
        let created = shard.report().work.files_created;
        assert!((900..=1100).contains(&created), "{created} of 3,030 in one of three shards");
    }
    pair.assert_copy("made by three");
}

#[test]
fn one_of_everything_is_copied_by_shards_whatever_changes() {
    for pair in Pair::each(Way::EACH) {
        tree::gallery(&pair.source, Shape::Everything);
        sync(&pair, "one of everything");
        for seed in 0..4 {
            let mut rng = Rng::new(seed);
            for edit in Edit::ALL {
                edit.apply(&pair.source, &mut rng);
                edit.apply(&pair.destination, &mut rng);
            }
            sync(&pair, &format!("seed {seed}"));
        }
    }
}

#[test]
fn shards_without_privileges_keep_directories_that_only_their_owner_may_look_into() {
    let pair = Pair::unprivileged(Way::Local);
    tree::gallery(&pair.source, Shape::Unprivileged);
    scratch::give_to_nobody(&pair.source);
    for turn in ["first", "second"] {
        let shards = run_shards(&pair, turn, &["--delete"]);
        shards.iter().for_each(|shard| shard.assert_exit(ExitCode::Done));
        pair.assert_copy(turn);
    }
}

#[test]
fn shards_without_privileges_count_each_owner_that_is_not_kept_once() {
    for pair in Pair::each_unprivileged().take(1) {
        for folder in ["one", "two", "three"] {
            tree::file(&scratch::dir(&pair.source, folder).join("file"), b"content");
        }
        scratch::open_to_all(&pair.source);
        for run in ["first", "second"] {
            let reports: Vec<Report> =
                run_shards(&pair, run, &[]).iter().map(|shard| shard.report().clone()).collect();
            let sum = Report::of_shards(&reports);
            assert_eq!(sum.work.owners_not_kept, 6, "{run}");
        }
    }
}

#[test]
fn a_guard_refuses_all_shards_or_none() {
    for pair in Pair::each(Way::ALL) {
        tree::many(&pair.source, 300, 100);
        sync(&pair, "before");
        for dir in ["d0000", "d0001"] {
            fs::remove_dir_all(pair.source.join(dir)).unwrap();
        }
        let before = Snapshot::of(&pair.destination);
        for shard in run_shards(&pair, "r", &["--delete", "--delete-limit=50"]) {
            shard.assert_exit(ExitCode::Guard);
            shard.ends().for_each(|end| assert_eq!(end.reason(), "DeleteLimitExceeded"));
        }
        Snapshot::of(&pair.destination).assert_like(&before, oracle::UNTOUCHED, "refused by all");
    }
}

#[test]
fn nothing_is_changed_before_all_shards_are_there_and_a_lost_one_stops_the_others() {
    let pair = Pair::new(Way::Local);
    sync(&pair, "of nothing");
    tree::many(&pair.source, 300, 100);
    let before = Snapshot::of(&pair.destination);
    let (first, second) = (start_shard(&pair, "r", 0), start_shard(&pair, "r", 1));
    [0, 1].into_iter().for_each(|index| await_stage(&pair.destination, "r", index, PLANNED));
    for run in ["r", "another"] {
        let taken = start_shard(&pair, run, 1).wait();
        taken.assert_exit(ExitCode::Failed);
        assert_eq!(taken.reason(), "DestinationBusy", "shard 1 of run {run}");
    }
    let whole = pair.start_sync(&["--delete"]).wait();
    assert_eq!(whole.reason(), "DestinationBusy");
    second.kill();
    let first = first.wait();
    first.assert_exit(ExitCode::PeerLost);
    assert_eq!(first.reason(), "ShardLost");
    assert!(first.report().message.contains("shard 1/3"), "{}", first.report().message);
    Snapshot::of(&pair.destination).assert_like(&before, oracle::UNTOUCHED, "of which a shard died");
    sync(&pair, "r");
}

#[test]
fn what_only_a_later_shard_saw_is_noted_and_comes_with_the_next_run() {
    let pair = Pair::new(Way::Local);
    tree::many(&pair.source, 300, 100);
    let early = [0, 1].map(|index| start_shard(&pair, "r", index));
    [0, 1].into_iter().for_each(|index| await_stage(&pair.destination, "r", index, PLANNED));
    fs::create_dir(pair.source.join("late")).unwrap();
    tree::file(&pair.source.join("late/file"), b"content");
    let late = start_shard(&pair, "r", 2).wait();
    late.assert_exit(ExitCode::Done);
    assert!(late.report().notes[0].starts_with("the source changed while"), "{:?}", late.report().notes);
    for early in early {
        let early = early.wait();
        early.assert_exit(ExitCode::Done);
        assert_eq!(early.report().notes, [""; 0]);
    }
    sync(&pair, "next");
}

#[test]
fn a_shard_that_is_killed_in_the_middle_leaves_the_rest_to_the_next_run() {
    let pair = Pair::new(Way::SinkListens);
    let mut rng = Rng::new(9);
    for dir in 0..9 {
        let dir = pair.source.join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        (0..3).for_each(|n| tree::file(&dir.join(format!("f{n}")), &rng.bytes(500_000)));
    }
    let flags = |index| shard("cut off", index);
    let mut ends = Vec::new();
    for index in 0..COUNT {
        let carried = if index == 1 { 1_500_000 } else { u64::MAX };
        let [run, shard] = flags(index);
        ends.push(pair.start_relayed(carried, &["--delete", &run, &shard]));
    }
    ends[1].2.wait_holding();
    ends[1].1.kill();
    ends[1].0.kill();
    for (at, (source, sink, _relay)) in ends.into_iter().enumerate() {
        if at != 1 {
            for end in [source.wait(), sink.wait()] {
                end.assert_exit(ExitCode::PeerLost);
                assert_eq!(end.reason(), "ShardLost", "shard {at}");
            }
        }
    }
    sync(&pair, "after a shard was killed");
    pair.sync_unchanged("after a shard was killed");
}

#[test]
fn shards_read_back_together_all_that_is_there() {
    for pair in Pair::each(Way::ALL) {
        tree::many(&pair.source, 900, 700);
        tree::gallery(&pair.source, Shape::Everything);
        let shards = run_shards(&pair, "verified", &["--delete", "--verify"]);
        let verified: Vec<u64> = shards.iter().map(verified).collect();
        let scanned: u64 = shards.iter().map(|shard| shard.report().work.files_scanned).sum();
        assert_eq!(verified.iter().sum::<u64>(), scanned, "{verified:?}");
        assert!(verified.iter().all(|entries| (1..scanned).contains(entries)), "{verified:?}");
    }
}

/// Returns the number of entries that a shard has read back and found equal to the source's.
fn verified(run: &Run) -> u64 {
    run.assert_exit(ExitCode::Done);
    let notes = &run.report().notes;
    let note = notes.iter().find_map(|note| note.split_once(" verified: ")?.1.strip_suffix(" 0 differ"));
    let entries = note.and_then(|note| note.split_once(' ')?.0.parse().ok());
    entries.unwrap_or_else(|| panic!("nothing was verified: {notes:?}"))
}

#[test]
fn what_shards_find_to_differ_one_of_them_tells() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        tree::many(&pair.source, 300, 700);
        sync(&pair, "first");
        // The length and the time stay the same, so only a read finds the change.
        let path = pair.destination.join("d0000/f000007");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut content = fs::read(&path).unwrap();
        content[0] ^= 1;
        fs::write(&path, content).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let shards = run_shards(&pair, "verified", &["--delete", "--verify"]);
        let failed: Vec<u64> = shards.iter().map(|shard| shard.report().work.files_failed).collect();
        assert_eq!(failed.iter().sum::<u64>(), 1, "{way:?}: {failed:?}");
    }
}

#[test]
fn no_name_leads_to_old_content_that_another_shard_could_not_read() {
    for pair in Pair::each_unprivileged() {
        for folder in ["first", "second"] {
            [&pair.source, &pair.destination]
                .iter()
                .for_each(|root| fs::create_dir(root.join(folder)).unwrap());
        }
        tree::file(&pair.source.join("first/file"), &Rng::new(1).bytes(200_000));
        fs::hard_link(pair.source.join("first/file"), pair.source.join("second/name")).unwrap();
        tree::file(&pair.source.join("second/more"), &Rng::new(2).bytes(200_000));
        tree::file(&pair.destination.join("first/file"), b"old");
        tree::file(&pair.destination.join("second/name"), b"another file");
        [&pair.source, &pair.destination].iter().for_each(|root| scratch::give_to_nobody(root));
        tree::set_mode(&pair.source.join("first/file"), 0);
        run_shards(&pair, "unread", &[]);
        let read = |path: &str| fs::read(pair.destination.join(path)).unwrap();
        assert_eq!((read("first/file"), read("second/name")), (b"old".into(), b"another file".into()));
        tree::set_mode(&pair.source.join("first/file"), 0o644);
        sync(&pair, "once it can be read");
    }
}

#[test]
fn what_one_shard_cannot_read_keeps_the_deletes_of_all_back() {
    for pair in Pair::each_unprivileged() {
        tree::many(&pair.source, 300, 700);
        scratch::give_to_nobody(&pair.source);
        sync(&pair, "first");
        let mut gone = 0;
        for dir in fs::read_dir(&pair.source).unwrap() {
            let file = fs::read_dir(dir.unwrap().path()).unwrap().next().unwrap().unwrap();
            fs::remove_file(file.path()).unwrap();
            gone += 1;
        }
        tree::file(&pair.source.join("secret"), b"content");
        scratch::give_to_nobody(&pair.source);
        tree::set_mode(&pair.source.join("secret"), 0);
        let shards = run_shards(&pair, "partial", &["--delete"]);
        let reports: Vec<Report> = shards.iter().map(|shard| shard.report().clone()).collect();
        let sum = Report::of_shards(&reports);
        assert_eq!(
            (sum.work.deletes_kept_back, sum.work.files_deleted, sum.work.files_failed),
            (gone, 0, 1),
            "{:?}",
            pair.way
        );
        assert!(
            sum.message.starts_with(&format!("{gone} deletes kept back because 1 file failed")),
            "{}",
            sum.message
        );
        tree::set_mode(&pair.source.join("secret"), 0o644);
        sync(&pair, "once it can be read");
    }
}

#[test]
fn shards_write_in_place() {
    for pair in Pair::each(Way::ALL) {
        let mut rng = Rng::new(5);
        let names = ["a/one", "b/two", "c/three", "d/four"];
        for name in names {
            fs::create_dir(pair.source.join(&name[..1])).unwrap();
            tree::file(&pair.source.join(name), &rng.bytes(3 << 20));
        }
        sync(&pair, "first");
        let inodes = names.map(|name| fs::metadata(pair.destination.join(name)).unwrap().ino());
        for name in names {
            let file = fs::OpenOptions::new().write(true).open(pair.source.join(name)).unwrap();
            file.write_all_at(&rng.bytes(20_000), 1_000_000).unwrap();
        }
        let shards = run_shards(&pair, "in place", &["--delete", "--write=in-place"]);
        shards.iter().for_each(|shard| shard.assert_exit(ExitCode::Done));
        pair.assert_copy("in place, by shards");
        assert_eq!(names.map(|name| fs::metadata(pair.destination.join(name)).unwrap().ino()), inodes);
        assert_eq!(fs::read_dir(pair.destination.join(".volferry/journal")).unwrap().count(), 0);
    }
}

#[test]
fn the_first_shard_says_what_all_would_do() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::many(&pair.source, 300, 700);
        let shards = run_shards(&pair, "rehearsed", &["--delete", "--dry-run"]);
        shards.iter().for_each(|shard| shard.assert_exit(ExitCode::Done));
        let created: Vec<u64> = shards.iter().map(|shard| shard.report().work.files_created).collect();
        assert!(created[0] > 300 && created[1..] == [0, 0], "{way:?}: {created:?}");
        assert_eq!(fs::read_dir(&pair.destination).map_or(0, Iterator::count), 0);
    }
}

/// Makes an ignore file that is larger than a folder's may be.
fn refuse_rules(folder: &Path) {
    tree::file(&folder.join(".gitignore"), &vec![b'#'; 300 << 10]);
}

/// Each shard has a source of its own, in which the ignore file of another folder is refused.
#[test]
fn failures_of_as_many_shards_count_each_though_each_has_as_many() {
    let pair = Pair::new(Way::Local);
    let folders: Vec<String> = (0..COUNT).map(|number| format!("folder{number}")).collect();
    let start = |index: u32| {
        let source = pair.dir().join(format!("source of {index}"));
        folders.iter().for_each(|name| fs::create_dir_all(source.join(name)).unwrap());
        refuse_rules(&source.join(&folders[index as usize]));
        let [run, shard] = shard("r", index);
        let ends = ["sync", text(&source), text(&pair.destination), "--progress=json"];
        pair.start(&[&ends[..], &["--ignore-files", &run, &shard]].concat())
    };
    let shards: Vec<Running> = (0..COUNT).map(start).collect();
    let reports: Vec<Report> = shards.into_iter().map(|shard| shard.wait().report().clone()).collect();
    let sum = Report::of_shards(&reports);
    let mut failed: Vec<&str> = sum.failures.iter().map(|failure| &*failure.path).collect();
    failed.sort_unstable();
    let expected: Vec<String> = folders.iter().map(|name| format!("{name}/.gitignore")).collect();
    assert_eq!(
        (sum.work.files_failed, failed),
        (COUNT.into(), expected.iter().map(String::as_str).collect())
    );
}

/// There are more failures than a report names, and each source finds them in another order.
#[test]
fn failures_that_all_shards_see_count_once() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for number in 0..40 {
            let folder = pair.source.join(format!("folder{number}"));
            fs::create_dir(&folder).unwrap();
            refuse_rules(&folder);
        }
        let shards = run_shards(&pair, "r", &["--ignore-files"]);
        let failed: Vec<u64> = shards.iter().map(|shard| shard.report().work.files_failed).collect();
        assert_eq!(failed, [40, 0, 0], "{way:?}");
    }
}
