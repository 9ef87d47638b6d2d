//! The words by which the two ends know each other before QUIC's packets cross the same stream: each a line with the
//! protocol and a length, and that many bytes.

use std::io::{self, Read, Write};

use contract::{Contact, printable};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use syncer::session::PROTOCOL;
use thiserror::Error;

/// The longest word: a list of paths.
const MAX_WORD_BYTES: usize = 256 << 20;

/// The longest line before a word.
const MAX_LINE_BYTES: usize = 64;

/// Bytes that the far end's shell may print before the first word, for example from its start-up files.
const MAX_NOISE_BYTES: usize = 64 << 10;

/// What this end asks of the far end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    /// The command and the flags of the far end, without a path: `send` or `receive`.
    pub(crate) args: Vec<String>,
    /// The path there.
    pub(crate) path: Vec<u8>,
    /// Whether the far end also listens on an address of its own.
    pub(crate) listens: bool,
    /// Whether a word with the paths of the run follows, a NUL after each.
    pub(crate) has_paths: bool,
    /// Where this end is met; none if all that follows crosses this stream as it is.
    pub(crate) contact: Option<Contact>,
}

/// What the far end answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    /// The version of its program.
    pub(crate) version: String,
    pub(crate) contact: Option<Contact>,
}

/// Why a word cannot be read.
#[derive(Debug, Error)]
pub(crate) enum GreetingError {
    #[error("cannot read from the other end")]
    Read(#[from] io::Error),
    #[error("the other end speaks {theirs}, and this one {}", ours())]
    OtherProtocol { theirs: String },
    #[error("the other end said something else than a greeting: {}", printable(.0))]
    Malformed(String),
}

fn ours() -> String {
    String::from_utf8_lossy(PROTOCOL).into_owned()
}

/// Writes a value as a word.
pub(crate) fn say(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    say_bytes(to, &serde_json::to_vec(value)?)
}

/// Writes bytes as a word.
pub(crate) fn say_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(format!("{} {}\n", ours(), bytes.len()).as_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a value as the next word, after any other lines if the reader allows `noise`.
pub(crate) fn hear<T: DeserializeOwned>(from: &mut impl Read, noise: bool) -> Result<T, GreetingError> {
    let word = hear_bytes(from, noise)?;
    serde_json::from_slice(&word).map_err(|error| GreetingError::Malformed(error.to_string()))
}

/// Reads the bytes of the next word. Reads no byte after it, because a packet may follow.
pub(crate) fn hear_bytes(from: &mut impl Read, noise: bool) -> Result<Vec<u8>, GreetingError> {
    let mut left = if noise { MAX_NOISE_BYTES } else { MAX_LINE_BYTES };
    let len = loop {
        let line = line(from, &mut left)?;
        match line.strip_prefix("volferry/").and_then(|rest| rest.split_once(' ')) {
            Some((version, len)) if ours() == format!("volferry/{version}") => break len.to_owned(),
            Some((version, _)) => {
                return Err(GreetingError::OtherProtocol { theirs: format!("volferry/{version}") });
            }
            None if noise => {}
            None => return Err(GreetingError::Malformed(line)),
        }
    };
    let len = len.parse().ok().filter(|len| *len <= MAX_WORD_BYTES);
    let len = len.ok_or_else(|| GreetingError::Malformed("a word without a length, or too long".into()))?;
    let mut word = Vec::new();
    from.take(len as u64).read_to_end(&mut word)?;
    if word.len() < len {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(word)
}

/// Reads a line, byte by byte, with at most `left` bytes.
pub(crate) fn line(from: &mut impl Read, left: &mut usize) -> Result<String, GreetingError> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        *left = left.checked_sub(1).ok_or_else(|| {
            GreetingError::Malformed(String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned())
        })?;
        match byte {
            [b'\n'] => return Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()),
            [byte] => line.push(byte),
        }
    }
}

/// Returns the noise that a far end's shell may make.
pub(crate) fn noise_allowed() -> usize {
    MAX_NOISE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], noise: bool) -> Result<Vec<u8>, GreetingError> {
        hear_bytes(&mut &*bytes, noise)
    }

    #[test]
    fn a_word_is_read_to_its_end_and_no_further() {
        let mut stream = Vec::new();
        say_bytes(&mut stream, b"one").unwrap();
        stream.extend_from_slice(b"rest");
        let mut from = stream.as_slice();
        assert_eq!(hear_bytes(&mut from, false).unwrap(), b"one");
        assert_eq!(from, b"rest");
    }

    #[test]
    fn what_a_shell_prints_before_is_passed_over_at_the_end_that_started_it() {
        let mut stream = b"Welcome!\n\nvolley\n".to_vec();
        say_bytes(&mut stream, b"word").unwrap();
        assert_eq!(word(&stream, true).unwrap(), b"word");
        assert!(matches!(word(&stream, false), Err(GreetingError::Malformed(_))));
        let endless = vec![b'x'; MAX_NOISE_BYTES + 10];
        assert!(matches!(word(&endless, true), Err(GreetingError::Malformed(_))));
    }

    #[test]
    fn an_end_of_another_version_says_so_by_its_first_line() {
        let refused = word(b"volferry/1 0\n", true).unwrap_err();
        assert!(matches!(&refused, GreetingError::OtherProtocol { theirs } if theirs == "volferry/1"));
    }

    #[test]
    fn a_word_that_ends_early_or_is_too_long_is_refused() {
        let ours = ours();
        let cut = word(format!("{ours} 5\nabc").as_bytes(), false);
        assert!(matches!(cut, Err(GreetingError::Read(_))), "{cut:?}");
        for len in ["", "-1", "1e3", "268435457"] {
            let refused = word(format!("{ours} {len}\n").as_bytes(), false);
            assert!(matches!(refused, Err(GreetingError::Malformed(_))), "{len}: {refused:?}");
        }
    }
}
