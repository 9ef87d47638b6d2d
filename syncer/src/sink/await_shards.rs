//! What the processes that share a run, each of which handles a shard of the tree, wait for, and for how long.
//!
//! Every sink compares the whole trees before any of them changes anything, so all come to the same plan and the same
//! verdict of the guards. Then the first shard creates and moves the directories, and assigns the planned ones by the
//! cost of their changes. Each shard handles the files, links and deletes of its directories. Deletes wait until all
//! content has arrived, since it may come from a deleted file, and do not happen if any shard had failures. When all
//! are done, the first shard sets the metadata of the directories, whose times do not change any more. To verify, each
//! shard reads back its own part of the tree, when the first is done as well.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{
    destination::{Destination, OtherShards, ShardBoard, ShardState, Stage},
    measure::failures::Failures,
    plan::{planned::PlannedDir, run_state::Run},
    session_error::SessionError,
    sink::deal_to_shards::{deal_by_cost, name_of},
    transport::{Control, TransportError},
};

/// The time that the other shards may take to join.
const ABSENCE_PATIENCE: Duration = Duration::from_secs(600);

/// How long others are awaited before the log says so.
const SILENT_PATIENCE: Duration = Duration::from_secs(60);

/// The shortest and the longest interval between two polls of the board, which may be on a network file system without
/// change notifications.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// A directory that the first shard did not see is assigned to no shard, and one assigned to a shard that did not see
/// it is not handled. A single process does not see later changes either, but it sees the whole tree at about one time.
const SOURCE_CHANGED: &str =
    "the source changed while its shards looked at it: the next run brings what one of them did not see";

/// The processes that share a run, as seen by one of them.
pub(crate) struct ShardRun<'a> {
    destination: &'a Destination,
    team: &'a ShardBoard,
    run: &'a Run<'a>,
    /// The link to the source, which may be lost while waiting for the other shards.
    control: Option<&'a Control>,
}

impl<'a> ShardRun<'a> {
    /// Joins the shards of a run; returns `None` if one process handles the whole tree.
    pub(crate) fn new(
        destination: &'a Destination,
        run: &'a Run<'a>,
        control: Option<&'a Control>,
    ) -> Option<Self> {
        destination.state().shard_board().map(|team| Self { destination, team, run, control })
    }

    /// Waits until all shards have compared the trees, so that they may be changed from now on. Leaves failures that
    /// the first shard has as well to its report. Returns the largest number of failures of any shard.
    pub(crate) fn assemble(&self, failures: &Failures) -> Result<u64, SessionError> {
        self.destination.still_held()?;
        self.team.has_planned(failures.paths(), failures.count()).map_err(SessionError::ShardBoard)?;
        let seats = self.wait(Stage::Planned, true)?;
        let is_leader = self.destination.state().leads();
        if !is_leader && seats.first().map(|seat| seat.failures) == Some(failures.paths()) {
            failures.forget();
        }
        Ok(seats.iter().map(|seat| seat.failed).max().unwrap_or(0))
    }

    /// Assigns the directories, which all exist by now, to the shards. Returns which of them are this shard's own.
    pub(crate) fn deal(&self, planned: &[PlannedDir]) -> Result<Vec<bool>, SessionError> {
        let shard = self.team.shard();
        let owners = deal_by_cost(planned, shard.count);
        let dealt = planned.iter().zip(&owners).map(|(dir, owner)| (name_of(dir), *owner));
        self.team.deal(dealt).map_err(SessionError::ShardBoard)?;
        self.reach(Stage::Dealt)?;
        Ok(owners.iter().map(|owner| *owner == shard.index).collect())
    }

    /// Waits for the first shard's assignment. Returns which of the directories are this shard's own. May add a
    /// note to the report.
    pub(crate) fn receive(&self, planned: &[PlannedDir]) -> Result<Vec<bool>, SessionError> {
        self.wait(Stage::Dealt, false)?;
        let mut owners: HashMap<u64, Option<u32>> = planned.iter().map(|dir| (name_of(dir), None)).collect();
        let mut has_unseen = false;
        let dealt = self.team.dealt(|dir, owner| match owners.get_mut(&dir) {
            Some(known) => *known = Some(owner),
            None => has_unseen |= owner == self.team.shard().index,
        });
        dealt.map_err(SessionError::ShardBoard)?;
        let owner = |dir| owners.get(&name_of(dir)).copied().flatten();
        let mine = planned.iter().map(|dir| owner(dir) == Some(self.team.shard().index)).collect();
        let is_left = has_unseen || owners.values().any(Option::is_none);
        self.run.note(is_left.then(|| SOURCE_CHANGED.to_owned()));
        Ok(mine)
    }

    /// Waits until all shards have all content.
    pub(crate) fn await_content(&self) -> Result<(), SessionError> {
        self.reach(Stage::Moved)?;
        self.wait(Stage::Moved, true).map(drop)
    }

    /// Waits until all links are made. `failed` is the number of all failures of this shard; returns the sum over all
    /// shards.
    pub(crate) fn await_links(&self, failed: u64) -> Result<u64, SessionError> {
        self.destination.still_held()?;
        self.team.counts(Stage::Linked, failed).map_err(SessionError::ShardBoard)?;
        Ok(sum_of_failed(&self.wait(Stage::Linked, true)?))
    }

    /// Waits until the first shard has moved the folders that replace other entries into place. Nothing is deleted
    /// before. `failed` is the number of all failures of this shard; returns the sum over all shards.
    pub(crate) fn await_folders(&self, failed: u64) -> Result<u64, SessionError> {
        self.destination.still_held()?;
        if self.destination.state().leads() {
            self.team.counts(Stage::Placed, failed).map_err(SessionError::ShardBoard)?;
        }
        Ok(sum_of_failed(&self.wait(Stage::Placed, false)?))
    }

    /// Waits until all other shards are done.
    pub(crate) fn await_others(&self) -> Result<(), SessionError> {
        self.reach(Stage::Applied)?;
        self.wait(Stage::Applied, true).map(drop)
    }

    /// Tells the other shards that this one is done.
    pub(crate) fn is_done(&self) -> Result<(), SessionError> {
        self.reach(if self.destination.state().leads() { Stage::Committed } else { Stage::Applied })
    }

    /// Waits until the first shard is done, and with it the run.
    pub(crate) fn await_first(&self) -> Result<(), SessionError> {
        self.wait(Stage::Committed, false).map(drop)
    }

    fn reach(&self, stage: Stage) -> Result<(), SessionError> {
        self.destination.still_held()?;
        self.team.reach(stage).map_err(SessionError::ShardBoard)
    }

    fn wait(&self, stage: Stage, all: bool) -> Result<Vec<ShardState>, SessionError> {
        let start = Instant::now();
        let ([mut pause, longest], mut long_wait) = (LOOK_EVERY, LongWait::default());
        let count = self.team.shard().count;
        loop {
            if self.run.monitor.cancelled() {
                return Err(TransportError::Canceled.into());
            }
            self.destination.still_held()?;
            self.control.map_or(Ok(()), Control::check_quiet)?;
            match self.team.inspect(stage, all).map_err(SessionError::ShardBoard)? {
                OtherShards::All(seats) => return Ok(seats),
                OtherShards::Gone(index) => {
                    return Err(SessionError::Shard(format!(
                        "shard {index}/{count} ended before the run did, so this one stopped as well: see its report, and run all of \
                         them again"
                    )));
                }
                OtherShards::Waiting { absent: Some(index), .. } if start.elapsed() > ABSENCE_PATIENCE => {
                    return Err(SessionError::Shard(format!(
                        "shard {index}/{count} did not come within {} minutes: start all shards of a run at about the same time, \
                         with the same --run",
                        ABSENCE_PATIENCE.as_secs() / 60
                    )));
                }
                OtherShards::Waiting { behind, .. } => {
                    if let Some(warning) = long_wait.warning(behind, count, start.elapsed()) {
                        tracing::warn!("{warning}");
                    }
                    self.run.monitor.pause(pause).map_err(|_| TransportError::Canceled)?;
                }
            }
            pause = (pause * 2).min(longest);
        }
    }
}

fn sum_of_failed(seats: &[ShardState]) -> u64 {
    seats.iter().fold(0, |sum, seat| sum.saturating_add(seat.failed))
}

/// The wait for a shard that is behind, which is told once.
#[derive(Debug, Default)]
struct LongWait {
    is_told: bool,
}

impl LongWait {
    /// Returns what to say of the shard that is `behind`, if it has been `awaited` for so long for the first time.
    fn warning(&mut self, behind: Option<u32>, count: u32, awaited: Duration) -> Option<String> {
        let index = behind.filter(|_| !self.is_told && awaited > SILENT_PATIENCE)?;
        self.is_told = true;
        Some(format!(
            "shard {index}/{count} has been awaited for {} s: see whether it is slow or was stopped",
            awaited.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_is_awaited_for_long_is_named_once_with_what_to_look_at() {
        let mut wait = LongWait::default();
        let after = |seconds| SILENT_PATIENCE + Duration::from_secs(seconds);
        assert_eq!(wait.warning(Some(1), 3, after(0)), None, "not yet");
        assert_eq!(wait.warning(None, 3, after(1)), None, "nobody is behind");
        assert_eq!(
            wait.warning(Some(2), 3, after(1)).as_deref(),
            Some("shard 2/3 has been awaited for 61 s: see whether it is slow or was stopped")
        );
        assert_eq!(wait.warning(Some(2), 3, after(60)), None, "it was told");
    }
}
