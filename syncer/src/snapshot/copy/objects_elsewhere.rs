//! Reads single directories and contents of a store elsewhere, without a copy of a snapshot.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet, VecDeque},
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
        id_of_visited,
    },
    sys::file_part::Slice,
};

/// The directories that are read at once.
const BATCH: usize = 64;

/// The directories that are held until they are asked for. A walk that leaves some out never asks for them.
const MOST_AHEAD: usize = 8 * BATCH;

/// The directories that are kept after they were asked for: paths of one folder begin alike, and equal folders are one.
const KEPT: usize = 64;

/// The longest listing of a directory that is kept, in bytes.
const KEPT_BYTES: usize = 64 << 10;

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
    /// Those that were asked for lately, the newest last.
    kept: VecDeque<(FolderId, Folder)>,
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
                // Equal ones have one id.
                let mut seen = HashSet::from([folder.id]);
                let others = siblings.dirs[at + 1..].iter();
                let others = others.filter(|dir| self.unread.contains_key(&dir.id) && seen.insert(dir.id));
                std::iter::once(folder).chain(others.take(BATCH)).copied().collect()
            }
            _ => vec![*folder],
        }
    }

    /// Returns a directory that need not be read.
    fn known(&mut self, id: FolderId) -> Option<Folder> {
        if let Some(read) = self.read.remove(&id) {
            return Some(read);
        }
        let empty = Folder::default();
        if empty.id() == id {
            return Some(empty);
        }
        self.kept.iter().find(|(kept, _)| *kept == id).map(|(_, folder)| folder.clone())
    }

    /// Notes what is in a directory that is handed out.
    fn enter(&mut self, id: FolderId, folder: &Folder) {
        if folder.listing.bytes().len() <= KEPT_BYTES && self.kept.iter().all(|(kept, _)| *kept != id) {
            self.kept.push_back((id, folder.clone()));
            let surplus = self.kept.len().saturating_sub(KEPT);
            self.kept.drain(..surplus);
        }
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
        if ahead.read.len() > MOST_AHEAD {
            ahead.read.clear();
        }
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

    /// Brings content into an empty file, with its holes.
    fn fetch(&self, to: &File, content: &ContentRef, len: u64) -> Result<(), SnapshotError> {
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
                to.write_all_at(bytes, at).map_err(not_temporary)?;
            }
            at = end;
            Ok(())
        })?;
        if at != len {
            return Err(SnapshotError::Hash(self.name_of(content)));
        }
        to.set_len(len).map_err(not_temporary)
    }
}

impl<S: HistorySource> ReadObjects for ObjectsElsewhere<S> {
    fn folder(&self, folder: &FolderRef) -> Result<Folder, SnapshotError> {
        let known = self.ahead.borrow_mut().known(folder.id);
        let read = match known {
            Some(known) => known,
            None => {
                let wanted = self.ahead.borrow_mut().wanted(folder);
                // One of the others may be damaged.
                let read = self.read(&wanted).or_else(|error| match wanted.len() {
                    2.. if error.is_of_an_object() => self.read(&wanted[..1]),
                    _ => Err(error),
                });
                read?.filter(|read| read.id() == folder.id).ok_or_else(SnapshotError::malformed)?
            }
        };
        self.ahead.borrow_mut().enter(folder.id, &read);
        Ok(read)
    }

    fn checked(
        &self,
        content: &ContentRef,
        len: u64,
        visit: &VisitData<'_>,
    ) -> Result<OpenContent, SnapshotError> {
        let file = tempfile::tempfile().map_err(not_temporary)?;
        self.fetch(&file, content, len)?;
        let id = id_of_visited(Slice::all_of(file.as_fd()), len, visit).map_err(not_temporary)?;
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

fn not_temporary(source: io::Error) -> SnapshotError {
    SnapshotError::NoTemporary { path: env::temp_dir(), source }
}
