//! Asks the storage which blocks of a device differ between two VolumeSnapshots, and writes them down for `volferry`.
//!
//! A list that lacks a block would leave the copy wrong, so half a list is none: without the service's word that all
//! was sent, and that it is of a volume of the device's length, the run compares everything. A service may end an
//! answer early with that word, as a page of the list, so it is asked for more until there is none.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{self, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use axum::http::uri::PathAndQuery;
use contract::{ChangedRanges, RangeError, chain};
use thiserror::Error;
use tokio::time::timeout;
use tonic::{
    Request, Status,
    client::Grpc,
    metadata::MetadataMap,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_prost::ProstCodec;

use super::AgentArgs;
use crate::{
    pods::{
        job::CHANGED_LIST,
        pod_volumes::{CHANGED_DIR, CHANGED_TOKEN, SOURCE_DEVICE},
    },
    snapshots::keep_base_snapshot::ChangedDemand,
};

/// How long the service may take for a connection, and for each part of its answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the whole list may take at most.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// The most ranges of an answer. More are not worth a list: the run compares everything.
const MAX_RANGES: usize = 4 << 20;
const METHOD: &str = "/snapshotmetadata.SnapshotMetadata/GetMetadataDelta";

/// The request of `snapshotmetadata.SnapshotMetadata/GetMetadataDelta`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
struct DeltaRequest {
    #[prost(string, tag = "1")]
    security_token: String,
    #[prost(string, tag = "2")]
    namespace: String,
    /// The id that the driver has for the base.
    #[prost(string, tag = "3")]
    base_snapshot: String,
    #[prost(string, tag = "4")]
    target_snapshot_name: String,
    /// Where the list shall begin. How many blocks a part may have (tag 6) is the service's to say.
    #[prost(int64, tag = "5")]
    starting_offset: i64,
}

impl std::fmt::Debug for DeltaRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeltaRequest({} to {})", self.base_snapshot, self.target_snapshot_name)
    }
}

/// A part of the answer. Whether its blocks have one length does not matter here (tag 1).
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct DeltaResponse {
    #[prost(int64, tag = "2")]
    volume_capacity_bytes: i64,
    #[prost(message, repeated, tag = "3")]
    block_metadata: Vec<BlockMetadata>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct BlockMetadata {
    #[prost(int64, tag = "1")]
    byte_offset: i64,
    #[prost(int64, tag = "2")]
    size_bytes: i64,
}

/// Why there is no list.
#[derive(Debug, Error)]
enum ListError {
    #[error("its service at {0} cannot be reached")]
    Connect(String, #[source] tonic::transport::Error),
    #[error("its service does not answer")]
    Silent,
    #[error("its service says {}: {}", .0.code(), .0.message())]
    Refused(Status),
    #[error("its answer broke off")]
    BrokenOff,
    #[error("its list takes longer than {} s", .0.as_secs())]
    Long(Duration),
    #[error("it lists blocks of a volume of {listed} bytes, and the device has {len}")]
    OtherLength { listed: i64, len: u64 },
    #[error("it lists a block at {offset} of {len} bytes, which cannot be")]
    NoBlock { offset: i64, len: i64 },
    #[error("it lists a block at {offset} again when it is asked for those from {asked_from} on")]
    Again { offset: u64, asked_from: u64 },
    #[error("it lists more than {MAX_RANGES} blocks")]
    TooMany,
    #[error("its list is none")]
    Ranges(#[from] RangeError),
    #[error("cannot read {0}")]
    Read(&'static str, #[source] io::Error),
    #[error("cannot write the list")]
    Write(#[source] io::Error),
}

/// The changed blocks of a run's source.
#[derive(Debug, Default)]
pub(super) struct ListedBlocks {
    /// The argument of `volferry` that names the list.
    pub(super) arg: Option<OsString>,
    /// Why there is none, although there is a base.
    pub(super) note: Option<String>,
}

/// Fetches the list, where the pod was told of a base. Whatever is in the way costs time only: the run then compares
/// everything.
pub(super) async fn list(args: &AgentArgs) -> ListedBlocks {
    let Some(demand) = &args.changed_blocks else { return ListedBlocks::default() };
    let written = async {
        let len = length(Path::new(SOURCE_DEVICE)).map_err(|error| ListError::Read("the source", error))?;
        let read = fs::read_to_string(Path::new(CHANGED_DIR).join(CHANGED_TOKEN));
        let token = read.map_err(|error| ListError::Read("the token for the service", error))?;
        let endpoint = endpoint(demand)?;
        let fetched = fetch(&endpoint, demand, &args.namespace, token.trim(), len);
        let patience = LONGEST_PATIENCE.min(Duration::from_secs(demand.patience_seconds));
        let ranges = timeout(patience, fetched).await.map_err(|_| ListError::Long(patience))??;
        fs::write(CHANGED_LIST, text(demand, &ranges)).map_err(ListError::Write)
    };
    match written.await {
        Ok(()) => ListedBlocks { arg: Some(format!("--changed-blocks={CHANGED_LIST}").into()), note: None },
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "the storage lists no changed blocks");
            let note =
                format!("the storage does not list what changed ({error}), so everything was compared");
            ListedBlocks { arg: None, note: Some(note) }
        }
    }
}

fn length(device: &Path) -> io::Result<u64> {
    fs::File::open(device)?.seek(SeekFrom::End(0))
}

/// Returns the list as `volferry` reads it.
fn text(demand: &ChangedDemand, ranges: &ChangedRanges) -> String {
    let mut text = format!("base {}\n", demand.base.content_hash);
    for range in ranges.as_slice() {
        let _ = writeln!(text, "{} {}", range.start, range.end - range.start);
    }
    text
}

fn endpoint(demand: &ChangedDemand) -> Result<Endpoint, ListError> {
    let unusable = |error| ListError::Connect(demand.address.clone(), error);
    let authorities = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&demand.ca_cert.0));
    let endpoint = Endpoint::from_shared(format!("https://{}", demand.address)).map_err(unusable)?;
    endpoint.tls_config(authorities).map_err(unusable)
}

/// Asks for one page of the list after the other, until one adds nothing.
async fn fetch(
    endpoint: &Endpoint,
    demand: &ChangedDemand,
    namespace: &str,
    token: &str,
    len: u64,
) -> Result<ChangedRanges, ListError> {
    let connected = timeout(PATIENCE, endpoint.connect()).await.map_err(|_| ListError::Silent)?;
    let channel = connected.map_err(|error| ListError::Connect(demand.address.clone(), error))?;
    let mut list = List { blocks: Vec::new(), len };
    loop {
        let asked_from = list.end();
        let request = DeltaRequest {
            security_token: token.into(),
            namespace: namespace.into(),
            base_snapshot: demand.base_id.clone(),
            target_snapshot_name: demand.target.clone(),
            starting_offset: i64::try_from(asked_from).unwrap_or(i64::MAX),
        };
        ask(channel.clone(), request, &mut list).await?;
        if list.end() == asked_from || list.end() == len {
            return Ok(ChangedRanges::new(list.blocks)?);
        }
    }
}

async fn ask(channel: Channel, request: DeltaRequest, list: &mut List) -> Result<(), ListError> {
    let mut client = Grpc::new(channel);
    let is_ready = timeout(PATIENCE, client.ready()).await.map_err(|_| ListError::Silent)?;
    is_ready.map_err(|error| ListError::Connect("its address".into(), error))?;
    let codec = ProstCodec::<DeltaRequest, DeltaResponse>::default();
    let asked_from = list.end();
    let asking = client.server_streaming(Request::new(request), PathAndQuery::from_static(METHOD), codec);
    let answered = timeout(PATIENCE, asking).await.map_err(|_| ListError::Silent)?;
    let answered = answered.map_err(ListError::Refused)?;
    let (headers, mut parts) = (answered.metadata().clone(), 0);
    let mut answer = answered.into_inner();
    loop {
        let next = timeout(PATIENCE, answer.message()).await.map_err(|_| ListError::Silent)?;
        let Some(part) = next.map_err(ListError::Refused)? else { break };
        parts += 1;
        list.add(&part, asked_from)?;
    }
    let trailers = timeout(PATIENCE, answer.trailers()).await.map_err(|_| ListError::Silent)?;
    // An answer without a part may be headers alone.
    let last = trailers.map_err(ListError::Refused)?.or((parts == 0).then_some(headers));
    if says_it_is_whole(last.as_ref()) { Ok(()) } else { Err(ListError::BrokenOff) }
}

/// The blocks of a device that are listed so far.
#[derive(Debug)]
struct List {
    blocks: Vec<(u64, u64)>,
    /// The length of the device.
    len: u64,
}

impl List {
    /// Returns where the last of them ends.
    fn end(&self) -> u64 {
        self.blocks.last().map_or(0, |(offset, len)| offset + len)
    }

    /// Adds a part of an answer to a request for blocks from an offset on. The first block may begin before that, and
    /// the last block of a volume may be longer than what is left of it. A service that lists what was listed does not
    /// know offsets, so an answer that adds nothing would say nothing.
    fn add(&mut self, part: &DeltaResponse, asked_from: u64) -> Result<(), ListError> {
        let (listed, len) = (part.volume_capacity_bytes, self.len);
        if u64::try_from(listed) != Ok(len) {
            return Err(ListError::OtherLength { listed, len });
        }
        if self.blocks.len() + part.block_metadata.len() > MAX_RANGES {
            return Err(ListError::TooMany);
        }
        for block in &part.block_metadata {
            let BlockMetadata { byte_offset, size_bytes } = *block;
            let within = u64::try_from(byte_offset).ok().zip(u64::try_from(size_bytes).ok());
            let within = within.filter(|(offset, size)| *offset < len && *size > 0);
            let (offset, size) = within.ok_or(ListError::NoBlock { offset: byte_offset, len: size_bytes })?;
            let (start, end) = (offset.max(asked_from), offset.saturating_add(size).min(len));
            if end <= start {
                return Err(ListError::Again { offset, asked_from });
            }
            if start < self.end() {
                return Err(RangeError::Order(offset).into());
            }
            match self.blocks.last_mut() {
                Some((last, len)) if *last + *len == start => *len = end - *last,
                _ => self.blocks.push((start, end - start)),
            }
        }
        Ok(())
    }
}

/// Returns whether the service has said that the answer is whole. A stream that only ends is none: the client takes
/// that for success as well.
fn says_it_is_whole(trailers: Option<&MetadataMap>) -> bool {
    trailers.and_then(|it| it.get("grpc-status")).is_some_and(|status| status == "0")
}

#[cfg(test)]
mod tests;
