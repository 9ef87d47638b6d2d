//! The log of which blocks of a very large file have arrived and were checked, so that the next run need not read them
//! again.
//!
//! Beside a partial file in staging there may be a file `NAME.blocks`: a header, and one entry for each block that is
//! on the disk. `syncer/doc/format.md` describes the format.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::{Mode, OFlags};

use crate::{
    block_sizes::block_bytes,
    delta::checked::{BlockCheck, CheckedBlock, FileVersion},
    destination::{
        copy_bytes::{read_exact_at, write_all},
        staging::staged_file::Staged,
        state::{
            staging_names::{OWNERS, blocks_name},
            state_dir::StateDir,
        },
    },
    hash::digest,
};

const MAGIC: [u8; 8] = *b"VFBLOCK\x01";

/// The length of the header, and of each entry.
const RECORD: usize = 56;

/// Entries that are read at once.
const AT_ONCE: usize = 4096;

/// Blocks that an earlier run received, all of one version of a file.
#[derive(Debug)]
pub(crate) struct ArrivedBlocks {
    version: FileVersion,
    file_len: u64,
    values: BTreeMap<u64, [u8; 32]>,
}

impl ArrivedBlocks {
    /// Returns the length of the file that the blocks belong to, in bytes.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Returns the version of the file that the blocks belong to.
    pub(crate) fn version(&self) -> FileVersion {
        self.version
    }

    /// Returns the blocks by their offsets, each with its value in the file's hash.
    pub(crate) fn values(&self) -> &BTreeMap<u64, [u8; 32]> {
        &self.values
    }

    /// Returns whether the block at `offset` has arrived, in the version and with the value that `check` names.
    pub(crate) fn has(&self, offset: u64, check: &BlockCheck) -> bool {
        self.version == check.version && self.values.get(&offset) == Some(&check.value)
    }
}

/// Blocks that an earlier run received, and their log.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub blocks: ArrivedBlocks,
    pub log: ArrivalLog,
}

/// The file `NAME.blocks`, open for appending entries.
#[derive(Debug)]
pub(crate) struct ArrivalLog {
    file: OwnedFd,
    version: FileVersion,
    end: u64,
}

impl ArrivalLog {
    /// Creates the log of a staged partial file, for a file of `file_len` bytes in this version.
    pub(crate) fn begin(
        state: &StateDir,
        staged: &Staged,
        version: FileVersion,
        file_len: u64,
    ) -> io::Result<Self> {
        let name = staged.part_name().ok_or(io::ErrorKind::InvalidInput)?;
        let _ = state.drop_blocks(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(state.staging(), blocks_name(name), flags, OWNERS)?;
        write_all(file.as_fd(), &header(version, file_len, staged.inode()?), 0)?;
        Ok(Self { file, version, end: RECORD as u64 })
    }

    /// Reads the log that an earlier run left for a staged partial file, and opens it for more entries. `None` if there
    /// is no log, or another user could have written it, or it belongs to another file.
    pub(crate) fn read(state: &StateDir, staged: &Staged) -> Option<Arrived> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = blocks_name(staged.part_name()?);
        let file = rustix::fs::openat(state.staging(), name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let mut first = [0; RECORD];
        if !state.trusts_staged(&stat) || read_exact_at(file.as_fd(), &mut first, 0).is_err() {
            return None;
        }
        let version = FileVersion(*first[8..].first_chunk()?);
        let file_len = u64::from_le_bytes(*first[24..].first_chunk()?);
        if first != header(version, file_len, staged.inode().ok()?) {
            return None;
        }
        let blocks = file_len.div_ceil(block_bytes(file_len) as u64);
        let most = (stat.st_size as u64 / RECORD as u64).saturating_sub(1).min(blocks);
        let mut log = Self { file, version, end: RECORD as u64 };
        let values = log.entries(most).ok()?;
        Some(Arrived { blocks: ArrivedBlocks { version, file_len, values }, log })
    }

    /// Reads at most `most` entries, and stops at the first one that is torn.
    fn entries(&mut self, most: u64) -> io::Result<BTreeMap<u64, [u8; 32]>> {
        let mut values = BTreeMap::new();
        let mut left = most;
        while left > 0 {
            let count = left.min(AT_ONCE as u64);
            let mut bytes = vec![0; count as usize * RECORD];
            read_exact_at(self.file.as_fd(), &mut bytes, self.end)?;
            for record in bytes.as_chunks::<RECORD>().0 {
                let block = split(record);
                if *record != entry(self.version, &block) {
                    return Ok(values);
                }
                values.insert(block.offset, block.value);
                self.end += RECORD as u64;
            }
            left -= count;
        }
        Ok(values)
    }

    /// Returns the version of the file that the blocks belong to.
    pub(crate) fn version(&self) -> FileVersion {
        self.version
    }

    /// Adds blocks that have been written to `staged`, after syncing them to the disk.
    pub(crate) fn add(&mut self, staged: &Staged, blocks: &[CheckedBlock]) -> io::Result<()> {
        rustix::fs::fdatasync(staged.fd())?;
        let entries: Vec<u8> = blocks.iter().flat_map(|block| entry(self.version, block)).collect();
        write_all(self.file.as_fd(), &entries, self.end)?;
        self.end += entries.len() as u64;
        Ok(())
    }

    /// Removes all entries, durably. The caller does this before it writes to one of the blocks again.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        rustix::fs::ftruncate(&self.file, 0)?;
        Ok(rustix::fs::fdatasync(&self.file)?)
    }
}

fn header(version: FileVersion, file_len: u64, inode: u64) -> [u8; RECORD] {
    let parts = [&MAGIC[..], &version.0, &file_len.to_le_bytes(), &inode.to_le_bytes()].concat();
    sealed(&parts, &parts)
}

fn entry(version: FileVersion, block: &CheckedBlock) -> [u8; RECORD] {
    let parts = [&block.offset.to_le_bytes()[..], &block.value].concat();
    sealed(&parts, &[&version.0, &*parts].concat())
}

/// Builds a record: 40 bytes of content, and a hash over `all` by which a torn record is recognised.
fn sealed(parts: &[u8], all: &[u8]) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..40].copy_from_slice(parts);
    record[40..].copy_from_slice(&digest(&[all]));
    record
}

fn split(record: &[u8; RECORD]) -> CheckedBlock {
    let (mut offset, mut value) = ([0; 8], [0; 32]);
    offset.copy_from_slice(&record[..8]);
    value.copy_from_slice(&record[8..40]);
    CheckedBlock { offset: u64::from_le_bytes(offset), value }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;
    use crate::{
        delta::checked::MIN_CHECKED_BYTES, measure::monitor::Monitor, path::RelPath, sys::root::Root,
    };

    const LEN: u64 = MIN_CHECKED_BYTES;
    const VERSION: FileVersion = FileVersion([3; 16]);

    struct Place {
        dir: tempfile::TempDir,
        path: RelPath,
    }

    impl Place {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), path: RelPath::parse(b"large").unwrap() }
        }

        fn open(&self) -> StateDir {
            StateDir::open(&Root::open(self.dir.path()).unwrap(), self.dir.path(), None, None).unwrap()
        }

        /// Leaves a part and two notes, as a run that is cut off does.
        fn leave(&self) {
            let state = self.open();
            let staged = Staged::part(&state, &self.path).unwrap();
            staged.write_at(&[7; 5000], 0).unwrap();
            let mut log = ArrivalLog::begin(&state, &staged, VERSION, LEN).unwrap();
            log.add(&staged, &[checked(0, 1), checked(block(), 2)]).unwrap();
        }

        fn files(&self) -> Vec<PathBuf> {
            let staging = fs::read_dir(self.dir.path().join(".volferry/staging")).unwrap();
            staging.map(|entry| entry.unwrap().path()).collect()
        }

        fn noted(&self) -> PathBuf {
            self.files().into_iter().find(|path| path.extension().is_some_and(|it| it == "blocks")).unwrap()
        }

        /// Returns the offsets that the next run reads.
        fn read(&self) -> Vec<u64> {
            let state = self.open();
            let staged = Staged::leftover(&state, &self.path, &Monitor::default()).unwrap().part;
            let read = ArrivalLog::read(&state, &staged);
            read.map(|read| read.blocks.values.into_keys().collect()).unwrap_or_default()
        }
    }

    fn block() -> u64 {
        block_bytes(LEN) as u64
    }

    fn checked(offset: u64, byte: u8) -> CheckedBlock {
        CheckedBlock { offset, value: [byte; 32] }
    }

    #[test]
    fn what_a_run_notes_the_next_ones_read_and_add_to() {
        let place = Place::new();
        place.leave();
        assert_eq!(place.read(), [0, block()]);
        let state = place.open();
        let staged = Staged::leftover(&state, &place.path, &Monitor::default()).unwrap().part;
        let Arrived { blocks, mut log } = ArrivalLog::read(&state, &staged).unwrap();
        let is = |value| blocks.has(block(), &BlockCheck { version: VERSION, value });
        assert_eq!((is([2; 32]), is([1; 32]), blocks.file_len()), (true, false, LEN));
        log.add(&staged, &[checked(2 * block(), 3)]).unwrap();
        drop((state, staged));
        assert_eq!(place.read(), [0, block(), 2 * block()]);
        let state = place.open();
        let staged = Staged::leftover(&state, &place.path, &Monitor::default()).unwrap().part;
        ArrivalLog::read(&state, &staged).unwrap().log.forget().unwrap();
        drop((state, staged));
        assert_eq!(place.read(), [0; 0]);
    }

    #[test]
    fn notes_that_are_torn_or_that_others_could_write_to_are_not_believed() {
        for at in [0, 10, 30, 33, 50, RECORD + 3, RECORD + 20, 2 * RECORD - 1] {
            let place = Place::new();
            place.leave();
            let mut content = fs::read(place.noted()).unwrap();
            content[at] ^= 0x40;
            fs::write(place.noted(), content).unwrap();
            assert_eq!(place.read(), [0; 0], "{at}");
        }
        let place = Place::new();
        place.leave();
        fs::set_permissions(place.noted(), fs::Permissions::from_mode(0o660)).unwrap();
        assert_eq!(place.read(), [0; 0]);
    }

    #[test]
    fn notes_of_a_part_that_is_gone_go_with_the_next_run() {
        let place = Place::new();
        place.leave();
        let part = place.files().into_iter().find(|path| *path != place.noted()).unwrap();
        fs::remove_file(part).unwrap();
        drop(place.open());
        assert_eq!(place.files(), [] as [PathBuf; 0]);
    }
}
