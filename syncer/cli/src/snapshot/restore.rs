//! `volferry snapshot restore`.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use contract::{Compare, ExitCode, Reason, RunParams};
use parking_lot::Mutex;

use super::{flags::RestoreFlags, open_for_reading, print, say, say_json, user, wait_for_volume::while_busy};
use crate::summary;
use syncer::{
    monitor::Monitor,
    path::RelPath,
    root::TreeLocation,
    session::{self, PlanHasher, Restore},
    snapshot::{Snapshot, SnapshotError, around_runs::Before, browse::select_snapshot},
};

/// The tag of the snapshots that keep the state of a volume before a restore.
const SAFETY_TAG: &str = "before-restore";

/// Restores, and prints a summary on standard error.
pub(super) fn run(flags: &RestoreFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(&flags.volume.dir)?;
    let snapshot = select_snapshot(&opened.roots, &flags.id)?;
    let from = TreeLocation::from(&*flags.volume.dir);
    let to = flags.to.as_deref().map_or_else(|| from.clone(), TreeLocation::from);
    let in_place = session::is_same_tree(&from, &to);
    if let Some(to) = flags.to.as_deref().filter(|_| in_place) {
        let message = format!(
            "{} is the volume itself, whose restore also removes what the snapshot does not have: leave out --to for that",
            to.display()
        );
        return Err(SnapshotError::Invalid(message));
    }
    let paths = session::outermost(&flags.paths);
    let params = params(flags, &paths, snapshot, in_place)?;
    let tag = (!flags.no_safety).then(|| SAFETY_TAG.into());
    let before = Before { in_place, tag, by: user(), ..Before::nothing_of(snapshot.id) };
    let shows = flags.dry_run && !flags.volume.json;
    let plan = Arc::new(Mutex::new(PlanHasher::of(snapshot.id, in_place)));
    let shown = Arc::clone(&plan);
    let monitor = Monitor::new(|_| {}).with_planned(move |action| {
        shown.lock().add(action);
        if shows {
            say(&format!("{action}\n"));
        }
    });
    let restore =
        Restore { from, store: &opened.store, snapshot, to, paths, before, plan: flags.plan.clone() };
    let outcome = while_busy(
        flags.volume.wait_lock,
        || session::restore(&restore, &params, &monitor),
        |outcome| outcome.report.reason == Some(Reason::DestinationBusy),
    );
    if flags.volume.json {
        say_json(&outcome.report);
    }
    let _ = io::stderr().write_all(summary::summary(&outcome.report).as_bytes());
    if flags.dry_run && outcome.exit == ExitCode::Done {
        print::complain(&next_step(&plan.lock()));
    }
    Ok(outcome.exit)
}

/// Says after a dry run how just this plan is carried out, if it changes anything.
fn next_step(plan: &PlanHasher) -> String {
    if plan.has_actions() {
        let id = plan.finish();
        format!("The plan is {id}: `--plan {id}` in place of -n does just that, or nothing\n")
    } else {
        "Nothing would change, so there is no plan to carry out\n".into()
    }
}

/// Returns the parameters of the run. A restore in place deletes what the snapshot lacks, whatever the guards say: it
/// can be undone, and that is its purpose. Any other restore is as careful as a run.
fn params(
    flags: &RestoreFlags,
    paths: &[RelPath],
    snapshot: &Snapshot,
    in_place: bool,
) -> Result<RunParams, SnapshotError> {
    Ok(RunParams {
        run: format!("restore-{}", snapshot.id),
        delete: in_place || flags.delete,
        keep_going: flags.keep_going,
        force: in_place || flags.force,
        dry_run: flags.dry_run,
        trust_store: flags.trust_store,
        compare: if flags.checksum { Compare::Content } else { flags.compare },
        exclude: session::all_but(paths)?,
        ..RunParams::default()
    })
}
