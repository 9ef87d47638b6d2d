//! Refuses two ends that contain one another: a run would make the tree grow or vanish.

use std::os::fd::AsFd as _;

use contract::{RunParams, Side};

use crate::{
    plan::{
        scan_params::reach,
        single_file::{Subject, last_name},
    },
    session_error::SessionError,
    sink::backup_place,
    sys::{
        block_device::{Opened, PathKind},
        locate::{self, Reach},
        root::{Root, TreeLocation},
    },
    whereabouts::Whereabouts,
};

/// The place of a source that is a tree, as the sink knows it.
pub(crate) enum SourcePlace<'a> {
    /// Of this process, with the place as the user named it.
    Here(&'a Subject, &'a TreeLocation),
    /// Of a peer, which is maybe on this machine, too, with the name of a single file.
    There(&'a Whereabouts, Option<&'a [u8]>),
}

impl SourcePlace<'_> {
    /// Returns the name of the source, if it is a single file.
    pub(crate) fn file(&self) -> Option<&[u8]> {
        match self {
            Self::Here(source, place) => source.is_file().then(|| last_name(place)),
            Self::There(_, file) => *file,
        }
    }

    /// Names the source in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Here(_, place) => format!("the source {}", place.path().display()),
            Self::There(..) => "the source".into(),
        }
    }

    /// Refuses a destination that is the source, lies in it or contains it. It need not exist yet.
    pub(crate) fn refuse_overlap(&self, sink: &Subject, params: &RunParams) -> Result<(), SessionError> {
        match self {
            Self::Here(source, _) if source.is_file() => refuse_same_file(source, sink),
            Self::Here(source, _) => refuse_same_tree(source, sink, params),
            Self::There(whereabouts, Some(_)) => {
                let name = sink.only.as_deref().unwrap_or_default();
                let here = locate::locate_file(&sink.place, name, whereabouts.run());
                if whereabouts.is_same_file(&here) { Err(same_file(sink)) } else { Ok(()) }
            }
            Self::There(whereabouts, None) => {
                let here = locate::locate(&reach(&sink.place, params, Side::Sink)?, whereabouts.run());
                if whereabouts.overlaps(&here) {
                    Err(SessionError::SameTree(format!(
                        "the destination {} is the source, lies in it or contains it, on one machine and maybe through a mount below \
                     one of them: choose folders that do not contain one another, or exclude the mount",
                        sink.place.path().display()
                    )))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Refuses a backup folder that is the source, lies in it or contains it: old versions would replace its files.
    pub(crate) fn refuse_backup(&self, sink: &Subject, params: &RunParams) -> Result<(), SessionError> {
        if params.demands.backup_dir.is_none() {
            return Ok(());
        }
        match self {
            Self::Here(source, _) => {
                let tree = if source.is_file() {
                    Reach::all(&source.place)
                } else {
                    reach(&source.place, params, Side::Source)?
                };
                let whereabouts = locate::locate(&tree, locate::nonce());
                backup_place::refuse_source(&sink.place, params, &whereabouts, source.is_file())
            }
            Self::There(whereabouts, file) => {
                backup_place::refuse_source(&sink.place, params, whereabouts, file.is_some())
            }
        }
    }
}

fn refuse_same_file(source: &Subject, sink: &Subject) -> Result<(), SessionError> {
    let [from, to] = [source, sink].map(|end| (&end.place, end.only.as_deref().unwrap_or_default()));
    if locate::is_same_file(from, to) { Err(same_file(sink)) } else { Ok(()) }
}

fn same_file(sink: &Subject) -> SessionError {
    SessionError::SameTree(format!(
        "the destination is the source, the file {} of {}: name another destination",
        String::from_utf8_lossy(sink.only.as_deref().unwrap_or_default()),
        sink.place.path().display()
    ))
}

/// Refuses a destination that is the source, lies in it or contains it.
pub(crate) fn refuse_same_tree(
    source: &Subject,
    sink: &Subject,
    params: &RunParams,
) -> Result<(), SessionError> {
    let (Some(from), Some(to)) = (source.place.real_path(), sink.place.real_path()) else { return Ok(()) };
    let reach = |place, side| reach(place, params, side);
    let what = match () {
        () if from == to => "is",
        () if to.starts_with(&from) => "lies in",
        () if from.starts_with(&to) => "contains",
        () if locate::overlap(&reach(&source.place, Side::Source)?, &reach(&sink.place, Side::Sink)?) => {
            "shows, through a mount, folders of"
        }
        () => return Ok(()),
    };
    Err(SessionError::SameTree(format!(
        "the destination {} {what} the source {}: choose folders that do not contain one another",
        to.display(),
        from.display()
    )))
}

/// Refuses a device that is the source.
pub(crate) fn refuse_itself(
    opened: &Opened,
    from: &TreeLocation,
    to: &TreeLocation,
    found: PathKind,
) -> Result<(), SessionError> {
    let is_same = found.is_device() && Opened::to_inspect(to).is_ok_and(|there| there.is_same(opened));
    if is_same {
        Err(SessionError::SameTree(format!(
            "the destination {} is the source {}: name another destination",
            to.path().display(),
            from.path().display()
        )))
    } else {
        Ok(())
    }
}

/// Returns whether both paths lead to one folder, also through a mount. A volume's own snapshot can be restored there.
pub fn is_same_tree(from: &TreeLocation, to: &TreeLocation) -> bool {
    let identity = |place: &TreeLocation| {
        let stat = rustix::fs::fstat(Root::enter(place).ok()?.as_fd()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(from).is_some_and(|from| identity(to) == Some(from))
}
