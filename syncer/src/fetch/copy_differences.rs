//! Updates a large file, or a part of a device, in place from a file of the same machine: reads both and stages the
//! ranges that differ.

use std::{io, ops::Range};

use crate::{
    block_sizes::{block_bytes, granule_bytes},
    destination::Staged,
    measure::{
        monitor::Monitor,
        thread_time::{Activity, during},
    },
    sys::{
        file_part::{Slice, data_in},
        find_holes::DataMap,
    },
};

/// How zeros of the source are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// As data.
    Bytes,
    /// A hole of the source becomes a hole.
    Holes,
    /// As `Holes`, and ranges of zeros become holes, too.
    AllHoles,
}

/// Stages the ranges of `from`, which is `len` bytes long, that differ from the file that `staged` lies over. Returns
/// the number of bytes that are equal.
///
/// # Errors
/// `UnexpectedEof` when a file turns out to be shorter; `ECANCELED` when the monitor was told to stop.
pub(crate) fn differences(
    from: Slice<'_>,
    len: u64,
    staged: &Staged,
    zeros: Zeros,
    monitor: &Monitor,
) -> io::Result<u64> {
    staged.set_len(len)?;
    let old_len = staged.basis_len()?;
    let mut compare =
        Compare { from, staged, old_len, zeros, piece: granule_bytes(len), buffers: Default::default() };
    let (mut at, mut same, old_data) = (0, 0, DataMap::new(old_len));
    let data: Vec<_> = match zeros {
        Zeros::Bytes => std::iter::once(0..len).collect(),
        Zeros::Holes | Zeros::AllHoles => DataMap::new(len).within(from, 0, len),
    };
    for range in data.into_iter().chain(std::iter::once(len..len)) {
        for there in old_data.within(staged.basis(), at, range.start) {
            staged.make_hole(there.start, there.end - there.start)?;
        }
        same += range.start - at;
        at = range.end;
        let block = block_bytes(len);
        for start in range.clone().step_by(block) {
            monitor.may_copy(range.end.min(start + block as u64) - start)?;
            same += compare.block(start..range.end.min(start + block as u64))?;
        }
    }
    Ok(same)
}

struct Compare<'a> {
    from: Slice<'a>,
    staged: &'a Staged,
    old_len: u64,
    zeros: Zeros,
    /// The length of the ranges that are compared, in bytes.
    piece: usize,
    buffers: [Vec<u8>; 2],
}

impl Compare<'_> {
    /// Stages the ranges of a block that differ. Returns the number of bytes that are equal.
    fn block(&mut self, range: Range<u64>) -> io::Result<u64> {
        let [new, old] = &mut self.buffers;
        new.resize((range.end - range.start) as usize, 0);
        old.resize((range.end.min(self.old_len).saturating_sub(range.start)) as usize, 0);
        during(Activity::Reading, || self.from.read_exact_at(new, range.start))?;
        self.staged.basis().read_exact_at(old, range.start)?;
        let (mut at, mut same) = (0, 0);
        while at < new.len() {
            let end = new.len().min(at + self.piece);
            let differs = |at: usize, end: usize| old.get(at..end) != Some(&new[at..end]);
            if !differs(at, end) {
                same += (end - at) as u64;
                at = end;
                continue;
            }
            let mut stop = end;
            while stop < new.len() && differs(stop, new.len().min(stop + self.piece)) {
                stop = new.len().min(stop + self.piece);
            }
            write(self.staged, &new[at..stop], range.start + at as u64, self.zeros)?;
            at = stop;
        }
        Ok(same)
    }
}

fn write(staged: &Staged, bytes: &[u8], offset: u64, zeros: Zeros) -> io::Result<()> {
    if zeros != Zeros::AllHoles {
        return staged.write_at(bytes, offset);
    }
    let mut at = offset;
    for data in data_in(bytes, offset) {
        if at < data.start {
            staged.make_hole(at, data.start - at)?;
        }
        staged.write_at(&bytes[(data.start - offset) as usize..(data.end - offset) as usize], data.start)?;
        at = data.end;
    }
    let end = offset + bytes.len() as u64;
    if at < end { staged.make_hole(at, end - at) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _};

    use contract::Preserve;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        destination::{Candidate, Destination, EntryAt, Settings},
        path::RelPath,
    };

    fn destination(dir: &std::path::Path) -> Destination {
        let settings = Settings { in_place: true, ..Settings::resolve(&Preserve::default()).unwrap() };
        Candidate::open(&dir.into()).unwrap().take(settings, None, None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_file_reads_as_its_new_version_before_and_after_it_is_written(
            old_len in 0..300_000_usize,
            new_len in 0..300_000_usize,
            edits in prop::collection::vec((0..300_000_usize, 1..9000_usize), 0..6),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let old: Vec<u8> = (0..old_len).map(|at| (at / 7 + at / 4099) as u8).collect();
            let mut new = old.clone();
            new.resize(new_len, 3);
            for (at, len) in edits {
                let end = new.len().min(at + len);
                new[at.min(end)..end].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            let file = dir.path().join("file");
            fs::write(&file, &old).unwrap();
            let from = tempfile::NamedTempFile::new().unwrap();
            fs::write(from.path(), &new).unwrap();
            let destination = destination(dir.path());
            let staged = destination.stage_over(&RelPath::parse(b"file").unwrap()).unwrap();
            let same = differences(
                Slice::all_of(from.as_file().as_fd()), new_len as u64, &staged, Zeros::Holes, &Monitor::default()
            ).unwrap();
            let mut read = vec![0; new_len];
            staged.read_exact_at(&mut read, 0).unwrap();
            prop_assert!(read == new);
            prop_assert!(fs::read(&file).unwrap() == old, "nothing is written yet");
            prop_assert!(old != new || same == new_len as u64);
            let root = destination.dir(&RelPath::root()).unwrap();
            let meta = crate::entry::Meta::default();
            destination.publish(&staged, EntryAt::staged(root.as_fd(), b"file"), &meta, Default::default()).unwrap();
            prop_assert!(fs::read(&file).unwrap() == new);
            prop_assert_eq!(fs::read_dir(dir.path().join(".volferry/journal")).unwrap().count(), 0);
            prop_assert_eq!(fs::read_dir(dir.path().join(".volferry/staging")).unwrap().count(), 0);
        }
    }
}
