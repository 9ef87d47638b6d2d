//! `volferry snapshot tag`, `untag`, `pin`, `unpin` and `forget`, which change only the list of snapshots.

use std::{path::Path, time::SystemTime};

use contract::ExitCode;

use super::{
    enter,
    flags::{ForgetFlags, OneFlags, TagFlags},
    json::SnapshotJson,
    print, say, say_json, user,
};
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        Roots, Snapshot, SnapshotError, SnapshotId,
        browse::{select_forgotten, select_snapshot},
        create::lock_volume,
        store::{Writer, check_tag},
        typed_time::time_of,
    },
};

/// Changes the snapshots that `choose` finds, and publishes the list.
fn change(
    dir: &Path,
    action: &str,
    json: bool,
    choose: impl FnOnce(&Roots) -> Result<Vec<SnapshotId>, SnapshotError>,
    edit: impl Fn(&mut Snapshot) -> Result<(), SnapshotError>,
) -> Result<ExitCode, SnapshotError> {
    // A writer would make a store where there is none.
    enter(dir)?;
    let destination = lock_volume(&TreeLocation::from(dir))?;
    let mut writer = Writer::open(destination.state(), destination.root(), dir, &Monitor::default())?;
    let ids = choose(&writer.roots)?;
    let mut roots = writer.roots.clone();
    for id in &ids {
        roots.get_mut(*id).map_or(Ok(()), &edit)?;
    }
    writer.commit_by(roots, action, &user(), &ids)?;
    let changed: Vec<&Snapshot> = ids.iter().filter_map(|id| writer.roots.get(*id)).collect();
    if json {
        say_json(&changed.into_iter().map(SnapshotJson::from).collect::<Vec<_>>());
    } else {
        ids.iter().for_each(|id| say(&format!("{id}\n")));
    }
    Ok(ExitCode::Done)
}

pub(super) fn tag(flags: &TagFlags) -> Result<ExitCode, SnapshotError> {
    flags.tags.iter().try_for_each(|tag| check_tag(tag))?;
    change(
        &flags.volume.dir,
        "tag",
        flags.volume.json,
        |roots| one(roots, &flags.id),
        |snapshot| {
            snapshot.tags.extend(flags.tags.iter().cloned());
            snapshot.check_tags()
        },
    )
}

pub(super) fn untag(flags: &TagFlags) -> Result<ExitCode, SnapshotError> {
    change(
        &flags.volume.dir,
        "untag",
        flags.volume.json,
        |roots| one(roots, &flags.id),
        |snapshot| {
            snapshot.tags.retain(|tag| !flags.tags.contains(tag));
            Ok(())
        },
    )
}

pub(super) fn pin(flags: &OneFlags, pinned: bool) -> Result<ExitCode, SnapshotError> {
    let action = if pinned { "pin" } else { "unpin" };
    let choose = |roots: &Roots| one(roots, &flags.id);
    change(&flags.volume.dir, action, flags.volume.json, choose, |snapshot| {
        snapshot.pinned = pinned;
        Ok(())
    })
}

pub(super) fn forget(flags: &ForgetFlags) -> Result<ExitCode, SnapshotError> {
    let (action, when) =
        if flags.undo { ("unforget", None) } else { ("forget", Some(time_of(SystemTime::now()))) };
    let choose = |roots: &Roots| flags.choose(roots);
    let done = change(&flags.volume.dir, action, flags.volume.json, choose, |it| it.forget(when))?;
    flags.hint();
    Ok(done)
}

impl ForgetFlags {
    /// Returns the snapshots that are to be forgotten or brought back.
    pub(super) fn choose<C: FromIterator<SnapshotId>>(&self, roots: &Roots) -> Result<C, SnapshotError> {
        let select = if self.undo { select_forgotten } else { select_snapshot };
        self.ids.iter().map(|id| Ok(select(roots, id)?.id)).collect()
    }

    /// Says after a change how it can be undone.
    pub(super) fn hint(&self) {
        if !self.undo && !self.volume.json {
            print::complain("hint: until the next prune, `forget --undo` brings them back by these ids\n");
        }
    }
}

fn one(roots: &Roots, id: &str) -> Result<Vec<SnapshotId>, SnapshotError> {
    Ok(vec![select_snapshot(roots, id)?.id])
}
