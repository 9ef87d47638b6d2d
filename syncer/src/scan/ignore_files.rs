//! Reads the ignore files or the merge files of a directory.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    sync::Arc,
};

use contract::human;
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use crate::{
    filter::{FilterRules, IGNORE_FILES, InUse, MAX_RULES_BYTES, Rules, put_merge_file},
    scan::{dir_queue::PendingDir, read_names::Names},
};

/// The name of a file whose rules cannot be used, and the reason.
pub(super) type UnreadRules = (Box<[u8]>, io::Error);

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
    ) -> Result<Self, UnreadRules> {
        let mut text = Vec::new();
        for name in IGNORE_FILES.into_iter().filter(|name| work.paths.is_some() || names.may_contain(name)) {
            read_rules(fd, name, &mut text).map_err(|error| (name.into(), error))?;
        }
        Self::of_text(work, text, IGNORE_FILES[0], patterns)
    }

    /// Reads the rules for a directory's entries from the files that the rules of the run look for.
    ///
    /// # Errors
    /// If a file cannot be read or has a rule that cannot be used; the error names it.
    pub(super) fn merge(
        work: &PendingDir,
        fd: &OwnedFd,
        names: &Names,
        merges: &FilterRules,
        patterns: &InUse,
    ) -> Result<Self, UnreadRules> {
        let (mut text, mut last) = (Vec::new(), &b""[..]);
        for (nth, file) in merges.merges().iter().enumerate() {
            let name = file.name.as_bytes();
            if work.paths.is_none() && !names.may_contain(name) {
                continue;
            }
            let mut of_file = Vec::new();
            let room = MAX_RULES_BYTES.saturating_sub(text.len());
            read_rules(fd, name, &mut of_file).map_err(|error| (name.into(), error))?;
            if of_file.is_empty() {
                continue;
            }
            if of_file.len() + MERGE_FILE_BYTES > room {
                return Err((name.into(), io::Error::other(too_long())));
            }
            put_merge_file(&mut text, nth, &of_file);
            last = name;
        }
        Self::of_text(work, text, last, patterns)
    }

    fn of_text(work: &PendingDir, text: Vec<u8>, name: &[u8], patterns: &InUse) -> Result<Self, UnreadRules> {
        if text.is_empty() {
            return Ok(Self::inherited(work));
        }
        let rules = Rules::new(work.rules.clone(), &work.path, &text, patterns);
        let rules = rules.map_err(|error| (name.into(), io::Error::other(error)))?;
        Ok(Self { rules: Some(Arc::new(rules)), text: text.into() })
    }
}

/// The most bytes that a merge file takes beside its own.
const MERGE_FILE_BYTES: usize = 16;

fn too_long() -> String {
    format!(
        "a folder's files of rules may have {} together: write fewer rules",
        human::bytes(MAX_RULES_BYTES as u64)
    )
}

/// Appends the text of a file of rules. Only a regular file counts; a link is not followed, as in git.
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
    if text.len() > MAX_RULES_BYTES { Err(io::Error::other(too_long())) } else { Ok(()) }
}
