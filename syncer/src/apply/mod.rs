//! Makes every change of a destination: staging, metadata, links, deletes, durability. No other module changes one.
//!
//! Everything is done by descriptors beneath the [`Root`]; what a peer names is one entry of one directory. A file's
//! content becomes visible in one link or rename, after it was checked.

mod apply_error;
mod arrived;
mod attr_writer;
mod backup_dir;
mod capability;
mod clone;
mod device_writer;
mod dirty_mark;
mod durable;
mod epoch;
mod file_io;
mod first_error;
mod in_place;
mod journal;
mod meta;
mod node;
mod overlay;
mod part_writer;
mod private;
mod ranges;
mod retire;
mod settings;
mod shard_board;
mod staged;
mod staged_dir;
mod staging_names;
mod state_dir;
mod state_files;
mod volume;

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use contract::{Shard, VolumeId, plural};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    attrs::{Attrs, Classes},
    delta::checked::FileVersion,
    entry::{Entry, Meta, Owner, Time},
    monitor::Monitor,
    path::{OWN_DIR, RelPath, display},
    root::{Root, RootError, TreeLocation, open_child},
};

pub(crate) use apply_error::ApplyError;
pub(crate) use arrived::{ArrivalLog, ArrivedBlocks};
pub(crate) use attr_writer::visible_attrs;
pub(crate) use backup_dir::{BackupDir, FolderMeta};
pub use clone::ClonedAt;
pub(crate) use device_writer::Device;
pub(crate) use file_io::{read_exact_at, write_all};
pub use journal::JournalEntry;
pub use retire::EntryAt;
pub(crate) use retire::let_go;
pub use settings::Settings;
pub(crate) use shard_board::{OtherShards, ShardBoard, ShardState, Stage};
pub(crate) use staged::Staged;
pub(crate) use staged_dir::StagedDir;
pub(crate) use state_dir::StateDir;
pub use state_dir::VolumeLock;

use first_error::FirstError;
use meta::Since;
use overlay::Overlay;
use retire::Retire;
use staged_dir::StagedDirCount;
use staging_names::{beside, part_key};

/// The mode of new directories where permissions are not kept, less what the process's umask takes away.
const DEFAULT_DIR_MODE: Mode =
    Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// A directory that may become the destination of a run. Nothing in it is changed yet.
#[derive(Debug)]
pub struct Candidate {
    path: PathBuf,
    root: Root,
}

impl Candidate {
    /// Opens the directory at `place`, which is made if it is not there.
    pub fn open(place: &TreeLocation) -> Result<Self, ApplyError> {
        Ok(Self { root: Root::prepare(place)?, path: place.path() })
    }

    /// Opens the directory at `place`, if it is there.
    pub fn look(place: &TreeLocation) -> Result<Option<Self>, ApplyError> {
        match Root::enter(place) {
            Err(RootError::Missing(_)) => Ok(None),
            result => Ok(Some(Self { root: result?, path: place.path() })),
        }
    }

    /// The root, for scanning.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Tries whether this process may write where a run writes first, without writing.
    ///
    /// # Errors
    /// [`ApplyError::Own`], as a run would end.
    pub fn check_writable(&self) -> Result<(), ApplyError> {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let may = |path: &str| rustix::fs::accessat(&self.root, path, access, AtFlags::EACCESS);
        let state = [".volferry", ".volferry/staging"].into_iter().try_for_each(may);
        let tried = match state {
            Err(Errno::NOENT) => may("."),
            result => result,
        };
        tried.map_err(|errno| ApplyError::Own { path: self.path.clone(), source: errno.into() })
    }

    /// What it is known by, if it was a destination before.
    pub fn volume(&self) -> Result<Option<VolumeId>, ApplyError> {
        volume::of(&self.root).map_err(|error| {
            let source = private::explain(self.root.as_fd(), &self.path, error);
            ApplyError::Own { path: self.path.clone(), source }
        })
    }

    /// Takes its lock, for a run that writes to it. What an earlier run left in staging is removed, and what it left in
    /// the journal is finished. Which attributes are set in the end also depends on what the file system takes.
    /// Processes that each have a `shard` of the run of this name take it together. A lock that a session has `held`
    /// since its last run is used again.
    pub fn take(
        self,
        mut settings: Settings,
        shard: Option<(&str, Shard)>,
        held: Option<VolumeLock>,
    ) -> Result<Destination, ApplyError> {
        let Self { path, root } = self;
        let mut state = StateDir::open(&root, &path, shard, held)?;
        if state.is_first() {
            in_place::replay(&root, &state)?.into_iter().for_each(|note| state.note(note));
        }
        let settable = attr_writer::probe(state.staging(), &state.fresh_name(), settings.attrs);
        settings.count_attrs = settings.attrs.without(settable);
        settings.attrs = settable;
        Ok(Destination {
            opened: state.opened(),
            path,
            root,
            state,
            settings,
            retire: Retire::default(),
            backup: None,
            owners_not_kept: AtomicU64::new(0),
            attrs_not_kept: Default::default(),
            has_attrs: AtomicBool::new(false),
            hidden: StagedDirCount::default(),
            not_durable: FirstError::default(),
        })
    }
}

/// A destination that is open for one run.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    root: Root,
    state: StateDir,
    settings: Settings,
    /// Removes old versions of entries.
    retire: Retire,
    /// The folder that they go to.
    backup: Option<Arc<BackupDir>>,
    /// The volume's time when it was opened, before it was scanned.
    opened: Time,
    owners_not_kept: AtomicU64,
    attrs_not_kept: [AtomicU64; Classes::EACH.len()],
    /// Whether an entry of the destination may have extended attributes that it shall not have.
    has_attrs: AtomicBool,
    /// The directories that are out of sight.
    hidden: StagedDirCount,
    not_durable: FirstError,
}

impl Destination {
    /// Has old versions of entries kept in the `backup` folder.
    pub fn keep_old(&mut self, backup: BackupDir) {
        let backup = Arc::new(backup);
        self.retire.kept_by = Some(Arc::clone(&backup) as _);
        self.backup = Some(backup);
    }

    /// The folder that old versions go to.
    pub fn backup(&self) -> Option<&BackupDir> {
        self.backup.as_deref()
    }

    /// The time when it was opened, by its file system's clock, before it was scanned.
    pub fn opened(&self) -> Time {
        self.opened
    }

    /// What Volferry keeps on the volume.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// What the report says of how the destination was found.
    pub fn notes(&self) -> &[String] {
        self.state.notes()
    }

    /// Checks that none of the `names` that the root of the tree is to have is that of Volferry's own folder.
    ///
    /// # Errors
    /// [`ApplyError::OwnName`] where the file system folds case and takes one for it.
    pub fn check_names<'n>(&self, mut names: impl Iterator<Item = &'n [u8]>) -> Result<(), ApplyError> {
        // Asked once, so that each name of a large root need not be.
        let folds_case = self.state.is_named(&OWN_DIR.to_ascii_uppercase());
        match names.find(|name| folds_case && self.state.is_named(name)) {
            Some(name) => Err(ApplyError::OwnName { path: self.path.clone(), name: display(name) }),
            None => Ok(()),
        }
    }

    /// Whether the destination is still this run's, as far as was seen. Every method that changes something looks for
    /// itself; this is to stop a run that has no more to do there.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Own`] when it cannot be told.
    pub fn still_held(&self) -> Result<(), ApplyError> {
        self.state.check().map_err(|source| match self.state.is_lost() {
            true => ApplyError::TakenOver { path: self.path.clone() },
            false => ApplyError::Own { path: self.path.clone(), source },
        })
    }

    /// The root, for scanning.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Which attributes are set.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Takes note that the scan has found extended attributes. As long as none are known, none are looked for where
    /// none are wanted.
    pub fn found_attrs(&self) {
        self.has_attrs.store(true, Relaxed);
    }

    /// Opens a directory to work in.
    pub fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.root.dir(path)
    }

    /// Opens a directory to work in, which has to be the one of this `inode` number; without one it has to be this
    /// process's user's, as one that was just made is. Whoever can write to the directory above it could have put
    /// another in its place.
    pub fn known_dir(&self, path: &RelPath, inode: Option<u64>) -> io::Result<OwnedFd> {
        let dir = self.root.dir(path)?;
        self.check_known(dir.as_fd(), inode).map(|_| dir)
    }

    /// Checks an open directory as [`Self::known_dir`] does. Returns its inode number.
    pub fn check_known(&self, dir: BorrowedFd<'_>, inode: Option<u64>) -> io::Result<u64> {
        let stat = rustix::fs::fstat(dir)?;
        match inode.map_or(stat.st_uid == self.state.user(), |inode| stat.st_ino == inode) {
            true => Ok(stat.st_ino),
            false => Err(io::Error::other("somebody put another folder in its place while the run went on")),
        }
    }

    /// Makes a directory that only this process may use; its own metadata is set when all that is in it is there. Where
    /// permissions are not kept, it has at once the mode that new directories get. Returns its inode number.
    pub fn make_dir(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<u64> {
        self.state.check()?;
        let mode = if self.settings.permissions { Mode::RWXU } else { DEFAULT_DIR_MODE };
        rustix::fs::mkdirat(dir, name, mode)?;
        self.check_known(meta::hold(dir, name)?.as_fd(), None)
    }

    /// Has the folder at `path` made and filled in staging as long as something else is in its place; beside its place
    /// where that is on another file system.
    ///
    /// # Errors
    /// [`ApplyError::Own`] when staging cannot be held open.
    pub fn keep_aside(&self, path: &RelPath) -> Result<(), ApplyError> {
        let parent = path.split_last().and_then(|(parent, _)| self.root.dir(&parent).ok());
        if parent.is_some_and(|parent| self.state.is_beyond(parent.as_fd())) {
            self.root.keep_beside(path, beside(&self.state.folder_name(path)));
            return Ok(());
        }
        let kept = self.root.keep_elsewhere(path, self.state.staging(), self.state.folder_name(path));
        kept.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Makes a folder for which [`Self::keep_aside`] was called. It is to replace something in `dir`. Returns its inode
    /// number.
    pub fn make_dir_aside(&self, dir: BorrowedFd<'_>, path: &RelPath) -> io::Result<u64> {
        self.state.check()?;
        let mode = if self.settings.permissions { Mode::RWXU } else { DEFAULT_DIR_MODE };
        if let Some(name) = self.root.kept_beside(path) {
            rustix::fs::mkdirat(dir, &name, mode)?;
            return self.check_known(meta::hold(dir, name.as_bytes())?.as_fd(), None);
        }
        staged_dir::make_aside(&self.state, dir, &self.state.folder_name(path), mode)
    }

    /// Puts the folder at `path`, which has this `inode` number, to its place, and removes what it replaces.
    pub fn publish_dir(&self, path: &RelPath, inode: u64, to: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        let (place, name) = match self.root.kept_beside(path) {
            Some(name) => (to.dir, name),
            None => (self.state.staging(), self.state.folder_name(path)),
        };
        self.check_known(meta::hold(place, name.as_bytes())?.as_fd(), Some(inode))?;
        self.retire.put_folder(EntryAt::staged(place, name.as_bytes()), to)
    }

    /// Removes the folder at `path`, which does not come to its place, with all that is in it.
    pub fn drop_aside(&self, path: &RelPath) -> io::Result<()> {
        self.state.check()?;
        if let Some((parent, name)) =
            path.split_last().map(|(parent, _)| parent).zip(self.root.kept_beside(path))
        {
            return state_files::remove_beside(self.root.dir(&parent)?.as_fd(), name.as_bytes());
        }
        self.state.remove_folder(&self.state.folder_name(path))
    }

    /// Takes note that all folders are at their places, or gone.
    pub fn end_asides(&self) {
        self.root.keep_at_places();
    }

    /// Moves the directory at `from`, as it is, to `to`, where nothing is. Returns its inode number.
    pub fn move_dir(&self, from: &RelPath, to: &RelPath) -> io::Result<u64> {
        let (Some((parent, old)), Some((dir, name))) = (from.split_last(), to.split_last()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.state.check()?;
        // A directory that changes its parent is written to, as both parents are.
        let (out_of, into, moved) = (self.root.dir(&parent)?, self.root.dir(&dir)?, self.root.dir(from)?);
        let parent_mode = meta::unlock_dir(out_of.as_fd())?;
        let mode = meta::unlock_dir(moved.as_fd())?;
        let renamed = self
            .retire
            .move_folder(EntryAt::staged(out_of.as_fd(), old), EntryAt::staged(into.as_fd(), name));
        meta::lock_dir(out_of.as_fd(), parent_mode)?;
        meta::lock_dir(moved.as_fd(), mode)?;
        renamed?;
        Ok(rustix::fs::fstat(&moved)?.st_ino)
    }

    /// Takes the new directory at `path` out of sight, to be filled.
    pub fn hide_dir(&self, path: &RelPath) -> io::Result<StagedDir> {
        self.state.check()?;
        StagedDir::take(&self.state, &self.root, path, &self.hidden)
    }

    /// Puts a directory that was taken out of sight at its place again.
    pub fn show_dir(&self, hidden: &StagedDir) -> io::Result<()> {
        self.state.check()?;
        hidden.show(&self.state, &self.hidden)
    }

    /// Gives an existing directory the bits that its owner needs to work in it, and returns the mode that it had.
    /// Whoever calls this sets the directory's metadata at the end of the run, or gives the mode back.
    pub fn unlock_dir(&self, dir: BorrowedFd<'_>) -> io::Result<u16> {
        self.state.check()?;
        meta::unlock_dir(dir)
    }

    /// Gives a directory back the mode that it had before [`Destination::unlock_dir`].
    pub fn lock_dir(&self, dir: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
        self.state.check()?;
        meta::lock_dir(dir, mode)
    }

    /// Makes a symbolic link, a pipe or a device, in place of what is there.
    pub fn make_node(&self, at: EntryAt<'_>, entry: &Entry<'_>) -> io::Result<()> {
        self.state.check()?;
        node::make(&self.state, &self.retire, at, entry, |at, staged| self.set_meta(at, staged, None))
    }

    /// Makes the entry a hard link to `target` in `target_dir`, in place of what is there. A symbolic link is not
    /// followed. The target has to have this `owner` where owners are kept: another user who can write to its directory
    /// could have put a file of theirs in its place.
    pub fn link(
        &self,
        target_dir: BorrowedFd<'_>,
        target: &[u8],
        owner: Option<Owner>,
        at: EntryAt<'_>,
    ) -> io::Result<()> {
        self.state.check()?;
        let owner = owner.filter(|_| self.settings.owners);
        node::link(&self.state, &self.retire, target_dir, target, owner, at)
    }

    /// Whether the metadata of a file can only be set with new content: it would get another owner, set-id bits or
    /// capabilities, and has changed, or come to its name, since this run opened the destination. A file with several
    /// names keeps its content; setting its metadata then fails.
    pub fn needs_content(&self, dir: BorrowedFd<'_>, entry: &Entry<'_>) -> bool {
        let held = meta::hold(dir, entry.name).and_then(|held| Ok(rustix::fs::fstat(held)?));
        held.is_ok_and(|now| now.st_nlink == 1 && meta::is_unseen(self.settings, entry, &now, self.opened))
    }

    /// Sets the metadata of an entry that is there. A file has to have the time that was `seen`.
    pub fn set_meta(&self, dir: BorrowedFd<'_>, entry: &Entry<'_>, seen: Option<Time>) -> io::Result<()> {
        self.state.check()?;
        self.count_not_kept(entry.meta.owner, entry.attrs);
        let since = Since { user: self.state.user(), seen, opened: self.opened };
        meta::set_entry(self.settings, since, dir, entry, self.sets_attrs(entry.attrs))
    }

    /// Sets the metadata of a directory after its content is complete; `inode` as for [`Self::known_dir`]. Without
    /// `attrs` it keeps the extended attributes that it has. Returns the directory, open for reading, if another user
    /// than this process's had it and has it no more.
    pub fn finish_dir(
        &self,
        path: &RelPath,
        inode: Option<u64>,
        wanted: &Meta,
        attrs: Option<Attrs<'_>>,
    ) -> io::Result<Option<OwnedFd>> {
        self.state.check()?;
        if !path.is_root() {
            self.count_not_kept(wanted.owner, attrs.unwrap_or_default());
        }
        let attrs = attrs.filter(|attrs| self.sets_attrs(*attrs));
        let dir = match path.is_root() {
            true => self.root.dir(path)?,
            false => self.known_dir(path, inode)?,
        };
        let had = rustix::fs::fstat(&dir)?.st_uid;
        let is_lost = self.settings.owners && ![self.state.user(), wanted.owner.uid].contains(&had);
        let lost = is_lost.then(|| open_child(&dir, b".", OFlags::RDONLY)).transpose()?;
        meta::set_dir(self.settings, dir.as_fd(), wanted, attrs)?;
        Ok(lost)
    }

    fn sets_attrs(&self, wanted: Attrs<'_>) -> bool {
        !self.settings.attrs.is_empty() && (!wanted.is_empty() || self.has_attrs.load(Relaxed))
    }

    /// Begins a file whose content is written as a whole, for a place in `dir`. `replaces` is whether something is
    /// there, `mode` what the file shall have in the end.
    pub fn create_file(&self, dir: BorrowedFd<'_>, replaces: bool, mode: u16) -> io::Result<Staged> {
        Staged::create(&self.state, dir, replaces, mode)
    }

    /// Begins the new file `name` in a directory that is out of sight, whose content is written as a whole.
    pub fn create_inside(&self, dir: &Arc<StagedDir>, name: &[u8], mode: u16) -> io::Result<Staged> {
        Staged::inside(dir, name, mode)
    }

    /// Begins an update of the file at `path` that is written in place. `None` where the run does not do that, or the
    /// file cannot be written so; [`Self::stage_file`] always can.
    pub fn stage_over(&self, path: &RelPath) -> Option<Staged> {
        if !self.settings.in_place {
            return None;
        }
        let staged = Staged::overlay(&self.state, &self.root, path);
        staged.inspect_err(|error| tracing::debug!(%path, %error, "not written in place")).ok().flatten()
    }

    /// Begins a file whose content arrives in pieces, for this path.
    pub fn stage_file(&self, path: &RelPath) -> io::Result<Staged> {
        Staged::part(&self.state, path)
    }

    /// Whether a run that was cut off left something of the file for this path.
    pub fn has_leftover(&self, path: &RelPath) -> bool {
        self.state.has_leftover(&part_key(path))
    }

    /// Takes what a run that was cut off left of the file for this path: a basis like any other, of which nothing is
    /// believed. Also returns whether another run has gone on from it already and not got beyond it.
    pub fn leftover(&self, path: &RelPath, monitor: &Monitor) -> Option<(Staged, bool)> {
        Staged::leftover(&self.state, path, monitor)
    }

    /// Returns what was noted of a leftover: blocks that were checked when they arrived.
    pub(crate) fn arrived(&self, leftover: &Staged) -> Option<(ArrivedBlocks, ArrivalLog)> {
        ArrivalLog::read(&self.state, leftover)
    }

    /// Begins to note which blocks of a staged file have arrived, so that the next run need not read them again.
    pub(crate) fn note_arrivals(
        &self,
        staged: &Staged,
        version: FileVersion,
        file_len: u64,
    ) -> io::Result<ArrivalLog> {
        self.state.check()?;
        ArrivalLog::begin(&self.state, staged, version, file_len)
    }

    /// Removes what is noted of a staged file that is complete.
    pub(crate) fn end_arrivals(&self, staged: &Staged) {
        let _ = staged.part_name().map(|name| self.state.drop_blocks(name));
    }

    /// Removes what earlier runs left of large files, but for `needed` ones, so that nobody pays for parts that are of
    /// no use any more.
    pub fn drop_leftovers(&self, needed: impl Iterator<Item = RelPath>) {
        if self.state.has_leftovers() {
            let keys: HashSet<String> = needed.map(|path| part_key(&path)).collect();
            self.state.drop_leftovers(|key| keys.contains(key));
        }
    }

    /// Opens a file to read from.
    pub fn open_file(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.root.file(path)
    }

    /// A clone of an open file that stays as it is, whoever writes to that. `None` where the file system does not
    /// clone.
    pub fn private_clone(&self, from: BorrowedFd<'_>) -> Option<OwnedFd> {
        clone::private_clone(&self.state, from)
    }

    /// Gives a staged file its metadata and makes it visible at its place, instead of what is there.
    pub fn publish(
        &self,
        staged: &Staged,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        self.state.check()?;
        self.count_not_kept(wanted.owner, attrs);
        let mode = self.mode_of(staged, at, wanted)?;
        if let Some(overlay) = staged.below() {
            return self.rewrite(staged, overlay, at, &Meta { mode, ..*wanted }, attrs);
        }
        self.set_staged(staged, &Meta { mode, ..*wanted }, attrs)
            .inspect_err(|_| staged.unlink(&self.state))?;
        staged.publish(&self.state, &self.retire, at)
    }

    /// Makes a staged file visible in a directory of a file system that is mounted inside the destination, to which
    /// nothing can be renamed from staging: copies it there, and gives the copy its name when it is complete. For files
    /// of which [`Self::publish`] failed with `EXDEV`. Returns the copy's inode number.
    pub fn publish_copy(
        &self,
        staged: &Staged,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
        monitor: &Monitor,
    ) -> io::Result<u64> {
        let wanted = Meta { mode: self.mode_of(staged, at, wanted)?, ..*wanted };
        let copy = Staged::create(&self.state, at.dir, false, wanted.mode)?;
        let copied = copy
            .copy_from(staged.fd(), staged.basis_len()?, true, monitor)
            .and_then(|()| self.set_staged(&copy, &wanted, attrs));
        copied.inspect_err(|_| copy.unlink(&self.state))?;
        copy.publish_beside(&self.state, &self.retire, at)?;
        copy.inode()
    }

    /// The mode that a staged file gets.
    fn mode_of(&self, staged: &Staged, at: EntryAt<'_>, wanted: &Meta) -> io::Result<u16> {
        match staged.is_inside() {
            true => Ok(meta::new_file_mode(self.settings, wanted)),
            false => meta::file_mode(self.settings, at.dir, at.name, wanted),
        }
    }

    fn set_staged(&self, staged: &Staged, wanted: &Meta, attrs: Attrs<'_>) -> io::Result<()> {
        let inherits = self.has_attrs.load(Relaxed);
        meta::set_open_file(self.settings, staged.fd(), wanted, attrs, inherits)
    }

    /// Writes a file in place.
    fn rewrite(
        &self,
        staged: &Staged,
        overlay: &Overlay,
        at: EntryAt<'_>,
        wanted: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<()> {
        let redo =
            in_place::redo(overlay, staged, at.dir, at.name).inspect_err(|_| staged.unlink(&self.state))?;
        let redo = JournalEntry {
            mode: wanted.mode,
            owner: self.settings.owners.then_some(wanted.owner),
            mtime: self.settings.times.then_some(wanted.mtime),
            attrs: self.sets_attrs(attrs).then(|| (self.settings.attrs, attrs.into())),
            ..redo
        };
        let write = || in_place::publish(overlay, &self.state, staged, &redo);
        self.retire.rewrite(at, write).inspect_err(|_| staged.unlink(&self.state))
    }

    /// The number of an entry that waits aside.
    pub fn inode_of_aside(&self, aside: EntryAt<'_>) -> io::Result<u64> {
        Ok(rustix::fs::statat(aside.dir, aside.name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino)
    }

    /// Makes visible, at its place, what waits `aside`. It has to be the entry of this inode number.
    pub fn publish_aside(&self, aside: EntryAt<'_>, inode: u64, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        if self.inode_of_aside(aside)? != inode {
            return Err(io::Error::other("somebody put another entry in its place before it was published"));
        }
        self.retire.rename_over(aside, at, false)?;
        match rustix::fs::statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino == inode {
            true => Ok(()),
            false => Err(io::Error::other("somebody put another entry in its place")),
        }
    }

    /// Removes an entry that waits aside and does not come to its place.
    pub fn drop_entry_aside(&self, aside: EntryAt<'_>) {
        let _ = aside.unlink();
    }

    /// Gives up a staged file.
    pub fn unstage(&self, staged: &Staged) {
        staged.unlink(&self.state);
    }

    /// What the entries that were made or changed did not keep because this process may not set it, a sentence for each
    /// kind.
    pub fn not_kept(&self) -> Vec<String> {
        let owners = (self.owners_not_kept.load(Relaxed), "owners: only root may give files away");
        let attrs = self.attrs_not_kept.iter().zip(Classes::EACH);
        let kinds = [owners]
            .into_iter()
            .chain(attrs.map(|(n, class)| (n.load(Relaxed), attr_writer::not_kept(class))));
        kinds
            .filter(|(n, _)| *n > 0)
            .map(|(n, kind)| {
                let entries = plural(n, "entry did not keep its", "entries did not keep their");
                format!("{entries} {kind}")
            })
            .collect()
    }

    fn count_not_kept(&self, owner: Owner, attrs: Attrs<'_>) {
        if self.settings.count_owners && owner != self.settings.user {
            self.owners_not_kept.fetch_add(1, Relaxed);
        }
        if self.settings.count_attrs.is_empty() || attrs.is_empty() {
            return;
        }
        let lost = attrs.classes().and(self.settings.count_attrs);
        for (count, class) in self.attrs_not_kept.iter().zip(Classes::EACH) {
            count.fetch_add(u64::from(lost.contains(class)), Relaxed);
        }
    }

    /// Removes one entry that is not a directory.
    pub fn remove_file(&self, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        self.retire.remove_file(at)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, at: EntryAt<'_>) -> io::Result<()> {
        self.state.check()?;
        self.retire.remove_dir(at)
    }

    /// Ends a run that got to its end: empties staging and gives the lock back. Without this call, the parts of large
    /// files are kept.
    pub fn close(self) {
        self.state.end();
    }
}

/// Opens a directory to work in.
pub(crate) fn open_dir_in(at: EntryAt<'_>) -> io::Result<OwnedFd> {
    open_child(at.dir, at.name, OFlags::PATH)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, FileTimes},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        path::Path,
        time::UNIX_EPOCH,
    };

    use contract::Preserve;

    use super::*;
    use crate::entry::Kind;

    fn open(dir: &Path) -> Destination {
        let settings = Settings::resolve(&Preserve::default()).unwrap();
        Candidate::open(&TreeLocation::from(dir)).unwrap().take(settings, None, None).unwrap()
    }

    /// Makes a file of this process's user that only its inode and its change time tell from others.
    fn put(path: &Path) {
        fs::write(path, "content").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    }

    /// Waits until what is changed at a folder has another change time than the file.
    fn await_tick(dir: &Path, file: &Path) {
        let changed = |path: &Path| fs::metadata(path).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
        while changed(dir) <= changed(file) {
            std::thread::yield_now();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn a_file_that_came_after_the_volume_was_opened_gets_no_set_id_bits_without_content() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        ["file", "other", "linked"].into_iter().for_each(|name| put(&dir.path().join(name)));
        await_tick(dir.path(), &dir.path().join("linked"));
        let destination = open(dir.path());
        let root = destination.root().as_fd();
        let meta = Meta { mode: 0o4755, mtime: Time::default(), owner: destination.settings().user };
        let entry = Entry {
            name: b"file",
            kind: Kind::File { size: 7 },
            meta,
            attrs: crate::attrs::Attrs::default(),
        };
        let set = || destination.set_meta(root, &entry, Some(Time::default()));
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;

        assert!(!destination.needs_content(root, &entry));
        set().unwrap();
        assert_eq!(mode(), 0o4755);
        fs::rename(dir.path().join("other"), &file).unwrap();
        assert!(destination.needs_content(root, &entry));
        set().unwrap_err();
        assert_eq!(mode(), 0o755, "it was moved to its name");
        fs::remove_file(&file).unwrap();
        fs::hard_link(dir.path().join("linked"), &file).unwrap();
        assert!(!destination.needs_content(root, &entry), "new content would part it from its other name");
        set().unwrap_err();
        assert_eq!(mode(), 0o755, "it was linked to its name");
    }

    #[test]
    fn what_was_exchanged_in_staging_is_not_published() {
        let dir = tempfile::tempdir().unwrap();
        let destination = open(dir.path());
        let root = destination.root().as_fd();
        let staging = dir.path().join(".volferry/staging");
        put(&staging.join("aside"));
        let aside = destination.state().staging();
        let aside = EntryAt::staged(aside, b"aside");
        let inode = destination.inode_of_aside(aside).unwrap();
        put(&staging.join("theirs"));
        fs::rename(staging.join("theirs"), staging.join("aside")).unwrap();
        destination.publish_aside(aside, inode, EntryAt::staged(root, b"name")).unwrap_err();
        assert!(!dir.path().join("name").exists());
        let inode = destination.inode_of_aside(aside).unwrap();
        destination.publish_aside(aside, inode, EntryAt::staged(root, b"name")).unwrap();
        assert!(dir.path().join("name").exists());
    }
}
