//! `volferry snapshot export` and `import`: snapshots as tar archives.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, IsTerminal as _, Read, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use contract::{ExitCode, human::plural};
use rustix::fs::{FlockOperation, OFlags};

use super::{
    Looked,
    archive_flags::{ExportFlags, ImportFlags},
    copied_json::ImportedJson,
    json::SnapshotJson,
    print, say, say_json, user,
};
use syncer::{
    monitor::Monitor,
    path::RelPath,
    root::TreeLocation,
    snapshot::{
        SnapshotError,
        archive::{export_tar, import_tar},
        browse::select_snapshot,
        create::lock_or_make_volume,
        store::{Labels, Writer},
    },
};

/// The bytes that are read of an archive at once.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn export(store: Looked<'_>, flags: &ExportFlags) -> Result<ExitCode, SnapshotError> {
    let snapshot = select_snapshot(store.roots, &flags.id)?;
    let of = if flags.paths.is_empty() { vec![RelPath::root()] } else { flags.paths.clone() };
    let export = |path: &Path, to: &mut dyn Write| export_tar(store.objects, snapshot, &of, path, to);
    if !is_standard(&flags.tar) {
        to_file(&flags.tar, |to| export(&flags.tar, to))?;
    } else if io::stdout().is_terminal() {
        return Err(SnapshotError::Invalid("an archive is not written to a terminal: name a file".into()));
    } else {
        export(Path::new("standard output"), &mut io::stdout().lock())?;
    }
    Ok(ExitCode::Done)
}

fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a file under another name, and gives it its own once it is whole. Only its owner may read it: it has what the
/// modes of files in it keep from others.
fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let failed = |operation: &'static str, path: &Path| {
        let path = path.to_path_buf();
        move |source: io::Error| SnapshotError::Io { operation, path, source }
    };
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return write(&mut OpenOptions::new().write(true).open(path).map_err(failed("open", path))?);
    }
    let part = part_of(path);
    let mut file = open_part(&part).map_err(failed("make", &part))?;
    let not_written = |source| SnapshotError::ArchiveNotWritten { path: path.into(), source };
    let written = write(&mut file)
        .and_then(|()| file.sync_all().map_err(not_written))
        .and_then(|()| fs::rename(&part, path).map_err(failed("rename", &part)));
    written.inspect_err(|_| drop(fs::remove_file(&part)))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Not all file systems can make a folder durable, and the archive is whole without that.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Opens the file of an archive that is not whole yet, also one that an export left that was killed. Others may plant
/// links and pipes under its name: neither is followed, and nobody is waited for.
///
/// # Errors
/// If another export writes to it, or it is no file of this user's alone.
fn open_part(part: &Path) -> io::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = options.custom_flags(flags.bits() as i32).open(part)?;
        let there = file.metadata()?;
        if !there.is_file() || there.nlink() > 1 || there.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it is there, and is no file of this user's alone: remove it"));
        }
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|_| io::Error::other("another export writes to it"))?;
        // The export that had the lock may have given the file its name, or removed it.
        if fs::symlink_metadata(part).is_ok_and(|now| (now.dev(), now.ino()) == (there.dev(), there.ino())) {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.set_len(0)?;
            return Ok(file);
        }
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

pub(super) fn import(flags: &ImportFlags) -> Result<ExitCode, SnapshotError> {
    let ImportFlags { volume, tar, tags, note, pin, max_bytes } = flags.clone();
    let labels =
        Labels { tags: tags.into_iter().collect(), note, user: user(), pinned: pin, ..Labels::default() };
    labels.check()?;
    let mut from: Box<dyn Read> = if is_standard(&tar) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(
            BUFFER_BYTES,
            File::open(&tar).map_err(|source| SnapshotError::Io { operation: "open", path: tar, source })?,
        ))
    };
    let destination = lock_or_make_volume(&TreeLocation::from(&*volume.dir))?;
    let mut writer = Writer::open(destination.state(), destination.root(), &volume.dir, &Monitor::default())?;
    let imported = import_tar(&mut writer, &mut from, labels, max_bytes)?;
    drop(writer);
    destination.close();
    if volume.json {
        say_json(&ImportedJson {
            snapshot: SnapshotJson::from(&imported.snapshot),
            left_out: imported.left_out,
        });
    } else {
        say(&format!("{}\n", imported.snapshot.id));
    }
    if imported.left_out > 0 {
        let left_out = plural(imported.left_out, "attribute that is", "attributes that are");
        print::complain(&format!(
            "note: {left_out} of no kind that snapshots keep, or not read, and left out\n"
        ));
    }
    Ok(ExitCode::Done)
}
