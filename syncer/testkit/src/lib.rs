//! What the tests of whole runs and the benches share: folders and ports to work in, processes that end with a test, an
//! oracle that shares no code with the engine, a link that loses and delays datagrams, and an sshd.

#![allow(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used)] // a helper of tests fails as a test does

pub mod compare;
pub mod edits;
pub mod link;
pub mod oracle;
pub mod ports;
pub mod process;
pub mod relay;
pub mod rng;
pub mod s3_server;
pub mod scratch;
pub mod shape;
mod socket;
pub mod sshd;
pub mod wait;
