//! Gathers counters and phase timings of a run from many threads, for its report.

use std::{
    fs::File,
    io::Read as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use contract::{Effort, Phase, Side, Timings, Usage, Work};
use rustix::time::{ClockId, clock_gettime};

use crate::measure::{
    cpu_throttling::{self, Throttled},
    monitor::Monitor,
    thread_time::{ThreadGroup, base_of, is_judged, start_main, turn_main},
};

/// What a run has used of its machine.
#[derive(Debug, Default)]
struct Used {
    /// CPU time in milliseconds.
    cpu_ms: u64,
    /// The peak memory in bytes.
    peak_rss: u64,
}

/// The target of what is logged at once and is a note of the report, too.
pub const NOTES: &str = "syncer::notes";

/// Counts the sink's work while it is done.
#[derive(Debug, Default)]
#[allow(missing_docs)] // each of the others is the field of its name in `Work`
pub struct Counters {
    pub created: AtomicU64,
    pub updated: AtomicU64,
    pub deleted: AtomicU64,
    pub bytes_changed: AtomicU64,
    pub bytes_reused: AtomicU64,
    pub owners_not_kept: AtomicU64,
    pub deletes_kept_back: AtomicU64,
    /// The number of failed entries when deletes were kept back.
    pub kept_back_for: AtomicU64,
    /// Files whose supposed basis had nothing in common with them.
    pub wrong_guesses: AtomicU64,
}

impl Counters {
    /// Counts an entry that was made, or that `replaces` another.
    pub fn count(&self, replaces: bool) {
        let counter = if replaces { &self.updated } else { &self.created };
        counter.fetch_add(1, Relaxed);
    }

    /// Takes back the count of entries that were made and are dropped, some of them perhaps by other shards.
    pub fn drop_created(&self, entries: u64) {
        let rest = |created: u64| Some(created.saturating_sub(entries));
        // It never refuses.
        let _ = self.created.fetch_update(Relaxed, Relaxed, rest);
    }

    /// Counts deletes that are kept back because `failed` entries of the whole run failed.
    pub fn keep_back(&self, deletes: u64, failed: u64) {
        self.deletes_kept_back.fetch_add(deletes, Relaxed);
        self.kept_back_for.store(failed, Relaxed);
    }

    /// Returns the counts so far in the form of a report. Counts of the source and the network are 0.
    pub fn work(&self) -> Work {
        Work {
            files_created: self.created.load(Relaxed),
            files_updated: self.updated.load(Relaxed),
            files_deleted: self.deleted.load(Relaxed),
            deletes_kept_back: self.deletes_kept_back.load(Relaxed),
            bytes_changed: self.bytes_changed.load(Relaxed),
            bytes_reused: self.bytes_reused.load(Relaxed),
            owners_not_kept: self.owners_not_kept.load(Relaxed),
            ..Work::default()
        }
    }
}

/// Times consecutive phases, and tells the monitor which one runs.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    monitor: &'a Monitor,
    start: Instant,
    phase: Phase,
    since: Instant,
    spent: [Duration; Phase::COUNT],
    work: Work,
    /// The end whose phases these are: the source if it is a process of its own.
    side: Side,
    /// The CPU time that this process had used before, and before the running phase.
    cpu_before: [Duration; 2],
    /// The time that the CPU limit had stopped this process's group before the running phase; `None` before the first
    /// look.
    throttled_before: Option<Throttled>,
    /// Whether this process has other runs at the same time, so that its usage says nothing about this one.
    is_shared: bool,
}

impl<'a> Stopwatch<'a> {
    /// Starts in [`Phase::Connect`], and measures this process's usage from now on.
    pub fn start(monitor: &'a Monitor) -> Self {
        reset_peak_rss();
        Self::start_as(monitor, false)
    }

    /// Starts in a process that has other runs at the same time, and leaves its usage out.
    pub(crate) fn start_beside_others(monitor: &'a Monitor) -> Self {
        Self::start_as(monitor, true)
    }

    fn start_as(monitor: &'a Monitor, is_shared: bool) -> Self {
        monitor.set_phase(Phase::Connect);
        start_main();
        let (start, phase, spent) = (Instant::now(), Phase::Connect, [Duration::ZERO; Phase::COUNT]);
        let (work, cpu_before, throttled_before) = (Work::default(), [cpu(); 2], None);
        let (side, since) = (Side::Sink, start);
        Self { monitor, start, phase, since, spent, work, side, cpu_before, throttled_before, is_shared }
    }

    /// Starts anew for the next run of the same peer.
    pub(crate) fn start_next(&self) -> Self {
        if self.is_shared { Self::start_beside_others(self.monitor) } else { Self::start(self.monitor) }
    }

    /// Records the phases as the source's, in a process that has no sink.
    pub fn of_source(&mut self) {
        self.side = Side::Source;
    }

    /// Inspects this process's CPU limits, if it has not yet, so that the phases from now on show how long these stop
    /// it. That takes 1 % of a short run, so it is best done while the run waits for another thread or the peer anyway.
    pub fn inspect_limits(&mut self) {
        self.throttled_before.get_or_insert_with(Throttled::now);
    }

    /// Moves the start to another moment in [`Phase::Connect`], so that the wait for a peer does not count as part of
    /// the run.
    pub fn started_at(&mut self, start: Instant) {
        (self.start, self.since) = (start, start);
    }

    /// Returns the resources that this run has used as the source.
    pub fn source_usage(&self) -> Usage {
        let Used { cpu_ms, peak_rss } = self.used();
        Usage { source_cpu_ms: cpu_ms, source_peak_rss: peak_rss, ..Usage::default() }
    }

    /// Returns the resources that this run has used as the sink, added to the usage of its source.
    pub fn sink_usage(&self, source: Usage) -> Usage {
        let Used { cpu_ms, peak_rss } = self.used();
        Usage { sink_cpu_ms: cpu_ms, sink_peak_rss: peak_rss, ..source }
    }

    /// Returns what this run has used; nothing if the process has other runs.
    fn used(&self) -> Used {
        let cpu_ms = || cpu().saturating_sub(self.cpu_before[0]).as_millis() as u64;
        if self.is_shared { Used::default() } else { Used { cpu_ms: cpu_ms(), peak_rss: peak_rss() } }
    }

    /// Returns the effort of one end's threads in each phase so far.
    pub fn efforts(&mut self, side: Side) -> Vec<Effort> {
        self.enter(self.phase);
        self.monitor.efforts().of(side)
    }

    /// Ends the running phase and begins `phase`.
    pub fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        self.spent[self.phase as usize] += now - self.since;
        self.book(now - self.since, phase);
        (self.phase, self.since) = (phase, now);
        self.monitor.set_phase(phase);
    }

    /// Adds the running phase to the book of efforts.
    fn book(&mut self, wall: Duration, next: Phase) {
        let book = self.monitor.efforts();
        let before = (self.cpu_before[1], self.throttled_before);
        let (used, throttled) = if is_judged(wall) { (cpu(), Some(Throttled::now())) } else { before };
        (self.cpu_before[1], self.throttled_before) = (used, throttled);
        let used = used.saturating_sub(before.0);
        let throttled = throttled.zip(before.1).map(|(now, before)| now.since(&before)).unwrap_or_default();
        let stopped = cpu_throttling::stopped(wall, used, throttled);
        let used = if self.is_shared { Duration::ZERO } else { used };
        book.add_phase(self.phase, [wall, used, stopped]);
        book.add(self.phase, self.side, ThreadGroup::Main, &turn_main(base_of(next)));
    }

    /// Notes the work done so far, so that the report contains it even if the run fails later.
    pub fn did(&mut self, work: Work) {
        self.work = work;
    }

    /// Returns the work noted by [`Self::did`].
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns the times until now. Each phase is rounded so that all add up to the total exactly.
    pub fn timings(&self) -> Timings {
        let mut spent = self.spent;
        spent[self.phase as usize] += self.since.elapsed();
        let mut end = Duration::ZERO;
        let mut ms = [0; Phase::COUNT];
        for (spent, ms) in spent.iter().zip(&mut ms) {
            let begin = round_ms(end);
            end += *spent;
            *ms = round_ms(end) - begin;
        }
        Timings::of_phases(ms, round_ms(end))
    }

    /// Returns the monitor of the phases.
    pub fn monitor(&self) -> &'a Monitor {
        self.monitor
    }

    /// Returns the wall time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

fn round_ms(time: Duration) -> u64 {
    ((time.as_micros() + 500) / 1000) as u64
}

/// Returns the CPU time that this process has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resets the kernel's peak of resident memory (`proc_pid_clear_refs(5)`). If the kernel refuses, the peak is that of
/// the process.
fn reset_peak_rss() {
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "5") {
        tracing::debug!(%error, "peak memory is counted from the start of the process");
    }
}

/// The length of the buffer for `/proc/self/status`, which has some 1.5 KiB.
const STATUS_BYTES: usize = 4 << 10;

/// Returns the peak resident memory of this process in bytes, as `VmHWM` in `/proc/self/status`; 0 if that cannot be
/// read.
fn peak_rss() -> u64 {
    let mut status = String::with_capacity(STATUS_BYTES);
    let _ = File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status));
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_to_the_total() {
        let monitor = Monitor::default();
        let mut watch = Stopwatch::start(&monitor);
        watch.spent = [1, 499, 500, 501, 1499, 1500, 250, 250].map(Duration::from_micros);
        watch.enter(Phase::Commit);
        let t = watch.timings();
        let sum = t.connect + t.scan + t.plan + t.delta + t.transfer + t.apply + t.commit + t.snapshot;
        assert_eq!(sum, t.total);
        assert!(t.total >= 5);
    }

    #[test]
    fn usage_counts_from_the_start_of_the_run() {
        let monitor = Monitor::default();
        let cpu_ms = || cpu().as_millis() as u64;
        let burn = |ms: u64| {
            let until = cpu() + Duration::from_millis(ms);
            while cpu() < until {}
        };
        burn(30);
        let watch = Stopwatch::start(&monitor);
        let before = watch.cpu_before[0].as_millis() as u64;
        assert!(before >= 30);
        burn(20);
        let usage = watch.sink_usage(Usage { source_cpu_ms: 7, ..Usage::default() });
        assert!((20..=cpu_ms() - before).contains(&usage.sink_cpu_ms), "{usage:?}");
        assert_eq!(usage.source_cpu_ms, 7);
    }

    #[test]
    fn a_run_beside_others_has_none_of_their_usage() {
        let monitor = Monitor::default();
        let watch = Stopwatch::start_beside_others(&monitor).start_next();
        let others = cpu() + Duration::from_millis(20);
        while cpu() < others {}
        assert_eq!(watch.source_usage(), Usage::default());
        let source = Usage { source_cpu_ms: 7, source_peak_rss: 8, ..Usage::default() };
        assert_eq!(watch.sink_usage(source), source);
        assert!(Stopwatch::start(&monitor).start_next().sink_usage(source).sink_peak_rss > 0);
    }
}
