//! The file systems that this process sees, from `/proc/self/mountinfo`.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountedAt {
    pub(super) path: PathBuf,
    /// The kind of file system, such as `ext4`.
    pub(super) kind: String,
    /// The device or the server's path that is mounted.
    pub(super) device: String,
    /// The mount options, such as `rw,relatime`: those of this mount, and those of the file system.
    pub(super) options: String,
}

/// Reads the table of mounts.
pub(super) fn read() -> io::Result<Vec<MountedAt>> {
    Ok(fs::read("/proc/self/mountinfo")?.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Returns the mount that a path without links is on: the deepest one above it, and if there are several, the last.
pub(super) fn of<'m>(mounts: &'m [MountedAt], path: &Path) -> Option<&'m MountedAt> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.as_os_str().len())
}

/// Yields the mounts below a path without links.
pub(super) fn below<'m>(mounts: &'m [MountedAt], path: &Path) -> impl Iterator<Item = &'m MountedAt> {
    mounts.iter().filter(move |mount| mount.path != path && mount.path.starts_with(path))
}

fn parse(line: &[u8]) -> Option<MountedAt> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let path = PathBuf::from(OsString::from_vec(unescape(fields.get(4)?)));
    let text = |at: usize| Some(String::from_utf8_lossy(&unescape(fields.get(at)?)).into_owned());
    let (here, whole) = (text(5)?, text(dash + 3)?);
    let options =
        here.split(',').chain(whole.split(',').filter(|option| here.split(',').all(|it| it != *option)));
    let options = options.collect::<Vec<_>>().join(",");
    Some(MountedAt { path, kind: text(dash + 1)?, device: text(dash + 2)?, options })
}

/// Replaces `\ooo` by the byte with that octal number.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        (out, rest) = match octal {
            Some(byte) => ([&out[..], &[byte]].concat(), &after[3..]),
            None => ([&out[..], &[first]].concat(), after),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        30 22 0:25 / /a rw,nosuid shared:1 - tmpfs tmpfs rw\n31 30 0:26 / /a/b\\040c rw - xfs /dev/x rw\nnonsense\n";

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it() {
        let mounts: Vec<MountedAt> = TABLE.split(|byte| *byte == b'\n').filter_map(parse).collect();
        let kind = |path: &str| of(&mounts, Path::new(path)).map(|mount| mount.kind.as_str());
        let deepest = of(&mounts, Path::new("/a/b c")).unwrap();
        assert_eq!((deepest.device.as_str(), deepest.options.as_str()), ("/dev/x", "rw"));
        assert_eq!(
            (kind("/x"), kind("/a/b"), kind("/a/b c/d"), kind("/ab")),
            (Some("ext4"), Some("tmpfs"), Some("xfs"), Some("ext4"))
        );
        let inside: Vec<_> =
            below(&mounts, Path::new("/a")).map(|mount| mount.path.as_os_str().as_bytes()).collect();
        assert_eq!(inside, [b"/a/b c"]);
    }
}
