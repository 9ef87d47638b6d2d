//! Sets the metadata of directories, once their entries do not change any more.

use contract::human::plural;

use crate::{
    attrs::AttrsBuf,
    destination::{Scope, is_too_large},
    entry::{FullMeta, Kind},
    path::RelPath,
    session_error::SessionError,
    sink::executor::{Executor, Unfinished},
    tree::seek::seek,
};

impl Executor<'_> {
    /// Sets the metadata of directories, the deepest first. Returns notes for the report.
    pub(crate) fn finish(&mut self) -> Result<Vec<String>, SessionError> {
        let mut notes = Vec::new();
        for unfinished in std::mem::take(&mut self.unfinished).into_iter().rev() {
            self.check()?;
            notes.extend(self.finish_dir(&unfinished)?);
        }
        self.run.failures.add_those_put_off();
        notes.extend(self.finish_backup());
        notes.extend(self.owner_change.note());
        notes.extend(self.report_staying());
        notes.extend(self.destination.not_kept());
        self.destination.still_held()?;
        Ok(notes)
    }

    /// Sets the metadata of one directory. Returns a note for the report.
    fn finish_dir(&mut self, unfinished: &Unfinished) -> Result<Option<String>, SessionError> {
        let Unfinished { path, inode, meta, attrs } = unfinished;
        let destination = self.destination;
        match destination.finish_dir(path, *inode, meta, attrs.as_ref().map(AttrsBuf::as_attrs)) {
            Ok(opened) => {
                // The root's own metadata may be the only change of a run.
                if path.is_root() {
                    destination.begin(&Scope::of(self.run.params))?;
                }
                let has_deleted = self.run.params.delete && !self.kept_back;
                let looked = opened.map(|dir| self.owner_change.inspect(path, &dir, has_deleted));
                if let Some(Err(error)) = looked {
                    self.run.failures.add(path, "look again into", &error);
                }
            }
            // A volume's root often belongs to another user; that is not a failure of the run.
            Err(error) if path.is_root() && !is_too_large(&error) => {
                let mend = match rustix::process::geteuid().as_raw() {
                    0 => "`lsattr -d` shows whether it is immutable or append-only".into(),
                    user => {
                        format!("give the folder to user {user}, run as root, or sync into a folder below it")
                    }
                };
                return Ok(Some(format!(
                    "the metadata of the volume's root folder could not be set: {error}; {mend}"
                )));
            }
            Err(error) => self.run.failures.add(path, "set metadata", &error),
        }
        Ok(None)
    }

    /// Returns notes about entries that were not replaced because deletes were kept back.
    fn report_staying(&self) -> impl Iterator<Item = String> + use<> {
        let folders = (self.staying > 0).then(|| {
            let staying = plural(self.staying, "folder stays", "folders stay");
            format!("{staying} that something else is to replace: deletes were kept back")
        });
        let files = (self.files_staying > 0).then(|| {
            let staying = match self.files_staying {
                1 => "1 entry stays that a folder is to replace".into(),
                more => format!("{more} entries stay that folders are to replace"),
            };
            format!("{staying}, and what was brought for it was dropped: its delete was kept back")
        });
        folders.into_iter().chain(files)
    }

    /// Restores the metadata that the scan found for folders in the backup folder. Returns a note for the report.
    fn finish_backup(&self) -> Option<String> {
        let destination = self.destination;
        let error = destination.backup()?.finish(|dir, names| self.folders_before(dir, names)).err()?;
        Some(format!("folders in the backup folder did not get their metadata: {error}"))
    }

    /// Returns the metadata that the folders with these `names`, in order, had in the directory `dir` of the
    /// destination.
    fn folders_before(&self, dir: &RelPath, names: &[&[u8]]) -> Vec<Option<FullMeta>> {
        let found = self.sink.find(dir).filter(|_| self.destination.settings().permissions);
        let listing = found.map(|id| &self.sink.dirs[id as usize].listing);
        let mut folders = listing.into_iter().flatten().filter(|entry| entry.kind == Kind::Dir).peekable();
        let before = |name: &&[u8]| {
            let folder = seek(&mut folders, name, |folder| folder.name)?;
            Some(FullMeta { meta: folder.meta, attrs: folder.attrs.into() })
        };
        names.iter().map(before).collect()
    }
}
