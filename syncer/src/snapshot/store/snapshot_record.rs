//! The record of a snapshot, in the list and at the end of the snapshot's pack.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use std::collections::BTreeSet;

use contract::{MAX_TAG_BYTES, VolumeId};

use super::{
    folder::{FolderId, FolderRef, ObjectRef, check_of},
    purpose::Purpose,
    snapshot_error::SnapshotError,
    snapshot_id::SnapshotId,
};
use crate::{
    attrs::{Attrs, AttrsBuf, MAX_ATTRS_BYTES},
    codec::{DecodeError, Reader, put_bytes, put_varint},
    entry::{Meta, Time, put_meta, put_time, read_meta, read_time},
    hash::TreeDigest,
    tree::stamps::Stamps,
};

/// The first bytes of the record of a snapshot, by which a reader finds the next record after a damaged one.
pub(crate) const RECORD: &[u8; 4] = b"snap";

/// The first bytes of a record of the rules of a job.
pub(crate) const RULES: &[u8; 4] = b"rule";

/// The first bytes of the end.
pub(crate) const END: &[u8; 4] = b"end.";

/// More bytes than any record of a snapshot has.
pub(crate) const MAX_RECORD_BYTES: u64 = 2 << 20;

/// The most tags of one snapshot, or of one job's rules.
pub(crate) const MAX_TAGS: usize = 64;

/// The longest note, in bytes.
pub(crate) const MAX_NOTE_BYTES: usize = 4096;

/// The longest name of a run, a SyncJob, a user or a time zone, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 512;

/// The way by which content got into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Clones of files, which share blocks with the live tree until that is written to.
    Clone,
    /// Copies of files.
    Copy,
}

/// A snapshot in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: SnapshotId,
    /// The root directory of its tree.
    pub tree: FolderRef,
    /// The root directory's own metadata.
    pub root_meta: Meta,
    /// The root directory's own extended attributes.
    pub root_attrs: AttrsBuf,
    /// When it was begun. It contains every change before that.
    pub began: Time,
    /// When it was published.
    pub taken: Time,
    /// Entries of the tree, without the root.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes that it added to the store.
    pub added_bytes: u64,
    /// Entries that could not be read and are missing.
    pub failed: u64,
    /// The way by which content got into the store.
    pub engine: Engine,
    /// What it was taken for.
    pub purpose: Purpose,
    /// The run that took it; empty for none.
    pub run: String,
    /// The SyncJob that it belongs to; empty for none.
    pub job: String,
    /// The user that took it.
    pub user: String,
    /// The user's note.
    pub note: String,
    /// Labels that users find it by.
    pub tags: BTreeSet<String>,
    /// Whether it is kept regardless of policies.
    pub pinned: bool,
    /// When it was forgotten, if it was: the next collection removes it.
    pub forgotten: Option<Time>,
    /// Whether somebody else could have made it up: it was imported, or another user could write to the list since.
    pub is_exposed: bool,
    /// The volume that it was taken of, if it was copied from another one.
    pub origin: Option<VolumeId>,
}

/// The bit of a record's flags that says that the record ends with the volume that it was copied from.
const COPIED: u8 = 32;

impl Snapshot {
    /// Returns the hash of the whole tree: of the root directory, its metadata, and everything below.
    pub fn digest(&self) -> blake3::Hash {
        let mut own = Vec::new();
        put_meta(&mut own, &self.root_meta);
        put_bytes(&mut own, self.root_attrs.as_attrs().bytes());
        let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-22 the tree of a snapshot v1");
        hasher.update(&self.tree.id.0).update(&own).finalize()
    }

    /// Returns whether every entry of the tree is in it.
    pub fn is_whole(&self) -> bool {
        self.failed == 0
    }

    /// Forgets it at this time, or brings it back with `None`.
    ///
    /// # Errors
    /// If it is pinned.
    pub fn forget(&mut self, when: Option<Time>) -> Result<(), SnapshotError> {
        if self.pinned && when.is_some() {
            return Err(SnapshotError::Pinned(self.id));
        }
        self.forgotten = when;
        Ok(())
    }

    /// Encodes the record as it is in the list. Each pack ends with that of its snapshot, as it was published.
    pub(crate) fn record(&self) -> Vec<u8> {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        self.encode(&mut body);
        put_record(&mut out, RECORD, &body);
        out
    }

    /// Finds the record that `bytes` end with; `None` if they end otherwise.
    pub(crate) fn at_end_of(bytes: &[u8]) -> Option<Self> {
        marks(bytes).rev().find_map(|at| match read_record(&bytes[at..])? {
            ListRecord { kind: RECORD, body, len } if at + len == bytes.len() => Self::decode(body).ok(),
            _ => None,
        })
    }

    /// Decodes the records in damaged bytes whose fields can be read although the checksum is wrong. A caller has to
    /// check what they say. Yields the id alone of a record of which no more can be read.
    pub(crate) fn guesses(damaged: &[u8]) -> impl Iterator<Item = (SnapshotId, Option<Self>)> {
        marks(damaged).filter_map(|at| {
            let (len, rest) = damaged[at + RECORD.len()..].split_first_chunk()?;
            let id = SnapshotId(u64::from_le_bytes(*rest.first_chunk()?));
            let body = rest.get(..u32::from_le_bytes(*len) as usize);
            Some((id, body.and_then(|body| Self::decode(body).ok())))
        })
    }

    /// Returns whether a run or a SyncJob is recorded.
    fn is_named(&self) -> bool {
        !(self.run.is_empty() && self.job.is_empty())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let FolderRef { id, place, digest, seen } = &self.tree;
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&id.0);
        out.extend_from_slice(&place.pack.to_le_bytes());
        put_varint(out, place.offset);
        put_varint(out, u64::from(place.len));
        [digest.entries, digest.owners, digest.attrs].iter().for_each(|part| out.extend_from_slice(part));
        seen.put(out);
        put_meta(out, &self.root_meta);
        put_bytes(out, self.root_attrs.as_attrs().bytes());
        put_time(out, self.began);
        put_time(out, self.taken);
        [self.entries, self.bytes, self.added_bytes, self.failed].iter().for_each(|n| put_varint(out, *n));
        out.push(match self.engine {
            Engine::Clone => 1,
            Engine::Copy => 2,
        });
        [&self.run, &self.job, &self.user, &self.note]
            .iter()
            .for_each(|text| put_bytes(out, text.as_bytes()));
        put_varint(out, self.tags.len() as u64);
        self.tags.iter().for_each(|tag| put_bytes(out, tag.as_bytes()));
        let own = self.purpose.flags(self.is_named());
        let common = u8::from(self.pinned) | u8::from(self.forgotten.is_some()) << 1;
        let copied = if self.origin.is_some() { COPIED } else { 0 };
        out.push(common | u8::from(self.is_exposed) << 4 | own | copied);
        if let Some(when) = self.forgotten {
            put_time(out, when);
        }
        self.origin.iter().for_each(|volume| out.extend_from_slice(volume.bytes()));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let id = SnapshotId(u64::from_le_bytes(r.array()?));
        let folder = FolderId(r.array()?);
        let place =
            ObjectRef { pack: u64::from_le_bytes(r.array()?), offset: r.varint()?, len: r.varint32()? };
        let digest = TreeDigest { entries: r.array()?, owners: r.array()?, attrs: r.array()? };
        let tree = FolderRef { id: folder, place, digest, seen: Stamps::read(r)? };
        let root_meta = read_meta(r)?;
        let root_attrs = Attrs::decode(r.bytes(MAX_ATTRS_BYTES)?)?.into();
        let (began, taken) = (read_time(r)?, read_time(r)?);
        let (entries, bytes, added_bytes, failed) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
        let engine = match r.byte()? {
            1 => Engine::Clone,
            2 => Engine::Copy,
            _ => {
                return Err(DecodeError::Invalid("it was made by an engine that this program does not know"));
            }
        };
        let (run, job, user) =
            (read_text(r, MAX_NAME_BYTES)?, read_text(r, MAX_NAME_BYTES)?, read_text(r, MAX_NAME_BYTES)?);
        let note = read_text(r, MAX_NOTE_BYTES)?;
        let tags = read_tags(r)?;
        let mut flags = r.byte()?;
        let purpose = Purpose::read_flags(&mut flags, !(run.is_empty() && job.is_empty()))?;
        if flags & !(1 | 2 | 16 | COPIED) != 0 {
            return Err(DecodeError::Invalid("it has a flag that this program does not know"));
        }
        let forgotten = (flags & 2 != 0).then(|| read_time(r)).transpose()?;
        let origin = (flags & COPIED != 0).then(|| r.array().map(VolumeId::new)).transpose()?;
        reader.finish()?;
        let (pinned, is_exposed) = (flags & 1 != 0, flags & 16 != 0);
        Ok(Self {
            id,
            tree,
            root_meta,
            root_attrs,
            began,
            taken,
            entries,
            bytes,
            added_bytes,
            failed,
            engine,
            purpose,
            run,
            job,
            user,
            note,
            tags,
            pinned,
            forgotten,
            is_exposed,
            origin,
        })
    }
}

/// Yields the offsets at which a record of a snapshot may begin.
fn marks(bytes: &[u8]) -> impl DoubleEndedIterator<Item = usize> {
    bytes.windows(RECORD.len()).enumerate().filter(|(_, mark)| mark == RECORD).map(|(at, _)| at)
}

/// Appends a record: `kind` · length (u32) · body · checksum of all that.
pub(crate) fn put_record(out: &mut Vec<u8>, kind: &[u8; 4], body: &[u8]) {
    let start = out.len();
    out.extend_from_slice(kind);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(body);
    let check = check_of(&out[start..]);
    out.extend_from_slice(&check);
}

/// A record of the list whose checksum is right.
pub(crate) struct ListRecord<'a> {
    pub kind: &'a [u8; 4],
    pub body: &'a [u8],
    /// The length of the whole record in bytes.
    pub len: usize,
}

/// Returns how many bytes are hashed to read what is at the start of `bytes`.
pub(crate) fn claimed_len(bytes: &[u8]) -> usize {
    let claimed = bytes.split_first_chunk::<4>().filter(|(kind, _)| [RECORD, RULES, END].contains(kind));
    let len = claimed.and_then(|(_, rest)| rest.first_chunk::<4>());
    len.map(|len| u32::from_le_bytes(*len) as usize).filter(|len| *len < bytes.len()).unwrap_or(0)
}

/// Reads the record at the start of `bytes`; `None` if it is cut or damaged.
pub(crate) fn read_record(bytes: &[u8]) -> Option<ListRecord<'_>> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    if ![RECORD, RULES, END].contains(&kind) {
        return None;
    }
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let whole = 8 + body.len();
    let is_intact = rest.first_chunk::<8>()? == &check_of(&bytes[..whole]);
    is_intact.then_some(ListRecord { kind, body, len: whole + 8 })
}

/// Reads a text of at most `max` bytes.
pub(crate) fn read_text(reader: &mut Reader<'_>, max: usize) -> Result<String, DecodeError> {
    let bytes = reader.bytes(max)?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::Invalid("a text is not UTF-8"))
}

/// Reads tags, or other texts that are as short.
pub(crate) fn read_tags<C: FromIterator<String>>(reader: &mut Reader<'_>) -> Result<C, DecodeError> {
    let count = reader.length()?;
    if count > MAX_TAGS {
        return Err(DecodeError::Invalid("it has more tags than may be"));
    }
    (0..count).map(|_| read_text(reader, MAX_TAG_BYTES)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::entry::Owner;

    pub(crate) fn sample(id: u64) -> Snapshot {
        let time = |seconds| Time { seconds, nanos: 5 };
        let owner = Owner { uid: 1000, gid: 100 };
        let digest = TreeDigest { entries: [1; 16], owners: [2; 16], attrs: [0; 16] };
        let place = ObjectRef { pack: id, offset: 8, len: 70 };
        Snapshot {
            id: SnapshotId(id),
            tree: FolderRef { id: FolderId([3; 32]), place, digest, seen: Stamps::unknown() },
            root_meta: Meta { mode: 0o755, mtime: time(1_600_000_000), owner },
            root_attrs: AttrsBuf::default(),
            began: time(1_700_000_000),
            taken: time(1_700_000_001),
            entries: 1000,
            bytes: 29_000,
            added_bytes: 29,
            failed: 0,
            engine: Engine::Copy,
            purpose: Purpose::AfterRun,
            run: "run".into(),
            job: "job".into(),
            user: "uid 0".into(),
            note: "note".into(),
            tags: ["nightly".into(), "other".into()].into(),
            pinned: id.is_multiple_of(2),
            forgotten: id.is_multiple_of(3).then(|| time(1_800_000_000)),
            is_exposed: false,
            origin: None,
        }
    }

    #[test]
    fn everything_but_the_name_and_labels_is_in_the_digest() {
        let one = sample(1);
        assert_eq!(
            one.digest(),
            Snapshot { tags: BTreeSet::new(), note: String::new(), ..sample(1) }.digest()
        );
        let mut other = sample(1);
        other.root_meta.mode = 0o700;
        assert_ne!(one.digest(), other.digest());
    }

    #[test]
    fn the_record_at_the_end_of_a_pack_is_found_and_a_damaged_one_is_guessed() {
        let (one, record) = (sample(1), sample(1).record());
        let pack = [&b"snap content snap"[..], &record].concat();
        assert_eq!(Snapshot::at_end_of(&pack), Some(one.clone()));
        assert_eq!(Snapshot::at_end_of(&pack[..pack.len() - 1]), None);
        let mut damaged = record.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(Snapshot::at_end_of(&damaged), None);
        assert_eq!(Snapshot::guesses(&damaged).collect::<Vec<_>>(), [(one.id, Some(one))]);
    }
}
