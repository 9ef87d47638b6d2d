//! Checks the objects of a store against their ids, and names the files that need damaged ones.
//!
//! What is found is healed by [`heal`](super::heal_objects::heal).

use std::{collections::HashSet, io};

use super::{
    check_turn::Turn,
    damaged_paths::{Damage, Damaged, name_damage},
    read_pace::ReadPace,
};
use crate::{
    hash::ContentId,
    snapshot::store::{ContentRef, Home, ListState, Roots, SnapshotError, Store, io_error, walk},
    sys::cores::on_cores,
};

/// The number of contents that all cores check together.
const BATCH: usize = 4096;

/// The number of contents for which one more thread is started.
const CONTENTS_PER_THREAD: usize = 64;

/// The results of a check.
#[derive(Debug, Default)]
pub struct Verified {
    /// The number of checked objects.
    pub objects: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// The damaged objects.
    pub damaged: Vec<Damage>,
    /// Unreadable places of the list of snapshots that no copy has.
    pub damaged_records: u64,
    /// Damage of the list or of its copy by which nothing is lost.
    pub list: Option<ListDamage>,
    /// Whether the list and its copy were written anew.
    pub is_list_healed: bool,
    /// The first line of the audit log that does not continue its chain.
    pub audit_broken_at: Option<u64>,
}

/// Damage of the list of snapshots by which nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListDamage {
    /// The list is damaged, and its copy is not.
    List,
    /// The list is lost, and its copy may be older.
    OnlyCopy,
    /// The copy is damaged.
    Copy,
}

impl Verified {
    /// Returns whether any damage was found.
    pub fn is_damaged(&self) -> bool {
        !self.damaged.is_empty()
            || self.damaged_records > 0
            || self.list.is_some()
            || self.audit_broken_at.is_some()
    }

    /// Returns whether something was found that [`heal`](super::heal_objects::heal) may put right.
    pub fn may_heal(&self) -> bool {
        !self.damaged.is_empty() || matches!(self.list, Some(ListDamage::List | ListDamage::Copy))
    }

    /// Returns the ids of damaged contents that nothing healed; `None` for each such directory.
    pub fn unhealed_contents(&self) -> impl Iterator<Item = Option<ContentId>> {
        self.unhealed().filter_map(|damage| match damage.what {
            Damaged::Content(content, _) => Some(Some(content.id)),
            Damaged::Folder(_) => Some(None),
            Damaged::Record(_) | Damaged::Elsewhere => None,
        })
    }

    /// Returns the damaged objects that nothing healed.
    pub(crate) fn unhealed(&self) -> impl Iterator<Item = &Damage> {
        self.damaged.iter().filter(|damage| damage.healed_from.is_none())
    }
}

/// Checks every directory of all snapshots, and the contents that `turn` selects, at this pace. Changes nothing. The
/// caller keeps collections from removing objects meanwhile.
///
/// # Errors
/// If the audit log cannot be read, or the pace's monitor is told to stop. Damage of an object is in the result.
pub fn verify(
    store: &Store,
    roots: &Roots,
    turn: &Turn,
    pace: &ReadPace<'_>,
) -> Result<Verified, SnapshotError> {
    let log = store.audit(roots)?;
    let mut verified = Verified {
        damaged_records: roots.damages() as u64,
        list: damage_of_list(store, roots)?,
        audit_broken_at: log.broken,
        ..Verified::default()
    };
    let mut checks = ContentsToCheck { store, turn, pace, seen: HashSet::new(), batch: Vec::new() };
    let stopped = || io_error("check", store.path());
    walk(store, roots.snapshots.iter(), &mut |visited, folder| {
        verified.objects += 1;
        verified.bytes += u64::from(visited.place.len);
        pace.spend(u64::from(visited.place.len)).map_err(stopped())?;
        match folder {
            Ok(folder) => {
                folder.files().for_each(|file| checks.push(file.content, file.len));
            }
            Err(error) => {
                let object = store.name_of_folder(visited);
                verified.damaged.push(Damage::new(Damaged::Folder(*visited), object, &error));
            }
        }
        if checks.batch.len() >= BATCH {
            checks.run(&mut verified).map_err(stopped())?;
        }
        Ok(())
    })?;
    checks.run(&mut verified).map_err(stopped())?;
    name_damage(store, roots, &mut verified.damaged);
    check_records(store, roots, &mut verified);
    Ok(verified)
}

fn damage_of_list(store: &Store, roots: &Roots) -> Result<Option<ListDamage>, SnapshotError> {
    Ok(match roots.state {
        ListState::OnlyCopy => Some(ListDamage::OnlyCopy),
        ListState::Known => Some(ListDamage::List),
        ListState::Read => store.list().is_copy_damaged()?.then_some(ListDamage::Copy),
    })
}

/// Checks the records at the ends of the snapshots' packs, from which a lost list is repaired.
fn check_records(store: &Store, roots: &Roots, verified: &mut Verified) {
    for snapshot in &roots.snapshots {
        if let Err(error) = store.record_in_pack(snapshot.id.0) {
            let object = store.name_of_record(snapshot.id);
            verified.damaged.push(Damage::new(Damaged::Record(snapshot.id), object, &error));
        }
    }
}

/// Contents to check, each once.
struct ContentsToCheck<'a> {
    store: &'a Store,
    turn: &'a Turn,
    pace: &'a ReadPace<'a>,
    /// By place, the first bytes of the id, and the length: one that a file claims falsely is not the content's.
    seen: HashSet<(u64, u64, [u8; 8], u64)>,
    batch: Vec<(ContentRef, u64)>,
}

impl ContentsToCheck<'_> {
    fn push(&mut self, content: ContentRef, len: u64) {
        let mut first = [0; 8];
        first.copy_from_slice(&content.id.0[..8]);
        let key = match content.home {
            Home::Own => (0, 0, first, len),
            Home::Pack { pack, offset } => (pack, offset, first, len),
        };
        if self.turn.has(&content.id) && self.seen.insert(key) {
            self.batch.push((content, len));
        }
    }

    fn run(&mut self, verified: &mut Verified) -> io::Result<()> {
        let check = |nth: usize| {
            let (content, len) = &self.batch[nth];
            self.pace.go_on().ok()?;
            let visit = |piece: &[u8], _| self.pace.spend(piece.len() as u64);
            let checked = self.store.check_visited(content, *len, &visit);
            // What was cut off by a stop is not damaged.
            self.pace.go_on().ok()?;
            let damaged = Damaged::Content(*content, *len);
            checked.err().map(|error| Damage::new(damaged, self.store.name_of(content), &error))
        };
        let damaged = on_cores(self.batch.len(), CONTENTS_PER_THREAD, check);
        verified.objects += self.batch.len() as u64;
        verified.bytes += self.batch.iter().map(|(_, len)| len).sum::<u64>();
        verified.damaged.extend(damaged.into_iter().flatten());
        self.batch.clear();
        self.pace.go_on()
    }
}
