//! Waits for changes in a directory by the kernel's notifications.

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
    sync::mpsc,
    thread,
};

use rustix::fs::inotify;

use super::process::PATIENCE;

/// Waits for the first entry that appears in a directory.
#[derive(Debug)]
pub struct FirstEntry(mpsc::Receiver<()>);

impl FirstEntry {
    /// Watches `dir` from now on.
    pub fn of(dir: &Path) -> Self {
        let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        let appeared = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&events, dir, appeared).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let own = c".volferry";
            let mut reader = inotify::Reader::new(events, &mut buffer);
            while reader.next().is_ok_and(|event| event.file_name() == Some(own)) {}
            let _ = tell.send(());
        });
        Self(told)
    }

    /// Returns once an entry has appeared. Volferry's own folder does not count.
    #[track_caller]
    pub fn wait(self) {
        self.0.recv_timeout(PATIENCE).expect("nothing appeared");
    }
}

/// Returns once `holds` is true; calls it whenever a file in `dir` has been made or written to.
#[track_caller]
pub fn until_written(dir: &Path, holds: impl Fn() -> bool) {
    let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let written = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::MODIFY;
    inotify::add_watch(&events, dir, written).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        while reader.next().is_ok() && tell.send(()).is_ok() {}
    });
    while !holds() {
        told.recv_timeout(PATIENCE).expect("nothing more is written");
    }
}

/// Waits until an open file is closed by all: a child that another test has just forked holds it until it executes.
#[derive(Debug)]
pub struct LastClose(OwnedFd);

impl LastClose {
    /// Watches a file that is open for writing.
    pub fn of(file: &File) -> Self {
        let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        inotify::add_watch(&events, path, inotify::WatchFlags::CLOSE_WRITE).unwrap();
        Self(events)
    }

    /// Returns once nobody has the file open for writing by the descriptor that was watched.
    pub fn wait(self) {
        inotify::Reader::new(self.0, &mut [MaybeUninit::uninit(); 4096]).next().unwrap();
    }
}
