//! Removes old versions of the destination's entries, and nothing else does: whatever replaces, deletes or rewrites an
//! entry comes through [`Retire`].

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};

/// An entry by its name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryAt<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a [u8],
}

impl<'a> EntryAt<'a> {
    pub(super) fn new(dir: BorrowedFd<'a>, name: &'a [u8]) -> Self {
        Self { dir, name }
    }

    fn rename(self, to: Self) -> Result<(), Errno> {
        rustix::fs::renameat(self.dir, self.name, to.dir, to.name)
    }

    fn rename_with(self, to: Self, flags: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.dir, self.name, to.dir, to.name, flags)
    }

    /// Removes a name that only this run uses, such as one in staging.
    pub(super) fn unlink(self) -> io::Result<()> {
        gone_is_fine(rustix::fs::unlinkat(self.dir, self.name, AtFlags::empty()))
    }
}

/// The one exit for old versions of entries.
#[derive(Debug, Default)]
pub(super) struct Retire;

impl Retire {
    /// Renames an entry that is not a folder over the one at `to`, if there is one. What is renamed `is_large` if freeing
    /// the old version may take long, which happens in the background then.
    pub(super) fn rename_over(&self, from: EntryAt<'_>, to: EntryAt<'_>, is_large: bool) -> io::Result<()> {
        let replaced = is_large.then(|| hold_to_free(to)).flatten();
        from.rename(to)?;
        if let Some(replaced) = replaced {
            let_go(replaced);
        }
        Ok(())
    }

    /// Puts the folder `from` at `to`, and removes the entry there, which is no folder. Both names are exchanged, if the
    /// file system can, so that `to` is never missing.
    pub(super) fn put_folder(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> io::Result<()> {
        match from.rename_with(to, RenameFlags::EXCHANGE) {
            Ok(()) => from.unlink().inspect_err(|_| {
                let _ = from.rename_with(to, RenameFlags::EXCHANGE);
            }),
            Err(Errno::NOENT) => Ok(from.rename_with(to, RenameFlags::NOREPLACE)?),
            Err(Errno::INVAL | Errno::NOSYS) => {
                to.unlink()?;
                Ok(from.rename(to)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Moves a folder to a name that nothing has.
    pub(super) fn move_folder(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), Errno> {
        match from.rename_with(to, RenameFlags::NOREPLACE) {
            // Not every file system has the flag, and nothing was there when the plan was made.
            Err(Errno::INVAL | Errno::NOSYS) => from.rename(to),
            result => result,
        }
    }

    /// Removes an entry that is not a folder; one that is gone already is as good.
    pub(super) fn remove_file(&self, at: EntryAt<'_>) -> io::Result<()> {
        at.unlink()
    }

    /// Removes an empty folder; one that is gone already is as good.
    pub(super) fn remove_dir(&self, at: EntryAt<'_>) -> io::Result<()> {
        gone_is_fine(rustix::fs::unlinkat(at.dir, at.name, AtFlags::REMOVEDIR))
    }
}

/// Holds an entry, so that its last name going away does not free it.
fn hold_to_free(at: EntryAt<'_>) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at.dir, at.name, flags, Mode::empty()).ok()
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

/// Drops, in the background, what may be the last that holds a file.
pub fn let_go<T: Send + 'static>(held: T) {
    // Without a thread it is dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(held));
}
