//! The list of a volume's snapshots: the file `roots`, which each change replaces by one rename.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use std::collections::BTreeMap;

use super::{
    folder::check_of,
    job_rules::JobRules,
    purpose::Purpose,
    snapshot_id::SnapshotId,
    snapshot_record::{END, ListRecord, RECORD, RULES, claimed_len, put_record, read_record},
};
use crate::codec::{Reader, put_varint};

pub use super::snapshot_record::{Engine, Snapshot};

/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"vfroots\0";

/// The newest version of the format. A list is written in it if a snapshot of it was copied from another volume.
pub(crate) const VERSION: u32 = 4;

/// The version of all other lists, so that an older program goes on reading them.
const VERSION_WITHOUT_ORIGINS: u32 = 3;

/// The bytes of the head: magic, version, number of changes, checksum. Every version from 3 on begins like this.
const HEAD_BYTES: usize = 28;

/// The bytes of the head of versions 1 and 2: magic and version.
const OLD_HEAD_BYTES: usize = 12;

/// How often each byte of a damaged list is hashed at most, to find the records in it that are whole.
const MOST_HASHED: usize = 8;

/// The longest file that is read, in bytes.
pub const MAX_ROOTS_BYTES: u64 = 256 << 20;

/// The file that a list was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListState {
    /// `roots`, as it was written, or with records that cannot be read.
    #[default]
    Read,
    /// `roots` is damaged, and all of it is known: from its copy, or because only its head is. The next change writes
    /// it anew.
    Known,
    /// `roots` is lost. The copy has a list that may be older, so nothing is changed until the store is repaired.
    OnlyCopy,
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
    /// The number of changes of the list so far, by which it and its copy are known to be equal; 0 if it is not known.
    pub changes: u64,
    /// Unreadable records, byte for byte, so that each rewriting keeps them.
    pub damaged: Vec<Vec<u8>>,
    /// Whether the end is missing or wrong, so that whole records may be missing.
    pub is_cut: bool,
    /// The file that it was read from.
    pub state: ListState,
}

/// Reports a file that is not a list of snapshots, or of another version.
#[derive(Debug, PartialEq, Eq)]
pub enum NotRoots {
    /// The file has no record and no head of a list.
    Unlike,
    /// It has this version.
    Version(u32),
}

impl Roots {
    fn version(&self) -> u32 {
        let has_copied = self.snapshots.iter().any(|snapshot| snapshot.origin.is_some());
        if has_copied { VERSION } else { VERSION_WITHOUT_ORIGINS }
    }

    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.version().to_le_bytes());
        out.extend_from_slice(&self.changes.to_le_bytes());
        let check = check_of(&out);
        out.extend_from_slice(&check);
        let mut record = Vec::new();
        self.snapshots.iter().for_each(|snapshot| out.extend_from_slice(&snapshot.record()));
        for (job, rules) in &self.rules {
            record.clear();
            rules.encode(job, &mut record);
            put_record(&mut out, RULES, &record);
        }
        self.damaged.iter().for_each(|bytes| out.extend_from_slice(bytes));
        record.clear();
        put_varint(&mut record, (self.snapshots.len() + self.rules.len()) as u64);
        put_varint(&mut record, self.collections);
        put_varint(&mut record, self.changes);
        put_record(&mut out, END, &record);
        out
    }

    /// Decodes the file. Damage of the head or of a record does not affect other records.
    ///
    /// # Errors
    /// If the file has another version, or is no such file.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotRoots> {
        let ListHead { len: head, changes } = read_head(bytes)?;
        let mut roots = Self { is_cut: true, changes, ..Self::default() };
        let (mut rest, mut bad) = (&bytes[head..], Vec::new());
        // What claims to be records of great lengths, one in the other, would be hashed again and again.
        let mut left_to_hash = bytes.len().saturating_mul(MOST_HASHED);
        while !rest.is_empty() {
            let claimed = claimed_len(rest);
            if claimed > left_to_hash {
                bad.extend_from_slice(rest);
                break;
            }
            left_to_hash -= claimed;
            let Some(taken) = roots.read_one(rest) else {
                bad.push(rest[0]);
                rest = &rest[1..];
                continue;
            };
            let before = bytes.len() - rest.len();
            let is_head = before == head + bad.len() && [HEAD_BYTES, OLD_HEAD_BYTES].contains(&before);
            if is_head && !bad.is_empty() {
                bad.clear();
                roots.state = ListState::Known;
            }
            roots.set_aside(&mut bad);
            rest = &rest[taken..];
        }
        roots.set_aside(&mut bad);
        if head == 0 && roots.is_cut && roots.snapshots.is_empty() && roots.rules.is_empty() {
            Err(NotRoots::Unlike)
        } else {
            Ok(roots)
        }
    }

    fn set_aside(&mut self, bad: &mut Vec<u8>) {
        if !bad.is_empty() {
            self.damaged.push(std::mem::take(bad));
        }
    }

    /// Adds the record at the start of `bytes`, and returns its length.
    fn read_one(&mut self, bytes: &[u8]) -> Option<usize> {
        let ListRecord { kind, body, len } = read_record(bytes)?;
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
                if reader.remaining() > 0 {
                    self.changes = reader.varint().ok()?;
                }
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

    /// Adds a snapshot that the list has lost, before the first one that was taken later.
    pub(crate) fn insert(&mut self, snapshot: Snapshot) {
        let later = |other: &Snapshot| other.taken > snapshot.taken;
        let at = self.snapshots.iter().position(later).unwrap_or(self.snapshots.len());
        self.snapshots.insert(at, snapshot);
    }

    /// Returns the snapshot with this id, for changes.
    pub fn get_mut(&mut self, id: SnapshotId) -> Option<&mut Snapshot> {
        self.snapshots.iter_mut().find(|snapshot| snapshot.id == id)
    }

    /// Yields the snapshots that are not forgotten.
    pub fn kept(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(|snapshot| snapshot.forgotten.is_none())
    }

    /// Yields the snapshots that are not forgotten and not from before a restore, so that a person may mean them
    /// without naming them.
    pub fn offered(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots.iter().filter(|it| it.forgotten.is_none() && it.purpose != Purpose::Safety)
    }

    /// Returns the number of places of the list that cannot be read and that no copy has.
    pub fn damages(&self) -> usize {
        self.damaged.len() + usize::from(self.is_cut && self.damaged.is_empty())
    }
}

/// The head of a list: its length in bytes, and the number of changes that it has; 0 and 0 if it is damaged.
#[derive(Default)]
struct ListHead {
    len: usize,
    changes: u64,
}

fn read_head(bytes: &[u8]) -> Result<ListHead, NotRoots> {
    let version = || Some(u32::from_le_bytes(*bytes.strip_prefix(MAGIC)?.first_chunk()?));
    match version() {
        None => Ok(ListHead::default()),
        Some(1 | 2) => Ok(ListHead { len: OLD_HEAD_BYTES, changes: 0 }),
        Some(version) => match bytes.split_at_checked(HEAD_BYTES - 8) {
            Some((head, rest)) if rest.starts_with(&check_of(head)) => match version {
                VERSION | VERSION_WITHOUT_ORIGINS => {
                    let changes = head.last_chunk().map_or(0, |changes| u64::from_le_bytes(*changes));
                    Ok(ListHead { len: HEAD_BYTES, changes })
                }
                _ => Err(NotRoots::Version(version)),
            },
            _ => Ok(ListHead::default()),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use contract::{Retention, VolumeId};

    pub(crate) use crate::snapshot::store::snapshot_record::tests::sample;

    pub(crate) fn three() -> Roots {
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
        Roots { snapshots, rules: rules.into(), collections: 2, changes: 9, ..Roots::default() }
    }

    #[test]
    fn a_list_survives_the_trip() {
        let unnamed = |purpose| Snapshot { purpose, run: String::new(), job: String::new(), ..sample(1) };
        let purposes = [Purpose::Manual, Purpose::AfterRun, Purpose::Safety];
        let exposed = Snapshot { is_exposed: true, ..sample(1) };
        let origin = Some(VolumeId::new([7; 16]));
        let copied = [Snapshot { origin, ..sample(3) }, Snapshot { origin, ..sample(4) }];
        let snapshots = purposes.into_iter().map(unnamed).chain([exposed]).chain(copied).collect();
        for roots in [Roots::default(), three(), Roots { snapshots, ..Roots::default() }] {
            assert_eq!(Roots::decode(&roots.encode()), Ok(roots));
        }
    }

    #[test]
    fn records_that_claim_to_be_in_each_other_are_given_up_and_kept_as_they_are() {
        let mut bytes = three().encode();
        let known = bytes.len();
        let claims = 100_000;
        for left in (0..claims).rev() {
            bytes.extend_from_slice(RECORD);
            // What is left after it is as long as the claim and its checksum.
            bytes.extend_from_slice(&(8 * u32::saturating_sub(left, 1)).to_le_bytes());
        }
        bytes.extend_from_slice(&three().encode()[HEAD_BYTES..]);
        let roots = Roots::decode(&bytes).unwrap();
        assert_eq!(roots.snapshots, three().snapshots, "those behind the claims are not found");
        assert_eq!(roots.damaged.concat(), &bytes[known..]);
    }

    #[test]
    fn a_flipped_bit_costs_one_record_which_is_kept_as_it_is() {
        let bytes = three().encode();
        for at in HEAD_BYTES..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let roots = Roots::decode(&damaged).unwrap();
            assert!(roots.damages() > 0, "byte {at}");
            assert!(roots.snapshots.len() + roots.rules.len() >= 4, "byte {at}");
            assert_eq!(roots.changes, 9, "byte {at}");
            let again = Roots::decode(&roots.encode()).unwrap();
            let expected = (roots.snapshots, roots.rules, roots.damaged);
            assert_eq!((again.snapshots, again.rules, again.damaged), expected, "byte {at}");
        }
        for end in HEAD_BYTES..bytes.len() {
            assert!(Roots::decode(&bytes[..end]).unwrap().damages() > 0, "cut at {end}");
        }
    }

    #[test]
    fn a_flipped_bit_of_the_head_costs_nothing() {
        let bytes = three().encode();
        for bit in 0..HEAD_BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let roots = Roots::decode(&damaged).unwrap();
            assert_eq!(roots, Roots { state: ListState::Known, ..three() }, "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_named_and_what_has_no_record_is_no_list() {
        let mut head = three().encode()[..HEAD_BYTES - 8].to_vec();
        head[8] = 9;
        let check = check_of(&head);
        let newer = [&head[..], &check, b"of another form"].concat();
        assert_eq!(Roots::decode(&newer), Err(NotRoots::Version(9)));
        for bytes in [&b""[..], b"vfroots", &[0; 4096]] {
            assert_eq!(Roots::decode(bytes), Err(NotRoots::Unlike));
        }
    }
}
