//! Joins the frames of directories that are too large for one frame.

use std::sync::Arc;

use crate::{
    listing::Row as _,
    sys::spill_to_file::Spool,
    transport::TransportError,
    wire::{LISTED, LISTED_PART, MAX_LISTED_BYTES, Message, WireError},
};

/// The parts of a directory that have arrived.
#[derive(Debug, Default)]
pub(super) struct ListingFrames {
    spool: Spool,
}

impl ListingFrames {
    /// Returns the length of the message that a frame is, or ends.
    pub(super) fn room_for(&self, kind: u8, body: &[u8]) -> usize {
        match kind {
            LISTED_PART => 0,
            LISTED => self.spool.len() + body.len(),
            _ => body.len(),
        }
    }

    /// Returns the message that a frame is, or ends. `None` if more parts are missing.
    pub(super) fn take(&mut self, kind: u8, body: &[u8]) -> Result<Option<Message>, TransportError> {
        match kind {
            LISTED_PART => {
                self.spool(body)?;
                Ok(None)
            }
            LISTED if !self.spool.is_empty() => {
                self.spool(body)?;
                let whole = std::mem::take(&mut self.spool).finish().map_err(no_room)?;
                Ok(Some(Message::decode_parts(&whole)?))
            }
            _ => Ok(Some(Message::decode(kind, body)?)),
        }
    }

    fn spool(&mut self, body: &[u8]) -> Result<(), TransportError> {
        let len = self.spool.len() + body.len();
        if len > MAX_LISTED_BYTES {
            return Err(WireError::TooLong { len, max: MAX_LISTED_BYTES }.into());
        }
        self.spool.append(body).map_err(no_room)
    }
}

fn no_room(error: std::io::Error) -> TransportError {
    TransportError::NoRoom(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attrs::Attrs,
        entry::{Entry, Kind, Meta},
        hash::TreeDigest,
        listing::ListingBuilder,
        wire::{HEADER_BYTES, Listed, Refusal},
    };

    fn directory(entries: u64) -> Message {
        let mut listing = ListingBuilder::default();
        for size in 0..entries {
            let name = format!("{size:09}");
            let kind = if size % 1000 == 7 { Kind::Dir } else { Kind::File { size } };
            listing.push(&Entry {
                name: name.as_bytes(),
                kind,
                meta: Meta::default(),
                attrs: Attrs::default(),
            });
        }
        let listing = listing.finish();
        let digest = TreeDigest { entries: [7; 16], owners: [9; 16], attrs: [3; 16] };
        let children = vec![digest; listing.dirs() as usize];
        Message::Listed(Listed { dir: 3, first_child: 8, children, listing, rules: Box::from(*b"*.o\n") })
    }

    /// Decodes the messages in these frames.
    fn taken(frames: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<Message>, TransportError> {
        let mut parts = ListingFrames::default();
        let messages = frames.into_iter().map(|frame| parts.take(frame[0], &frame[HEADER_BYTES..]));
        messages.filter_map(Result::transpose).collect()
    }

    #[test]
    fn a_directory_of_any_size_arrives_as_it_was_sent() {
        for (entries, frames) in [(0, 1), (1000, 1), (60_000, 5), (600_000, 33)] {
            let message = directory(entries);
            assert_eq!(message.frames().count(), frames, "{entries}");
            assert_eq!(taken(message.frames()).unwrap(), [message], "{entries}");
        }
    }

    #[test]
    fn directories_follow_one_another_and_a_refusal_does_not_wait_for_the_end_of_one() {
        let (large, small, refusal) = (directory(60_000), directory(3), Message::Refuse(Refusal::canceled()));
        let all = [&large, &small, &large].into_iter().flat_map(Message::frames);
        assert_eq!(taken(all).unwrap(), [large.clone(), small, large.clone()]);
        let cut = large.frames().take(2).chain(refusal.frames());
        assert_eq!(taken(cut).unwrap(), [refusal]);
    }

    #[test]
    fn parts_that_are_missing_or_too_many_are_refused() {
        let large = directory(60_000);
        let missing = large.frames().enumerate().filter(|(nth, _)| *nth != 1).map(|(_, frame)| frame);
        assert!(matches!(taken(missing), Err(TransportError::Protocol(_))));
        let twice = large.frames().take(1).chain(large.frames());
        assert!(matches!(taken(twice), Err(TransportError::Protocol(_))));
        let alone = large.frames().last();
        assert!(matches!(taken(alone), Err(TransportError::Protocol(_))));
    }
}
