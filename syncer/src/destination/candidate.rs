//! A folder that may become the destination of a run: what is known of it before it is locked.

use std::{io, os::fd::AsFd as _, path::PathBuf, sync::Arc};

use contract::VolumeId;
use rustix::{
    fs::{AtFlags, OFlags},
    io::Errno,
};

use crate::{
    destination::{
        destination_error::ApplyError,
        in_place::write_by_journal::replay,
        metadata::{
            probe_file::ProbeFile,
            set_xattrs::{self, LostAttrs, ProbedAttrs},
            settings::Settings,
            time_precision,
        },
        state::{
            motion_notes::MotionNotes,
            private_dir,
            state_dir::{RunShard, StateDir, VolumeLock},
            volume_id,
        },
        writable_tree::Destination,
    },
    path::OWN_DIR,
    sys::{
        locate::refuse_own,
        root::{Root, RootError, TreeLocation, open_child},
    },
    tree::{kept_times::KeptTimes, noted_in_motion::NotedFiles},
};

/// A directory that may become the destination of a run, and is still unchanged.
#[derive(Debug)]
pub(crate) struct Candidate {
    path: PathBuf,
    root: Root,
}

impl Candidate {
    /// Opens the directory at `place`, and makes it if it is missing.
    pub(crate) fn open(place: &TreeLocation) -> Result<Self, ApplyError> {
        refuse_own(place)?;
        Ok(Self { root: Root::prepare(place)?, path: place.path() })
    }

    /// Opens the directory at `place`; `None` if it is missing.
    pub(crate) fn find(place: &TreeLocation) -> Result<Option<Self>, ApplyError> {
        refuse_own(place)?;
        match Root::enter(place) {
            Err(RootError::Missing(_)) => Ok(None),
            result => Ok(Some(Self { root: result?, path: place.path() })),
        }
    }

    /// Returns the root, for scanning.
    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// Returns the times that its file system keeps, as far as that can be found out without a new name.
    pub(crate) fn kept_times(&self) -> KeptTimes {
        time_precision::probe(ProbeFile::make(self.root.as_fd(), None).as_ref())
    }

    /// Checks, without writing, whether this process may write to the folder where a run writes first.
    ///
    /// # Errors
    /// [`ApplyError::Own`], with which a run would fail.
    pub(crate) fn check_writable(&self) -> Result<(), ApplyError> {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let may = |path: &str| rustix::fs::accessat(&self.root, path, access, AtFlags::EACCESS);
        let state = [".volferry", ".volferry/staging"].into_iter().try_for_each(may);
        let tried = match state {
            Err(Errno::NOENT) => may("."),
            result => result,
        };
        tried.map_err(|errno| ApplyError::Own { path: self.path.clone(), source: errno.into() })
    }

    /// Returns the id of the volume, if it was a destination before.
    pub(crate) fn volume(&self) -> Result<Option<VolumeId>, ApplyError> {
        volume_id::of(&self.root).map_err(|error| {
            let source = private_dir::explain(self.root.as_fd(), &self.path, error);
            ApplyError::Own { path: self.path.clone(), source }
        })
    }

    /// Returns the id of the source that the copy is of, if a run noted one.
    ///
    /// # Errors
    /// [`ApplyError::Own`].
    pub(crate) fn source(&self) -> Result<Option<VolumeId>, ApplyError> {
        let found = match open_child(self.root.as_fd(), OWN_DIR, OFlags::RDONLY) {
            Ok(own) => volume_id::source_of(own.as_fd()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        found.map_err(|source| ApplyError::Own { path: self.path.clone(), source })
    }

    /// Returns the files that earlier runs noted as in motion.
    pub(crate) fn noted(&self) -> Arc<NotedFiles> {
        let own = open_child(self.root.as_fd(), OWN_DIR, OFlags::RDONLY);
        let notes = own.ok().and_then(|own| MotionNotes::inspect(own.as_fd(), 0).ok());
        notes.map(|notes| Arc::clone(notes.found())).unwrap_or_default()
    }

    /// Returns whether the destination has a `.volferry`, so that opening it changes nothing in its root.
    pub(crate) fn has_state(&self) -> bool {
        rustix::fs::statat(&self.root, OWN_DIR, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Locks the destination for a run that writes to it. Removes what an earlier run left in staging, and applies what
    /// it left in the journal. Of the attributes in `settings`, keeps those that the file system takes. The processes
    /// of a sharded run each give their own `shard`, and share the lock. A lock that the session has
    /// `held` since its last run is used again.
    pub(crate) fn take(
        self,
        mut settings: Settings,
        shard: Option<RunShard<'_>>,
        held: Option<VolumeLock>,
    ) -> Result<Destination, ApplyError> {
        let Self { path, root } = self;
        let mut state = StateDir::open(&root, &path, shard, held)?;
        if state.is_first() {
            replay(&root, &state)?.into_iter().for_each(|note| state.note(note));
        }
        let name = state.fresh_name();
        let file = ProbeFile::make(state.staging(), Some(&name));
        let ProbedAttrs { settable, by_policy } = set_xattrs::probe(file.as_ref(), settings.attrs);
        let lost_attrs = LostAttrs::of(settings.attrs.without(settable));
        (settings.attrs, settings.by_policy) = (settable, by_policy);
        if settings.times {
            settings.kept_times = time_precision::probe(file.as_ref());
        }
        drop(file);
        Ok(Destination::new(root, path, state, settings, lost_attrs))
    }
}

#[cfg(test)]
impl Destination {
    /// Opens a destination as a run with usual settings does.
    pub(crate) fn of_test(dir: &std::path::Path) -> Self {
        let settings = Settings::resolve(&contract::Preserve::default()).unwrap();
        Candidate::open(&dir.into()).unwrap().take(settings, None, None).unwrap()
    }
}
