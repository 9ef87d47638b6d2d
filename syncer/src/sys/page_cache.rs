//! Drops what the system has cached of a file, so that the next read is of the volume.

use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

use crate::sys::file_part::Slice;

/// Drops the cached pages of `content`, which is `len` bytes long. Advice only: where the system does not follow it,
/// its cache is read.
pub(crate) fn drop_page_cache(content: Slice<'_>, len: u64) {
    let _ = fadvise(content.fd, content.start, NonZeroU64::new(len), Advice::DontNeed);
}
