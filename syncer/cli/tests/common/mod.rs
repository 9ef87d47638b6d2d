//! Shared helpers for the tests of whole runs: trees and edits of them, the program's processes, and an oracle that
//! checks results without any of the engine's code.

#![allow(dead_code, unreachable_pub)] // each test program uses a part of it, and a program has no users

pub mod cpu_group;
pub mod disk;
pub mod edit;
pub mod expect;
pub mod hostile;
pub mod loops;
pub mod mount;
pub mod object_storage;
pub mod oracle;
pub mod pair;
pub mod ports;
pub mod process;
pub mod relay;
pub mod rng;
pub mod scratch;
pub mod service;
pub mod sshd;
pub mod tree;
pub mod watch;
