//! The file that `--report` names: a reader finds a whole report in it, or the one that was there before.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

use contract::Report;

/// Writes `report` to `path` by way of a temporary file beside it. What is not a regular file (a pipe, a
/// terminal) cannot be replaced, and is written to. A symbolic link stays, and what it points at is replaced.
pub(super) fn write(path: &Path, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => replace(&fs::canonicalize(path)?, text.as_bytes()),
        Ok(_) => fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, text.as_bytes()),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to tell of.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn report(run: &str) -> Report {
        Report { run: run.into(), ..Report::default() }
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
    fn a_failure_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone/r.json");
        assert!(write(&path, &report("run")).is_err());
        assert!(names(dir.path()).is_empty());
    }
}
