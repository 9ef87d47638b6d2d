//! Descriptions of the source's directories and tree.

use contract::{Effort, Failure, Usage};
use serde::{Deserialize, Serialize};

use super::fields::{LISTED_PART, frame, json, put_json};
use crate::{
    codec::{DecodeError, Reader, put_bytes, put_varint},
    hash::TreeDigest,
    tree::{
        Tree,
        attrs::{Attrs, AttrsBuf, MAX_ATTRS_BYTES},
        dir::{DirId, Mounts, ROOT, Totals},
        entry::{Meta, Owner, Time, put_meta, put_time, read_meta, read_time},
        filter::{MAX_RULES_BYTES, PatternUse},
        listing::Listing,
        owners::{MAX_OWNERS, Owners},
        path::{MAX_PATH_BYTES, RelPath},
    },
    wire::frame::WireError,
};

/// A directory of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub dir: DirId,
    /// The number of the first directory in it.
    pub first_child: DirId,
    /// The digests of its subdirectories, in order.
    pub children: Vec<TreeDigest>,
    /// Its entries.
    pub listing: Listing,
    /// The text of its ignore files, if the run uses them; empty if it has none. At most [`MAX_RULES_BYTES`].
    pub rules: Box<[u8]>,
}

/// The description of the source's whole tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeHead {
    /// The root directory's own metadata.
    pub root_meta: Meta,
    /// The root directory's own extended attributes.
    pub root_attrs: AttrsBuf,
    /// The digest of the root directory.
    pub digest: TreeDigest,
    /// Sums.
    pub totals: Totals,
    /// The file systems that are mounted in the tree.
    pub mounts: Mounts,
    /// Counts of the entries by owner, from [`Owners::most_frequent`].
    pub owners: Owners,
    /// The time when a run last wrote to the tree, if it is itself a destination.
    pub last_run: Option<Time>,
    /// Failures and cost of the scan.
    pub source: SourceDone,
}

impl TreeHead {
    /// Describes a scanned tree, without its last run and without what the scan reports beside it.
    pub fn of(tree: &Tree) -> Self {
        Self {
            root_meta: tree.root_meta,
            root_attrs: tree.root_attrs.clone(),
            digest: tree.dirs[ROOT as usize].digest,
            totals: tree.totals,
            mounts: tree.mounts.clone(),
            owners: tree.owners.most_frequent(),
            last_run: None,
            source: SourceDone { patterns: tree.patterns.clone(), ..SourceDone::default() },
        }
    }
}

/// The source's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceDone {
    /// CPU and memory of the source.
    pub usage: Usage,
    /// The number of entries that could not be read.
    pub failed: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
    /// A digest of the paths of all of them, by which the shards of a run recognise equal failures.
    #[serde(default)]
    pub failed_paths: u64,
    /// The effort of the source's threads in each phase so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub efforts: Vec<Effort>,
    /// The id of the snapshot, if the tree is one: 16 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What the patterns of the run matched at the source, if it was scanned with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patterns: Option<PatternUse>,
}

fn put_digest(out: &mut Vec<u8>, digest: &TreeDigest) {
    out.extend_from_slice(&digest.entries);
    out.extend_from_slice(&digest.owners);
    out.extend_from_slice(&digest.attrs);
}

fn read_digest(reader: &mut Reader<'_>) -> Result<TreeDigest, DecodeError> {
    Ok(TreeDigest { entries: reader.array()?, owners: reader.array()?, attrs: reader.array()? })
}

/// Bytes of one part of a large listing, so that neither end needs memory for all of it at once.
const PART_BYTES: usize = 256 << 10;

pub(super) fn is_large(listed: &Listed) -> bool {
    listed.listing.bytes().len() > PART_BYTES
}

/// Returns the frames before the one with the rest of a large directory.
pub(super) fn parts(listed: &Listed) -> impl Iterator<Item = Vec<u8>> {
    listed.listing.bytes().chunks(PART_BYTES).enumerate().map(|(nth, part)| {
        frame(LISTED_PART, |out| {
            out.reserve(part.len() + 64);
            if nth == 0 {
                put_start(out, listed);
            }
            out.extend_from_slice(part);
        })
    })
}

pub(super) fn put_listed(out: &mut Vec<u8>, listed: &Listed) {
    put_start(out, listed);
    out.extend_from_slice(listed.listing.bytes());
    put_rest(out, listed);
}

fn put_start(out: &mut Vec<u8>, listed: &Listed) {
    put_varint(out, u64::from(listed.dir));
    put_varint(out, u64::from(listed.first_child));
    listed.listing.encode_head(out);
}

/// Appends the fields after the listing.
pub(super) fn put_rest(out: &mut Vec<u8>, listed: &Listed) {
    listed.children.iter().for_each(|digest| put_digest(out, digest));
    put_bytes(out, &listed.rules);
}

pub(super) fn read_listed(reader: &mut Reader<'_>) -> Result<Listed, DecodeError> {
    let dir = reader.varint32()?;
    let first_child = reader.varint32()?;
    let listing = Listing::decode(reader)?;
    if first_child.checked_add(listing.dirs()).is_none() {
        return Err(DecodeError::Overflow);
    }
    let children = (0..listing.dirs()).map(|_| read_digest(reader)).collect::<Result<_, _>>()?;
    let rules = reader.bytes(MAX_RULES_BYTES)?.into();
    Ok(Listed { dir, first_child, children, listing, rules })
}

pub(super) fn put_tree(out: &mut Vec<u8>, head: &TreeHead) {
    put_meta(out, &head.root_meta);
    put_bytes(out, head.root_attrs.as_attrs().bytes());
    put_digest(out, &head.digest);
    put_varint(out, head.totals.entries);
    put_varint(out, head.totals.bytes);
    put_varint(out, head.totals.skipped);
    put_varint(out, head.totals.sparse);
    put_time(out, head.totals.newest);
    put_varint(out, head.mounts.count);
    put_bytes(out, head.mounts.first.as_bytes());
    put_varint(out, u64::from(head.last_run.is_some()));
    head.last_run.iter().for_each(|time| put_time(out, *time));
    put_owners(out, &head.owners);
    put_json(out, &head.source);
}

fn put_owners(out: &mut Vec<u8>, owners: &Owners) {
    let counts = owners.counts();
    put_varint(out, counts.len() as u64);
    for (owner, count) in counts {
        put_varint(out, owner.uid.into());
        put_varint(out, owner.gid.into());
        put_varint(out, count);
    }
    put_varint(out, owners.rest());
}

fn read_owners(reader: &mut Reader<'_>) -> Result<Owners, DecodeError> {
    let len = reader.varint()?;
    if len > MAX_OWNERS as u64 {
        return Err(DecodeError::Invalid("more owners are told one by one than may be"));
    }
    let mut counts: Vec<(Owner, u64)> = Vec::new();
    for _ in 0..len {
        let owner = Owner { uid: reader.varint32()?, gid: reader.varint32()? };
        if counts.last().is_some_and(|(last, _)| *last >= owner) {
            return Err(DecodeError::Invalid("owners are not in ascending order"));
        }
        counts.push((owner, reader.varint()?));
    }
    Ok(Owners::new(counts, reader.varint()?))
}

fn read_mounts(reader: &mut Reader<'_>) -> Result<Mounts, DecodeError> {
    let (count, first) = (reader.varint()?, reader.bytes(MAX_PATH_BYTES)?);
    let path = RelPath::parse(first);
    match (count, path) {
        (0, _) if first.is_empty() => Ok(Mounts::default()),
        (1.., Ok(first)) => Ok(Mounts { count, first }),
        _ => Err(DecodeError::Invalid("the first of the mounts has no path")),
    }
}

pub(super) fn read_tree(body: &[u8]) -> Result<TreeHead, WireError> {
    let mut reader = Reader::new(body);
    let malformed = |source| WireError::Malformed { what: "Tree", source };
    let mut read = || {
        let root_meta = read_meta(&mut reader)?;
        let root_attrs = Attrs::decode(reader.bytes(MAX_ATTRS_BYTES)?)?.into();
        let digest = read_digest(&mut reader)?;
        let totals = Totals {
            entries: reader.varint()?,
            bytes: reader.varint()?,
            skipped: reader.varint()?,
            sparse: reader.varint()?,
            newest: read_time(&mut reader)?,
        };
        let mounts = read_mounts(&mut reader)?;
        let last_run = match reader.varint()? {
            0 => None,
            1 => Some(read_time(&mut reader)?),
            _ => return Err(DecodeError::Invalid("there is one time or none")),
        };
        Ok((root_meta, root_attrs, digest, totals, mounts, last_run, read_owners(&mut reader)?))
    };
    let (root_meta, root_attrs, digest, totals, mounts, last_run, owners) = read().map_err(malformed)?;
    let rest = reader.take(reader.remaining()).map_err(malformed)?;
    let source = json("Tree", rest)?;
    Ok(TreeHead { root_meta, root_attrs, digest, totals, mounts, last_run, owners, source })
}
