//! Decides which lists of a store stay: some old ones, by which a slow writer is noticed.

/// So many lists are kept: the newest, and some of which another writer may be making the next one.
const KEPT_LISTS: usize = 16;

/// Returns the lists that nobody needs, of those that are `there`, the newest first.
pub(crate) fn old_lists(there: &[u64]) -> &[u64] {
    there.get(KEPT_LISTS..).unwrap_or_default()
}

/// Returns whether the list after `before` is one of the lists that are `there`, and not in the place of one that was
/// removed: that of a writer who was slow, or who was told wrongly that there are none.
pub(crate) fn follows(there: &[u64], before: u64) -> bool {
    let own = before + 1;
    let next = there.iter().rev().find(|changes| **changes > own);
    let is_first = before == 0 && there.len() <= KEPT_LISTS;
    there.contains(&own) && (is_first || there.contains(&before)) && next.is_none_or(|next| *next == own + 1)
}
