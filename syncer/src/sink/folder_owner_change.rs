//! Checks folders that the run gave from one user to another for entries that the run neither put nor found there.
//!
//! Until the owner changes, the old owner can add and exchange entries in a folder. So it is listed again once they can
//! no longer do that.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::{AtFlags, Stat};

use contract::human::plural;

use crate::{
    destination::Destination,
    entry::{Entry, Kind},
    path::{OWN_DIR, RelPath},
    plan::{
        planned::{Compared, PlannedDir, path_in},
        run_state::Run,
    },
    sys::root::each_name,
    tree::{Tree, dir::Dir},
};

/// Lists such folders again, and counts entries that stay in them although another user owns them.
pub(crate) struct OwnerChange<'a> {
    destination: &'a Destination,
    run: &'a Run<'a>,
    sink: &'a Tree,
    compared: &'a Compared,
    planned: HashMap<&'a RelPath, &'a PlannedDir>,
    /// Entries that were added after the scan and that the run must not delete.
    stay: u64,
}

/// What the run expects of the entry of a name.
enum Known<'a> {
    /// An entry that one of these users owns.
    Of([u32; 2]),
    /// Another name of the file at this path.
    LinkTo(&'a [u8]),
    /// An entry that only the destination has, that the scan found, and that the run leaves.
    Extra,
    /// The folder with this inode number, from which the run deletes what it may.
    Emptied(u64),
}

impl<'a> Known<'a> {
    fn of(entry: &Entry<'a>) -> Self {
        match entry.kind {
            Kind::HardLink { to } => Self::LinkTo(to),
            _ => Self::Of([entry.meta.owner.uid; 2]),
        }
    }
}

const EXCHANGED: &str = "somebody put another in its place before its folder had the new owner, and could not be kept from it; run again";

const ADDED: &str =
    "somebody put it there after the scan, before its folder had the new owner; the next run deletes it";

impl<'a> OwnerChange<'a> {
    pub(crate) fn new(
        destination: &'a Destination,
        run: &'a Run<'a>,
        sink: &'a Tree,
        compared: &'a Compared,
    ) -> Self {
        Self { destination, run, sink, compared, planned: HashMap::new(), stay: 0 }
    }

    /// Lists the folder at `path` again, which is open for reading as `dir` and has its new owner. An entry that
    /// replaced one of the run's own is a failure; so is an entry added since the scan if the run deletes.
    /// `has_deleted` tells that the planned deletes were carried out, so that an entry with a deleted name was added
    /// afterwards.
    pub(crate) fn inspect(&mut self, path: &RelPath, dir: &OwnedFd, has_deleted: bool) -> io::Result<()> {
        let user = rustix::fs::fstat(dir)?.st_uid;
        if self.planned.is_empty() {
            self.planned = self.compared.dirs.iter().map(|dir| (&dir.path, dir)).collect();
        }
        let there = self.there(path);
        let leaves_out = there.is_some_and(|dir| dir.leaves_out);
        let known = self.known(path, there, has_deleted);
        each_name(dir, |entry| {
            let name = entry.to_bytes();
            if path.is_root() && name == OWN_DIR {
                return Ok(());
            }
            let stat = rustix::fs::statat(dir, entry, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_added = match known.get(name) {
                Some(known) if self.is_as_known(known, &stat) => return Ok(()),
                Some(_) => false,
                None if [user, self.destination.state().user()].contains(&stat.st_uid) => {
                    return Ok(());
                }
                None => true,
            };
            let path = path_in(path, name);
            if !is_added {
                self.run.failures.add(&path, "give to its owner", &EXCHANGED);
            } else if self.run.params.delete && !leaves_out {
                self.run.failures.add(&path, "delete", &ADDED);
            } else {
                // Such an entry may be excluded from the run, which then must not delete it.
                self.stay += 1;
            }
            Ok(())
        })
    }

    /// Returns the note for the report.
    pub(crate) fn note(&self) -> Option<String> {
        (self.stay > 0).then(|| {
            let entries = plural(self.stay, "entry stays with its owner", "entries stay with their owners");
            format!("{entries} in folders that got another owner, and came after the scan")
        })
    }

    /// Returns the folder that is now at `path`, as the scan found it.
    fn there(&self, path: &RelPath) -> Option<&'a Dir> {
        let was = self.compared.moves.get(path).map_or(path, |moved| &moved.from);
        let there = self.planned.get(path).map_or_else(|| self.sink.find(was), |dir| dir.sink);
        there.map(|id| &self.sink.dirs[id as usize])
    }

    /// Returns the entries that the run expects in the folder that is now at `path`, and that the scan found `there`.
    fn known(
        &self,
        path: &RelPath,
        there: Option<&'a Dir>,
        has_deleted: bool,
    ) -> HashMap<&'a [u8], Known<'a>> {
        let planned = self.planned.get(path).copied();
        let mut known: HashMap<_, _> = match planned {
            Some(_) => {
                there.iter().flat_map(|dir| &dir.listing).map(|entry| (entry.name, Known::Extra)).collect()
            }
            None => there
                .iter()
                .flat_map(|dir| &dir.listing)
                .map(|entry| (entry.name, Known::of(&entry)))
                .collect(),
        };
        if let Some(dir) = planned {
            if has_deleted {
                forget_deleted(dir, self.sink, &mut known);
            }
            add_planned(dir, self.sink, &mut known);
        }
        known
    }

    fn is_as_known(&self, known: &Known<'_>, stat: &Stat) -> bool {
        match known {
            Known::Extra => true,
            Known::Emptied(inode) => *inode == stat.st_ino,
            Known::Of(users) => users.contains(&stat.st_uid),
            Known::LinkTo(path) => self.inode_at(path).is_ok_and(|inode| inode == stat.st_ino),
        }
    }

    /// Returns the inode number of the entry at a path of the destination.
    fn inode_at(&self, path: &[u8]) -> io::Result<u64> {
        let path = RelPath::parse(path).map_err(io::Error::other)?;
        let (dir, name) = path.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.destination.dir(&dir)?;
        Ok(rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }
}

/// Removes the entries of a folder that the run deleted. A folder may stay because of entries that the run leaves out.
fn forget_deleted<'a>(dir: &'a PlannedDir, sink: &'a Tree, known: &mut HashMap<&'a [u8], Known<'a>>) {
    let Some(there) = dir.sink.map(|id| &sink.dirs[id as usize]) else { return };
    let folders: HashMap<_, _> = there.children().collect();
    let mut deletes = dir.plan.deletes.iter().peekable();
    for (index, entry) in (0..).zip(&there.listing) {
        if deletes.next_if(|&&at| at == index).is_none() {
            continue;
        }
        match folders.get(entry.name) {
            Some(&id) => known.insert(entry.name, Known::Emptied(sink.dirs[id as usize].inode)),
            None => known.remove(entry.name),
        };
    }
}

/// Adds the source's entries of a folder. Entries that the run left unchanged may also have the owner that the scan
/// saw.
fn add_planned<'a>(dir: &'a PlannedDir, sink: &'a Tree, known: &mut HashMap<&'a [u8], Known<'a>>) {
    let there = dir.sink.map(|id| &sink.dirs[id as usize].listing);
    let before: HashMap<&[u8], u32> =
        there.into_iter().flatten().map(|entry| (entry.name, entry.meta.owner.uid)).collect();
    let mut steps = dir.plan.steps.iter().peekable();
    for (index, entry) in (0..).zip(&dir.listing) {
        let is_made = steps.next_if(|(at, _)| *at == index).is_some();
        match (Known::of(&entry), before.get(entry.name)) {
            (made, _) if is_made => known.insert(entry.name, made),
            (Known::Of([user, _]), Some(before)) => known.insert(entry.name, Known::Of([user, *before])),
            (link, Some(_)) => known.insert(entry.name, link),
            (_, None) => None,
        };
    }
}
