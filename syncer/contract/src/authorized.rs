//! The file with the peers of a service: a line for each key.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{parse_error::ParseParamError, public_key::PublicKey};

/// The word at the start of each line, for the kind of key.
const KIND: &str = "ed25519";

/// The longest name of a peer or a folder.
pub const MAX_NAME_BYTES: usize = 64;

/// A key that a service accepts, and the folders that its line opens to it. A peer may have several keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizedKey {
    /// The public half of the peer's key.
    pub key: PublicKey,
    /// The peer's name.
    pub peer: String,
    /// The folders that the peer may read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read: BTreeSet<String>,
    /// The folders that the peer may write to.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub write: BTreeSet<String>,
}

/// Why a line is not one of an authorized key.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AuthorizedKeyError {
    /// Another kind of line.
    #[error("not in the form `ed25519 KEY NAME`")]
    Form,
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] ParseParamError),
    /// A name with other characters.
    #[error(
        "`{0}` is no name: write 1 to 64 letters, digits and characters of `._@-`, and no `.` or `-` at the start"
    )]
    Name(String),
    /// Another word at the end of a line.
    #[error("`{0}` is neither `read=FOLDER,…` nor `write=FOLDER,…`")]
    Option(String),
}

/// Why a file of authorized keys cannot be read: the line, counted from 1, and the reason.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub struct AuthorizedFileError {
    /// The line's number.
    pub line: usize,
    /// The reason.
    pub why: AuthorizedKeyError,
}

/// Returns whether a text can be the name of a peer or a folder.
pub fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text.bytes().all(is_part)
        && !text.starts_with(['.', '-', '@'])
}

/// Reads the lines of a file. Empty lines, and those that begin with `#`, are comments.
pub fn read_authorized(text: &str) -> Result<Vec<AuthorizedKey>, AuthorizedFileError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !is_comment(line));
    lines.map(|(line, text)| text.parse().map_err(|why| AuthorizedFileError { line, why })).collect()
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

impl FromStr for AuthorizedKey {
    type Err = AuthorizedKeyError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split_ascii_whitespace();
        let (Some(KIND), Some(key), Some(peer)) = (words.next(), words.next(), words.next()) else {
            return Err(AuthorizedKeyError::Form);
        };
        let (mut read, mut write) = (BTreeSet::new(), BTreeSet::new());
        let peer = name(peer)?;
        for word in words {
            let (list, folders) = match word.split_once('=') {
                Some(("read", folders)) => (&mut read, folders),
                Some(("write", folders)) => (&mut write, folders),
                _ => return Err(AuthorizedKeyError::Option(word.into())),
            };
            for folder in folders.split(',') {
                list.insert(name(folder)?);
            }
        }
        Ok(Self { key: key.parse()?, peer, read, write })
    }
}

fn name(text: &str) -> Result<String, AuthorizedKeyError> {
    if is_name(text) { Ok(text.into()) } else { Err(AuthorizedKeyError::Name(text.into())) }
}

impl fmt::Display for AuthorizedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, peer, read, write } = self;
        write!(f, "{KIND} {key} {peer}")?;
        for (option, folders) in [("read", read), ("write", write)] {
            if !folders.is_empty() {
                let folders: Vec<_> = folders.iter().map(String::as_str).collect();
                write!(f, " {option}={}", folders.join(","))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn a_line_survives_its_text() {
        let line = format!("ed25519 {KEY} me@laptop read=docs,photos write=photos");
        let key: AuthorizedKey = line.parse().unwrap();
        assert_eq!((key.peer.as_str(), key.read.len(), key.write.len()), ("me@laptop", 2, 1));
        assert_eq!(key.to_string(), line);
    }

    #[test]
    fn an_error_names_its_line() {
        for (wrong, expected) in [
            ("ssh-ed25519 AAAA x", "not in the form"),
            ("ed25519 AAAA x", "`AAAA` is not a public key"),
            (&format!("ed25519 {KEY} ../x"), "`../x` is no name"),
            (&format!("ed25519 {KEY} x write=a,"), "`` is no name"),
            (&format!("ed25519 {KEY} x command=a"), "`command=a` is neither"),
        ] {
            let error = read_authorized(&format!("# peers\n\n{wrong}\n")).unwrap_err();
            assert_eq!(error.line, 3);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
