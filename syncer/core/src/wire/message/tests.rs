use contract::{Action, ChangedBlocks, ChangedRanges, Difference, EntryKind};

use super::{fields::MAX_JSON_BYTES, *};
use crate::{
    delta::{
        checked::{CheckedBlock, CheckedBlocks, FileVersion},
        chunk_sizes::ChunkSizes,
        features::Sampling,
        granules::Granules,
        list::list,
        short_name::ShortName,
    },
    hash::{TransferHash, TreeDigest},
    tree::{
        attrs::{Attrs, put_attr},
        dir::{Mounts, Totals},
        entry::{Entry, Kind, Meta, Owner, Time},
        filter::MAX_RULES_BYTES,
        listing::ListingBuilder,
        owners::{MAX_OWNERS, Owners},
        path::RelPath,
    },
    wire::frame::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, read_header, stamp_frame},
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

fn file_groups() -> Vec<FileGroup> {
    vec![FileGroup { dir: 300, indices: vec![0, 1, 7] }, FileGroup { dir: 2, indices: vec![200] }]
}

fn hashes() -> Vec<Hashed> {
    let failed = Hashed::Failed { operation: "read".into(), error: "gone".into() };
    vec![
        Hashed::Is(TransferHash([7; 32])),
        Hashed::Changed,
        failed,
        Hashed::IsInMotion(TransferHash([8; 32])),
    ]
}

fn sketch() -> SampleRequest {
    SampleRequest { sampling: Sampling::new(1 << 20).unwrap(), files: file_groups() }
}

fn head() -> TreeHead {
    let totals =
        Totals { entries: 1, bytes: u64::MAX, skipped: 3, sparse: 4, newest: Time { seconds: -5, nanos: 6 } };
    TreeHead {
        root_meta: Meta { mode: 0o755, ..Meta::default() },
        root_attrs: Attrs::trusted(b"\x06user.a\x00").into(),
        digest: TreeDigest::default(),
        totals,
        mounts: Mounts { count: 2, first: RelPath::parse(b"a/b").unwrap() },
        owners: Owners::new(
            [(Owner { uid: 1000, gid: 0 }, 7), (Owner { uid: u32::MAX, gid: 5 }, u64::MAX)],
            3,
        ),
        last_run: Some(Time { seconds: 7, nanos: 8 }),
        source: SourceDone::default(),
    }
}

fn hello(params: RunParams, attrs: Classes, device: Option<u64>) -> Message {
    let whereabouts = Default::default();
    Message::Hello(Box::new(Hello { params, attrs, device, file: None, whereabouts, last: true }))
}

fn samples() -> Vec<Message> {
    let action = PlannedAction {
        action: Action::SetMetadata,
        kind: EntryKind::Folder,
        path: "a\\xff".into(),
        from: None,
        target: Some("b".into()),
        bytes: 0,
        differs: vec![Difference::Mode],
    };
    let refusal = Refusal { exit: ExitCode::Guard, reason: "R".into(), message: "m".into() };
    let ranges = ChangedRanges::new([(0, 4096), (1 << 30, 512)]).unwrap();
    let changed_blocks = Some(ChangedBlocks { ranges, ..ChangedBlocks::default() });
    let blocks = RunParams { changed_blocks, ..RunParams::default() };
    vec![
        hello(RunParams::default(), Classes::USER, None),
        hello(blocks, Classes::NONE, Some(1 << 40)),
        Message::Welcome(Welcome { version: "1".into(), dry_run: false }),
        Message::Listed(listed()),
        Message::Tree(Box::new(head())),
        Message::Want(vec![0, 1, u32::MAX]),
        Message::Forecast(Forecast { files: 3, bytes: u64::MAX }),
        Message::Need(Needs { first: 5, dir: 2, indices: vec![0, 1, 7, 200], prefixes: prefixes() }),
        Message::Need(Needs { first: 5, dir: 2, indices: vec![3], prefixes: vec![] }),
        Message::Update(update(BasisManifest::Granules(granules()))),
        Message::Update(update(BasisManifest::Granules(checked_granules()))),
        Message::Update(update(BasisManifest::Chunks(list(&[7; 100_000], ChunkSizes::FINE)))),
        Message::NeedsEnd,
        Message::SourceDone(Box::default()),
        Message::Report(Box::default()),
        Message::Refuse(refusal),
        Message::Planned(vec![action]),
        Message::Hash(file_groups()),
        Message::Hashed(hashes()),
        Message::Release(Release { epoch: [8; 16], groups: file_groups() }),
        Message::History(vec![1, 0, 0, 0, 0]),
        Message::SampleRequest(sketch()),
        Message::Samples(vec![vec![1, u64::MAX], vec![], vec![7]]),
    ]
}

fn name(byte: u8) -> ShortName {
    ShortName::from_prefix(&[byte; 8]).unwrap()
}

fn prefixes() -> Vec<Prefix> {
    vec![Prefix { nth: 1, len: 4096, name: name(1) }, Prefix { nth: 3, len: 0, name: name(2) }]
}

fn granules() -> Granules {
    Granules::new(100_000, 16 << 10, 0, (0..7).map(name).collect()).unwrap()
}

/// Returns the last granules of a file, of whose blocks all but one were checked.
fn checked_granules() -> Granules {
    let (len, start) = ((64 << 20) + 100_000, 64 << 20);
    let block = CheckedBlock { offset: start, value: [6; 32] };
    let checked = CheckedBlocks::new(FileVersion([5; 16]), len, start..len, vec![block]);
    Granules::new(len, 16 << 10, start, (0..7).map(name).collect()).unwrap().with_checked(checked.unwrap())
}

#[test]
fn checked_blocks_that_are_not_in_their_part_of_the_file_are_refused() {
    let mut frame = Vec::new();
    Message::Update(update(BasisManifest::Granules(checked_granules()))).encode(&mut frame);
    let nth = frame.iter().position(|byte| *byte == 6).unwrap() - 1;
    assert!(Message::decode(frame[0], &frame[HEADER_BYTES..]).is_ok());
    for (at, byte) in [(nth, 1), (nth - 1, 2), (nth - 1, 0x7f)] {
        let mut frame = frame.clone();
        frame[at] = byte;
        assert!(Message::decode(frame[0], &frame[HEADER_BYTES..]).is_err(), "{at} {byte}");
    }
}

fn update(basis: BasisManifest) -> Update {
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
    let header = read_header(*header, MAX_MESSAGE_BYTES).unwrap();
    assert_eq!((header.run, header.len), (0, body.len()));
    (header.kind, body)
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
    // What a history message holds goes to the end of its frame, whatever it is.
    for message in samples().into_iter().filter(|it| !matches!(it, Message::History(_))) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        frame.push(0x80);
        let (kind, body) = (frame[0], &frame[HEADER_BYTES..]);
        assert!(Message::decode(kind, body).is_err(), "{}", message.what());
    }
}

#[test]
fn a_frame_longer_than_the_limit_is_refused_by_its_header() {
    let header = |len: usize| {
        let [a, b, c, d] = (len as u32).to_le_bytes();
        [NEED, 7, 1, 0, 0, a, b, c, d]
    };
    let max = MAX_MESSAGE_BYTES;
    assert_eq!(read_header(header(max), max), Ok(Header { kind: NEED, run: 263, len: max }));
    assert_eq!(read_header(header(max + 1), max), Err(WireError::TooLong { len: max + 1, max }));
}

/// Encodes the first message of a run with these parameters, and decodes it.
fn received(params: RunParams) -> Result<Message, WireError> {
    let mut frame = Vec::new();
    hello(params, Classes::default(), None).encode(&mut frame);
    Message::decode(HELLO, &frame[HEADER_BYTES..])
}

#[test]
fn json_longer_than_the_limit_is_refused_before_it_is_read() {
    let exclude = vec!["x".repeat(100); 12_000];
    let refused = received(RunParams { exclude, ..RunParams::default() });
    assert!(matches!(refused, Err(WireError::TooLong { max: MAX_JSON_BYTES, .. })), "{refused:?}");
}

#[test]
fn more_patterns_than_the_limit_are_refused() {
    let patterns = |count| {
        let (include, exclude) = (vec!["x".into(); count], vec!["y".into(); count]);
        received(RunParams { include, exclude, ..RunParams::default() })
    };
    assert!(patterns(MAX_PATTERNS / 2).is_ok());
    assert!(matches!(patterns(MAX_PATTERNS / 2 + 1), Err(WireError::Malformed { what: "Hello", .. })));
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
    Message::Hash(file_groups()).encode(&mut frame);
    assert_eq!(frame, [HASH, 0, 0, 0, 0, 10, 0, 0, 0, 0xac, 2, 3, 0, 0, 5, 2, 1, 200, 1]);
    frame.clear();
    Message::Hashed(hashes()).encode(&mut frame);
    let body = [&[0][..], &[7; 32], &[1, 2, 4], b"read", &[4], b"gone", &[3], &[8; 32]].concat();
    assert_eq!(frame, [&[HASHED, 0, 0, 0, 0, body.len() as u8, 0, 0, 0], &body[..]].concat());
}

#[test]
fn more_hashes_than_there_may_be_are_neither_asked_for_nor_told() {
    for (count, fits) in [(MAX_HASHES as u32, true), (MAX_HASHES as u32 + 1, false)] {
        let mut ask = Vec::new();
        let groups = vec![FileGroup { dir: 0, indices: (0..count).collect() }];
        Message::Hash(groups).encode(&mut ask);
        assert_eq!(Message::decode(HASH, &ask[HEADER_BYTES..]).is_ok(), fits, "{count}");
        let empty = [0, 0].repeat(count as usize);
        assert_eq!(Message::decode(HASH, &empty).is_ok(), fits, "{count} groups of none");
        assert_eq!(Message::decode(HASHED, &vec![1; count as usize]).is_ok(), fits, "{count}");
    }
    assert!(Message::decode(HASH, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err(), "more than there is memory");
}

#[test]
fn a_planned_action_is_these_bytes() {
    let json = br#"[{"action":"setMetadata","kind":"folder","path":"a/b","bytes":0}]"#;
    let Ok(Message::Planned(actions)) = Message::decode(PLANNED, json) else { panic!("not read") };
    let mut frame = Vec::new();
    Message::Planned(actions).encode(&mut frame);
    assert_eq!(frame, [&[PLANNED, 0, 0, 0, 0, json.len() as u8, 0, 0, 0], &json[..]].concat());
}

#[test]
fn owners_are_told_in_order_and_so_many_at_most() {
    let tree = |owners: &[(u8, u8)]| {
        let mut body = vec![0; 6 + 48 + 9];
        put_varint(&mut body, owners.len() as u64);
        owners.iter().for_each(|(user, count)| body.extend([*user, 0, *count]));
        body.extend(b"\x09{\"usage\":{},\"failed\":0,\"failures\":[]}");
        Message::decode(TREE, &body)
    };
    let owner = |uid| Owner { uid, gid: 0 };
    let Ok(Message::Tree(head)) = tree(&[(1, 2), (3, 4)]) else { panic!("it was refused") };
    assert_eq!(head.owners, Owners::new([(owner(1), 2), (owner(3), 4)], 9));
    for owners in [&[(3, 4), (1, 2)][..], &[(1, 2), (1, 2)], &vec![(0, 1); MAX_OWNERS + 1]] {
        assert!(tree(owners).is_err(), "{} owners", owners.len());
    }
}

#[test]
fn mounts_have_the_path_of_the_first() {
    let tree = |mounts: &[u8]| {
        let body = [&[0; 6 + 48 + 6], mounts, b"\0\0\0{\"usage\":{},\"failed\":0,\"failures\":[]}"].concat();
        Message::decode(TREE, &body)
    };
    let Ok(Message::Tree(head)) = tree(b"\x02\x03a/b") else { panic!("it was refused") };
    assert_eq!(head.mounts, Mounts { count: 2, first: RelPath::parse(b"a/b").unwrap() });
    for bad in [b"\x01\0".as_slice(), b"\0\x01a", b"\x01\x02..", b"\x01\x02/a"] {
        assert!(tree(bad).is_err(), "{}", bad.escape_ascii());
    }
}

#[test]
fn a_listed_directory_is_these_bytes() {
    let mut frame = Vec::new();
    Message::Listed(listed()).encode(&mut frame);
    stamp_frame(&mut frame, 0x0102);
    let mut golden = vec![LISTED, 2, 1, 0, 0, 0, 0, 0, 0]; // of run 258
    golden.extend([3, 8]); // its number, the first number in it
    golden.extend([2, 1, 1]); // two entries, one directory, complete
    golden.extend([7, 3, 18]); // bytes of entries, owners, attributes
    golden.extend([0x39, 1, b'a', 0x38, 1, b'b', 9]);
    golden.extend([2, 0, 0]);
    golden.extend(*b"\x01\x10\x09user.some\x05value"); // 16 bytes of entry 1
    golden.extend([7; 16]);
    golden.extend([9; 16]);
    golden.extend([3; 16]);
    golden.extend(*b"\x04*.o\n"); // the rules
    golden[5] = (golden.len() - HEADER_BYTES) as u8;
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
