//! A folder inside a volume. Pure.

/// A folder inside a volume: `/`, or an absolute path that does not end with `/` and has no component that is empty,
/// `.`, `..` or `.volferry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerFolder(String);

impl InnerFolder {
    /// Parses a path; `None` if it is not a valid folder.
    pub fn new(path: &str) -> Option<Self> {
        let legal = |part: &str| !matches!(part, "" | "." | ".." | ".volferry") && !part.contains('\0');
        let below = path.strip_prefix('/')?;
        (below.is_empty() || below.split('/').all(legal)).then(|| Self(path.into()))
    }

    /// Returns the folder's path inside the volume, which starts with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the other folder is this one or below it.
    pub fn holds(&self, other: &Self) -> bool {
        match other.0.strip_prefix(self.0.trim_end_matches('/')) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}
