//! Reads the ignore files of a directory.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use super::{names::Names, pending::PendingDir};
use crate::rules::{IGNORE_FILES, InUse, MAX_RULES_BYTES, Rules};

/// The rules for a directory, and the text of its own ignore files.
pub(super) struct Rulebook {
    pub rules: Option<Arc<Rules>>,
    pub text: Box<[u8]>,
}

impl Rulebook {
    /// Returns the rules of the directories above, for a directory without ignore files of its own.
    pub(super) fn inherited(work: &PendingDir) -> Self {
        Self { rules: work.rules.clone(), text: Box::default() }
    }

    /// Reads the rules for a directory's entries.
    ///
    /// # Errors
    /// If an ignore file cannot be read; the error names it.
    pub(super) fn read(
        work: &PendingDir,
        fd: &OwnedFd,
        names: &Names,
        patterns: &InUse,
    ) -> Result<Self, (&'static [u8], io::Error)> {
        let mut text = Vec::new();
        for name in IGNORE_FILES.into_iter().filter(|name| work.paths.is_some() || names.may_contain(name)) {
            read_rules(fd, name, &mut text).map_err(|error| (name, error))?;
        }
        if text.is_empty() {
            return Ok(Self::inherited(work));
        }
        let rules = Rules::new(work.rules.clone(), &work.path, &text, patterns);
        let rules = rules.map_err(|error| (IGNORE_FILES[0], io::Error::other(error)))?;
        Ok(Self { rules: Some(Arc::new(rules)), text: text.into() })
    }
}

/// Appends the text of an ignore file. Only a regular file counts; a link is not followed, as in git.
fn read_rules(dir: &OwnedFd, name: &[u8], text: &mut Vec<u8>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(()),
        result => result?,
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let room = (MAX_RULES_BYTES - text.len()) as u64;
    File::from(fd).take(room).read_to_end(text)?;
    text.push(b'\n');
    match text.len() > MAX_RULES_BYTES {
        true => Err(io::Error::other(format!(
            "a folder's ignore files may have {MAX_RULES_BYTES} bytes together"
        ))),
        false => Ok(()),
    }
}
