//! Runs a pair of processes: the two ends of a run, or of one of its shards.

use std::{path::Path, time::Duration};

use contract::{Contact, Event, Report, Side};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{args::LocalError, display::SharedDisplay};
use crate::{
    ends::source_and_sink::Ends,
    engine::process::{Exit, ProcessError, Syncer},
    run::outcome::Ending,
    signals::Stops,
};

/// How long a process may take to end after it was asked to, or after the other has ended.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// The state of the two ends while they run.
pub(super) struct ProcessPair<'a> {
    shard: usize,
    screen: &'a SharedDisplay<'a>,
    stops: Stops,
    /// The deadline at which the pair is stopped.
    until: watch::Receiver<Instant>,
    is_late: bool,
    /// Until when processes that were told to stop may take to end.
    patience: Option<Instant>,
    reports: Ends<Option<Report>>,
    /// The contact of each end, until both have been passed on.
    contacts: Ends<Option<Contact>>,
}

impl<'a> ProcessPair<'a> {
    pub(super) fn new(
        shard: usize,
        screen: &'a SharedDisplay<'a>,
        until: watch::Receiver<Instant>,
    ) -> Result<Self, LocalError> {
        let stops = Stops::new().map_err(LocalError::Signals)?;
        Ok(Self {
            shard,
            screen,
            stops,
            until,
            is_late: false,
            patience: None,
            reports: Ends::default(),
            contacts: Ends::default(),
        })
    }

    /// Starts both ends, passes each one's contact to the other, and follows them until they have ended. Returns their
    /// endings. Fails if a process cannot be run.
    pub(super) async fn run(
        self,
        program: &Path,
        args: Ends<Vec<String>>,
    ) -> Result<Ends<Ending>, LocalError> {
        let start = |args: Vec<String>| Syncer::start(program.into(), args.into_iter().map(Into::into));
        let sink = start(args.sink)?;
        self.both(start(args.source)?, sink).await
    }

    /// Starts the one process for both ends, and follows it until it has ended. Fails if the process cannot be run.
    pub(super) async fn run_as_one(
        mut self,
        program: &Path,
        args: Vec<String>,
    ) -> Result<Ending, LocalError> {
        let mut syncer = Syncer::start(program.into(), args.into_iter().map(Into::into))?;
        loop {
            let patience = self.patience;
            tokio::select! {
                event = syncer.next_event() => match event {
                    Some(Event::Planned(action)) => self.screen.planned(&action),
                    event => if !self.take(Side::Sink, event) { break },
                },
                () = self.told_to_stop() => syncer.terminate(),
                () = passed_if(patience) => break,
            }
        }
        self.ending(Side::Sink, syncer).await
    }

    /// Waits for a request to stop, or, only once, for the deadline of the pair. Processes have some time from then on.
    async fn told_to_stop(&mut self) {
        tokio::select! {
            () = self.stops.next() => {}
            () = passed(&mut self.until), if !self.is_late => self.is_late = true,
        }
        self.patience.get_or_insert(Instant::now() + GRACE);
    }

    /// Follows both ends until both have ended.
    async fn both(mut self, mut source: Syncer, mut sink: Syncer) -> Result<Ends<Ending>, LocalError> {
        let (mut source_open, mut sink_open) = (true, true);
        while source_open && sink_open {
            let patience = self.patience;
            tokio::select! {
                event = source.next_event() => source_open = self.take(Side::Source, event),
                event = sink.next_event() => sink_open = self.take(Side::Sink, event),
                () = self.told_to_stop() => {
                    source.terminate();
                    sink.terminate();
                }
                () = passed_if(patience) => break,
            }
            if let Ends { source: Some(of_source), sink: Some(of_sink) } = &self.contacts {
                source.introduce(of_sink).await;
                sink.introduce(of_source).await;
                self.contacts = Ends::default();
            }
        }
        // An end that has no contact of its peer when that one ends would wait forever.
        source.hang_up();
        sink.hang_up();
        let source = self.ending(Side::Source, source).await?;
        let sink = self.ending(Side::Sink, sink).await?;
        Ok(Ends { source, sink })
    }

    /// Handles an event; returns whether more may come. Only the sink's progress counts.
    fn take(&mut self, side: Side, event: Option<Event>) -> bool {
        match event {
            Some(Event::Progress(progress)) if side == Side::Sink => {
                self.screen.progress(self.shard, progress);
            }
            Some(Event::Finished(report)) => *self.reports.of_mut(side) = Some(*report),
            Some(Event::Contact(contact)) => *self.contacts.of_mut(side) = Some(contact),
            Some(Event::Planned(action)) if side == Side::Source => self.screen.planned(&action),
            Some(
                Event::Progress(_)
                | Event::Planned(_)
                | Event::Listening { .. }
                | Event::Waiting(_)
                | Event::Served(_),
            ) => {}
            None => return false,
        }
        true
    }

    /// Waits for a process to end: by itself for a while, then on request. A process that ignores the request is
    /// killed.
    async fn ending(&mut self, side: Side, mut syncer: Syncer) -> Result<Ending, LocalError> {
        let screen = self.screen;
        let mut report = self.reports.of_mut(side).take();
        let mut is_told = false;
        let exit = loop {
            tokio::select! {
                exit = follow(side, &mut syncer, &mut report, screen) => break Some(exit?),
                () = self.told_to_stop() => syncer.terminate(),
                () = sleep(GRACE) => {
                    if is_told {
                        break None;
                    }
                    is_told = true;
                    syncer.terminate();
                }
            }
        };
        let last_words = exit.as_ref().map(|exit| exit.tail.join("\n"));
        Ok(Ending { exit: exit.as_ref().map(Exit::code), report, last_words, ..Ending::default() })
    }
}

/// Waits until this time, or for ever without one.
async fn passed_if(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until the deadline has passed, even if it is changed meanwhile.
async fn passed(until: &mut watch::Receiver<Instant>) {
    loop {
        let at = *until.borrow_and_update();
        tokio::select! {
            () = sleep_until(at) => return,
            Ok(()) = until.changed() => {}
        }
    }
}

/// Handles the remaining events, above all the report, and returns the exit of the process. The future may be dropped
/// and called again.
async fn follow(
    side: Side,
    syncer: &mut Syncer,
    report: &mut Option<Report>,
    screen: &SharedDisplay<'_>,
) -> Result<Exit, ProcessError> {
    while let Some(event) = syncer.next_event().await {
        match event {
            Event::Finished(it) => *report = Some(*it),
            Event::Planned(action) if side == Side::Source => screen.planned(&action),
            Event::Planned(_)
            | Event::Progress(_)
            | Event::Listening { .. }
            | Event::Waiting(_)
            | Event::Contact(_)
            | Event::Served(_) => {}
        }
    }
    syncer.wait().await
}
