//! The folder in which a run keeps the old versions of entries.

use std::path::{Component, Path, PathBuf};

use contract::RunParams;

use crate::{
    destination::BackupDir,
    filter::escape,
    path::{OWN_DIR, RelPath},
    session_error::SessionError,
    sys::{
        locate::{Reach, locate, overlap, refuse_own},
        root::TreeLocation,
    },
    whereabouts::Whereabouts,
};

/// The place of a backup folder: the folder that it is in, and its name there.
struct BackupPlace {
    parent: TreeLocation,
    name: Box<[u8]>,
    /// Its path, if it is in the destination.
    inside: Option<RelPath>,
}

/// Returns the parameters, with a pattern that excludes the backup folder from the run if it is in the destination at
/// `place`.
///
/// # Errors
/// [`SessionError::BackupPlace`] for a folder that cannot be a backup folder.
pub(crate) fn sparing(place: &TreeLocation, mut params: RunParams) -> Result<RunParams, SessionError> {
    let Some(dir) = &params.demands.backup_dir else { return Ok(params) };
    let Some(path) = BackupPlace::find(place, dir)?.inside else { return Ok(params) };
    let mut pattern = String::new();
    for name in path.names() {
        let name = std::str::from_utf8(name).map_err(|_| unusable(dir, "its path in DST is not UTF-8"))?;
        pattern.push('/');
        escape(name, &mut pattern);
    }
    params.demands.exclude.push(pattern);
    Ok(params)
}

/// Opens the backup folder that the parameters name, if any, for a run onto `place`.
pub(crate) fn open(place: &TreeLocation, params: &RunParams) -> Result<Option<BackupDir>, SessionError> {
    let Some(dir) = &params.demands.backup_dir else { return Ok(None) };
    let found = BackupPlace::find(place, dir)?;
    Ok(Some(BackupDir::open(&found.parent, &found.name)?))
}

/// Refuses a backup folder of a run onto `place` that is the source, lies in it or contains it, also through a mount.
/// The source is a folder, or a file in the folder at its whereabouts.
///
/// # Errors
/// [`SessionError::BackupPlace`].
pub(crate) fn refuse_source(
    place: &TreeLocation,
    params: &RunParams,
    source: &Whereabouts,
    is_file: bool,
) -> Result<(), SessionError> {
    let Some(dir) = &params.demands.backup_dir else { return Ok(()) };
    let backup = BackupPlace::find(place, dir)?.place()?;
    let here = locate(&Reach::all(&backup), source.run());
    if if is_file { source.is(&here) } else { source.overlaps(&here) } {
        Err(unusable(dir, "it is SRC, contains it, or is in it: name a folder elsewhere"))
    } else {
        Ok(())
    }
}

impl BackupPlace {
    /// Returns the place of the folder itself.
    fn place(self) -> Result<TreeLocation, SessionError> {
        let Self { parent, name, .. } = self;
        let below = parent.below.join(&name);
        let below = below.map_err(|error| unusable(&parent.path(), &error.to_string()))?;
        Ok(TreeLocation { below, ..parent })
    }

    /// Resolves the folder `dir` of a run onto `place`: a relative path is below the destination.
    fn find(place: &TreeLocation, dir: &Path) -> Result<Self, SessionError> {
        let inside = if !dir.is_absolute() { Some(below(dir, dir)?) } else { inside_of(place, dir)? };
        let Some(path) = inside else { return Self::outside(place, dir) };
        let (above, name) = path.split_last().ok_or_else(|| unusable(dir, "it is DST itself"))?;
        if path.names().any(|name| name == OWN_DIR) {
            return Err(unusable(dir, "it is in Volferry's own folder"));
        }
        let below = above.names().try_fold(place.below.clone(), |at, name| at.join(name));
        let below = below.map_err(|error| unusable(dir, &error.to_string()))?;
        let parent = TreeLocation { trusted: place.trusted.clone(), below };
        let name = name.into();
        Ok(Self { parent, name, inside: Some(path) })
    }

    fn outside(place: &TreeLocation, dir: &Path) -> Result<Self, SessionError> {
        refuse_own(&TreeLocation::from(dir)).map_err(|error| unusable(dir, &error.to_string()))?;
        if overlap(&Reach::all(&TreeLocation::from(dir)), &Reach::all(place)) {
            let why = "it contains DST, or is in it by another path: name it by its path below DST";
            return Err(unusable(dir, why));
        }
        let names = dir.parent().zip(dir.file_name());
        let (parent, name) = names.ok_or_else(|| unusable(dir, "its last name is no name of a folder"))?;
        let name = name.as_encoded_bytes().into();
        Ok(Self { parent: TreeLocation::from(parent), name, inside: None })
    }
}

/// Returns the path of an absolute `dir` below the destination at `place`; `None` if it is elsewhere.
fn inside_of(place: &TreeLocation, dir: &Path) -> Result<Option<RelPath>, SessionError> {
    let real = place.real_path();
    let whole = place.path();
    let found = dir.strip_prefix(&whole).ok().map(PathBuf::from).or_else(|| {
        let dir = TreeLocation::from(dir).real_path()?;
        Some(dir.strip_prefix(real?).ok()?.to_owned())
    });
    found.map(|path| below(&path, dir)).transpose()
}

fn below(path: &Path, dir: &Path) -> Result<RelPath, SessionError> {
    let mut found = RelPath::root();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                found =
                    found.join(name.as_encoded_bytes()).map_err(|error| unusable(dir, &error.to_string()))?;
            }
            _ => return Err(unusable(dir, "`..` is not followed below DST")),
        }
    }
    Ok(found)
}

fn unusable(dir: &Path, why: &str) -> SessionError {
    SessionError::BackupPlace { path: dir.into(), why: why.into() }
}
