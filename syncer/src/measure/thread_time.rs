//! Measures how the threads of an end spend each phase: on which work, and waiting for which resource.
//!
//! Each measured thread has a clock of its own; other threads pay nothing. The kernel supplies a thread's CPU time and
//! its time in the queue for a core (`schedstat`). The rest of its wall time, less the named waits, counts as blocked
//! by its reads and writes. The kernel is asked only about phases and threads that took long enough to be judged.

use std::{
    cell::RefCell,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use contract::{Effort, MIN_JUDGED_US, Phase, Side};
use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    time::{ClockId, clock_gettime},
};

/// The activity of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Reading files or names, or working on what was read.
    Reading,
    /// Writing files or names, or working on what is written.
    Writing,
    /// Copying files without timing reads and writes separately; see [`copying`].
    Copying,
    /// Making a volume durable.
    Syncing,
    Hashing,
    Compressing,
    /// Waiting for the link, or a bandwidth limit.
    Network,
    /// Waiting for the peer.
    Peer,
    /// Waiting for a turn at a resource of several threads. The time is charged to what the thread does with its turn.
    Turn,
    /// Waiting for other threads of its end.
    Idle,
}

/// The number of bytes from which the transport's threads are measured: fewer do not keep them busy for long.
const MIN_MEASURED_BYTES: u64 = 32 << 20;

const ACTIVITIES: usize = Activity::Idle as usize + 1;

/// A group of threads that is measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadGroup {
    /// The thread that goes through the phases.
    Main,
    /// The threads that read, copy or write.
    Workers,
    /// The threads that read the destination's content, beside those that write.
    Readers,
    /// The threads of the transport.
    Transport,
}

thread_local! {
    static CLOCK: RefCell<Option<ThreadClock>> = const { RefCell::new(None) };
}

/// Charges the time of `work` to an activity of this thread.
pub(crate) fn during<T>(activity: Activity, work: impl FnOnce() -> T) -> T {
    let Some(before) = switch(activity) else { return work() };
    let done = work();
    switch(before);
    done
}

/// Switches this thread's clock to another activity, and returns the one before. `None` if the thread has no clock, or
/// the activity counts as part of the one before.
fn switch(to: Activity) -> Option<Activity> {
    CLOCK.with_borrow_mut(|clock| {
        let clock = clock.as_mut()?;
        let blends = clock.doing == Activity::Copying && to == Activity::Reading;
        (!blends).then(|| clock.lap(to))
    })
}

/// The clock of one thread.
#[derive(Debug)]
struct ThreadClock {
    began: Instant,
    since: Instant,
    doing: Activity,
    laps: [Duration; ACTIVITIES],
    /// The thread's usage when the present phase began.
    before: ThreadUse,
}

/// The CPU time of a thread, and its time in the queue for a core, as the kernel reports them.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadUse {
    running: Duration,
    queued: Duration,
}

impl ThreadClock {
    fn start(base: Activity) -> Self {
        let (now, laps) = (Instant::now(), [Duration::ZERO; ACTIVITIES]);
        Self { began: now, since: now, doing: base, laps, before: ThreadUse::default() }
    }

    fn lap(&mut self, to: Activity) -> Activity {
        let now = Instant::now();
        self.laps[self.doing as usize] += now - self.since;
        self.since = now;
        std::mem::replace(&mut self.doing, to)
    }

    /// Returns the thread's effort since the last call, and continues with another activity.
    fn turn(&mut self, base: Activity) -> Effort {
        self.lap(base);
        let wall = self.since - self.began;
        let done = if is_judged(wall) {
            let used = usage();
            let before = std::mem::replace(&mut self.before, used);
            let running = used.running.saturating_sub(before.running).min(wall);
            let queued = used.queued.saturating_sub(before.queued).min(wall - running);
            effort(wall, &self.laps, running, queued)
        } else {
            Effort::default()
        };
        (self.began, self.laps) = (self.since, [Duration::ZERO; ACTIVITIES]);
        done
    }
}

/// Computes a thread's effort in `wall` time. Blocked time without a named wait is divided among reading, writing and
/// syncing in proportion to their laps.
fn effort(wall: Duration, laps: &[Duration; ACTIVITIES], running: Duration, queued: Duration) -> Effort {
    let lap = |activity: Activity| laps[activity as usize];
    let [network, peer] = [Activity::Network, Activity::Peer].map(lap);
    let [turns, idle] = [Activity::Turn, Activity::Idle].map(lap);
    let named = network + peer + idle + turns + running + queued;
    let blocked = wall.saturating_sub(named).as_secs_f64();
    let busy = (running + queued).as_secs_f64() + blocked;
    // The thread waited for its turn because of the work of the others in theirs.
    let scale = if busy > 0.0 { 1.0 + turns.as_secs_f64() / busy } else { 1.0 };
    let us = |seconds: f64| (seconds * scale * 1e6) as u64;
    let [read, written, synced] =
        split_copies(laps).map(|share| us(if share.is_finite() { blocked * share } else { 0.0 }));
    Effort {
        running_us: us(running.as_secs_f64()),
        queued_us: us(queued.as_secs_f64()),
        reading_us: read,
        writing_us: written,
        syncing_us: synced,
        hashing_us: micros(lap(Activity::Hashing)),
        compressing_us: micros(lap(Activity::Compressing)),
        network_us: micros(network),
        peer_us: micros(peer),
        ..Effort::default()
    }
}

/// Returns the shares of reading, writing and syncing. Copies that were not timed separately are divided in the
/// proportion of the others.
fn split_copies(laps: &[Duration; ACTIVITIES]) -> [f64; 3] {
    let seconds = |activity: Activity| laps[activity as usize].as_secs_f64();
    let [read, written, synced] = [Activity::Reading, Activity::Writing, Activity::Syncing].map(seconds);
    let copied = seconds(Activity::Copying);
    let told = read + written;
    let of_reading = if told > 0.0 { read / told } else { 0.5 };
    let all = told + copied + synced;
    [read + copied * of_reading, written + copied * (1.0 - of_reading), synced].map(|time| time / all)
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Returns whether a phase or a thread took long enough to ask the kernel about it.
pub(crate) fn is_judged(wall: Duration) -> bool {
    micros(wall) >= MIN_JUDGED_US
}

/// Returns this thread's usage. The CPU time comes from its clock, because `schedstat` of a running thread is up to a
/// tick old.
fn usage() -> ThreadUse {
    let queued = use_in("/proc/thread-self/schedstat").map_or(Duration::ZERO, |it| it.queued);
    ThreadUse { running: running(), queued }
}

/// Returns this thread's CPU time.
fn running() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn read_account(account: &OwnedFd) -> Result<ThreadUse, Errno> {
    let mut text = [0; 96];
    let len = rustix::io::pread(account, &mut text, 0)?;
    let mut words = text[..len].split(u8::is_ascii_whitespace).map(nanoseconds);
    let mut next = || words.next().flatten().ok_or(Errno::INVAL);
    Ok(ThreadUse { running: next()?, queued: next()? })
}

fn nanoseconds(word: &[u8]) -> Option<Duration> {
    Some(Duration::from_nanos(std::str::from_utf8(word).ok()?.parse().ok()?))
}

/// Whether threads are measured at all. `make bench-timings` compares with a program that measures none.
pub(crate) const IS_MEASURED: bool = !cfg!(feature = "unmeasured");

/// Measures the thread that goes through the phases; a later call on the same thread starts again.
pub(crate) fn start_main() {
    if !IS_MEASURED {
        return;
    }
    let running = running();
    // A thread that has hardly run has hardly queued either, and a short run saves the look into `/proc`.
    let before = if is_judged(running) { usage() } else { ThreadUse { running, ..ThreadUse::default() } };
    CLOCK.set(Some(ThreadClock { before, ..ThreadClock::start(Activity::Peer) }));
}

/// Returns the main thread's effort in the phase that ends, and continues with `base`.
pub(crate) fn turn_main(base: Activity) -> Effort {
    CLOCK.with_borrow_mut(|clock| clock.as_mut().map_or_else(Effort::default, |clock| clock.turn(base)))
}

/// Returns the activity of an end's main thread in a phase, unless it names another.
pub(crate) fn base_of(phase: Phase) -> Activity {
    match phase {
        Phase::Connect => Activity::Peer,
        Phase::Scan => Activity::Idle,
        Phase::Plan | Phase::Delta => Activity::Reading,
        Phase::Transfer | Phase::Apply | Phase::Snapshot => Activity::Writing,
        Phase::Commit => Activity::Syncing,
    }
}

/// The threads that do the same kind of work in one phase. The effort of the busiest one is added to the book when the
/// pool is dropped.
#[derive(Debug)]
pub(crate) struct EffortPool<'a> {
    book: &'a EffortBook,
    phase: Phase,
    side: Side,
    group: ThreadGroup,
    busiest: Mutex<Effort>,
}

impl<'a> EffortPool<'a> {
    pub(crate) fn new(book: &'a EffortBook, phase: Phase, side: Side, group: ThreadGroup) -> Self {
        Self { book, phase, side, group, busiest: Mutex::default() }
    }

    /// Runs `work` on the calling thread, which belongs to the pool, and measures it.
    pub(crate) fn run<T>(&self, base: Activity, work: impl FnOnce() -> T) -> T {
        if !IS_MEASURED {
            return work();
        }
        CLOCK.set(Some(ThreadClock::start(base)));
        let done = work();
        let effort = CLOCK.take().map(|mut clock| clock.turn(base)).unwrap_or_default();
        self.record(effort);
        done
    }

    fn record(&self, effort: Effort) {
        let mut busiest = self.busiest.lock();
        if effort.busy_us() >= busiest.busy_us() {
            *busiest = effort;
        }
    }
}

impl Drop for EffortPool<'_> {
    fn drop(&mut self) {
        let effort = *self.busiest.get_mut();
        self.book.add(self.phase, self.side, self.group, &effort);
    }
}

/// Copies by `work`. Times reading and writing separately only if `is_looked_at`: timing every small file would cost
/// more than the one percent that measuring may.
pub(crate) fn copying<T>(is_looked_at: bool, work: impl FnOnce() -> T) -> T {
    if is_looked_at { during(Activity::Writing, work) } else { work() }
}

/// Measures threads from outside, by their thread ids.
#[derive(Debug)]
pub(crate) struct OutsideClock<'a> {
    pool: EffortPool<'a>,
    before: Vec<(u32, ThreadUse)>,
}

impl<'a> OutsideClock<'a> {
    /// Starts to measure `threads` that the pool did not start, if they have many `bytes` to move.
    pub(crate) fn start(pool: EffortPool<'a>, threads: &[u32], bytes: u64) -> Self {
        let threads = if IS_MEASURED && bytes >= MIN_MEASURED_BYTES { threads } else { &[] };
        let before = threads.iter().filter_map(|thread| Some((*thread, usage_of(*thread)?))).collect();
        Self { pool, before }
    }
}

impl Drop for OutsideClock<'_> {
    fn drop(&mut self) {
        for (thread, before) in &self.before {
            let Some(now) = usage_of(*thread) else { continue };
            self.pool.record(Effort {
                running_us: micros(now.running.saturating_sub(before.running)),
                queued_us: micros(now.queued.saturating_sub(before.queued)),
                ..Effort::default()
            });
        }
    }
}

fn usage_of(thread: u32) -> Option<ThreadUse> {
    use_in(&format!("/proc/self/task/{thread}/schedstat"))
}

/// Returns a thread's usage from its `schedstat` file; `None` if there is none.
fn use_in(path: &str) -> Option<ThreadUse> {
    let account = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    read_account(&account).ok()
}

/// The effort of the threads of a process in each phase of a run, of both ends if both are in the process.
#[derive(Debug, Default)]
pub(crate) struct EffortBook(Mutex<BookPages>);

#[derive(Debug, Default)]
struct BookPages {
    groups: Vec<GroupEffort>,
    /// The usage of the whole process.
    phases: Vec<Effort>,
}

/// The effort of one end's group of threads in a phase.
#[derive(Debug)]
struct GroupEffort {
    phase: Phase,
    side: Side,
    group: ThreadGroup,
    effort: Effort,
}

impl EffortBook {
    /// Clears all entries, for the next run.
    pub(crate) fn clear(&self) {
        *self.0.lock() = BookPages::default();
    }

    pub(crate) fn add(&self, phase: Phase, side: Side, group: ThreadGroup, effort: &Effort) {
        let mut book = self.0.lock();
        match book.groups.iter_mut().find(|of| (of.phase, of.side, of.group) == (phase, side, group)) {
            Some(sum) => sum.effort.add(effort),
            None => book.groups.push(GroupEffort { phase, side, group, effort: *effort }),
        }
    }

    /// Adds the wall and CPU time of the whole process, and the time that its CPU limit stopped it.
    pub(crate) fn add_phase(&self, phase: Phase, times: [Duration; 3]) {
        let [wall_us, cpu_us, throttled_us] = times.map(micros);
        let more = Effort { phase, wall_us, cpu_us, throttled_us, ..Effort::default() };
        let mut book = self.0.lock();
        match book.phases.iter_mut().find(|effort| effort.phase == phase) {
            Some(sum) => sum.add(&more),
            None => book.phases.push(more),
        }
    }

    /// Returns one end's effort in each phase: the process's usage, and the activities of its busiest group of threads.
    pub(crate) fn of(&self, side: Side) -> Vec<Effort> {
        let book = self.0.lock();
        let busiest = |phase: Phase| {
            let of_phase = book.groups.iter().filter(|of| (of.phase, of.side) == (phase, side));
            of_phase.map(|of| of.effort).max_by_key(Effort::busy_us)
        };
        let of = |used: &Effort| {
            let busiest = busiest(used.phase)?;
            let Effort { phase, wall_us, cpu_us, throttled_us, .. } = *used;
            Some(Effort { phase, wall_us, cpu_us, throttled_us, ..busiest })
        };
        book.phases.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn laps(of: &[(Activity, u32)]) -> [Duration; ACTIVITIES] {
        let mut laps = [Duration::ZERO; ACTIVITIES];
        of.iter().for_each(|(activity, ms)| laps[*activity as usize] = MS * *ms);
        laps
    }

    #[test]
    fn what_is_left_of_a_threads_time_was_spent_blocked_by_what_it_read_and_wrote() {
        let laps = laps(&[(Activity::Reading, 60), (Activity::Writing, 20), (Activity::Peer, 20)]);
        let effort = effort(MS * 100, &laps, MS * 30, MS * 10);
        assert_eq!((effort.running_us, effort.queued_us, effort.peer_us), (30_000, 10_000, 20_000));
        assert_eq!((effort.reading_us, effort.writing_us), (30_000, 10_000));
    }

    #[test]
    fn copies_that_were_not_looked_at_are_divided_as_the_others() {
        let laps = laps(&[(Activity::Reading, 3), (Activity::Writing, 1), (Activity::Copying, 96)]);
        let effort = effort(MS * 100, &laps, Duration::ZERO, Duration::ZERO);
        assert_eq!((effort.reading_us, effort.writing_us), (75_000, 25_000));
    }

    #[test]
    fn a_wait_for_a_turn_counts_as_what_is_done_with_it_and_a_wait_for_others_does_not() {
        let laps = laps(&[(Activity::Writing, 40), (Activity::Turn, 40), (Activity::Idle, 20)]);
        let effort = effort(MS * 100, &laps, MS * 40, Duration::ZERO);
        assert_eq!((effort.running_us, effort.busy_us()), (80_000, 80_000));
    }

    #[test]
    fn a_thread_that_only_waits_is_not_the_busiest() {
        let book = EffortBook::default();
        let pool = EffortPool::new(&book, Phase::Scan, Side::Sink, ThreadGroup::Workers);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let pool = &pool;
            scope.spawn(move || pool.run(Activity::Writing, || during(Activity::Peer, || wait.recv())));
            scope.spawn(move || {
                let until = Instant::now() + Duration::from_micros(4 * MIN_JUDGED_US);
                pool.run(Activity::Writing, || while Instant::now() < until {});
                drop(done);
            });
        });
        drop(pool);
        book.add_phase(Phase::Scan, [MS, MS, Duration::ZERO]);
        let [effort] = book.of(Side::Sink)[..] else { panic!("one phase was measured") };
        assert!(effort.running_us + effort.queued_us > 0 && effort.peer_us == 0, "{effort:?}");
        assert_eq!(book.of(Side::Source), []);
    }

    #[test]
    fn an_account_of_the_kernel_has_three_numbers() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, b"1000 2000 3\n").unwrap();
        let usage = read_account(&OwnedFd::from(file)).unwrap();
        assert_eq!((usage.running.as_nanos(), usage.queued.as_nanos()), (1000, 2000));
    }
}
