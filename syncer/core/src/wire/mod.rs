//! Converts between messages and bytes. Pure: everything from a peer is decoded and bounded here, and nowhere else.
//!
//! `syncer/doc/wire.md` describes the protocol. There is one *control* stream in each direction, of [`Message`]s, and
//! several *data* streams from source to sink, of [`data`] frames. On both a frame is a kind (one byte), the number of
//! its run and a length (four bytes each, little endian), and a body.

pub mod buffers;
pub mod check;
pub mod compress;
pub mod data;
mod frame;
mod message;
pub mod packets;
pub mod patch;

pub use frame::{
    BLOCK_FRAME_BYTES, CHECK_BYTES, HEADER_BYTES, Header, MAX_FRAME_BYTES, MAX_LISTED_BYTES,
    MAX_MESSAGE_BYTES, MAX_PACKED_BYTES, PACK_BYTES, PACK_FRAME_BYTES, PROTOCOL, QUEUE_SUFFIX, WireError,
    begin_frame, code, end_frame, protocol_of, queue_protocol_of, read_header, stamp_frame,
};
pub use message::{
    BasisManifest, FileGroup, Forecast, Hashed, Hello, LISTED, LISTED_PART, Listed, MAX_HASHES,
    MAX_HISTORY_BYTES, MAX_SPANS, Message, Needs, Prefix, Refusal, Release, SampleRequest, SourceDone,
    TreeHead, Update, Welcome,
};
