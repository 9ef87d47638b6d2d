//! Counts the entries of a tree by owner. Pure.

use std::collections::BTreeMap;

use crate::tree::entry::Owner;

/// The most owners that a source reports one by one; the entries of all others are reported as a sum.
pub const MAX_OWNERS: usize = 1024;

/// Counts of entries by owner. It takes about 30 bytes of memory for each owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    counts: BTreeMap<Owner, u64>,
    /// Entries of owners that are not counted one by one.
    rest: u64,
    /// The owner that was added last, and its entries that are not in `counts` yet.
    last: (Owner, u64),
}

impl Owners {
    /// Takes the counts of these owners, and a `rest` of entries of others.
    pub fn new(counts: impl IntoIterator<Item = (Owner, u64)>, rest: u64) -> Self {
        let mut owners = Self { rest, ..Self::default() };
        counts.into_iter().for_each(|(owner, count)| owners.add(owner, count));
        owners.settle();
        owners
    }

    /// Counts entries of an owner. Neighbours mostly have the same one, which costs a comparison.
    pub fn add(&mut self, owner: Owner, count: u64) {
        if self.last.0 != owner {
            self.settle();
            self.last.0 = owner;
        }
        self.last.1 = self.last.1.saturating_add(count);
    }

    /// Adds the counts of another part of the tree.
    pub fn merge(&mut self, mut other: Self) {
        other.settle();
        self.rest = self.rest.saturating_add(other.rest);
        other.counts.into_iter().for_each(|(owner, count)| self.add(owner, count));
    }

    /// Returns the [`MAX_OWNERS`] with most entries, and the rest as a sum, for a source to report.
    pub fn most_frequent(&self) -> Self {
        let mut counts: Vec<(Owner, u64)> = self.settled().counts.into_iter().collect();
        counts.sort_by_key(|(owner, count)| (std::cmp::Reverse(*count), *owner));
        let others = counts.split_off(counts.len().min(MAX_OWNERS));
        Self::new(counts, sum(others.into_iter().map(|(_, count)| count)).saturating_add(self.rest))
    }

    /// Returns the owners with their counts.
    pub fn counts(&self) -> BTreeMap<Owner, u64> {
        self.settled().counts
    }

    /// Returns the number of entries of others.
    pub fn rest(&self) -> u64 {
        self.rest
    }

    /// Returns a lower bound of the entries that have another owner in a copy with the owners `there`, if entries of
    /// `user` count as kept.
    pub fn not_kept(&self, there: &Self, user: Owner) -> u64 {
        let (wanted, there) = (self.settled().counts, there.settled().counts);
        let have = |owner| there.get(owner).copied().unwrap_or_default();
        let named = wanted.iter().filter(|(owner, _)| **owner != user);
        let lacking = sum(named.map(|(owner, count)| count.saturating_sub(have(owner))));
        let others = there.iter().filter(|(owner, _)| !wanted.contains_key(owner));
        lacking.saturating_add(self.rest.saturating_sub(sum(others.map(|(_, count)| *count))))
    }

    fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.settle();
        settled
    }

    fn settle(&mut self) {
        let (owner, count) = std::mem::take(&mut self.last);
        if count > 0 {
            let sum = self.counts.entry(owner).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32) -> Owner {
        Owner { uid, gid: uid }
    }

    #[test]
    fn what_the_copy_lacks_of_each_owner_is_counted_and_the_users_own_is_not() {
        let source = Owners::new([(owner(0), 5), (owner(1), 3), (owner(2), 4)], 0);
        let none = Owners::default();
        assert_eq!(source.not_kept(&none, owner(9)), 12);
        assert_eq!(source.not_kept(&none, owner(2)), 8, "new entries are the user's");
        let copy = Owners::new([(owner(0), 2), (owner(1), 30), (owner(9), 7)], 0);
        assert_eq!(source.not_kept(&copy, owner(9)), 7, "more than are wanted make up for none");
        assert_eq!(source.not_kept(&source, owner(9)), 0);
        let endless = Owners::new([(owner(0), u64::MAX), (owner(1), 1)], u64::MAX);
        assert_eq!(endless.not_kept(&none, owner(9)), u64::MAX);
    }

    #[test]
    fn parts_of_a_tree_add_up_whatever_their_order() {
        let mut owners = Owners::default();
        [0, 1, 1, 0].into_iter().for_each(|uid| owners.add(owner(uid), 1));
        owners.merge(Owners::new([(owner(1), 3), (owner(2), 1)], 0));
        assert_eq!(owners.counts(), [(owner(0), 2), (owner(1), 5), (owner(2), 1)].into());
        assert_eq!(owners.rest(), 0);
    }

    #[test]
    fn the_most_frequent_owners_are_told_and_the_others_as_a_sum() {
        let all = Owners::new((0..3000).map(|uid| (owner(uid), 1 + u64::from(uid))), 0);
        let told = all.most_frequent();
        let counts = told.counts();
        assert_eq!(counts.len(), MAX_OWNERS);
        assert_eq!(counts.into_iter().next(), Some((owner(1976), 1977)));
        assert_eq!(told.rest(), (1..=1976).sum::<u64>());
        assert_eq!(told.not_kept(&all, owner(5000)), 0, "the others are all there, too");
        assert_eq!(told.not_kept(&Owners::default(), owner(5000)), (1..=3000).sum::<u64>());
    }
}
