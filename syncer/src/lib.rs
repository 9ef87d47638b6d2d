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
    block_sizes, codec, compare_entries, delta, hash,
    tree::{
        self, attrs, entry_paths, kept_mode_bits, lead_hard_links, listing, owners, path_list, reshape,
        whereabouts,
    },
    wire,
};

pub use volferry_core::{
    tree::{entry, filter, kept_xattrs, path},
    wire::buffers,
};

mod destination;
mod ends;
mod fetch;
#[doc(hidden)]
pub mod internals;
mod measure;
mod plan;
mod run;
mod scan;
pub mod session;
mod session_error;
mod sink;
pub mod snapshot;
mod source;
mod sys;
mod transport;

pub use measure::{failures, monitor, report};
pub use sys::{locate, mounts, root, source_id};
