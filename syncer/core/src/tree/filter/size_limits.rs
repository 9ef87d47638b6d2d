//! Decides by size which files a run leaves alone.

use crate::tree::entry::Kind;

/// The sizes, in bytes, of files that take part in a run. All other files are neither sent, changed nor deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// Smaller files are left alone.
    pub min: u64,
    /// Larger files are left alone.
    pub max: u64,
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self { min: 0, max: u64::MAX }
    }
}

impl SizeLimits {
    /// Returns whether an entry of this kind is left alone.
    pub fn exclude(&self, kind: Kind<'_>) -> bool {
        matches!(kind, Kind::File { size } if size < self.min || size > self.max)
    }
}
