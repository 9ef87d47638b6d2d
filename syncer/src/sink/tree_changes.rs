//! The changes of a run that writes to a tree: transfer, apply and commit, shared with other processes if there are
//! any.

use contract::DeleteTiming;

use crate::{
    destination::{Destination, Scope, settles_doubt},
    plan::{
        compare_params::count_owners,
        planned::{Planned, PlannedDir, to_transfer},
        run_state::Run,
    },
    session_error::SessionError,
    sink::{
        await_shards::ShardRun,
        executor::Executor,
        settle_motion::{note_in_motion, settle_notes},
        source_end::SourceEnd,
        writing::{WriteTarget, Writing},
    },
    snapshot::create::WrittenFiles,
    transport::{Control, TransportError},
    wire::Forecast,
};

/// What a run says that leaves files in doubt.
const DOUBT: &str = "an earlier run was cut off, and files that this one did not compare may lack some of their content: a \
                     run of all files, without patterns or limits, compares them";

/// The approximate number of bytes that a new file takes on the disk besides its content.
const FILE_BYTES: u64 = 4096;

/// A tree that is being changed.
pub(crate) struct TreeChanges<'a> {
    destination: &'a Destination,
    run: &'a Run<'a>,
    plan: &'a Planned,
    /// Records the files that are written, if the run takes a snapshot.
    written: Option<&'a WrittenFiles>,
    /// The other processes that share the run, if there are any.
    shards: Option<ShardRun<'a>>,
    executor: Executor<'a>,
    /// Whether this process creates the directories for all processes that share the run.
    leads: bool,
    /// Whether the run leaves the root's own metadata alone.
    keeps_root: bool,
    /// The number of entries that had failed in all processes when deletes began.
    failed: u64,
}

impl<'a> TreeChanges<'a> {
    /// Begins the changes. If several processes share the run, only the first carries out the deletes that come first.
    /// `control` is the link to a source over the network.
    pub(crate) fn begin(
        destination: &'a Destination,
        run: &'a Run<'a>,
        plan: &'a Planned,
        written: Option<&'a WrittenFiles>,
        keeps_root: bool,
        control: Option<&'a Control>,
    ) -> Result<Self, SessionError> {
        let Planned { head, compared, sink, .. } = plan;
        let leads = destination.state().leads();
        if leads {
            count_owners(destination.settings(), head, sink, &run.counters);
        }
        let mut executor = Executor::new(destination, run, sink, compared);
        if keeps_root {
            executor.leave_root();
        } else if leads {
            executor.expect_root(head.root_meta, head.root_attrs.as_attrs());
        }
        if !compared.dirs.is_empty() {
            let root = compared.dirs.iter().filter(|dir| dir.path.is_root());
            destination.check_names(root.flat_map(|root| root.listing.iter().map(|entry| entry.name)))?;
        }
        let shards = ShardRun::new(destination, run, control);
        let failed = run.failures.count();
        let failed = shards.as_ref().map_or(Ok(failed), |shards| shards.assemble(&run.failures))?;
        if leads {
            destination.drop_leftovers(compared.dirs.iter().flat_map(PlannedDir::large_files));
            destination.adopt()?;
        }
        if !compared.dirs.is_empty() {
            destination.begin(&Scope::of(run.params))?;
        }
        if leads {
            note_in_motion(destination, &plan.checked)?;
        }
        executor.keep_aside(&compared.dirs)?;
        if leads && run.params.delete_timing == DeleteTiming::Before {
            executor.delete_first(&compared.dirs, failed)?;
        }
        Ok(Self { destination, run, plan, written, shards, executor, leads, keeps_root, failed: 0 })
    }

    /// Creates the directories before the other processes begin, or waits for the process that creates them.
    fn share_out(&mut self) -> Result<(), SessionError> {
        let Some(shards) = &self.shards else { return Ok(()) };
        let dirs = &self.plan.compared.dirs;
        let share = if self.leads {
            self.executor.make_dirs(dirs)?;
            shards.deal(dirs)?
        } else {
            shards.receive(dirs)?
        };
        self.executor.take_share(share);
        Ok(())
    }

    /// Transfers the content of files to the destination.
    pub(crate) fn transfer(&mut self, source: &mut impl SourceEnd) -> Result<(), SessionError> {
        self.share_out()?;
        let (destination, run, plan) = (self.destination, self.run, self.plan);
        let executor = &mut self.executor;
        let dirs = &plan.compared.dirs;
        let all = executor.mine(dirs).map(to_transfer).fold(Forecast { files: 0, bytes: 0 }, |all, one| {
            Forecast { files: all.files + one.files, bytes: all.bytes.saturating_add(one.bytes) }
        });
        run.monitor.set_totals(all.files, all.bytes);
        source.announce(all)?;
        // Each file takes at least one block.
        let written = all.bytes.saturating_add(all.files.saturating_mul(FILE_BYTES));
        let writing = Writing { store: WriteTarget::Tree(destination), run, written: self.written };
        let moved = destination.sync_during(written, run.monitor, || {
            let new = &mut || executor.unlike_any(dirs);
            let similar = source.similar(destination.root(), &plan.sink, new, run.monitor)?;
            executor.make_from(similar);
            source.transfer(writing, &mut |fetch| executor.transfer(dirs, fetch))
        });
        destination.still_held()?;
        moved
    }

    /// Applies deletes and links. If several processes share the run, the first sets the metadata of directories at the
    /// end.
    pub(crate) fn apply(&mut self) -> Result<(), SessionError> {
        let (executor, dirs, leads) = (&mut self.executor, &self.plan.compared.dirs, self.leads);
        let shards = self.shards.as_ref();
        if let Some(shards) = shards {
            shards.await_content()?;
        }
        executor.make_links(dirs)?;
        let failed = self.run.failures.count();
        self.failed = shards.map_or(Ok(failed), |shards| shards.await_links(failed))?;
        executor.put_folders(self.failed)?;
        let placed = self.run.failures.count();
        self.failed = shards.map_or(Ok(placed), |shards| shards.await_folders(placed))?;
        self.destination.end_asides();
        executor.replace_and_delete(dirs, self.failed)?;
        if let Some(shards) = shards.filter(|_| leads) {
            shards.await_others()?;
        }
        if leads {
            executor.link_to_replaced(dirs)?;
        }
        self.run.note(executor.finish()?);
        Ok(())
    }

    /// Makes the destination durable.
    pub(crate) fn commit(&mut self) -> Result<(), SessionError> {
        let (destination, Run { params, failures, monitor, .. }) = (self.destination, self.run);
        if self.leads {
            let failed = self.failed + failures.count();
            settle_notes(destination, self.plan, params, self.keeps_root, failures, failed)?;
        }
        self.run.note(destination.motion_sentence());
        // A run of one file has not checked other files that may be in doubt.
        let is_whole = self.failed + failures.count() == 0 && !self.keeps_root && settles_doubt(params);
        let scope = Scope::of(params);
        if destination.keeps_doubt(&scope) || destination.doubtful_since().is_some() && !is_whole {
            self.run.note(Some(DOUBT.into()));
        }
        let Planned { compared, sink, .. } = self.plan;
        let written = compared.mounted(sink).filter(|dir| !dir.is_idle()).map(|dir| &dir.path);
        let synced = destination.sync_mounted(written, monitor);
        let committed = synced.and_then(|()| destination.commit(is_whole.then_some(&scope), monitor));
        committed.map_err(|error| {
            if monitor.cancelled() { TransportError::Canceled.into() } else { SessionError::Commit(error) }
        })?;
        if let Some(shards) = &self.shards {
            shards.is_done()?;
            if params.verify {
                shards.await_first()?;
            }
        }
        Ok(())
    }
}
