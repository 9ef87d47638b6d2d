//! The Volferry engine: moves one tree onto another, within a machine or over QUIC.
//!
//! Data flows one way through the modules: `scan → plan → wire → transport → apply`, and [`session`] runs them.
//! `syncer/doc/design.md` says why it is so.

pub mod apply;
pub mod attrs;
pub mod buffers;
pub mod cli;
pub mod codec;
pub mod cores;
pub mod delta;
pub mod device;
pub mod entry;
pub mod filter;
pub mod hash;
pub mod links;
pub mod listing;
pub mod monitor;
pub mod owners;
pub mod path;
pub mod plan;
pub mod report;
pub mod root;
pub mod rules;
pub mod scan;
pub mod session;
pub mod slice;
pub mod snapshot;
pub mod spool;
pub mod transport;
pub mod whereabouts;
pub mod wire;
