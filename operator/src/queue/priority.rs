//! Decides how far the priority of a SyncJob's spec counts, so that no namespace gets ahead of others by itself. Pure.

use contract::Reason;

use crate::{
    fault::Fault, grants::namespace_annotations::MAX_QUOTED_BYTES, human, names::ANNOTATION_MAX_PRIORITY,
};

/// Returns the priority of a SyncJob that asks for one, in a namespace with this value of the annotation that says how
/// high its priorities may be. Without the annotation it is 0 at most.
///
/// # Errors
/// If the annotation is no number.
pub fn counted(asked: i32, max_priority: Option<&str>) -> Result<i32, Fault> {
    let Some(text) = max_priority else { return Ok(asked.min(0)) };
    let most: i32 = text.parse().map_err(|_| {
        let quoted = human::clipped(text, MAX_QUOTED_BYTES);
        let message = format!(
            "The namespace's annotation {ANNOTATION_MAX_PRIORITY} is {quoted:?}. Write the highest spec.priority that \
             counts, such as \"100\"."
        );
        Fault::new(Reason::InvalidAnnotation, message)
    })?;
    Ok(asked.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_counts_as_far_as_the_namespace_allows_it() {
        let of = |most, asked| counted(asked, most);
        assert_eq!((of(None, 1000), of(None, -5)), (Ok(0), Ok(-5)));
        assert_eq!(
            (of(Some("100"), 1000), of(Some("100"), 7), of(Some("-10"), 0)),
            (Ok(100), Ok(7), Ok(-10))
        );
        assert_eq!(of(Some("high"), 0).unwrap_err().reason, "InvalidAnnotation");
    }
}
