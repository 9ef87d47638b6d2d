//! Hashes of the place of an end's tree on its machine, by which the ends find trees that contain one another although
//! neither sees both.
//!
//! A token is a keyed hash of the machine's boot id, a nonce of the run, and one name of a folder: its device and
//! inode, or its device and its path in that file system. The second finds folders that bind mounts show without their
//! parents.

use serde::{Deserialize, Serialize};

type Token = [u8; 16];

/// The place of a tree, and the places of what is mounted in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Whereabouts {
    nonce: [u8; 16],
    /// The tokens of its root, and of the folders that mounts in it show; none if the root does not exist yet.
    root: Vec<Token>,
    /// The tokens of the folders above these.
    above: Vec<Token>,
    /// The tokens of the file in the root that the run is about; none if it is about the whole tree.
    file: Vec<Token>,
}

impl Whereabouts {
    /// Starts for the run that is known by a random `nonce`; [`Self::add`] adds its folders.
    pub fn new(nonce: [u8; 16]) -> Self {
        Self { nonce, ..Self::default() }
    }

    /// Derives the key of this run's tokens from the `boot` id of the machine, so that a peer cannot read paths from
    /// them.
    pub fn key(&self, boot: &[u8]) -> [u8; 32] {
        blake3::derive_key("volferry 2026 whereabouts of a tree", &[&self.nonce[..], boot].concat())
    }

    /// Adds the tokens of a folder and of those above it, nearest first. With `is_root`, the first is the tree's root.
    pub fn add(&mut self, key: &[u8; 32], names: &[Vec<u8>], is_root: bool) {
        for (nth, token) in tokens(key, names).enumerate() {
            if nth == 0 && is_root { self.root.push(token) } else { self.above.push(token) }
        }
    }

    /// Adds the tokens of the file in the root that the run is about.
    pub fn add_file(&mut self, key: &[u8; 32], names: &[Vec<u8>]) {
        self.file.extend(tokens(key, names));
    }

    /// Returns the run's nonce.
    pub fn run(&self) -> [u8; 16] {
        self.nonce
    }

    /// Returns whether both trees have one root.
    pub fn is(&self, here: &Self) -> bool {
        self.root.iter().any(|token| here.root.contains(token))
    }

    /// Returns whether the files that both ends are about are one.
    pub fn is_same_file(&self, here: &Self) -> bool {
        self.file.iter().any(|token| here.file.contains(token))
    }

    /// Returns whether the tree at `here` is this one, lies in it or contains it, or the same holds for what is mounted
    /// in them.
    pub fn overlaps(&self, here: &Self) -> bool {
        let has = |tree: &Self, token| tree.root.contains(token) || tree.above.contains(token);
        here.root.iter().any(|token| has(self, token)) || self.root.iter().any(|token| has(here, token))
    }
}

fn tokens(key: &[u8; 32], names: &[Vec<u8>]) -> impl Iterator<Item = Token> {
    names.iter().map(|name| {
        let digest = blake3::keyed_hash(key, name);
        std::array::from_fn(|at| digest.as_bytes()[at])
    })
}
