//! Counts the cores to work on.

use std::{sync::OnceLock, thread::available_parallelism};

/// Returns the number of threads that can run at once in this process: its cores, or its control group's share of them.
/// The answer is read from kernel files once.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
}
