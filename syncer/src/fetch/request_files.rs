//! Fetches content over the network: requests go out on the control stream, with the manifest of the basis
//! (`choose_delta`); workers receive content on the data streams, check it and write it (`receive_frames`).

use std::{sync::Arc, thread::ScopedJoinHandle};

use async_channel::Sender;
use contract::Side;

use crate::{
    fetch::{
        choose_delta::{BasisJob, BasisReader, open_all, request},
        in_flight::{InFlight, MAX_UNDER_WAY},
        receive_frames::Receiver,
    },
    measure::thread_time::{Activity, OutsideClock, ThreadGroup, during},
    plan::needed_files::{Fetch, Need},
    session_error::SessionError,
    sink::writing::Writing,
    sys::cores::cores,
    transport::Peer,
    wire::{MAX_PACKED_BYTES, Message},
};

/// The number of small files that are read as one job before they are requested.
const SMALL_PER_JOB: usize = 64;

/// Runs `work` with workers that write what it fetches. Returns whether any file was requested; if so, the source still
/// has to confirm that it is done.
pub(crate) fn run(
    writing: Writing<'_>,
    peer: &Peer,
    work: impl FnOnce(&mut dyn Fetch) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    let in_flight = InFlight::default();
    let threads = cores();
    let pool = |group| writing.run.monitor.pool(Side::Sink, group);
    let (receivers, reading) = (pool(ThreadGroup::Workers), pool(ThreadGroup::Readers));
    let _transport = OutsideClock::start(
        pool(ThreadGroup::Transport),
        &peer.threads(),
        writing.run.monitor.snapshot().bytes_total,
    );
    std::thread::scope(|scope| {
        let (jobs, queue) = async_channel::bounded(16 * threads);
        let mut readers = Vec::new();
        for _ in 0..threads {
            let receiver = || Receiver::new(writing, &in_flight).run(peer);
            let receivers = &receivers;
            scope.spawn(move || receivers.run(Activity::Writing, receiver));
            let queue = queue.clone();
            let (control, jobs) = (&peer.control, jobs.downgrade());
            let reader = BasisReader { writing, control, in_flight: &in_flight, jobs };
            let reading = &reading;
            readers.push(scope.spawn(move || reading.run(Activity::Reading, || reader.run(&queue))));
        }
        let mut fetch = RemoteFetch { writing, in_flight: &in_flight, peer, jobs: Some(jobs), readers };
        let result = work(&mut fetch);
        drop(fetch);
        peer.receiver.close();
        result.map(|()| in_flight.was_used())
    })
}

struct RemoteFetch<'a, 'scope> {
    writing: Writing<'a>,
    in_flight: &'a InFlight,
    peer: &'a Peer,
    jobs: Option<Sender<BasisJob>>,
    readers: Vec<ScopedJoinHandle<'scope, ()>>,
}

impl Fetch for RemoteFetch<'_, '_> {
    fn fetch(&mut self, needs: Vec<Need>) -> Result<(), SessionError> {
        let (mut plain, mut small) = (Vec::new(), Vec::new());
        for need in needs {
            let need = Arc::new(need);
            match way(self.writing, &need) {
                FetchWay::Plain => plain.push(need),
                FetchWay::Small => small.push(need),
                FetchWay::Large => {
                    let number = self.add(&[Arc::clone(&need)], true)?;
                    let old = open_all(self.writing, &need);
                    self.read(BasisJob::Large(number, need, old))?;
                }
            }
        }
        if !plain.is_empty() {
            let first = self.add(&plain, false)?;
            self.peer.control.send(&Message::Need(request(first, &plain, Vec::new())))?;
        }
        for needs in small.chunks(SMALL_PER_JOB) {
            let first = self.add(needs, false)?;
            self.read(BasisJob::Small(first, needs.to_vec()))?;
        }
        Ok(())
    }

    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError> {
        if !made_from_others.is_empty() {
            self.wait(0)?;
        }
        for needs in made_from_others.chunk_by(|one, next| one.dir.source == next.dir.source) {
            self.fetch(needs.to_vec())?;
        }
        self.jobs = None;
        for reader in self.readers.drain(..) {
            let _ = during(Activity::Idle, || reader.join());
        }
        if self.in_flight.was_used() {
            self.peer.control.send(&Message::NeedsEnd)?;
        }
        self.wait(0)
    }
}

/// The way in which a file is requested.
enum FetchWay {
    /// At once and in full.
    Plain,
    /// After reading a small file that it may begin with.
    Small,
    /// After reading a large file as its basis.
    Large,
}

fn way(writing: Writing<'_>, need: &Need) -> FetchWay {
    let large = need.size > MAX_PACKED_BYTES || writing.is_device();
    match &need.old {
        _ if large && writing.has_leftover(need) => FetchWay::Large,
        Some(old) if large && old.len > 0 => FetchWay::Large,
        Some(old) if !large && (1..=need.size).contains(&old.len) => FetchWay::Small,
        _ => FetchWay::Plain,
    }
}

impl RemoteFetch<'_, '_> {
    fn add(&self, needs: &[Arc<Need>], is_update: bool) -> Result<u32, SessionError> {
        self.wait(MAX_UNDER_WAY)?;
        Ok(self.in_flight.add(needs, is_update))
    }

    fn read(&self, job: BasisJob) -> Result<(), SessionError> {
        match self.jobs.as_ref().map(|jobs| during(Activity::Idle, || jobs.send_blocking(job))) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.peer.fault.get().into()),
        }
    }

    /// Waits until at most `most` files are in flight.
    fn wait(&self, most: usize) -> Result<(), SessionError> {
        if during(Activity::Idle, || self.in_flight.wait(most)) {
            Ok(())
        } else {
            Err(self.peer.fault.get().into())
        }
    }
}
