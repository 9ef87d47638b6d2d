//! What the engine does per entry and per byte, beside delta: scanning, digests, listings, frames, and making small
//! files.
//!
//! Trees are in memory (`/dev/shm`) where there is such a place, so that the engine is measured and not a disk. The
//! wall clock is taken, because scans and runs use all cores.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::{fs, hint::black_box};

use contract::Preserve;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use syncer::{
    entry::{Entry, Kind, Meta, Owner, Time},
    internals::{
        Candidate, Destination, EntryAt, ScanOptions, Settings,
        codec::Reader,
        hash::digest,
        is_in_motion,
        listing::{Listing, ListingBuilder},
        scan,
        wire::{
            HEADER_BYTES,
            data::{Pack, PackBuilder},
        },
    },
    monitor::Monitor,
    path::RelPath,
    report::Failures,
    root::{Root, TreeLocation},
};
use testkit::scratch::scratch;

const FOLDERS: usize = 500;
const FILES: usize = 20;

fn scanning(criterion: &mut Criterion) {
    let tree = scratch();
    for folder in 0..FOLDERS {
        let dir = tree.path().join(format!("folder-{folder}"));
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|file| fs::write(dir.join(format!("file-{file}")), b"content").unwrap());
    }
    let root = Root::open(tree.path()).unwrap();
    let (options, monitor) = (ScanOptions::default(), Monitor::default());
    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Elements((FOLDERS * (FILES + 1)) as u64));
    group.bench_function("10,000 files in 500 folders, digests made", |bencher| {
        bencher.iter(|| scan(black_box(&root), &options, &Failures::default(), &monitor).unwrap());
    });
}

fn names(count: usize) -> Vec<String> {
    let mut names: Vec<_> = (0..count).map(|number| format!("file-{number}.dat")).collect();
    names.sort();
    names
}

fn listing(names: &[String]) -> Listing {
    let mut builder = ListingBuilder::default();
    for (name, seconds) in names.iter().zip(1_700_000_000..) {
        let mtime = Time { seconds, nanos: 123_456_789 };
        let meta = Meta { mode: 0o644, mtime, owner: Owner { uid: 1000, gid: 1000 } };
        let attrs = Default::default();
        builder.push(&Entry { name: name.as_bytes(), kind: Kind::File { size: 4096 }, meta, attrs });
    }
    builder.finish()
}

fn listings(criterion: &mut Criterion) {
    let names = names(10_000);
    let made = listing(&names);
    let mut encoded = Vec::new();
    made.encode(&mut encoded);
    let mut group = criterion.benchmark_group("listing of 10,000 files");
    group.throughput(Throughput::Elements(names.len() as u64));
    group.bench_function("built", |bencher| bencher.iter(|| listing(black_box(&names))));
    group.bench_function("gone through", |bencher| bencher.iter(|| black_box(&made).iter().count()));
    group.bench_function("encoded", |bencher| {
        bencher.iter_batched_ref(Vec::new, |out| made.encode(out), BatchSize::LargeInput);
    });
    group.bench_function("decoded and checked", |bencher| {
        bencher.iter(|| Listing::decode(&mut Reader::new(black_box(&encoded))).unwrap());
    });
    group.throughput(Throughput::Bytes(encoded.len() as u64));
    group.bench_function("digest", |bencher| bencher.iter(|| digest(&[black_box(&encoded)])));
}

fn pack(contents: &[u8], len: usize) -> Vec<u8> {
    let mut pack = PackBuilder::default();
    for (content, need) in contents.chunks_exact(len).zip(0..) {
        let fill = |frame: &mut Vec<u8>| {
            frame.extend_from_slice(content);
            Ok::<_, ()>(())
        };
        pack.push(need, None, None, len, fill).unwrap();
    }
    pack.finish()
}

/// A frame of small files, hashed by the source, and taken apart and checked by the sink.
fn frames(criterion: &mut Criterion) {
    for (name, len) in [("256 files of 1 KiB", 1 << 10), ("2 files of 128 KiB", 128 << 10)] {
        let contents = vec![7; 256 << 10];
        let frame = pack(&contents, len);
        let mut group = criterion.benchmark_group(format!("pack of {name}"));
        group.throughput(Throughput::Bytes(contents.len() as u64));
        group.bench_function("encoded", |bencher| bencher.iter(|| pack(black_box(&contents), len)));
        group.bench_function("decoded and checked", |bencher| {
            bencher.iter(|| {
                let (files, is_intact) = Pack::open(black_box(&frame[HEADER_BYTES..])).unwrap();
                assert!(is_intact);
                files.for_each(|packed| assert!(packed.unwrap().content.is_ok()));
            });
        });
    }
}

/// One thread making files that become visible whole, with their metadata.
fn applying(criterion: &mut Criterion) {
    const COUNT: usize = 1000;
    let dir = scratch();
    let settings = Settings::resolve(&Preserve::default()).unwrap();
    let candidate = Candidate::open(&TreeLocation::from(dir.path())).unwrap();
    let destination = candidate.take(settings, None, None).unwrap();
    let names = names(COUNT);
    let mut group = criterion.benchmark_group("apply");
    group.throughput(Throughput::Elements(COUNT as u64)).sample_size(20);
    for (case, replaces) in [("new files of 1 KiB", false), ("files of 1 KiB replaced", true)] {
        group.bench_function(case, |bencher| {
            let clear = || {
                if !replaces {
                    names.iter().for_each(|name| drop(fs::remove_file(dir.path().join(name))));
                }
            };
            bencher.iter_batched(clear, |()| make(&destination, &names, replaces), BatchSize::PerIteration);
        });
    }
}

fn make(destination: &Destination, names: &[String], replaces: bool) {
    let root = destination.dir(&RelPath::root()).unwrap();
    for name in names {
        let dir = std::os::fd::AsFd::as_fd(&root);
        let staged = destination.create_file(dir, replaces, 0o644).unwrap();
        staged.write_at(&[7; 1024], 0).unwrap();
        let meta = Meta { mode: 0o644, ..Meta::default() };
        destination
            .publish(&staged, EntryAt::staged(dir, name.as_bytes()), &meta, Default::default())
            .unwrap();
    }
}

/// What it costs to ask whether anybody may be writing to a file, before it is copied.
fn motion(criterion: &mut Criterion) {
    let dir = scratch();
    let path = dir.path().join("file");
    fs::write(&path, [7; 1024]).unwrap();
    let file = fs::File::open(&path).unwrap();
    let young = rustix::fs::fstat(&file).unwrap();
    let mut old = young;
    old.st_ctime -= 3600;
    let writer = fs::File::options().append(true).open(&path).unwrap();
    assert!(is_in_motion(&file, &young));
    let mut group = criterion.benchmark_group("motion");
    group.bench_function("a young file with a writer", |bencher| {
        bencher.iter(|| is_in_motion(&file, black_box(&young)));
    });
    drop(writer);
    for (case, stat) in [("a young file", young), ("an old file", old)] {
        assert!(!is_in_motion(&file, &stat));
        group.bench_function(case, |bencher| bencher.iter(|| is_in_motion(&file, black_box(&stat))));
    }
}

criterion_group!(engine, scanning, listings, frames, applying, motion);
criterion_main!(engine);
