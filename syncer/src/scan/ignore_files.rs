//! Reads the ignore files or the merge files of a directory, and decides what becomes of one whose rules are unknown.

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
    measure::failures::Failures,
    path::RelPath,
    scan::{dir_queue::PendingDir, options::ScanOptions, read_names::Names},
};

/// A file whose rules cannot be used. Its folder counts as unreadable as a whole, because the rules may exclude entries
/// that must stay private.
pub(super) struct UnreadRules {
    name: Box<[u8]>,
    error: io::Error,
}

impl UnreadRules {
    fn new(name: &[u8], error: io::Error) -> Self {
        Self { name: name.into(), error }
    }

    /// Reports the file, which is in the folder at `path`.
    pub(super) fn report(&self, path: &RelPath, failures: &Failures) {
        let file = path.join(&self.name).unwrap_or_else(|_| path.clone());
        failures.add(&file, "read rules", &self.error);
    }
}

/// The rules for a directory, and the text of its own ignore files.
pub(super) struct Rulebook {
    pub rules: Option<Arc<Rules>>,
    pub text: Box<[u8]>,
}

impl Rulebook {
    /// Reads the rules for the entries of a directory, `fd`, as a scan with these options wants them.
    ///
    /// # Errors
    /// If a file of rules cannot be used.
    pub(super) fn of_dir(
        work: &PendingDir,
        fd: &OwnedFd,
        names: &Names,
        options: &ScanOptions,
        patterns: &InUse,
    ) -> Result<Self, UnreadRules> {
        match (&options.merges, options.ignore_files) {
            (Some(merges), _) => Self::merge(work, fd, names, merges, patterns),
            (None, true) => Self::read(work, fd, names, patterns),
            (None, false) => Ok(Self::inherited(work)),
        }
    }

    /// Returns the rules of the directories above, for a directory without ignore files of its own.
    fn inherited(work: &PendingDir) -> Self {
        Self { rules: work.rules.clone(), text: Box::default() }
    }

    /// Reads the rules from the ignore files.
    fn read(work: &PendingDir, fd: &OwnedFd, names: &Names, patterns: &InUse) -> Result<Self, UnreadRules> {
        let mut text = Vec::new();
        for name in IGNORE_FILES.into_iter().filter(|name| work.paths.is_some() || names.may_contain(name)) {
            read_rules(fd, name, &mut text).map_err(|error| UnreadRules::new(name, error))?;
        }
        Self::of_text(work, text, IGNORE_FILES[0], patterns)
    }

    /// Reads the rules from the files that the rules of the run look for.
    fn merge(
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
            read_rules(fd, name, &mut of_file).map_err(|error| UnreadRules::new(name, error))?;
            if of_file.is_empty() {
                continue;
            }
            if of_file.len() + MERGE_FILE_BYTES > room {
                return Err(UnreadRules::new(name, io::Error::other(too_long())));
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
        let rules = rules.map_err(|error| UnreadRules::new(name, io::Error::other(error)))?;
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
