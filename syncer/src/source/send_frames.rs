//! Requested files, and the sending of their frames by one worker.

use std::sync::Arc;

use crate::{
    entry::Meta,
    measure::{
        monitor::Monitor,
        thread_time::{Activity, during},
    },
    path::RelPath,
    source::{
        slow_link::LinkMeter,
        source_file::{AsListed, LastDir, Origin},
    },
    transport::{DataSender, TransportError},
    tree::dir::DirId,
    wire::{Prefix, compress::Compressor, data::PackBuilder},
};

pub(crate) struct PackBatch {
    pub dir: DirId,
    pub path: Arc<RelPath>,
    pub files: Vec<RequestedFile>,
}

/// A requested file, as it is in its listing.
#[derive(Debug, Clone)]
pub(crate) struct RequestedFile {
    pub need: u32,
    /// The number of its directory.
    pub dir: DirId,
    pub name: Box<[u8]>,
    pub size: u64,
    pub meta: Meta,
    pub as_listed: AsListed,
    /// The beginning of a small file that the sink has.
    pub prefix: Option<Prefix>,
}

pub(crate) struct SendWorker<'a> {
    pub origin: Origin<'a>,
    pub sender: &'a DataSender,
    pub compressor: Compressor,
    pub link: LinkMeter,
    /// Whether holes are kept.
    pub holes: bool,
    pub monitor: &'a Monitor,
    pub dir: LastDir,
}

impl SendWorker<'_> {
    /// Checks whether this end was told to stop.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        self.monitor.check().map_err(|_| TransportError::Canceled)
    }

    pub(crate) fn flush(&mut self, pack: &mut PackBuilder) -> Result<(), TransportError> {
        if pack.is_empty() {
            return Ok(());
        }
        self.send(std::mem::take(pack).finish())
    }

    pub(crate) fn send(&mut self, frame: Vec<u8>) -> Result<(), TransportError> {
        let frame = during(Activity::Compressing, || self.compressor.seal(frame, self.link.is_slow()));
        let (len, waits) = (frame.len(), self.sender.is_behind());
        self.sender.send(frame)?;
        self.link.sent(len, waits);
        Ok(())
    }
}
