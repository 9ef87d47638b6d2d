//! A peer that has shown its key.

use std::time::{Duration, Instant};

use contract::LinkKind;

use crate::{
    transport::{
        TransportError,
        tls::{self, LinkUse},
    },
    wire::code,
};

/// The longest handshake. The dialling end gives up an attempt earlier.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(3);

/// An authenticated peer.
pub(super) struct Proven {
    pub(super) connection: quinn::Connection,
    /// What carries its packets.
    pub(super) kind: LinkKind,
    /// The time of the peer's first packet, or of the first dial.
    pub(super) began: Instant,
    pub(super) link_use: LinkUse,
}

/// Closes a connection to a peer of another job before a byte is sent.
pub(super) fn of_one_job(
    connection: quinn::Connection,
    kind: LinkKind,
    began: Instant,
) -> Result<Proven, TransportError> {
    match tls::use_of(&connection) {
        Some(link_use) => Ok(Proven { connection, kind, began, link_use }),
        None => {
            connection.close(code::FAILED.into(), b"of another job");
            Err(TransportError::OtherJob)
        }
    }
}
