//! New large files that no file of the destination is like in name or time: which have content of them all the same, or
//! of each other. Both ends take samples, the source of the new files and the sink of what it has; samples of files
//! that have content in common have features in common.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use crate::{
    delta::features::{RATE, Sampling},
    entry::Kind,
    monitor::Monitor,
    root::Root,
    session::{
        plan::{
            basis_search::{Base, EntryRef, MIN_RELATIVE_BYTES, NewFile, SimilarFiles},
            planned::path_in,
        },
        reading::{hash_files::HashRequest, sample::sample_files, source_file::Origin, tree_paths::Paths},
        session_error::SessionError,
    },
    transport::{Control, TransportError},
    tree::Tree,
    wire::{FileGroup, MAX_HASHES, Message, SampleRequest},
};

/// Of the bytes that are new so many are read for samples, by each end: one in 16, 64 MiB in any case, which takes some
/// tens of milliseconds, and never more than 4 GiB.
const NEW_PER_READ: u64 = 16;
const LEAST_READ: u64 = 64 << 20;
const MOST_READ: u64 = 4 << 30;

/// For what new files have in common with each other alone, less is read: one byte in 32, 32 MiB in any case, and that
/// where there is as much.
const NEW_PER_READ_AMONG_NEW: u64 = 32;
const LEAST_READ_AMONG_NEW: u64 = 32 << 20;

/// Where, if all that is new were here, fewer common features than these could be expected, nobody looks.
const LEAST_EXPECTED: u64 = 8;

/// The largest files of the destination that are looked at.
const MAX_CANDIDATES: usize = 16 << 10;

/// Files that one new file is made from.
const MAX_BASES: usize = 4;

/// So many files are remembered to have a feature.
const MAX_HOLDERS: usize = 64;

/// A file pays to be read whole, cut and named if a new one is guessed to have this share of it, and has this many
/// features of it.
const READ_PER_SHARED: u64 = 16;
const LEAST_COMMON: u64 = 2;

/// Looks for content of the `new` files, which are in the order of their places, in the destination and among
/// themselves.
pub(crate) fn look(
    root: &Root,
    sink: &Tree,
    new: Vec<NewFile<'_>>,
    control: &Control,
    monitor: &Monitor,
) -> Result<SimilarFiles, SessionError> {
    if new.is_empty() {
        return Ok(SimilarFiles::new());
    }
    let new = few(new);
    let (places, files) = candidates(sink);
    let Some(Look { there, here }) = Look::at(&new, &files) else { return Ok(SimilarFiles::new()) };
    control.send(&Message::SampleRequest(SampleRequest { sampling: there, files: groups(&new) }))?;
    let held = match here {
        Some(here) => {
            let features = sample_files(Origin::Tree(root), &files, here, monitor)?;
            let mut held = FeatureIndex::new(there.thinning() * here.thinning());
            features.into_iter().zip(&files).for_each(|(features, file)| held.add(&features, file.size));
            held
        }
        None => FeatureIndex::new(1),
    };
    let wanted = match control.recv()? {
        Message::Samples(wanted) if wanted.len() == new.len() => wanted,
        Message::Samples(_) => {
            return Err(TransportError::Nonsense("other features came than were asked for").into());
        }
        other => {
            return Err(TransportError::Unexpected { got: other.what(), expected: "Samples" }.into());
        }
    };
    let chosen = choose(&held, &new, &wanted, there.thinning().saturating_pow(2));
    let base = |base| match base {
        Chosen::There(nth) => Base::There(places[nth as usize]),
        Chosen::New(nth) => Base::New(path_in(new[nth].dir, new[nth].name), new[nth].size),
    };
    let alike = new.iter().zip(chosen).filter(|(_, bases)| !bases.is_empty());
    Ok(alike.map(|(file, bases)| (file.place, bases.into_iter().map(base).collect())).collect())
}

/// As many of the new files as can be asked about, the largest.
pub(crate) fn few(new: Vec<NewFile<'_>>) -> Vec<NewFile<'_>> {
    largest(new, MAX_HASHES, |file| (file.size, file.place))
}

/// The `most` largest, in the order of their places.
fn largest<T>(mut files: Vec<T>, most: usize, of: impl Fn(&T) -> (u64, EntryRef)) -> Vec<T> {
    if files.len() > most {
        files.select_nth_unstable_by_key(most, |file| Reverse(of(file)));
        files.truncate(most);
    }
    files.sort_unstable_by_key(|file| of(file).1);
    files
}

/// The files of the destination that are worth a look, in the order of their places.
fn candidates(sink: &Tree) -> (Vec<EntryRef>, Vec<HashRequest>) {
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
    let places: Vec<EntryRef> =
        largest(places, MAX_CANDIDATES, |file| *file).into_iter().map(|(_, place)| place).collect();
    let files = listed(sink, &places);
    (places, files)
}

fn listed(sink: &Tree, places: &[EntryRef]) -> Vec<HashRequest> {
    let mut paths = Paths::new(sink);
    let of_dir = |places: &[EntryRef]| {
        let id = places.first().map_or(0, |(id, _)| *id);
        let (path, indices) =
            (paths.of(id), places.iter().map(|(_, index)| *index).collect::<HashSet<u32>>());
        let entries = (0..).zip(&sink.dirs[id as usize].listing);
        let chosen = entries.filter(|(index, _)| indices.contains(index));
        chosen.filter_map(|(_, entry)| HashRequest::new(id, &path, &entry)).collect::<Vec<_>>()
    };
    places.chunk_by(|one, other| one.0 == other.0).flat_map(of_dir).collect()
}

/// How much is looked at.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    /// Of the new files, at the source.
    there: Sampling,
    /// Of those of the destination; `None` where it could hardly show anything.
    here: Option<Sampling>,
}

impl Look {
    /// `None` where nothing is worth a look.
    fn at(new: &[NewFile<'_>], files: &[HashRequest]) -> Option<Self> {
        let all_new = total(new.iter().map(|file| file.size));
        let budget = (all_new / NEW_PER_READ).clamp(LEAST_READ, MOST_READ);
        let [there, here] =
            [all_new, total(files.iter().map(|file| file.size))].map(|total| Sampling::within(budget, total));
        let expected = all_new / RATE / there.thinning() / here.thinning();
        if !files.is_empty() && expected >= LEAST_EXPECTED {
            return Some(Self { there, here: Some(here) });
        }
        let budget = (all_new / NEW_PER_READ_AMONG_NEW).clamp(LEAST_READ_AMONG_NEW, MOST_READ);
        let pays = new.len() > 1 && all_new >= LEAST_READ_AMONG_NEW;
        pays.then(|| Self { there: Sampling::within(budget, all_new), here: None })
    }
}

/// The lengths are what listings say: sparse files, or a peer that lies, may have more bytes than can be counted.
fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

fn groups(new: &[NewFile<'_>]) -> Vec<FileGroup> {
    let group = |files: &[NewFile<'_>]| FileGroup {
        dir: files.first().map_or(0, |file| file.place.0),
        indices: files.iter().map(|file| file.place.1).collect(),
    };
    new.chunk_by(|one, other| one.place.0 == other.place.0).map(group).collect()
}

/// A file that a new one is made from, by its place among those that were sampled.
#[derive(Debug, PartialEq, Eq)]
enum Chosen {
    There(u32),
    New(usize),
}

/// What each of the new files with these features is made from: what the destination holds before what other new files
/// bring, of which the largest come first. `thinning` is that among new files.
fn choose(
    held: &FeatureIndex,
    new: &[NewFile<'_>],
    features: &[Vec<u64>],
    thinning: u64,
) -> Vec<Vec<Chosen>> {
    let mut order: Vec<usize> = (0..new.len()).collect();
    order.sort_by_key(|nth| Reverse(new[*nth].size));
    let (mut coming, mut firsts) = (FeatureIndex::new(thinning), Vec::new());
    let mut bases: Vec<_> = new.iter().map(|_| Vec::new()).collect();
    for nth in order {
        let mut rest = features[nth].clone();
        let there = held.bases(&mut rest, MAX_BASES);
        let others = coming.bases(&mut rest, MAX_BASES - there.len());
        if others.is_empty() {
            coming.add(&features[nth], new[nth].size);
            firsts.push(nth);
        }
        let others = others.into_iter().map(|other| Chosen::New(firsts[other as usize]));
        bases[nth] = there.into_iter().map(Chosen::There).chain(others).collect();
    }
    bases
}

/// Finds the files that share a feature with another, from samples of files.
struct FeatureIndex {
    /// Which files have a feature.
    holders: HashMap<u64, Vec<u32>>,
    lens: Vec<u64>,
    /// How many features that a new file shares with one of them a common feature of the samples stands for.
    thinning: u64,
}

impl FeatureIndex {
    fn new(thinning: u64) -> Self {
        Self { holders: HashMap::new(), lens: Vec::new(), thinning }
    }

    /// Adds a file of this length.
    fn add(&mut self, features: &[u64], len: u64) {
        let nth = self.lens.len() as u32;
        for &feature in features {
            let holders = self.holders.entry(feature).or_default();
            if holders.len() < MAX_HOLDERS {
                holders.push(nth);
            }
        }
        self.lens.push(len);
    }

    fn holders(&self, feature: u64) -> &[u32] {
        self.holders.get(&feature).map_or(&[], Vec::as_slice)
    }

    /// At most so many files to make a new one from that has these features: first the one that has most of them, then
    /// the one that has most of the others. What is left are the features that none has.
    fn bases(&self, features: &mut Vec<u64>, most: usize) -> Vec<u32> {
        let mut bases = Vec::new();
        while bases.len() < most
            && let Some(best) = self.best(features)
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

    fn listed(size: u64) -> HashRequest {
        HashRequest { id: 0, dir: RelPath::root(), name: (*b"f").into(), size, mtime: Time::default() }
    }

    fn new_files(sizes: &[u64]) -> Vec<NewFile<'static>> {
        static ROOT: std::sync::LazyLock<RelPath> = std::sync::LazyLock::new(RelPath::root);
        let file = |(index, &size): (u32, &u64)| NewFile {
            place: (index / 3, index % 3),
            size,
            dir: &ROOT,
            name: b"f",
        };
        (0..).zip(sizes).map(file).collect()
    }

    fn held(files: &[(Vec<u64>, u64)], thinning: u64) -> FeatureIndex {
        let mut held = FeatureIndex::new(thinning);
        files.iter().for_each(|(features, len)| held.add(features, *len));
        held
    }

    fn bases(held: &FeatureIndex, mut features: Vec<u64>) -> Vec<u32> {
        held.bases(&mut features, MAX_BASES)
    }

    #[test]
    fn nobody_looks_where_nothing_could_be_expected() {
        let gib = 1 << 30;
        let thinning = |new: &[u64], there: &[u64]| {
            let there: Vec<_> = there.iter().copied().map(listed).collect();
            let look = Look::at(&new_files(new), &there)?;
            Some((look.there.thinning(), look.here.map(Sampling::thinning)))
        };
        assert_eq!(thinning(&[gib], &[]), None);
        assert_eq!(thinning(&[50 << 20], &[60 << 20]), Some((1, Some(1))));
        assert_eq!(thinning(&[50 << 20], &[10 * gib]), Some((1, Some(160))));
        assert_eq!(thinning(&[50 << 20], &[1024 * gib]), None);
        assert_eq!(thinning(&[100 * gib], &[1024 * gib]), Some((25, Some(256))));
        assert_eq!(thinning(&[25 << 20, 25 << 20], &[1024 * gib]), Some((2, None)));
        assert_eq!(thinning(&[gib, gib], &[]), Some((32, None)));
        assert_eq!(thinning(&[15 << 20, 15 << 20], &[]), None);
    }

    #[test]
    fn lengths_that_add_up_to_more_than_can_be_counted_are_many_bytes() {
        let longest = i64::MAX as u64;
        let look = Look::at(&new_files(&[longest; 3]), &[listed(longest), listed(longest), listed(longest)]);
        assert_eq!(look, Some(Look { there: Sampling::within(MOST_READ, u64::MAX), here: None }));
    }

    #[test]
    fn a_new_file_is_made_from_those_that_have_most_of_it() {
        let features = [(0..40).collect(), (30..90).collect(), (0..90).collect(), vec![1000, 1001]];
        let files: Vec<_> = features.into_iter().zip([4 << 20, 4 << 20, 1 << 40, 4 << 20]).collect();
        let all = held(&files, 1);
        assert_eq!(bases(&all, (0..100).collect()), [1, 0], "the largest is not worth its reading");
        assert_eq!(bases(&all, (0..5).collect()), [0; 0], "80 KiB of 4 MiB");
        assert_eq!(bases(&all, (500..600).collect()), [0; 0]);
        let thin = held(&files, 100);
        assert_eq!(bases(&thin, (1000..1005).collect()), [3]);
        assert_eq!(bases(&thin, vec![1000]), [0; 0], "one may be by chance");
    }

    #[test]
    fn of_a_feature_that_many_have_a_few_are_remembered() {
        let held = held(&vec![((0..20).collect(), 2 << 20); 200], 1);
        assert_eq!(held.holders(7).len(), MAX_HOLDERS);
        assert_eq!(bases(&held, (0..20).collect()), [0]);
    }

    #[test]
    fn new_files_are_made_from_what_is_there_and_from_those_that_are_not_made_from_others() {
        let there = held(&[((0..50).collect(), 1 << 20)], 1);
        let features: [Vec<u64>; 5] = [
            (100..150).chain(200..250).collect(),
            (0..50).chain(100..150).collect(),
            (0..50).chain(200..250).collect(),
            (200..250).collect(),
            (0..50).collect(),
        ];
        let sizes = [2, 3, 1, 1, 1].map(|size| size << 20);
        use Chosen::{New, There};
        let expected = [vec![New(1)], vec![There(0)], vec![There(0)], vec![New(2)], vec![There(0)]];
        let chosen = choose(&there, &new_files(&sizes), &features, 1);
        assert_eq!(chosen, expected, "the largest are the first, and nothing waits for what waits itself");
    }

    #[test]
    fn the_largest_are_kept_in_the_order_of_their_places() {
        let files = vec![(5, (2, 0)), (9, (1, 3)), (1, (0, 0)), (7, (3, 1))];
        assert_eq!(largest(files.clone(), 2, |file| *file), [(9, (1, 3)), (7, (3, 1))]);
        assert_eq!(largest(files, 9, |file| *file)[0], (1, (0, 0)));
    }

    #[test]
    fn files_are_asked_about_by_their_directories() {
        let groups: Vec<_> =
            groups(&new_files(&[1; 7])).into_iter().map(|group| (group.dir, group.indices)).collect();
        assert_eq!(groups, [(0, vec![0, 1, 2]), (1, vec![0, 1, 2]), (2, vec![0])]);
    }
}
