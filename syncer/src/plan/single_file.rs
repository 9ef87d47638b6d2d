//! A run over one file. It is a run over the file's folder in which only this entry takes part, so the file gets
//! everything that a file of a tree gets. The folder itself stays as it is.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use contract::RunParams;

use crate::{
    entry::{Entry, Kind},
    listing::ListingBuilder,
    path::{OWN_DIR, RelPath},
    plan::source_tree::SourceTree,
    session_error::SessionError,
    sys::{
        block_device::PathKind,
        root::{Root, RootError, TreeLocation},
    },
    transport::TransportError,
    tree::{Tree, dir::DirId},
    wire::Listed,
};

/// The subject of one end of a run: a folder, or one entry of it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The folder.
    pub place: TreeLocation,
    /// The name of the only entry that takes part.
    pub only: Option<Box<[u8]>>,
    /// Whether a file gets another name than at the source, which the user chose.
    pub renames: bool,
}

impl Subject {
    /// Returns the source at `place`. If it is a file, the symbolic links in the user's own path are resolved first:
    /// their target is copied.
    ///
    /// # Errors
    /// When a parameter is only for folders, or the file cannot be found.
    pub(crate) fn of_source(
        place: &TreeLocation,
        found: PathKind,
        params: &RunParams,
    ) -> Result<Self, SessionError> {
        if found != PathKind::File {
            return Ok(Self::of_tree(place));
        }
        // Patterns of the owner alone do not concern a file: a service has matched them with its path.
        let of_owner = params.exclude.len() == params.demands.exclude.len();
        if let Some(flag) = params.flags_of_folders().find(|flag| flag.name != "--exclude" || !of_owner) {
            return Err(SessionError::NotForFiles { flag: flag.name });
        }
        if !place.below.is_root() {
            return Ok(Self::of_file(place));
        }
        let real = place.trusted.canonicalize().map_err(|source| {
            SessionError::Source(RootError::System { operation: "find", path: place.path(), source })
        })?;
        Ok(Self::of_file(&TreeLocation::from(&real)))
    }

    /// Returns the destination of a source that is a folder, or the file of this `name`. A file goes into a folder that
    /// is at `place` or is spelled with a slash at its end, else onto the file at `place`, which need not exist.
    ///
    /// # Errors
    /// When a file cannot be written there.
    pub(crate) fn of_destination(place: &TreeLocation, name: Option<&[u8]>) -> Result<Self, SessionError> {
        let Some(name) = name else { return Ok(Self::of_tree(place)) };
        let found = PathKind::at(place, false);
        let is_spelled_as_folder =
            place.below.is_root() && place.trusted.as_os_str().as_bytes().ends_with(b"/");
        let subject = match found {
            PathKind::Device | PathKind::Image => {
                return Err(SessionError::Kinds(format!(
                    "the source is a file, and the destination {} is a block device: add --image at the source if the file is the image of \
                     a disk, or name a folder or a file",
                    place.path().display()
                )));
            }
            PathKind::Other => Self { only: Some(name.into()), ..Self::of_tree(place) },
            PathKind::Nothing if is_spelled_as_folder => {
                Self { only: Some(name.into()), ..Self::of_tree(place) }
            }
            PathKind::Nothing | PathKind::File => {
                Self { renames: last_name(place) != name, ..Self::of_file(place) }
            }
        };
        subject.checked()
    }

    /// Returns the whole tree at `place`.
    pub(crate) fn of_tree(place: &TreeLocation) -> Self {
        Self { place: place.clone(), only: None, renames: false }
    }

    fn of_file(place: &TreeLocation) -> Self {
        Self { place: place.folder(), only: Some(last_name(place).into()), renames: false }
    }

    /// Refuses names that no file of a tree can have.
    fn checked(self) -> Result<Self, SessionError> {
        let name = self.only.as_deref().unwrap_or_default();
        if name == OWN_DIR || RelPath::root().join(name).is_err() {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(SessionError::Kinds(format!(
                "{name:?} cannot be the name of a file of a destination"
            )));
        }
        Ok(self)
    }

    /// Checks that the folder of a single file exists, because no folder of a path that may be mistyped is made.
    pub(crate) fn find_folder(&self, place: &TreeLocation) -> Result<(), SessionError> {
        if self.only.is_some() && place.below.is_root() && self.place != *place {
            Root::enter(&self.place).map(drop).map_err(SessionError::Folder)
        } else {
            Ok(())
        }
    }

    /// Returns whether the sink's root keeps its own metadata, because only some of its entries take part.
    pub(crate) fn keeps_root(&self, params: &RunParams) -> bool {
        self.is_file() || params.files_from.is_some()
    }

    /// Returns whether the subject is a single file.
    pub(crate) fn is_file(&self) -> bool {
        self.only.is_some()
    }
}

/// Returns the last name of a place, as the user wrote it.
pub(crate) fn last_name(place: &TreeLocation) -> &[u8] {
    match place.below.split_last() {
        Some((_, name)) => name,
        None => place.trusted.file_name().map_or(b"", |name| name.as_bytes()),
    }
}

/// Checks that the scan of a source that is a file found it.
pub(crate) fn check_found(subject: &Subject, path: &Path, tree: &Tree) -> Result<(), SessionError> {
    let is_file = |entry: Entry<'_>| matches!(entry.kind, Kind::File { .. });
    let mut entries = tree.dirs.iter().flat_map(|dir| &dir.listing);
    if !subject.is_file() || entries.next().is_some_and(is_file) {
        Ok(())
    } else {
        let why = "it is not there any more, or its attributes cannot be read".into();
        Err(SessionError::SourceFile { path: path.into(), why })
    }
}

/// A source's tree whose only entry gets the name that it has at the destination; without a name, the tree is passed
/// on.
pub(crate) struct Named<T> {
    tree: T,
    name: Option<Box<[u8]>>,
}

impl<T> Named<T> {
    pub(crate) fn new(tree: T, subject: &Subject) -> Self {
        Self { tree, name: subject.only.clone() }
    }

    /// Returns the tree with its own names.
    pub(crate) fn inner(&mut self) -> &mut T {
        &mut self.tree
    }
}

impl<T: SourceTree> SourceTree for Named<T> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.tree.request(dirs)
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        let listed = self.tree.next()?;
        match &self.name {
            Some(name) => Ok(renamed(listed, name)?),
            None => Ok(listed),
        }
    }
}

fn renamed(listed: Listed, name: &[u8]) -> Result<Listed, TransportError> {
    let mut entries = listed.listing.iter();
    let only = match (entries.next(), entries.next()) {
        (Some(entry), None) if matches!(entry.kind, Kind::File { .. }) && listed.rules.is_empty() => entry,
        _ => return Err(TransportError::Nonsense("one file was announced, and something else came")),
    };
    let mut listing = ListingBuilder::default();
    listing.push(&Entry { name, ..only });
    Ok(Listed { listing: listing.finish(), ..listed })
}
