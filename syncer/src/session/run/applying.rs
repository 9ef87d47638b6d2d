//! A plan, carried out.

use contract::{DeleteTiming, Phase, RunParams};

use crate::{
    report::Stopwatch,
    session::{
        plan::{
            guard,
            planned::{Planned, PlannedDir, to_transfer},
            policy::count_owners,
            room::Room,
        },
        session_error::SessionError,
        sink::{context::Context, executor::Executor, shards::ShardRun},
    },
    transport::TransportError,
    wire::TreeHead,
};

/// A plan, and what it takes to carry it out.
pub(crate) struct Applying<'a> {
    pub context: Context<'a>,
    pub params: &'a RunParams,
    pub head: &'a TreeHead,
    pub plan: &'a Planned,
    /// Where several processes share the run.
    pub shards: Option<&'a ShardRun<'a>>,
    /// What is known of the destination's file system.
    pub room: Option<&'a Room>,
    /// The root's own metadata is none of the run's business.
    pub keeps_root: bool,
}

/// What moves the content.
type Transfer<'a> = dyn FnMut(&mut Executor<'_>) -> Result<(), SessionError> + 'a;

impl Applying<'_> {
    /// Carries the plan out, through to a durable destination. A run that fails makes durable what it did.
    pub(crate) fn apply(
        &self,
        watch: &mut Stopwatch<'_>,
        transfer: &mut Transfer<'_>,
    ) -> Result<Vec<String>, SessionError> {
        self.carry_out(watch, transfer).inspect_err(|_| {
            if let Err(error) = self.context.destination.commit_unfinished(self.context.monitor) {
                tracing::debug!(%error, "what was done may not be on the disk; the next run looks at it again");
            }
        })
    }

    /// Of several processes, the first makes the directories before the others begin, and sets their metadata when the others are done.
    fn carry_out(
        &self,
        watch: &mut Stopwatch<'_>,
        transfer: &mut Transfer<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let Self { context, params, head, plan, shards, room, keeps_root } = *self;
        let Planned { compared, sink } = plan;
        let failed = context.failures.count();
        let mut notes = guard::check(params, head, sink, compared, room, failed, context.monitor)?;
        let leads = context.destination.own().leads();
        if leads {
            count_owners(context.destination.settings(), head, sink, context.counters);
        }
        let mut executor = Executor::new(context, sink, compared, params);
        if keeps_root {
            executor.leave_root();
        } else if leads {
            executor.expect_root(head.root_meta, head.root_attrs.as_attrs());
        }
        for root in compared.dirs.iter().filter(|dir| dir.path.is_root()) {
            context.destination.check_names(root.listing.iter().map(|entry| entry.name))?;
        }
        let failed = shards.map_or(Ok(failed), |shards| shards.assemble(context.failures))?;
        if leads {
            context.destination.drop_leftovers(compared.dirs.iter().flat_map(PlannedDir::large_files));
        }
        if !compared.dirs.is_empty() {
            context.destination.begin()?;
        }
        executor.keep_aside(&compared.dirs)?;
        if leads && params.delete_timing == DeleteTiming::Before {
            executor.delete_first(&compared.dirs, failed)?;
        }
        if let Some(shards) = shards {
            watch.enter(Phase::Transfer);
            let (share, note) = match leads {
                true => {
                    executor.make_dirs(&compared.dirs)?;
                    (shards.deal(&compared.dirs)?, None)
                }
                false => shards.receive(&compared.dirs)?,
            };
            notes.extend(note);
            executor.take_share(share);
        }
        watch.enter(Phase::Transfer);
        let (files, bytes) =
            executor.mine(&compared.dirs).map(to_transfer).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        context.monitor.set_totals(files, bytes);
        let moved = context.destination.sync_during(context.monitor, || transfer(&mut executor));
        context.destination.still_held()?;
        moved?;
        watch.enter(Phase::Apply);
        if let Some(shards) = shards {
            shards.await_content()?;
        }
        executor.make_links(&compared.dirs)?;
        let failed = context.failures.count();
        let failed = shards.map_or(Ok(failed), |shards| shards.await_links(failed))?;
        executor.put_folders(failed)?;
        if let Some(shards) = shards {
            shards.await_folders()?;
        }
        context.destination.end_asides();
        executor.replace_and_delete(&compared.dirs, failed)?;
        if let Some(shards) = shards.filter(|_| leads) {
            shards.await_others()?;
        }
        if leads {
            executor.link_to_replaced(&compared.dirs)?;
        }
        notes.extend(executor.finish()?);
        watch.enter(Phase::Commit);
        // A run of one file has not looked at the others that may be in doubt.
        let is_whole = failed + context.failures.count() == 0 && !keeps_root;
        context.destination.commit(is_whole, context.monitor).map_err(|error| {
            match context.monitor.cancelled() {
                true => TransportError::Canceled.into(),
                false => SessionError::Commit(error),
            }
        })?;
        if let Some(shards) = shards {
            shards.is_done()?;
            if params.verify {
                shards.await_first()?;
            }
        }
        Ok(notes)
    }
}
