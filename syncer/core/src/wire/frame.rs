//! The header, limits and errors that all frames share.

use thiserror::Error;

use crate::{block_sizes::MAX_BLOCK_BYTES, codec::DecodeError, delta::chunk_sizes::MAX_CHUNK};

/// The protocol of this program. Two ends of one job agree on [`protocol_of`] the job; ends that only agree on this
/// name are of different jobs.
pub const PROTOCOL: &[u8] = b"volferry/14";

/// Names the protocol between the two ends of `job` (ALPN), so that an observer of the handshake does not learn the
/// job's own name.
pub fn protocol_of(job: &str) -> Vec<u8> {
    let digest = blake3::derive_key("volferry 2026 name of a job in ALPN", job.as_bytes());
    let word = u128::from_be_bytes(std::array::from_fn(|at| digest[at]));
    [PROTOCOL, format!("/{word:032x}").as_bytes()].concat()
}

/// Names the protocol between an end of `job` and a busy one, which first tells when it has time.
pub fn queue_protocol_of(job: &str) -> Vec<u8> {
    [protocol_of(job).as_slice(), QUEUE_SUFFIX].concat()
}

/// The end of each name that [`queue_protocol_of`] makes.
pub const QUEUE_SUFFIX: &[u8] = b"/queue";

/// Bytes before a frame's body: the kind, the number of the run, and the length.
pub const HEADER_BYTES: usize = 9;

/// The longest body on the control stream.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The longest description of one directory, which arrives in parts: 300 million entries of 50 bytes.
pub const MAX_LISTED_BYTES: usize = 16 << 30;

/// Why a peer's bytes are rejected.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// A frame of a kind that this version does not know.
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
    /// A frame beyond the limit.
    #[error("a frame of {len} bytes, more than the {max} that are allowed")]
    TooLong {
        /// The length by its header.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A packet on a stream without bytes, or beyond the limit.
    #[error("a packet of {len} bytes, where 1 to {max} are allowed")]
    PacketLength {
        /// The length by its prefix.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A body that does not match its kind.
    #[error("a malformed {what}: {source}")]
    Malformed {
        /// The kind of frame.
        what: &'static str,
        /// The error in it.
        source: DecodeError,
    },
    /// Bytes that are not a list of chunks.
    #[error("a malformed list of chunks: {0}")]
    List(String),
    /// A JSON body without its fields.
    #[error("a malformed {what}: {error}")]
    Json {
        /// The kind of frame.
        what: &'static str,
        /// The parser's error.
        error: String,
    },
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of its body.
    pub kind: u8,
    /// The number of its run in the session, from 0.
    pub run: u32,
    /// The length of its body in bytes.
    pub len: usize,
}

/// Reads the header of a frame whose body has at most `max` bytes.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn read_header(header: [u8; HEADER_BYTES], max: usize) -> Result<Header, WireError> {
    let [kind, r0, r1, r2, r3, len @ ..] = header;
    let len = u32::from_le_bytes(len) as usize;
    if len > max {
        return Err(WireError::TooLong { len, max });
    }
    Ok(Header { kind, run: u32::from_le_bytes([r0, r1, r2, r3]), len })
}

/// Writes the number of a frame's run into its header.
pub fn stamp_frame(frame: &mut [u8], run: u32) {
    frame[RUN_AT..LEN_AT].copy_from_slice(&run.to_le_bytes());
}

const RUN_AT: usize = 1;
const LEN_AT: usize = 5;

/// Begins a frame of run 0 in `out`; [`end_frame`] fills in its length.
pub fn begin_frame(out: &mut Vec<u8>, kind: u8) {
    out.push(kind);
    out.extend_from_slice(&[0; HEADER_BYTES - 1]);
}

/// Ends the frame that begins at `start` in `out`.
pub fn end_frame(out: &mut [u8], start: usize) {
    let len = (out.len() - start - HEADER_BYTES) as u32;
    out[start + LEN_AT..start + HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
}

/// Files up to this many bytes travel in packs, larger ones in blocks.
pub const MAX_PACKED_BYTES: u64 = 128 << 10;

/// A pack is sent once it has this many bytes.
pub const PACK_BYTES: usize = 256 << 10;

/// Room for a pack: the file that fills it may have any length.
pub const PACK_FRAME_BYTES: usize = PACK_BYTES + MAX_PACKED_BYTES as usize;

/// Bytes of a block's frame before its content.
pub(super) const BLOCK_PREFIX_BYTES: usize = HEADER_BYTES + 24;

/// Bytes of the check behind a block of a very large file.
pub const CHECK_BYTES: usize = 48;

/// Room for the frame of a whole block with its check.
pub const BLOCK_FRAME_BYTES: usize = BLOCK_PREFIX_BYTES + MAX_BLOCK_BYTES + CHECK_BYTES;

/// The longest body of a data frame: the longest chunk and its description.
pub const MAX_FRAME_BYTES: usize = MAX_CHUNK as usize + (64 << 10);

/// Error codes with which a connection is closed.
pub mod code {
    /// The run is over.
    pub const DONE: u32 = 0;
    /// The peer violated the protocol.
    pub const PROTOCOL: u32 = 1;
    /// The end was told to stop.
    pub const CANCELED: u32 = 2;
    /// The end failed; a `Refuse` message before it gives the reason.
    pub const FAILED: u32 = 3;
}
