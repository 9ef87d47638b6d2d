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
    pub from: EntryRef,
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

/// A file, by its place in a listing.
pub(crate) type EntryRef = (DirId, u32);

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
        let (place, likeness) = self.likely(wanted)?;
        let is_guess = likeness != Likeness::TimeOrName;
        if is_guess && counters.wrong_guesses.load(Relaxed) >= MAX_WRONG_GUESSES {
            return None;
        }
        let (path, len) = self.listed().path_at(place)?;
        Some(OldVersion { is_guess, ..OldVersion::version(path, len) })
    }

    fn made_from(&mut self, bases: Vec<Base>) -> Option<OldVersion> {
        let is_coming = bases.iter().any(|base| matches!(base, Base::New(..)));
        let mut files = bases.into_iter().filter_map(|base| match base {
            Base::There(place) => self.listed().path_at(place),
            Base::New(path, len) => Some((path, len)),
        });
        let (path, len) = files.next()?;
        let also = files.map(|(path, _)| path).collect();
        Some(OldVersion { is_coming, also, ..OldVersion::version(path, len) })
    }

    /// Returns whether a new file is worth sampling: it is large enough, and no file has its name's family, or its
    /// length and its name or time.
    pub(crate) fn is_unlike_any(&mut self, wanted: &Wanted<'_>) -> bool {
        let likely = self.likely(wanted).filter(|(_, likeness)| *likeness != Likeness::Length);
        wanted.len >= MIN_RELATIVE_BYTES && likely.is_none()
    }

    /// Returns the file that is most similar to a new one.
    fn likely(&mut self, wanted: &Wanted<'_>) -> Option<(EntryRef, Likeness)> {
        let listed = self.listed();
        match listed.twin(wanted.entry, wanted.len) {
            Some(twin) => Some(twin),
            None => Some((listed.relative(wanted.entry, wanted.len, wanted.to)?, Likeness::Family)),
        }
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
                if size > MAX_PACKED_BYTES {
                    by_len.push((size, (id, index)));
                }
                if size >= MIN_RELATIVE_BYTES {
                    by_family.push((hash_of(&family(entry.name)), (id, index)));
                }
            }
        }
        let files = FileLookup { tree: sink, places: HashMap::new() };
        Self { by_len: Index::of(by_len), by_family: Index::of(by_family), files, paths: Paths::new(sink) }
    }

    /// Returns a file of the same length, if possible with the same time or name.
    fn twin(&mut self, wanted: &Entry<'_>, len: u64) -> Option<(EntryRef, Likeness)> {
        let mut best = None;
        for place in self.by_len.few(len) {
            let Some(entry) = self.files.at(place) else { continue };
            let like =
                u8::from(entry.name == wanted.name) + 2 * u8::from(entry.meta.mtime == wanted.meta.mtime);
            if best.is_none_or(|(_, most)| like > most) {
                best = Some((place, like));
            }
        }
        best.map(|(place, like)| (place, if like > 0 { Likeness::TimeOrName } else { Likeness::Length }))
    }

    /// Returns a file of another length whose name has the same family: preferably with the same name, then from the
    /// same directory, then of the nearest length.
    fn relative(&mut self, wanted: &Entry<'_>, len: u64, here: Option<DirId>) -> Option<EntryRef> {
        if len < MIN_RELATIVE_BYTES {
            return None;
        }
        let wanted_family = family(wanted.name);
        let relatives = self.by_family.few(hash_of(&wanted_family)).filter_map(|place| {
            let (name, size) = self.files.large_at(place)?;
            let likeness = (name == wanted.name, Some(place.0) == here, Reverse(size.abs_diff(len)));
            (family(name) == wanted_family).then_some((likeness, place))
        });
        relatives.max().map(|(_, place)| place)
    }

    /// Returns the path and the length of a file.
    fn path_at(&mut self, place: EntryRef) -> Option<(RelPath, u64)> {
        let (name, len) = self.files.large_at(place)?;
        Some((self.paths.of(place.0).join(name).ok()?, len))
    }
}

/// Looks up files by their places.
#[derive(Debug)]
struct FileLookup<'a> {
    tree: &'a Tree,
    places: HashMap<DirId, EntryIndex<'a>>,
}

impl<'a> FileLookup<'a> {
    fn at(&mut self, (dir, index): EntryRef) -> Option<Entry<'a>> {
        let listing = &self.tree.dirs[dir as usize].listing;
        self.places.entry(dir).or_insert_with(|| EntryIndex::of(listing)).from(index).next()
    }

    /// Returns the name and the length of a file.
    fn large_at(&mut self, place: EntryRef) -> Option<(&'a [u8], u64)> {
        let entry = self.at(place)?;
        match entry.kind {
            Kind::File { size } => Some((entry.name, size)),
            _ => None,
        }
    }
}

/// Files sorted by a number, such as their length, in 16 bytes each: there may be millions.
#[derive(Debug)]
struct Index(Vec<(u64, EntryRef)>);

impl Index {
    fn of(mut files: Vec<(u64, EntryRef)>) -> Self {
        files.sort_unstable();
        Self(files)
    }

    /// Returns at most [`MAX_LIKE`] files with this number.
    fn few(&self, number: u64) -> impl Iterator<Item = EntryRef> {
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
    pub place: EntryRef,
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
    There(EntryRef),
    /// Another new file, by its path and length. It is read when it has arrived.
    New(RelPath, u64),
}

/// The bases of new files, by their places at the source. A new file that is a basis is not itself made from another
/// new one.
pub(crate) type SimilarFiles = HashMap<EntryRef, Vec<Base>>;

#[cfg(test)]
mod tests {
    use super::{Index, MAX_LIKE, family};

    #[test]
    fn an_index_finds_all_files_of_a_number_but_no_more_than_a_few() {
        let many = (0..100).map(|nth| (7, (0, nth)));
        let index = Index::of(many.chain([(9, (1, 0)), (3, (2, 0)), (9, (0, 5))]).collect());
        assert_eq!(index.few(9).collect::<Vec<_>>(), [(0, 5), (1, 0)]);
        assert_eq!(
            index.few(7).collect::<Vec<_>>(),
            (0..MAX_LIKE as u32).map(|nth| (0, nth)).collect::<Vec<_>>()
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
