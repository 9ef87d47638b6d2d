//! Files that are written in place, by way of a journal.

pub(super) mod journal_entry;
pub(super) mod write_by_journal;
