//! Writes the file of `--report` at once: a reader finds a whole report in it, the new one or the one before.

use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use contract::Report;

use crate::refuse_own_folder;

/// Returns a report in the form of its file.
pub(super) fn text(report: &Report) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Writes `text` to `path` by way of a temporary file beside it. An entry that is not a regular file (a pipe, a
/// terminal) cannot be replaced, and is written to. A symbolic link stays, and its target is replaced.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => replace(&fs::canonicalize(path)?, text.as_bytes()),
        Ok(_) => fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, text.as_bytes()),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    refuse_own_folder::check(path.parent().unwrap_or(path))?;
    let NewFile { path: temporary, mut file } = new_beside(path, random_word)?;
    let written = file.write_all(content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The number of names that are tried. If all are taken, another user must have made files of these names on purpose.
const MAX_TRIES: usize = 16;

/// A file that was just made.
struct NewFile {
    path: PathBuf,
    file: File,
}

/// Makes a new file beside `path`, under a name with a random `word` in it, so that no file or link of another user is
/// written to.
///
/// # Errors
/// `AlreadyExists` when each of [`MAX_TRIES`] names is taken.
fn new_beside(path: &Path, mut word: impl FnMut() -> String) -> io::Result<NewFile> {
    let mut tries = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}", word()));
        let temporary = path.with_file_name(name);
        tries += 1;
        match fs::OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < MAX_TRIES => {}
            opened => return opened.map(|file| NewFile { path: temporary, file }),
        }
    }
}

/// Returns sixteen hexadecimal digits that cannot be foreseen: each hasher has a key of its own.
pub(super) fn random_word() -> String {
    format!("{:016x}", RandomState::new().hash_one(()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn report(run: &str) -> Report {
        Report { run: run.into(), ..Report::default() }
    }

    fn write(path: &Path, report: &Report) -> io::Result<()> {
        super::write(path, &text(report)?)
    }

    fn read(path: &Path) -> Report {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_report_is_made_and_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        for run in ["first", "second"] {
            write(&path, &report(run)).unwrap();
            assert_eq!(read(&path), report(run));
        }
        assert_eq!(names(dir.path()), ["r.json"]);
    }

    #[test]
    fn a_reader_of_the_old_report_keeps_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        write(&path, &report("old")).unwrap();
        let opened = fs::File::open(&path).unwrap();
        write(&path, &report("new")).unwrap();
        let old: Report = serde_json::from_reader(opened).unwrap();
        assert_eq!(old.run, "old");
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "").unwrap();
        symlink("target", &link).unwrap();
        write(&link, &report("run")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&target).run, "run");
    }

    #[test]
    fn what_cannot_be_replaced_is_written_to() {
        write(Path::new("/dev/null"), &report("run")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn the_temporary_file_is_never_one_that_is_there_already() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("r.json"), dir.path().join("victim"));
        fs::write(&victim, "of somebody else").unwrap();
        symlink("victim", dir.path().join(".r.json.first")).unwrap();
        let mut words = ["first", "second"].into_iter().map(String::from);
        let NewFile { path: made, mut file } = new_beside(&path, || words.next().unwrap()).unwrap();
        file.write_all(b"report").unwrap();
        assert_eq!(made, dir.path().join(".r.json.second"));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "of somebody else");
        let taken = new_beside(&path, || "first".into()).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_ne!(random_word(), random_word());
    }

    #[test]
    fn a_failure_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone/r.json");
        assert!(write(&path, &report("run")).is_err());
        assert!(names(dir.path()).is_empty());
    }
}
