use contract::{ExitCode, Failure, Report, RunParams, Usage};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{WireError, begin_frame, end_frame};
use crate::{
    codec::{DecodeError, Reader, put_varint},
    entry::{Listing, Meta, put_meta, read_meta},
    hash::TreeDigest,
    scan::{DirId, Totals},
};

/// What the source opens a run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the run does.
    pub params: RunParams,
}

/// What the sink opens a run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The program's version, for the log.
    pub version: String,
}

/// A directory of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub dir: DirId,
    /// The number of the first directory in it.
    pub first_child: DirId,
    /// What the directories in it look like, in order.
    pub children: Vec<TreeDigest>,
    /// Its entries.
    pub listing: Listing,
}

/// What the whole tree of the source looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    /// The root directory's own metadata.
    pub root_meta: Meta,
    /// Of the root directory.
    pub digest: TreeDigest,
    /// Sums.
    pub totals: Totals,
    /// What went wrong in the scan, and what it cost.
    pub source: SourceDone,
}

/// Files whose content the sink asks for, all of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The number of the first need; the others follow on.
    pub first: u32,
    /// Where the files are.
    pub dir: DirId,
    /// Their places in the directory's listing, ascending.
    pub indices: Vec<u32>,
}

/// The source's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceDone {
    /// CPU and memory of the source.
    pub usage: Usage,
    /// How many entries could not be read.
    pub failed: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
}

/// Why an end does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What both processes exit with.
    pub exit: ExitCode,
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    /// Of an end that was told to stop.
    pub fn canceled() -> Self {
        Self { exit: ExitCode::Failed, reason: "Canceled".into(), message: "stopped on request".into() }
    }
}

/// A message on the control stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Source: what to do.
    Hello(Box<Hello>),
    /// Sink: ready.
    Welcome(Welcome),
    /// Source: a directory.
    Listed(Listed),
    /// Source: the scan is over.
    Tree(Box<TreeHead>),
    /// Sink: send these directories.
    Want(Vec<DirId>),
    /// Sink: send these files.
    Need(Needs),
    /// Sink: there are no more needs.
    NeedsEnd,
    /// Source: all that was needed is sent.
    SourceDone(Box<SourceDone>),
    /// Sink: the run is over and durable.
    Report(Box<Report>),
    /// Either: this end does not go on.
    Refuse(Refusal),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const LISTED: u8 = 3;
const TREE: u8 = 4;
const WANT: u8 = 5;
const NEED: u8 = 6;
const NEEDS_END: u8 = 7;
const SOURCE_DONE: u8 = 8;
const REPORT: u8 = 9;
const REFUSE: u8 = 10;

impl Message {
    /// What the message is, for errors.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome(_) => "Welcome",
            Self::Listed(_) => "Listed",
            Self::Tree(_) => "Tree",
            Self::Want(_) => "Want",
            Self::Need(_) => "Need",
            Self::NeedsEnd => "NeedsEnd",
            Self::SourceDone(_) => "SourceDone",
            Self::Report(_) => "Report",
            Self::Refuse(_) => "Refuse",
        }
    }

    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        begin_frame(out, self.kind());
        match self {
            Self::Hello(hello) => put_json(out, hello),
            Self::Welcome(welcome) => put_json(out, welcome),
            Self::Listed(listed) => put_listed(out, listed),
            Self::Tree(head) => put_tree(out, head),
            Self::Want(dirs) => dirs.iter().for_each(|dir| put_varint(out, u64::from(*dir))),
            Self::Need(needs) => put_needs(out, needs),
            Self::SourceDone(done) => put_json(out, done),
            Self::Report(report) => put_json(out, report),
            Self::Refuse(refusal) => put_json(out, refusal),
            Self::NeedsEnd => {}
        }
        end_frame(out, start);
    }

    /// Reads the body of a frame of this kind.
    ///
    /// # Errors
    /// When the kind is unknown, or the body is not exactly what it should be.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let binary = |what| move |source| WireError::Malformed { what, source };
        match kind {
            HELLO => Ok(Self::Hello(json("Hello", body)?)),
            WELCOME => Ok(Self::Welcome(json("Welcome", body)?)),
            LISTED => read_whole(body, read_listed).map(Self::Listed).map_err(binary("Listed")),
            TREE => read_tree(body),
            WANT => read_whole(body, read_ids).map(Self::Want).map_err(binary("Want")),
            NEED => read_whole(body, read_needs).map(Self::Need).map_err(binary("Need")),
            NEEDS_END => read_whole(body, |_| Ok(Self::NeedsEnd)).map_err(binary("NeedsEnd")),
            SOURCE_DONE => Ok(Self::SourceDone(json("SourceDone", body)?)),
            REPORT => Ok(Self::Report(json("Report", body)?)),
            REFUSE => Ok(Self::Refuse(json("Refuse", body)?)),
            unknown => Err(WireError::UnknownKind(unknown)),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Welcome(_) => WELCOME,
            Self::Listed(_) => LISTED,
            Self::Tree(_) => TREE,
            Self::Want(_) => WANT,
            Self::Need(_) => NEED,
            Self::NeedsEnd => NEEDS_END,
            Self::SourceDone(_) => SOURCE_DONE,
            Self::Report(_) => REPORT,
            Self::Refuse(_) => REFUSE,
        }
    }
}

fn put_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing these types to memory cannot fail; a failure would reach the peer as a malformed message.
    let _ = serde_json::to_writer(out, value);
}

fn json<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(body).map_err(|error| WireError::Json { what, error: error.to_string() })
}

fn read_whole<'a, T>(
    body: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut reader = Reader::new(body);
    let value = read(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

fn put_digest(out: &mut Vec<u8>, digest: &TreeDigest) {
    out.extend_from_slice(&digest.entries);
    out.extend_from_slice(&digest.owners);
}

fn read_digest(reader: &mut Reader<'_>) -> Result<TreeDigest, DecodeError> {
    Ok(TreeDigest { entries: reader.array()?, owners: reader.array()? })
}

fn put_listed(out: &mut Vec<u8>, listed: &Listed) {
    put_varint(out, u64::from(listed.dir));
    put_varint(out, u64::from(listed.first_child));
    listed.listing.encode(out);
    listed.children.iter().for_each(|digest| put_digest(out, digest));
}

fn read_listed(reader: &mut Reader<'_>) -> Result<Listed, DecodeError> {
    let dir = reader.varint32()?;
    let first_child = reader.varint32()?;
    let listing = Listing::decode(reader)?;
    if first_child.checked_add(listing.dirs()).is_none() {
        return Err(DecodeError::Overflow);
    }
    let children = (0..listing.dirs()).map(|_| read_digest(reader)).collect::<Result<_, _>>()?;
    Ok(Listed { dir, first_child, children, listing })
}

fn put_tree(out: &mut Vec<u8>, head: &TreeHead) {
    put_meta(out, &head.root_meta);
    put_digest(out, &head.digest);
    put_varint(out, head.totals.entries);
    put_varint(out, head.totals.bytes);
    put_varint(out, head.totals.skipped);
    put_json(out, &head.source);
}

fn read_tree(body: &[u8]) -> Result<Message, WireError> {
    let mut reader = Reader::new(body);
    let malformed = |source| WireError::Malformed { what: "Tree", source };
    let mut read = || {
        let root_meta = read_meta(&mut reader)?;
        let digest = read_digest(&mut reader)?;
        let totals = Totals { entries: reader.varint()?, bytes: reader.varint()?, skipped: reader.varint()? };
        Ok((root_meta, digest, totals))
    };
    let (root_meta, digest, totals) = read().map_err(malformed)?;
    let rest = reader.take(reader.remaining()).map_err(malformed)?;
    let source = json("Tree", rest)?;
    Ok(Message::Tree(Box::new(TreeHead { root_meta, digest, totals, source })))
}

fn read_ids(reader: &mut Reader<'_>) -> Result<Vec<DirId>, DecodeError> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        ids.push(reader.varint32()?);
    }
    Ok(ids)
}

fn put_needs(out: &mut Vec<u8>, needs: &Needs) {
    put_varint(out, u64::from(needs.first));
    put_varint(out, u64::from(needs.dir));
    let mut next = 0;
    for &index in &needs.indices {
        put_varint(out, u64::from(index - next));
        next = index + 1;
    }
}

fn read_needs(reader: &mut Reader<'_>) -> Result<Needs, DecodeError> {
    let first = reader.varint32()?;
    let dir = reader.varint32()?;
    let mut indices = Vec::new();
    let mut next: u32 = 0;
    while !reader.is_empty() {
        let index = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
        indices.push(index);
        next = index.checked_add(1).ok_or(DecodeError::Overflow)?;
    }
    Ok(Needs { first, dir, indices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Entry, Kind, ListingBuilder},
        wire::{HEADER_BYTES, MAX_MESSAGE_BYTES, read_header},
    };

    fn listed() -> Listed {
        let mut builder = ListingBuilder::default();
        builder.push(&Entry { name: b"a", kind: Kind::Dir, meta: Meta::default() });
        builder.push(&Entry { name: b"b", kind: Kind::File { size: 9 }, meta: Meta::default() });
        let digest = TreeDigest { entries: [7; 16], owners: [9; 16] };
        Listed { dir: 3, first_child: 8, children: vec![digest], listing: builder.finish() }
    }

    fn samples() -> Vec<Message> {
        let totals = Totals { entries: 1, bytes: u64::MAX, skipped: 3 };
        let head = TreeHead {
            root_meta: Meta { mode: 0o755, ..Meta::default() },
            digest: TreeDigest::default(),
            totals,
            source: SourceDone::default(),
        };
        let refusal = Refusal { exit: ExitCode::Guard, reason: "R".into(), message: "m".into() };
        vec![
            Message::Hello(Box::new(Hello { params: RunParams::default() })),
            Message::Welcome(Welcome { version: "1".into() }),
            Message::Listed(listed()),
            Message::Tree(Box::new(head)),
            Message::Want(vec![0, 1, u32::MAX]),
            Message::Need(Needs { first: 5, dir: 2, indices: vec![0, 1, 7, 200] }),
            Message::NeedsEnd,
            Message::SourceDone(Box::default()),
            Message::Report(Box::default()),
            Message::Refuse(refusal),
        ]
    }

    fn split(frame: &[u8]) -> (u8, &[u8]) {
        let (header, body) = frame.split_first_chunk::<HEADER_BYTES>().unwrap();
        let (kind, len) = read_header(*header, MAX_MESSAGE_BYTES).unwrap();
        assert_eq!(len, body.len());
        (kind, body)
    }

    #[test]
    fn every_message_survives_the_trip() {
        for message in samples() {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            let (kind, body) = split(&frame);
            assert_eq!(Message::decode(kind, body), Ok(message));
        }
    }

    #[test]
    fn a_message_with_data_after_its_end_is_refused() {
        for message in samples() {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            frame.push(0x80);
            let (kind, body) = (frame[0], &frame[HEADER_BYTES..]);
            assert!(Message::decode(kind, body).is_err(), "{}", message.what());
        }
    }

    #[test]
    fn a_frame_longer_than_the_limit_is_refused_by_its_header() {
        let header = [LISTED, 0xff, 0xff, 0xff, 0xff];
        let max = MAX_MESSAGE_BYTES;
        assert_eq!(read_header(header, max), Err(WireError::TooLong { len: u32::MAX as usize, max }));
    }

    #[test]
    fn more_children_than_digests_are_refused() {
        let mut frame = Vec::new();
        Message::Listed(Listed { children: vec![], ..listed() }).encode(&mut frame);
        assert!(Message::decode(LISTED, &frame[HEADER_BYTES..]).is_err());
    }
}
