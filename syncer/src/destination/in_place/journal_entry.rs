//! An entry of the journal: how a file that is written in place gets from its old content to its new one.
//!
//! An entry is one file. Its new bytes have the offsets that they have in the target, and the rest up to the target's
//! new length is a hole; a table and a trailer follow. `syncer/doc/format.md` describes the format.

use std::{io, os::fd::BorrowedFd};

use blake3::Hasher;

use crate::{
    attrs::{Attrs, AttrsBuf},
    codec::{DecodeError, Reader, put_bytes, put_signed, put_varint},
    destination::{
        copy_bytes::read_exact_at,
        destination_error::JournalError,
        staging::byte_ranges::{RangeChange, Ranges},
        state::staging_names::part_key,
    },
    entry::{Owner, Time},
    kept_xattrs::Classes,
    path::{MAX_PATH_BYTES, OWN_DIR, RelPath},
};

/// The magic bytes at the end of every entry.
const MAGIC: &[u8; 8] = b"VFREDO\0\x01";

/// The length of the table, its hash, and [`MAGIC`].
const TRAILER_BYTES: usize = 4 + 32 + MAGIC.len();

/// A table of a million ranges, the most that a file of 1 TiB can have, takes a tenth of this.
const MAX_TABLE_BYTES: usize = 64 << 20;

/// The number of bytes that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The update of a file: the changes to its content, and the metadata that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The file.
    pub path: RelPath,
    /// Its inode number: a file with another number has taken its place, and is left alone.
    pub inode: u64,
    /// Its new length.
    pub len: u64,
    /// Its twelve permission bits.
    pub mode: u16,
    /// Its owner, where it is set.
    pub owner: Option<Owner>,
    /// Its modification time, where it is set.
    pub mtime: Option<Time>,
    /// Its extended attributes, where they are set.
    pub attrs: Option<AttrsOf>,
    /// The ranges that change.
    pub(crate) ranges: Ranges,
    /// BLAKE3 of the new bytes, in their order.
    pub content: [u8; 32],
}

/// All extended attributes of some kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttrsOf {
    /// The kinds.
    pub classes: Classes,
    /// The attributes.
    pub attrs: AttrsBuf,
}

const HAS_OWNER: u8 = 1;
const HAS_MTIME: u8 = 2;
const HAS_ATTRS: u8 = 4;

impl JournalEntry {
    /// Encodes the table and the trailer, which follow the content in an entry.
    ///
    /// # Errors
    /// When there are more ranges than an entry can have.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.path.as_bytes());
        put_varint(&mut out, self.inode);
        put_varint(&mut out, self.mode.into());
        let flags = [
            (self.owner.is_some(), HAS_OWNER),
            (self.mtime.is_some(), HAS_MTIME),
            (self.attrs.is_some(), HAS_ATTRS),
        ];
        out.push(flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag));
        if let Some(owner) = self.owner {
            put_varint(&mut out, owner.uid.into());
            put_varint(&mut out, owner.gid.into());
        }
        if let Some(mtime) = self.mtime {
            put_signed(&mut out, mtime.seconds);
            put_varint(&mut out, mtime.nanos.into());
        }
        if let Some(AttrsOf { classes, attrs }) = &self.attrs {
            out.push(classes.bits());
            put_bytes(&mut out, attrs.as_attrs().bytes());
        }
        out.extend_from_slice(&self.content);
        put_varint(&mut out, self.ranges.len() as u64);
        let mut at = 0;
        for (range, change) in self.ranges.iter() {
            put_varint(&mut out, range.start - at);
            put_varint(&mut out, (range.end - range.start) << 1 | u64::from(change == RangeChange::Hole));
            at = range.end;
        }
        if out.len() > MAX_TABLE_BYTES {
            return Err(io::Error::other("it has too many changes to be written in place"));
        }
        let hash = blake3::hash(&out);
        let table_len = out.len() as u32;
        out.extend_from_slice(&table_len.to_le_bytes());
        out.extend_from_slice(hash.as_bytes());
        out.extend_from_slice(MAGIC);
        Ok(out)
    }

    /// Decodes a table, without the trailer, of an entry with `len` bytes of content. Allocates no more than the table
    /// holds.
    ///
    /// [`JournalError::Damaged`] where the table is not valid.
    pub fn decode(table: &[u8], len: u64) -> Result<Self, JournalError> {
        let mut reader = Reader::new(table);
        let path = read_path(&mut reader).ok_or(JournalError::Damaged("it names no file"))?;
        let inode = reader.varint()?;
        let mode = u16::try_from(reader.varint()?).ok().filter(|mode| *mode <= 0o7777);
        let mode = mode.ok_or(JournalError::Damaged("a mode is not valid"))?;
        let flags = reader.byte()?;
        if flags > HAS_OWNER | HAS_MTIME | HAS_ATTRS {
            return Err(JournalError::Damaged("a flag is unknown"));
        }
        let owner = match flags & HAS_OWNER {
            0 => None,
            _ => Some(Owner { uid: reader.varint32()?, gid: reader.varint32()? }),
        };
        let mtime = match flags & HAS_MTIME {
            0 => None,
            _ => Some(read_time(&mut reader)?),
        };
        let attrs = match flags & HAS_ATTRS {
            0 => None,
            _ => Some(read_attrs(&mut reader)?),
        };
        let content = reader.array()?;
        let ranges = read_ranges(&mut reader, len)?;
        if reader.is_empty() {
            Ok(Self { path, inode, len, mode, owner, mtime, attrs, ranges, content })
        } else {
            Err(JournalError::Damaged("there is data after its table"))
        }
    }

    /// Reads an entry of `size` bytes and checks its content against its hash.
    pub(crate) fn read(entry: BorrowedFd<'_>, size: u64) -> Result<Self, JournalError> {
        let trailer = read_trailer(entry, size)?;
        let redo = Self::decode(&read_table(entry, &trailer)?, trailer.content_len)?;
        if hash_content(entry, &redo.ranges)? == redo.content {
            Ok(redo)
        } else {
            Err(JournalError::Damaged("its content is not what was written"))
        }
    }
}

/// Returns the path of the file that a damaged entry belongs to, if it can still be read. The path is checked against
/// the entry's name, which is a hash of it.
pub(crate) fn path_of_damaged(entry: BorrowedFd<'_>, size: u64, key: &str) -> Option<RelPath> {
    let trailer = read_trailer(entry, size).ok()?;
    let mut start = vec![0; trailer.table_len.min(2 * MAX_PATH_BYTES)];
    read_exact_at(entry, &mut start, trailer.content_len).ok()?;
    read_path(&mut Reader::new(&start)).filter(|path| part_key(path) == key)
}

/// Returns the BLAKE3 hash of the new bytes in an entry.
pub(crate) fn hash_content(entry: BorrowedFd<'_>, ranges: &Ranges) -> io::Result<[u8; 32]> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    for (range, _) in ranges.iter().filter(|(_, change)| *change == RangeChange::Data) {
        let mut at = range.start;
        while at < range.end {
            let most = usize::try_from(range.end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            read_exact_at(entry, &mut buffer[..most], at)?;
            hasher.update(&buffer[..most]);
            at += most as u64;
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

struct Trailer {
    table_len: usize,
    hash: [u8; 32],
    /// The number of bytes before the table.
    content_len: u64,
}

fn read_trailer(entry: BorrowedFd<'_>, size: u64) -> Result<Trailer, JournalError> {
    const SHORT: JournalError = JournalError::Damaged("its end is missing");
    let mut bytes = [0; TRAILER_BYTES];
    let before = size.checked_sub(bytes.len() as u64).ok_or(SHORT)?;
    read_exact_at(entry, &mut bytes, before)?;
    let mut reader = Reader::new(&bytes);
    let table_len = u32::from_le_bytes(reader.array()?) as usize;
    let hash = reader.array()?;
    if reader.array()? != *MAGIC || table_len > MAX_TABLE_BYTES {
        return Err(SHORT);
    }
    let content_len = before.checked_sub(table_len as u64).ok_or(SHORT)?;
    Ok(Trailer { table_len, hash, content_len })
}

fn read_table(entry: BorrowedFd<'_>, trailer: &Trailer) -> Result<Vec<u8>, JournalError> {
    let mut table = vec![0; trailer.table_len];
    read_exact_at(entry, &mut table, trailer.content_len)?;
    if blake3::hash(&table).as_bytes() == &trailer.hash {
        Ok(table)
    } else {
        Err(JournalError::Damaged("its table is not what was written"))
    }
}

fn read_path(reader: &mut Reader<'_>) -> Option<RelPath> {
    let len = usize::try_from(reader.varint().ok()?).ok()?;
    RelPath::parse(reader.take(len).ok()?)
        .ok()
        .filter(|path| path.names().next().is_some_and(|first| first != OWN_DIR))
}

fn read_time(reader: &mut Reader<'_>) -> Result<Time, JournalError> {
    let time = Time { seconds: reader.signed()?, nanos: reader.varint32()? };
    if time.nanos < 1_000_000_000 { Ok(time) } else { Err(JournalError::Damaged("a time is not valid")) }
}

fn read_attrs(reader: &mut Reader<'_>) -> Result<AttrsOf, JournalError> {
    let classes = Classes::from_bits(reader.byte()?).ok_or(JournalError::Damaged("a kind is unknown"))?;
    let len = usize::try_from(reader.varint()?).map_err(|_| DecodeError::Overflow)?;
    Ok(AttrsOf { classes, attrs: Attrs::decode(reader.take(len)?)?.into() })
}

fn read_ranges(reader: &mut Reader<'_>, len: u64) -> Result<Ranges, JournalError> {
    let mut ranges = Ranges::default();
    let mut at = 0_u64;
    for _ in 0..reader.varint()? {
        let gap = reader.varint()?;
        let word = reader.varint()?;
        let start = at.checked_add(gap);
        let end = start.and_then(|start| start.checked_add(word >> 1)).filter(|end| *end <= len);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(JournalError::Damaged("a range is beyond the end"));
        };
        if start == end {
            return Err(JournalError::Damaged("a range is empty"));
        }
        ranges.set(start..end, if word & 1 == 1 { RangeChange::Hole } else { RangeChange::Data });
        at = end;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd as _, unix::fs::FileExt as _};

    use proptest::prelude::*;

    use super::*;
    use crate::attrs::put_attr;

    const LEN: u64 = 1 << 20;

    fn example() -> JournalEntry {
        let mut ranges = Ranges::default();
        ranges.set(10..20, RangeChange::Data);
        ranges.set(20..4096, RangeChange::Hole);
        ranges.set(LEN - 3..LEN, RangeChange::Data);
        let mut attrs = Vec::new();
        put_attr(&mut attrs, b"user.a", b"value");
        JournalEntry {
            path: RelPath::parse(b"d/file").unwrap(),
            inode: 77,
            len: LEN,
            mode: 0o4711,
            owner: Some(Owner { uid: 1000, gid: u32::MAX }),
            mtime: Some(Time { seconds: -5, nanos: 999_999_999 }),
            attrs: Some(AttrsOf { classes: Classes::ALL, attrs: Attrs::decode(&attrs).unwrap().into() }),
            ranges,
            content: [7; 32],
        }
    }

    /// Writes an entry with its content to a file. Returns it with its size.
    fn entry(redo: &JournalEntry) -> (std::fs::File, u64) {
        let file = tempfile::tempfile().unwrap();
        for (range, _) in redo.ranges.iter().filter(|(_, change)| *change == RangeChange::Data) {
            file.write_all_at(&vec![range.start as u8; (range.end - range.start) as usize], range.start)
                .unwrap();
        }
        let content = hash_content(file.as_fd(), &redo.ranges).unwrap();
        let end = JournalEntry { content, ..redo.clone() }.encode().unwrap();
        file.write_all_at(&end, LEN).unwrap();
        (file, LEN + end.len() as u64)
    }

    #[test]
    fn what_is_written_is_read() {
        for redo in [
            example(),
            JournalEntry { owner: None, mtime: None, attrs: None, ranges: Ranges::default(), ..example() },
        ] {
            let (file, size) = entry(&redo);
            let read = JournalEntry::read(file.as_fd(), size).unwrap();
            assert_eq!(JournalEntry { content: redo.content, ..read }, redo);
        }
    }

    #[test]
    fn no_damage_goes_unseen_and_the_file_can_mostly_be_named() {
        let redo = example();
        let key = part_key(&redo.path);
        let (_, size) = entry(&redo);
        for at in (10..20).chain(LEN - 3..size) {
            let (file, _) = entry(&redo);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(
                matches!(JournalEntry::read(file.as_fd(), size), Err(JournalError::Damaged(_))),
                "byte {at}"
            );
            let named = path_of_damaged(file.as_fd(), size, &key);
            let lies_in_path = (LEN..LEN + 1 + redo.path.as_bytes().len() as u64).contains(&at);
            let lies_in_trailer = at >= size - TRAILER_BYTES as u64;
            assert!(named.as_ref() == Some(&redo.path) || lies_in_path || lies_in_trailer, "byte {at}");
        }
        for len in [0, 1, size / 2, size - 1] {
            let (file, _) = entry(&redo);
            file.set_len(len).unwrap();
            assert!(
                matches!(JournalEntry::read(file.as_fd(), len), Err(JournalError::Damaged(_))),
                "cut to {len}"
            );
        }
    }

    #[test]
    fn nothing_beyond_the_length_or_outside_of_the_destination_is_written_to() {
        let table = |redo: &JournalEntry| {
            let mut out = redo.encode().unwrap();
            out.truncate(out.len() - TRAILER_BYTES);
            out
        };
        let good = table(&example());
        assert!(JournalEntry::decode(&good, LEN).is_ok());
        assert!(JournalEntry::decode(&good, LEN - 1).is_err());
        for path in ["../file", "/etc/passwd", "d//x", ""] {
            let mut bad = Vec::new();
            put_bytes(&mut bad, path.as_bytes());
            bad.extend_from_slice(&good[1 + "d/file".len()..]);
            assert!(JournalEntry::decode(&bad, LEN).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, len: u64) {
            let _ = JournalEntry::decode(&bytes, len);
        }

        #[test]
        fn a_changed_table_is_refused_or_read_within_its_length(at: prop::sample::Index, byte: u8) {
            let mut table = example().encode().unwrap();
            table.truncate(table.len() - TRAILER_BYTES);
            let at = at.index(table.len());
            table[at] = byte;
            if let Ok(redo) = JournalEntry::decode(&table, LEN) {
                prop_assert!(redo.ranges.iter().all(|(range, _)| range.end <= LEN));
            }
        }
    }
}
