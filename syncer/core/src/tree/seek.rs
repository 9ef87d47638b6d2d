//! Walks two sorted sequences side by side.

use std::{cmp::Ordering, iter::Peekable};

/// Returns the next of the items that has this name, and drops those before it. Items and requested names ascend.
pub fn seek<I: Iterator>(
    items: &mut Peekable<I>,
    name: &[u8],
    name_of: impl Fn(&I::Item) -> &[u8],
) -> Option<I::Item> {
    loop {
        match name_of(items.peek()?).cmp(name) {
            Ordering::Less => drop(items.next()),
            Ordering::Equal => return items.next(),
            Ordering::Greater => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_ascending_names() {
        let mut items = [(&b"b"[..], 1), (b"c", 2), (b"e", 3)].into_iter().peekable();
        let mut find = |name: &[u8]| seek(&mut items, name, |(name, _)| name).map(|(_, item)| item);
        assert_eq!(
            [b"a", b"b", b"d", b"e", b"f"].map(|name| find(name)),
            [None, Some(1), None, Some(3), None]
        );
    }
}
