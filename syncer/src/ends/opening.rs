//! Opens the ends of a run: finds out of which kind they are, and refuses those that do not match or contain one
//! another.

use contract::RunParams;

use crate::{
    ends::{
        end_kinds::{inspect, refuse_folder, refuse_image, refuse_params, refuse_tree},
        overlap::SourcePlace,
    },
    plan::single_file::Subject,
    session_error::SessionError,
    sink::{backup_place::sparing, copied_history::check_history},
    sys::{
        block_device::{DeviceError, Opened, PathKind},
        root::{Root, TreeLocation},
    },
};

/// A source that was found, by its kind.
pub(crate) enum FoundSource {
    /// A device, or the image of one.
    Device(Opened),
    /// A tree, or one file of it.
    Tree(Subject),
}

impl FoundSource {
    /// Finds the source at `place`.
    pub(crate) fn at(place: &TreeLocation, params: &RunParams) -> Result<Self, SessionError> {
        let found = inspect(place, "--source-path", params.image)?;
        if found.is_device() {
            refuse_params(params)?;
            return Self::device(place, params).map_err(SessionError::SourceDevice);
        }
        if found == PathKind::Nothing && !params.image {
            // Its absence is told before what would not go with a folder.
            Root::enter(place).map_err(SessionError::Source)?;
        }
        refuse_image(place, found, params)?;
        Ok(Self::Tree(Subject::of_source(place, found, params)?))
    }

    fn device(place: &TreeLocation, params: &RunParams) -> Result<Self, DeviceError> {
        let mut opened = Opened::to_read(place)?;
        if let Some(changed) = &params.changed_blocks {
            opened.list_changed(&changed.ranges, &place.path())?;
        }
        Ok(Self::Device(opened))
    }
}

/// A destination for a tree or a single file, and the parameters with what the run has to leave alone there.
pub(crate) struct CheckedSink {
    pub subject: Subject,
    pub params: RunParams,
}

/// Checks that a tree, or a single file, can be synced to `place`; `images` says that a file there is an image.
pub(crate) fn check_tree_sink(
    place: &TreeLocation,
    source: &SourcePlace<'_>,
    params: RunParams,
    images: bool,
) -> Result<CheckedSink, SessionError> {
    let found = inspect(place, "--destination-path", images)?;
    if source.file().is_none() {
        refuse_tree(place, found, &source.name())?;
    }
    let subject = Subject::of_destination(place, source.file())?;
    subject.find_folder(place)?;
    let params = sparing(&subject.place, params)?;
    source.refuse_backup(&subject, &params)?;
    source.refuse_overlap(&subject, &params)?;
    check_history(&params)?;
    Ok(CheckedSink { subject, params })
}

/// Checks that a device can be synced to `place`. `name` names the source in messages, and `images` says that a file
/// there is an image. Returns the kind of what is there.
pub(crate) fn check_device_sink(
    place: &TreeLocation,
    name: &str,
    params: &RunParams,
    images: bool,
) -> Result<PathKind, SessionError> {
    let found = inspect(place, "--destination-path", images)?;
    refuse_folder(place, found, name, images)?;
    refuse_params(params)?;
    Ok(found)
}
