//! The reasons of runs and conditions. The engine, the command line, the operator and the pages of the runbook read
//! their table.

mod table;

use std::{borrow::Cow, fmt, ops::Deref};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use table::Reason;

use crate::exit::ExitCode;

impl Reason {
    /// Returns the word, as in a report or a condition.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(word) => word,
            known => known.about().map_or("", |about| about.word),
        }
    }

    /// Returns what has happened, for people; empty for a word of a newer program.
    pub fn meaning(&self) -> &'static str {
        self.about().map_or("", |about| about.meaning)
    }

    /// Returns the exit code of a process that ends for this reason.
    pub fn exit(&self) -> ExitCode {
        self.about().map_or(ExitCode::Failed, |about| about.exit)
    }

    /// Returns whether another try would end the same until a person acts, whatever the exit code says.
    pub fn is_final(&self) -> bool {
        self.about().is_some_and(|about| about.is_final)
    }

    /// Returns what to do, as the runbook says it; empty if nothing has to be done.
    pub fn next(&self) -> &'static str {
        self.about().map_or("", |about| about.next)
    }

    /// Returns the flag or command that helps on the command line.
    pub fn hint(&self) -> Option<&'static str> {
        self.about().map(|about| about.hint).filter(|hint| !hint.is_empty())
    }
}

/// Makes an empty word, for a status that has none.
impl Default for Reason {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

impl From<&str> for Reason {
    fn from(word: &str) -> Self {
        let known = Self::ALL.binary_search_by_key(&word, |reason| reason);
        known.map_or_else(|_| Self::Other(word.into()), |at| Self::ALL[at].clone())
    }
}

impl From<String> for Reason {
    fn from(word: String) -> Self {
        word.as_str().into()
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.as_str().into()
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for Reason {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_by_their_words_and_each_is_found() {
        assert!(Reason::ALL.is_sorted_by_key(Reason::as_str));
        let found: Vec<Reason> = Reason::ALL.iter().map(|reason| reason.as_str().into()).collect();
        assert_eq!(found, Reason::ALL);
    }

    #[test]
    fn every_reason_says_what_has_happened_in_sentences() {
        for reason in Reason::ALL {
            let (meaning, next) = (reason.meaning(), reason.next());
            assert!(meaning.len() > 20 && meaning.ends_with('.') && !meaning.starts_with(' '), "{reason}");
            assert!(next.is_empty() || next.ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn the_word_of_a_newer_program_is_kept() {
        let newer: Reason = serde_json::from_str(r#""NoSuchReason""#).unwrap();
        assert_eq!(newer, Reason::Other("NoSuchReason".into()));
        assert_eq!(serde_json::to_string(&newer).unwrap(), r#""NoSuchReason""#);
        assert_eq!((newer.exit(), newer.is_final(), newer.hint()), (ExitCode::Failed, false, None));
    }

    #[test]
    fn what_finds_the_same_snapshots_again_is_final() {
        let tried = [Reason::PeerLost, Reason::SomeFilesFailed, Reason::PodLost];
        assert!(!tried.iter().any(Reason::is_final));
        let ended = [Reason::SnapshotsDamaged, Reason::SnapshotNotFound];
        assert!(ended.iter().all(Reason::is_final));
    }
}
