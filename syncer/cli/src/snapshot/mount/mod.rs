//! `volferry snapshot mount`: all snapshots of a volume as a file system, read-only.

mod mode_under_acl;
mod mounted_files;
mod mounted_tree;
mod read_ahead;

use std::{
    fs, io,
    path::Path,
    process,
    sync::{Arc, OnceLock},
    thread,
};

use contract::{ExitCode, human::counted};
use fuser::{MountOption, Session};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use self::{mounted_files::MountedFiles, mounted_tree::MountedTree};
use super::{look_flags::MountFlags, open_for_reading, say};
use syncer::snapshot::SnapshotError;

/// Mounts the snapshots, and serves them until a signal, or somebody else, unmounts them.
pub(super) fn run(flags: &MountFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(&flags.dir)?;
    check_place(&flags.dir, &flags.mountpoint)?;
    let count = opened.roots.kept().count() as u64;
    let at = &flags.mountpoint;
    let failed = |operation: &'static str| {
        move |source: io::Error| SnapshotError::Io { operation, path: at.clone(), source }
    };
    let notifier = Arc::new(OnceLock::new());
    let tree = MountedTree::new(opened.store, opened.roots.kept());
    let files = MountedFiles::new(tree, Arc::clone(&notifier));
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed("wait for signals at"))?;
    let mut session = Session::new(files, at, &options(flags)).map_err(failed("mount at"))?;
    let _ = notifier.set(session.notifier());
    let mut helper = session.unmount_callable();
    let place = at.clone();
    thread::spawn(move || {
        let mut received = signals.forever();
        if received.next().is_some() && unmount(&place, UnmountFlags::DETACH).is_err() {
            // Users other than root have the helper of FUSE do it.
            let _ = helper.unmount();
        }
        if received.next().is_some() {
            process::exit(ExitCode::Failed as i32);
        }
    });
    say(&format!("Mounted {} at {}\n", counted(count, "snapshot"), at.display()));
    session.run().map_err(failed("serve"))?;
    Ok(ExitCode::Done)
}

/// Refuses a place in the volume itself: a run would copy what is mounted there.
fn check_place(dir: &Path, mountpoint: &Path) -> Result<(), SnapshotError> {
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SnapshotError::Invalid(format!(
                "{} is not there: make that folder first, and the snapshots are mounted at it",
                path.display()
            )),
            _ => SnapshotError::Io { operation: "look at", path: path.into(), source },
        })
    };
    if real(mountpoint)?.starts_with(real(dir)?) {
        Err(SnapshotError::Invalid(format!(
            "{} is in the volume: snapshots are mounted outside of it",
            mountpoint.display()
        )))
    } else {
        Ok(())
    }
}

/// Neither set-id bits nor devices count there. The kernel checks modes, and nobody else enters unless that is asked
/// for.
fn options(flags: &MountFlags) -> Vec<MountOption> {
    let name = MountOption::FSName(flags.dir.display().to_string());
    let mut options = vec![
        name,
        MountOption::Subtype("volferry".into()),
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    options.extend(flags.allow_other.then_some(MountOption::AllowOther));
    options
}
