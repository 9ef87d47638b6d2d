//! Waits for the peer's contact.

use std::{io, thread};

use contract::Contact;
use tokio::sync::oneshot;

use crate::{measure::monitor::Monitor, transport::TransportError};

/// Returns the result of `hear`, which may block for any time on a thread of its own. A stop ends the wait, and leaves
/// that thread behind.
pub(crate) fn await_contact(
    hear: impl FnOnce() -> io::Result<Contact> + Send + 'static,
    monitor: &Monitor,
) -> Result<Contact, TransportError> {
    let missing = |error: io::Error| TransportError::NoContact(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(missing)?;
    let (tell, heard) = oneshot::channel();
    let listen = move || drop(tell.send(hear()));
    thread::Builder::new().name("contact".into()).spawn(listen).map_err(missing)?;
    runtime.block_on(async {
        tokio::select! {
            heard = heard => heard.unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into())).map_err(missing),
            () = monitor.until_cancelled() => Err(TransportError::Canceled),
        }
    })
}
