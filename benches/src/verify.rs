//! Compares two trees. It shares no code with the engine, so that neither can hide the other's mistake.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

/// How much of a tree a tool claims to preserve, and so how much of it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fidelity {
    /// The set of regular files, and their content.
    Content,
    /// In addition, all other entries, modes, owners, link targets, and files' times to the second.
    Seconds,
    /// In addition, files' and links' times to the nanosecond.
    Files,
    /// In addition, folders' times, including the root's.
    Full,
}

/// Compares `copy` with `original`, except for the entries of `copy`'s root named in `own`, which a tool keeps there
/// for itself. The error names the first difference, in the order of paths.
pub fn compare(original: &Path, copy: &Path, fidelity: Fidelity, own: &[&str]) -> anyhow::Result<()> {
    let original_entries = entries(original, fidelity, &[])?;
    let copy_entries = entries(copy, fidelity, own)?;
    if let Some(extra) = copy_entries.keys().find(|path| !original_entries.contains_key(*path)) {
        bail!("{} is at the destination and not at the source", extra.display());
    }
    for (path, metadata) in &original_entries {
        let other = copy_entries
            .get(path)
            .with_context(|| format!("{} is not at the destination", path.display()))?;
        same_metadata(metadata, other, fidelity).with_context(|| path.display().to_string())?;
        same_content(&original.join(path), &copy.join(path), metadata)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

type Entries = BTreeMap<PathBuf, Metadata>;

fn entries(root: &Path, fidelity: Fidelity, own: &[&str]) -> anyhow::Result<Entries> {
    let mut entries = Entries::new();
    if fidelity == Fidelity::Full {
        entries.insert(PathBuf::new(), fs::symlink_metadata(root)?);
    }
    walk(root, Path::new(""), own, &mut entries).with_context(|| format!("walking {}", root.display()))?;
    if fidelity == Fidelity::Content {
        entries.retain(|_, metadata| metadata.is_file());
    }
    Ok(entries)
}

fn walk(root: &Path, below: &Path, skip: &[&str], entries: &mut Entries) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name: OsString = entry.file_name();
        if skip.iter().any(|own| name == *own) {
            continue;
        }
        let path = below.join(name);
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            walk(root, &path, &[], entries)?;
        }
        entries.insert(path, metadata);
    }
    Ok(())
}

fn same_metadata(original: &Metadata, copy: &Metadata, fidelity: Fidelity) -> anyhow::Result<()> {
    ensure!(original.file_type() == copy.file_type(), "the kinds differ");
    if original.is_file() {
        ensure!(original.len() == copy.len(), "{} bytes became {}", original.len(), copy.len());
    }
    if fidelity >= Fidelity::Seconds {
        same_rights(original, copy)?;
        same_time(original, copy, fidelity)?;
    }
    Ok(())
}

fn same_time(original: &Metadata, copy: &Metadata, fidelity: Fidelity) -> anyhow::Result<()> {
    let exact_from = if original.is_dir() { Fidelity::Full } else { Fidelity::Files };
    let times = [original, copy].map(|of| (of.mtime(), of.mtime_nsec()));
    let equal = match fidelity >= exact_from {
        true => times[0] == times[1],
        false => !original.is_file() || times[0].0 == times[1].0,
    };
    ensure!(equal, "mtime {}.{:09} became {}.{:09}", times[0].0, times[0].1, times[1].0, times[1].1);
    Ok(())
}

fn same_rights(original: &Metadata, copy: &Metadata) -> anyhow::Result<()> {
    let rights = |of: &Metadata| format!("{}:{} {:o}", of.uid(), of.gid(), of.permissions().mode());
    ensure!(rights(original) == rights(copy), "{} became {}", rights(original), rights(copy));
    Ok(())
}

fn same_content(original: &Path, copy: &Path, metadata: &Metadata) -> anyhow::Result<()> {
    if metadata.is_symlink() {
        ensure!(fs::read_link(original)? == fs::read_link(copy)?, "the link targets differ");
    }
    if metadata.is_file() {
        same_bytes(File::open(original)?, File::open(copy)?)?;
    }
    Ok(())
}

fn same_bytes(mut original: impl Read, mut copy: impl Read) -> anyhow::Result<()> {
    const STEP: usize = 256 << 10;
    let (mut a, mut b) = (Vec::with_capacity(STEP), Vec::with_capacity(STEP));
    let mut offset = 0;
    loop {
        a.clear();
        b.clear();
        original.by_ref().take(STEP as u64).read_to_end(&mut a)?;
        copy.by_ref().take(STEP as u64).read_to_end(&mut b)?;
        ensure!(a == b, "the content differs between bytes {offset} and {}", offset + STEP);
        if a.is_empty() {
            return Ok(());
        }
        offset += a.len();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        time::{Duration, SystemTime},
    };

    use super::*;

    /// Returns two equal trees with a file, a folder and a link.
    fn pair() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let roots = [dir.path().join("a"), dir.path().join("b")];
        for root in &roots {
            fs::create_dir_all(root.join("folder")).unwrap();
            fs::write(root.join("folder/file"), "content").unwrap();
            symlink("file", root.join("folder/link")).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::new(1000, 5);
            set_time(&root.join("folder/file"), time);
            set_time(&root.join("folder"), time);
            set_time(root, time);
            let link = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
                last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
            };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, root.join("folder/link"), &link, flags).unwrap();
        }
        let [a, b] = roots;
        (dir, a, b)
    }

    fn set_time(path: &Path, time: SystemTime) {
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    /// Returns the finest fidelity at which a changed copy still counts as equal.
    fn passes_up_to(change: impl Fn(&Path)) -> Option<Fidelity> {
        let (_dir, a, b) = pair();
        change(&b);
        [Fidelity::Full, Fidelity::Files, Fidelity::Seconds, Fidelity::Content]
            .into_iter()
            .find(|fidelity| compare(&a, &b, *fidelity, &[".own"]).is_ok())
    }

    #[test]
    fn equal_trees_are_equal() {
        assert_eq!(passes_up_to(|_| {}), Some(Fidelity::Full));
    }

    #[test]
    fn a_changed_byte_is_found() {
        let change = |copy: &Path| fs::write(copy.join("folder/file"), "Content").unwrap();
        assert_eq!(passes_up_to(change), None);
    }

    #[test]
    fn a_longer_file_is_found() {
        assert_eq!(passes_up_to(|copy| fs::write(copy.join("folder/file"), "content.").unwrap()), None);
    }

    #[test]
    fn a_missing_file_is_found() {
        assert_eq!(passes_up_to(|copy| fs::remove_file(copy.join("folder/file")).unwrap()), None);
    }

    #[test]
    fn a_file_too_many_is_found() {
        assert_eq!(passes_up_to(|copy| fs::write(copy.join("folder/extra"), "").unwrap()), None);
    }

    #[test]
    fn a_changed_mode_is_found() {
        let change = |copy: &Path| {
            fs::set_permissions(copy.join("folder/file"), fs::Permissions::from_mode(0o600)).unwrap();
        };
        assert_eq!(passes_up_to(change), Some(Fidelity::Content));
    }

    #[test]
    fn a_nanosecond_lost_is_found_where_all_must_be_kept() {
        let whole_second = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(
            passes_up_to(|copy| set_time(&copy.join("folder/file"), whole_second)),
            Some(Fidelity::Seconds)
        );
        let folder = |copy: &Path| set_time(&copy.join("folder"), whole_second);
        assert_eq!(passes_up_to(folder), Some(Fidelity::Files));
    }

    #[test]
    fn another_link_target_is_found() {
        let change = |copy: &Path| {
            fs::remove_file(copy.join("folder/link")).unwrap();
            symlink("elsewhere", copy.join("folder/link")).unwrap();
        };
        assert_eq!(passes_up_to(change), Some(Fidelity::Content));
    }

    #[test]
    fn only_the_root_may_hold_what_a_tool_keeps_for_itself() {
        let keep = |at: &'static str| move |copy: &Path| fs::create_dir(copy.join(at)).unwrap();
        assert_eq!(passes_up_to(keep("folder/.own")), Some(Fidelity::Content));
        // The new entry changes only the root's own time.
        assert_eq!(passes_up_to(keep(".own")), Some(Fidelity::Files));
    }
}
