//! Finds bases for new large files that are similar to no file of the destination in name or time, among the
//! destination's files and each other. Both ends take samples, the source of the new files and the sink of its own.
//! Samples of files that share content share features.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use crate::{
    delta::features::{RATE, Sampling},
    entry::Kind,
    entry_paths::EntryPlace,
    measure::monitor::Monitor,
    plan::{
        basis_by_name::{Base, MIN_RELATIVE_BYTES, NewFile, SimilarFiles},
        planned::path_in,
    },
    session_error::SessionError,
    source::{
        hash_files::HashRequest, paths_by_number::Paths, sample_files::sample_files, source_file::Origin,
    },
    sys::root::Root,
    transport::{Control, TransportError},
    tree::Tree,
    wire::{FileGroup, MAX_HASHES, Message, SampleRequest},
};

/// Each end reads one in 16 of the new bytes for samples, but at least 64 MiB, which takes some tens of milliseconds,
/// and at most 4 GiB.
const NEW_PER_READ: u64 = 16;
const LEAST_READ: u64 = 64 << 20;
const MOST_READ: u64 = 4 << 30;

/// For content that new files share with each other alone, the source reads one byte in 32, and at least 32 MiB. With
/// fewer new bytes, it takes no samples.
const NEW_PER_READ_AMONG_NEW: u64 = 32;
const LEAST_READ_AMONG_NEW: u64 = 32 << 20;

/// The smallest number of common features that would be expected if the destination had all new content; with fewer,
/// its files are not sampled.
const LEAST_EXPECTED: u64 = 8;

/// The largest number of the destination's files that are sampled; the largest ones are.
const MAX_CANDIDATES: usize = 16 << 10;

/// The largest number of bases of one new file.
const MAX_BASES: usize = 4;

/// The largest number of files that are recorded for one feature.
const MAX_HOLDERS: usize = 64;

/// A file is worth reading, cutting and naming as a basis if a new one seems to share one in 16 of its bytes, and
/// shares at least two features.
const READ_PER_SHARED: u64 = 16;
const LEAST_COMMON: u64 = 2;

/// Samples the `new` files, which are sorted by place, and returns the bases found for them, in the destination and
/// among themselves.
pub(crate) fn compare_samples(
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
    let places = candidates(sink);
    let files = listed(sink, &places);
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

/// Returns the largest of the new files, as many as one request can name.
pub(crate) fn few(new: Vec<NewFile<'_>>) -> Vec<NewFile<'_>> {
    largest(new, MAX_HASHES, |file| (file.size, file.place))
}

/// Returns the `most` largest files, in the order of their places.
fn largest<T>(mut files: Vec<T>, most: usize, of: impl Fn(&T) -> (u64, EntryPlace)) -> Vec<T> {
    if files.len() > most {
        files.select_nth_unstable_by_key(most, |file| Reverse(of(file)));
        files.truncate(most);
    }
    files.sort_unstable_by_key(|file| of(file).1);
    files
}

/// Returns the destination's files that are worth sampling, in the order of their places.
fn candidates(sink: &Tree) -> Vec<EntryPlace> {
    let mut places = Vec::new();
    for (id, dir) in (0..).zip(&sink.dirs) {
        for (index, entry) in (0..).zip(&dir.listing) {
            if let Kind::File { size } = entry.kind
                && size >= MIN_RELATIVE_BYTES
            {
                places.push((size, EntryPlace { dir: id, index }));
            }
        }
    }
    largest(places, MAX_CANDIDATES, |file| *file).into_iter().map(|(_, place)| place).collect()
}

fn listed(sink: &Tree, places: &[EntryPlace]) -> Vec<HashRequest> {
    let mut paths = Paths::new(sink);
    let of_dir = |places: &[EntryPlace]| {
        let id = places.first().map_or(0, |place| place.dir);
        let (path, indices) =
            (paths.of(id), places.iter().map(|place| place.index).collect::<HashSet<u32>>());
        let entries = (0..).zip(&sink.dirs[id as usize].listing);
        let chosen = entries.filter(|(index, _)| indices.contains(index));
        chosen.filter_map(|(_, entry)| HashRequest::new(id, &path, &entry)).collect::<Vec<_>>()
    };
    places.chunk_by(|one, other| one.dir == other.dir).flat_map(of_dir).collect()
}

/// The shares of both ends' files that are sampled.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    /// The share of the new files, at the source.
    there: Sampling,
    /// The share of the destination's files; `None` if sampling them is unlikely to find anything.
    here: Option<Sampling>,
}

impl Look {
    /// Chooses the shares; `None` if sampling is not worthwhile.
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

/// Adds up lengths from listings, of sparse files or a lying peer, which may be more than fits.
fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

fn groups(new: &[NewFile<'_>]) -> Vec<FileGroup> {
    let group = |files: &[NewFile<'_>]| FileGroup {
        dir: files.first().map_or(0, |file| file.place.dir),
        indices: files.iter().map(|file| file.place.index).collect(),
    };
    new.chunk_by(|one, other| one.place.dir == other.place.dir).map(group).collect()
}

/// A basis of a new file, by its index among the sampled files.
#[derive(Debug, PartialEq, Eq)]
enum Chosen {
    There(u32),
    New(usize),
}

/// Chooses the bases of each new file: files of the destination before other new files, of which the largest are taken
/// first. `thinning` is that among new files.
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

/// Finds files that share features, from samples of files.
struct FeatureIndex {
    /// The files that have a feature.
    holders: HashMap<u64, Vec<u32>>,
    lens: Vec<u64>,
    /// The number of features that two files share for each one that their samples share.
    thinning: u64,
}

impl FeatureIndex {
    fn new(thinning: u64) -> Self {
        Self { holders: HashMap::new(), lens: Vec::new(), thinning }
    }

    /// Adds a file of `len` bytes.
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

    /// Returns at most `most` bases for a new file with these features: first the file that has most of them, then the
    /// one that has most of the rest. Leaves the features that no basis has.
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
            place: EntryPlace { dir: index / 3, index: index % 3 },
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
        let at = |dir, index| EntryPlace { dir, index };
        let files = vec![(5, at(2, 0)), (9, at(1, 3)), (1, at(0, 0)), (7, at(3, 1))];
        assert_eq!(largest(files.clone(), 2, |file| *file), [(9, at(1, 3)), (7, at(3, 1))]);
        assert_eq!(largest(files, 9, |file| *file)[0], (1, at(0, 0)));
    }

    #[test]
    fn files_are_asked_about_by_their_directories() {
        let groups: Vec<_> =
            groups(&new_files(&[1; 7])).into_iter().map(|group| (group.dir, group.indices)).collect();
        assert_eq!(groups, [(0, vec![0, 1, 2]), (1, vec![0, 1, 2]), (2, vec![0])]);
    }
}
