//! Changes the file of a service's authorized keys.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
};

use contract::{AuthorizedFileError, AuthorizedKey, AuthorizedKeyError, read_authorized};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::{refuse_own_folder, report_file};

/// Why a file of authorized keys cannot be changed.
#[derive(Debug, Error)]
pub(crate) enum KeyLinesError {
    #[error("cannot change {path}, the file of authorized keys", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: {why}", path = .path.display())]
    Line { path: PathBuf, line: usize, why: AuthorizedKeyError },
}

/// Reads the keys. A file that is not there has none.
pub(crate) fn read(path: &Path) -> Result<Vec<AuthorizedKey>, KeyLinesError> {
    parse(path, &read_text(path)?)
}

/// Replaces the file by one without the lines that `is_out` chooses, and with the line that `add` makes from all that
/// are there. Others that change the file meanwhile wait. Returns the keys that were removed.
pub(crate) fn change<E: From<KeyLinesError>>(
    path: &Path,
    is_out: impl Fn(&AuthorizedKey) -> bool,
    add: impl FnOnce(&[AuthorizedKey]) -> Result<Option<AuthorizedKey>, E>,
) -> Result<Vec<AuthorizedKey>, E> {
    let in_file = |source| KeyLinesError::File { path: path.into(), source };
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    refuse_own_folder::check(folder).map_err(in_file)?;
    let turn = File::open(folder).map_err(in_file)?;
    flock(&turn, FlockOperation::LockExclusive).map_err(|error| in_file(error.into()))?;
    let text = read_text(path)?;
    let known = parse(path, &text)?;
    let added = add(&known)?;
    let removed: Vec<_> = known.into_iter().filter(|key| is_out(key)).collect();
    let stays = |line: &&str| line.trim().parse().map_or(true, |key: AuthorizedKey| !is_out(&key));
    let lines = text.lines().filter(stays).map(str::to_owned);
    let lines = lines.chain(added.iter().map(ToString::to_string));
    let text: String = lines.map(|line| line + "\n").collect();
    replace(path, &text).map_err(in_file)?;
    Ok(removed)
}

fn read_text(path: &Path) -> Result<String, KeyLinesError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|source| KeyLinesError::File { path: path.into(), source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<AuthorizedKey>, KeyLinesError> {
    let in_line = |AuthorizedFileError { line, why }| KeyLinesError::Line { path: path.into(), line, why };
    read_authorized(text).map_err(in_line)
}

/// Replaces a file at once by another of the same owner and mode, and makes it durable.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let former = fs::metadata(&path).ok();
    let new = path.with_extension(report_file::random_word());
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(&new)?;
    let written = (|| {
        if let Some(former) = &former {
            // Another owner cannot be kept without privileges; the service then needs the right to read the file.
            let _ = fchown(&file, Some(former.uid()), Some(former.gid()));
            file.set_permissions(former.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    })();
    written.inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, thread};

    use contract::OwnKey;

    use super::*;

    fn line(peer: &str) -> AuthorizedKey {
        let key = OwnKey::generate().unwrap().public();
        AuthorizedKey { key, peer: peer.into(), read: Default::default(), write: Default::default() }
    }

    fn added(peer: Option<&str>) -> Result<Option<AuthorizedKey>, KeyLinesError> {
        Ok(peer.map(line))
    }

    #[test]
    fn many_that_change_a_file_at_once_lose_no_line_and_comments_and_mode_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("authorized");
        fs::write(&path, "# ours\n\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        thread::scope(|scope| {
            for at in 0..20 {
                let path = &path;
                scope.spawn(move || change(path, |_| false, |_| added(Some(&format!("peer{at}")))).unwrap());
            }
        });
        assert_eq!(read(&path).unwrap().len(), 20);
        let removed = change(&path, |key| key.peer == "peer7", |_| added(None)).unwrap();
        assert_eq!((removed.len(), removed[0].peer.as_str()), (1, "peer7"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ours\n\n") && text.lines().count() == 21, "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
