//! Reads single directories and contents of a store elsewhere, without a copy of a snapshot.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    env,
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    rc::Rc,
    sync::Arc,
};

use super::copy_source::{ContentPiece, HistorySource, RequestedContent};
use crate::{
    snapshot::store::{
        ContentRef, Folder, FolderId, FolderRef, OpenContent, ReadObjects, SnapshotError, VisitData,
        id_of_visited, io_error,
    },
    sys::file_part::Slice,
};

/// The directories that are read at once.
const BATCH: usize = 256;

/// A store elsewhere. Each request takes a while, so that a walk asks for many directories at once.
#[derive(Debug)]
pub struct ObjectsElsewhere<S> {
    source: RefCell<S>,
    ahead: RefCell<FoldersAhead>,
}

/// Directories that a walk comes to.
#[derive(Debug, Default)]
struct FoldersAhead {
    /// Those that were read, until they are asked for.
    read: HashMap<FolderId, Folder>,
    /// The place of each among the directories of its parent.
    unread: HashMap<FolderId, (Rc<Siblings>, usize)>,
}

/// The directories in a directory.
#[derive(Debug)]
struct Siblings {
    dirs: Vec<FolderRef>,
    /// Whether one was asked for. Who asks for a second one walks through all of them.
    is_asked: Cell<bool>,
}

impl FoldersAhead {
    /// Returns what is to be read where `folder` is asked for, beginning with it.
    fn wanted(&mut self, folder: &FolderRef) -> Vec<FolderRef> {
        match self.unread.remove(&folder.id) {
            Some((siblings, at)) if siblings.is_asked.replace(true) => {
                let others = siblings.dirs[at + 1..].iter().filter(|dir| self.unread.contains_key(&dir.id));
                std::iter::once(folder).chain(others.take(BATCH)).copied().collect()
            }
            _ => vec![*folder],
        }
    }

    /// Notes what is in a directory that is handed out.
    fn enter(&mut self, folder: &Folder) {
        let siblings = Rc::new(Siblings { dirs: folder.children.clone(), is_asked: Cell::default() });
        for (at, dir) in siblings.dirs.iter().enumerate() {
            self.unread.insert(dir.id, (Rc::clone(&siblings), at));
        }
    }
}

impl<S: HistorySource> ObjectsElsewhere<S> {
    /// Reads objects of the store that `source` copies from.
    pub fn of(source: S) -> Self {
        Self { source: RefCell::new(source), ahead: RefCell::default() }
    }

    /// Returns the source.
    pub fn into_source(self) -> S {
        self.source.into_inner()
    }

    /// Reads directories, and keeps all but the first.
    fn read(&self, wanted: &[FolderRef]) -> Result<Option<Folder>, SnapshotError> {
        let (mut first, mut ahead) = (None, self.ahead.borrow_mut());
        self.source.borrow_mut().folders(wanted, &mut |nth, folder| {
            if nth == 0 {
                first = Some(folder);
            } else {
                ahead.unread.remove(&wanted[nth].id);
                ahead.read.insert(wanted[nth].id, folder);
            }
            Ok(())
        })?;
        Ok(first)
    }
}

impl<S: HistorySource> ReadObjects for ObjectsElsewhere<S> {
    fn folder(&self, folder: &FolderRef) -> Result<Folder, SnapshotError> {
        let known = self.ahead.borrow_mut().read.remove(&folder.id);
        let read = match known {
            Some(known) => known,
            None => {
                let wanted = self.ahead.borrow_mut().wanted(folder);
                // One of the others may be damaged.
                let read = self.read(&wanted).or_else(|error| match wanted.len() {
                    1 => Err(error),
                    _ => self.read(&wanted[..1]),
                });
                read?.filter(|read| read.id() == folder.id).ok_or_else(SnapshotError::malformed)?
            }
        };
        self.ahead.borrow_mut().enter(&read);
        Ok(read)
    }

    fn checked(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<OpenContent, SnapshotError> {
        let failed = |operation: &'static str| io_error(operation, env::temp_dir());
        let file = tempfile::tempfile().map_err(failed("make a file in"))?;
        self.fetch(&file, content, len)?;
        let id = id_of_visited(Slice::all_of(file.as_fd()), len, visit).map_err(failed("read a file of"))?;
        if id != content.id {
            return Err(SnapshotError::Hash(self.name_of(content)));
        }
        Ok(OpenContent { file: Arc::new(file.into()), start: 0, is_alone: true })
    }

    fn name_of(&self, content: &ContentRef) -> String {
        let hash: String = content.id.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("content {hash}")
    }
}

impl<S: HistorySource> ObjectsElsewhere<S> {
    /// Brings content into an empty file, with its holes.
    fn fetch(&self, to: &File, content: &ContentRef, len: u64) -> Result<(), SnapshotError> {
        let no_room = |error: io::Error| io_error("keep a file in", env::temp_dir())(error);
        let asked = [RequestedContent { content: *content, len, granules: Vec::new() }];
        let mut at: u64 = 0;
        self.source.borrow_mut().contents(&asked, &mut |_, piece| {
            let more = match piece {
                ContentPiece::Data(bytes) => bytes.len() as u64,
                ContentPiece::Hole(zeros) => zeros,
                ContentPiece::End => 0,
                ContentPiece::Same(_) => return Err(SnapshotError::malformed()),
            };
            let end = at.checked_add(more).filter(|end| *end <= len).ok_or_else(SnapshotError::malformed)?;
            if let ContentPiece::Data(bytes) = piece {
                to.write_all_at(bytes, at).map_err(no_room)?;
            }
            at = end;
            Ok(())
        })?;
        if at != len {
            return Err(SnapshotError::Hash(self.name_of(content)));
        }
        to.set_len(len).map_err(no_room)
    }
}
