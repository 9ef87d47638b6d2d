//! Refuses a run from an empty source that would empty the destination.

use contract::Reason;

use crate::plan::guards::{counted_deletes::CountedDeletes, refused::Refused};

/// Returns the objection to these deletes, all of an empty source.
pub(super) fn refusal(CountedDeletes { of, .. }: CountedDeletes) -> Refused {
    Refused {
        reason: Reason::SourceEmpty,
        problem: format!(
            "the source is empty and the destination has {of} entries: a volume that was not mounted or was wiped looks like \
             this"
        ),
        remedy: "if the destination shall be emptied, remove its files yourself",
    }
}
