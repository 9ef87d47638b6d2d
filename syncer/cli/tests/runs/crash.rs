//! `kill -9` at random moments, some hundreds of times: of a local run, of either end, of both. After each, every file
//! is wholly of one of its versions and no other entry was touched; every few kills, a run completes.

use std::time::{Instant, UNIX_EPOCH};

use crate::common::oracle::{Kind, Node};
use crate::common::prelude::*;

/// The number of kills per way; a run may complete after every [`KILLS_BETWEEN_RUNS`].
const KILLS: u64 = 100;
const KILLS_BETWEEN_RUNS: u64 = 10;

const ATOMIC: &[&str] = &["--delete", "--force", "--exclude=/kept"];
const IN_PLACE: &[&str] = &["--delete", "--force", "--exclude=/kept", "--write=in-place"];

/// A destination, two versions of its tree, and the entries that a run must not touch.
struct Stage {
    pair: Pair,
    versions: [PathBuf; 2],
    snapshots: [Snapshot; 2],
    beside: PathBuf,
    untouched: Snapshot,
    kept: Snapshot,
    rng: Rng,
    /// The approximate duration of a run.
    span: Duration,
    /// The words that identify the stage in a failure.
    what: String,
    flags: &'static [&'static str],
    /// The number of processes that share a run.
    shards: u32,
}

impl Stage {
    fn new(way: Way, seed: u64, flags: &'static [&'static str], shards: u32) -> Self {
        let mut pair = Pair::new(way);
        let mut rng = Rng::new(seed);
        let versions = ["one", "two"].map(|name| scratch::dir(pair.dir(), name));
        versions.iter().for_each(|version| fill(version, &mut rng));
        if flags == IN_PLACE {
            fill_large(&versions, &mut rng);
        }
        let beside = scratch::dir(pair.dir(), "beside");
        tree::many(&beside, 10, 100);
        tree::file(&pair.destination.join("kept"), b"excluded");
        let mut span = Duration::ZERO;
        for version in &versions {
            pair.source = version.clone();
            let begin = Instant::now();
            pair.done(flags);
            span = begin.elapsed();
        }
        Self {
            snapshots: [0, 1].map(|at| Snapshot::of(&versions[at])),
            untouched: Snapshot::of(&beside),
            kept: kept(&Snapshot::of(&pair.destination)),
            versions,
            beside,
            pair,
            rng,
            span,
            what: format!("{way:?}, seed {seed}"),
            flags,
            shards,
        }
    }

    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.rng.below(self.span.as_micros() as u64 * 5 / 4 + 1))
    }

    /// Starts a run and kills all of its processes, one end perhaps later than the other. Returns the number of
    /// processes that were killed before their end.
    fn kill_once(&mut self) -> usize {
        let mut ends = self.start();
        if self.rng.once_in(2) {
            ends.reverse();
        }
        let together = self.rng.once_in(3);
        for (nth, end) in ends.iter().enumerate() {
            if nth == 0 || !together {
                thread::sleep(self.moment() / (nth as u32 + 1));
            }
            end.kill();
        }
        let killed = ends.into_iter().map(Running::wait).filter(|end| end.exit.is_none()).count();
        // The machine's load varies: the moments stay within the time that runs take.
        self.span = self.span * if killed == 0 { 9 } else { 11 } / 10;
        killed
    }

    fn start(&self) -> Vec<Running> {
        let pair = &self.pair;
        match pair.way {
            Way::Local if self.shards == 1 => vec![pair.start_sync(self.flags)],
            Way::Local => (0..self.shards).map(|index| self.start_shard(index)).collect(),
            Way::SinkListens | Way::SourceListens => {
                let (source, sink) = pair.start_both(self.flags, &[]);
                vec![source, sink]
            }
        }
    }

    fn start_shard(&self, index: u32) -> Running {
        let shard = format!("--shard={index}/{}", self.shards);
        self.pair.start_sync(&[self.flags, &["--run=shared", &shard]].concat())
    }

    /// Checks that every file is one of its versions with all of its attributes, that entries of both versions exist,
    /// and that no other entry was touched. Until a run opens the destination, there may be the empty folders that it
    /// removes.
    #[track_caller]
    fn judge(&self, when: &str) {
        let what = format!("{}, {when}", self.what);
        let there = Snapshot::of(&self.pair.destination);
        let is_judged = |path: &[u8], node: &Node| {
            *path != *b"kept" && (self.flags == IN_PLACE || !is_beside_its_place(path, node))
        };
        for (path, node) in there.entries().filter(|(path, node)| is_judged(path, node)) {
            let is_version =
                self.snapshots.iter().filter_map(|version| version.at(path)).any(|version| match node.kind {
                    // A run sets a directory's own metadata last, so it may be of neither version.
                    Kind::Dir => version.kind == Kind::Dir,
                    _ => {
                        (&version.kind, version.mode, version.owner, version.mtime)
                            == (&node.kind, node.mode, node.owner, node.mtime)
                    }
                });
            assert!(is_version, "{what}: {} is of no version", show(path));
        }
        let [one, two] = &self.snapshots;
        for (path, node) in one.entries() {
            let in_both = two.at(path).is_some_and(|other| other.kind.name() == node.kind.name());
            assert!(!in_both || there.at(path).is_some(), "{what}: {} is gone", show(path));
        }
        kept(&there).assert_like(&self.kept, UNTOUCHED, &what);
        Snapshot::of(&self.beside).assert_like(&self.untouched, UNTOUCHED, &what);
    }

    /// Runs once on the destination, with filters that leave all of its entries alone.
    #[track_caller]
    fn open(&self) {
        let nothing = self.pair.dir().join("nothing");
        fs::create_dir_all(&nothing).unwrap();
        let destination = &self.pair.destination;
        let args = ["sync", text(&nothing), text(destination), "--exclude=*", "--progress=none"];
        self.pair.start(&args).wait().assert_exit(ExitCode::Done);
    }

    /// Runs once to completion, and checks that the destination is a copy of `version`.
    #[track_caller]
    fn converge(&self, version: usize, when: &str) {
        let what = format!("{}, {when}", self.what);
        self.pair.done(self.flags);
        let mut found = self.snapshots[version].differences(&Snapshot::of(&self.pair.destination), COPY);
        found.retain(|line| !line.starts_with("kept:"));
        assert!(found.is_empty(), "{what}: {found:#?}");
        self.pair.assert_staging_empty();
    }
}

/// Makes small files, large ones whose length differs between the versions, links, and paths that are a file in one
/// version and a folder in the other.
fn fill(version: &std::path::Path, rng: &mut Rng) {
    let is_first = version.ends_with("one");
    for number in 0..60 {
        let dir = version.join(format!("d{}", number % 3));
        fs::create_dir_all(&dir).unwrap();
        let len = 500 + rng.below(9000) as usize;
        tree::file(&dir.join(format!("f{number}")), &rng.bytes(len));
    }
    for number in 0..3 {
        let len = 900_000 + rng.below(1_500_000) as usize;
        tree::file(&version.join(format!("large{number}")), &rng.bytes(len));
    }
    std::os::unix::fs::symlink(format!("target {}", rng.next_u64()), version.join("link")).unwrap();
    let (file, dir) =
        if is_first { ("file or folder", "folder or file") } else { ("folder or file", "file or folder") };
    tree::file(&version.join(file), &rng.bytes(700));
    fs::create_dir(version.join(dir)).unwrap();
    tree::file(&version.join(dir).join("inside"), &rng.bytes(700));
    tree::file(
        &version.join(format!("only in {}", text(version).rsplit('/').next().unwrap())),
        &rng.bytes(3000),
    );
    let mode = if is_first { 0o640 } else { 0o4711 };
    (0..10).for_each(|number| tree::set_mode(&version.join(format!("d1/f{}", number * 3 + 1)), mode));
}

/// Returns whether an entry is a folder that was killed on its way to staging (`syncer/doc/format.md`).
fn is_beside_its_place(path: &[u8], node: &Node) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    node.kind == Kind::Dir && name.starts_with(b".volferry-new-")
}

fn kept(snapshot: &Snapshot) -> Snapshot {
    snapshot.only(b"kept")
}

/// Makes large files that differ in some places, in their holes, and mostly in length. Sets their times, as two
/// versions of one length made in one tick of the clock would look the same to a run.
fn fill_large(versions: &[PathBuf; 2], rng: &mut Rng) {
    for number in 0..3 {
        let mut bytes = rng.bytes(6 << 20);
        for (version, seconds) in versions.iter().zip(1_700_000_000..) {
            for _ in 0..40 {
                let at = rng.below(bytes.len() as u64 - 60_000) as usize;
                let len = rng.below(60_000) as usize;
                bytes[at..at + len].copy_from_slice(&rng.bytes(len));
            }
            let hole = rng.below(4 << 20) as usize;
            bytes[hole..hole + (1 << 20)].fill(0);
            bytes.truncate((6 << 20) - rng.below(100_000) as usize);
            let path = version.join(format!("in place {number}"));
            tree::file(&path, &bytes[..hole]);
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&bytes[hole + (1 << 20)..], (hole + (1 << 20)) as u64).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
    }
}

fn kill_often(way: Way, seed: u64, flags: &'static [&'static str]) {
    kill_stage(Stage::new(way, seed, flags, 1));
}

fn kill_stage(mut stage: Stage) {
    let mut killed = 0;
    for kill in 1..=KILLS {
        let version = stage.rng.below(2) as usize;
        stage.pair.source = stage.versions[version].clone();
        // The first run on a volume can be killed, too.
        if kill % KILLS_BETWEEN_RUNS == 1 {
            fs::remove_dir_all(stage.pair.destination.join(".volferry")).unwrap();
        }
        killed += stage.kill_once();
        if stage.flags == IN_PLACE {
            stage.open();
        }
        stage.judge(&format!("kill {kill}"));
        if kill % KILLS_BETWEEN_RUNS == 0 {
            stage.converge(version, &format!("run after kill {kill}"));
        }
    }
    assert!(
        killed as u64 > KILLS / 4,
        "{}: only {killed} of {KILLS} runs were killed before their end",
        stage.what
    );
}

#[test]
fn a_local_run_may_be_killed_at_any_moment() {
    kill_often(Way::Local, 41, ATOMIC);
}

#[test]
fn the_ends_of_a_run_may_be_killed_at_any_moment_where_the_sink_listens() {
    kill_often(Way::SinkListens, 42, ATOMIC);
}

#[test]
fn the_ends_of_a_run_may_be_killed_at_any_moment_where_the_source_listens() {
    kill_often(Way::SourceListens, 43, ATOMIC);
}

#[test]
fn a_local_run_that_writes_in_place_may_be_killed_at_any_moment() {
    kill_often(Way::Local, 44, IN_PLACE);
}

#[test]
fn the_ends_of_a_run_that_writes_in_place_may_be_killed_at_any_moment() {
    kill_often(Way::SinkListens, 45, IN_PLACE);
}

#[test]
fn the_shards_of_a_run_that_writes_in_place_may_be_killed_at_any_moment() {
    kill_stage(Stage::new(Way::Local, 46, IN_PLACE, 2));
}
