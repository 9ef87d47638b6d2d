//! Divides work among the cores.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::available_parallelism,
};

use parking_lot::Mutex;

/// Returns the number of threads that can run at once in this process: its cores, or its control group's share of them.
/// The answer is read from kernel files once.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

/// Calls `work` with each number below `count`, on as many threads as there are cores. Each thread has at least
/// `per_thread` numbers, so that little work starts none. Returns the results in the order of the numbers.
pub(crate) fn on_cores<T: Send>(count: usize, per_thread: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    // Asking for the number of cores reads system files, so a single thread does not ask.
    let threads = match count.div_ceil(per_thread) {
        0 | 1 => return (0..count).map(work).collect(),
        most => cores().min(most),
    };
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let run = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Relaxed)).take_while(|nth| *nth < count);
        let mut results: Vec<(usize, T)> = numbers.map(|nth| (nth, work(nth))).collect();
        done.lock().append(&mut results);
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(run)));
        run();
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(nth, _)| *nth);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_numbers() {
        for count in [0, 1, 3, 1000] {
            let squares: Vec<usize> = (0..count).map(|nth| nth * nth).collect();
            assert_eq!(on_cores(count, 2, |nth| nth * nth), squares);
        }
    }
}
