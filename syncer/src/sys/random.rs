//! Random bytes of the system, for ids and stamps.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random bytes from the system, at most 256 at once.
pub(crate) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    match getrandom(&mut *bytes, GetRandomFlags::empty())? {
        filled if filled == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
