//! `seeds FOLDER`: writes, for each target that decodes a format, a few well-formed inputs, as
//! `FOLDER/TARGET/seed-NAME`. A fuzzer would take long to find them.

use std::{fs, io, path::Path};

// The compiler flags of `run` make every program here count the code that it runs; libFuzzer defines the counters.
use libfuzzer_sys as _;

use bucket::internals::{pack, samples};
use contract::{
    BusyAnswer, ChangedBlocks, ChangedRanges, Compression, Event, FolderAccess, FolderRequest, IdentityPair,
    OwnKey, Progress, Reason, Report, RunParams,
};
use syncer::internals::{
    attrs::Attrs,
    delta::{
        checked::{BlockCheck, CheckedBlock, CheckedBlocks, FileVersion},
        chunk_sizes::ChunkSizes,
        features::Sampling,
        granules::Granules,
        list::list,
        short_name::ShortName,
    },
    entry::{Entry, Kind, Meta, Owner, Time},
    hash::{ContentId, TransferHash, TreeDigest},
    kept_xattrs::Classes,
    listing::{Listing, ListingBuilder},
    owners::Owners,
    path::RelPath,
    tree::dir::Mounts,
    wire::{
        BasisManifest, FileGroup, Forecast, HEADER_BYTES, Hashed, Hello, Listed, Message, Needs, Prefix,
        Refusal, Release, SampleRequest, SourceDone, TreeHead, Update, Welcome,
        check::add_check,
        compress::Compressor,
        data::{Block, EndFrame, Failed, Fresh, PackBuilder, Whole},
        patch::{BlockHeader, ChunkPart, ChunksBuilder, Copied, Patch, Segment},
    },
};
use syncer::snapshot::{
    copy::{CopiedHistory, HistorySource, NoHistory, RequestedContent, StreamedHistory, serve_history},
    store::{ContentRef, Home},
};

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: seeds FOLDER"))?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{name}")), bytes)
    };
    for (nth, message) in messages().iter().enumerate() {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        write("control", &format!("{nth}-{}", message.what()), &without_length(&frame))?;
    }
    for (name, frame) in frames() {
        write("frames", name, &without_length(&frame))?;
    }
    write("packets", "two", &[4, 3, 0, 1, 2, 3, 1, 0, 9])?;
    let mut bytes = Vec::new();
    listing().encode(&mut bytes);
    write("listing", "every-kind", &bytes)?;
    for (name, sizes) in [("fine", ChunkSizes::FINE), ("large", ChunkSizes::for_len(1 << 30))] {
        let list = list(&noise(60_000), sizes);
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        write("chunks", name, &bytes)?;
    }
    for (name, flags, ranges) in
        [("plain", &b"\0"[..], &b"\0"[..]), ("ranges", b"\x02\x08\x09", b"\x02\x01\x0a\x04\x09")]
    {
        // The length, path, inode, mode, flags with their values, a hash, and the ranges.
        let table = [&100_u64.to_le_bytes()[..], b"\x03d/f\x05\x80\x03", flags, &[7; 32], ranges].concat();
        write("journal", name, &table)?;
    }
    let pair = IdentityPair::generate("job").map_err(io::Error::other)?;
    write("identity", "source", pair.source.to_text().as_bytes())?;
    write("identity", "sink", pair.sink.to_text().as_bytes())?;
    stored(&write)?;
    for (name, archive) in archives() {
        write("tar", name, &archive)?;
    }
    let answer = |number| BusyAnswer { peer: "10.0.0.1:7400".into(), since: "now".into(), number }.to_line();
    write("busy", "two", &[&b"\x07"[..], &answer(2), &answer(1)].concat())?;
    served(&write)?;
    histories(&write)?;
    for (nth, sample) in samples().into_iter().enumerate() {
        // Two lists, and one of each other kind.
        write("bucket", &nth.to_string(), &[&[nth.saturating_sub(1) as u8], &sample[..]].concat())?;
    }
    for (name, plain) in [("as-it-is", noise(100)), ("compressed", vec![7; 1000])] {
        let len = (plain.len() as u32).to_le_bytes();
        write("bucket", name, &[&[3], &len[..3], &pack(&plain)].concat())?;
    }
    write("report", "report", &serde_json::to_vec(&Report::default())?)?;
    write("report", "progress", &serde_json::to_vec(&Event::Progress(Progress::default()))?)?;
    write("report", "finished", &serde_json::to_vec(&Event::Finished(Box::default()))?)
}

/// Writes the files of a service, and a request of a peer.
fn served(write: &dyn Fn(&str, &str, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let key = OwnKey::generate().map_err(io::Error::other)?.public();
    let lines = format!("# peers\n\ned25519 {key} me@laptop read=docs,photos write=photos\n");
    write("authorized", "two-folders", lines.as_bytes())?;
    let tables =
        "listen = \"[::]:7400\"\nidentity = [\"a\", \"b\"]\n[folders.a]\nqueue = 3\nsnapshot = true\n";
    write("config", "one-folder", tables.as_bytes())?;
    let request = FolderRequest {
        folder: "photos".into(),
        path: "2026".into(),
        access: FolderAccess::Read,
        params: RunParams::default(),
        source_snapshot: Some("latest".into()),
        paths: Some(vec![b"a".to_vec()]),
        history: None,
    };
    write("request", "read", &serde_json::to_vec(&request)?)
}

/// Writes a request of each kind for the end that serves a history, and an answer for the one that asks.
fn histories(write: &dyn Fn(&str, &str, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let content = ContentRef { id: ContentId([7; 32]), home: Home::Pack { pack: 1, offset: 300 } };
    // Nobody answers, and the request has been sent then.
    for (nth, name) in ["offer", "allocated", "contents", "done"].into_iter().enumerate() {
        let mut request = vec![0];
        let mut ask = StreamedHistory::new(io::empty(), &mut request);
        match nth {
            0 => drop((ask.offer(), ask)),
            1 => drop((ask.allocated(&[content]), ask)),
            2 => {
                let asked = RequestedContent { content, len: 100, granules: vec![Default::default(); 2] };
                drop((ask.contents(&[asked], &mut |_, _| Ok(())), ask));
            }
            _ => ask.finish(&Ok(CopiedHistory::default())).map_err(io::Error::other)?,
        }
        write("history", name, &request)?;
        if nth == 0 {
            let mut answer = vec![1];
            let _ = serve_history(&mut NoHistory, &request[1..], &mut answer);
            write("history", "answer", &answer)?;
        }
    }
    Ok(())
}

/// Writes seeds from the store's fixtures: records without their checksums, a directory without its checksum, and a
/// log.
fn stored(write: &dyn Fn(&str, &str, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/snapshot/fixtures");
    let list = fs::read(fixtures.join("roots-2"))?;
    let mut rest = &list[12..];
    for nth in 0_u8.. {
        let Some((head, after)) = rest.split_first_chunk::<8>() else { break };
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let kind = u8::from(&head[..4] == b"rule");
        write("roots", &nth.to_string(), &[&[kind], &after[..len]].concat())?;
        rest = &after[len + 8..];
    }
    for (name, fixture) in [("every-kind", "folder-1"), ("changes", "folder-2")] {
        let folder = fs::read(fixtures.join(fixture))?;
        write("folder", name, &folder[..folder.len() - 8])?;
    }
    write("audit", "three-lines", &fs::read(fixtures.join("audit-1"))?)
}

/// Returns a frame's kind and body, which are a target's input; the length between them is read by other code.
fn without_length(frame: &[u8]) -> Vec<u8> {
    [&frame[..1], &frame[HEADER_BYTES..]].concat()
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn meta(mode: u16) -> Meta {
    Meta { mode, mtime: Time { seconds: 1_700_000_000, nanos: 5 }, owner: Owner { uid: 1000, gid: 1000 } }
}

fn listing() -> Listing {
    let mut builder = ListingBuilder::default();
    let attrs = Attrs::decode(b"\x06user.a\x05value").expect("what was encoded can be decoded");
    let kinds = [
        Kind::Dir,
        Kind::File { size: 70_000 },
        Kind::Symlink { target: b"../elsewhere" },
        Kind::Fifo,
        Kind::CharDevice { rdev: 0x103 },
        Kind::BlockDevice { rdev: 0x801 },
        Kind::File { size: 0 },
    ];
    for ((kind, name), mode) in
        kinds.into_iter().zip(b"abcdefg").zip([0o755, 0o644, 0o777, 0o644, 0o600, 0o600, 0o4755])
    {
        // Of two neighbours in order, the second has the attributes of the first.
        let attrs = if b"bcf".contains(name) { attrs } else { Attrs::default() };
        builder.push(&Entry { name: &[*name], kind, meta: meta(mode), attrs });
    }
    builder.push(&Entry::hard_link(b"h", b"a/b"));
    builder.finish()
}

fn name() -> ShortName {
    ShortName::of(&blake3::hash(b"a granule"))
}

fn files() -> Vec<FileGroup> {
    vec![FileGroup { dir: 300, indices: vec![0, 1, 7] }, FileGroup { dir: 2, indices: vec![200] }]
}

fn head() -> TreeHead {
    TreeHead {
        root_meta: meta(0o755),
        root_attrs: Attrs::default().into(),
        digest: TreeDigest { entries: [1; 16], owners: [2; 16], attrs: [5; 16] },
        totals: Default::default(),
        mounts: Mounts { count: 2, first: RelPath::parse(b"a/b").expect("a path") },
        owners: Owners::new([(Owner { uid: 0, gid: 0 }, 9), (Owner { uid: 1000, gid: 100 }, 7)], 3),
        last_run: None,
        source: SourceDone::default(),
    }
}

fn messages() -> Vec<Message> {
    let failed = Hashed::Failed { operation: "read".into(), error: "gone".into() };
    let refusal =
        Refusal { exit: contract::ExitCode::Guard, reason: Reason::SourceEmpty, message: "m".into() };
    let rules = Box::from(*b"*.o\n");
    let children = vec![TreeDigest { entries: [3; 16], owners: [4; 16], attrs: [6; 16] }];
    let prefix = Prefix { nth: 1, len: 4096, name: name() };
    let granules = Granules::new(100_000, 16 << 10, 0, vec![name(); 7]).expect("as many names as granules");
    let (len, start) = ((64 << 20) + 100_000, 64 << 20);
    let block = CheckedBlock { offset: start, value: [6; 32] };
    let checked = CheckedBlocks::new(FileVersion([5; 16]), len, start..len, vec![block]);
    let rest = Granules::new(len, 16 << 10, start, vec![name(); 7]).expect("as many names as granules");
    let rest = rest.with_checked(checked.expect("it is a block of the file"));
    let chunks = list(&noise(30_000), ChunkSizes::FINE);
    let update = |basis| Message::Update(Update { need: 9, dir: 4, index: 300, basis });
    vec![
        Message::Hello(Box::new(Hello {
            params: RunParams {
                exclude: vec!["*.tmp".into()],
                changed_blocks: Some(ChangedBlocks {
                    ranges: ChangedRanges::new([(4096, 512), (1 << 20, 9)]).unwrap_or_default(),
                    ..ChangedBlocks::default()
                }),
                ..RunParams::default()
            },
            attrs: Classes::USER,
            device: Some(1 << 40),
            file: None,
            whereabouts: Default::default(),
            last: true,
        })),
        Message::Welcome(Welcome { version: "0.1.0".into(), dry_run: false }),
        Message::Listed(Listed { dir: 0, first_child: 1, children, listing: listing(), rules }),
        Message::Tree(Box::new(head())),
        Message::Want(vec![0, 1, 300]),
        Message::Need(Needs { first: 7, dir: 1, indices: vec![0, 1, 5, 200], prefixes: vec![prefix] }),
        update(BasisManifest::Granules(granules)),
        update(BasisManifest::Granules(rest)),
        update(BasisManifest::Chunks(chunks)),
        Message::NeedsEnd,
        Message::SourceDone(Box::default()),
        Message::Report(Box::default()),
        Message::Refuse(refusal),
        Message::Hash(files()),
        Message::Release(Release { epoch: [8; 16], groups: files() }),
        Message::History(vec![1, 0, 0, 0, 0]),
        Message::Hashed(vec![
            Hashed::Is(TransferHash::of(b"")),
            Hashed::Changed,
            failed,
            Hashed::IsInMotion(TransferHash::of(b"b")),
        ]),
        Message::Forecast(Forecast { files: 3, bytes: 1 << 40 }),
        Message::SampleRequest(SampleRequest {
            sampling: Sampling::within(1 << 20, 5 << 20),
            files: files(),
        }),
        Message::Samples(vec![vec![1, u64::MAX], vec![]]),
    ]
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let pack = || {
        let mut pack = PackBuilder::default();
        let grown = Prefix { nth: 0, len: 400, name: ShortName::of(&blake3::hash(&[b'x'; 400])) };
        let attrs = Attrs::decode(b"\x06user.a\x05value").expect("it is one attribute");
        let fresh = Fresh { meta: meta(0o600), attrs };
        for (need, fresh, prefix) in [(1, None, None), (2, Some(fresh), None), (3, None, Some(grown))] {
            let _ = pack.push(need, fresh, prefix, 900, |frame| {
                frame.extend_from_slice(&[b'x'; 900]);
                Ok::<(), io::Error>(())
            });
        }
        pack.push_failed(3, "read", "permission denied");
        pack.finish()
    };
    let mut block = vec![0; Block::PREFIX_BYTES];
    block.extend_from_slice(&noise(300));
    let mut checked = Block::seal(block.clone(), 4, 0, 300, 0);
    add_check(&mut checked, &BlockCheck { version: FileVersion([5; 16]), value: [6; 32] });
    let whole = Whole {
        file_len: 300,
        hash: TransferHash::of(&noise(300)),
        fresh: Some(Fresh { meta: meta(0o600), attrs: Attrs::default() }),
        in_motion: true,
    };
    let failed = Failed { operation: "read", error: "it kept changing" };
    let place = BlockHeader { need: 4, attempt: 0, file_len: 700, offset: 0 };
    let literal = noise(300);
    let mut parts = ChunksBuilder::default();
    parts.push(ChunkPart { copied: Some(Copied { offset: 50, len: 400 }), literal: b"" });
    parts.push(ChunkPart { copied: None, literal: &literal });
    let segments = vec![Segment::Kept(300), Segment::Literal(&literal), Segment::Hole(100)];
    vec![
        ("patch", Patch { place, segments }.encode()),
        ("chunks", parts.finish(&place)),
        ("pack", pack()),
        ("compressed", Compressor::new(Compression::Level(3)).seal(pack(), true)),
        ("checked", checked),
        ("block", Block::seal(block, 4, 0, 300, 0)),
        ("end", EndFrame { need: 4, attempt: 0, outcome: Ok(whole) }.encode()),
        ("failed", EndFrame { need: 5, attempt: 2, outcome: Err(failed) }.encode()),
    ]
}

/// Returns archives with the headers that an import reads: those of 1988 and of GNU tar, records of pax, and both forms
/// of holes.
fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let records = |text: &[&str]| {
        let record = |text: &&str| {
            // The length counts itself; all of these have two digits.
            format!("{} {text}\n", text.len() + 4)
        };
        text.iter().map(record).collect::<String>().into_bytes()
    };
    let attrs = records(&["path=a/longer/path", "mtime=7.25", "SCHILY.xattr.user.a=value"]);
    let holes = records(&["GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=2048"]);
    let map = block(b"1\n1024\n512\n");
    let end = vec![0; 1024];
    vec![
        ("plain", [header(b'0', 3, &[]), block(b"abc"), header(b'5', 0, &[]), end.clone()].concat()),
        (
            "records",
            [header(b'x', attrs.len(), &[]), block(&attrs), header(b'2', 0, &[]), end.clone()].concat(),
        ),
        ("long", [header(b'L', 5, &[]), block(b"name\0"), header(b'0', 0, &[]), end.clone()].concat()),
        (
            "holes",
            [
                header(b'x', holes.len(), &[]),
                block(&holes),
                header(b'0', 1024, &[]),
                map,
                vec![7; 512],
                end.clone(),
            ]
            .concat(),
        ),
        ("old-holes", [header(b'S', 512, &[(1024, 512)]), vec![7; 512], end].concat()),
    ]
}

/// Returns bytes in a block of zeros.
fn block(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(bytes.len().next_multiple_of(512), 0);
    block
}

/// Returns a header of a file of 2,048 bytes, of which these ranges are data.
fn header(kind: u8, data_bytes: usize, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, b"name");
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{data_bytes:011o}\0").as_bytes());
    put(136, b"00000000007\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, b"target");
    put(257, b"ustar  \0");
    for (nth, (start, len)) in ranges.iter().enumerate() {
        put(386 + 24 * nth, format!("{start:011o}\0{len:011o}\0").as_bytes());
        put(483, format!("{:011o}\0", 2048).as_bytes());
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
