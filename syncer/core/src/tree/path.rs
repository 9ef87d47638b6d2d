//! Names and relative paths as raw bytes. They are checked once, so that no later code can be led out of the root.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _};

use thiserror::Error;

/// The longest name of one entry, in bytes (`NAME_MAX` of every Linux file system).
pub const MAX_NAME_BYTES: usize = 255;

/// The longest relative path, in bytes (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;

/// The folder at the root of a volume that belongs to Volferry. No run syncs, lists or deletes it.
pub const OWN_DIR: &[u8] = b".volferry";

/// The folder in [`OWN_DIR`] with the volume's snapshots.
pub const SNAPSHOTS: &[u8] = b"snapshots";

/// Why bytes are not a name or a path of an entry.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // the messages say it
pub enum PathError {
    #[error("a name is empty")]
    Empty,
    #[error("a name is `.` or `..`")]
    Dots,
    #[error("a name holds a slash or a NUL byte")]
    Separator,
    #[error("a name is longer than 255 bytes")]
    NameTooLong,
    #[error("a path is longer than 4096 bytes")]
    PathTooLong,
}

/// Checks that `bytes` can be the name of one entry in a directory.
pub fn check_name(bytes: &[u8]) -> Result<(), PathError> {
    match bytes {
        [] => Err(PathError::Empty),
        b"." | b".." => Err(PathError::Dots),
        _ if bytes.len() > MAX_NAME_BYTES => Err(PathError::NameTooLong),
        _ if bytes.iter().any(|&b| b == b'/' || b == 0) => Err(PathError::Separator),
        _ => Ok(()),
    }
}

/// A path below a root: names joined by `/`, never absolute, never with `.` or `..`. The root itself is the empty path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Returns the root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the path of the entry `name` in this directory.
    ///
    /// # Errors
    /// If `name` is not a name, or the path grows beyond [`MAX_PATH_BYTES`].
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        check_name(name)?;
        if self.0.len() + 1 + name.len() > MAX_PATH_BYTES {
            return Err(PathError::PathTooLong);
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Self(bytes))
    }

    /// Returns the entry's directory, and its name there; `None` for the root.
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Returns the path's bytes; empty for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path as the standard library's type.
    pub fn as_path(&self) -> &std::path::Path {
        OsStr::from_bytes(&self.0).as_ref()
    }

    /// Returns whether this is `other` or below it.
    pub fn starts_with(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(&*other.0);
        rest.is_some_and(|rest| other.is_root() || rest.is_empty() || rest[0] == b'/')
    }

    /// Returns whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses a path that another machine wrote.
    ///
    /// # Errors
    /// If it is not one or more names joined by `/`, or longer than [`MAX_PATH_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        bytes.split(|&byte| byte == b'/').try_fold(Self::root(), |path, name| path.join(name))
    }

    /// Yields the names on the way from the root.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }
}

/// Escapes bytes that are not printable UTF-8 as `\xNN`, so that a path is one unambiguous line.
pub fn display(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if contract::drives_terminal(c) => {
                    c.to_string().bytes().for_each(|b| push_hex(&mut text, b));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&b| push_hex(&mut text, b));
    }
    text
}

fn push_hex(text: &mut String, byte: u8) {
    use fmt::Write as _;
    let _ = write!(text, "\\x{byte:02x}");
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { "" })?;
        f.write_str(&display(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for (name, why) in [
            (&b""[..], PathError::Empty),
            (b".", PathError::Dots),
            (b"..", PathError::Dots),
            (b"a/b", PathError::Separator),
            (b"a\0b", PathError::Separator),
            (&[b'x'; 256], PathError::NameTooLong),
        ] {
            assert_eq!(RelPath::root().join(name), Err(why));
        }
    }

    #[test]
    fn a_path_is_its_directory_and_a_name() {
        let path = RelPath::root().join(b"a").unwrap();
        assert_eq!(RelPath::root().split_last(), None);
        assert_eq!(path.split_last(), Some((RelPath::root(), &b"a"[..])));
        assert_eq!(path.join(b"b").unwrap().split_last(), Some((path, &b"b"[..])));
    }

    #[test]
    fn a_path_stops_growing_at_its_limit() {
        let mut path = RelPath::root();
        while let Ok(longer) = path.join(&[b'd'; 200]) {
            path = longer;
        }
        assert!(path.as_bytes().len() <= MAX_PATH_BYTES);
        assert_eq!(path.join(&[b'd'; 200]), Err(PathError::PathTooLong));
    }

    #[test]
    fn display_shows_every_byte_on_one_line() {
        assert_eq!(display(b"a\nb\xff\\"), "a\\x0ab\\xff\\\\");
        assert_eq!(display("log\u{202e}fdp".as_bytes()), "log\\xe2\\x80\\xaefdp");
    }
}
