//! Finds a basis for a new file among the files of the destination, so that the content of files that were renamed,
//! copied or edited at the source need not cross.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    entry::{Entry, Kind},
    entry_paths::EntryPlace,
    listing::EntryIndex,
    measure::report::Counters,
    path::RelPath,
    plan::needed_files::OldVersion,
    source::paths_by_number::Paths,
    tree::{Tree, dir::DirId},
    wire::MAX_PACKED_BYTES,
};

/// The number of guesses, by length or family alone, that may have nothing in common with the new file. After that, no
/// more are tried.
const MAX_WRONG_GUESSES: u64 = 4;

/// The largest number of files of one length, or of one family, that are looked at.
const MAX_LIKE: usize = 64;

/// The shortest new file, in bytes, for which files of other lengths are looked at. Shorter ones would send no
/// less of real trees (`doc/delta.md`).
pub(crate) const MIN_RELATIVE_BYTES: u64 = (1 << 20) + 1;

/// The large files of the destination, listed when the first basis is needed.
#[derive(Debug)]
pub(crate) struct BasisSearch<'a> {
    sink: &'a Tree,
    listed: Option<LargeFiles<'a>>,
    /// The bases that sampling has found, which neither name nor time shows.
    pub alike: SimilarFiles,
}

/// A new file.
pub(crate) struct Wanted<'w> {
    /// As the source lists it.
    pub entry: &'w Entry<'w>,
    /// Its length in bytes.
    pub len: u64,
    /// Its place at the source.
    pub from: EntryPlace,
    /// Its directory at the sink, if it exists.
    pub to: Option<DirId>,
}

/// The properties that a file shares with a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// Its length, and its time or name.
    TimeOrName,
    /// The family of its name.
    Family,
    /// Its length alone.
    Length,
}

/// The file that is most similar to a new one.
struct Similar {
    place: EntryPlace,
    likeness: Likeness,
}

#[derive(Debug)]
struct LargeFiles<'a> {
    /// By length.
    by_len: Index,
    /// By the hash of the family of the name.
    by_family: Index,
    files: FileLookup<'a>,
    paths: Paths<'a>,
}

impl<'a> BasisSearch<'a> {
    pub(crate) fn new(sink: &'a Tree) -> Self {
        Self { sink, listed: None, alike: SimilarFiles::new() }
    }

    /// Returns a file that may share content with a new one; `None` if no file is similar.
    pub(crate) fn find(&mut self, wanted: &Wanted<'_>, counters: &Counters) -> Option<OldVersion> {
        if wanted.len <= MAX_PACKED_BYTES {
            return None;
        }
        if let Some(bases) = self.alike.remove(&wanted.from) {
            return self.made_from(bases);
        }
        let Similar { place, likeness } = self.likely(wanted)?;
        let is_guess = likeness != Likeness::TimeOrName;
        if is_guess && counters.wrong_guesses.load(Relaxed) >= MAX_WRONG_GUESSES {
            return None;
        }
        Some(OldVersion { is_guess, ..self.listed().version_at(place)? })
    }

    fn made_from(&mut self, bases: Vec<Base>) -> Option<OldVersion> {
        let is_coming = bases.iter().any(|base| matches!(base, Base::New(..)));
        let mut files = bases.into_iter().filter_map(|base| match base {
            Base::There(place) => self.listed().version_at(place),
            Base::New(path, len) => Some(OldVersion::version(path, len)),
        });
        let first = files.next()?;
        Some(OldVersion { is_coming, also: files.map(|file| file.path).collect(), ..first })
    }

    /// Returns whether a new file is worth sampling: it is large enough, and no file has its name's family, or its
    /// length and its name or time.
    pub(crate) fn is_unlike_any(&mut self, wanted: &Wanted<'_>) -> bool {
        let likely = self.likely(wanted).filter(|it| it.likeness != Likeness::Length);
        wanted.len >= MIN_RELATIVE_BYTES && likely.is_none()
    }

    /// Returns the file that is most similar to a new one.
    fn likely(&mut self, wanted: &Wanted<'_>) -> Option<Similar> {
        let listed = self.listed();
        listed.twin(wanted.entry, wanted.len).or_else(|| {
            let place = listed.relative(wanted.entry, wanted.len, wanted.to)?;
            Some(Similar { place, likeness: Likeness::Family })
        })
    }

    fn listed(&mut self) -> &mut LargeFiles<'a> {
        let sink = self.sink;
        self.listed.get_or_insert_with(|| LargeFiles::new(sink))
    }
}

impl<'a> LargeFiles<'a> {
    fn new(sink: &'a Tree) -> Self {
        let (mut by_len, mut by_family) = (Vec::new(), Vec::new());
        for (id, dir) in (0..).zip(&sink.dirs) {
            for (index, entry) in (0..).zip(&dir.listing) {
                let Kind::File { size } = entry.kind else { continue };
                let place = EntryPlace { dir: id, index };
                if size > MAX_PACKED_BYTES {
                    by_len.push((size, place));
                }
                if size >= MIN_RELATIVE_BYTES {
                    by_family.push((hash_of(&family(entry.name)), place));
                }
            }
        }
        let files = FileLookup { tree: sink, places: HashMap::new() };
        Self { by_len: Index::of(by_len), by_family: Index::of(by_family), files, paths: Paths::new(sink) }
    }

    /// Returns a file of the same length, if possible with the same time or name.
    fn twin(&mut self, wanted: &Entry<'_>, len: u64) -> Option<Similar> {
        let mut best = None;
        for place in self.by_len.few(len) {
            let Some(entry) = self.files.at(place) else { continue };
            let like =
                u8::from(entry.name == wanted.name) + 2 * u8::from(entry.meta.mtime == wanted.meta.mtime);
            if best.is_none_or(|(_, most)| like > most) {
                best = Some((place, like));
            }
        }
        best.map(|(place, like)| {
            let likeness = if like > 0 { Likeness::TimeOrName } else { Likeness::Length };
            Similar { place, likeness }
        })
    }

    /// Returns a file of another length whose name has the same family: preferably with the same name, then from the
    /// same directory, then of the nearest length.
    fn relative(&mut self, wanted: &Entry<'_>, len: u64, here: Option<DirId>) -> Option<EntryPlace> {
        if len < MIN_RELATIVE_BYTES {
            return None;
        }
        let wanted_family = family(wanted.name);
        let relatives = self.by_family.few(hash_of(&wanted_family)).filter_map(|place| {
            let entry = self.files.at(place)?;
            let Kind::File { size } = entry.kind else { return None };
            let is_here = Some(place.dir) == here;
            let likeness = (entry.name == wanted.name, is_here, Reverse(size.abs_diff(len)));
            (family(entry.name) == wanted_family).then_some((likeness, place))
        });
        relatives.max().map(|(_, place)| place)
    }

    /// Returns a file as an older version of a new one.
    fn version_at(&mut self, place: EntryPlace) -> Option<OldVersion> {
        let entry = self.files.at(place)?;
        let Kind::File { size } = entry.kind else { return None };
        Some(OldVersion::version(self.paths.of(place.dir).join(entry.name).ok()?, size))
    }
}

/// Looks up files by their places.
#[derive(Debug)]
struct FileLookup<'a> {
    tree: &'a Tree,
    places: HashMap<DirId, EntryIndex<'a>>,
}

impl<'a> FileLookup<'a> {
    fn at(&mut self, EntryPlace { dir, index }: EntryPlace) -> Option<Entry<'a>> {
        let listing = &self.tree.dirs[dir as usize].listing;
        self.places.entry(dir).or_insert_with(|| EntryIndex::of(listing)).from(index).next()
    }
}

/// Files sorted by a number, such as their length, in 16 bytes each: there may be millions.
#[derive(Debug)]
struct Index(Vec<(u64, EntryPlace)>);

impl Index {
    fn of(mut files: Vec<(u64, EntryPlace)>) -> Self {
        files.sort_unstable();
        Self(files)
    }

    /// Returns at most [`MAX_LIKE`] files with this number.
    fn few(&self, number: u64) -> impl Iterator<Item = EntryPlace> {
        let start = self.0.partition_point(|(other, _)| *other < number);
        self.0[start..]
            .iter()
            .take(MAX_LIKE)
            .take_while(move |(other, _)| *other == number)
            .map(|(_, place)| *place)
    }
}

fn hash_of(family: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(family);
    hasher.finish()
}

/// Returns the part of a name that versions of a file share, as in `db-2026-11-20.tar` and `db-2026-11-21.tar`, or
/// `log` and `log.1`. A run of digits counts as one digit, and is left out at the end.
fn family(name: &[u8]) -> Vec<u8> {
    let mut family: Vec<u8> =
        name.iter().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte }).collect();
    family.dedup_by(|one, other| *one == b'0' && *other == b'0');
    let end = family.iter().rposition(|byte| !matches!(byte, b'0' | b'.' | b'-' | b'_' | b'~'));
    family.truncate(end.map_or(family.len(), |end| end + 1));
    family
}

/// A new file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFile<'p> {
    /// Its place at the source.
    pub place: EntryPlace,
    /// Its length in bytes.
    pub size: u64,
    /// Its directory, at both ends.
    pub dir: &'p RelPath,
    /// Its name.
    pub name: &'p [u8],
}

/// A file that has content of a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// A file of the destination, by its place at the sink.
    There(EntryPlace),
    /// Another new file, by its path and length. It is read when it has arrived.
    New(RelPath, u64),
}

/// The bases of new files, by their places at the source. A new file that is a basis is not itself made from another
/// new one.
pub(crate) type SimilarFiles = HashMap<EntryPlace, Vec<Base>>;

#[cfg(test)]
mod tests {
    use super::{EntryPlace, Index, MAX_LIKE, family};

    #[test]
    fn an_index_finds_all_files_of_a_number_but_no_more_than_a_few() {
        let at = |dir, index| EntryPlace { dir, index };
        let many = (0..100).map(|nth| (7, at(0, nth)));
        let index = Index::of(many.chain([(9, at(1, 0)), (3, at(2, 0)), (9, at(0, 5))]).collect());
        assert_eq!(index.few(9).collect::<Vec<_>>(), [at(0, 5), at(1, 0)]);
        assert_eq!(
            index.few(7).collect::<Vec<_>>(),
            (0..MAX_LIKE as u32).map(|nth| at(0, nth)).collect::<Vec<_>>()
        );
        assert_eq!([0, 4, 10].map(|absent| index.few(absent).count()), [0; 3]);
    }

    #[test]
    fn versions_of_a_file_are_of_one_family() {
        for names in [
            &["db-2026-11-20.tar", "db-2026-1-1.tar"][..],
            &["log", "log.1", "log.12", "log-20261120", "log~"],
            &["disk0.img", "disk17.img"],
            &["20261120", "1"],
        ] {
            assert!(
                names.iter().all(|name| family(name.as_bytes()) == family(names[0].as_bytes())),
                "{names:?}"
            );
        }
        for [one, other] in [["db.tar", "db.zip"], ["a1", "b1"], ["x1y", "xy"]] {
            assert_ne!(family(one.as_bytes()), family(other.as_bytes()), "{one} {other}");
        }
    }
}
