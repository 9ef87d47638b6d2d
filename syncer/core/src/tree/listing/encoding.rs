//! A [`Listing`]: the sorted entries of one directory, encoded.

use bytes::Bytes;

use super::read::{AttrsReader, Entries, EntryReader, OwnerReader};
use crate::{
    codec::{DecodeError, Reader, put_varint},
    hash::{TreeDigest, digest},
    tree::entry::{Entry, Kind},
};

/// The entries of one directory, sorted by the bytes of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The number of entries.
    pub(super) len: u32,
    /// The number of directories among them.
    pub(super) dirs: u32,
    /// Whether every entry could be read. If not, no entry may be deleted for missing in this listing.
    pub(super) complete: bool,
    /// Entries, owners and attributes, one behind the other; a large listing from the peer shares the received bytes.
    pub(super) bytes: Bytes,
    pub(super) owners_at: usize,
    pub(super) attrs_at: usize,
}

impl Listing {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of directories among the entries.
    pub fn dirs(&self) -> u32 {
        self.dirs
    }

    /// Returns whether every entry of the directory could be read.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    fn entries(&self) -> &[u8] {
        &self.bytes[..self.owners_at]
    }

    fn owners(&self) -> &[u8] {
        &self.bytes[self.owners_at..self.attrs_at]
    }

    fn attrs(&self) -> &[u8] {
        &self.bytes[self.attrs_at..]
    }

    /// Returns the entries in order. A listing was checked when it was built or decoded, so this cannot fail.
    pub fn iter(&self) -> Entries<'_> {
        Entries {
            left: self.len,
            entries: EntryReader::new(self.entries()),
            owners: OwnerReader::new(self.owners()),
            attrs: AttrsReader::new(self.attrs()),
        }
    }

    /// Returns the digest of the directory itself, without its subdirectories.
    pub fn digest(&self) -> TreeDigest {
        let attrs = if self.attrs().is_empty() { TreeDigest::NO_ATTRS } else { digest(&[self.attrs()]) };
        TreeDigest { entries: digest(&[self.entries()]), owners: digest(&[self.owners()]), attrs }
    }

    /// Returns the approximate length of the encoding, in bytes.
    pub fn encoded_len(&self) -> usize {
        self.bytes.len() + 16
    }

    /// Returns the encoding without its head.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        out.extend_from_slice(&self.bytes);
    }

    /// Appends the part of the encoding before [`Self::bytes`].
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.len));
        put_varint(out, u64::from(self.dirs));
        out.push(u8::from(self.complete));
        for part in [self.entries(), self.owners(), self.attrs()] {
            put_varint(out, part.len() as u64);
        }
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
        let owners_at = reader.length()?;
        let attrs_at = owners_at.checked_add(reader.length()?).ok_or(DecodeError::Overflow)?;
        let end = attrs_at.checked_add(reader.length()?).ok_or(DecodeError::Overflow)?;
        let listing = Self { len, dirs, complete, bytes: reader.shared(end)?, owners_at, attrs_at };
        listing.check()?;
        Ok(listing)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let mut entries = EntryReader::new(self.entries());
        let mut owners = OwnerReader::new(self.owners());
        let mut attrs = AttrsReader::new(self.attrs());
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

#[cfg(test)]
mod tests {
    use super::{super::build::ListingBuilder, *};
    use crate::tree::{
        attrs::{Attrs, put_attr},
        entry::{Meta, Owner, Time},
    };

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
        assert!(built.attrs().len() < 240, "{} bytes", built.attrs().len());
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
        put_attr(&mut label, b"security.ima", b"label");
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
