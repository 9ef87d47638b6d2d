//! What snapshots cost, in memory: taking, restoring, finding, collecting and checking them.
//!
//! The names are those of JVS's own benchmarks, so that the figures can be laid side by side.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::{
    collections::BTreeSet,
    fs,
    hint::black_box,
    path::{Path, PathBuf},
};

use contract::{RunParams, SnapshotEngine};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use syncer::{
    monitor::Monitor,
    path::RelPath,
    report::Failures,
    root::{Root, TreeLocation},
    session::{Restore, is_same_tree, restore},
    snapshot::{
        Roots, Snapshot, SnapshotId, Store,
        around_runs::Before,
        browse::select_snapshot,
        check::{ReadPace, Turn, verify},
        create::{create_snapshot, lock_volume},
        retention::{collect_garbage, plan_collection},
        store::{Labels, Writer},
    },
};
use tempfile::TempDir;

/// What is in a volume: how many files, and how many bytes each has.
const SHAPES: [(&str, usize, usize); 4] =
    [("1 KiB", 1, 1 << 10), ("1 MiB", 1, 1 << 20), ("100 files", 100, 29), ("1,000 files", 1000, 29)];

fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).unwrap()
}

fn volume(files: usize, len: usize) -> (TempDir, PathBuf) {
    let dir = scratch();
    let path = dir.path().join("volume");
    fs::create_dir(&path).unwrap();
    fill(&path, files, len);
    (dir, path)
}

/// A volume that has a store, as JVS's has, and files that no snapshot has.
fn volume_with_store(files: usize, len: usize) -> (TempDir, PathBuf) {
    let (dir, path) = volume(0, 0);
    take(&path, "empty");
    fill(&path, files, len);
    (dir, path)
}

fn fill(path: &Path, files: usize, len: usize) {
    for nth in 0..files {
        let content: Vec<u8> = (0..len).map(|at| (at * 31 + nth * 7) as u8).collect();
        fs::write(path.join(format!("file{nth:05}")), content).unwrap();
    }
}

fn take(path: &Path, tag: &str) -> Snapshot {
    let labels = Labels { tags: [tag.into()].into(), ..Labels::default() };
    let how = (SnapshotEngine::Auto, &[][..]);
    create_snapshot(&TreeLocation::from(path), labels, how, &Failures::default()).unwrap()
}

fn open(path: &Path) -> (Store, Roots) {
    let store = Store::open(&Root::open(path).unwrap(), path).unwrap().unwrap();
    let roots = store.roots().unwrap();
    (store, roots)
}

fn bring_back(path: &Path, which: &str, to: &Path, verify: bool) {
    let (store, roots) = open(path);
    let snapshot = select_snapshot(&roots, which).unwrap();
    let [from, to] = [path, to].map(TreeLocation::from);
    let in_place = is_same_tree(&from, &to);
    let (paths, before) = (vec![RelPath::root()], Before { in_place, ..Before::nothing_of(snapshot.id) });
    let restoring = Restore { from, store: &store, snapshot, to, paths, before, plan: None };
    let params = RunParams { delete: true, force: true, verify, ..RunParams::default() };
    let outcome = restore(&restoring, &params, &Monitor::default());
    assert_eq!(outcome.report.work.files_failed, 0);
}

fn snapshots(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot");
    for (name, files, len) in SHAPES {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || volume_with_store(files, len),
                |(_, path)| take(path, "first"),
                BatchSize::PerIteration,
            );
        });
    }
    for (name, files, len) in SHAPES {
        let (_dir, path) = volume(files, len);
        take(&path, "first");
        // The second snapshot has the stamps that the first, which came within a tick of the writes, could not take.
        std::thread::sleep(std::time::Duration::from_millis(150));
        take(&path, "second");
        let list = path.join(".volferry/snapshots/roots");
        let two = fs::read(&list).unwrap();
        group.bench_function(format!("{name}, nothing changed"), |bencher| {
            // The list would grow by a snapshot with each turn.
            bencher.iter_batched(
                || fs::write(&list, &two).unwrap(),
                |()| take(&path, "again"),
                BatchSize::PerIteration,
            );
        });
    }
}

fn restores(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("restore");
    for (name, files, len) in SHAPES {
        group.bench_function(name, |bencher| {
            let taken = || {
                let (dir, path) = volume(files, len);
                take(&path, "first");
                for file in
                    fs::read_dir(&path).unwrap().flatten().filter(|file| file.file_name() != ".volferry")
                {
                    fs::remove_file(file.path()).unwrap();
                }
                (dir, path)
            };
            bencher.iter_batched_ref(
                taken,
                |(_, path)| bring_back(path, "latest", path, false),
                BatchSize::PerIteration,
            );
        });
    }
    let (_dir, path) = volume(1, 29);
    let detached = take(&path, "first").id.to_string();
    take(&path, "second");
    let turns =
        [("to latest", "latest", false), ("detached", &*detached, false), ("verifying", "latest", true)];
    for (name, which, verify) in turns {
        group.bench_function(format!("{name}, nothing to do"), |bencher| {
            bencher.iter(|| bring_back(&path, which, &path, verify));
        });
    }
    let (_dir, empty) = volume(0, 0);
    take(&empty, "first");
    group.bench_function("empty, nothing to do", |bencher| {
        bencher.iter(|| bring_back(&empty, "latest", &empty, false));
    });
}

fn lists(criterion: &mut Criterion) {
    let (_dir, path) = volume(1, 29);
    for nth in 0..50 {
        fs::write(path.join("file00000"), format!("{nth}")).unwrap();
        take(&path, &format!("tag{nth}"));
    }
    let root = Root::open(&path).unwrap();
    let roots = || Store::open(&root, &path).unwrap().unwrap().roots().unwrap();
    let mut group = criterion.benchmark_group("find");
    group.bench_function("list 50", |bencher| bencher.iter(|| black_box(roots())));
    group.bench_function("by tag", |bencher| bencher.iter(|| select_snapshot(&roots(), "tag7").unwrap().id));
    let held = roots();
    group.bench_function("by tag, the list at hand", |bencher| {
        bencher.iter(|| select_snapshot(&held, "tag7").unwrap().id);
    });
    group.bench_function("by job, the list at hand", |bencher| {
        bencher.iter(|| held.kept().filter(|snapshot| snapshot.job.is_empty()).last().unwrap().id);
    });
}

/// Makes a volume with `count` snapshots, each of another content.
fn many(count: usize) -> (TempDir, PathBuf) {
    let (dir, path) = volume(1, 29);
    for nth in 0..count {
        fs::write(path.join("file00000"), format!("{nth}")).unwrap();
        take(&path, "t");
    }
    (dir, path)
}

fn oldest(roots: &Roots, count: usize) -> BTreeSet<SnapshotId> {
    roots.snapshots.iter().take(count).map(|snapshot| snapshot.id).collect()
}

fn collections(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gc");
    for (count, gone) in [(10, 0), (100, 0), (100, 50), (1000, 0)] {
        let (_dir, path) = many(count);
        group.bench_function(format!("plan over {count}, {gone} to go"), |bencher| {
            bencher.iter(|| {
                let (store, roots) = open(&path);
                plan_collection(&store, &roots, &oldest(&roots, gone)).unwrap()
            });
        });
    }
    for (count, gone) in [(10, 1), (110, 10)] {
        group.bench_function(format!("run, {gone} of {count}"), |bencher| {
            let collected = |(_, path): &mut (TempDir, PathBuf)| {
                let destination = lock_volume(&TreeLocation::from(&*path)).unwrap();
                let mut writer =
                    Writer::open(destination.state(), destination.root(), path, &Monitor::default()).unwrap();
                let plan =
                    plan_collection(&writer.store, &writer.roots, &oldest(&writer.roots, gone)).unwrap();
                collect_garbage(&mut writer, &plan, "bench").unwrap();
                writer.empty_trash(None, &Monitor::default()).unwrap();
            };
            bencher.iter_batched_ref(|| many(count), collected, BatchSize::PerIteration);
        });
    }
}

fn checks(criterion: &mut Criterion) {
    let (_dir, path) = volume(10, 1 << 10);
    take(&path, "first");
    let monitor = Monitor::default();
    criterion.bench_function("verify/checksum only", |bencher| {
        bencher.iter(|| {
            let (store, roots) = open(&path);
            assert_eq!(roots.damages(), 0);
            store.folder(&roots.last().unwrap().tree).unwrap()
        });
    });
    criterion.bench_function("verify/with payload", |bencher| {
        bencher.iter(|| {
            let (store, roots) = open(&path);
            assert!(
                !verify(&store, &roots, &Turn::default(), &ReadPace::new(None, &monitor))
                    .unwrap()
                    .is_damaged()
            );
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = snapshots, restores, lists, collections, checks
}
criterion_main!(benches);
