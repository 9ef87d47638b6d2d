//! Reads a [`Listing`](super::Listing), a peer's or this process's own.

use super::layout::{
    HARD_LINK, KIND_BITS, KNOWN_BITS, NO_META, SAME_MODE, SAME_SECONDS, SOCKET, WHOLE_SECONDS,
};
use crate::{
    codec::{DecodeError, Reader},
    tree::{
        attrs::{Attrs, MAX_ATTRS_BYTES},
        entry::{Entry, Kind, MAX_TARGET_BYTES, Meta, Owner, Time},
        path::{MAX_PATH_BYTES, OWN_DIR, check_name},
    },
};

/// Iterates over a [`Listing`](super::Listing).
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    pub(super) left: u32,
    pub(super) entries: EntryReader<'a>,
    pub(super) owners: OwnerReader<'a>,
    pub(super) attrs: AttrsReader<'a>,
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
pub(super) struct EntryReader<'a> {
    pub(super) reader: Reader<'a>,
    last_mode: u16,
    last_seconds: i64,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), last_mode: 0, last_seconds: 0 }
    }

    /// Reads the next entry, with owner 0 and without attributes.
    pub(super) fn next(&mut self) -> Result<Entry<'a>, DecodeError> {
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

/// Reads a path from the root that does not lead into Volferry's own folder.
fn read_link_path<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let to = reader.bytes(MAX_PATH_BYTES)?;
    let mut names = to.split(|&byte| byte == b'/').peekable();
    if names.peek() == Some(&OWN_DIR) || !names.all(|name| check_name(name).is_ok()) {
        return Err(DecodeError::Invalid("a hard link leads to a path outside of the tree"));
    }
    Ok(to)
}

#[derive(Debug, Clone)]
pub(super) struct OwnerReader<'a> {
    reader: Reader<'a>,
    owner: Owner,
    left: u64,
}

impl<'a> OwnerReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), owner: Owner::default(), left: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Owner, DecodeError> {
        if self.left == 0 {
            self.left = self.reader.varint()?;
            self.owner = Owner { uid: self.reader.varint32()?, gid: self.reader.varint32()? };
        }
        self.left = self.left.checked_sub(1).ok_or(DecodeError::Invalid("a run of owners is empty"))?;
        Ok(self.owner)
    }

    pub(super) fn finish(self) -> Result<(), DecodeError> {
        match self.left {
            0 => self.reader.finish(),
            _ => Err(DecodeError::Trailing),
        }
    }
}

/// Reads the attributes of the entries that have any. Their encoding is the number of entries without any before the
/// entry, then its own attributes, or nothing if they equal the last ones.
#[derive(Debug, Clone)]
pub(super) struct AttrsReader<'a> {
    reader: Reader<'a>,
    /// Entries until the next one that has attributes.
    bare: Option<u64>,
    last: &'a [u8],
}

impl<'a> AttrsReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), bare: None, last: &[] }
    }

    pub(super) fn next(&mut self) -> Result<Attrs<'a>, DecodeError> {
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

    pub(super) fn finish(self) -> Result<(), DecodeError> {
        match self.bare {
            None => self.reader.finish(),
            Some(_) => Err(DecodeError::Trailing),
        }
    }

    /// Checks the next attributes, in bytes from a peer.
    pub(super) fn next_checked(&mut self) -> Result<(), DecodeError> {
        let before = self.last;
        let attrs = self.next()?;
        let repeated = std::ptr::eq(before, self.last);
        if !attrs.is_empty() && !repeated {
            Attrs::decode(attrs.bytes())?;
        }
        Ok(())
    }
}
