//! The types of single parameters, and how they are written on a command line.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    parse_error::{ParseParamError, bad},
    snapshots::SnapshotEngine,
    volume::VolumeId,
};

/// How files at both ends are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Compare {
    /// Size and modification time.
    #[default]
    Metadata,
    /// The content's hash, computed at both ends.
    Content,
    /// Size alone.
    Size,
}

/// Whether owner and group are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Ownership {
    /// Kept where the sink's process may change owners, left alone where it may not.
    #[default]
    Auto,
    /// Kept; the run fails if the sink's process may not change owners.
    Always,
    /// Ignored.
    Never,
}

/// How an existing file's content is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum WriteMode {
    /// A staged file is renamed over the old one.
    #[default]
    Atomic,
    /// Changes are written into the old file, by way of a journal; only for files of 1 MiB and more.
    InPlace,
}

/// The time of deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeleteTiming {
    /// After all content has arrived.
    #[default]
    After,
    /// Before any content is written, which makes room for it.
    Before,
}

/// What happens to a run from another source than the one that the destination's copy is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtherSource {
    /// It is refused.
    Refuse,
    /// It makes the copy one of its own source.
    Accept,
    /// It does so if its source has this id, as the refusal names it.
    Only(VolumeId),
}

/// How data is compressed on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Compression {
    /// Chosen per stream, from the data and the speed of the link.
    #[default]
    Auto,
    /// Never.
    None,
    /// zstd at this level, 1 to 19.
    Level(u8),
}

/// The kinds of metadata that are compared and set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is the attribute of its name
pub struct Preserve {
    pub ownership: Ownership,
    pub permissions: bool,
    pub times: bool,
    pub xattrs: bool,
    pub acls: bool,
    pub hard_links: bool,
    pub sparse: bool,
    pub specials: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self {
            ownership: Ownership::Auto,
            permissions: true,
            times: true,
            xattrs: true,
            acls: true,
            hard_links: true,
            sparse: true,
            specials: true,
        }
    }
}

/// The largest share of the destination's entries that a run may delete, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteLimit(pub u8);

impl Default for DeleteLimit {
    fn default() -> Self {
        Self(50)
    }
}

/// One of several shares of a tree, each of which a pair of processes syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, 0 to `count - 1`.
    pub index: u32,
    /// The number of shards, at least 1.
    pub count: u32,
}

impl Shard {
    /// The largest number of shards of a tree.
    pub const MAX_COUNT: u32 = 256;

    /// Returns whether the index is below the count, and the count is not too large.
    pub fn is_valid(self) -> bool {
        self.index < self.count && self.count <= Self::MAX_COUNT
    }
}

/// Implements a flag value that is one word of a fixed list.
macro_rules! words {
    ($type:ident, $expected:literal, $($word:literal => $variant:ident),+) => {
        impl FromStr for $type {
            type Err = ParseParamError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(bad(s, $expected)),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)+ })
            }
        }
    };
}

words!(DeleteTiming, "`before` or `after`", "before" => Before, "after" => After);
words!(Compare, "`metadata`, `content` or `size`", "metadata" => Metadata, "content" => Content, "size" => Size);
words!(Ownership, "`auto`, `always` or `never`", "auto" => Auto, "always" => Always, "never" => Never);
words!(SnapshotEngine, "`auto`, `clone` or `copy`", "auto" => Auto, "clone" => Clone, "copy" => Copy);
words!(WriteMode, "`atomic` or `in-place`", "atomic" => Atomic, "in-place" => InPlace);

impl FromStr for OtherSource {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "refuse" => Ok(Self::Refuse),
            "accept" => Ok(Self::Accept),
            _ => s.parse().map(Self::Only).map_err(|_| bad(s, "`refuse`, `accept` or the id of a source")),
        }
    }
}

impl fmt::Display for OtherSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Accept => f.write_str("accept"),
            Self::Only(id) => write!(f, "{id}"),
        }
    }
}

impl FromStr for Compression {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => match s.parse() {
                Ok(level @ 1..=19) => Ok(Self::Level(level)),
                _ => Err(bad(s, "`auto`, `none` or a zstd level from 1 to 19")),
            },
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Level(level) => write!(f, "{level}"),
        }
    }
}

impl FromStr for DeleteLimit {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.trim_end_matches('%').parse() {
            Ok(percent @ 0..=100) => Ok(Self(percent)),
            _ => Err(bad(s, "a percentage from 0 to 100")),
        }
    }
}

impl FromStr for Shard {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parsed = s.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed.map(|(index, count)| Self { index, count }) {
            Some(shard) if shard.is_valid() => Ok(shard),
            _ => Err(bad(s, "a shard `i/n` with i from 0 to n - 1, and n at most 256")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// The suffixes of numbers of bytes and their factors, so that the rules of the CRDs accept the same as
/// [`parse_bytes`]. A `B` may follow each.
pub const BYTE_UNITS: [(&str, u64); 9] = [
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Parses a number of bytes with an optional suffix: `k K kB KB`, `M MB`, `G GB` and `T TB` are powers of 1000, `Ki
/// KiB` and so on powers of 1024. Fractions and signs are not accepted.
pub fn parse_bytes(s: &str) -> Result<u64, ParseParamError> {
    let digits = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &s[digits.len()..];
    let unit = match suffix.strip_suffix('B').filter(|unit| !unit.is_empty()).unwrap_or(suffix) {
        "" => Some(1),
        name => BYTE_UNITS.iter().find(|(unit, _)| *unit == name).map(|(_, bytes)| *bytes),
    };
    let number = digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| bad(s, "a number of bytes such as 1048576, 100Mi or 2G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_take_kubernetes_suffixes() {
        assert_eq!(parse_bytes("100Mi"), Ok(100 << 20));
        assert_eq!(parse_bytes("2G"), Ok(2_000_000_000));
        assert_eq!(parse_bytes("17"), Ok(17));
        for thousand in ["1k", "1K", "1kB", "1KB", "1000"] {
            assert_eq!(parse_bytes(thousand), Ok(1000), "{thousand}");
        }
        assert_eq!((parse_bytes("1Ki"), parse_bytes("3MiB")), (Ok(1024), Ok(3 << 20)));
        for bad in ["99999999Ti", "", "k", "1B", "1KBB", "1kk", "1 k", "-1k", "+1k", "1.5k", "1ki"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
