//! The trash of a store, in which collections put what no snapshot needs.

use std::{
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::{fs::AtFlags, io::Errno};

use super::store_files::{TRASH, names, remove_flat};

/// Removes what is in the trash of the store in `dir`, at most `per_second` files a second.
pub(super) fn empty(dir: BorrowedFd<'_>, per_second: Option<u32>) -> io::Result<()> {
    let began = Instant::now();
    for (nth, name) in (0_u32..).zip(names(dir, TRASH)?) {
        if let Some(rate) = per_second.filter(|rate| *rate > 0) {
            let due = Duration::from_secs_f64(f64::from(nth) / f64::from(rate));
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let path = format!("{TRASH}/{name}");
        match rustix::fs::unlinkat(dir, &path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => remove_flat(dir, &path)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
