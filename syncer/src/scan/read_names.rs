//! Reads the names in one directory, sorted.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, binary_heap::PeekMut},
    ffi::CStr,
    io,
    mem::MaybeUninit,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
};

use bytes::Bytes;
use rustix::fs::RawDir;

use crate::{
    listing::Row as _,
    measure::monitor::Monitor,
    sys::{
        listed_name::has_spellings,
        spill_to_file::{SPILL_BYTES, Spool},
    },
};

/// The sorted names of one directory. Reused for every directory, so that reading one allocates nothing.
#[derive(Default)]
pub(super) struct Names {
    /// Names, each followed by a NUL.
    arena: Vec<u8>,
    /// The position of each name in the arena, in order.
    spans: Vec<NameSpan>,
    /// All names of a directory that is too large for memory; then the arena is empty.
    runs: Option<Runs>,
    /// Names that were asked for and that the directory lists in another spelling, or not at all.
    unlisted: BTreeSet<Box<[u8]>>,
}

/// Start and length.
type NameSpan = (u32, u32);

impl Names {
    pub(super) fn read(
        &mut self,
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        monitor: &Monitor,
    ) -> io::Result<()> {
        self.gather(fd, buffer, SPILL_BYTES, monitor)
    }

    /// Takes these names, which are sorted, instead of reading a directory.
    pub(super) fn take<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>) {
        self.arena.clear();
        self.spans.clear();
        self.runs = None;
        self.unlisted.clear();
        for name in names {
            self.spans.push((self.arena.len() as u32, name.len() as u32 + 1));
            self.arena.extend_from_slice(name);
            self.arena.push(0);
        }
    }

    /// Takes these names, which were asked for and are sorted. Where other spellings lead to the same entries, also
    /// reads the directory: what is excluded by one name must not be reached by another.
    pub(super) fn take_asked(
        &mut self,
        names: &[&[u8]],
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        monitor: &Monitor,
    ) -> io::Result<()> {
        self.take(names.iter().copied());
        if has_spellings(fd.as_fd(), names) {
            let mut listed = Self::default();
            listed.read(fd, buffer, monitor)?;
            self.unlisted = names.iter().map(|name| Box::from(*name)).collect();
            for name in listed.iter() {
                self.unlisted.remove(name.to_bytes());
            }
        }
        Ok(())
    }

    /// Returns whether the directory was read and does not list this name.
    pub(super) fn is_unlisted(&self, name: &CStr) -> bool {
        self.unlisted.contains(name.to_bytes())
    }

    /// Reads names, with about `most` bytes of them in memory.
    fn gather(
        &mut self,
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        most: usize,
        monitor: &Monitor,
    ) -> io::Result<()> {
        self.arena.clear();
        self.spans.clear();
        self.runs = None;
        self.unlisted.clear();
        let mut spilled = None;
        let mut entries = RawDir::new(fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            monitor.check()?;
            let name = entry.file_name().to_bytes_with_nul();
            if name == b".\0" || name == b"..\0" {
                continue;
            }
            self.spans.push((self.arena.len() as u32, name.len() as u32));
            self.arena.extend_from_slice(name);
            if self.arena.len() + self.spans.len() * size_of::<NameSpan>() >= most {
                self.spill(
                    spilled.get_or_insert_with(|| Spilled { names: Spool::in_file(), ends: Vec::new() }),
                )?;
            }
        }
        match spilled {
            None => self.sort(),
            Some(mut runs) => {
                self.spill(&mut runs)?;
                self.runs = Some(Runs { names: runs.names.finish()?, ends: runs.ends });
            }
        }
        Ok(())
    }

    fn sort(&mut self) {
        let arena = &self.arena;
        self.spans.sort_unstable_by(|a, b| span(arena, *a).cmp(span(arena, *b)));
    }

    /// Moves the names in memory to the end of `to`, as one run.
    fn spill(&mut self, to: &mut Spilled) -> io::Result<()> {
        self.sort();
        for name in self.spans.drain(..) {
            to.names.append(span(&self.arena, name))?;
        }
        to.ends.push(to.names.len());
        self.arena.clear();
        Ok(())
    }

    /// Returns whether there may be an entry of this name; false is certain.
    pub(super) fn may_contain(&self, name: &[u8]) -> bool {
        let name_at =
            |&at: &NameSpan| span(&self.arena, at).strip_suffix(b"\0").unwrap_or_default().cmp(name);
        self.runs.is_some() || self.spans.binary_search_by(name_at).is_ok()
    }

    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = &CStr> + '_> {
        match &self.runs {
            None => Box::new(self.spans.iter().filter_map(|&at| c_str(span(&self.arena, at)))),
            Some(runs) => Box::new(runs.merged().filter_map(c_str)),
        }
    }
}

fn span(arena: &[u8], (start, len): NameSpan) -> &[u8] {
    &arena[start as usize..][..len as usize]
}

fn c_str(name: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_with_nul(name).ok()
}

/// Runs that are being written.
struct Spilled {
    names: Spool,
    ends: Vec<usize>,
}

/// Names in several sorted runs.
struct Runs {
    names: Bytes,
    /// The end of each run.
    ends: Vec<usize>,
}

impl Runs {
    /// Yields all names in order.
    fn merged(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let run = |run: Range<usize>| self.names[run].split_inclusive(|byte| *byte == 0);
        let mut runs: Vec<_> = starts.zip(&self.ends).map(|(start, &end)| run(start..end)).collect();
        let mut firsts: BinaryHeap<_> = (0..)
            .zip(&mut runs)
            .filter_map(|(number, run): (usize, _)| Some(Reverse((run.next()?, number))))
            .collect();
        std::iter::from_fn(move || {
            let mut top = firsts.peek_mut()?;
            let Reverse((name, number)) = *top;
            match runs[number].next() {
                Some(next) => *top = Reverse((next, number)),
                None => drop(PeekMut::pop(top)),
            }
            Some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn names_are_in_order_however_few_memory_holds() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected: Vec<String> =
            (0..300).map(|number| format!("{}{}", number * 7919 % 1000, "x".repeat(number % 40))).collect();
        expected.sort();
        expected.iter().for_each(|name| drop(fs::File::create(dir.path().join(name)).unwrap()));
        let mut names = Names::default();
        let mut buffer = vec![MaybeUninit::uninit(); 4096];
        for most in [1, 100, 3000, usize::MAX, 5000] {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
            names.gather(&fd, &mut buffer, most, &Monitor::default()).unwrap();
            assert_eq!(names.runs.is_some(), most < usize::MAX, "{most}");
            let found: Vec<_> = names.iter().map(|name| name.to_str().unwrap()).collect();
            assert_eq!(found, expected, "{most}");
            assert!(expected.iter().all(|name| names.may_contain(name.as_bytes())));
        }
    }
}
