//! A directory in the store: its listing, and the ids and places of its files' contents and of its subdirectories.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use super::content_id::{ContentRef, Home, ID_BYTES};
use crate::{
    codec::{DecodeError, Reader, put_varint},
    entry::{Entry, Kind},
    hash::{ContentId, TreeDigest},
    listing::{Listing, ListingBuilder},
    tree::stamps::Stamps,
};

/// The version of the encoding of a directory as a whole.
pub(crate) const VERSION: u8 = 1;

/// Bytes of the checksum over the parts that the id does not cover.
const CHECK_BYTES: usize = 8;

/// The longest encoding of a directory that is read, in bytes.
pub const MAX_FOLDER_BYTES: u32 = 1 << 30;

/// The hash of a directory's listing and of everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolderId(pub [u8; ID_BYTES]);

/// The place of a directory's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// The pack.
    pub pack: u64,
    /// The offset of its first byte there.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// A directory as its parent refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderRef {
    /// Its hash.
    pub id: FolderId,
    /// Its place.
    pub place: ObjectRef,
    /// Its digests, which a run compares.
    pub digest: TreeDigest,
    /// The stamps of all files in it and below.
    pub seen: Stamps,
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folder {
    /// Its entries.
    pub listing: Listing,
    /// Its directories, in the order of the listing.
    pub children: Vec<FolderRef>,
    /// The content of its regular files that are not empty, in the order of the listing.
    pub contents: Vec<ContentRef>,
    /// The stamps of these files, in the same order; 0 for a file without one.
    pub stamps: Vec<u64>,
}

/// A directory as it is written.
#[derive(Debug)]
pub struct EncodedFolder {
    /// Its hash.
    pub id: FolderId,
    /// Its encoding.
    pub bytes: Vec<u8>,
}

/// An entry of a directory, with the object that it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderRow<'a> {
    pub entry: Entry<'a>,
    /// The reference to it, if it is a directory.
    pub child: Option<FolderRef>,
    /// Its content and its stamp, if it is a file that is not empty.
    pub content: Option<(ContentRef, u64)>,
}

/// A file of a directory that is not empty.
#[derive(Debug, Clone, Copy)]
pub struct FolderFile<'a> {
    /// Its entry in the listing.
    pub entry: Entry<'a>,
    /// Its length in bytes.
    pub len: u64,
    /// Its content.
    pub content: ContentRef,
    /// Its stamp; 0 for none.
    pub stamp: u64,
}

/// Reports bytes that are not a directory, or one of another version.
#[derive(Debug, PartialEq, Eq)]
pub enum NotFolder {
    /// The bytes are damaged.
    Damaged(DecodeError),
    /// The directory is whole, and has this version.
    Version(u8),
}

impl<'a> FolderRow<'a> {
    /// Returns it as a file, if it is one that is not empty.
    pub(crate) fn file(&self) -> Option<FolderFile<'a>> {
        match (self.entry.kind, self.content) {
            (Kind::File { size }, Some((content, stamp))) => {
                Some(FolderFile { entry: self.entry, len: size, content, stamp })
            }
            _ => None,
        }
    }
}

impl From<DecodeError> for NotFolder {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error)
    }
}

impl Folder {
    /// Yields its entries with the objects that they refer to.
    pub(crate) fn rows(&self) -> impl Iterator<Item = FolderRow<'_>> {
        let mut children = self.children.iter().copied();
        let mut contents = self.contents.iter().copied().zip(self.stamps.iter().copied());
        self.listing.iter().map(move |entry| {
            let child = if entry.kind == Kind::Dir { children.next() } else { None };
            let content = if entry.kind.has_content() { contents.next() } else { None };
            FolderRow { entry, child, content }
        })
    }

    /// Yields its files that are not empty.
    pub fn files(&self) -> impl Iterator<Item = FolderFile<'_>> {
        self.rows().filter_map(|row| row.file())
    }

    /// Yields its directories, by their names.
    pub fn subfolders(&self) -> impl Iterator<Item = (&[u8], FolderRef)> {
        self.rows().filter_map(|row| Some((row.entry.name, row.child?)))
    }

    /// Returns the hash of the directory and of everything below it.
    pub fn id(&self) -> FolderId {
        id_of(&self.canonical())
    }

    /// Returns the part of the encoding that the id covers.
    fn canonical(&self) -> Vec<u8> {
        let hashes = (self.children.len() + self.contents.len()) * ID_BYTES;
        let mut out = Vec::with_capacity(self.listing.encoded_len() + hashes);
        self.listing.encode(&mut out);
        self.children.iter().for_each(|child| out.extend_from_slice(&child.id.0));
        self.contents.iter().for_each(|content| out.extend_from_slice(&content.id.0));
        out
    }

    /// Encodes the directory.
    pub fn encode(&self) -> EncodedFolder {
        let EncodedFolder { id, bytes } = self.encode_unchecked();
        EncodedFolder { id, bytes: with_check(bytes) }
    }

    /// Encodes the directory without the checksum at the end.
    pub(crate) fn encode_unchecked(&self) -> EncodedFolder {
        let canonical = self.canonical();
        let mut out =
            Vec::with_capacity(canonical.len() + 16 * self.contents.len() + 128 * self.children.len() + 32);
        out.push(VERSION);
        put_varint(&mut out, canonical.len() as u64);
        out.extend_from_slice(&canonical);
        let packs = self.packs();
        put_varint(&mut out, packs.len() as u64);
        packs.iter().for_each(|pack| out.extend_from_slice(&pack.to_le_bytes()));
        for FolderRef { place, digest, seen, .. } in &self.children {
            put_varint(&mut out, nth(&packs, place.pack));
            put_varint(&mut out, place.offset);
            put_varint(&mut out, u64::from(place.len));
            [digest.entries, digest.owners, digest.attrs].iter().for_each(|part| out.extend_from_slice(part));
            seen.put(&mut out);
        }
        for content in &self.contents {
            match content.home {
                Home::Own => put_varint(&mut out, 0),
                Home::Pack { pack, offset } => {
                    put_varint(&mut out, nth(&packs, pack) + 1);
                    put_varint(&mut out, offset);
                }
            }
        }
        self.stamps.iter().for_each(|stamp| out.extend_from_slice(&stamp.to_le_bytes()));
        EncodedFolder { id: id_of(&canonical), bytes: out }
    }

    /// Returns the packs that it refers to, each once.
    pub fn packs(&self) -> Vec<u64> {
        let own = self.contents.iter().filter_map(|content| match content.home {
            Home::Pack { pack, .. } => Some(pack),
            Home::Own => None,
        });
        let mut packs: Vec<u64> = self.children.iter().map(|child| child.place.pack).chain(own).collect();
        packs.sort_unstable();
        packs.dedup();
        packs
    }

    /// Decodes a directory and checks all of it.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a directory, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotFolder> {
        let mut reader = Reader::new(checked(bytes)?);
        match reader.byte()? {
            VERSION => {}
            version => return Err(NotFolder::Version(version)),
        }
        let canonical = reader.length()?;
        let mut canonical = Reader::new(reader.take(canonical)?);
        let listing = Listing::decode(&mut canonical)?;
        let ids = read_ids(&mut canonical, &listing)?;
        let packs = read_packs(&mut reader)?;
        let mut folder = Self { listing, ..Self::default() };
        let dirs = folder.listing.dirs() as usize;
        folder.children.reserve_exact(dirs);
        folder.contents.reserve_exact(ids.len() - dirs);
        folder.stamps.reserve_exact(ids.len() - dirs);
        for id in &ids[..dirs] {
            folder.children.push(read_child(&mut reader, FolderId(*id), &packs)?);
        }
        for id in &ids[dirs..] {
            folder.contents.push(ContentRef { id: ContentId(*id), home: read_home(&mut reader, &packs)? });
        }
        for _ in &ids[dirs..] {
            folder.stamps.push(u64::from_le_bytes(reader.array()?));
        }
        reader.finish()?;
        Ok(folder)
    }
}

/// Builds a [`Folder`]. Rows are pushed in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct FolderBuilder {
    listing: ListingBuilder,
    folder: Folder,
}

impl FolderBuilder {
    /// Appends a row, whose name must come after the last one's.
    pub(crate) fn push(&mut self, row: &FolderRow<'_>) {
        self.listing.push(&row.entry);
        self.folder.children.extend(row.child);
        if let Some((content, stamp)) = row.content {
            self.folder.contents.push(content);
            self.folder.stamps.push(stamp);
        }
    }

    /// Returns the directory; its listing is marked incomplete unless `is_complete`.
    pub(crate) fn finish(mut self, is_complete: bool) -> Folder {
        if !is_complete {
            self.listing.mark_incomplete();
        }
        Folder { listing: self.listing.finish(), ..self.folder }
    }
}

/// Reads the ids of a listing's directories and then of its files.
fn read_ids(reader: &mut Reader<'_>, listing: &Listing) -> Result<Vec<[u8; ID_BYTES]>, DecodeError> {
    let files = listing.iter().filter(|entry| entry.kind.has_content()).count();
    let count = listing.dirs() as usize + files;
    if reader.remaining() != count * ID_BYTES {
        return Err(DecodeError::Invalid("it does not have an id for each directory and file"));
    }
    (0..count).map(|_| reader.array()).collect()
}

fn read_packs(reader: &mut Reader<'_>) -> Result<Vec<u64>, DecodeError> {
    let count = reader.length()?;
    if count > reader.remaining() / 8 {
        return Err(DecodeError::Truncated);
    }
    (0..count).map(|_| Ok(u64::from_le_bytes(reader.array()?))).collect()
}

fn read_child(reader: &mut Reader<'_>, id: FolderId, packs: &[u64]) -> Result<FolderRef, DecodeError> {
    let nth = reader.length()?;
    let pack = *packs.get(nth).ok_or(DecodeError::Invalid("it names a pack that it does not list"))?;
    let place = ObjectRef { pack, offset: reader.varint()?, len: reader.varint32()? };
    let digest = TreeDigest { entries: reader.array()?, owners: reader.array()?, attrs: reader.array()? };
    Ok(FolderRef { id, place, digest, seen: Stamps::read(reader)? })
}

fn read_home(reader: &mut Reader<'_>, packs: &[u64]) -> Result<Home, DecodeError> {
    let Some(nth) = reader.length()?.checked_sub(1) else { return Ok(Home::Own) };
    let pack = *packs.get(nth).ok_or(DecodeError::Invalid("it names a pack that it does not list"))?;
    Ok(Home::Pack { pack, offset: reader.varint()? })
}

fn nth(packs: &[u64], pack: u64) -> u64 {
    packs.partition_point(|other| *other < pack) as u64
}

fn id_of(canonical: &[u8]) -> FolderId {
    let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-22 a directory of a snapshot v1");
    FolderId(*hasher.update(canonical).finalize().as_bytes())
}

/// Checks the checksum at the end of an encoding, and returns the bytes before it.
pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let body = bytes.len().checked_sub(CHECK_BYTES).ok_or(DecodeError::Truncated)?;
    let (body, check) = bytes.split_at(body);
    if check == check_of(body) { Ok(body) } else { Err(DecodeError::Invalid("its checksum is wrong")) }
}

/// Appends the checksum to an encoding.
pub(crate) fn with_check(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = check_of(&bytes);
    bytes.extend_from_slice(&check);
    bytes
}

/// Computes the checksum that detects accidental damage.
pub(crate) fn check_of(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK_BYTES]);
    check
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        attrs::Attrs,
        entry::{Meta, Owner, Time},
        listing::ListingBuilder,
    };

    pub(crate) fn sample() -> Folder {
        let meta = Meta {
            mode: 0o644,
            mtime: Time { seconds: 1_700_000_000, nanos: 5 },
            owner: Owner { uid: 1000, gid: 100 },
        };
        let mut builder = ListingBuilder::default();
        let mut push = |name: &[u8], kind| builder.push(&Entry { name, kind, meta, attrs: Attrs::default() });
        push(b"dir", Kind::Dir);
        push(b"empty", Kind::File { size: 0 });
        push(b"large", Kind::File { size: 1 << 20 });
        push(b"pipe", Kind::Fifo);
        push(b"small", Kind::File { size: 7 });
        let digest = TreeDigest { entries: [1; 16], owners: [2; 16], attrs: [0; 16] };
        let child = FolderRef {
            id: FolderId([3; 32]),
            place: ObjectRef { pack: 9, offset: 300, len: 70 },
            digest,
            seen: Stamps::unknown(),
        };
        Folder {
            listing: builder.finish(),
            children: vec![child],
            contents: vec![
                ContentRef { id: ContentId([4; 32]), home: Home::Own },
                ContentRef { id: ContentId([5; 32]), home: Home::Pack { pack: 7, offset: 8 } },
            ],
            stamps: vec![0, 77],
        }
    }

    #[test]
    fn a_directory_survives_the_trip_and_every_flipped_bit_is_found() {
        let folder = sample();
        let EncodedFolder { id, bytes } = folder.encode();
        assert_eq!(id, folder.id());
        assert_eq!(Folder::decode(&bytes), Ok(folder));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Folder::decode(&damaged).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(Folder::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    /// Gives damaged bytes a correct checksum, as a hostile volume would.
    #[test]
    fn a_hostile_directory_never_panics() {
        let bytes = sample().encode().bytes;
        let body = &bytes[..bytes.len() - CHECK_BYTES];
        for bit in 0..body.len() * 8 {
            let mut damaged = body.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(folder) = Folder::decode(&with_check(damaged)) {
                assert_eq!(folder.contents.len(), folder.stamps.len());
                assert_eq!(folder.children.len(), folder.listing.dirs() as usize);
            }
        }
    }

    #[test]
    fn places_and_stamps_are_no_part_of_the_id() {
        let mut moved = sample();
        moved.stamps = vec![1, 2];
        moved.contents[0].home = Home::Pack { pack: 1, offset: 1 };
        moved.children[0].place.offset = 0;
        assert_eq!(moved.id(), sample().id());
        moved.contents[0].id = ContentId([6; 32]);
        assert_ne!(moved.id(), sample().id());
    }
}
