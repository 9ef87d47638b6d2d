//! The field's named suites: whole runs of the release program, local and over QUIC on loopback, trees in memory.
//!
//! `cargo bench --bench sync -- local/sync_small_files` runs one suite; `make bench` builds the program first. A run's
//! result is checked before its time is kept. `benches/src/suites.rs` says what each bench is.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::{cell::OnceCell, iter::Sum, path::Path, time::Duration};

use benches::{
    peers::Programs,
    probe::Probe,
    suites::{Bench, Mode, benches},
    trial::{Sources, Trial},
    workdir::{FileSystem, WorkDir},
};
use contract::Report;
use criterion::{
    Criterion, criterion_group, criterion_main,
    measurement::{Measurement, ValueFormatter},
};

/// The suite that is measured by its memory.
const MEMORY: &str = "memory_5000_tiny";

fn timed(criterion: &mut Criterion) {
    each(criterion, |bench| bench.suite != MEMORY, |elapsed, _| elapsed);
}

fn memory(criterion: &mut Criterion<PeakMemory>) {
    let peak = |_, report: &Report| report.usage.source_peak_rss.max(report.usage.sink_peak_rss) as f64;
    each(criterion, |bench| bench.suite == MEMORY, peak);
}

/// Runs the chosen benches in both modes; `value` is what of a run is measured.
fn each<M: Measurement>(
    criterion: &mut Criterion<M>,
    is_chosen: impl Fn(&Bench) -> bool,
    value: impl Fn(Duration, &Report) -> M::Value,
) where
    M::Value: Sum,
{
    for mode in Mode::ALL {
        for bench in benches().iter().filter(|bench| is_chosen(bench)) {
            let mut group = criterion.benchmark_group(format!("{}/{}", mode.name(), bench.suite));
            group.sample_size(10).warm_up_time(Duration::from_millis(500));
            // Made by the first call, so that benches which the command line leaves out make no trees.
            let ready = OnceCell::new();
            group.bench_function(bench.parameter, |bencher| {
                let ready = ready.get_or_init(|| Ready::new(bench, mode));
                bencher.iter_custom(|runs| ready.runs(runs, &value));
            });
        }
    }
}

/// A bench whose trees are there.
struct Ready {
    trial: Trial,
    bytes: u64,
    work: WorkDir,
}

impl Ready {
    fn new(bench: &Bench, mode: Mode) -> Self {
        let work = WorkDir::make(Path::new("/dev/shm"), FileSystem::Dir, 0).unwrap();
        let sources = Sources::make(bench, work.trees()).unwrap();
        let beside = std::env::current_exe().unwrap().with_file_name("../volferry");
        let program = Programs { root: "".into(), volferry: Some(beside) }.volferry().unwrap();
        let limit = Duration::from_secs(300);
        let trial = Trial::new(bench, mode, program, &sources, &work.trees().join("run"), limit).unwrap();
        Self { trial, bytes: bench.shape.bytes(), work }
    }

    /// The sum of what `runs` runs measure.
    fn runs<V: Sum>(&self, runs: u64, value: impl Fn(Duration, &Report) -> V) -> V {
        let run = |_| {
            self.trial.prepare().unwrap();
            self.work.settle(self.bytes * 5 / 4).unwrap();
            let (elapsed, report) = self.trial.run(Probe::None).unwrap();
            self.trial.check().unwrap();
            value(elapsed, &report)
        };
        (0..runs).map(run).sum()
    }
}

/// Peak resident memory of the end that took more.
struct PeakMemory;

impl Measurement for PeakMemory {
    type Intermediate = ();
    type Value = f64;

    fn start(&self) {}

    fn end(&self, (): ()) -> f64 {
        0.0
    }

    fn add(&self, one: &f64, other: &f64) -> f64 {
        one + other
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, bytes: &f64) -> f64 {
        *bytes
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for PeakMemory {
    fn scale_values(&self, _typical: f64, values: &mut [f64]) -> &'static str {
        values.iter_mut().for_each(|bytes| *bytes /= f64::from(1 << 20));
        "MiB"
    }

    fn scale_throughputs(
        &self,
        typical: f64,
        _throughput: &criterion::Throughput,
        values: &mut [f64],
    ) -> &'static str {
        self.scale_values(typical, values)
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "bytes"
    }
}

criterion_group!(timed_suites, timed);
criterion_group! {
    name = memory_suites;
    config = Criterion::default().with_measurement(PeakMemory);
    targets = memory
}
criterion_main!(timed_suites, memory_suites);
