//! One entry of a tree: its name, kind and metadata.

use crate::{
    codec::{DecodeError, Reader, put_signed, put_varint},
    tree::attrs::{Attrs, AttrsBuf},
};

/// The longest target of a symbolic link, in bytes.
pub const MAX_TARGET_BYTES: usize = 4096;

/// A time of a file in nanoseconds, by default that of its modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    /// Makes a time of seconds as a file system has them. Those beyond 73 billion years become the outermost that have
    /// no mark: [`Self::to_compare`], [`Self::in_doubt`].
    pub fn of_file(seconds: i64, nanos: u32) -> Self {
        Self { seconds: seconds.clamp(-IN_DOUBT, IN_DOUBT - 1), nanos }
    }

    /// Marks the time of a listed file that may not be as a run left it, so that it equals no real file's and the plan
    /// compares the content. Applied twice it gives the time back.
    pub fn in_doubt(self) -> Self {
        Self { seconds: self.seconds ^ IN_DOUBT, ..self }
    }

    /// Marks the time of a listed file of the sink whose content is to be compared whatever its metadata says. The mark
    /// is a time that no file has; applied twice it gives the time back.
    pub fn to_compare(self) -> Self {
        Self { seconds: !self.seconds ^ TO_COMPARE, ..self }
    }

    /// Returns whether it has the mark of a file whose content is to be compared.
    pub fn is_marked(self) -> bool {
        (self.seconds ^ self.seconds << 1) & i64::MIN != 0
    }

    /// Returns the time without that mark.
    pub fn unmarked(self) -> Self {
        if self.is_marked() { self.to_compare() } else { self }
    }

    /// Returns the time of the file itself, whatever mark it has.
    pub fn of_the_file(self) -> Self {
        let time = self.unmarked();
        let is_in_doubt = ((time.seconds << 1) ^ (time.seconds << 2)) & i64::MIN != 0;
        if is_in_doubt { time.in_doubt() } else { time }
    }
}

/// The second highest bit of a number of seconds, which equals the sign in the time of any file.
const IN_DOUBT: i64 = 1 << 61;

/// The highest bit of a number of seconds, which equals the sign in the time of any file.
const TO_COMPARE: i64 = 1 << 62;

/// User and group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
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

/// The metadata of an entry, with its extended attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FullMeta {
    /// Mode, time and owner.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: AttrsBuf,
}

/// The kind of an entry, with the data that only that kind has.
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
        /// The path that it contains, verbatim.
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
    /// A further name of a file that another entry lists: the entry with the smallest path.
    HardLink {
        /// The path of that entry from the root of the tree.
        to: &'a [u8],
    },
    /// A socket, which is never sent. Only listings of a sink have it, so that it can be deleted or replaced.
    Socket,
}

impl Kind<'_> {
    /// Returns whether both are of one kind, whatever their content.
    pub fn same_kind(&self, other: &Kind<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns whether it is a file with at least one byte.
    pub fn has_content(&self) -> bool {
        matches!(self, Kind::File { size } if *size > 0)
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name: raw bytes, see [`check_name`](crate::tree::path::check_name).
    pub name: &'a [u8],
    /// Its kind.
    pub kind: Kind<'a>,
    /// Mode, time and owner.
    pub meta: Meta,
    /// Extended attributes.
    pub attrs: Attrs<'a>,
}

impl<'a> Entry<'a> {
    /// Makes a further name of the file at the path `to`. It has no metadata of its own.
    pub fn hard_link(name: &'a [u8], to: &'a [u8]) -> Self {
        Self { name, kind: Kind::HardLink { to }, meta: Meta::default(), attrs: Attrs::default() }
    }
}

/// Appends the metadata of a single entry, such as the root directory's.
pub fn put_meta(out: &mut Vec<u8>, meta: &Meta) {
    put_varint(out, u64::from(meta.mode));
    put_time(out, meta.mtime);
    put_varint(out, u64::from(meta.owner.uid));
    put_varint(out, u64::from(meta.owner.gid));
}

/// Appends a time.
pub fn put_time(out: &mut Vec<u8>, time: Time) {
    put_signed(out, time.seconds);
    put_varint(out, u64::from(time.nanos));
}

/// Reads a time of [`put_time`].
///
/// # Errors
/// If it is not a time.
pub fn read_time(reader: &mut Reader<'_>) -> Result<Time, DecodeError> {
    let time = Time { seconds: reader.signed()?, nanos: reader.varint32()? };
    match time.nanos {
        0..=999_999_999 => Ok(time),
        _ => Err(DecodeError::Invalid("a time is out of range")),
    }
}

/// Reads metadata of [`put_meta`].
///
/// # Errors
/// If a field is out of its range.
pub fn read_meta(reader: &mut Reader<'_>) -> Result<Meta, DecodeError> {
    let mode = reader.varint()?;
    let mtime = read_time(reader)?;
    let owner = Owner { uid: reader.varint32()?, gid: reader.varint32()? };
    if mode > 0o7777 {
        return Err(DecodeError::Invalid("a mode is out of range"));
    }
    Ok(Meta { mode: mode as u16, mtime, owner })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_time_is_seen_and_taken_off_again() {
        for seconds in [0, 1, -1, 1_700_000_000, -2_000_000_000, i64::from(u32::MAX) << 8] {
            for seconds in [seconds, !seconds] {
                let time = Time { seconds, nanos: 7 };
                assert_eq!((time.unmarked(), time.is_marked()), (time, false));
                let marked = time.to_compare();
                assert_eq!((marked.unmarked(), marked.is_marked()), (time, true), "{seconds}");
                let doubtful = time.in_doubt();
                assert_eq!((doubtful.unmarked(), doubtful.is_marked()), (doubtful, false), "{seconds}");
                let all = [time, marked, doubtful].map(Time::of_the_file);
                assert_eq!(all, [time; 3], "{seconds}");
                assert!(doubtful != time && doubtful != marked);
            }
        }
    }

    #[test]
    fn no_time_that_a_file_system_keeps_has_the_mark() {
        for seconds in [i64::MIN, -IN_DOUBT - 1, IN_DOUBT, i64::MAX] {
            let time = Time::of_file(seconds, 7);
            assert!(time.of_the_file() == time && time.to_compare().is_marked(), "{seconds}");
        }
        assert_eq!(Time::of_file(-1, 7), Time { seconds: -1, nanos: 7 });
    }
}
