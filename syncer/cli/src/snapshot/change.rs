//! `volferry snapshot tag`, `untag`, `pin`, `unpin` and `forget`, which change only the list of snapshots.

use std::time::SystemTime;

use bucket::{BucketError, change_list};
use contract::{BucketUrl, ExitCode};

use super::{
    enter,
    flags::{ForgetFlags, PinFlags, TagFlags},
    json::SnapshotJson,
    key_flags::KeyFlags,
    print, say, say_json, user,
    volume_flags::VolumeFlags,
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

/// Finds snapshots in a list.
type Choose<'f> = Box<dyn Fn(&Roots) -> Result<Vec<SnapshotId>, SnapshotError> + 'f>;

/// Changes what the list says of a snapshot.
type Edit<'f> = Box<dyn Fn(&mut Snapshot) -> Result<(), SnapshotError> + 'f>;

/// A change of the list of snapshots.
pub(super) struct ListChange<'f> {
    /// What the log of the volume calls it.
    action: &'static str,
    volume: &'f VolumeFlags,
    key: &'f KeyFlags,
    choose: Choose<'f>,
    edit: Edit<'f>,
}

impl<'f> ListChange<'f> {
    pub(super) fn tag(flags: &'f TagFlags) -> Self {
        Self::tags(flags, "tag", |snapshot, tags| {
            tags.iter().try_for_each(|tag| check_tag(tag))?;
            snapshot.tags.extend(tags.iter().cloned());
            snapshot.check_tags()
        })
    }

    pub(super) fn untag(flags: &'f TagFlags) -> Self {
        Self::tags(flags, "untag", |snapshot, tags| {
            snapshot.tags.retain(|tag| !tags.contains(tag));
            Ok(())
        })
    }

    fn tags(
        flags: &'f TagFlags,
        action: &'static str,
        edit: fn(&mut Snapshot, &[String]) -> Result<(), SnapshotError>,
    ) -> Self {
        Self {
            action,
            volume: &flags.volume,
            key: &flags.key,
            choose: Box::new(|roots| one(roots, &flags.id)),
            edit: Box::new(move |snapshot| edit(snapshot, &flags.tags)),
        }
    }

    pub(super) fn pin(flags: &'f PinFlags, pinned: bool) -> Self {
        Self {
            action: if pinned { "pin" } else { "unpin" },
            volume: &flags.of.volume,
            key: &flags.of.key,
            choose: Box::new(|roots| one(roots, &flags.of.id)),
            edit: Box::new(move |snapshot| {
                if pinned && snapshot.forgotten.is_some() {
                    return Err(SnapshotError::PinForgotten(snapshot.id));
                }
                snapshot.pinned = pinned;
                Ok(())
            }),
        }
    }

    pub(super) fn forget(flags: &'f ForgetFlags) -> Self {
        let (action, when) =
            if flags.undo { ("unforget", None) } else { ("forget", Some(time_of(SystemTime::now()))) };
        Self {
            action,
            volume: &flags.volume,
            key: &flags.key,
            choose: Box::new(|roots| flags.choose(roots)),
            edit: Box::new(move |snapshot| snapshot.forget(when)),
        }
    }

    /// Changes the list of a volume.
    pub(super) fn of_volume(&self) -> Result<ExitCode, SnapshotError> {
        let dir = &self.volume.dir;
        // A writer would make a store where there is none.
        enter(dir)?;
        let destination = lock_volume(&TreeLocation::from(&**dir))?;
        let mut writer = Writer::open(destination.state(), destination.root(), dir, &Monitor::default())?;
        let ids = (self.choose)(&writer.roots)?;
        let mut roots = writer.roots.clone();
        for id in &ids {
            roots.get_mut(*id).map_or(Ok(()), &self.edit)?;
        }
        writer.commit_by(roots, self.action, &user(), &ids)?;
        Ok(self.report(&writer.roots, &ids))
    }

    /// Changes the list of a store in object storage.
    pub(super) fn of_bucket(&self, url: &BucketUrl) -> Result<ExitCode, BucketError> {
        let (roots, ids) = change_list(&self.key.open(url)?, &self.choose, &self.edit)?;
        Ok(self.report(&roots, &ids))
    }

    fn report(&self, roots: &Roots, ids: &[SnapshotId]) -> ExitCode {
        if self.volume.json {
            let changed = ids.iter().filter_map(|id| roots.get(*id));
            say_json(&changed.map(SnapshotJson::from).collect::<Vec<_>>());
        } else {
            ids.iter().for_each(|id| say(&format!("{id}\n")));
            if self.action == "forget" {
                print::complain(
                    "hint: until the next prune, `forget --undo` brings them back by these ids\n",
                );
            }
        }
        ExitCode::Done
    }
}

impl ForgetFlags {
    /// Returns the snapshots that are to be forgotten or brought back.
    fn choose(&self, roots: &Roots) -> Result<Vec<SnapshotId>, SnapshotError> {
        let select = if self.undo { select_forgotten } else { select_snapshot };
        self.ids.iter().map(|id| Ok(select(roots, id)?.id)).collect()
    }
}

fn one(roots: &Roots, id: &str) -> Result<Vec<SnapshotId>, SnapshotError> {
    Ok(vec![select_snapshot(roots, id)?.id])
}
