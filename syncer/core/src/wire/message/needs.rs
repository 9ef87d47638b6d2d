//! Requests for files, with the basis that the sink has for them.

use super::fields::{MAX_ASKED, TOO_MUCH_ASKED, put_ascending, read_ascending};
use crate::{
    block_sizes::block_bytes,
    codec::{DecodeError, Reader, put_varint},
    delta::{
        checked::{CheckedBlock, CheckedBlocks, FileVersion},
        granules::Granules,
        list::ChunkList,
        short_name::ShortName,
    },
    tree::dir::DirId,
    wire::frame::WireError,
};

/// Files of one directory whose content the sink requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The number of the first need; the others follow on.
    pub first: u32,
    /// The files' directory.
    pub dir: DirId,
    /// Their indexes in the directory's listing, ascending.
    pub indices: Vec<u32>,
    /// The sink's versions of some of them, ascending. If the source's file begins with one, only the rest is sent.
    pub prefixes: Vec<Prefix>,
}

/// A small file that the sink has, and that may have grown at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The index of the need in the message.
    pub nth: u32,
    /// Its length in bytes.
    pub len: u32,
    /// The name of its content.
    pub name: ShortName,
}

impl Prefix {
    /// Returns whether `content` begins with it.
    pub fn begins(&self, content: &[u8]) -> bool {
        content.get(..self.len as usize).is_some_and(|first| ShortName::of(&blake3::hash(first)) == self.name)
    }
}

/// A large file whose content the sink requests, with its basis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The number of the need.
    pub need: u32,
    /// The file's directory.
    pub dir: DirId,
    /// Its index in the directory's listing.
    pub index: u32,
    /// The sink's basis.
    pub basis: BasisManifest,
}

/// The manifest of a file of the sink: its granules or chunks, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BasisManifest {
    /// Consecutive granules, for data that did not move. They are sent in parts, from the file's start to its end.
    Granules(Granules),
    /// Chunks cut by content, found at any offset.
    Chunks(ChunkList),
}

pub(super) fn put_needs(out: &mut Vec<u8>, needs: &Needs) {
    put_varint(out, u64::from(needs.first));
    put_varint(out, u64::from(needs.dir));
    put_varint(out, needs.prefixes.len() as u64);
    let mut next = 0;
    for prefix in &needs.prefixes {
        put_varint(out, u64::from(prefix.nth - next));
        put_varint(out, u64::from(prefix.len));
        out.extend_from_slice(prefix.name.as_bytes());
        next = prefix.nth + 1;
    }
    put_ascending(out, needs.indices.iter().copied());
}

pub(super) fn read_needs(reader: &mut Reader<'_>) -> Result<Needs, DecodeError> {
    let first = reader.varint32()?;
    let dir = reader.varint32()?;
    let prefixes = read_prefixes(reader)?;
    let mut indices = Vec::new();
    let mut next = 0;
    while !reader.is_empty() {
        if indices.len() == MAX_ASKED {
            return Err(TOO_MUCH_ASKED);
        }
        indices.push(read_ascending(reader, &mut next)?);
    }
    match prefixes.last() {
        Some(last) if last.nth as usize >= indices.len() => {
            Err(DecodeError::Invalid("there is a prefix of a file that is not needed"))
        }
        _ => Ok(Needs { first, dir, indices, prefixes }),
    }
}

fn read_prefixes(reader: &mut Reader<'_>) -> Result<Vec<Prefix>, DecodeError> {
    let mut prefixes = Vec::new();
    let mut next = 0;
    let count = reader.varint()?;
    if count > MAX_ASKED as u64 {
        return Err(TOO_MUCH_ASKED);
    }
    for _ in 0..count {
        let nth = read_ascending(reader, &mut next)?;
        let len = reader.varint32()?;
        prefixes.push(Prefix { nth, len, name: read_name(reader)? });
    }
    Ok(prefixes)
}

fn read_name(reader: &mut Reader<'_>) -> Result<ShortName, DecodeError> {
    ShortName::from_prefix(reader.take(ShortName::LEN)?).ok_or(DecodeError::Truncated)
}

const GRANULES: u8 = 0;

const CHUNKS: u8 = 1;

const CHECKED_GRANULES: u8 = 2;

pub(super) fn put_update(out: &mut Vec<u8>, update: &Update) {
    put_varint(out, u64::from(update.need));
    put_varint(out, u64::from(update.dir));
    put_varint(out, u64::from(update.index));
    match &update.basis {
        BasisManifest::Granules(granules) => {
            match granules.checked() {
                Some(checked) => {
                    out.push(CHECKED_GRANULES);
                    put_checked(out, checked, granules);
                }
                None => out.push(GRANULES),
            }
            put_varint(out, granules.file_len());
            put_varint(out, granules.bytes() as u64);
            put_varint(out, granules.start());
            granules.names().iter().for_each(|name| out.extend_from_slice(name.as_bytes()));
        }
        BasisManifest::Chunks(list) => {
            out.push(CHUNKS);
            list.encode(out);
        }
    }
}

pub(super) fn read_update(body: &[u8]) -> Result<Update, WireError> {
    let mut reader = Reader::new(body);
    let malformed = |source| WireError::Malformed { what: "Update", source };
    let mut read = || Ok((reader.varint32()?, reader.varint32()?, reader.varint32()?, reader.byte()?));
    let (need, dir, index, kind) = read().map_err(malformed)?;
    let basis = match kind {
        GRANULES => BasisManifest::Granules(read_granules(&mut reader).map_err(malformed)?),
        CHECKED_GRANULES => BasisManifest::Granules(read_checked_granules(&mut reader).map_err(malformed)?),
        CHUNKS => {
            let list = reader.take(reader.remaining()).map_err(malformed)?;
            BasisManifest::Chunks(
                ChunkList::decode(list).map_err(|error| WireError::List(error.to_string()))?,
            )
        }
        _ => {
            return Err(malformed(DecodeError::Invalid(
                "the sink has something that this version does not know",
            )));
        }
    };
    Ok(Update { need, dir, index, basis })
}

fn read_granules(reader: &mut Reader<'_>) -> Result<Granules, DecodeError> {
    let file_len = reader.varint()?;
    let bytes = reader.varint()?;
    let start = reader.varint()?;
    let mut names = Vec::with_capacity(reader.remaining() / ShortName::LEN);
    while !reader.is_empty() {
        names.push(read_name(reader)?);
    }
    Granules::new(file_len, bytes, start, names).ok_or(DecodeError::Invalid("granules do not fit their file"))
}

fn put_checked(out: &mut Vec<u8>, checked: &CheckedBlocks, granules: &Granules) {
    let block = block_bytes(granules.file_len()) as u64;
    out.extend_from_slice(&checked.version().0);
    put_varint(out, checked.blocks().len() as u64);
    for CheckedBlock { offset, value } in checked.blocks() {
        put_varint(out, (offset - granules.start()) / block);
        out.extend_from_slice(value);
    }
}

fn read_checked_granules(reader: &mut Reader<'_>) -> Result<Granules, DecodeError> {
    let version = FileVersion(reader.array()?);
    let count = reader.varint()?;
    // Each takes 33 bytes of the message at least.
    if count > (reader.remaining() / 33) as u64 {
        return Err(DecodeError::Truncated);
    }
    let blocks = (0..count).map(|_| Ok((reader.varint()?, reader.array()?)));
    let blocks = blocks.collect::<Result<Vec<(u64, [u8; 32])>, DecodeError>>()?;
    let granules = read_granules(reader)?;
    let (len, start, end) = (granules.file_len(), granules.start(), granules.end());
    let offset = |nth: u64| nth.checked_mul(block_bytes(len) as u64)?.checked_add(start);
    let block = |(nth, value)| Some(CheckedBlock { offset: offset(nth)?, value });
    let blocks = blocks.into_iter().map(block).collect::<Option<_>>();
    let checked = blocks.and_then(|blocks| CheckedBlocks::new(version, len, start..end, blocks));
    Ok(granules.with_checked(checked.ok_or(DecodeError::Invalid("checked blocks do not fit their file"))?))
}
