//! What delta costs per byte: finding cuts, hashing, looking up, putting together, and what the machine's memory
//! does beside it. `syncer/doc/delta.md` has figures and what follows from them.
//!
//! "cached" goes over 1 MiB again and again, as a session does with what it has just read; "memory" over 128 MiB.
//! Time is that of the thread on its core, so that whatever else the machine does counts for little.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use syncer::internals::block_sizes::MIN_GRANULE_BYTES;
use syncer::internals::delta::basis::Basis;
use syncer::internals::delta::diff::Differ;
use syncer::internals::delta::granules::{Granules, named};
use syncer::internals::delta::list::{ChunkList, list};
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

fn per_byte<'c>(criterion: &'c mut Bench, name: &str, bytes: usize) -> BenchmarkGroup<'c, CpuTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
    group
}

fn memory(criterion: &mut Bench) {
    for (place, len) in [("cached", CACHED), ("memory", MEMORY)] {
        let from = noise(1, len);
        let mut to = vec![0; len];
        let mut group = per_byte(criterion, &format!("machine/{place}"), len);
        group.bench_function("copy", |bencher| {
            bencher.iter(|| {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            });
        });
        group
            .bench_function("BLAKE3 of the whole", |bencher| bencher.iter(|| blake3::hash(black_box(&from))));
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

fn chunking(criterion: &mut Bench) {
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

/// What repeated positions cost that pass the filter: the worst that bytes can do.
fn chunking_at_worst(criterion: &mut Bench) {
    let bytes = noise(3, 700).repeat(2 * MIB / 700);
    let mut group = per_byte(criterion, "cut/repetitive", bytes.len());
    for (name, sizes) in sizes() {
        group.bench_function(name, |bencher| bencher.iter(|| cut(black_box(&bytes), sizes)));
    }
}

/// The source's pass: over what the sink has, over the same with bytes inserted, and over what it does not have.
fn differing(criterion: &mut Bench) {
    let old = noise(5, MEMORY);
    let moved = [&noise(6, MIB)[..], &old].concat();
    let other = noise(7, MEMORY);
    for (name, sizes) in sizes() {
        let known = short(&old, sizes);
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
fn keeping(criterion: &mut Bench) {
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

/// Per chunk, with a list of 65,536: 16 GiB in chunks of 256 KiB.
fn basis_and_list(criterion: &mut Bench) {
    let bytes = noise(9, 256 * MIB);
    let known = short(&bytes, ChunkSizes::FINE);
    let hashes = noise(10, 32 << 16)
        .as_chunks::<32>()
        .0
        .iter()
        .map(|bytes| blake3::Hash::from_bytes(*bytes))
        .collect::<Vec<_>>();
    let mut encoded = Vec::new();
    known.encode(&mut encoded);
    let basis = Basis::new(&known).unwrap();

    let mut group = criterion.benchmark_group("chunks");
    group.throughput(Throughput::Elements(known.chunks().len() as u64));
    group.bench_function("basis built", |bencher| bencher.iter(|| Basis::new(black_box(&known))));
    group.bench_function("list encoded", |bencher| {
        bencher.iter_batched_ref(Vec::new, |out| known.encode(out), BatchSize::LargeInput);
    });
    group.bench_function("list decoded", |bencher| {
        bencher.iter(|| ChunkList::decode(black_box(&encoded)));
    });
    group.throughput(Throughput::Elements(hashes.len() as u64));
    group.bench_function("looked up in vain", |bencher| {
        bencher.iter(|| hashes.iter().filter(|hash| basis.find(hash, 4096).is_some()).count());
    });
}

fn short(bytes: &[u8], sizes: ChunkSizes) -> ChunkList {
    list(bytes, sizes).0
}

/// The time that the thread has had a core.
struct CpuTime;

type Bench = Criterion<CpuTime>;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

criterion_group! {
    name = delta;
    config = Criterion::default().with_measurement(CpuTime);
    targets = memory, chunking, chunking_at_worst, differing, keeping, basis_and_list
}
criterion_main!(delta);
