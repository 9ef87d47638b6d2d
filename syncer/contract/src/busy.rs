use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::escape::Escaping;

/// What a busy end answers to a peer that dials: the run in progress, and the place of the peer among those that wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyAnswer {
    /// The peer whose run is in progress.
    pub peer: String,
    /// When that peer's session began (RFC 3339).
    pub since: String,
    /// 1 for the peer whose turn is next.
    pub number: u32,
}

impl fmt::Display for BusyAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, since, number } = self;
        write!(Escaping(f), "busy with a run of {peer} since {since}, waiting as number {number}")
    }
}

/// The longest answer that is read, as a line without its end.
pub const MAX_BUSY_ANSWER_BYTES: usize = 512;

/// Why what a busy peer sends is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BusyAnswerError(pub &'static str);

const TOO_LONG: BusyAnswerError = BusyAnswerError("its answer that it is busy is too long");
const UNREADABLE: BusyAnswerError = BusyAnswerError("its answer that it is busy cannot be read");

impl BusyAnswer {
    /// Returns the answer as a busy end sends it.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Takes apart the answers of a busy peer. Holds one line at most.
#[derive(Debug, Default)]
pub struct BusyAnswers {
    line: Vec<u8>,
}

impl BusyAnswers {
    /// Takes the next bytes, of any number, and passes each answer that they complete to `tell`.
    ///
    /// # Errors
    /// If a line is too long, or is no answer.
    pub fn take(&mut self, bytes: &[u8], mut tell: impl FnMut(&BusyAnswer)) -> Result<(), BusyAnswerError> {
        for &byte in bytes {
            match byte {
                b'\n' => {
                    tell(&serde_json::from_slice(&self.line).map_err(|_| UNREADABLE)?);
                    self.line.clear();
                }
                _ if self.line.len() >= MAX_BUSY_ANSWER_BYTES => return Err(TOO_LONG),
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    /// Checks that the peer has not stopped within an answer: the end of its answers is the turn of this end.
    ///
    /// # Errors
    /// If it has.
    pub fn end(self) -> Result<(), BusyAnswerError> {
        if self.line.is_empty() { Ok(()) } else { Err(UNREADABLE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(peer: &str, number: u32) -> BusyAnswer {
        BusyAnswer { peer: peer.into(), since: "2026-11-25T09:00:00Z".into(), number }
    }

    /// Returns the answers in parts of what a peer sends, and the result.
    fn told<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Vec<BusyAnswer>, Result<(), BusyAnswerError>) {
        let (mut answers, mut told) = (BusyAnswers::default(), Vec::new());
        let mut parts = parts.into_iter();
        let taken = parts.try_for_each(|part| answers.take(part, |answer| told.push(answer.clone())));
        (told, taken.and_then(|()| answers.end()))
    }

    #[test]
    fn answers_arrive_in_whatever_parts_they_come() {
        let sent = [answer("a", 2), answer("a \"quoted\" one", 1)];
        let bytes: Vec<u8> = sent.iter().flat_map(BusyAnswer::to_line).collect();
        for len in 1..bytes.len() {
            assert_eq!(told(bytes.chunks(len)), (sent.to_vec(), Ok(())), "parts of {len}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_and_takes_no_room() {
        let line = answer("a", 1).to_line();
        for end in 1..line.len() {
            let cut = told([&line[..end]]);
            assert_eq!(cut, (vec![], Err(UNREADABLE)), "cut at {end}");
        }
        let not_utf8 = [&b"{\"peer\":\"\xff\",\"since\":\"\",\"number\":1}\n"[..]];
        for wrong in [&b"\n"[..], b"[]\n", b"{}\n", b"\0\n", not_utf8[0], b"{\"peer\":1}\n"] {
            assert_eq!(told([wrong]), (vec![], Err(UNREADABLE)), "{}", wrong.escape_ascii());
        }
        let longest = vec![b' '; MAX_BUSY_ANSWER_BYTES];
        fn none(_: &BusyAnswer) {
            panic!("an answer")
        }
        let mut answers = BusyAnswers::default();
        assert_eq!(answers.take(&longest, none), Ok(()));
        for _ in 0..3 {
            assert_eq!(answers.take(&longest, none), Err(TOO_LONG));
            assert!(answers.line.len() <= MAX_BUSY_ANSWER_BYTES);
        }
    }

    #[test]
    fn the_longest_answer_of_this_program_is_short_enough() {
        let longest = BusyAnswer { number: u32::MAX, ..answer(&"\u{1}".repeat(64), 0) };
        assert!(longest.to_line().len() <= MAX_BUSY_ANSWER_BYTES + 1, "{}", longest.to_line().len());
    }

    #[test]
    fn an_answer_moves_no_cursor() {
        let hostile = BusyAnswer { since: "\r\n\u{9b}2J".into(), ..answer("\u{1b}]0;title\u{7}\u{7f}", 1) };
        let shown = hostile.to_string();
        assert!(!shown.contains(char::is_control) && shown.contains(r"\u{1b}]0;title"), "{shown}");
    }
}
