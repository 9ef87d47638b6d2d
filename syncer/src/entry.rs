//! One entry of a tree, and the listing of a directory: its entries sorted by name, in one canonical encoding that is
//! kept in memory, hashed for the directory's digest and sent to the peer as it is.
//!
//! `syncer/doc/wire.md` describes the encoding.

use crate::{
    attrs::{Attrs, MAX_ATTRS_BYTES},
    codec::{DecodeError, Reader, put_bytes, put_signed, put_varint},
    hash::{TreeDigest, digest},
    path::{MAX_PATH_BYTES, OWN_DIR, check_name},
};

/// The longest target of a symbolic link, in bytes.
pub const MAX_TARGET_BYTES: usize = 4096;

/// A modification time, in nanoseconds precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// User and group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The metadata that an entry of any kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// The twelve permission bits.
    pub mode: u16,
    /// Modification time.
    pub mtime: Time,
    /// User and group.
    pub owner: Owner,
}

/// What an entry is, with what only that kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A regular file of this many bytes.
    File {
        /// Length in bytes.
        size: u64,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// Where it points, verbatim.
        target: &'a [u8],
    },
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice {
        /// Major and minor as `st_rdev` has them.
        rdev: u64,
    },
    /// A block device.
    BlockDevice {
        /// Major and minor as `st_rdev` has them.
        rdev: u64,
    },
    /// One more name of a file that another entry lists with its content and metadata: that with the smallest path.
    HardLink {
        /// The path of that entry from the root of the tree.
        to: &'a [u8],
    },
    /// A socket, which is never sent: only the listings of a sink have it, so that it can be deleted or give way.
    Socket,
}

impl Kind<'_> {
    /// Whether both are of one kind, whatever their content.
    pub fn same_kind(&self, other: &Kind<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    fn code(&self) -> u8 {
        match self {
            Self::File { .. } => 0,
            Self::Dir => 1,
            Self::Symlink { .. } => 2,
            Self::Fifo => 3,
            Self::CharDevice { .. } => 4,
            Self::BlockDevice { .. } => 5,
            Self::Socket => SOCKET,
            Self::HardLink { .. } => HARD_LINK,
        }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name: raw bytes, see [`check_name`].
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind<'a>,
    /// Mode, time and owner.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: Attrs<'a>,
}

impl<'a> Entry<'a> {
    /// One more name of the file at the path `to`. It has no metadata of its own.
    pub fn hard_link(name: &'a [u8], to: &'a [u8]) -> Self {
        Self { name, kind: Kind::HardLink { to }, meta: Meta::default(), attrs: Attrs::default() }
    }
}

/// The kind that no peer sends.
const SOCKET: u8 = 6;
const HARD_LINK: u8 = 7;

const KIND_BITS: u8 = 0b0000_0111;
const SAME_MODE: u8 = 0b0000_1000;
const SAME_SECONDS: u8 = 0b0001_0000;
const WHOLE_SECONDS: u8 = 0b0010_0000;
/// A hard link takes no room for metadata.
const NO_META: u8 = SAME_MODE | SAME_SECONDS | WHOLE_SECONDS;
const KNOWN_BITS: u8 = 0b0011_1111;

/// The entries of one directory, sorted by the bytes of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// How many entries there are.
    len: u32,
    /// How many of them are directories.
    dirs: u32,
    /// Whether every entry could be read; where not, nothing may be deleted on the strength of this listing.
    complete: bool,
    entries: Box<[u8]>,
    owners: Box<[u8]>,
    attrs: Box<[u8]>,
}

impl Listing {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many of the entries are directories.
    pub fn dirs(&self) -> u32 {
        self.dirs
    }

    /// Whether every entry of the directory could be read.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The entries in order. A listing was checked when it was built or decoded, so this cannot fail.
    pub fn iter(&self) -> Entries<'_> {
        Entries {
            left: self.len,
            entries: EntryReader::new(&self.entries),
            owners: OwnerReader::new(&self.owners),
            attrs: AttrsReader::new(&self.attrs),
        }
    }

    /// What the directory itself looks like.
    pub fn digest(&self) -> TreeDigest {
        let attrs = if self.attrs.is_empty() { TreeDigest::NO_ATTRS } else { digest(&[&self.attrs]) };
        TreeDigest { entries: digest(&[&self.entries]), owners: digest(&[&self.owners]), attrs }
    }

    /// About how many bytes the encoding takes.
    pub fn encoded_len(&self) -> usize {
        self.entries.len() + self.owners.len() + self.attrs.len() + 16
    }

    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.len));
        put_varint(out, u64::from(self.dirs));
        out.push(u8::from(self.complete));
        put_bytes(out, &self.entries);
        put_bytes(out, &self.owners);
        put_bytes(out, &self.attrs);
    }

    /// Reads an encoding and checks all of it: names, order, counts.
    ///
    /// # Errors
    /// When the bytes are not a listing.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.varint32()?;
        let dirs = reader.varint32()?;
        let complete = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Invalid("a listing's flag is neither 0 nor 1")),
        };
        let entries = reader.bytes(usize::MAX)?.into();
        let owners = reader.bytes(usize::MAX)?.into();
        let attrs = reader.bytes(usize::MAX)?.into();
        let listing = Self { len, dirs, complete, entries, owners, attrs };
        listing.check()?;
        Ok(listing)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let mut entries = EntryReader::new(&self.entries);
        let mut owners = OwnerReader::new(&self.owners);
        let mut attrs = AttrsReader::new(&self.attrs);
        let mut last: Option<&[u8]> = None;
        let mut dirs = 0;
        for _ in 0..self.len {
            let entry = entries.next()?;
            owners.next()?;
            attrs.next_checked()?;
            if entry.kind == Kind::Socket {
                return Err(DecodeError::Invalid("a socket was sent"));
            }
            if last.is_some_and(|last| last >= entry.name) {
                return Err(DecodeError::Invalid("a listing's names are not in order"));
            }
            dirs += u32::from(entry.kind == Kind::Dir);
            last = Some(entry.name);
        }
        if dirs != self.dirs {
            return Err(DecodeError::Invalid("a listing's count of directories is wrong"));
        }
        entries.reader.finish()?;
        owners.finish()?;
        attrs.finish()
    }
}

impl<'a> IntoIterator for &'a Listing {
    type Item = Entry<'a>;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

/// Builds a [`Listing`]. Entries are pushed in the order of their names.
#[derive(Debug, Default)]
pub struct ListingBuilder {
    len: u32,
    dirs: u32,
    incomplete: bool,
    entries: Vec<u8>,
    owners: Vec<u8>,
    last_mode: u16,
    last_seconds: i64,
    run: Option<(Owner, u64)>,
    attrs: Vec<u8>,
    last_attrs: Vec<u8>,
    /// How many entries have no attributes since the last one that has.
    bare: u64,
}

impl ListingBuilder {
    /// Appends an entry, whose name must come after the last one's.
    pub fn push(&mut self, entry: &Entry<'_>) {
        if let Kind::HardLink { to } = entry.kind {
            return self.push_link(entry.name, to);
        }
        let Meta { mode, mtime, owner } = entry.meta;
        let mut flags = entry.kind.code();
        flags |= if mode == self.last_mode { SAME_MODE } else { 0 };
        flags |= if mtime.seconds == self.last_seconds { SAME_SECONDS } else { 0 };
        flags |= if mtime.nanos == 0 { WHOLE_SECONDS } else { 0 };
        let out = &mut self.entries;
        out.push(flags);
        out.push(entry.name.len() as u8);
        out.extend_from_slice(entry.name);
        if flags & SAME_MODE == 0 {
            put_varint(out, u64::from(mode));
        }
        if flags & SAME_SECONDS == 0 {
            put_signed(out, mtime.seconds.wrapping_sub(self.last_seconds));
        }
        if flags & WHOLE_SECONDS == 0 {
            put_varint(out, u64::from(mtime.nanos));
        }
        match entry.kind {
            Kind::File { size } => put_varint(out, size),
            Kind::Symlink { target } => put_bytes(out, target),
            Kind::CharDevice { rdev } | Kind::BlockDevice { rdev } => put_varint(out, rdev),
            Kind::Dir | Kind::Fifo | Kind::Socket | Kind::HardLink { .. } => {}
        }
        (self.last_mode, self.last_seconds) = (mode, mtime.seconds);
        self.len += 1;
        self.dirs += u32::from(entry.kind == Kind::Dir);
        self.push_owner(owner);
        self.push_attrs(entry.attrs);
    }

    fn push_link(&mut self, name: &[u8], to: &[u8]) {
        self.entries.push(HARD_LINK | NO_META);
        self.entries.push(name.len() as u8);
        self.entries.extend_from_slice(name);
        put_bytes(&mut self.entries, to);
        self.len += 1;
        // It goes on with the run of owners that it is in.
        self.push_owner(self.run.map_or_else(Owner::default, |(owner, _)| owner));
        self.push_attrs(Attrs::default());
    }

    /// How many entries there are so far.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Says that the directory has entries that could not be read.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// The listing, with no spare memory.
    pub fn finish(mut self) -> Listing {
        self.end_run();
        Listing {
            len: self.len,
            dirs: self.dirs,
            complete: !self.incomplete,
            entries: self.entries.into(),
            owners: self.owners.into(),
            attrs: self.attrs.into(),
        }
    }

    fn push_attrs(&mut self, attrs: Attrs<'_>) {
        if attrs.is_empty() {
            self.bare += 1;
            return;
        }
        put_varint(&mut self.attrs, std::mem::take(&mut self.bare));
        if attrs.bytes() == self.last_attrs {
            self.attrs.push(0);
            return;
        }
        put_bytes(&mut self.attrs, attrs.bytes());
        self.last_attrs.clear();
        self.last_attrs.extend_from_slice(attrs.bytes());
    }

    fn push_owner(&mut self, owner: Owner) {
        match &mut self.run {
            Some((same, count)) if *same == owner => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((owner, 1));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((owner, count)) = self.run.take() {
            put_varint(&mut self.owners, count);
            put_varint(&mut self.owners, u64::from(owner.uid));
            put_varint(&mut self.owners, u64::from(owner.gid));
        }
    }
}

/// Iterator over a [`Listing`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    left: u32,
    entries: EntryReader<'a>,
    owners: OwnerReader<'a>,
    attrs: AttrsReader<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut entry = self.entries.next().ok()?;
        let owner = self.owners.next().ok()?;
        let attrs = self.attrs.next().ok()?;
        if !matches!(entry.kind, Kind::HardLink { .. }) {
            (entry.meta.owner, entry.attrs) = (owner, attrs);
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

#[derive(Debug, Clone)]
struct EntryReader<'a> {
    reader: Reader<'a>,
    last_mode: u16,
    last_seconds: i64,
}

impl<'a> EntryReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), last_mode: 0, last_seconds: 0 }
    }

    /// The next entry, its owner left at 0 and without attributes.
    fn next(&mut self) -> Result<Entry<'a>, DecodeError> {
        let reader = &mut self.reader;
        let flags = reader.byte()?;
        if flags & !KNOWN_BITS != 0 {
            return Err(DecodeError::Invalid("an entry has a flag that this version does not know"));
        }
        if flags & KIND_BITS == HARD_LINK && flags & NO_META != NO_META {
            return Err(DecodeError::Invalid("a hard link has metadata of its own"));
        }
        let len = reader.byte()?;
        let name = reader.take(usize::from(len))?;
        check_name(name).map_err(|_| DecodeError::Invalid("an entry's name is not a name"))?;
        if flags & SAME_MODE == 0 {
            let mode = reader.varint()?;
            if mode > 0o7777 {
                return Err(DecodeError::Invalid("a mode has more than the permission bits"));
            }
            self.last_mode = mode as u16;
        }
        if flags & SAME_SECONDS == 0 {
            self.last_seconds = self.last_seconds.wrapping_add(reader.signed()?);
        }
        let nanos = if flags & WHOLE_SECONDS == 0 { reader.varint32()? } else { 0 };
        if nanos > 999_999_999 {
            return Err(DecodeError::Invalid("a time has more than a second of nanoseconds"));
        }
        let kind = read_kind(flags & KIND_BITS, reader)?;
        if let Kind::HardLink { to } = kind {
            return Ok(Entry::hard_link(name, to));
        }
        let mtime = Time { seconds: self.last_seconds, nanos };
        let meta = Meta { mode: self.last_mode, mtime, owner: Owner::default() };
        Ok(Entry { name, kind, meta, attrs: Attrs::default() })
    }
}

fn read_kind<'a>(code: u8, reader: &mut Reader<'a>) -> Result<Kind<'a>, DecodeError> {
    Ok(match code {
        0 => match reader.varint()? {
            size if size <= i64::MAX as u64 => Kind::File { size },
            _ => return Err(DecodeError::Invalid("a file's size is beyond what a file can have")),
        },
        1 => Kind::Dir,
        2 => match reader.bytes(MAX_TARGET_BYTES)? {
            target if target.is_empty() || target.contains(&0) => {
                return Err(DecodeError::Invalid("a link's target is empty or holds a NUL byte"));
            }
            target => Kind::Symlink { target },
        },
        3 => Kind::Fifo,
        4 => Kind::CharDevice { rdev: reader.varint()? },
        5 => Kind::BlockDevice { rdev: reader.varint()? },
        SOCKET => Kind::Socket,
        HARD_LINK => Kind::HardLink { to: read_link_path(reader)? },
        _ => return Err(DecodeError::Invalid("an entry is of a kind that this version does not know")),
    })
}

/// A path from the root, that does not lead into Volferry's own folder.
fn read_link_path<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let to = reader.bytes(MAX_PATH_BYTES)?;
    let mut names = to.split(|&byte| byte == b'/').peekable();
    if names.peek() == Some(&OWN_DIR) || !names.all(|name| check_name(name).is_ok()) {
        return Err(DecodeError::Invalid("a hard link leads to what is not a path in the tree"));
    }
    Ok(to)
}

#[derive(Debug, Clone)]
struct OwnerReader<'a> {
    reader: Reader<'a>,
    owner: Owner,
    left: u64,
}

impl<'a> OwnerReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), owner: Owner::default(), left: 0 }
    }

    fn next(&mut self) -> Result<Owner, DecodeError> {
        if self.left == 0 {
            self.left = self.reader.varint()?;
            self.owner = Owner { uid: self.reader.varint32()?, gid: self.reader.varint32()? };
        }
        self.left = self.left.checked_sub(1).ok_or(DecodeError::Invalid("a run of owners is empty"))?;
        Ok(self.owner)
    }

    fn finish(self) -> Result<(), DecodeError> {
        match self.left {
            0 => self.reader.finish(),
            _ => Err(DecodeError::Trailing),
        }
    }
}

/// Reads the attributes of the entries that have any: how many entries before it have none, then its own, or nothing where they are
/// those of the last one that has some.
#[derive(Debug, Clone)]
struct AttrsReader<'a> {
    reader: Reader<'a>,
    /// Entries until the next one that has some.
    bare: Option<u64>,
    last: &'a [u8],
}

impl<'a> AttrsReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), bare: None, last: &[] }
    }

    fn next(&mut self) -> Result<Attrs<'a>, DecodeError> {
        if self.bare.is_none() {
            if self.reader.is_empty() {
                return Ok(Attrs::default());
            }
            self.bare = Some(self.reader.varint()?);
        }
        self.bare = match self.bare {
            Some(0) => None,
            Some(bare) => {
                self.bare = Some(bare - 1);
                return Ok(Attrs::default());
            }
            None => None,
        };
        let own = self.reader.bytes(MAX_ATTRS_BYTES)?;
        if !own.is_empty() {
            self.last = own;
        } else if self.last.is_empty() {
            return Err(DecodeError::Invalid("an entry has the attributes of none before it"));
        }
        Ok(Attrs::trusted(self.last))
    }

    fn finish(self) -> Result<(), DecodeError> {
        match self.bare {
            None => self.reader.finish(),
            Some(_) => Err(DecodeError::Trailing),
        }
    }

    /// The same for bytes of a peer.
    fn next_checked(&mut self) -> Result<(), DecodeError> {
        let before = self.last;
        let attrs = self.next()?;
        let repeated = std::ptr::eq(before, self.last);
        if !attrs.is_empty() && !repeated {
            Attrs::decode(attrs.bytes())?;
        }
        Ok(())
    }
}

/// Appends the metadata of a single entry, such as the root directory's.
pub fn put_meta(out: &mut Vec<u8>, meta: &Meta) {
    put_varint(out, u64::from(meta.mode));
    put_signed(out, meta.mtime.seconds);
    put_varint(out, u64::from(meta.mtime.nanos));
    put_varint(out, u64::from(meta.owner.uid));
    put_varint(out, u64::from(meta.owner.gid));
}

/// Reads what [`put_meta`] wrote.
///
/// # Errors
/// When a field is out of its range.
pub fn read_meta(reader: &mut Reader<'_>) -> Result<Meta, DecodeError> {
    let mode = reader.varint()?;
    let mtime = Time { seconds: reader.signed()?, nanos: reader.varint32()? };
    let owner = Owner { uid: reader.varint32()?, gid: reader.varint32()? };
    if mode > 0o7777 || mtime.nanos > 999_999_999 {
        return Err(DecodeError::Invalid("a mode or a time is out of range"));
    }
    Ok(Meta { mode: mode as u16, mtime, owner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::put_attr;

    fn meta(mode: u16, seconds: i64, nanos: u32, uid: u32) -> Meta {
        Meta { mode, mtime: Time { seconds, nanos }, owner: Owner { uid, gid: 7 } }
    }

    const NONE: Attrs<'static> = Attrs::trusted(&[]);

    fn sample() -> Vec<Entry<'static>> {
        vec![
            Entry {
                name: b"a\xff\n",
                kind: Kind::File { size: 1 << 40 },
                meta: meta(0o644, -5, 1, 0),
                attrs: NONE,
            },
            Entry { name: b"b", kind: Kind::Dir, meta: meta(0o755, -5, 0, 0), attrs: NONE },
            Entry {
                name: b"c",
                kind: Kind::Symlink { target: b"../x" },
                meta: meta(0o777, 1 << 40, 9, 1000),
                attrs: NONE,
            },
            Entry { name: b"d", kind: Kind::Fifo, meta: meta(0o600, 3, 999_999_999, 1000), attrs: NONE },
            Entry {
                name: b"e",
                kind: Kind::CharDevice { rdev: 0x0103 },
                meta: meta(0o600, 3, 0, 0),
                attrs: NONE,
            },
            Entry {
                name: b"f",
                kind: Kind::BlockDevice { rdev: 8 },
                meta: meta(0o7777, 3, 0, u32::MAX),
                attrs: NONE,
            },
            Entry::hard_link(b"g", b"a\xff\n"),
            Entry { name: b"h", kind: Kind::Fifo, meta: meta(0o7777, 3, 0, u32::MAX), attrs: NONE },
        ]
    }

    fn listing(entries: &[Entry<'_>]) -> Listing {
        let mut builder = ListingBuilder::default();
        entries.iter().for_each(|entry| builder.push(entry));
        builder.finish()
    }

    fn encoded(listing: &Listing) -> Vec<u8> {
        let mut out = Vec::new();
        listing.encode(&mut out);
        out
    }

    #[test]
    fn a_socket_is_listed_at_home_and_refused_from_a_peer() {
        let listing =
            listing(&[Entry { name: b"s", kind: Kind::Socket, meta: meta(0o755, 1, 1, 1), attrs: NONE }]);
        assert_eq!(listing.iter().next().unwrap().kind, Kind::Socket);
        assert!(Listing::decode(&mut Reader::new(&encoded(&listing))).is_err());
    }

    #[test]
    fn entries_of_every_kind_survive_the_trip() {
        let built = listing(&sample());
        let bytes = encoded(&built);
        let mut reader = Reader::new(&bytes);
        let decoded = Listing::decode(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(decoded, built);
        assert_eq!(decoded.iter().collect::<Vec<_>>(), sample());
        assert_eq!(decoded.dirs(), 1);
    }

    #[test]
    fn attributes_are_written_once_for_entries_that_follow_one_another() {
        let mut some = Vec::new();
        put_attr(&mut some, b"user.some", &[7; 200]);
        let mut other = Vec::new();
        put_attr(&mut other, b"user.other", b"");
        let (some, other) = (Attrs::trusted(&some), Attrs::trusted(&other));
        let mut entries = sample();
        for (at, attrs) in [(1, some), (2, some), (4, some), (5, other)] {
            entries[at].attrs = attrs;
        }
        let built = listing(&entries);
        assert!(built.attrs.len() < 240, "{} bytes", built.attrs.len());
        assert_eq!(built.iter().collect::<Vec<_>>(), entries);
        let bytes = encoded(&built);
        assert_eq!(Listing::decode(&mut Reader::new(&bytes)), Ok(built.clone()));
        for end in 0..bytes.len() {
            assert!(Listing::decode(&mut Reader::new(&bytes[..end])).is_err(), "cut at {end}");
        }
        let bare = listing(&sample()).digest();
        assert_eq!((built.digest().entries, built.digest().owners), (bare.entries, bare.owners));
        assert_eq!(bare.attrs, TreeDigest::NO_ATTRS);
        assert_ne!(built.digest().attrs, bare.attrs);
    }

    #[test]
    fn attributes_of_a_kind_that_is_not_synced_are_refused() {
        let mut label = Vec::new();
        put_attr(&mut label, b"security.selinux", b"label");
        let mut entries = sample();
        entries[1].attrs = Attrs::trusted(&label);
        let bytes = encoded(&listing(&entries));
        assert!(Listing::decode(&mut Reader::new(&bytes)).is_err());
    }

    #[test]
    fn names_out_of_order_are_refused() {
        let mut entries = sample();
        entries.swap(0, 1);
        let bytes = encoded(&listing(&entries));
        let error = Listing::decode(&mut Reader::new(&bytes)).unwrap_err();
        assert_eq!(error, DecodeError::Invalid("a listing's names are not in order"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b".."[..], b"", b"a/b", b"a\0"] {
            let bytes = encoded(&listing(&[Entry { name, ..sample()[1] }]));
            let error = Listing::decode(&mut Reader::new(&bytes)).unwrap_err();
            assert_eq!(error, DecodeError::Invalid("an entry's name is not a name"));
        }
    }

    #[test]
    fn hard_links_that_lead_elsewhere_are_refused() {
        for to in [&b""[..], b"/etc/passwd", b"a/../../b", b"a//b", b".volferry/lock", b"a\0", &[b'a'; 4097]]
        {
            let bytes = encoded(&listing(&[Entry::hard_link(b"l", to)]));
            assert!(Listing::decode(&mut Reader::new(&bytes)).is_err(), "{}", to.escape_ascii());
        }
        let bytes = encoded(&listing(&[Entry::hard_link(b"l", b"a/.volferry/lock")]));
        assert!(Listing::decode(&mut Reader::new(&bytes)).is_ok());
    }

    #[test]
    fn a_listing_cut_anywhere_is_refused() {
        let bytes = encoded(&listing(&sample()));
        for end in 0..bytes.len() {
            assert!(Listing::decode(&mut Reader::new(&bytes[..end])).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_flipped_bit_never_panics() {
        let bytes = encoded(&listing(&sample()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(listing) = Listing::decode(&mut Reader::new(&damaged)) {
                assert_eq!(listing.iter().count(), listing.len());
            }
        }
    }
}
