//! Which files of a mount the kernel is given before somebody asks for them.
//!
//! A request of the kernel costs two wake-ups, which take longer than to read and check a small file. Programs that
//! read a tree do so in the order of its names, and inodes are numbered in that order: so a file whose number follows
//! that of the one before announces those that come next.

use std::{
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use fuser::Notifier;
use syncer::snapshot::{Store, store::ContentRef};

/// The largest file that is read ahead, in bytes. The kernel reads ahead in larger ones by itself.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// The most files, and bytes, that are read ahead at once: some milliseconds of work.
const MAX_FILES: usize = 512;
const MAX_BYTES: u64 = 4 << 20;

/// The files that are read ahead when the second of a row is read. Each further row is twice as long.
const FIRST_FILES: usize = 8;

/// How many inodes that are not small files may lie between two files of a row.
const MAX_GAP: u64 = 32;

/// A small file.
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallFile {
    /// The number of its inode.
    pub number: u64,
    pub content: ContentRef,
    /// Length in bytes, at least 1.
    pub len: u64,
}

impl SmallFile {
    /// Returns the file at an inode, unless it is empty or large.
    pub(super) fn new(number: u64, content: Option<ContentRef>, len: u64) -> Option<Self> {
        Some(Self { number, content: content.filter(|_| (1..=MAX_FILE_BYTES).contains(&len))?, len })
    }
}

/// Where the next file of a row is expected, and the thread that reads ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// The inode after the last one that was read, or read ahead.
    next: u64,
    /// The number of files to read ahead, 0 as long as none followed another.
    files: usize,
    thread: SyncSender<Vec<SmallFile>>,
}

impl ReadAhead {
    /// Starts the thread. It gives files to the kernel by `notifier`, which comes with the mount.
    ///
    /// The kernel locks the pages of a file that is being read until the request is answered, and to give it that file
    /// waits for the lock: whoever answers requests must not.
    pub(super) fn start(store: Arc<Store>, notifier: Arc<OnceLock<Notifier>>) -> Self {
        let (thread, rows) = sync_channel(1);
        thread::spawn(move || give(&store, &notifier, &rows));
        Self { next: 0, files: 0, thread }
    }

    /// Notes that a file is being read, and has those read ahead that `files_from` finds from an inode on, if this one
    /// follows the one before. A row that comes too early for the thread is left out.
    pub(super) fn note<F: Iterator<Item = (u64, Option<SmallFile>)>>(
        &mut self,
        number: u64,
        files_from: impl FnOnce(u64) -> F,
    ) {
        let follows = (self.next..self.next.saturating_add(MAX_GAP)).contains(&number);
        self.files = if follows { (self.files * 2).clamp(FIRST_FILES, MAX_FILES) } else { 0 };
        self.next = number + 1;
        if self.files == 0 {
            return;
        }
        let (mut row, mut bytes) = (Vec::new(), 0);
        for (number, file) in files_from(self.next) {
            bytes += file.map_or(0, |file| file.len);
            if row.len() == self.files || bytes > MAX_BYTES {
                break;
            }
            self.next = number + 1;
            row.extend(file);
        }
        if !row.is_empty() {
            // The kernel asks for what it was not given.
            let _ = self.thread.try_send(row);
        }
    }
}

/// Gives the kernel the files of rows. A file that is damaged is left to whoever reads it.
fn give(store: &Store, notifier: &OnceLock<Notifier>, rows: &Receiver<Vec<SmallFile>>) {
    for file in rows.iter().flatten() {
        let (Some(notifier), Ok(bytes)) = (notifier.get(), store.small(&file.content, file.len)) else {
            continue;
        };
        if notifier.store(file.number, 0, &bytes).is_err() {
            return;
        }
    }
}
