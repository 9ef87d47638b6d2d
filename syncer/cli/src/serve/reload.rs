//! Reads the files of a service again when one of them changes or a signal asks for it, and ends it on a signal.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use contract::chain;
use sd_notify::NotifyState;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{service_state::ServiceState, systemd::notify};
use crate::run_log::RUNS;

/// How often the file of keys is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What a signal asks for.
pub(super) enum Asked {
    Reload,
    Stop,
}

/// Passes signals on from a thread of its own, until the process ends.
pub(super) fn listen_for_signals(asks: mpsc::Sender<Asked>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let listen = move || {
        for signal in signals.forever() {
            let asked = if signal == SIGHUP { Asked::Reload } else { Asked::Stop };
            let _ = asks.send(asked);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
}

/// Reloads the files when they change or a signal asks for it, until a signal asks to stop or the service has failed.
pub(super) fn obey(state: &ServiceState, asked: &mpsc::Receiver<Asked>, has_failed: impl Fn() -> bool) {
    loop {
        let reloaded = match asked.recv_timeout(LOOK) {
            Ok(Asked::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Asked::Reload) => {
                let now = NotifyState::monotonic_usec_now().ok();
                notify(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
                let reloaded = state.reload().map(|()| true);
                notify(&[NotifyState::Ready]);
                reloaded
            }
            Err(RecvTimeoutError::Timeout) if has_failed() => return,
            Err(RecvTimeoutError::Timeout) => state.reload_keys(),
        };
        match reloaded {
            Ok(true) => tracing::info!(target: RUNS, keys = state.rules().peers.len(), "reloaded"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(error = chain(&error).to_string(), "not reloaded: the former rules stay");
            }
        }
    }
}
