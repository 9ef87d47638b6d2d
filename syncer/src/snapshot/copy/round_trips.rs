//! How often a copy asks the other end of a stream: once for all directories of a level.

use std::{
    cell::Cell,
    fs,
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
};

use contract::{CopySelection, SnapshotEngine};
use tempfile::TempDir;

use super::{
    copy_history, copy_source::StoredHistory, lying_stores::store, stream_client::StreamedHistory,
    stream_server::serve_history,
};
use crate::{
    failures::Failures,
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        create::{create_snapshot, lock_volume},
        store::{Labels, Writer},
    },
};

/// Counts the requests that are sent: each ends with a flush.
struct CountedRequests<'a> {
    to: &'a UnixStream,
    sent: &'a Cell<usize>,
}

impl Write for CountedRequests<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sent.set(self.sent.get() + 1);
        Ok(())
    }
}

/// Copies all snapshots over a stream, and returns the number of requests.
fn requests(from: &Path, to: &Path) -> usize {
    let (near, far) = UnixStream::pair().unwrap();
    let (there, monitor, sent) = (store(from), Monitor::default(), Cell::new(0));
    let roots = there.roots().unwrap();
    let mut history = StoredHistory { store: &there, roots: &roots, volume: None };
    thread::scope(|scope| {
        // Closed by a panic as well, so that the other end does not wait.
        let near = near;
        scope.spawn(move || serve_history(&mut history, &far, &far).unwrap());
        let mut source = StreamedHistory::new(&near, CountedRequests { to: &near, sent: &sent });
        let destination = lock_volume(&TreeLocation::from(to)).unwrap();
        let mut writer = Writer::open(destination.state(), destination.root(), to, &monitor).unwrap();
        let done = copy_history(&mut writer, &mut source, &CopySelection::All, "test", &monitor);
        source.finish(&done).unwrap();
        assert_eq!(done.unwrap().failed, []);
    });
    sent.get()
}

/// Makes a tree of directories of which each has as many below it, and a file in each.
fn grow(dir: &Path, depth: usize, width: usize) {
    fs::write(dir.join("file"), dir.as_os_str().as_encoded_bytes()).unwrap();
    for nth in 0..if depth > 0 { width } else { 0 } {
        let below = dir.join(nth.to_string());
        fs::create_dir(&below).unwrap();
        grow(&below, depth - 1, width);
    }
}

fn snapshot(dir: &Path) {
    create_snapshot(&dir.into(), Labels::default(), SnapshotEngine::Copy, &[], &Failures::default()).unwrap();
}

/// Returns the requests for a tree of which the other store has nothing, and for a change at its top.
fn first_and_next(depth: usize, width: usize) -> (usize, usize) {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    grow(from.path(), depth, width);
    snapshot(from.path());
    let first = requests(from.path(), to.path());
    fs::write(from.path().join("file"), "changed").unwrap();
    snapshot(from.path());
    (first, requests(from.path(), to.path()))
}

#[test]
fn a_level_of_directories_takes_one_request_and_what_is_here_none() {
    let (first, next) = first_and_next(1, 1);
    assert_eq!(first_and_next(1, 9), (first, next));
    assert_eq!(first_and_next(4, 1), (first + 3, next));
    assert_eq!(first_and_next(4, 4), (first + 3, next));
    assert_eq!(next + 1, first, "the level below the top is here");
}
