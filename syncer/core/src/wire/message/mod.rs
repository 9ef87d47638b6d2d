//! The messages of the control stream.

mod fields;
mod hashes;
mod listed;
mod needs;
mod sample_request;
#[cfg(test)]
mod tests;

pub use fields::{LISTED, LISTED_PART};
pub use hashes::{FileGroup, Hashed, MAX_HASHES, Release};
pub use listed::{Listed, SourceDone, TreeHead};
pub use needs::{BasisManifest, Needs, Prefix, Update};
pub use sample_request::{MAX_SPANS, SampleRequest};

use bytes::Bytes;
use contract::{ExitCode, PlannedAction, Reason, Report, RunParams};
use serde::{Deserialize, Serialize};

use super::frame::{WireError, begin_frame, end_frame};
use crate::{
    codec::{DecodeError, Reader, put_varint},
    tree::{dir::DirId, kept_xattrs::Classes, whereabouts::Whereabouts},
};
use fields::{MAX_ASKED, TOO_MUCH_ASKED, frame, json, put_json};

/// Opens a run, from the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The run's parameters.
    pub params: RunParams,
    /// The kinds of extended attributes that the source can see.
    pub attrs: Classes,
    /// The length in bytes of the device, if the source is one.
    #[serde(default)]
    pub device: Option<u64>,
    /// The name of the file, if the source is one: the tree's only entry.
    #[serde(default)]
    pub file: Option<Vec<u8>>,
    /// The place of the tree, so that the sink refuses a destination that contains it or lies in it.
    #[serde(default)]
    pub whereabouts: Whereabouts,
    /// Whether the session ends with this run.
    pub last: bool,
}

/// Opens a run, from the sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The program's version, for the log.
    pub version: String,
    /// Whether the owner of the destination allows no changes: the run is then a dry one, whatever the source requests.
    #[serde(default)]
    pub dry_run: bool,
}

/// The files that a sink will ask for, so that the source can show how far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// Their number.
    pub files: u64,
    /// The sum of their sizes.
    pub bytes: u64,
}

/// The reason why an end stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The exit code of both processes.
    pub exit: ExitCode,
    /// A word for programs.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    /// Makes the refusal of an end that was told to stop.
    pub fn canceled() -> Self {
        Self { exit: ExitCode::Failed, reason: Reason::Canceled, message: "stopped on request".into() }
    }
}

/// A message on the control stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Source: the run's parameters.
    Hello(Box<Hello>),
    /// Sink: ready.
    Welcome(Welcome),
    /// Source: a directory.
    Listed(Listed),
    /// Source: the scan is over.
    Tree(Box<TreeHead>),
    /// Sink: send these directories.
    Want(Vec<DirId>),
    /// Sink: the number and bytes of the files that it will request.
    Forecast(Forecast),
    /// Sink: send these files.
    Need(Needs),
    /// Sink: send the differences of this file.
    Update(Update),
    /// Sink: all needs are sent.
    NeedsEnd,
    /// Source: all needed files are sent.
    SourceDone(Box<SourceDone>),
    /// Sink: the run is over and durable.
    Report(Box<Report>),
    /// Either: this end stops.
    Refuse(Refusal),
    /// Sink: some of the actions of a dry run.
    Planned(Vec<PlannedAction>),
    /// Sink: hash these files; at most [`MAX_HASHES`].
    Hash(Vec<FileGroup>),
    /// Source: the requested hashes, in order.
    Hashed(Vec<Hashed>),
    /// Sink: send the features of these files, which have at most [`MAX_SPANS`].
    SampleRequest(SampleRequest),
    /// Source: the requested features, of each file in order.
    Samples(Vec<Vec<u64>>),
    /// Sink: remove these entries, whose copies are durable and were compared; at most [`MAX_HASHES`]. The answer is a
    /// `SourceDone`.
    Release(Release),
    /// Either: bytes of a copy of snapshots, at most [`MAX_HISTORY_BYTES`].
    History(Vec<u8>),
}

/// The most bytes of a copy of snapshots that one message has.
pub const MAX_HISTORY_BYTES: usize = 256 << 10;

/// The largest number of include and exclude patterns and filter rules together. Each is tried on every entry.
const MAX_PATTERNS: usize = 10_000;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const TREE: u8 = 4;
const WANT: u8 = 5;
const NEED: u8 = 6;
const NEEDS_END: u8 = 7;
const SOURCE_DONE: u8 = 8;
const REPORT: u8 = 9;
const REFUSE: u8 = 10;
const UPDATE: u8 = 11;
const PLANNED: u8 = 16;
const HASH: u8 = 17;
const HASHED: u8 = 18;
const SAMPLE_REQUEST: u8 = 19;
const SAMPLES: u8 = 20;
const FORECAST: u8 = 21;
const RELEASE: u8 = 22;
const HISTORY: u8 = 23;

impl Message {
    /// Returns the message's name, for errors.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome(_) => "Welcome",
            Self::Listed(_) => "Listed",
            Self::Tree(_) => "Tree",
            Self::Want(_) => "Want",
            Self::Forecast(_) => "Forecast",
            Self::Need(_) => "Need",
            Self::Update(_) => "Update",
            Self::NeedsEnd => "NeedsEnd",
            Self::SourceDone(_) => "SourceDone",
            Self::Report(_) => "Report",
            Self::Refuse(_) => "Refuse",
            Self::Planned(_) => "Planned",
            Self::Hash(_) => "Hash",
            Self::Hashed(_) => "Hashed",
            Self::SampleRequest(_) => "SampleRequest",
            Self::Samples(_) => "Samples",
            Self::Release(_) => "Release",
            Self::History(_) => "History",
        }
    }

    /// Yields the message as frames: one, and before it the parts of a directory that is too large for one.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        let large = match self {
            Self::Listed(whole) if listed::is_large(whole) => Some(whole),
            _ => None,
        };
        let parts = large.into_iter().flat_map(listed::parts);
        let last = move || match large {
            Some(listed) => frame(LISTED, |out| listed::put_rest(out, listed)),
            None => frame(self.kind(), |out| self.put_body(out)),
        };
        parts.chain(std::iter::once_with(last))
    }

    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        begin_frame(out, self.kind());
        self.put_body(out);
        end_frame(out, start);
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => put_json(out, hello),
            Self::Welcome(welcome) => put_json(out, welcome),
            Self::Listed(whole) => listed::put_listed(out, whole),
            Self::Tree(head) => listed::put_tree(out, head),
            Self::Want(dirs) => dirs.iter().for_each(|dir| put_varint(out, u64::from(*dir))),
            Self::Forecast(Forecast { files, bytes }) => {
                [files, bytes].into_iter().for_each(|sum| put_varint(out, *sum));
            }
            Self::Need(needs) => needs::put_needs(out, needs),
            Self::Update(update) => needs::put_update(out, update),
            Self::SourceDone(done) => put_json(out, done),
            Self::Report(report) => put_json(out, report),
            Self::Refuse(refusal) => put_json(out, refusal),
            Self::Planned(actions) => put_json(out, actions),
            Self::Hash(groups) => groups.iter().for_each(|group| hashes::put_group(out, group)),
            Self::Release(release) => hashes::put_release(out, release),
            Self::Hashed(hashes) => hashes.iter().for_each(|hashed| hashes::put_hashed(out, hashed)),
            Self::SampleRequest(sketch) => sample_request::put_sample_request(out, sketch),
            Self::Samples(files) => {
                files.iter().for_each(|features| sample_request::put_features(out, features));
            }
            Self::History(bytes) => out.extend_from_slice(bytes),
            Self::NeedsEnd => {}
        }
    }

    /// Decodes the body of a frame of this kind.
    ///
    /// # Errors
    /// If the kind is unknown, or the body does not match it exactly.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let binary = |what| move |source| WireError::Malformed { what, source };
        match kind {
            HELLO => read_hello(body),
            WELCOME => Ok(Self::Welcome(json("Welcome", body)?)),
            LISTED => read_whole(body, listed::read_listed).map(Self::Listed).map_err(binary("Listed")),
            TREE => listed::read_tree(body).map(|head| Self::Tree(Box::new(head))),
            WANT => read_whole(body, read_ids).map(Self::Want).map_err(binary("Want")),
            FORECAST => read_whole(body, read_forecast).map(Self::Forecast).map_err(binary("Forecast")),
            NEED => read_whole(body, needs::read_needs).map(Self::Need).map_err(binary("Need")),
            UPDATE => needs::read_update(body).map(Self::Update),
            NEEDS_END => read_whole(body, |_| Ok(Self::NeedsEnd)).map_err(binary("NeedsEnd")),
            SOURCE_DONE => Ok(Self::SourceDone(json("SourceDone", body)?)),
            REPORT => Ok(Self::Report(json("Report", body)?)),
            REFUSE => read_refuse(body),
            PLANNED => Ok(Self::Planned(json("Planned", body)?)),
            HASH => read_whole(body, hashes::read_groups).map(Self::Hash).map_err(binary("Hash")),
            RELEASE => read_whole(body, hashes::read_release).map(Self::Release).map_err(binary("Release")),
            HASHED => read_whole(body, hashes::read_hashes).map(Self::Hashed).map_err(binary("Hashed")),
            SAMPLE_REQUEST => read_whole(body, sample_request::read_sample_request)
                .map(Self::SampleRequest)
                .map_err(binary("SampleRequest")),
            SAMPLES => {
                read_whole(body, sample_request::read_samples).map(Self::Samples).map_err(binary("Samples"))
            }
            HISTORY => read_whole(body, read_history).map(Self::History).map_err(binary("History")),
            unknown => Err(WireError::UnknownKind(unknown)),
        }
    }

    /// Decodes the body of a directory that arrived in parts, and keeps it.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_parts(body: &Bytes) -> Result<Self, WireError> {
        read_all(Reader::sharing(body), listed::read_listed)
            .map(Self::Listed)
            .map_err(|source| WireError::Malformed { what: "Listed", source })
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Welcome(_) => WELCOME,
            Self::Listed(_) => LISTED,
            Self::Tree(_) => TREE,
            Self::Want(_) => WANT,
            Self::Forecast(_) => FORECAST,
            Self::Need(_) => NEED,
            Self::Update(_) => UPDATE,
            Self::NeedsEnd => NEEDS_END,
            Self::SourceDone(_) => SOURCE_DONE,
            Self::Report(_) => REPORT,
            Self::Refuse(_) => REFUSE,
            Self::Planned(_) => PLANNED,
            Self::Hash(_) => HASH,
            Self::Hashed(_) => HASHED,
            Self::SampleRequest(_) => SAMPLE_REQUEST,
            Self::Samples(_) => SAMPLES,
            Self::Release(_) => RELEASE,
            Self::History(_) => HISTORY,
        }
    }
}

fn read_whole<'a, T>(
    body: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    read_all(Reader::new(body), read)
}

fn read_all<'a, T>(
    mut reader: Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let value = read(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

fn read_hello(body: &[u8]) -> Result<Message, WireError> {
    let hello: Box<Hello> = json("Hello", body)?;
    let RunParams { include, exclude, filter, .. } = &hello.params;
    if include.len() + exclude.len() + filter.len() > MAX_PATTERNS {
        let source = DecodeError::Invalid("it has more than 10,000 patterns");
        return Err(WireError::Malformed { what: "Hello", source });
    }
    Ok(Message::Hello(hello))
}

fn read_refuse(body: &[u8]) -> Result<Message, WireError> {
    let refusal: Refusal = json("Refuse", body)?;
    match refusal.exit {
        ExitCode::Done => {
            let source = DecodeError::Invalid("it says that the run is done");
            Err(WireError::Malformed { what: "Refuse", source })
        }
        _ => Ok(Message::Refuse(refusal)),
    }
}

fn read_history(reader: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    match reader.remaining() {
        len if len > MAX_HISTORY_BYTES => Err(DecodeError::Invalid("it is too long")),
        len => reader.take(len).map(<[u8]>::to_vec),
    }
}

fn read_forecast(reader: &mut Reader<'_>) -> Result<Forecast, DecodeError> {
    Ok(Forecast { files: reader.varint()?, bytes: reader.varint()? })
}

fn read_ids(reader: &mut Reader<'_>) -> Result<Vec<DirId>, DecodeError> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        if ids.len() == MAX_ASKED {
            return Err(TOO_MUCH_ASKED);
        }
        ids.push(reader.varint32()?);
    }
    Ok(ids)
}
