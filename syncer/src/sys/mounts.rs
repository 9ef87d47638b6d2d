//! Reads the kernel's list of this process's mounts, `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    iter, mem,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The length of the buffer for the list. The list of most machines takes one or two reads of it.
const BUFFER_BYTES: usize = 8 << 10;

/// Holds the list as the kernel wrote it: each run reads it, and needs a few fields of a few of its lines.
#[derive(Debug, Default)]
pub struct MountTable(Vec<u8>);

/// Keeps the list as it was read last, because several guards of a run ask for it, and the kernel is slow to write it.
static LAST: Mutex<Option<LastTable>> = Mutex::new(None);

struct LastTable {
    /// The file that it was read from, by which the kernel reports that something was mounted or unmounted since.
    file: File,
    read: Instant,
    table: Arc<MountTable>,
}

/// The age at which the list is read again in any case: the kernel reports mounts, but not that a folder above one was
/// renamed.
const OLD: Duration = Duration::from_secs(1);

impl LastTable {
    fn read() -> io::Result<Self> {
        let mut text = Vec::with_capacity(BUFFER_BYTES);
        let read = Instant::now();
        let mut file = File::open("/proc/self/mountinfo")?;
        file.read_to_end(&mut text)?;
        Ok(Self { file, read, table: Arc::new(MountTable(text)) })
    }

    fn is_current(&self) -> bool {
        let mut files = [PollFd::new(&self.file, PollFlags::PRI)];
        let is_same = poll(&mut files, Some(&Timespec::default())).is_ok_and(|changed| changed == 0);
        is_same && self.read.elapsed() < OLD
    }
}

impl MountTable {
    /// Returns the list. Folders that were renamed within the last second may have their old names in it.
    ///
    /// # Errors
    /// That of reading, as without `/proc`.
    pub fn read() -> io::Result<Arc<Self>> {
        let mut last = LAST.lock();
        let current = last.take().filter(LastTable::is_current);
        let read = current.map_or_else(LastTable::read, Ok)?;
        Ok(last.insert(read).table.clone())
    }

    /// Yields the mounts in the list's order: of two at one place, the later one is seen.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Mount<'_>> {
        let mut rest = &*self.0;
        iter::from_fn(move || {
            let end = memchr::memchr(b'\n', rest)?;
            let line = &rest[..end];
            rest = &rest[end + 1..];
            Some(Mount(line))
        })
    }

    /// Returns the mount that a path without links is on: the deepest one above it, and of several, the last.
    pub fn of(&self, path: &Path) -> Option<Mount<'_>> {
        let above = self.iter().filter(|mount| path.starts_with(mount.point()));
        above.max_by_key(|mount| mount.point().as_os_str().len())
    }

    /// Yields the mounts below a path without links.
    pub fn below<'m>(&'m self, path: &'m Path) -> impl Iterator<Item = Mount<'m>> {
        self.iter().filter(move |mount| mount.point() != path && mount.point().starts_with(path))
    }
}

/// One line of the list. A field that the line does not have is empty.
#[derive(Debug, Clone, Copy)]
pub struct Mount<'m>(&'m [u8]);

impl<'m> Mount<'m> {
    /// Returns the mount's id, as `statx` reports it.
    pub(crate) fn id(&self) -> Option<u64> {
        std::str::from_utf8(self.field(0)).ok()?.parse().ok()
    }

    /// Returns the file system's device, as `MAJOR:MINOR`.
    pub(crate) fn device(&self) -> &'m [u8] {
        self.field(2)
    }

    /// Returns the folder of the file system that the mount shows.
    pub(crate) fn top(&self) -> Cow<'m, Path> {
        unescape(self.field(3))
    }

    /// Returns the folder where the mount is seen.
    pub fn point(&self) -> Cow<'m, Path> {
        unescape(self.field(4))
    }

    /// Returns the kind of file system, such as `ext4`.
    pub fn kind(&self) -> String {
        self.after_dash(0).to_string_lossy().into_owned()
    }

    /// Returns the device, the file or the server's path that is mounted.
    pub fn source(&self) -> Cow<'m, Path> {
        self.after_dash(1)
    }

    /// Returns the options, such as `rw,relatime`: those of this mount, and those of the file system that it does not
    /// name itself.
    pub fn options(&self) -> String {
        let (here, whole) = (unescape(self.field(5)), self.after_dash(2));
        let [here, whole] = [&here, &whole].map(|options| options.to_string_lossy());
        let is_new = |option: &&str| here.split(',').all(|known| known != *option);
        here.split(',').chain(whole.split(',').filter(is_new)).collect::<Vec<_>>().join(",")
    }

    fn field(&self, nth: usize) -> &'m [u8] {
        fields(self.0).nth(nth).unwrap_or_default()
    }

    /// Returns a field behind the dash that ends the list of optional fields.
    fn after_dash(&self, nth: usize) -> Cow<'m, Path> {
        let mut fields = fields(self.0).skip(6).skip_while(|field| *field != b"-");
        unescape(fields.nth(nth + 1).unwrap_or_default())
    }
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut ends = memchr::memchr_iter(b' ', line).chain(iter::once(line.len()));
    let mut start = 0;
    iter::from_fn(move || {
        let end = ends.next()?;
        Some(&line[mem::replace(&mut start, end + 1)..end])
    })
}

/// Decodes a field: the kernel writes spaces and similar bytes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Cow<'_, Path> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(Path::new(OsStr::from_bytes(field)));
    }
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        bytes.extend(digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()));
        bytes.extend(part.get(3..).unwrap_or_default());
    }
    Cow::Owned(OsStr::from_bytes(&bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MountTable {
        let text = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:25 / /a rw,nosuid shared:1 - tmpfs tmpfs rw\n\
            31 30 0:26 /of\xff /a/b\\040c rw - xfs /dev/x rw,noquota\nnonsense\n";
        MountTable(text.to_vec())
    }

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it() {
        let mounts = table();
        let kind = |path: &str| mounts.of(Path::new(path)).map(|mount| mount.kind());
        assert_eq!(
            ["/x", "/a/b", "/a/b c/d", "/ab"].map(kind),
            ["ext4", "tmpfs", "xfs", "ext4"].map(|kind| Some(kind.to_owned()))
        );
        let inside: Vec<_> = mounts.below(Path::new("/a")).map(|mount| mount.point()).collect();
        assert_eq!(inside, [Path::new("/a/b c")]);
    }

    #[test]
    fn a_line_has_the_kernels_fields() {
        let mounts = table();
        let mount = mounts.of(Path::new("/a/b c")).unwrap();
        assert_eq!((mount.id(), mount.device()), (Some(31), &b"0:26"[..]));
        assert_eq!(*mount.top(), *Path::new(OsStr::from_bytes(b"/of\xff")));
        assert_eq!((mount.source(), mount.options()), (Path::new("/dev/x").into(), "rw,noquota".to_owned()));
    }

    #[test]
    fn the_list_is_read_again_once_something_was_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let shows = || MountTable::read().unwrap().iter().any(|mount| *mount.point() == *place);
        let run = |program, args: &[&str]| {
            let ended = std::process::Command::new(program).args(args).arg(&place).status();
            ended.is_ok_and(|status| status.success())
        };
        assert!(!shows());
        if run("mount", &["-t", "tmpfs", "tmpfs"]) {
            let is_seen = shows();
            assert!(run("umount", &[]));
            assert!(is_seen && !shows());
        }
    }

    #[test]
    fn the_kernels_escapes_are_read() {
        assert_eq!(unescape(br"/a\040b\134"), Path::new(r"/a b\"));
        assert_eq!(unescape(br"/a\04"), Path::new("/a"));
    }
}
