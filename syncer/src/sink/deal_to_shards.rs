//! Decides which of the processes that share a run gets which directories, by the cost of each.

use std::{cmp::Reverse, collections::BinaryHeap};

use contract::Shard;

use crate::{
    hash::digest,
    plan::planned::{PlannedDir, to_transfer},
};

/// The cost of an entry besides its bytes, in bytes: about what is copied in the time that it takes to create a file.
const ENTRY_COST: u64 = 16 << 10;

/// Assigns the planned directories to `count` shards, so that each has about as much to do.
pub(super) fn deal_by_cost(planned: &[PlannedDir], count: u32) -> Vec<u32> {
    deal(&planned.iter().map(cost).collect::<Vec<_>>(), count)
}

/// Returns whether a process reads a directory's entries back when a run is verified. This depends on the path alone,
/// as all shards see the same tree.
pub(crate) fn verifies(shard: Option<Shard>, dir: &PlannedDir) -> bool {
    shard.is_none_or(|shard| name_of(dir) % u64::from(shard.count.max(1)) == u64::from(shard.index))
}

/// Estimates the cost of a directory's own entries, in bytes.
fn cost(dir: &PlannedDir) -> u64 {
    let entries = (dir.plan.steps.len() + dir.plan.deletes.len()) as u64;
    to_transfer(dir).bytes.saturating_add(entries.saturating_mul(ENTRY_COST))
}

/// Returns the number that identifies a directory in the assignment.
pub(super) fn name_of(dir: &PlannedDir) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(&[dir.path.as_bytes()]);
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Assigns items to shards: the most expensive first, each to the shard with the smallest load.
fn deal(costs: &[u64], count: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|at| Reverse(costs[*at]));
    let mut loads: BinaryHeap<Reverse<(u64, u32)>> = (0..count).map(|shard| Reverse((0, shard))).collect();
    let mut owners = vec![0; costs.len()];
    for at in order {
        if let Some(mut least) = loads.peek_mut() {
            owners[at] = least.0.1;
            least.0.0 = least.0.0.saturating_add(costs[at]);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_go_first_and_each_to_whoever_has_least() {
        assert_eq!(deal(&[1, 9, 5, 4, 2], 2), [1, 0, 1, 1, 0]);
        assert_eq!(deal(&[], 3), [0; 0]);
        assert_eq!(deal(&[u64::MAX, u64::MAX, 1], 2)[..2], [0, 1]);
    }

    #[test]
    fn no_shard_has_more_than_the_mean_and_one_directory() {
        let costs: Vec<u64> = (0..1000).map(|n| n * n % 997).collect();
        let owners = deal(&costs, 7);
        let total: u64 = costs.iter().sum();
        for shard in 0..7 {
            let load: u64 = costs.iter().zip(&owners).filter(|(_, o)| **o == shard).map(|(c, _)| c).sum();
            assert!(load <= total / 7 + 997, "{shard}: {load}");
        }
    }
}
