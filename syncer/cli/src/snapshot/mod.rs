//! `volferry snapshot`: snapshots of a mounted volume, without a cluster.

mod browse;
mod change;
pub(crate) mod flags;
mod json;
mod print;
mod prune;
mod restore;
pub(crate) mod time;
mod verify;

use std::{
    collections::HashMap,
    io::{self, Write as _},
    path::Path,
    time::SystemTime,
};

use contract::ExitCode;
use jiff::tz::TimeZone;

use self::flags::{CreateFlags, ListFlags, SnapshotCommand};
use syncer::{
    report::Failures,
    root::{Root, TreeLocation},
    snapshot::{
        Roots, Snapshot, SnapshotError, SnapshotId, Store, create,
        labels::Labels,
        moment::time_of,
        retain::{Verdict, explain},
    },
};
use trend::human::chain;

/// Carries out a command on the snapshots of a volume.
pub(super) fn run(command: SnapshotCommand) -> ExitCode {
    let done = match command {
        SnapshotCommand::Create(flags) => create_one(flags),
        SnapshotCommand::List(flags) => list(&flags),
        SnapshotCommand::Restore(flags) => restore::run(&flags),
        SnapshotCommand::Show(flags) => browse::show(&flags),
        SnapshotCommand::Ls(flags) => browse::ls(&flags),
        SnapshotCommand::Cat(flags) => browse::cat(&flags),
        SnapshotCommand::Diff(flags) => browse::diff(&flags),
        SnapshotCommand::History(flags) => browse::history(&flags),
        SnapshotCommand::Tag(flags) => change::tag(&flags),
        SnapshotCommand::Untag(flags) => change::untag(&flags),
        SnapshotCommand::Pin(flags) => change::pin(&flags, true),
        SnapshotCommand::Unpin(flags) => change::pin(&flags, false),
        SnapshotCommand::Forget(flags) => change::forget(&flags),
        SnapshotCommand::Prune(flags) => prune::run(&flags),
        SnapshotCommand::Verify(flags) => verify::run(&flags),
        SnapshotCommand::Log(flags) => browse::log(&flags),
        SnapshotCommand::Schema => {
            say_json(&json::schema());
            Ok(ExitCode::Done)
        }
    };
    done.unwrap_or_else(|error| {
        tell(&error);
        ExitCode::Failed
    })
}

/// Prints an error and a hint for the next step on standard error.
fn tell(error: &SnapshotError) {
    let mut text = format!("error: {}\n", chain(error));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("hint: {hint}\n"));
    }
    // If the text cannot be printed, no other place is left to report that.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints text on standard output. Ignores a reader that has closed it.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn say_json(value: &impl serde::Serialize) {
    say(&format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()));
}

/// The store of a volume and its list of snapshots, opened for reading.
struct Opened {
    store: Store,
    roots: Roots,
}

fn open(dir: &Path) -> Result<Opened, SnapshotError> {
    let root = Root::enter(&TreeLocation::from(dir))?;
    let store = Store::open(&root, dir)?.ok_or_else(|| SnapshotError::None(dir.into()))?;
    let roots = store.roots()?;
    warn_of_damage(&store, &roots);
    Ok(Opened { store, roots })
}

fn warn_of_damage(store: &Store, roots: &Roots) {
    if roots.damages() > 0 {
        let path = store.path().join("roots");
        let text = format!("warning: {} is damaged, and some snapshots may not be listed\n", path.display());
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Returns the name of the current user for the audit log and for labels.
fn user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

fn create_one(flags: CreateFlags) -> Result<ExitCode, SnapshotError> {
    let CreateFlags { volume, tags, note, pin, engine } = flags;
    let labels =
        Labels { tags: tags.into_iter().collect(), note, user: user(), pinned: pin, ..Labels::default() };
    labels.check()?;
    let failures = Failures::default();
    let snapshot = create::create(&TreeLocation::from(&volume.dir), labels, engine, &failures)?;
    match volume.json {
        true => say_json(&json::SnapshotJson::from(&snapshot)),
        false => say(&format!("{}\n", snapshot.id)),
    }
    print::failures(&failures);
    Ok(if snapshot.is_whole() { ExitCode::Done } else { ExitCode::Partial })
}

fn list(flags: &ListFlags) -> Result<ExitCode, SnapshotError> {
    let opened = match open(&flags.volume.dir) {
        Err(SnapshotError::None(_)) => None,
        result => Some(result?),
    };
    let verdicts = opened
        .iter()
        .flat_map(|opened| explain(&opened.roots, time_of(SystemTime::now()), &TimeZone::system()));
    let verdicts: HashMap<SnapshotId, Verdict> = verdicts.map(|verdict| (verdict.id, verdict)).collect();
    let snapshots = opened.iter().flat_map(|opened| &opened.roots.snapshots);
    let listed: Vec<(&Snapshot, Option<&Verdict>)> = snapshots
        .filter(|snapshot| flags.all || snapshot.forgotten.is_none())
        .filter(|snapshot| flags.tag.as_ref().is_none_or(|tag| snapshot.tags.contains(tag)))
        .filter(|snapshot| flags.job.as_ref().is_none_or(|job| snapshot.job == *job))
        .map(|snapshot| (snapshot, verdicts.get(&snapshot.id)))
        .collect();
    match flags.volume.json {
        true => {
            let listed =
                listed.into_iter().map(|(snapshot, verdict)| json::ListedJson::new(snapshot, verdict));
            say_json(&listed.collect::<Vec<_>>());
        }
        false => say(&print::list(&listed)),
    }
    Ok(ExitCode::Done)
}
