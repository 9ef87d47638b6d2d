//! A source in the same process: its listings and hashes.

use std::collections::VecDeque;

use crate::{
    measure::monitor::Monitor,
    plan::{
        compare_contents::{HashBatch, SourceHashes},
        source_tree::SourceTree,
    },
    session_error::SessionError,
    source::{
        hash_files::{Expect, hash_all},
        source_file::Origin,
    },
    tree::{
        Tree,
        dir::{DirId, ROOT},
    },
    wire::{Hashed, Listed},
};

/// The hashes of a local source.
pub(crate) struct LocalHashes<'a> {
    pub origin: Origin<'a>,
    pub monitor: &'a Monitor,
}

impl SourceHashes for LocalHashes<'_> {
    fn ask(&mut self, _: &HashBatch) -> Result<(), SessionError> {
        Ok(())
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        Ok(hash_all(self.origin, &batch.files, Expect::AsListed, self.monitor)?)
    }
}

/// The tree of a local source.
pub(crate) struct LocalTree {
    pub tree: Tree,
    pub asked: VecDeque<DirId>,
    /// Whether listings are kept, because they are requested a second time.
    pub keep: bool,
}

impl SourceTree for LocalTree {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.asked.extend(dirs);
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        let id = self.asked.pop_front().unwrap_or(ROOT);
        let dirs = &mut self.tree.dirs;
        let dir = &mut dirs[id as usize];
        let (listing, rules) = if self.keep {
            (dir.listing.clone(), dir.rules.clone())
        } else {
            (std::mem::take(&mut dir.listing), std::mem::take(&mut dir.rules))
        };
        let first_child = dirs[id as usize].first_child;
        let below = first_child as usize..(first_child + listing.dirs()) as usize;
        let children = dirs[below].iter().map(|dir| dir.digest).collect();
        Ok(Listed { dir: id, first_child, children, listing, rules })
    }
}
