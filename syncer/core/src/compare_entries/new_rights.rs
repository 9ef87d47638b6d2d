//! Decides whether a file would get rights that it has not had: another owner, set-id bits or capabilities. A file
//! whose content another user could have written gets them only with new content.

use super::count_as_equal::Policy;
use crate::tree::{
    entry::{Entry, Kind},
    kept_mode_bits::SET_IDS,
    kept_xattrs::Classes,
};

impl Policy {
    /// Returns whether the sink's file would get the source's owner, set-id bits or capabilities although another user
    /// could have written its content.
    pub(super) fn vouches(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        let is_anothers =
            sink.meta.owner.uid != self.user.uid || sink.meta.mode & 0o022 != 0 || !self.permissions;
        is_anothers && self.grants(source, sink)
    }

    /// Returns whether the sink's file would get another owner, set-id bits or capabilities.
    pub fn grants(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        if !matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. })) {
            return false;
        }
        let owner = self.owners && source.meta.owner != sink.meta.owner;
        let set_ids = self.mode_of(source) & SET_IDS & !sink.meta.mode != 0;
        let capabilities = source.attrs.classes().and(self.attrs).contains(Classes::CAPABILITY);
        owner || set_ids || capabilities
    }
}
