//! Copies snapshots from one store to another, on this machine or at the other end of a stream.

pub(crate) mod arriving_content;
pub(crate) mod content_basis;
pub(crate) mod copy_snapshots;
pub(crate) mod copy_source;
pub(crate) mod fetch_tree;
#[cfg(test)]
mod hostile_stores;
#[cfg(test)]
mod lying_stores;
pub(crate) mod objects_elsewhere;
#[cfg(test)]
mod round_trips;
pub(crate) mod stream_client;
pub(crate) mod stream_frames;
pub(crate) mod stream_server;
pub(crate) mod tree_counts;

pub(crate) use arriving_content::{ArrivingContent, ArrivingInto};
pub use copy_snapshots::{CopiedHistory, copy_history, copy_selected, selected, staying_away};
pub use copy_source::{
    ContentPiece, HistorySource, NoHistory, OfferedHistory, OpenHistory, ReceiveFolder, ReceivePiece,
    RequestedContent, StoredHistory, volume_at,
};
pub(crate) use copy_source::{PIECE_BYTES, next_data};
pub use objects_elsewhere::ObjectsElsewhere;
pub use stream_client::StreamedHistory;
pub use stream_server::{FarCopy, refuse_history, serve_history};
