//! Why a bench failed.

use std::{io, path::PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum BenchError {
    #[error("cannot use {path}", path = .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path} is not a folder\nhint: name a folder of the volume", path = .0.display())]
    NoFolder(PathBuf),
    #[error(
        "cannot read {path}\nhint: --tree takes small, large, mixed, or a file that describes a tree",
        path = .path.display()
    )]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} does not describe a tree: {message}", path = .path.display())]
    Parse { path: PathBuf, message: String },
    #[error("{path} describes no possible tree: {fault}", path = .path.display())]
    Impossible { path: PathBuf, fault: String },
    #[error(
        "the bench takes {needed}, and {path} has room for {free}\nhint: make room, or choose a smaller --tree",
        path = .path.display()
    )]
    NoRoom { path: PathBuf, needed: String, free: String },
    #[error("cannot make {path}", path = .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}\nhint: the next bench removes it, or remove it by hand", path = .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("the bench was stopped")]
    Stopped,
    #[error("{run}: {message}")]
    Run { run: String, message: String },
    #[error("cannot write {path}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot print the result")]
    Output(#[from] io::Error),
}
