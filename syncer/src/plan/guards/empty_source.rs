//! Refuses a run from an empty source that would empty the destination, or push out its history.

use contract::Reason;

use crate::{
    plan::guards::{counted_deletes::CountedDeletes, refused::Refused},
    session_error::SessionError,
};

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

/// Checks that no snapshot of an empty source follows one of `before` entries in a store elsewhere: the rules would
/// drop one older snapshot after another for it. Returns notes of an overridden guard.
///
/// # Errors
/// [`SessionError::Guard`].
pub(crate) fn check_snapshot(
    entries: u64,
    before: u64,
    is_forced: bool,
) -> Result<Vec<String>, SessionError> {
    if entries > 0 || before == 0 {
        return Ok(Vec::new());
    }
    let refused = Refused {
        reason: Reason::SourceEmpty,
        problem: format!(
            "the source is empty and the last snapshot of it has {before} entries: a volume that was not mounted or was \
             wiped looks like this"
        ),
        remedy: "no snapshot was taken, and none was dropped",
    };
    refused.unless(is_forced)
}
