//! The labels of a snapshot, and the rules that they follow.

use std::collections::BTreeSet;

use contract::{AS_OF, LATEST, MAX_TAG_BYTES, is_tag};

use super::{
    purpose::Purpose,
    snapshot_error::SnapshotError,
    snapshot_list::Snapshot,
    snapshot_record::{MAX_NAME_BYTES, MAX_NOTE_BYTES, MAX_TAGS},
};

/// The labels that users and runs give to a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// Labels to find it by.
    pub tags: BTreeSet<String>,
    /// The user's note.
    pub note: String,
    /// What it is taken for.
    pub purpose: Purpose,
    /// The run that takes it.
    pub run: String,
    /// The SyncJob that it belongs to.
    pub job: String,
    /// The user that takes it.
    pub user: String,
    /// Whether it is kept regardless of policies.
    pub pinned: bool,
}

impl Labels {
    /// Checks that each label is one line of text, and short enough.
    ///
    /// # Errors [`SnapshotError::Invalid`], which names the label.
    pub fn check(&self) -> Result<(), SnapshotError> {
        check_tags(&self.tags)?;
        if self.note.len() > MAX_NOTE_BYTES {
            return Err(SnapshotError::Invalid(format!("a note has at most {MAX_NOTE_BYTES} bytes")));
        }
        let long = [&self.run, &self.job, &self.user].into_iter().find(|name| name.len() > MAX_NAME_BYTES);
        long.map_or(Ok(()), |name| {
            Err(SnapshotError::Invalid(format!("{name} is longer than {MAX_NAME_BYTES} bytes")))
        })
    }
}

/// Checks the tags of a snapshot, or of rules, and their number: a list with more cannot be read.
pub(crate) fn check_tags(tags: &BTreeSet<String>) -> Result<(), SnapshotError> {
    tags.iter().try_for_each(|tag| check_tag(tag))?;
    if tags.len() <= MAX_TAGS {
        Ok(())
    } else {
        Err(SnapshotError::Invalid(format!("there are at most {MAX_TAGS} tags")))
    }
}

impl Snapshot {
    /// Checks the number of tags.
    ///
    /// # Errors [`SnapshotError::Invalid`].
    pub fn check_tags(&self) -> Result<(), SnapshotError> {
        check_tags(&self.tags)
    }
}

/// Checks a tag: text without spaces and control characters, other than the word for the newest snapshot.
///
/// # Errors [`SnapshotError::Invalid`], which names the tag.
pub fn check_tag(tag: &str) -> Result<(), SnapshotError> {
    if is_tag(tag) {
        Ok(())
    } else {
        Err(SnapshotError::Invalid(format!(
            "`{}` cannot be a tag: a tag has 1 to {MAX_TAG_BYTES} bytes without spaces, is not `{LATEST}`, and does \
         not begin with `{AS_OF}`",
            tag.escape_debug()
        )))
    }
}
