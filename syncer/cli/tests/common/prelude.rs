//! What nearly every test of whole runs uses.

#![allow(unused_imports)] // each test program uses a part of it

pub use contract::{Event, ExitCode, Report, RunResult};
pub use rustix::process::Signal;
pub use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

pub use super::{
    disk::{Disk, Mount, run},
    edit::Edit,
    mount::FileSystem,
    oracle::{self, Aspects, COPY, Snapshot, UNTOUCHED, show},
    pair::{ANY_PORT, Pair, Run, Way, text},
    process::{Ended, PATIENCE, Running, User, program},
    relay::Relay,
    rng::Rng,
    scratch,
    sshd::Sshd,
    tree::{self, Shape},
};
