//! Handles SIGINT and SIGTERM: the first asks the run to stop in order, a second one of its kind ends the process at
//! once.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
};

use super::screen::Screen;
use syncer::monitor::Monitor;

/// Has writes beyond the limit on the size of files (`ulimit -f`) fail, instead of ending the process.
pub(super) fn outlive_size_limit() {
    // Where this fails, the signal has its default effect, as before.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Passes signals on to `monitor` from a thread of its own, until the process ends.
pub(super) fn pass_on(monitor: &Arc<Monitor>, screen: &Arc<Screen>) -> io::Result<()> {
    // The order matters: the first signal finds its flag unset and sets it, so the second has its default effect, in
    // the signal handler itself, whatever the threads wait for.
    for signal in [SIGINT, SIGTERM] {
        let came = Arc::new(AtomicBool::new(false));
        flag::register_conditional_default(signal, Arc::clone(&came))?;
        flag::register(signal, came)?;
    }

    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (monitor, screen) = (Arc::clone(monitor), Arc::clone(screen));
    let listen = move || {
        for signal in signals.forever() {
            // Shows the hint first: a run that is told to stop may print its end at once.
            if signal == SIGINT {
                screen.hint(
                    "Stopping in order, and the next run continues; press Ctrl-C again to stop at once.\n",
                );
            }
            monitor.cancel();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen)?;
    Ok(())
}
