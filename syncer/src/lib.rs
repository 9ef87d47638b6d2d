//! The Volferry engine: moves one tree onto another, within a machine or over QUIC.
//!
//! Data flows one way through the modules: `scan → plan → wire → transport → apply`, and [`session`] runs them.
//! `syncer/doc/design.md` says why it is so.

pub use volferry_core::{
    codec, delta, hash, plan,
    tree::{
        self, attrs, entry, filter, links, listing, owners, path, path_list, pattern, rules, whereabouts,
    },
    wire::{self, buffers},
};

pub mod apply;
pub mod cores;
pub mod device;
pub mod locate;
pub mod monitor;
pub mod pace;
pub mod report;
pub mod root;
pub mod scan;
pub mod session;
pub mod slice;
pub mod snapshot;
pub mod spool;
pub mod stat;
pub mod transport;
pub mod xattr;
