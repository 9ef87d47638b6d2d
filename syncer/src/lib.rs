//! The Volferry engine: moves one tree onto another, within a machine or over QUIC, and keeps snapshots of it.
//!
//! Programs call the functions of [`session`] with [`contract::RunParams`], and look at a run through a
//! [`Monitor`](monitor::Monitor). `syncer/doc/architecture.md` shows the way of a file through the code.
//!
//! ```
//! use std::fs;
//!
//! use contract::RunParams;
//! use syncer::{monitor::Monitor, session};
//!
//! # let dir = tempfile::tempdir()?;
//! let [source, destination] = ["source", "destination"].map(|name| dir.path().join(name));
//! fs::create_dir(&source)?;
//! fs::write(source.join("file"), "content")?;
//! let outcome = session::sync(&source, &destination, &RunParams::default(), &Monitor::default());
//! assert_eq!(outcome.report.work.files_created, 1);
//! assert_eq!(fs::read_to_string(destination.join("file"))?, "content");
//! # Ok::<(), std::io::Error>(())
//! ```

use volferry_core::{
    codec, delta, hash, plan,
    tree::{
        self, attrs, links, listing, owners, path_list, pattern, pattern_use, reshape, rules, whereabouts,
    },
    wire,
};

pub use volferry_core::{
    tree::{entry, filter, filter_rules, path},
    wire::buffers,
};

mod apply;
mod cores;
mod cpu_limit;
mod device;
mod effort;
#[doc(hidden)]
pub mod internals;
pub mod locate;
pub mod monitor;
mod motion;
mod pace;
pub mod report;
pub mod root;
mod scan;
pub mod session;
mod slice;
pub mod snapshot;
mod spool;
mod stat;
mod transport;
mod xattr;
