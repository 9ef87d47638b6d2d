//! `volferry snapshot restore`.

use std::io::{self, Write as _};

use contract::{ExitCode, RunParams};

use super::{flags::RestoreFlags, open, print, say, say_json, user};
use crate::summary;
use syncer::{
    monitor::Monitor,
    report::Failures,
    root::TreeLocation,
    session::{self, Restore},
    snapshot::{SnapshotError, before::Before, collect::hold_for_reading, select},
};

/// The tag of the snapshots that keep the state of a volume before a restore.
const SAFETY_TAG: &str = "before-restore";

/// Restores, and prints a summary on standard error.
pub(super) fn run(flags: &RestoreFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open(&flags.volume.dir)?;
    let snapshot = select::find(&opened.roots, &flags.id)?;
    let to = flags.to.as_ref().unwrap_or(&flags.volume.dir);
    let _reading = match flags.dry_run {
        true => None,
        false => Some(hold_for_reading(&opened.store)?),
    };
    let to = &TreeLocation::from(to);
    let by = user();
    let before = Before { place: to, restored: snapshot.id, tag: SAFETY_TAG, once: false, run: "", by: &by };
    if !flags.dry_run && !flags.no_safety {
        keep_state(&before)?;
    }
    let path = flags.path.clone().unwrap_or_default();
    let params = RunParams {
        run: format!("restore-{}", snapshot.id),
        delete: true,
        force: true,
        dry_run: flags.dry_run,
        compare: flags.compare,
        exclude: session::all_but(&path)?,
        ..RunParams::default()
    };
    let shows = flags.dry_run && !flags.volume.json;
    let monitor = Monitor::new(|_| {}).with_planned(move |action| {
        if shows {
            say(&format!("{action}\n"));
        }
    });
    let restore = Restore { store: &opened.store, snapshot, to: to.clone(), path };
    let outcome = session::restore(&restore, &params, &monitor);
    if !flags.dry_run {
        before.log()?;
    }
    if flags.volume.json {
        say_json(&outcome.report);
    }
    let _ = io::stderr().write_all(summary::summary(&outcome.report).as_bytes());
    Ok(outcome.exit)
}

fn keep_state(before: &Before<'_>) -> Result<(), SnapshotError> {
    let failures = Failures::default();
    let Some(kept) = before.keep(&failures, &Monitor::default())? else { return Ok(()) };
    print::failures(&failures);
    let text = format!("The state before is kept in snapshot {}, which is pinned\n", kept.id);
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(())
}
