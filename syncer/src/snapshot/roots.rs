//! The list of a volume's snapshots: the file `roots`, which each change replaces by one rename.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    folder::{FolderId, FolderRef, ObjectRef, check_of},
    id::SnapshotId,
    retention::JobRules,
    text::{MAX_NAME_BYTES, MAX_NOTE_BYTES, read_tags, read_text},
};
use crate::{
    attrs::{Attrs, AttrsBuf, MAX_ATTRS_BYTES},
    codec::{DecodeError, Reader, put_bytes, put_signed, put_varint},
    entry::{Meta, Time, put_meta, read_meta},
    hash::TreeDigest,
    tree::stamps::Stamps,
};

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"vfroots\0";

/// The version of the format.
pub const VERSION: u32 = 2;

/// The version without the rules of jobs, which is still read.
const WITHOUT_RULES: u32 = 1;

/// The first bytes of each record, by which a reader finds the next record after a damaged one.
const RECORD: &[u8; 4] = b"snap";

/// The first bytes of a record of the rules of a job.
const RULES: &[u8; 4] = b"rule";

/// The first bytes of the end.
const END: &[u8; 4] = b"end.";

/// The longest file that is read, in bytes.
pub const MAX_ROOTS_BYTES: u64 = 256 << 20;

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
}

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
        out.push(u8::from(self.pinned) | u8::from(self.forgotten.is_some()) << 1);
        if let Some(when) = self.forgotten {
            put_time(out, when);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
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
        let flags = r.byte()?;
        if flags > 3 {
            return Err(DecodeError::Invalid("it has a flag that this program does not know"));
        }
        let forgotten = (flags & 2 != 0).then(|| read_time(r)).transpose()?;
        reader.finish()?;
        let pinned = flags & 1 != 0;
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
            run,
            job,
            user,
            note,
            tags,
            pinned,
            forgotten,
        })
    }
}

/// The list of a volume's snapshots, in the order of their publication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roots {
    /// The readable ones, including forgotten ones.
    pub snapshots: Vec<Snapshot>,
    /// The rules that each job applied last.
    pub rules: BTreeMap<String, JobRules>,
    /// The number of collections so far.
    pub collections: u64,
    /// Unreadable records, byte for byte, so that each rewriting keeps them.
    pub damaged: Vec<Vec<u8>>,
    /// Whether the end is missing or wrong, so that whole records may be missing.
    pub is_cut: bool,
}

/// Reports a file that is not a list of snapshots, or of another version.
#[derive(Debug, PartialEq, Eq)]
pub enum NotRoots {
    /// The file begins with other bytes.
    Magic,
    /// It has this version.
    Version(u32),
}

impl Roots {
    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        let mut record = Vec::new();
        for snapshot in &self.snapshots {
            record.clear();
            snapshot.encode(&mut record);
            put_record(&mut out, RECORD, &record);
        }
        for (job, rules) in &self.rules {
            record.clear();
            rules.encode(job, &mut record);
            put_record(&mut out, RULES, &record);
        }
        self.damaged.iter().for_each(|bytes| out.extend_from_slice(bytes));
        record.clear();
        put_varint(&mut record, (self.snapshots.len() + self.rules.len()) as u64);
        put_varint(&mut record, self.collections);
        put_record(&mut out, END, &record);
        out
    }

    /// Decodes the file. A damaged record does not affect others.
    ///
    /// # Errors
    /// If the file has another version, or is no such file.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotRoots> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(NotRoots::Magic)?;
        let (version, mut rest) = rest.split_first_chunk().ok_or(NotRoots::Magic)?;
        match u32::from_le_bytes(*version) {
            VERSION | WITHOUT_RULES => {}
            version => return Err(NotRoots::Version(version)),
        }
        let mut roots = Self { is_cut: true, ..Self::default() };
        let mut bad = Vec::new();
        while !rest.is_empty() {
            let Some(taken) = roots.take(rest) else {
                bad.push(rest[0]);
                rest = &rest[1..];
                continue;
            };
            roots.set_aside(&mut bad);
            rest = &rest[taken..];
        }
        roots.set_aside(&mut bad);
        Ok(roots)
    }

    fn set_aside(&mut self, bad: &mut Vec<u8>) {
        if !bad.is_empty() {
            self.damaged.push(std::mem::take(bad));
        }
    }

    /// Adds the record at the start of `bytes`, and returns its length.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let (kind, body, len) = read_record(bytes)?;
        match kind {
            RECORD => self.snapshots.push(Snapshot::decode(body).ok()?),
            RULES => {
                let (job, rules) = JobRules::decode(body).ok()?;
                self.rules.insert(job, rules);
            }
            END => {
                let mut reader = Reader::new(body);
                let count = reader.varint().ok()?;
                self.collections = reader.varint().ok()?;
                let there = (self.snapshots.len() + self.rules.len()) as u64;
                self.is_cut = len != bytes.len() || count != there;
            }
            _ => return None,
        }
        Some(len)
    }

    /// Returns the last published snapshot, forgotten or not.
    pub fn last(&self) -> Option<&Snapshot> {
        self.snapshots.last()
    }

    /// Returns the snapshot with this id.
    pub fn get(&self, id: SnapshotId) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Returns the snapshot with this id, for changes.
    pub fn get_mut(&mut self, id: SnapshotId) -> Option<&mut Snapshot> {
        self.snapshots.iter_mut().find(|snapshot| snapshot.id == id)
    }

    /// Yields the snapshots that are not forgotten.
    pub fn kept(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(|snapshot| snapshot.forgotten.is_none())
    }

    /// Returns the number of unreadable places in the file.
    pub fn damages(&self) -> usize {
        self.damaged.len() + usize::from(self.is_cut && self.damaged.is_empty())
    }
}

/// Appends a record: `kind` · length (u32) · body · checksum of all that.
fn put_record(out: &mut Vec<u8>, kind: &[u8; 4], body: &[u8]) {
    let start = out.len();
    out.extend_from_slice(kind);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(body);
    let check = check_of(&out[start..]);
    out.extend_from_slice(&check);
}

fn read_record(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], usize)> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    if ![RECORD, RULES, END].contains(&kind) {
        return None;
    }
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let whole = 8 + body.len();
    (rest.first_chunk::<8>()? == &check_of(&bytes[..whole])).then_some((kind, body, whole + 8))
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    put_signed(out, time.seconds);
    put_varint(out, u64::from(time.nanos));
}

fn read_time(reader: &mut Reader<'_>) -> Result<Time, DecodeError> {
    match (reader.signed()?, reader.varint32()?) {
        (seconds, nanos) if nanos < 1_000_000_000 => Ok(Time { seconds, nanos }),
        _ => Err(DecodeError::Invalid("a time has more than a second of nanoseconds")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use contract::Retention;

    use crate::entry::Owner;

    pub(in crate::snapshot) fn sample(id: u64) -> Snapshot {
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
            run: "run".into(),
            job: "job".into(),
            user: "uid 0".into(),
            note: "note".into(),
            tags: ["nightly".into(), "other".into()].into(),
            pinned: id.is_multiple_of(2),
            forgotten: id.is_multiple_of(3).then(|| time(1_800_000_000)),
        }
    }

    pub(in crate::snapshot) fn three() -> Roots {
        let retention = Retention {
            last: 1,
            hourly: 2,
            daily: 3,
            weekly: 4,
            monthly: 5,
            yearly: 600,
            within_seconds: Some(172_800),
            tags: ["gold".into()].into(),
            max_bytes: Some(10 << 30),
        };
        let rules = [
            ("prod/web".into(), JobRules { retention, zone: "Europe/Berlin".into() }),
            ("test/web".into(), JobRules::default()),
        ];
        let snapshots = (1..4).map(sample).collect();
        Roots { snapshots, rules: rules.into(), collections: 2, ..Roots::default() }
    }

    #[test]
    fn a_list_survives_the_trip() {
        for roots in [Roots::default(), three()] {
            assert_eq!(Roots::decode(&roots.encode()), Ok(roots));
        }
    }

    #[test]
    fn a_flipped_bit_costs_one_record_which_is_kept_as_it_is() {
        let bytes = three().encode();
        let head = MAGIC.len() + 4;
        for at in head..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let roots = Roots::decode(&damaged).unwrap();
            assert!(roots.damages() > 0, "byte {at}");
            assert!(roots.snapshots.len() + roots.rules.len() >= 4, "byte {at}");
            let again = Roots::decode(&roots.encode()).unwrap();
            let expected = (roots.snapshots, roots.rules, roots.damaged);
            assert_eq!((again.snapshots, again.rules, again.damaged), expected, "byte {at}");
        }
        for end in head..bytes.len() {
            assert!(Roots::decode(&bytes[..end]).unwrap().damages() > 0, "cut at {end}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = three().encode();
        bytes[8] = 9;
        assert_eq!(Roots::decode(&bytes), Err(NotRoots::Version(9)));
        bytes[0] = b'x';
        assert_eq!(Roots::decode(&bytes), Err(NotRoots::Magic));
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
}
