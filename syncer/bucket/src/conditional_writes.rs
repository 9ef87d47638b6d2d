//! Decides that nothing is written to object storage whose server ignores the condition `If-None-Match`.

use std::sync::OnceLock;

use bytes::Bytes;

use super::{bucket_error::BucketError, object_requests::Objects};

/// Set when the server was seen to refuse what others have written first.
#[derive(Debug, Default)]
pub(crate) struct ConditionalWrites(OnceLock<()>);

impl ConditionalWrites {
    /// Checks, before this process writes, that the server refuses what others have written first: one that ignores the
    /// condition lets two writers take the same next list, of which one is lost. `same` is what the objects `names`
    /// have; it is written where the first of them is missing, whereupon the next one is asked for. Returns whether
    /// that was seen only now.
    pub(crate) fn check(&self, objects: &Objects, names: &[&str], same: &Bytes) -> Result<bool, BucketError> {
        if self.0.get().is_some() {
            return Ok(false);
        }
        for name in names {
            if objects.refuses_to_overwrite(name, same)? {
                return Ok(self.0.set(()).is_ok());
            }
        }
        Err(BucketError::NotConditional(objects.url.clone()))
    }
}
