//! `volferry snapshot restore`.

use std::{
    io::{self, Write as _},
    path::Path,
};

use contract::{ExitCode, RunParams};

use super::{flags::RestoreFlags, open, print, say, say_json, user};
use crate::summary;
use syncer::{
    monitor::Monitor,
    path::OWN_DIR,
    report::Failures,
    root::TreeLocation,
    session::{self, Restore},
    snapshot::{
        EngineChoice, Snapshot, SnapshotError, collect::hold_for_reading, create, publish::Labels, select,
        store::Writer,
    },
};

/// The tag of the snapshots that keep the state before a restore.
const SAFETY_TAG: &str = "before-restore";

/// Restores, and sums up on standard error what was done.
pub(super) fn run(flags: &RestoreFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open(&flags.volume.dir)?;
    let snapshot = select::find(&opened.roots, &flags.id)?;
    let to = flags.to.as_ref().unwrap_or(&flags.volume.dir);
    let _reading = match flags.dry_run {
        true => None,
        false => Some(hold_for_reading(&opened.store)?),
    };
    if !flags.dry_run && !flags.no_safety && has_files(to) {
        keep_state(to, snapshot)?;
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
    let restore = Restore { store: &opened.store, snapshot, to: TreeLocation::from(to), path };
    let outcome = session::restore(&restore, &params, &monitor);
    if !flags.dry_run {
        log(to, snapshot)?;
    }
    if flags.volume.json {
        say_json(&outcome.report);
    }
    let _ = io::stderr().write_all(summary::summary(&outcome.report).as_bytes());
    Ok(outcome.exit)
}

/// Says in the audit log of the volume that was restored what was done.
fn log(to: &Path, snapshot: &Snapshot) -> Result<(), SnapshotError> {
    let destination = create::take(&TreeLocation::from(to))?;
    let writer = Writer::open(destination.state(), destination.root(), to, &Monitor::default())?;
    writer.log("restore", &user(), &[snapshot.id])
}

fn has_files(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().as_bytes() != OWN_DIR)
}

fn keep_state(to: &Path, snapshot: &Snapshot) -> Result<(), SnapshotError> {
    let labels = Labels {
        tags: [SAFETY_TAG.into()].into(),
        note: format!("the state before {} was restored", snapshot.id),
        user: user(),
        pinned: true,
        ..Labels::default()
    };
    let failures = Failures::default();
    let kept = create::create(&TreeLocation::from(to), labels, EngineChoice::Auto, &failures)?;
    print::failures(&failures);
    let text = format!("The state before is kept in snapshot {}, which is pinned\n", kept.id);
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(())
}
