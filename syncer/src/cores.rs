//! How many cores there are to work on.

use std::{sync::OnceLock, thread::available_parallelism};

/// How many threads can work at once in this process: its cores, or the part of them that its control group has. Asked for once, as the answer is
/// looked up in files of the kernel's.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
}
