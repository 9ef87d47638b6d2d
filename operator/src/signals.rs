//! Signals that request the process to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives SIGTERM and SIGINT. Once created, these signals no longer end the process by themselves.
#[derive(Debug)]
pub struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Starts to listen. Fails if a signal handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal. No signal is lost if the future is dropped.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
