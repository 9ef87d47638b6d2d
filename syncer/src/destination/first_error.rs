//! The first error of a series of calls, which the later ones must not hide.

use std::sync::OnceLock;

use rustix::io::Errno;

/// The first error of making changes durable. A kernel reports each of them only once.
#[derive(Debug, Default)]
pub(super) struct FirstError(OnceLock<Errno>);

impl FirstError {
    pub(super) fn keep(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(error) = result {
            let _ = self.0.set(error);
        }
        self.0.get().map_or(Ok(()), |error| Err(*error))
    }
}
