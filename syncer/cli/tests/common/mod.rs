//! Shared helpers for the tests of whole runs: trees and edits of them, and the program's processes.

#![allow(dead_code, unreachable_pub)] // each test program uses a part of it, and a program has no users

pub mod cpu_group;
pub mod deaf_peer;
pub mod disk;
pub mod edit;
pub mod expect;
pub mod hostile;
pub mod loops;
pub mod mount;
pub mod object_storage;
pub mod pair;
pub mod prelude;
pub mod process;
pub mod secure_way;
pub mod service;
pub mod tree;
pub mod watch;

pub use testkit::{oracle, ports, relay, rng, scratch, sshd, wait};
