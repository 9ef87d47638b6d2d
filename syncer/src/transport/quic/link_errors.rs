//! QUIC's errors as those of the transport.

use quinn::{ConnectionError, TransportErrorCode, VarInt};

use crate::{
    transport::TransportError,
    wire::{Refusal, code},
};

pub(super) fn identity_error(error: &rustls::Error) -> TransportError {
    TransportError::Identity(error.to_string())
}

/// The alert of an end that shares no protocol with the other (RFC 7301).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// The code of an end that was told to stop, if its `Refuse` has not arrived.
const STOPPED: VarInt = VarInt::from_u32(code::CANCELED);

pub(super) fn connection_error(error: &ConnectionError) -> TransportError {
    if matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == STOPPED) {
        return TransportError::Refused(Box::new(Refusal::canceled()));
    }
    let code = match error {
        ConnectionError::TransportError(inner) => inner.code.into(),
        ConnectionError::ConnectionClosed(close) => close.error_code.into(),
        _ => 0,
    };
    // TLS alerts are QUIC error codes 0x100 to 0x1ff (RFC 9001, section 4.8). After agreement on ALPN, only keys can be
    // refused.
    match code {
        NO_APPLICATION_PROTOCOL => TransportError::OtherProtocol,
        0x100..0x200 if matches!(error, ConnectionError::ConnectionClosed(_)) => {
            tracing::debug!(%error, "the peer does not accept this end's key");
            TransportError::not_accepted()
        }
        0x100..0x200 => {
            tracing::debug!(%error, "the peer's key is not accepted");
            TransportError::other_key()
        }
        _ => TransportError::Lost(match error {
            ConnectionError::TransportError(error) if error.code == TransportErrorCode::INTERNAL_ERROR => {
                "what carried it ended".into()
            }
            ConnectionError::LocallyClosed => "it was closed at this end".into(),
            error => error.to_string(),
        }),
    }
}

pub(super) fn write_error(error: quinn::WriteError) -> TransportError {
    match error {
        quinn::WriteError::ConnectionLost(error) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}

pub(super) fn read_error(error: quinn::ReadExactError) -> TransportError {
    match error {
        quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}
