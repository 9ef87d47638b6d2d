//! Trees to sync: one of everything that a tree can hold, and seeded ones.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags, makedev, mknodat, utimensat,
};

use super::{rng::Rng, scratch, watch::LastClose};

/// Files up to this size travel packed with others.
const PACKED: usize = 128 << 10;
/// Larger files travel in blocks of this size.
const BLOCK: usize = 1 << 20;

pub const ACCESS_ACL: &str = "system.posix_acl_access";
pub const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Whether a tree holds only entries that every user can make and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Also devices, other users' files and entries that only root can read, where this process is root.
    Everything,
    /// Only entries that a run without privileges can read at the source and make at the destination.
    Unprivileged,
}

impl Shape {
    fn needs_root(self) -> bool {
        self == Self::Everything && scratch::is_root()
    }
}

/// Fills `root` with an entry of every kind.
pub fn gallery(root: &Path, shape: Shape) {
    let mut rng = Rng::new(7);
    sizes(root, &mut rng);
    names(root);
    links(root);
    directories(root);
    modes(root, shape);
    pipes_and_devices(root, shape);
    attributes(root, shape);
    hard_links(root);
    holes(root, &mut rng);
    let scattered = scratch::dir(root, "random");
    random(&scattered, &mut rng, 60, shape);
    age(root, &mut rng);
    times(root);
    lock(root, shape);
}

/// Fills `root` with `count` seeded entries; some directories bring entries of their own.
pub fn random(root: &Path, rng: &mut Rng, count: u64, shape: Shape) {
    let mut dirs = vec![root.to_path_buf()];
    for number in 0..count {
        let Some(parent) = rng.pick(&dirs) else { return };
        let path = parent.join(name(rng, number));
        match rng.below(12) {
            0 | 1 => fs::create_dir(&path).unwrap(),
            2 => symlink(rng.pick(&dirs).map_or(Path::new("x"), PathBuf::as_path), &path).unwrap(),
            3 => pipe(&path),
            _ => file(&path, &content(rng)),
        }
        if shape.needs_root() && rng.once_in(4) {
            lchown(&path, Some(rng.below(3) as u32 * 1000), Some(rng.below(3) as u32 * 1000)).unwrap();
        }
        if (path.is_dir() || path.is_file()) && !path.is_symlink() && rng.once_in(6) {
            set_attr(&path, &format!("user.{}", rng.below(4)), &rng.next_u64().to_le_bytes());
        }
        if path.is_dir() && !path.is_symlink() {
            dirs.push(path);
        }
    }
    age(root, rng);
}

/// Fills `root` with `count` files of `len` bytes each, a hundred to a directory.
pub fn many(root: &Path, count: usize, len: usize) {
    let mut rng = Rng::new(count as u64);
    for number in 0..count {
        let dir = root.join(format!("d{:04}", number / 100));
        if number % 100 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        file(&dir.join(format!("f{number:06}")), &rng.bytes(len));
    }
}

/// Makes directories below `root` until their relative path has close to `len` bytes; returns the last one's path.
pub fn deep(root: &Path, len: usize) -> PathBuf {
    let mut path = root.to_path_buf();
    let end = root.as_os_str().len() + 1 + len;
    while path.as_os_str().len() + 1 < end {
        let name = (end - path.as_os_str().len() - 1).min(200);
        path.push("d".repeat(name));
        fs::create_dir(&path).unwrap();
    }
    path
}

/// Gives `path` a modification time; a link is not followed.
pub fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
}

pub fn file(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Makes a file that nobody has open for writing any more, not even a child that another test has just forked.
pub fn closed_file(path: &Path, content: &[u8]) {
    let mut file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(content).unwrap();
    close(file);
}

/// Closes a file that is open for writing, and returns once nobody has it open by the same descriptor.
pub fn close(file: File) {
    let closed = LastClose::of(&file);
    drop(file);
    closed.wait();
}

/// Makes files with these paths and the folders that hold them.
pub fn files(root: &Path, paths: &[&str], content: &str) {
    for path in paths {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        file(&path, content.as_bytes());
    }
}

/// Returns seeded content of a size that the engine packs, sends whole or sends in blocks.
pub fn content(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(40) {
        0..4 => 0,
        4 => PACKED - 1 + rng.below(3) as usize,
        5 => BLOCK - 1 + rng.below(3) as usize,
        6 => rng.below(3 << 20) as usize,
        7..12 => rng.below(100_000) as usize,
        _ => rng.below(3000) as usize,
    };
    rng.bytes(len)
}

/// Returns a new name with `number` in it, so that no two names are equal.
pub fn name(rng: &mut Rng, number: u64) -> PathBuf {
    let odd: [&[u8]; 6] = [b"", b" ", b"\n", b"\xff\xfe", b"'\"\\", "\u{e4}\u{1f600}".as_bytes()];
    let odd = rng.pick(&odd).copied().unwrap_or_default();
    OsStr::from_bytes(&[b"n", number.to_string().as_bytes(), odd].concat()).into()
}

fn sizes(root: &Path, rng: &mut Rng) {
    let dir = scratch::dir(root, "sizes");
    let around = |at: usize| [at - 1, at, at + 1];
    let fixed = [0, 1, 4096, 2 * BLOCK, 5 * BLOCK + 12_345];
    for len in fixed.into_iter().chain(around(PACKED)).chain(around(2 * PACKED)).chain(around(BLOCK)) {
        file(&dir.join(format!("{len}")), &rng.bytes(len));
    }
    file(&dir.join("zeros"), &vec![0; 3 * BLOCK]);
    // More than one batch of small files.
    let crowd = scratch::dir(root, "crowd");
    (0..700).for_each(|i| file(&crowd.join(format!("{i}")), &rng.bytes(i % 40)));
}

fn names(root: &Path) {
    let dir = scratch::dir(root, "names");
    let long = [b'n'; 255];
    let names: [&[u8]; 16] = [
        b"new\nline",
        b"trailing blank ",
        b" leading blank",
        b"\xff\xfe\x80",
        b"half \xc3",
        &long,
        b"-rf",
        b"*",
        b"back\\slash",
        b"...",
        b".hidden",
        b"\x01\x1b[31m",
        b"%00",
        b"Case",
        b"case",
        "\u{e4}\u{1f600}".as_bytes(),
    ];
    for name in names {
        file(&dir.join(OsStr::from_bytes(name)), name);
        fs::create_dir_all(dir.join("as directories").join(OsStr::from_bytes(name))).unwrap();
    }
    file(&deep(&scratch::dir(root, "deep"), 3800).join("file"), b"far down");
}

fn links(root: &Path) {
    let dir = scratch::dir(root, "links");
    file(&dir.join("target"), b"content");
    let far = "x/".repeat(2000) + "y";
    let links: [(&str, &[u8]); 9] = [
        ("to a file", b"target"),
        ("to a directory", b"../sizes"),
        ("to its own directory", b"."),
        ("out of the tree", b"../../../../etc/passwd"),
        ("absolute", b"/etc/passwd"),
        ("dangling", b"nowhere"),
        ("to itself", b"to itself"),
        ("not UTF-8", b"\xff\n "),
        ("far", far.as_bytes()),
    ];
    for (name, target) in links {
        match symlink(OsStr::from_bytes(target), dir.join(name)) {
            // XFS keeps targets of at most 1023 bytes.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidFilename && name == "far" => {}
            made => made.unwrap(),
        }
    }
}

fn directories(root: &Path) {
    let dir = scratch::dir(root, "directories");
    for path in ["empty", "nest/of/empty/ones", "like its own/.volferry/staging", "wide"] {
        fs::create_dir_all(dir.join(path)).unwrap();
    }
    file(&dir.join("like its own/.volferry/staging/0"), b"a user's own");
    (0..150).for_each(|i| drop(scratch::dir(&dir.join("wide"), &format!("{i}"))));
}

fn modes(root: &Path, shape: Shape) {
    let dir = scratch::dir(root, "modes");
    let mut modes = vec![0o400, 0o444, 0o600, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644];
    if shape.needs_root() {
        modes.extend([0o000, 0o077, 0o7000, 0o200]);
    }
    for mode in modes {
        let path = dir.join(format!("{mode:o}"));
        file(&path, format!("{mode:o}").as_bytes());
        set_mode(&path, mode);
    }
}

/// Gives `path` an extended attribute; a link is not followed.
pub fn set_attr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{name} of {}: {error}", path.display()));
}

/// Returns an access control list in the kernel's format, of the permissions of the owner, user 4321, the group, the
/// mask and others.
pub fn acl(perms: [u16; 5]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, (perm, id)) in
        [0x01u16, 0x02, 0x04, 0x10, 0x20].into_iter().zip(perms.map(|perm| (perm, u32::MAX)))
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(if tag == 0x02 { 4321 } else { id }.to_le_bytes());
    }
    bytes
}

/// Returns a capability set with `CAP_NET_BIND_SERVICE` in it.
pub fn capability() -> Vec<u8> {
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Makes a file of 4 MiB with some data at its start and its end, and a hole between.
pub fn sparse(path: &Path, rng: &mut Rng) {
    let file = fs::File::create(path).unwrap();
    file.write_all_at(&rng.bytes(5000), 0).unwrap();
    file.write_all_at(&rng.bytes(5000), (4 << 20) - 5000).unwrap();
}

fn holes(root: &Path, rng: &mut Rng) {
    let dir = scratch::dir(root, "holes");
    sparse(&dir.join("in the middle"), rng);
    fs::File::create(dir.join("nothing else")).unwrap().set_len(3 << 20).unwrap();
    fs::File::create(dir.join("small")).unwrap().set_len(20_000).unwrap();
    sparse(&dir.join("at the end"), rng);
    fs::OpenOptions::new().write(true).open(dir.join("at the end")).unwrap().set_len(9 << 20).unwrap();
}

fn hard_links(root: &Path) {
    let dir = scratch::dir(root, "hard links");
    fs::create_dir_all(dir.join("below/further")).unwrap();
    file(&dir.join("below/file"), b"one content");
    file(&dir.join("large"), &vec![3; 2 * BLOCK]);
    file(&dir.join("alone"), b"no other name in the tree");
    symlink("target", dir.join("symlink")).unwrap();
    pipe(&dir.join("pipe"));
    let names = [
        ("below/file", "a name before it"),
        ("below/file", "below/further/name"),
        ("below/file", "z\n\u{e4}"),
        ("large", "below/large"),
        ("symlink", "below/symlink"),
        ("pipe", "below/pipe"),
    ];
    for (file, name) in names {
        fs::hard_link(dir.join(file), dir.join(name)).unwrap();
    }
}

fn attributes(root: &Path, shape: Shape) {
    let dir = scratch::dir(root, "attributes");
    for name in ["one", "several", "large", "read only", "list", "program", "same 1", "same 2", "same 3"] {
        file(&dir.join(name), name.as_bytes());
    }
    for name in ["folder", "folder/inner", "closed folder"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    file(&dir.join("folder/inherits"), b"the list of its folder");
    set_attr(&dir.join("one"), "user.one", b"value");
    for name in ["user.empty", "user.\u{e4} b", "user.Z", "user.z", "user.not text"] {
        set_attr(&dir.join("several"), name, if name == "user.empty" { b"" } else { b"\xff\0\n" });
    }
    // A file system with blocks of 4 KiB may take no larger attribute.
    set_attr(&dir.join("large"), "user.large", &[7; 3000]);
    set_attr(&dir.join("read only"), "user.read only", b"value");
    set_mode(&dir.join("read only"), 0o444);
    (1..4).for_each(|i| set_attr(&dir.join(format!("same {i}")), "user.same", &[1; 100]));
    set_attr(&dir.join("list"), ACCESS_ACL, &acl([6, 4, 6, 4, 0]));
    set_attr(&dir.join("folder"), ACCESS_ACL, &acl([7, 5, 5, 5, 0]));
    set_attr(&dir.join("folder"), DEFAULT_ACL, &acl([7, 6, 6, 7, 1]));
    set_attr(&dir.join("folder"), "user.folder", b"value");
    file(&dir.join("folder/inherited"), b"the list of its folder");
    set_attr(&dir.join("closed folder"), "user.folder", b"value");
    set_mode(&dir.join("closed folder"), 0o555);
    if shape.needs_root() {
        set_attr(&dir.join("program"), "security.capability", &capability());
        symlink("one", dir.join("link")).unwrap();
        mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        for name in ["one", "folder", "link", "pipe"] {
            set_attr(&dir.join(name), "trusted.volferry-test", name.as_bytes());
        }
        set_attr(&dir.join("pipe"), ACCESS_ACL, &acl([6, 2, 2, 2, 0]));
    }
}

fn pipes_and_devices(root: &Path, shape: Shape) {
    let dir = scratch::dir(root, "specials");
    pipe(&dir.join("pipe"));
    if shape.needs_root() {
        for (name, kind, major, minor) in [
            ("null", FileType::CharacterDevice, 1, 3),
            ("large", FileType::CharacterDevice, 300, 70_000),
            ("block", FileType::BlockDevice, 7, 200),
        ] {
            mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o660), makedev(major, minor)).unwrap();
        }
    }
}

/// Gives `root` and every entry below it a different time.
pub fn age(root: &Path, rng: &mut Rng) {
    if root.is_dir() && !root.is_symlink() {
        let mut below: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
        // The file system chooses the order in which a directory is read; the times shall depend on the seed alone.
        below.sort();
        below.iter().for_each(|path| age(path, rng));
    }
    set_mtime(root, 1_000_000_000 + rng.below(700_000_000) as i64, rng.below(1_000_000_000) as i64);
}

fn times(root: &Path) {
    let dir = scratch::dir(root, "times");
    let times = [
        ("epoch", 0, 0),
        ("a nanosecond", 0, 1),
        ("before the epoch", -86_400, 123_456_789),
        ("last nanosecond of a second", 1_600_000_000, 999_999_999),
        ("next century", 4_200_000_000, 5),
    ];
    for (name, seconds, nanos) in times {
        let (as_file, as_link, as_dir) =
            (dir.join(name), dir.join(format!("{name}, link")), dir.join(format!("{name}, directory")));
        file(&as_file, name.as_bytes());
        symlink(name, &as_link).unwrap();
        fs::create_dir(&as_dir).unwrap();
        [as_file, as_link, as_dir].iter().for_each(|path| set_mtime(path, seconds, nanos));
    }
    set_mtime(&dir, 1_234_567_890, 1);
    set_mtime(root, -1, 999_999_999);
}

/// Makes directories that their owner cannot write to or read; called last, because nothing can be made in them later.
fn lock(root: &Path, shape: Shape) {
    let mut modes = vec![0o555, 0o500, 0o1777, 0o2775];
    if shape.needs_root() {
        modes.extend([0o000, 0o111, 0o444]);
    }
    let dir = scratch::dir(root, "locked");
    for (mode, day) in modes.into_iter().zip(1..) {
        let locked = scratch::dir(&dir, &format!("{mode:o}"));
        file(&locked.join("file"), b"in here");
        let inner = scratch::dir(&locked, "inner");
        file(&inner.join("file"), b"further in");
        set_mode(&inner, mode);
        set_mode(&locked, mode);
        set_mtime(&inner, 86_400 * day, 7);
        set_mtime(&locked, 86_400 * day, 8);
    }
}
