use contract::{ExitCode, Failure, PlannedAction, Report, RunParams, Usage};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{WireError, begin_frame, end_frame};
use crate::{
    attrs::{Attrs, AttrsBuf, Classes, MAX_ATTRS_BYTES},
    codec::{DecodeError, Reader, put_bytes, put_varint},
    delta::{
        granules::Granules,
        list::ChunkList,
        name::{Name as _, ShortName},
    },
    entry::{Listing, Meta, put_meta, read_meta},
    hash::{ContentHash, TreeDigest},
    rules::MAX_RULES_BYTES,
    scan::{DirId, Totals},
};

/// What the source opens a run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the run does.
    pub params: RunParams,
    /// The kinds of extended attributes that the source can see.
    pub attrs: Classes,
}

/// What the sink opens a run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The program's version, for the log.
    pub version: String,
}

/// A directory of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub dir: DirId,
    /// The number of the first directory in it.
    pub first_child: DirId,
    /// What the directories in it look like, in order.
    pub children: Vec<TreeDigest>,
    /// Its entries.
    pub listing: Listing,
    /// The text of its ignore files, where they count; empty if it has none. At most [`MAX_RULES_BYTES`].
    pub rules: Box<[u8]>,
}

/// What the whole tree of the source looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    /// The root directory's own metadata.
    pub root_meta: Meta,
    /// The root directory's own extended attributes.
    pub root_attrs: AttrsBuf,
    /// Of the root directory.
    pub digest: TreeDigest,
    /// Sums.
    pub totals: Totals,
    /// What went wrong in the scan, and what it cost.
    pub source: SourceDone,
}

/// Files whose content the sink asks for, all of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The number of the first need; the others follow on.
    pub first: u32,
    /// Where the files are.
    pub dir: DirId,
    /// Their places in the directory's listing, ascending.
    pub indices: Vec<u32>,
    /// What the sink has of some of them, ascending: where the source's file begins with it, only the rest need be sent.
    pub prefixes: Vec<Prefix>,
}

/// A small file that the sink has, and that may have grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Which of the needs of the message.
    pub nth: u32,
    /// Its length in bytes.
    pub len: u32,
    /// The name of its content.
    pub name: ShortName,
}

impl Prefix {
    /// Whether `content` begins with it.
    pub fn begins(&self, content: &[u8]) -> bool {
        content.get(..self.len as usize).is_some_and(|first| ShortName::of(&blake3::hash(first)) == self.name)
    }
}

/// A large file whose content the sink asks for, and what it has to make it from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The number of the need.
    pub need: u32,
    /// Where the file is.
    pub dir: DirId,
    /// Its place in the directory's listing.
    pub index: u32,
    /// What the sink has.
    pub basis: Basis,
}

/// The parts of a file of the sink, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// Granules end to end: what has not moved can be kept.
    Granules(Granules),
    /// Chunks cut by content: found wherever they are.
    Chunks(ChunkList<ShortName>),
}

/// How many files the sink may ask the hashes of in one message.
pub const MAX_HASHES: usize = 4096;

/// The longest word or sentence that says why a file could not be read, in bytes.
const MAX_REASON_BYTES: usize = 4096;

/// Files of one directory whose content the sink wants the hashes of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashGroup {
    /// Where the files are.
    pub dir: DirId,
    /// Their places in the directory's listing, ascending.
    pub indices: Vec<u32>,
}

/// What hashing a file came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hashed {
    /// The hash of its content.
    Is(ContentHash),
    /// It is no longer what it was listed as.
    Changed,
    /// It could not be read.
    Failed {
        /// What was being done.
        operation: String,
        /// Why it failed.
        error: String,
    },
}

/// The source's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceDone {
    /// CPU and memory of the source.
    pub usage: Usage,
    /// How many entries could not be read.
    pub failed: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
}

/// Why an end does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What both processes exit with.
    pub exit: ExitCode,
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    /// Of an end that was told to stop.
    pub fn canceled() -> Self {
        Self { exit: ExitCode::Failed, reason: "Canceled".into(), message: "stopped on request".into() }
    }
}

/// A message on the control stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Source: what to do.
    Hello(Box<Hello>),
    /// Sink: ready.
    Welcome(Welcome),
    /// Source: a directory.
    Listed(Listed),
    /// Source: the scan is over.
    Tree(Box<TreeHead>),
    /// Sink: send these directories.
    Want(Vec<DirId>),
    /// Sink: send these files.
    Need(Needs),
    /// Sink: send what this file differs in.
    Update(Update),
    /// Sink: there are no more needs.
    NeedsEnd,
    /// Source: all that was needed is sent.
    SourceDone(Box<SourceDone>),
    /// Sink: the run is over and durable.
    Report(Box<Report>),
    /// Either: this end does not go on.
    Refuse(Refusal),
    /// Sink: what a dry run would do, some of it.
    Planned(Vec<PlannedAction>),
    /// Sink: hash these files; at most [`MAX_HASHES`].
    Hash(Vec<HashGroup>),
    /// Source: the hashes that were asked for, in order.
    Hashed(Vec<Hashed>),
}

/// The longest JSON of a message. What is made of it may take many times as much memory: a pattern, for one.
const MAX_JSON_BYTES: usize = 1 << 20;

/// Include and exclude patterns together. Each takes about 28 KB once it is compiled.
const MAX_PATTERNS: usize = 10_000;

/// Directories or files that one message may ask for. A number of one byte takes four in memory, and more once it is answered.
const MAX_ASKED: usize = 32 << 10;

const TOO_MUCH_ASKED: DecodeError = DecodeError::Invalid("more is asked for at once than may be");

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const LISTED: u8 = 3;
const TREE: u8 = 4;
const WANT: u8 = 5;
const NEED: u8 = 6;
const NEEDS_END: u8 = 7;
const SOURCE_DONE: u8 = 8;
const REPORT: u8 = 9;
const REFUSE: u8 = 10;
const UPDATE: u8 = 11;
const PLANNED: u8 = 16;
const HASH: u8 = 17;
const HASHED: u8 = 18;

impl Message {
    /// What the message is, for errors.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome(_) => "Welcome",
            Self::Listed(_) => "Listed",
            Self::Tree(_) => "Tree",
            Self::Want(_) => "Want",
            Self::Need(_) => "Need",
            Self::Update(_) => "Update",
            Self::NeedsEnd => "NeedsEnd",
            Self::SourceDone(_) => "SourceDone",
            Self::Report(_) => "Report",
            Self::Refuse(_) => "Refuse",
            Self::Planned(_) => "Planned",
            Self::Hash(_) => "Hash",
            Self::Hashed(_) => "Hashed",
        }
    }

    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        begin_frame(out, self.kind());
        match self {
            Self::Hello(hello) => put_json(out, hello),
            Self::Welcome(welcome) => put_json(out, welcome),
            Self::Listed(listed) => put_listed(out, listed),
            Self::Tree(head) => put_tree(out, head),
            Self::Want(dirs) => dirs.iter().for_each(|dir| put_varint(out, u64::from(*dir))),
            Self::Need(needs) => put_needs(out, needs),
            Self::Update(update) => put_update(out, update),
            Self::SourceDone(done) => put_json(out, done),
            Self::Report(report) => put_json(out, report),
            Self::Refuse(refusal) => put_json(out, refusal),
            Self::Planned(actions) => put_json(out, actions),
            Self::Hash(groups) => groups.iter().for_each(|group| put_group(out, group)),
            Self::Hashed(hashes) => hashes.iter().for_each(|hashed| put_hashed(out, hashed)),
            Self::NeedsEnd => {}
        }
        end_frame(out, start);
    }

    /// Reads the body of a frame of this kind.
    ///
    /// # Errors
    /// When the kind is unknown, or the body is not exactly what it should be.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let binary = |what| move |source| WireError::Malformed { what, source };
        match kind {
            HELLO => read_hello(body),
            WELCOME => Ok(Self::Welcome(json("Welcome", body)?)),
            LISTED => read_whole(body, read_listed).map(Self::Listed).map_err(binary("Listed")),
            TREE => read_tree(body),
            WANT => read_whole(body, read_ids).map(Self::Want).map_err(binary("Want")),
            NEED => read_whole(body, read_needs).map(Self::Need).map_err(binary("Need")),
            UPDATE => read_update(body).map(Self::Update),
            NEEDS_END => read_whole(body, |_| Ok(Self::NeedsEnd)).map_err(binary("NeedsEnd")),
            SOURCE_DONE => Ok(Self::SourceDone(json("SourceDone", body)?)),
            REPORT => Ok(Self::Report(json("Report", body)?)),
            REFUSE => read_refuse(body),
            PLANNED => Ok(Self::Planned(json("Planned", body)?)),
            HASH => read_whole(body, read_groups).map(Self::Hash).map_err(binary("Hash")),
            HASHED => read_whole(body, read_hashes).map(Self::Hashed).map_err(binary("Hashed")),
            unknown => Err(WireError::UnknownKind(unknown)),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Welcome(_) => WELCOME,
            Self::Listed(_) => LISTED,
            Self::Tree(_) => TREE,
            Self::Want(_) => WANT,
            Self::Need(_) => NEED,
            Self::Update(_) => UPDATE,
            Self::NeedsEnd => NEEDS_END,
            Self::SourceDone(_) => SOURCE_DONE,
            Self::Report(_) => REPORT,
            Self::Refuse(_) => REFUSE,
            Self::Planned(_) => PLANNED,
            Self::Hash(_) => HASH,
            Self::Hashed(_) => HASHED,
        }
    }
}

fn put_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing these types to memory cannot fail; a failure would reach the peer as a malformed message.
    let _ = serde_json::to_writer(out, value);
}

fn json<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, WireError> {
    if body.len() > MAX_JSON_BYTES {
        return Err(WireError::TooLong { len: body.len(), max: MAX_JSON_BYTES });
    }
    serde_json::from_slice(body).map_err(|error| WireError::Json { what, error: error.to_string() })
}

fn read_whole<'a, T>(
    body: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut reader = Reader::new(body);
    let value = read(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

fn read_hello(body: &[u8]) -> Result<Message, WireError> {
    let hello: Box<Hello> = json("Hello", body)?;
    if hello.params.include.len() + hello.params.exclude.len() > MAX_PATTERNS {
        let source = DecodeError::Invalid("it has more than 10,000 patterns");
        return Err(WireError::Malformed { what: "Hello", source });
    }
    Ok(Message::Hello(hello))
}

fn put_digest(out: &mut Vec<u8>, digest: &TreeDigest) {
    out.extend_from_slice(&digest.entries);
    out.extend_from_slice(&digest.owners);
    out.extend_from_slice(&digest.attrs);
}

fn read_digest(reader: &mut Reader<'_>) -> Result<TreeDigest, DecodeError> {
    Ok(TreeDigest { entries: reader.array()?, owners: reader.array()?, attrs: reader.array()? })
}

fn put_listed(out: &mut Vec<u8>, listed: &Listed) {
    put_varint(out, u64::from(listed.dir));
    put_varint(out, u64::from(listed.first_child));
    listed.listing.encode(out);
    listed.children.iter().for_each(|digest| put_digest(out, digest));
    put_bytes(out, &listed.rules);
}

fn read_listed(reader: &mut Reader<'_>) -> Result<Listed, DecodeError> {
    let dir = reader.varint32()?;
    let first_child = reader.varint32()?;
    let listing = Listing::decode(reader)?;
    if first_child.checked_add(listing.dirs()).is_none() {
        return Err(DecodeError::Overflow);
    }
    let children = (0..listing.dirs()).map(|_| read_digest(reader)).collect::<Result<_, _>>()?;
    let rules = reader.bytes(MAX_RULES_BYTES)?.into();
    Ok(Listed { dir, first_child, children, listing, rules })
}

fn put_tree(out: &mut Vec<u8>, head: &TreeHead) {
    put_meta(out, &head.root_meta);
    put_bytes(out, head.root_attrs.as_attrs().bytes());
    put_digest(out, &head.digest);
    put_varint(out, head.totals.entries);
    put_varint(out, head.totals.bytes);
    put_varint(out, head.totals.skipped);
    put_json(out, &head.source);
}

fn read_tree(body: &[u8]) -> Result<Message, WireError> {
    let mut reader = Reader::new(body);
    let malformed = |source| WireError::Malformed { what: "Tree", source };
    let mut read = || {
        let root_meta = read_meta(&mut reader)?;
        let root_attrs = Attrs::decode(reader.bytes(MAX_ATTRS_BYTES)?)?.into();
        let digest = read_digest(&mut reader)?;
        let totals = Totals { entries: reader.varint()?, bytes: reader.varint()?, skipped: reader.varint()? };
        Ok((root_meta, root_attrs, digest, totals))
    };
    let (root_meta, root_attrs, digest, totals) = read().map_err(malformed)?;
    let rest = reader.take(reader.remaining()).map_err(malformed)?;
    let source = json("Tree", rest)?;
    Ok(Message::Tree(Box::new(TreeHead { root_meta, root_attrs, digest, totals, source })))
}

fn read_refuse(body: &[u8]) -> Result<Message, WireError> {
    let refusal: Refusal = json("Refuse", body)?;
    match refusal.exit {
        ExitCode::Done => {
            let source = DecodeError::Invalid("it says that the run is done");
            Err(WireError::Malformed { what: "Refuse", source })
        }
        _ => Ok(Message::Refuse(refusal)),
    }
}

fn read_ids(reader: &mut Reader<'_>) -> Result<Vec<DirId>, DecodeError> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        if ids.len() == MAX_ASKED {
            return Err(TOO_MUCH_ASKED);
        }
        ids.push(reader.varint32()?);
    }
    Ok(ids)
}

fn put_needs(out: &mut Vec<u8>, needs: &Needs) {
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
    let mut next = 0;
    for &index in &needs.indices {
        put_varint(out, u64::from(index - next));
        next = index + 1;
    }
}

fn read_needs(reader: &mut Reader<'_>) -> Result<Needs, DecodeError> {
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

/// A number that is not below `next`, which becomes the number after it.
fn read_ascending(reader: &mut Reader<'_>, next: &mut u32) -> Result<u32, DecodeError> {
    let number = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
    *next = number.checked_add(1).ok_or(DecodeError::Overflow)?;
    Ok(number)
}

fn read_name(reader: &mut Reader<'_>) -> Result<ShortName, DecodeError> {
    ShortName::from_prefix(reader.take(ShortName::LEN)?).ok_or(DecodeError::Truncated)
}

const GRANULES: u8 = 0;
const CHUNKS: u8 = 1;

fn put_update(out: &mut Vec<u8>, update: &Update) {
    put_varint(out, u64::from(update.need));
    put_varint(out, u64::from(update.dir));
    put_varint(out, u64::from(update.index));
    match &update.basis {
        Basis::Granules(granules) => {
            out.push(GRANULES);
            put_varint(out, granules.file_len());
            put_varint(out, granules.bytes() as u64);
            granules.names().iter().for_each(|name| out.extend_from_slice(name.as_bytes()));
        }
        Basis::Chunks(list) => {
            out.push(CHUNKS);
            list.encode(out);
        }
    }
}

fn read_update(body: &[u8]) -> Result<Update, WireError> {
    let mut reader = Reader::new(body);
    let malformed = |source| WireError::Malformed { what: "Update", source };
    let mut read = || Ok((reader.varint32()?, reader.varint32()?, reader.varint32()?, reader.byte()?));
    let (need, dir, index, kind) = read().map_err(malformed)?;
    let basis = match kind {
        GRANULES => Basis::Granules(read_granules(&mut reader).map_err(malformed)?),
        CHUNKS => {
            let list = reader.take(reader.remaining()).map_err(malformed)?;
            Basis::Chunks(ChunkList::decode(list).map_err(|error| WireError::List(error.to_string()))?)
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
    let mut names = Vec::with_capacity(reader.remaining() / ShortName::LEN);
    while !reader.is_empty() {
        names.push(read_name(reader)?);
    }
    Granules::new(file_len, bytes, names).ok_or(DecodeError::Invalid("granules do not fit their file"))
}

fn put_group(out: &mut Vec<u8>, group: &HashGroup) {
    put_varint(out, u64::from(group.dir));
    put_varint(out, group.indices.len() as u64);
    let mut next = 0;
    for &index in &group.indices {
        put_varint(out, u64::from(index - next));
        next = index + 1;
    }
}

fn read_groups(reader: &mut Reader<'_>) -> Result<Vec<HashGroup>, DecodeError> {
    let mut groups = Vec::new();
    let mut left = MAX_HASHES;
    while !reader.is_empty() {
        let dir = reader.varint32()?;
        let count = reader.varint32()? as usize;
        left = left.checked_sub(count.max(1)).ok_or(TOO_MANY_HASHES)?;
        let mut indices = Vec::with_capacity(count);
        let mut next: u32 = 0;
        for _ in 0..count {
            let index = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
            indices.push(index);
            next = index.checked_add(1).ok_or(DecodeError::Overflow)?;
        }
        groups.push(HashGroup { dir, indices });
    }
    Ok(groups)
}

const TOO_MANY_HASHES: DecodeError =
    DecodeError::Invalid("there are more files than may be asked for at once");

fn put_hashed(out: &mut Vec<u8>, hashed: &Hashed) {
    match hashed {
        Hashed::Is(hash) => {
            out.push(0);
            out.extend_from_slice(&hash.0);
        }
        Hashed::Changed => out.push(1),
        Hashed::Failed { operation, error } => {
            out.push(2);
            put_bytes(out, clip(operation).as_bytes());
            put_bytes(out, clip(error).as_bytes());
        }
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_REASON_BYTES)]
}

fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<Hashed>, DecodeError> {
    let mut hashes = Vec::new();
    while !reader.is_empty() {
        if hashes.len() == MAX_HASHES {
            return Err(TOO_MANY_HASHES);
        }
        hashes.push(match reader.byte()? {
            0 => Hashed::Is(ContentHash(reader.array()?)),
            1 => Hashed::Changed,
            2 => Hashed::Failed { operation: read_reason(reader)?, error: read_reason(reader)? },
            _ => return Err(DecodeError::Invalid("what hashing came to is none of 0, 1 and 2")),
        });
    }
    Ok(hashes)
}

fn read_reason(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.bytes(MAX_REASON_BYTES)?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::Invalid("a reason is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use contract::{Action, EntryKind};

    use super::*;
    use crate::{
        attrs::put_attr,
        delta::{chunk::ChunkSizes, list::list},
        entry::{Entry, Kind, ListingBuilder},
        wire::{HEADER_BYTES, MAX_MESSAGE_BYTES, read_header},
    };

    fn listed() -> Listed {
        let mut builder = ListingBuilder::default();
        builder.push(&Entry { name: b"a", kind: Kind::Dir, meta: Meta::default(), attrs: Attrs::default() });
        let mut attrs = Vec::new();
        put_attr(&mut attrs, b"user.some", b"value");
        let attrs = Attrs::trusted(&attrs);
        builder.push(&Entry { name: b"b", kind: Kind::File { size: 9 }, meta: Meta::default(), attrs });
        let digest = TreeDigest { entries: [7; 16], owners: [9; 16], attrs: [3; 16] };
        let rules = Box::from(*b"*.o\n");
        Listed { dir: 3, first_child: 8, children: vec![digest], listing: builder.finish(), rules }
    }

    fn hash_groups() -> Vec<HashGroup> {
        vec![HashGroup { dir: 300, indices: vec![0, 1, 7] }, HashGroup { dir: 2, indices: vec![200] }]
    }

    fn hashes() -> Vec<Hashed> {
        let failed = Hashed::Failed { operation: "read".into(), error: "gone".into() };
        vec![Hashed::Is(ContentHash([7; 32])), Hashed::Changed, failed]
    }

    fn samples() -> Vec<Message> {
        let totals = Totals { entries: 1, bytes: u64::MAX, skipped: 3 };
        let head = TreeHead {
            root_meta: Meta { mode: 0o755, ..Meta::default() },
            root_attrs: Attrs::trusted(b"\x06user.a\x00").into(),
            digest: TreeDigest::default(),
            totals,
            source: SourceDone::default(),
        };
        let action = PlannedAction {
            action: Action::SetMetadata,
            kind: EntryKind::Folder,
            path: "a\\xff".into(),
            from: None,
            bytes: 0,
        };
        let refusal = Refusal { exit: ExitCode::Guard, reason: "R".into(), message: "m".into() };
        vec![
            Message::Hello(Box::new(Hello { params: RunParams::default(), attrs: Classes::USER })),
            Message::Welcome(Welcome { version: "1".into() }),
            Message::Listed(listed()),
            Message::Tree(Box::new(head)),
            Message::Want(vec![0, 1, u32::MAX]),
            Message::Need(Needs { first: 5, dir: 2, indices: vec![0, 1, 7, 200], prefixes: prefixes() }),
            Message::Need(Needs { first: 5, dir: 2, indices: vec![3], prefixes: vec![] }),
            Message::Update(update(Basis::Granules(granules()))),
            Message::Update(update(Basis::Chunks(list(&[7; 100_000], ChunkSizes::FINE).0.short()))),
            Message::NeedsEnd,
            Message::SourceDone(Box::default()),
            Message::Report(Box::default()),
            Message::Refuse(refusal),
            Message::Planned(vec![action]),
            Message::Hash(hash_groups()),
            Message::Hashed(hashes()),
        ]
    }

    fn name(byte: u8) -> ShortName {
        ShortName::from_prefix(&[byte; 8]).unwrap()
    }

    fn prefixes() -> Vec<Prefix> {
        vec![Prefix { nth: 1, len: 4096, name: name(1) }, Prefix { nth: 3, len: 0, name: name(2) }]
    }

    fn granules() -> Granules {
        Granules::new(100_000, 16 << 10, (0..7).map(name).collect()).unwrap()
    }

    fn update(basis: Basis) -> Update {
        Update { need: 9, dir: 4, index: 300, basis }
    }

    #[test]
    fn a_prefix_of_no_need_is_refused() {
        let needs = Needs { first: 5, dir: 2, indices: vec![0, 1, 7], prefixes: prefixes() };
        let mut frame = Vec::new();
        Message::Need(needs).encode(&mut frame);
        assert!(Message::decode(NEED, &frame[HEADER_BYTES..]).is_err());
    }

    fn split(frame: &[u8]) -> (u8, &[u8]) {
        let (header, body) = frame.split_first_chunk::<HEADER_BYTES>().unwrap();
        let (kind, len) = read_header(*header, MAX_MESSAGE_BYTES).unwrap();
        assert_eq!(len, body.len());
        (kind, body)
    }

    #[test]
    fn every_message_survives_the_trip() {
        for message in samples() {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            let (kind, body) = split(&frame);
            assert_eq!(Message::decode(kind, body), Ok(message));
        }
    }

    #[test]
    fn a_message_with_data_after_its_end_is_refused() {
        for message in samples() {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            frame.push(0x80);
            let (kind, body) = (frame[0], &frame[HEADER_BYTES..]);
            assert!(Message::decode(kind, body).is_err(), "{}", message.what());
        }
    }

    #[test]
    fn a_frame_longer_than_the_limit_is_refused_by_its_header() {
        let header = [LISTED, 0xff, 0xff, 0xff, 0xff];
        let max = MAX_MESSAGE_BYTES;
        assert_eq!(read_header(header, max), Err(WireError::TooLong { len: u32::MAX as usize, max }));
    }

    #[test]
    fn json_longer_than_the_limit_is_refused_before_it_is_read() {
        let exclude = vec!["x".repeat(100); 12_000];
        let params = RunParams { exclude, ..RunParams::default() };
        let mut frame = Vec::new();
        Message::Hello(Box::new(Hello { params, attrs: Classes::default() })).encode(&mut frame);
        let refused = Message::decode(HELLO, &frame[HEADER_BYTES..]);
        assert!(matches!(refused, Err(WireError::TooLong { max: MAX_JSON_BYTES, .. })), "{refused:?}");
    }

    #[test]
    fn more_patterns_than_the_limit_are_refused() {
        let decode = |count| {
            let params = RunParams {
                include: vec!["x".into(); count],
                exclude: vec!["y".into(); count],
                ..RunParams::default()
            };
            let mut frame = Vec::new();
            Message::Hello(Box::new(Hello { params, attrs: Classes::default() })).encode(&mut frame);
            Message::decode(HELLO, &frame[HEADER_BYTES..])
        };
        assert!(decode(MAX_PATTERNS / 2).is_ok());
        assert!(matches!(decode(MAX_PATTERNS / 2 + 1), Err(WireError::Malformed { what: "Hello", .. })));
    }

    #[test]
    fn more_rules_than_there_may_be_are_refused() {
        for (len, fits) in [(MAX_RULES_BYTES, true), (MAX_RULES_BYTES + 1, false)] {
            let mut frame = Vec::new();
            Message::Listed(Listed { rules: vec![b'a'; len].into(), ..listed() }).encode(&mut frame);
            assert_eq!(Message::decode(LISTED, &frame[HEADER_BYTES..]).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn hashes_are_asked_for_and_told_in_these_bytes() {
        let mut frame = Vec::new();
        Message::Hash(hash_groups()).encode(&mut frame);
        assert_eq!(frame, [HASH, 10, 0, 0, 0, 0xac, 2, 3, 0, 0, 5, 2, 1, 200, 1]);
        frame.clear();
        Message::Hashed(hashes()).encode(&mut frame);
        let body = [&[0][..], &[7; 32], &[1, 2, 4], b"read", &[4], b"gone"].concat();
        assert_eq!(frame, [&[HASHED, body.len() as u8, 0, 0, 0], &body[..]].concat());
    }

    #[test]
    fn more_hashes_than_there_may_be_are_neither_asked_for_nor_told() {
        for (count, fits) in [(MAX_HASHES as u32, true), (MAX_HASHES as u32 + 1, false)] {
            let mut ask = Vec::new();
            let groups = vec![HashGroup { dir: 0, indices: (0..count).collect() }];
            Message::Hash(groups).encode(&mut ask);
            assert_eq!(Message::decode(HASH, &ask[HEADER_BYTES..]).is_ok(), fits, "{count}");
            let empty = [0, 0].repeat(count as usize);
            assert_eq!(Message::decode(HASH, &empty).is_ok(), fits, "{count} groups of none");
            assert_eq!(Message::decode(HASHED, &vec![1; count as usize]).is_ok(), fits, "{count}");
        }
        assert!(
            Message::decode(HASH, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err(),
            "more than there is memory"
        );
    }

    #[test]
    fn a_planned_action_is_these_bytes() {
        let json = br#"[{"action":"setMetadata","kind":"folder","path":"a/b","bytes":0}]"#;
        let Ok(Message::Planned(actions)) = Message::decode(PLANNED, json) else { panic!("not read") };
        let mut frame = Vec::new();
        Message::Planned(actions).encode(&mut frame);
        assert_eq!(frame, [&[PLANNED, json.len() as u8, 0, 0, 0], &json[..]].concat());
    }

    #[test]
    fn a_listed_directory_is_these_bytes() {
        let mut frame = Vec::new();
        Message::Listed(listed()).encode(&mut frame);
        let mut golden = vec![LISTED, 64, 0, 0, 0];
        golden.extend([3, 8]); // its number, the first number in it
        golden.extend([2, 1, 1]); // two entries, one directory, complete
        golden.extend([7, 0x39, 1, b'a', 0x38, 1, b'b', 9, 3, 2, 0, 0]);
        golden.extend(*b"\x12\x01\x10\x09user.some\x05value"); // 18 bytes of attributes: 16 of entry 1
        golden.extend([7; 16]);
        golden.extend([9; 16]);
        golden.extend([3; 16]);
        golden.extend(*b"\x04*.o\n"); // the rules
        golden[1] = (golden.len() - HEADER_BYTES) as u8;
        assert_eq!(frame, golden);
    }

    #[test]
    fn asking_for_more_than_the_limit_at_once_is_refused() {
        let decode = |message: &Message| {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            Message::decode(frame[0], &frame[HEADER_BYTES..]).is_ok()
        };
        let need = |count: usize, prefixes: usize| {
            let indices = (0..count as u32).collect();
            let prefixes = (0..prefixes as u32).map(|nth| Prefix { nth, len: 1, name: name(1) }).collect();
            Message::Need(Needs { first: 0, dir: 0, indices, prefixes })
        };
        assert!(decode(&Message::Want(vec![1; MAX_ASKED])) && decode(&need(MAX_ASKED, MAX_ASKED)));
        assert!(!decode(&Message::Want(vec![1; MAX_ASKED + 1])));
        assert!(!decode(&need(MAX_ASKED + 1, 0)));
    }

    #[test]
    fn a_refusal_of_a_run_that_is_done_is_none() {
        let mut frame = Vec::new();
        let refusal = Refusal { exit: ExitCode::Done, reason: "R".into(), message: "m".into() };
        Message::Refuse(refusal).encode(&mut frame);
        assert!(matches!(Message::decode(REFUSE, &frame[HEADER_BYTES..]), Err(WireError::Malformed { .. })));
    }

    #[test]
    fn more_children_than_digests_are_refused() {
        let mut frame = Vec::new();
        Message::Listed(Listed { children: vec![], ..listed() }).encode(&mut frame);
        assert!(Message::decode(LISTED, &frame[HEADER_BYTES..]).is_err());
    }
}
