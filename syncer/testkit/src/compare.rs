//! Compares a copy with its original as far as a tool claims to keep it.

use std::{ffi::OsStr, fs::File, io::Read, os::unix::ffi::OsStrExt as _, path::Path};

use anyhow::{Context as _, bail, ensure};

use crate::oracle::{Aspects, COPY, Depth, Kind, Snapshot, show};

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
    let outline = |root: &Path| -> anyhow::Result<Snapshot> {
        let mut tree = Snapshot::read(root, Depth::Outline)?;
        tree.retain(|path, node| fidelity.keep(&node.kind, &mut node.mtime) || path.is_empty());
        Ok(tree)
    };
    let (before, mut after) = (outline(original)?, outline(copy)?);
    let is_own = |path: &[u8]| {
        path.split(|byte| *byte == b'/').next().is_some_and(|top| own.iter().any(|own| own.as_bytes() == top))
    };
    after.retain(|path, _| !is_own(path));
    if let Some(difference) = before.differences(&after, fidelity.aspects()).first() {
        bail!("{difference}");
    }
    for (path, _) in before.files() {
        let [from, to] = [original, copy].map(|root| root.join(OsStr::from_bytes(path)));
        same_bytes(File::open(from)?, File::open(to)?).with_context(|| show(path))?;
    }
    Ok(())
}

impl Fidelity {
    fn aspects(self) -> Aspects {
        let (kept, all) = (self >= Self::Seconds, self == Self::Full);
        Aspects { modes: kept, owners: kept, times: kept, attrs: false, links: false, root: all, ..COPY }
    }

    /// Cuts off the part of an entry's time that is not kept; returns whether the entry itself is.
    fn keep(self, kind: &Kind, mtime: &mut (i64, i64)) -> bool {
        match kind {
            Kind::File(_) if self == Self::Seconds => mtime.1 = 0,
            Kind::Dir if self < Self::Full => *mtime = (0, 0),
            _ if self < Self::Files => *mtime = (0, 0),
            _ => {}
        }
        self > Self::Content || matches!(kind, Kind::File(_))
    }
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
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
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
    fn each_change_is_found_by_a_comparison_of_what_it_changes() {
        let whole_second = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        type Change<'a> = &'a dyn Fn(&Path);
        let cases: [(&str, Option<Fidelity>, Change<'_>); 9] = [
            ("nothing", Some(Fidelity::Full), &|_| {}),
            ("a byte", None, &|copy| fs::write(copy.join("folder/file"), "Content").unwrap()),
            ("a byte more", None, &|copy| fs::write(copy.join("folder/file"), "content.").unwrap()),
            ("a file less", None, &|copy| fs::remove_file(copy.join("folder/file")).unwrap()),
            ("a file more", None, &|copy| fs::write(copy.join("folder/extra"), "").unwrap()),
            ("a mode", Some(Fidelity::Content), &|copy| {
                fs::set_permissions(copy.join("folder/file"), fs::Permissions::from_mode(0o600)).unwrap();
            }),
            ("a file's nanosecond", Some(Fidelity::Seconds), &|copy| {
                set_time(&copy.join("folder/file"), whole_second);
            }),
            ("a folder's nanosecond", Some(Fidelity::Files), &|copy| {
                set_time(&copy.join("folder"), whole_second);
            }),
            ("a link's target", Some(Fidelity::Content), &|copy| {
                fs::remove_file(copy.join("folder/link")).unwrap();
                symlink("elsewhere", copy.join("folder/link")).unwrap();
            }),
        ];
        for (what, expected, change) in cases {
            assert_eq!(passes_up_to(change), expected, "{what}");
        }
    }

    #[test]
    fn only_the_root_may_hold_what_a_tool_keeps_for_itself() {
        let keep = |at: &'static str| move |copy: &Path| fs::create_dir(copy.join(at)).unwrap();
        assert_eq!(passes_up_to(keep("folder/.own")), Some(Fidelity::Content));
        // The new entry changes only the root's own time.
        assert_eq!(passes_up_to(keep(".own")), Some(Fidelity::Files));
    }
}
