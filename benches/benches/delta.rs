//! What delta costs per byte: finding cuts, hashing and looking up. `syncer/doc/delta.md` has figures.
//!
//! "cached" goes over 1 MiB again and again, as a session does with what it has just read; "memory" over 128 MiB.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use syncer::internals::block_sizes::MIN_GRANULE_BYTES;
use syncer::internals::delta::basis::Basis;
use syncer::internals::delta::diff::Differ;
use syncer::internals::delta::granules::{Granules, named};
use syncer::internals::delta::list::list;
use syncer::internals::delta::{chunk_sizes::ChunkSizes, cut_chunks::Chunker};
use syncer::internals::hash::granule_value;

const MIB: usize = 1 << 20;
const CACHED: usize = MIB;
const MEMORY: usize = 128 * MIB;

/// Bytes without repetition, the same in every run.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// The sizes that matter: the smallest, those of files of some MiB, and of some GiB.
fn sizes() -> [(&'static str, ChunkSizes); 3] {
    [
        ("4 KiB", ChunkSizes::FINE),
        ("64 KiB", ChunkSizes::for_len(2 << 20)),
        ("256 KiB", ChunkSizes::for_len(1 << 30)),
    ]
}

fn per_byte<'c>(criterion: &'c mut Criterion, name: &str, bytes: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
    group
}

fn hashing(criterion: &mut Criterion) {
    for (place, len) in [("cached", CACHED), ("memory", MEMORY)] {
        let bytes = noise(1, len);
        let mut group = per_byte(criterion, &format!("hash/{place}"), len);
        group.bench_function("BLAKE3 of the whole", |bencher| {
            bencher.iter(|| blake3::hash(black_box(&bytes)));
        });
    }
}

fn cut(bytes: &[u8], sizes: ChunkSizes) -> usize {
    let mut chunker = Chunker::new(sizes);
    let (mut rest, mut chunks) = (bytes, 0);
    while let Some(len) = chunker.next_cut(rest, true) {
        rest = &rest[len..];
        chunks += 1;
    }
    chunks
}

/// Also what repeated positions cost that pass the filter: the worst that bytes can do.
fn chunking(criterion: &mut Criterion) {
    let worst = noise(3, 700).repeat(2 * MIB / 700);
    let mut group = per_byte(criterion, "cut/repetitive", worst.len());
    for (name, sizes) in sizes() {
        group.bench_function(name, |bencher| bencher.iter(|| cut(black_box(&worst), sizes)));
    }
    group.finish();
    for (place, len) in [("cached", CACHED), ("memory", MEMORY)] {
        let bytes = noise(2, len);
        for (name, sizes) in sizes() {
            let mut group = per_byte(criterion, &format!("cut/{place}"), len);
            group.bench_function(name, |bencher| bencher.iter(|| cut(black_box(&bytes), sizes)));
            group.finish();
            let mut group = per_byte(criterion, &format!("cut and hash/{place}"), len);
            group.bench_function(name, |bencher| bencher.iter(|| list(black_box(&bytes), sizes)));
        }
    }
}

/// The source's pass: over what the sink has, over the same with bytes inserted, and over what it does not have.
fn differing(criterion: &mut Criterion) {
    let old = noise(5, MEMORY);
    let moved = [&noise(6, MIB)[..], &old].concat();
    let other = noise(7, MEMORY);
    for (name, sizes) in sizes() {
        let known = list(&old, sizes);
        let basis = Basis::new(&known).unwrap();
        let mut group = per_byte(criterion, &format!("diff/{name}"), MEMORY);
        for (case, bytes) in [("the same", &old), ("1 MiB inserted", &moved), ("nothing in common", &other)] {
            group.bench_function(case, |bencher| bencher.iter(|| diff(black_box(bytes), &basis)));
        }
    }
}

fn diff(bytes: &[u8], basis: &Basis) -> u64 {
    let mut differ = Differ::new(basis);
    let (mut rest, mut chunks) = (bytes, 0);
    while let Some(found) = differ.next(rest, true) {
        rest = &rest[found.len as usize..];
        chunks += 1;
    }
    chunks
}

/// The same in granules, where nothing has moved.
fn keeping(criterion: &mut Criterion) {
    let old = noise(8, MEMORY);
    let each = || old.chunks(MIN_GRANULE_BYTES).zip((0..).step_by(MIN_GRANULE_BYTES));
    let names = each().map(|(bytes, at)| named(&granule_value(bytes, at))).collect();
    let known = Granules::new(MEMORY as u64, MIN_GRANULE_BYTES as u64, 0, names).unwrap();
    let mut group = per_byte(criterion, "granules", MEMORY);
    group.bench_function("hashed", |bencher| {
        bencher.iter(|| each().map(|(bytes, at)| granule_value(black_box(bytes), at)[0]).max());
    });
    group.bench_function("the same", |bencher| {
        bencher.iter(|| {
            let kept = |(bytes, at)| known.kept(black_box(bytes), at, &granule_value(bytes, at));
            each().map(kept).sum::<usize>()
        });
    });
}

criterion_group!(delta, hashing, chunking, differing, keeping);
criterion_main!(delta);
