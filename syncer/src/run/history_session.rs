//! Copies of snapshots between a user and a folder of a service. Both ends speak as over ssh
//! (`snapshot::copy::stream_client`), in the messages of a session.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use contract::{Demands, HistoryRequest, Phase, Preserve, Report, RunParams, Side, VolumeId, Work};

use crate::{
    destination::{ApplyError, Destination, Settings},
    measure::monitor::Monitor,
    run::{
        link_options::LinkOptions,
        outcome::{Clock, Outcome},
        service::{ServiceLimits, ServiceVisit},
        session_link::SessionLink,
    },
    session_error::{SessionError, of_link},
    sink::open_destination::{HeldDestination, open_destination},
    snapshot::{
        SnapshotError,
        copy::{
            CopiedHistory, FarCopy, HistorySource, OpenHistory, StoredHistory, StreamedHistory, copy_history,
            serve_history,
        },
        store::Writer,
    },
    sys::root::{Root, TreeLocation},
    transport::{
        Peer, TransportError,
        history_bytes::{history_bytes, open_history},
        quic::End,
    },
};

/// The pause between two tries to lock a folder.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Has `take` copy from the store of a service's folder, which `link` asks for.
///
/// # Errors
/// If the service cannot be reached, or refuses; any error of `take`.
pub fn take_from_service(
    link: &LinkOptions,
    monitor: &Monitor,
    take: impl FnOnce(&mut dyn HistorySource) -> Result<CopiedHistory, SnapshotError>,
) -> Result<CopiedHistory, SessionError> {
    let mut session = connect(link, Side::Sink, monitor)?;
    let peer = session.begin(true, monitor);
    let taken = take_over(&peer, monitor, |source| Ok(take(source)?));
    session.end(&peer, taken.map_err(|error| told(error, monitor)), true).result
}

/// Has a service copy from `history` into its folder, which `link` asks for.
///
/// # Errors
/// If the service cannot be reached, or refuses or fails to copy.
pub fn offer_to_service(
    link: &LinkOptions,
    monitor: &Monitor,
    history: &mut StoredHistory<'_>,
) -> Result<CopiedHistory, SessionError> {
    let mut session = connect(link, Side::Source, monitor)?;
    let peer = session.begin(true, monitor);
    let offered = open_history(&peer.control).map_err(SessionError::from);
    let offered = offered.and_then(|()| offer_over(&peer, history, monitor));
    session.end(&peer, offered.map_err(|error| told(error, monitor)), false).result
}

fn connect(link: &LinkOptions, side: Side, monitor: &Monitor) -> Result<SessionLink, SessionError> {
    let end = End { side, bandwidth_limit: None };
    Ok(SessionLink::new(link.connect(link.open_port(monitor)?, end, monitor)?))
}

/// Has `take` copy from the store at the other end, and tells that end of what was copied.
fn take_over(
    peer: &Peer,
    monitor: &Monitor,
    take: impl FnOnce(&mut dyn HistorySource) -> Result<CopiedHistory, SessionError>,
) -> Result<CopiedHistory, SessionError> {
    let (from, to) = history_bytes(peer, monitor);
    let mut source = StreamedHistory::new(from, to);
    let done = Ok(take(&mut source)?);
    source.finish(&done)?;
    Ok(done?)
}

/// Answers the other end, which copies from `history`.
fn offer_over(
    peer: &Peer,
    history: &mut StoredHistory<'_>,
    monitor: &Monitor,
) -> Result<CopiedHistory, SessionError> {
    let (from, to) = history_bytes(peer, monitor);
    match serve_history(history, from, to)? {
        FarCopy::Done(done) => Ok(done),
        FarCopy::Failed(why) => Err(SnapshotError::Elsewhere(why).into()),
    }
}

/// Returns the error of the link instead of the store's that follows from it, or that this end was told to stop.
fn told(error: SessionError, monitor: &Monitor) -> SessionError {
    if monitor.cancelled() { TransportError::Canceled.into() } else { of_link(error) }
}

/// Snapshots that a peer offers to a folder.
#[derive(Debug, Clone, Copy)]
pub struct HistoryOffer<'a> {
    /// The snapshots, and how long the peer waits for the folder.
    pub request: &'a HistoryRequest,
    /// The volume that they are of.
    pub source_id: Option<VolumeId>,
    /// The peer's name.
    pub by: &'a str,
}

impl ServiceVisit {
    /// Lets the peer copy the snapshots of the volume at `place`. Every error is in the outcome.
    pub fn offer_history(
        self,
        place: &TreeLocation,
        limits: ServiceLimits,
        monitor: &Arc<Monitor>,
    ) -> Outcome {
        self.copy(Side::Source, limits, monitor, |peer| {
            let path = place.path();
            let root = Root::enter(place).map_err(SessionError::Source)?;
            let history = OpenHistory::open(&root, &path)?.ok_or(SnapshotError::None(path))?;
            offer_over(peer, &mut history.source(), monitor)
        })
    }

    /// Copies snapshots that the peer offers into the store of the volume at `place`, as far as the `demands` of its
    /// owner allow that. Every error is in the outcome.
    pub fn take_history(
        self,
        place: &TreeLocation,
        offer: HistoryOffer<'_>,
        demands: &Demands,
        limits: ServiceLimits,
        monitor: &Arc<Monitor>,
    ) -> Outcome {
        let HistoryOffer { request, source_id, by } = offer;
        self.copy(Side::Sink, limits, monitor, |peer| {
            let destination = open(place, demands, source_id, request.wait_seconds, monitor)?;
            let done = take_over(peer, monitor, |source| {
                let (state, root) = (destination.state(), destination.root());
                let mut writer = Writer::open(state, root, &place.path(), monitor)?;
                Ok(copy_history(&mut writer, source, &request.selection, by, monitor)?)
            });
            destination.close();
            done
        })
    }

    fn copy(
        self,
        side: Side,
        limits: ServiceLimits,
        monitor: &Arc<Monitor>,
        copy: impl FnOnce(&Peer) -> Result<CopiedHistory, SessionError>,
    ) -> Outcome {
        let mut clock = Clock::start(monitor);
        let end = End { side, bandwidth_limit: limits.bandwidth };
        let mut session = SessionLink::new(self.begin(end, limits.silence, monitor));
        clock.met(session.met(), true);
        clock.watch.enter(Phase::Snapshot);
        let peer = session.begin(true, monitor);
        let done = copy(&peer).map_err(|error| told(error, monitor));
        let work = Work { bytes_on_wire: session.bytes_on_wire(), ..Work::default() };
        clock.watch.did(work);
        let report = done.map(|done| report_of(&done, &clock, &session, work));
        let report = session.end(&peer, report, side == Side::Sink).result;
        clock.outcome("", report)
    }
}

fn report_of(done: &CopiedHistory, clock: &Clock<'_>, session: &SessionLink, work: Work) -> Report {
    let mut report = Report {
        start_time: contract::timestamp(clock.began),
        completion_time: contract::timestamp(SystemTime::now()),
        link: Some(session.met().link),
        timings: clock.watch.timings(),
        work,
        ..Report::default()
    };
    report.add_history(done.report());
    report
}

/// Opens the volume at `place` as a run of this source would, by the demands that concern snapshots. Waits for its lock
/// for so many seconds.
fn open(
    place: &TreeLocation,
    demands: &Demands,
    source_id: Option<VolumeId>,
    wait_seconds: u64,
    monitor: &Monitor,
) -> Result<Destination, SessionError> {
    let Demands { expect_volume, other_source, .. } = *demands;
    let demands = Demands { expect_volume, other_source, ..Demands::default() };
    let params = RunParams { demands, source_id, ..RunParams::default() };
    // The tree is not written to, so the attributes that can be set there need no probing.
    let preserve = Preserve { xattrs: false, acls: false, ..Preserve::default() };
    let began = Instant::now();
    loop {
        let settings = Settings::resolve(&preserve)?;
        match open_destination(place, &params, settings, &mut HeldDestination::default()) {
            Err(SessionError::Apply(ApplyError::Busy { .. })) if began.elapsed().as_secs() < wait_seconds => {
                monitor.pause(PAUSE_BETWEEN_TRIES).map_err(|_| TransportError::Canceled)?;
            }
            taken => return Ok(taken?.destination),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use contract::{CopySelection, SnapshotEngine};
    use tempfile::TempDir;

    use super::*;
    use crate::{
        measure::failures::Failures,
        snapshot::{Store, create::create_snapshot, store::Labels},
        transport::memory_link,
        wire::{MAX_HISTORY_BYTES, Message, Refusal, Welcome},
    };

    fn volume(content: &str) -> TempDir {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("file"), content).unwrap();
        let place = dir.path().into();
        create_snapshot(&place, Labels::default(), SnapshotEngine::Copy, &[], &Failures::default()).unwrap();
        dir
    }

    fn ids(dir: &TempDir) -> Vec<String> {
        let root = Root::enter(&dir.path().into()).unwrap();
        let store = Store::open(&root, dir.path()).unwrap().unwrap();
        store.roots().unwrap().snapshots.iter().map(|snapshot| snapshot.id.to_string()).collect()
    }

    /// Copies into `to` what the other end answers.
    fn take(peer: &Peer, to: &TempDir) -> Result<CopiedHistory, SessionError> {
        let (place, monitor) = (TreeLocation::from(to.path()), Monitor::default());
        let destination = open(&place, &Demands::default(), None, 0, &monitor)?;
        let done = take_over(peer, &monitor, |source| {
            let mut writer = Writer::open(destination.state(), destination.root(), to.path(), &monitor)?;
            Ok(copy_history(&mut writer, source, &CopySelection::All, "test", &monitor)?)
        });
        destination.close();
        done.map_err(|error| told(error, &monitor))
    }

    fn offer(peer: &Peer, from: &TempDir) -> Result<CopiedHistory, SessionError> {
        let (root, monitor) = (Root::enter(&from.path().into()).unwrap(), Monitor::default());
        let history = OpenHistory::open(&root, from.path()).unwrap().unwrap();
        offer_over(peer, &mut history.source(), &monitor).map_err(|error| told(error, &monitor))
    }

    #[test]
    fn both_ends_of_a_copy_agree_on_what_was_copied() {
        let (from, to) = (volume("content"), TempDir::new().unwrap());
        let (source, sink) = memory_link::pair();
        let (offered, taken) = thread::scope(|scope| {
            let offered = scope.spawn(|| offer(&source, &from).unwrap());
            let taken = take(&sink, &to).unwrap();
            (offered.join().unwrap(), taken)
        });
        assert_eq!(offered.report(), taken.report());
        assert_eq!(ids(&to), ids(&from));
    }

    /// The first messages of peers that are no store, and the reasons by which they are told.
    fn hostile() -> Vec<(Vec<Message>, &'static str)> {
        let frame = |kind: u8, len: u32| Message::History([&[kind][..], &len.to_le_bytes()].concat());
        let welcome = Message::Welcome(Welcome { version: String::new(), dry_run: false });
        vec![
            (vec![Message::History(vec![]); 2], "ProtocolViolation"),
            (vec![welcome], "ProtocolViolation"),
            (vec![Message::NeedsEnd], "ProtocolViolation"),
            (vec![frame(1, u32::MAX)], "ProtocolViolation"),
            (vec![frame(99, 0)], "ProtocolViolation"),
            (vec![Message::History(vec![7; MAX_HISTORY_BYTES])], "ProtocolViolation"),
            (vec![Message::Refuse(Refusal::canceled())], "Canceled"),
        ]
    }

    #[test]
    fn a_service_takes_nothing_of_a_peer_that_is_no_store() {
        for (messages, reason) in hostile() {
            let to = TempDir::new().unwrap();
            let (source, sink) = memory_link::pair();
            messages.iter().for_each(|message| source.control.send(message).unwrap());
            let error = take(&sink, &to).unwrap_err();
            assert_eq!(error.refusal().reason, reason, "{messages:?}: {error}");
            assert_eq!(ids(&to), [""; 0]);
        }
        let to = TempDir::new().unwrap();
        let (source, sink) = memory_link::pair();
        drop(source);
        assert_eq!(take(&sink, &to).unwrap_err().refusal().reason, "PeerLost");
        fs::write(to.path().join("file"), "stays usable").unwrap();
        let place = to.path().into();
        create_snapshot(&place, Labels::default(), SnapshotEngine::Copy, &[], &Failures::default()).unwrap();
    }

    #[test]
    fn a_service_answers_no_peer_that_asks_as_no_store_does() {
        let from = volume("content");
        for (messages, reason) in hostile() {
            let (source, sink) = memory_link::pair();
            messages.iter().for_each(|message| sink.control.send(message).unwrap());
            let error = offer(&source, &from).unwrap_err();
            assert_eq!(error.refusal().reason, reason, "{messages:?}: {error}");
        }
    }
}
