//! Refuses two ends that do not match, such as a tree and a device, or a folder and the image of a disk.

use contract::RunParams;

use crate::{
    session_error::SessionError,
    sys::{block_device::PathKind, root::TreeLocation},
};

/// Returns the kind of entry at one end's place; with `images`, a regular file is an image. `flag` is the one that
/// names a folder below the place.
///
/// # Errors
/// If a folder below a device or a file is named.
pub(crate) fn inspect(
    place: &TreeLocation,
    flag: &'static str,
    images: bool,
) -> Result<PathKind, SessionError> {
    if !place.below.is_root() && PathKind::at(&TreeLocation::from(&place.trusted), images).is_device() {
        return Err(SessionError::NotForDevices { flag });
    }
    Ok(PathKind::at(place, images))
}

/// Refuses a destination to which a tree cannot be synced. `source` describes the tree in the message.
pub(crate) fn refuse_tree(place: &TreeLocation, found: PathKind, source: &str) -> Result<(), SessionError> {
    if found.is_device() || found == PathKind::File {
        Err(SessionError::Kinds(format!(
            "{source} is a folder, and the destination {} is {}: name a folder there, or a block device or an image as the source",
            place.path().display(),
            found.describe()
        )))
    } else {
        Ok(())
    }
}

/// Refuses `--image` for a source that is a folder, and flags of devices for one that is none.
pub(crate) fn refuse_image(
    place: &TreeLocation,
    found: PathKind,
    params: &RunParams,
) -> Result<(), SessionError> {
    if found == PathKind::Other && params.image {
        Err(SessionError::Kinds(format!(
            "the source {} is a folder, and --image is for the image of a disk: name a file, or leave --image out",
            place.path().display()
        )))
    } else if found != PathKind::Nothing && (params.content_hash || params.changed_blocks.is_some()) {
        Err(SessionError::Kinds(format!(
            "the source {} is {}, and --content-hash and --changed-blocks are for block devices and, with --image, for images of disks: \
             leave them out",
            place.path().display(),
            found.describe()
        )))
    } else {
        Ok(())
    }
}

/// Refuses a destination to which a device cannot be synced. `source` describes the device in the message, and `images`
/// says that --image was given.
pub(crate) fn refuse_folder(
    place: &TreeLocation,
    found: PathKind,
    source: &str,
    images: bool,
) -> Result<(), SessionError> {
    match found {
        PathKind::File | PathKind::Nothing if !images => Err(SessionError::Kinds(format!(
            "{source} is a block device or the image of one, and the destination {} is a file or is not there: add --image at this \
             end if it is to be the image of a disk, or name a block device",
            place.path().display()
        ))),
        PathKind::Other => Err(SessionError::Kinds(format!(
            "{source} is a block device or the image of one, and the destination {} is neither: name a block device or a file there \
             (--destination-path names a file below a folder), or a folder as the source",
            place.path().display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses parameters that only make sense for a tree.
pub(crate) fn refuse_params(params: &RunParams) -> Result<(), SessionError> {
    match params.flags_of_trees().chain(params.demands.flags_of_trees()).next() {
        Some(flag) => Err(SessionError::NotForDevices { flag: flag.name }),
        None => Ok(()),
    }
}
