//! New large files that no file of the destination is like in name or length: which have content of them all the same. Both ends take samples, the source of the new
//! files and the sink of what it has; samples of files that have content in common have features in common.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use super::{
    SessionError,
    check::Listed,
    copies::{MIN_RELATIVE_BYTES, Place},
    paths::Paths,
    read::Origin,
    sketch::sketch_all,
};
use crate::{
    delta::features::{RATE, Sampling},
    entry::Kind,
    monitor::Monitor,
    root::Root,
    scan::Tree,
    transport::{Control, TransportError},
    wire::{FileGroup, MAX_HASHES, Message, Sketch},
};

/// Of the bytes that are new so many are read for samples, by each end: one in 16, 64 MiB in any case, which takes some tens of milliseconds, and never more than 4 GiB.
const NEW_PER_READ: u64 = 16;
const LEAST_READ: u64 = 64 << 20;
const MOST_READ: u64 = 4 << 30;

/// Where, if all that is new were here, fewer common features than these could be expected, nobody looks.
const LEAST_EXPECTED: u64 = 8;

/// The largest files of the destination that are looked at.
const MAX_CANDIDATES: usize = 16 << 10;

/// Files that one new file is made from.
const MAX_BASES: usize = 4;

/// So many files are remembered to have a feature.
const MAX_HOLDERS: usize = 64;

/// A file pays to be read whole, cut and named if a new one is guessed to have this share of it, and has this many features of it.
const READ_PER_SHARED: u64 = 16;
const LEAST_COMMON: u64 = 2;

/// A new file, by its place at the source.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewFile {
    pub place: Place,
    pub size: u64,
}

/// The files of the destination that have content of a new one, by the new one's place at the source.
pub(super) type Alike = HashMap<Place, Vec<Place>>;

/// Looks for content of the `new` files, which are in the order of their places, in the destination.
pub(super) fn look(
    root: &Root,
    sink: &Tree,
    new: &[NewFile],
    control: &Control,
    monitor: &Monitor,
) -> Result<Alike, SessionError> {
    if new.is_empty() {
        return Ok(Alike::new());
    }
    let new = &new[..new.len().min(MAX_HASHES)];
    let (places, files) = candidates(sink);
    let Some([there, here]) = samplings(new, &files) else { return Ok(Alike::new()) };
    control.send(&Message::Sketch(Sketch { sampling: there, files: groups(new) }))?;
    let held = sketch_all(Origin::Tree(root), &files, here, monitor)?;
    let wanted = match control.recv()? {
        Message::Sketched(wanted) if wanted.len() == new.len() => wanted,
        Message::Sketched(_) => {
            return Err(TransportError::Nonsense("other features came than were asked for").into());
        }
        other => return Err(TransportError::Unexpected { got: other.what(), expected: "Sketched" }.into()),
    };
    let held = Held::new(&held, &files, there.thinning() * here.thinning());
    let bases = |features| held.bases(features).into_iter().map(|nth| places[nth as usize]).collect();
    let alike = new.iter().zip(wanted).map(|(file, features)| (file.place, bases(features)));
    Ok(alike.filter(|(_, bases): &(_, Vec<_>)| !bases.is_empty()).collect())
}

/// The files of the destination that are worth a look, in the order of their places.
fn candidates(sink: &Tree) -> (Vec<Place>, Vec<Listed>) {
    let mut places = Vec::new();
    for (id, dir) in (0..).zip(&sink.dirs) {
        for (index, entry) in (0..).zip(&dir.listing) {
            if let Kind::File { size } = entry.kind
                && size >= MIN_RELATIVE_BYTES
            {
                places.push((size, (id, index)));
            }
        }
    }
    if places.len() > MAX_CANDIDATES {
        places.select_nth_unstable_by_key(MAX_CANDIDATES, |(size, _)| Reverse(*size));
        places.truncate(MAX_CANDIDATES);
    }
    let mut places: Vec<Place> = places.into_iter().map(|(_, place)| place).collect();
    places.sort_unstable();
    let files = listed(sink, &places);
    (places, files)
}

fn listed(sink: &Tree, places: &[Place]) -> Vec<Listed> {
    let mut paths = Paths::new(sink);
    let of_dir = |places: &[Place]| {
        let id = places.first().map_or(0, |(id, _)| *id);
        let (path, indices) =
            (paths.of(id), places.iter().map(|(_, index)| *index).collect::<HashSet<u32>>());
        let entries = (0..).zip(&sink.dirs[id as usize].listing);
        let chosen = entries.filter(|(index, _)| indices.contains(index));
        chosen.filter_map(|(_, entry)| Listed::new(id, &path, &entry)).collect::<Vec<_>>()
    };
    places.chunk_by(|one, other| one.0 == other.0).flat_map(of_dir).collect()
}

/// How the new files, and those of the destination, are sampled; `None` where it could hardly show anything.
fn samplings(new: &[NewFile], files: &[Listed]) -> Option<[Sampling; 2]> {
    let new = total(new.iter().map(|file| file.size));
    let budget = (new / NEW_PER_READ).clamp(LEAST_READ, MOST_READ);
    let samplings =
        [new, total(files.iter().map(|file| file.size))].map(|total| Sampling::within(budget, total));
    let expected = new / RATE / samplings[0].thinning() / samplings[1].thinning();
    (!files.is_empty() && expected >= LEAST_EXPECTED).then_some(samplings)
}

/// The lengths are what listings say: sparse files, or a peer that lies, may have more bytes than can be counted.
fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

fn groups(new: &[NewFile]) -> Vec<FileGroup> {
    let group = |files: &[NewFile]| FileGroup {
        dir: files.first().map_or(0, |file| file.place.0),
        indices: files.iter().map(|file| file.place.1).collect(),
    };
    new.chunk_by(|one, other| one.place.0 == other.place.0).map(group).collect()
}

/// What the samples of the destination's files show.
struct Held {
    /// Which files have a feature.
    holders: HashMap<u64, Vec<u32>>,
    lens: Vec<u64>,
    /// How many features that a new file shares with one of them a common feature of the samples stands for.
    thinning: u64,
}

impl Held {
    fn new(features: &[Vec<u64>], files: &[Listed], thinning: u64) -> Self {
        let mut holders: HashMap<u64, Vec<u32>> = HashMap::new();
        for (nth, features) in (0..).zip(features) {
            for &feature in features {
                let holders = holders.entry(feature).or_default();
                if holders.len() < MAX_HOLDERS {
                    holders.push(nth);
                }
            }
        }
        Self { holders, lens: files.iter().map(|file| file.size).collect(), thinning }
    }

    fn holders(&self, feature: u64) -> &[u32] {
        self.holders.get(&feature).map_or(&[], Vec::as_slice)
    }

    /// The files to make a new one from that has these features: first the one that has most of them, then the one that has most of the others.
    fn bases(&self, mut features: Vec<u64>) -> Vec<u32> {
        let mut bases = Vec::new();
        while bases.len() < MAX_BASES
            && let Some(best) = self.best(&features)
        {
            bases.push(best);
            features.retain(|feature| !self.holders(*feature).contains(&best));
        }
        bases
    }

    fn best(&self, features: &[u64]) -> Option<u32> {
        let mut common: HashMap<u32, u64> = HashMap::new();
        for holder in features.iter().flat_map(|feature| self.holders(*feature)) {
            *common.entry(*holder).or_default() += 1;
        }
        let pays = |nth: u32, common: u64| {
            let shared = common.saturating_mul(RATE).saturating_mul(self.thinning);
            common >= LEAST_COMMON && shared >= self.lens[nth as usize] / READ_PER_SHARED
        };
        common.retain(|nth, common| pays(*nth, *common));
        common.into_iter().max_by_key(|(nth, common)| (*common, Reverse(*nth))).map(|(nth, _)| nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{entry::Time, path::RelPath};

    fn listed(size: u64) -> Listed {
        Listed { id: 0, dir: RelPath::root(), name: (*b"f").into(), size, mtime: Time::default() }
    }

    fn new_file(index: u32, size: u64) -> NewFile {
        NewFile { place: (index / 3, index % 3), size }
    }

    #[test]
    fn nobody_looks_where_nothing_could_be_expected() {
        let gib = 1 << 30;
        let thinning = |new: u64, there: u64| {
            samplings(&[new_file(0, new)], &[listed(there)]).map(|both| both.map(Sampling::thinning))
        };
        assert_eq!(samplings(&[new_file(0, gib)], &[]), None);
        assert_eq!(thinning(50 << 20, 60 << 20), Some([1, 1]));
        assert_eq!(thinning(50 << 20, 10 * gib), Some([1, 160]));
        assert_eq!(thinning(50 << 20, 1024 * gib), None);
        assert_eq!(thinning(100 * gib, 1024 * gib), Some([25, 256]));
    }

    #[test]
    fn lengths_that_add_up_to_more_than_can_be_counted_are_many_bytes() {
        let longest = i64::MAX as u64;
        let new = [new_file(0, longest), new_file(1, longest), new_file(2, longest)];
        assert_eq!(samplings(&new, &[listed(longest), listed(longest), listed(longest)]), None);
    }

    #[test]
    fn a_new_file_is_made_from_those_that_have_most_of_it() {
        let files = [4 << 20, 4 << 20, 1 << 40, 4 << 20].map(listed);
        let features = [(0..40).collect(), (30..90).collect(), (0..90).collect(), vec![1000, 1001]];
        let held = Held::new(&features, &files, 1);
        assert_eq!(held.bases((0..100).collect()), [1, 0], "the largest is not worth its reading");
        assert_eq!(held.bases((0..5).collect()), [0; 0], "80 KiB of 4 MiB");
        assert_eq!(held.bases((500..600).collect()), [0; 0]);
        let thin = Held::new(&features, &files, 100);
        assert_eq!(thin.bases((1000..1005).collect()), [3]);
        assert_eq!(thin.bases(vec![1000]), [0; 0], "one may be by chance");
    }

    #[test]
    fn of_a_feature_that_many_have_a_few_are_remembered() {
        let files: Vec<_> = (0..200).map(|_| listed(2 << 20)).collect();
        let held = Held::new(&vec![(0..20).collect(); 200], &files, 1);
        assert_eq!(held.holders(7).len(), MAX_HOLDERS);
        assert_eq!(held.bases((0..20).collect()), [0]);
    }

    #[test]
    fn files_are_asked_about_by_their_directories() {
        let new: Vec<_> = (0..7).map(|index| new_file(index, 1)).collect();
        let groups: Vec<_> = groups(&new).into_iter().map(|group| (group.dir, group.indices)).collect();
        assert_eq!(groups, [(0, vec![0, 1, 2]), (1, vec![0, 1, 2]), (2, vec![0])]);
    }
}
