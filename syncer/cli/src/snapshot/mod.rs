//! `volferry snapshot`: snapshots of a mounted volume, without a cluster.

mod archive;
mod archive_flags;
mod browse;
mod bucket_commands;
mod bucket_site;
mod change;
mod copied_json;
mod copy;
mod create;
mod damage_flags;
mod damage_json;
pub(crate) mod flags;
pub(crate) mod history_ends;
mod json;
pub(crate) mod key_flags;
mod list;
mod look;
mod look_flags;
mod look_json;
mod mount;
pub(crate) mod names;
mod print;
mod prune;
mod repair;
mod restore;
mod schema;
mod service_copy;
mod text_diff;
pub(crate) mod time;
mod verify;
mod volume_flags;
mod wait_for_volume;

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

pub(crate) use print::damage_of_list;
pub(crate) use wait_for_volume::waiting;

use contract::{ExitCode, chain, printable_json};

use self::flags::SnapshotCommand;
use crate::output;
use syncer::{
    root::{Root, TreeLocation},
    snapshot::{
        Roots, SnapshotError, Store,
        store::{ReadObjects, hold_for_reading},
    },
};

/// Carries out a command on the snapshots of a volume. If another one holds the volume, tries again as long as the
/// command waits.
pub(super) fn run(command: &SnapshotCommand) -> ExitCode {
    match waiting(command.wait_seconds(), || carry_out(command)) {
        Ok(exit) => exit,
        Err(error) => {
            report_error(&error, command.is_json());
            match error {
                error if error.needs_repair() => ExitCode::Partial,
                error if error.is_lost() => ExitCode::PeerLost,
                error if error.is_usage() => ExitCode::Usage,
                _ => ExitCode::Failed,
            }
        }
    }
}

fn carry_out(command: &SnapshotCommand) -> Result<ExitCode, SnapshotError> {
    if let Some(done) = bucket_commands::carry_out(command) {
        return bucket_site::finish(done, command.is_json());
    }
    match command {
        SnapshotCommand::Create(flags) => create::run(flags),
        SnapshotCommand::List(flags) => list::run(flags),
        SnapshotCommand::Restore(flags) => restore::run(flags),
        SnapshotCommand::Show(flags) => in_volume(&flags.volume.dir, |store| browse::show(store, flags)),
        SnapshotCommand::Ls(flags) => in_volume(&flags.volume.dir, |store| browse::ls(store, flags)),
        SnapshotCommand::Cat(flags) => in_volume(&flags.dir, |store| browse::cat(store, flags)),
        SnapshotCommand::Diff(flags) => in_volume(&flags.volume.dir, |store| browse::diff(store, flags)),
        SnapshotCommand::History(flags) => {
            in_volume(&flags.volume.dir, |store| browse::history(store, flags))
        }
        SnapshotCommand::Status(flags) => look::status(flags),
        SnapshotCommand::Find(flags) => in_volume(&flags.volume.dir, |store| look::find(store, flags)),
        SnapshotCommand::Stats(flags) => look::stats(flags),
        SnapshotCommand::Mount(flags) => mount::run(flags),
        SnapshotCommand::Tag(flags) => change::ListChange::tag(flags).of_volume(),
        SnapshotCommand::Untag(flags) => change::ListChange::untag(flags).of_volume(),
        SnapshotCommand::Pin(flags) => change::ListChange::pin(flags, true).of_volume(),
        SnapshotCommand::Unpin(flags) => change::ListChange::pin(flags, false).of_volume(),
        SnapshotCommand::Forget(flags) => change::ListChange::forget(flags).of_volume(),
        SnapshotCommand::Prune(flags) => prune::run(flags),
        SnapshotCommand::Verify(flags) => verify::run(flags),
        SnapshotCommand::Repair(flags) => repair::run(flags),
        SnapshotCommand::Copy(flags) => copy::run(flags),
        SnapshotCommand::Key(flags) => bucket_site::new_key(flags),
        SnapshotCommand::Export(flags) => in_volume(&flags.dir, |store| archive::export(store, flags)),
        SnapshotCommand::Import(flags) => archive::import(flags),
        SnapshotCommand::Log(flags) => browse::log(flags),
        SnapshotCommand::Schema => {
            say_json(&schema::schema());
            Ok(ExitCode::Done)
        }
    }
}

/// Prints an error and a hint for the next step on standard error, as a line of JSON if the command prints JSON.
fn report_error(error: &SnapshotError, json: bool) {
    report_failure(chain(error), error.hint(), json);
}

fn report_failure(message: String, hint: Option<String>, json: bool) {
    let text = if json {
        format!("{}\n", serde_json::to_string(&json::ErrorJson { error: message, hint }).unwrap_or_default())
    } else {
        let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        format!("error: {message}\n{hint}")
    };
    // If the text cannot be printed, no other place is left to report that.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints text on standard output.
fn say(text: &str) {
    output::print(text.as_bytes());
}

fn say_json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    say(&(printable_json(&text) + "\n"));
}

/// The store of a volume and its list of snapshots, opened for reading.
struct Opened {
    store: Store,
    roots: Roots,
    /// Keeps collections from removing objects.
    _reading: Option<OwnedFd>,
}

/// A store whose snapshots are looked into, wherever it is, and its list.
#[derive(Clone, Copy)]
struct Looked<'a> {
    objects: &'a dyn ReadObjects,
    roots: &'a Roots,
}

/// Looks into the snapshots of a volume.
fn in_volume(
    dir: &Path,
    look: impl FnOnce(Looked<'_>) -> Result<ExitCode, SnapshotError>,
) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(dir)?;
    look(Looked { objects: &opened.store, roots: &opened.roots })
}

/// Opens the list of a volume's snapshots.
fn open(dir: &Path) -> Result<Opened, SnapshotError> {
    let store = enter(dir)?;
    opened(store, None)
}

/// Opens a volume's snapshots to read their objects. The lock comes first: no collection removes what the list has
/// then.
fn open_for_reading(dir: &Path) -> Result<Opened, SnapshotError> {
    let store = enter(dir)?;
    let reading = hold_for_reading(&store)?;
    opened(store, Some(reading))
}

fn enter(dir: &Path) -> Result<Store, SnapshotError> {
    let root = Root::enter(&TreeLocation::from(dir))?;
    Store::open(&root, dir)?.ok_or_else(|| SnapshotError::None(dir.into()))
}

fn opened(store: Store, reading: Option<OwnedFd>) -> Result<Opened, SnapshotError> {
    let roots = store.roots()?;
    if let Some(warning) = print::damage_of_list(&store, &roots) {
        print::complain(&format!("warning: {warning}\n"));
    }
    Ok(Opened { store, roots, _reading: reading })
}

/// Returns the name of the current user for the audit log and for labels.
fn user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}
