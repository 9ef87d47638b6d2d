//! Which file of the destination may be a copy of one that is needed: what was renamed or copied at the source is made from what is here.

use std::{collections::HashMap, sync::atomic::Ordering::Relaxed};

use super::{execute::Old, paths::Paths};
use crate::{
    entry::{Entry, Kind},
    report::Counters,
    scan::{DirId, Tree},
    wire::data::MAX_PACKED_BYTES,
};

/// So many files may turn out to have nothing in common with one of the same length only; then no more are tried.
const MAX_WRONG_GUESSES: u64 = 4;

/// So many files of one length are looked at.
const MAX_OF_ONE_LENGTH: usize = 64;

/// The large files of the destination by their lengths, listed when the first is asked for.
#[derive(Debug)]
pub(super) struct Copies<'a> {
    sink: &'a Tree,
    listed: Option<Listed<'a>>,
}

#[derive(Debug)]
struct Listed<'a> {
    by_len: HashMap<u64, Vec<(DirId, u32)>>,
    paths: Paths<'a>,
}

impl<'a> Copies<'a> {
    pub(super) fn new(sink: &'a Tree) -> Self {
        Self { sink, listed: None }
    }

    /// A file with as many bytes: one with the same time or name if there is one, else any.
    pub(super) fn find(&mut self, wanted: &Entry<'_>, len: u64, counters: &Counters) -> Option<Old> {
        if len <= MAX_PACKED_BYTES {
            return None;
        }
        let sink = self.sink;
        let listed =
            self.listed.get_or_insert_with(|| Listed { by_len: by_len(sink), paths: Paths::new(sink) });
        let (mut best, mut likeness) = (None, 0);
        for &(dir, index) in listed.by_len.get(&len)? {
            let Some(entry) = sink.dirs[dir as usize].listing.iter().nth(index as usize) else { continue };
            let like =
                1 + u8::from(entry.name == wanted.name) + 2 * u8::from(entry.meta.mtime == wanted.meta.mtime);
            if like > likeness {
                (best, likeness) = (Some((dir, entry.name)), like);
            }
        }
        let (dir, name) = best?;
        let is_guess = likeness == 1;
        if is_guess && counters.wrong_guesses.load(Relaxed) >= MAX_WRONG_GUESSES {
            return None;
        }
        let path = listed.paths.of(dir).join(name).ok()?;
        Some(Old { path, len, is_guess })
    }
}

fn by_len(sink: &Tree) -> HashMap<u64, Vec<(DirId, u32)>> {
    let mut by_len = HashMap::<u64, Vec<_>>::new();
    for (id, dir) in (0..).zip(&sink.dirs) {
        for (index, entry) in (0..).zip(&dir.listing) {
            if let Kind::File { size } = entry.kind
                && size > MAX_PACKED_BYTES
            {
                let same = by_len.entry(size).or_default();
                if same.len() < MAX_OF_ONE_LENGTH {
                    same.push((id, index));
                }
            }
        }
    }
    by_len
}
