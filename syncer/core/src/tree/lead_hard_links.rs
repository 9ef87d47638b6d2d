//! Finds the hard links of a scanned tree. One name of a file leads, and the others become links to it.
//!
//! The leader is the name with the smallest path, by bytes, so both ends choose the same one for equal trees.

use std::collections::HashMap;

use crate::tree::{
    dir::{Dir, DirId},
    entry::{Entry, Kind},
    entry_paths::{EntryPlace, paths},
    listing::{Listing, ListingBuilder, Row, SpillingBuilder},
    path::RelPath,
};

/// A name of a file that has more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shared {
    /// Device, major number above minor.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// The entry.
    pub place: EntryPlace,
}

/// The names that one file has in a tree, two or more.
#[derive(Debug)]
pub struct Group {
    /// The path of the leader.
    pub leader: RelPath,
    /// All names in the order of their paths; the first is the leader.
    pub members: Vec<EntryPlace>,
    /// The leader's entry, whose data holds for every name.
    entry: Listing,
}

impl Group {
    /// Returns the file's entry by its leader's name.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.entry.iter().next()
    }
}

/// The hard links of a tree.
#[derive(Debug, Default)]
pub struct Grouped {
    /// The names of each file that has several.
    pub groups: Vec<Group>,
    /// The bytes of the entries that are no longer listed as files.
    pub bytes: u64,
}

/// A name of a group other than its leader's.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Follower {
    /// The index in its directory's listing.
    index: u32,
    leader: RelPath,
}

/// Finds the groups among `shared`, and turns all but their leaders into [`Kind::HardLink`]s. It takes about 200 bytes
/// of memory for each name in a group.
///
/// # Errors
/// If there is no room for the listing of a large directory.
pub fn group<R: Row>(dirs: &mut [Dir], mut shared: Vec<Shared>) -> Result<Grouped, R::Error> {
    shared.sort_unstable();
    let same = |a: &Shared, b: &Shared| (a.device, a.inode) == (b.device, b.inode);
    shared = shared.chunk_by(same).filter(|names| names.len() > 1).flatten().copied().collect();
    if shared.is_empty() {
        return Ok(Grouped::default());
    }
    let mut paths = paths(dirs, shared.iter().map(|shared| shared.place));
    let mut groups = Vec::new();
    let mut followers: HashMap<DirId, Vec<Follower>> = HashMap::new();
    for names in shared.chunk_by(same) {
        let named = |shared: &Shared| Some((paths.remove(&shared.place)?, shared.place));
        let mut members: Vec<(RelPath, EntryPlace)> = names.iter().filter_map(named).collect();
        members.sort_unstable();
        let Some(((leader, place), rest)) = members.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            continue;
        };
        for (_, place) in rest {
            let follower = Follower { index: place.index, leader: leader.clone() };
            followers.entry(place.dir).or_default().push(follower);
        }
        let entry = only(&dirs[place.dir as usize].listing, place.index);
        let members = members.iter().map(|(_, place)| *place).collect();
        groups.push(Group { leader: leader.clone(), members, entry });
    }
    let mut bytes = 0;
    for (dir, mut followers) in followers {
        followers.sort_unstable();
        bytes += relist::<R>(&mut dirs[dir as usize], &followers)?;
    }
    Ok(Grouped { groups, bytes })
}

fn only(listing: &Listing, index: u32) -> Listing {
    let mut builder = ListingBuilder::default();
    listing.iter().skip(index as usize).take(1).for_each(|entry| builder.push(&entry));
    builder.finish()
}

/// Lists these entries as links. Returns the bytes of those that were listed as files.
fn relist<R: Row>(dir: &mut Dir, followers: &[Follower]) -> Result<u64, R::Error> {
    let mut builder = SpillingBuilder::<R>::default();
    let mut followers = followers.iter().peekable();
    let mut bytes = 0;
    for (index, entry) in (0..).zip(&dir.listing) {
        match followers.next_if(|follower| follower.index == index) {
            None => builder.push(&entry)?,
            Some(Follower { leader, .. }) => {
                if let Kind::File { size } = entry.kind {
                    bytes += size;
                }
                builder.push(&Entry::hard_link(entry.name, leader.as_bytes()))?;
            }
        }
    }
    if !dir.listing.is_complete() {
        builder.mark_incomplete();
    }
    dir.listing = builder.finish()?;
    dir.digest = dir.listing.digest();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::entry::Meta;

    fn dir(first_child: DirId, entries: &[(&str, Kind<'_>)]) -> Dir {
        let mut builder = ListingBuilder::default();
        for (name, kind) in entries {
            let meta = Meta { mode: 0o640, ..Meta::default() };
            builder.push(&Entry { name: name.as_bytes(), kind: *kind, meta, attrs: Default::default() });
        }
        Dir { listing: builder.finish(), first_child, ..Dir::default() }
    }

    fn shared(inode: u64, dir: DirId, index: u32) -> Shared {
        Shared { device: 1, inode, place: EntryPlace { dir, index } }
    }

    #[test]
    fn the_smallest_path_leads_and_the_others_are_links_to_it() {
        let file = Kind::File { size: 10 };
        let mut dirs = [
            dir(1, &[("b", Kind::Dir), ("b-", file), ("d", Kind::Dir), ("z", file)]),
            dir(3, &[("alone", file), ("f", file)]),
            dir(3, &[("f", file)]),
        ];
        // By bytes, "b-" is before "b/f".
        let found = vec![shared(7, 2, 0), shared(7, 1, 1), shared(7, 0, 1), shared(8, 1, 0), shared(9, 0, 3)];
        let Grouped { groups, bytes } = group::<Vec<u8>>(&mut dirs, found).unwrap();
        let [found] = groups.as_slice() else { panic!("{groups:?}") };
        assert_eq!((found.leader.as_bytes(), bytes), (&b"b-"[..], 20));
        let places: Vec<_> = found.members.iter().map(|place| (place.dir, place.index)).collect();
        assert_eq!(places, [(0, 1), (1, 1), (2, 0)]);
        assert_eq!(found.entry().unwrap().kind, file);
        let link = Kind::HardLink { to: b"b-" };
        let kinds = |at: usize| dirs[at].listing.iter().map(|entry| entry.kind).collect::<Vec<_>>();
        assert_eq!(kinds(0), [Kind::Dir, file, Kind::Dir, file]);
        assert_eq!((kinds(1), kinds(2)), (vec![file, link], vec![link]));
        assert_eq!(dirs[1].listing.iter().next().unwrap().meta.mode, 0o640);
    }
}
