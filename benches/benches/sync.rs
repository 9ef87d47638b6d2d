//! The field's named suites: whole runs of the release program, local and over QUIC on loopback, trees in memory.
//!
//! `cargo bench --bench sync -- local/sync_small_files` runs one suite; `make bench` builds the program first. A run's
//! result is checked before its time is kept. `benches/src/suites.rs` says what each bench is.

#![allow(clippy::unwrap_used, reason = "a bench that fails has nothing to measure")]

use std::{cell::OnceCell, path::Path, time::Duration};

use benches::{
    peers::Programs,
    probe::Probe,
    suites::{Bench, Mode, benches},
    trial::{Sources, Trial},
    workdir::{FileSystem, WorkDir},
};
use criterion::{Criterion, criterion_group, criterion_main};

fn timed(criterion: &mut Criterion) {
    for mode in [Mode::Local, Mode::Network] {
        for bench in benches() {
            let mut group = criterion.benchmark_group(format!("{}/{}", mode.name(), bench.suite));
            group.sample_size(10).warm_up_time(Duration::from_millis(500));
            // Made by the first call, so that benches which the command line leaves out make no trees.
            let ready = OnceCell::new();
            group.bench_function(bench.parameter, |bencher| {
                let ready = ready.get_or_init(|| Ready::new(&bench, mode));
                bencher.iter_custom(|runs| (0..runs).map(|_| ready.run()).sum());
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

    fn run(&self) -> Duration {
        self.trial.prepare().unwrap();
        self.work.settle(self.bytes * 5 / 4).unwrap();
        let elapsed = self.trial.run(Probe::None).unwrap().elapsed;
        self.trial.check().unwrap();
        elapsed
    }
}

criterion_group!(suites, timed);
criterion_main!(suites);
