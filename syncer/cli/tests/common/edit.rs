//! Changes of a tree, of every kind that users make.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{FileExt as _, MetadataExt as _, lchown, symlink},
    path::{Path, PathBuf},
};

use super::{rng::Rng, scratch, tree};

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    Create,
    CreateDir,
    Append,
    Truncate,
    Empty,
    Overwrite,
    Touch,
    TouchDir,
    TouchLink,
    Chmod,
    ChmodDir,
    Chown,
    SetAttr,
    SetDirAttr,
    SetAcl,
    SetDirAcl,
    DropAttrs,
    HardLink,
    BreakLink,
    Punch,
    Delete,
    DeleteDir,
    Rename,
    RenameDir,
    RenameCase,
    Retarget,
    FileToDir,
    FileToLink,
    FileToPipe,
    DirToFile,
    DirToLink,
    LinkToFile,
    LinkToDir,
    PipeToFile,
}

impl Edit {
    pub const ALL: [Self; 34] = [
        Self::Create,
        Self::CreateDir,
        Self::Append,
        Self::Truncate,
        Self::Empty,
        Self::Overwrite,
        Self::Touch,
        Self::TouchDir,
        Self::TouchLink,
        Self::Chmod,
        Self::ChmodDir,
        Self::Chown,
        Self::SetAttr,
        Self::SetDirAttr,
        Self::SetAcl,
        Self::SetDirAcl,
        Self::DropAttrs,
        Self::HardLink,
        Self::BreakLink,
        Self::Punch,
        Self::Delete,
        Self::DeleteDir,
        Self::Rename,
        Self::RenameDir,
        Self::RenameCase,
        Self::Retarget,
        Self::FileToDir,
        Self::FileToLink,
        Self::FileToPipe,
        Self::DirToFile,
        Self::DirToLink,
        Self::LinkToFile,
        Self::LinkToDir,
        Self::PipeToFile,
    ];

    /// Makes the change to an entry below `root`, if there is one that it fits. Returns the changed entry.
    pub fn apply(self, root: &Path, rng: &mut Rng) -> Option<PathBuf> {
        let found = Found::in_tree(root);
        let path = match self {
            Self::Create | Self::CreateDir => found.new_path(root, rng),
            Self::TouchDir
            | Self::ChmodDir
            | Self::SetDirAttr
            | Self::SetDirAcl
            | Self::DeleteDir
            | Self::RenameDir => rng.pick(&found.dirs)?.clone(),
            Self::DirToFile | Self::DirToLink => rng.pick(&found.dirs)?.clone(),
            Self::TouchLink | Self::Retarget | Self::LinkToFile | Self::LinkToDir => {
                rng.pick(&found.links)?.clone()
            }
            Self::PipeToFile => rng.pick(&found.pipes)?.clone(),
            Self::Chown if !scratch::is_root() => return None,
            _ => rng.pick(&found.files)?.clone(),
        };
        self.change(&path, &found, root, rng)?;
        Some(path)
    }

    fn change(self, path: &Path, found: &Found, root: &Path, rng: &mut Rng) -> Option<()> {
        match self {
            Self::Create => tree::file(path, &tree::content(rng)),
            Self::CreateDir => fs::create_dir(path).unwrap(),
            Self::Append => append(path, rng),
            Self::Truncate => set_len(path, rng.below(len(path) + 1)),
            Self::Empty => set_len(path, 0),
            Self::Overwrite => overwrite(path, rng)?,
            Self::Touch | Self::TouchDir | Self::TouchLink => {
                tree::set_mtime(path, rng.below(2_000_000_000) as i64, rng.below(1_000_000_000) as i64);
            }
            Self::Chmod => tree::set_mode(path, 0o600 | rng.below(0o200) as u32),
            Self::ChmodDir => tree::set_mode(path, 0o700 | rng.below(0o100) as u32),
            Self::Chown => lchown(path, Some(4000 + rng.below(9) as u32), Some(4000)).unwrap(),
            Self::SetAttr | Self::SetDirAttr => {
                tree::set_attr(path, &format!("user.{}", rng.below(4)), &rng.next_u64().to_le_bytes());
            }
            Self::SetAcl => tree::set_attr(path, tree::ACCESS_ACL, &any_acl(6, rng)),
            Self::SetDirAcl => {
                let name = if rng.once_in(2) { tree::ACCESS_ACL } else { tree::DEFAULT_ACL };
                tree::set_attr(path, name, &any_acl(7, rng));
            }
            Self::DropAttrs => drop_attrs(path)?,
            Self::HardLink => fs::hard_link(path, found.new_path(root, rng)).unwrap(),
            Self::BreakLink => break_link(path)?,
            Self::Punch => tree::sparse(path, rng),
            Self::Delete => fs::remove_file(path).unwrap(),
            Self::DeleteDir => fs::remove_dir_all(path).unwrap(),
            Self::Rename => fs::rename(path, found.new_path(root, rng)).unwrap(),
            Self::RenameDir => rename_dir(path, &found.new_path(root, rng))?,
            Self::RenameCase => rename_case(path)?,
            Self::Retarget | Self::FileToLink => {
                fs::remove_file(path).unwrap();
                symlink(format!("new target {}", rng.next_u64()), path).unwrap();
            }
            Self::FileToDir | Self::LinkToDir => {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
                tree::file(&path.join("in place of a file"), &tree::content(rng));
            }
            Self::FileToPipe => {
                fs::remove_file(path).unwrap();
                tree::pipe(path);
            }
            Self::DirToFile => {
                fs::remove_dir_all(path).unwrap();
                tree::file(path, &tree::content(rng));
            }
            Self::DirToLink => {
                fs::remove_dir_all(path).unwrap();
                symlink("..", path).unwrap();
            }
            Self::LinkToFile | Self::PipeToFile => {
                fs::remove_file(path).unwrap();
                tree::file(path, &tree::content(rng));
            }
        }
        Some(())
    }
}

/// Replaces a name of a file by a copy of the file, if the file has another name.
fn break_link(path: &Path) -> Option<()> {
    if fs::metadata(path).unwrap().nlink() < 2 {
        return None;
    }
    let content = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    tree::file(path, &content);
    Some(())
}

fn any_acl(of_owner: u16, rng: &mut Rng) -> Vec<u8> {
    tree::acl([of_owner, rng.below(8) as u16, 4, rng.below(8) as u16, 0])
}

/// Removes all attributes; returns `None` if there are none.
fn drop_attrs(path: &Path) -> Option<()> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names: Vec<_> = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    // XFS lists an access control list under two names, so removing the second one fails.
    for name in &names {
        let _ = rustix::fs::lremovexattr(path, *name);
    }
    (!names.is_empty()).then_some(())
}

/// A tree's entries by kind, in an order that depends on the names alone.
#[derive(Debug, Default)]
struct Found {
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    links: Vec<PathBuf>,
    pipes: Vec<PathBuf>,
}

impl Found {
    fn in_tree(root: &Path) -> Self {
        let mut found = Self::default();
        found.look_into(root, Some(".volferry"));
        found
    }

    fn look_into(&mut self, dir: &Path, but_not: Option<&str>) {
        let mut below: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        below.sort();
        for path in below.into_iter().filter(|path| but_not.is_none_or(|name| !path.ends_with(name))) {
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            match () {
                () if kind.is_dir() => {
                    self.look_into(&path, None);
                    self.dirs.push(path);
                }
                () if kind.is_symlink() => self.links.push(path),
                () if kind.is_file() => self.files.push(path),
                () => self.pipes.push(path),
            }
        }
    }

    /// Returns a path that does not exist.
    fn new_path(&self, root: &Path, rng: &mut Rng) -> PathBuf {
        let number = rng.next_u64();
        rng.pick(&self.dirs).map_or(root, PathBuf::as_path).join(tree::name(rng, number))
    }
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().size()
}

fn append(path: &Path, rng: &mut Rng) {
    let more = 1 + rng.below(2000) as usize;
    OpenOptions::new().append(true).open(path).unwrap().write_all(&rng.bytes(more)).unwrap();
}

fn set_len(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Changes bytes and keeps the size; does nothing to an empty file.
fn overwrite(path: &Path, rng: &mut Rng) -> Option<()> {
    let len = len(path);
    let at = rng.below(len.max(1));
    let bytes = rng.bytes((len - at).min(5000) as usize);
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&bytes, at).unwrap();
    (len > 0).then_some(())
}

fn rename_dir(path: &Path, to: &Path) -> Option<()> {
    if to.starts_with(path) {
        return None;
    }
    fs::rename(path, to).unwrap();
    Some(())
}

fn rename_case(path: &Path) -> Option<()> {
    let name = path.file_name()?.to_str()?;
    let swapped = path.with_file_name(match name.to_uppercase() {
        upper if upper == name => name.to_lowercase(),
        upper => upper,
    });
    if swapped == path || fs::symlink_metadata(&swapped).is_ok() {
        return None;
    }
    fs::rename(path, swapped).unwrap();
    Some(())
}
