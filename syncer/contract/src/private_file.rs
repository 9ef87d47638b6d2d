//! Files with private keys: used only if no other user may, and never seen before they are whole.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::Path,
};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    process::{getegid, geteuid, getgroups},
};
use zeroize::Zeroizing;

use crate::identity_error::IdentityError;

/// The largest size of an identity file, which has a few hundred bytes; a larger one is another file.
pub(crate) const MAX_FILE_BYTES: usize = 4096;

/// The user that a new file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOwner {
    /// This process's user.
    Writer,
    /// The owner of the file's folder, if this process is root. A service that runs as that user can then read the key
    /// that root made for it.
    OfFolder,
}

/// Makes a file with a private key. It gets its name when it is whole, with mode 0600 from its first moment, and takes
/// the place of no other file.
pub(crate) fn write_private(path: &Path, text: &[u8], owner: KeyOwner) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{:016x}", random_number()?));
    let temporary = folder.join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = (|| {
        let folder = fs::metadata(folder)?;
        if owner == KeyOwner::OfFolder && geteuid().is_root() && folder.uid() != 0 {
            fchown(&file, Some(folder.uid()), Some(folder.gid()))?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        name_new(&temporary, path)
    })();
    // It has its second name, or the error above is the one to report.
    let _ = fs::remove_file(&temporary);
    written?;
    // A user who may not read the folder may still make files in it.
    File::open(folder).map_or(Ok(()), |folder| folder.sync_all())
}

/// Gives a file a name that no other file has, also where the file system has no hard links.
fn name_new(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => Ok(renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?),
        Ok(()) => Ok(()),
    }
}

fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns whether the group of a file was given access on purpose.
fn group_may(owner: u32, group: u32) -> bool {
    let user = geteuid();
    let in_group = || {
        getegid().as_raw() == group
            || getgroups().is_ok_and(|all| all.iter().any(|gid| gid.as_raw() == group))
    };
    owner != user.as_raw() || user.is_root() && in_group()
}

/// Reads a file with a private key, if no other user may use it.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    let in_file = |source| IdentityError::File { path: path.into(), source };
    let mut file = File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => IdentityError::NotPermitted { path: path.into() },
        _ => in_file(source),
    })?;
    let metadata = file.metadata().map_err(in_file)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 || mode & 0o070 != 0 && !group_may(metadata.uid(), metadata.gid()) {
        return Err(IdentityError::Exposed { path: path.into(), mode });
    }
    // A buffer that grew would leave copies of the key behind.
    let mut buffer = Zeroizing::new(vec![0; MAX_FILE_BYTES]);
    let len = read_up_to(&mut file, &mut buffer).map_err(in_file)?;
    buffer.truncate(len);
    let text = String::from_utf8(std::mem::take(&mut *buffer));
    text.map(Zeroizing::new).map_err(|_| IdentityError::Malformed("not its JSON form"))
}

/// Reads up to the end of the file or of `buffer`, and returns the number of bytes read.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
    };

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_key_that_is_seen_is_whole_and_never_readable_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let (path, is_over) = (dir.path().join("key"), AtomicBool::new(false));
        let text = vec![b'k'; MAX_FILE_BYTES];
        thread::scope(|scope| {
            let looks = scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    for name in names(dir.path()) {
                        let at = dir.path().join(&name);
                        // It may have lost this name meanwhile.
                        let Ok(found) = fs::symlink_metadata(&at) else { continue };
                        assert_eq!(found.permissions().mode() & 0o077, 0, "{name:?}");
                        assert!(name != "key" || found.len() == text.len() as u64, "half a key");
                    }
                }
            });
            for _ in 0..200 {
                write_private(&path, &text, KeyOwner::Writer).unwrap();
                fs::remove_file(&path).unwrap();
            }
            is_over.store(true, SeqCst);
            looks.join().unwrap();
        });
    }

    #[test]
    fn a_key_takes_the_place_of_no_other_file_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let victim = dir.path().join("victim");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        for _ in 0..2 {
            let refused = write_private(&path, b"mine", KeyOwner::OfFolder).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert!(!victim.exists() && names(dir.path()) == ["key"]);
            fs::remove_file(&path).unwrap();
            fs::write(&path, "theirs").unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        fs::remove_file(&path).unwrap();
        write_private(&path, b"mine", KeyOwner::Writer).unwrap();
        assert_eq!((names(dir.path()), mode(&path)), (vec!["key".into()], 0o600));
        assert!(write_private(&dir.path().join("no/key"), b"mine", KeyOwner::Writer).is_err());
    }

    #[test]
    fn root_gives_a_key_to_the_owner_of_its_folder_and_to_nobody_else() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fchown(File::open(dir.path()).unwrap(), Some(65_533), Some(65_532)).unwrap();
        for (name, owner, expected) in
            [("of-folder", KeyOwner::OfFolder, (65_533, 65_532)), ("own", KeyOwner::Writer, (0, 0))]
        {
            let path = dir.path().join(name);
            write_private(&path, b"key", owner).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.mode() & 0o777), (expected.0, 0o600), "{name}");
            assert!(owner == KeyOwner::Writer || found.gid() == expected.1);
        }
    }
}
