//! Content from a source that has the right key and breaks the protocol: frames that do not fit the request end the
//! run, and a false statement about a file fails that file.

use syncer::internals::{
    block_sizes::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES},
    codec::put_varint,
    delta::chunk_sizes::ChunkSizes,
    hash::{BlockHash, BlockHashes, TransferHash},
    wire::{
        BasisManifest, Message, Update,
        compress::COMPRESSED,
        data::{Block, END, EndFrame, PACK, PackBuilder, Whole},
        patch::{BlockHeader, ChunkPart, ChunksBuilder, Copied, Patch, Segment},
    },
};

use super::hostile_source::{BLOCK_LEN, NEW_LEN, Sink, assert_refused, offer_new};
use crate::common::hostile::{Hostile, file, frame, of_run, varints};
use crate::common::prelude::*;

/// Data that breaks the protocol, or lies about a file, after a source has offered it.
struct BadData {
    what: &'static str,
    offered: fn(&mut Hostile),
    data: Vec<u8>,
    words: &'static str,
}

/// Checks that each is refused with a message that contains its words.
#[track_caller]
fn assert_data_refused(all: Vec<BadData>) {
    for BadData { what, offered, data, words } in all {
        let attack = |peer: &mut Hostile| {
            offered(peer);
            peer.data(&data);
        };
        assert_refused(what, attack, words);
    }
}

/// Returns data that follows the offer of a file of 5 bytes.
fn after_small(what: &'static str, data: Vec<u8>, words: &'static str) -> BadData {
    BadData { what, offered: |peer| offer_new(peer, 5), data, words }
}

/// Returns data that follows the offer of a large file.
fn after_large(what: &'static str, data: Vec<u8>, words: &'static str) -> BadData {
    BadData { what, offered: |peer| offer_new(peer, NEW_LEN), data, words }
}

/// Returns data that follows the offer of another version of a large file.
fn after_update(what: &'static str, data: Vec<u8>, words: &'static str) -> BadData {
    BadData { what, offered: |peer| offer_update(peer, 2 * BLOCK_LEN), data, words }
}

/// Returns a compressed frame that says it holds `len` bytes.
fn compressed(len: u32, content: &[u8]) -> Vec<u8> {
    let packed = if content.is_empty() { Vec::new() } else { zstd::bulk::compress(content, 1).unwrap() };
    frame(PACK | COMPRESSED, &[&len.to_le_bytes()[..], &packed].concat())
}

#[test]
fn frames_that_are_none_or_were_not_asked_for_end_the_run() {
    let long = vec![PACK, 0, 0, 0, 0, 255, 255, 255, 255];
    let cut_off = vec![PACK, 0, 0, 0, 0, 100, 0, 0, 0, 1, 2];
    let bomb = compressed(3_000_000, &vec![0; 256 << 20]);
    assert_data_refused(vec![
        after_small("an unknown kind", frame(99, b""), "unknown kind 99"),
        after_small("a long frame", long, "4294967295 bytes"),
        after_small("a frame that is cut off", cut_off, "inside of a frame"),
        after_small("a run that has not begun", of_run(1, pack(0, b"hello")), "a run that has not begun"),
        after_small("a file that nobody needs", pack(7000, b"hello"), "not asked for"),
        after_small("a block of it", block(7000, 300, 0, &[1; 300]), "not asked for"),
        after_small("a pack larger than it is", frame(PACK, &varints(&[0, 0, 1 << 40])), "a malformed Pack"),
        after_large("a block beyond its file", block(0, 100, 0, &[1; 300]), "a malformed Block"),
        after_small("a bomb", bomb, "a malformed compressed frame"),
        after_small("a length that is a lie", compressed(101, &[7; 100]), "a malformed compressed frame"),
        after_small("a frame that unpacks to too much", compressed(u32::MAX, b""), "4294967295 bytes"),
    ]);
}

#[test]
fn parts_that_do_not_fit_their_file_end_the_run() {
    let first = |content: u8| block(0, 2 * BLOCK_LEN, 0, &[content; MIN_BLOCK_BYTES]);
    let of_other_length = block(0, BLOCK_LEN + 5, BLOCK_LEN, b"hello");
    let kept = Patch { place: place(2 * BLOCK_LEN), segments: vec![Segment::Kept(BLOCK_LEN)] }.encode();
    let chunk = || chunks(2 * BLOCK_LEN, 0, CHUNK_LEN);
    let short = chunks(2 * BLOCK_LEN, 0, CHUNK_LEN - 1);
    let other_way = "in another way than it was begun";
    assert_data_refused(vec![
        after_large("two lengths", [first(1), of_other_length].concat(), "two lengths"),
        after_large("a block that comes twice", [first(1), first(2)].concat(), "came more than once"),
        after_large("bytes kept of no file", kept, "kept of a file that there is not"),
        after_large("chunks of no file", chunks(3 * BLOCK_LEN, 0, CHUNK_LEN), other_way),
        after_update("chunks that come twice", [chunk(), chunk()].concat(), "came more than once"),
        after_update("chunks that are shorter than it cuts", short, "a chunk is too short"),
        after_update("a block of a file that comes in chunks", first(1), other_way),
    ]);
}

pub(crate) fn pack(need: u32, content: &[u8]) -> Vec<u8> {
    let mut pack = PackBuilder::default();
    pack.push(need, None, None, content.len(), |frame| {
        frame.extend_from_slice(content);
        Ok::<_, ()>(())
    })
    .unwrap();
    pack.finish()
}

pub(crate) fn block(need: u32, file_len: u64, offset: u64, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; Block::PREFIX_BYTES];
    frame.extend_from_slice(content);
    Block::seal(frame, need, 0, file_len, offset)
}

pub(crate) fn end(file_len: u64, hash: TransferHash) -> Vec<u8> {
    EndFrame { need: 0, attempt: 0, outcome: Ok(Whole { file_len, hash, fresh: None, in_motion: false }) }
        .encode()
}

pub(crate) fn place(file_len: u64) -> BlockHeader {
    BlockHeader { need: 0, attempt: 0, file_len, offset: 0 }
}

/// The smallest length of a chunk.
const CHUNK_LEN: u32 = ChunkSizes::for_len(0).min();

/// Makes the chunks of a file: one chunk, copied from the basis.
pub(crate) fn chunks(file_len: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut chunks = ChunksBuilder::default();
    chunks.push(ChunkPart { copied: Some(Copied { offset, len }), literal: b"" });
    chunks.finish(&place(file_len))
}

/// Offers another version of the destination's large file, and waits for the chunks of its basis.
fn offer_update(peer: &mut Hostile, size: u64) {
    peer.offer(&[file("old", size)]);
    loop {
        match peer.hear() {
            Some(Message::Update(Update { need: 0, basis: BasisManifest::Chunks(_), .. })) => return,
            Some(Message::Welcome(_) | Message::Want(_) | Message::Forecast(_)) => {}
            other => panic!("not an update: {other:?}"),
        }
    }
}

/// Checks that data that lies about a file's content fails only that file, and that the destination's entries stay.
#[track_caller]
fn assert_file_fails(lies: Vec<BadData>) {
    for BadData { what, offered, data, words } in lies {
        let (sink, mut peer) = Sink::start();
        let before = Snapshot::of(&sink.pair.destination);
        offered(&mut peer);
        peer.data(&data);
        peer.done();
        let (ended, pair) = sink.end();
        ended.assert_exit(ExitCode::Partial);
        let report = ended.report();
        assert!(report.failures[0].error.contains(words), "{what}: {:?}", report.failures);
        assert_eq!(report.work.files_failed, 1, "{what}");
        assert!(!pair.destination.join("new").exists(), "{what}");
        let entries = |at: &Snapshot| at.entries().count();
        assert_eq!(entries(&Snapshot::of(&pair.destination)), entries(&before), "{what}");
        pair.assert_staging_empty();
    }
}

const NO_HASH: &str = "does not have the hash";

/// Returns data of another hash that follows the offer of a file of 200,000 bytes.
fn after_blocks(what: &'static str, data: Vec<u8>) -> BadData {
    BadData { what, offered: |peer| offer_new(peer, 200_000), data, words: NO_HASH }
}

#[test]
fn a_lie_about_content_is_the_failure_of_its_file() {
    let mut changed = pack(0, b"hello");
    *changed.last_mut().unwrap() ^= 1;
    let blocks = block(0, 200_000, 0, &[1; 200_000]);
    let end_of = |len, hash: [u8; 32]| end(len, TransferHash(hash));
    let early_end = end(200_000, TransferHash::of(&[2; 200_000]));
    let beyond = [chunks(100, 1 << 40, 100), end_of(100, [3; 32])].concat();
    let longest = 1 << 61;
    let hole = Patch { place: place(longest), segments: vec![Segment::Hole(longest)] }.encode();
    assert_file_fails(vec![
        after_small("a packed file", changed, NO_HASH),
        after_blocks("a file in blocks", [blocks.clone(), end_of(200_000, [1; 32])].concat()),
        after_blocks("the end before the content", [early_end, blocks].concat()),
        after_update("a file in chunks", three_chunks(), NO_HASH),
        after_update("chunks beyond the file that they are copied from", beyond, ""),
        after_large("the longest file there can be", [hole, end_of(longest, [4; 32])].concat(), ""),
        BadData {
            offered: |peer| offer_new(peer, 500),
            ..after_small("more kept of a small file than there is", more_kept_than_there_is(), "")
        },
    ]);
}

/// Makes a file of three chunks, of which the last comes before the second, and whose hash is another.
fn three_chunks() -> Vec<u8> {
    let len = u64::from(CHUNK_LEN);
    let parts = [0, 2 * len, len].map(|offset| {
        let mut chunks = ChunksBuilder::default();
        let copied = Some(Copied { offset, len: CHUNK_LEN });
        chunks.push(ChunkPart { copied, literal: b"" });
        chunks.finish(&BlockHeader { offset, ..place(3 * len) })
    });
    [parts.concat(), end(3 * len, TransferHash([3; 32]))].concat()
}

/// Makes a pack with a patch of a small file that is not at the destination.
fn more_kept_than_there_is() -> Vec<u8> {
    let files = [&varints(&[0, 4, 500])[..], &500_u32.to_le_bytes(), &[5; 32]].concat();
    let hash = TransferHash::of(&files).0;
    frame(PACK, &[&hash[..], &files].concat())
}

#[test]
fn a_part_that_comes_before_it_was_asked_for_ends_the_run() {
    const LEN: u64 = 1 << 40;
    let (sink, mut peer) = Sink::start_with(|destination| {
        fs::create_dir_all(destination).unwrap();
        fs::File::create(destination.join("huge")).unwrap().set_len(LEN).unwrap();
    });
    peer.offer(&[file("huge", LEN)]);
    // The sink sends its basis in 32,768 messages, more than the queue to a peer holds that reads only the first.
    while !matches!(
        peer.hear().unwrap(),
        Message::Update(Update { need: 0, basis: BasisManifest::Granules(_), .. })
    ) {}
    peer.data(&block(0, LEN, LEN - MAX_BLOCK_BYTES as u64, &[1; MAX_BLOCK_BYTES]));
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::PeerLost);
    let message = &ended.report().message;
    assert!(message.contains("came before it was asked for"), "{message}");
    pair.assert_staging_empty();
}

#[test]
fn a_large_file_that_has_become_empty_arrives_empty() {
    let (sink, mut peer) = Sink::start();
    offer_new(&mut peer, 200_000);
    peer.data(&end(0, TransferHash::of(&[])));
    peer.done();
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::Done);
    assert_eq!(fs::read(pair.destination.join("new")).unwrap(), b"");
}

#[test]
fn a_flood_of_files_of_any_length_takes_no_memory() {
    let (sink, mut peer) = Sink::start();
    let names: Vec<_> = (0..2000).map(|i| format!("n{i:04}")).collect();
    peer.offer(&names.iter().map(|name| file(name, BLOCK_LEN)).collect::<Vec<_>>());
    assert_eq!(peer.need().indices.len(), 2000);
    let len = (1 << 40) + 100;
    let frames: Vec<_> = (0..2000).map(|need| block(need, len, 1 << 40, &[1; 100])).collect();
    let failures: Vec<_> = (0..2000).map(failed).collect();
    peer.data(&[frames.concat(), failures.concat()].concat());
    peer.done();
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::Partial);
    assert_eq!(ended.report().work.files_failed, 2000);
    assert!(!pair.destination.join("n0000").exists());
    pair.assert_staging_empty();
}

fn failed(need: u32) -> Vec<u8> {
    let mut body = Vec::new();
    put_varint(&mut body, need.into());
    body.extend_from_slice(&[0, 2, 0, 0]);
    frame(END, &body)
}

#[test]
fn of_a_flood_of_streams_eight_are_let_in_and_the_run_goes_on() {
    let (sink, mut peer) = Sink::start();
    offer_new(&mut peer, 5);
    let streams = peer.flood(&[PACK]);
    assert_eq!(streams.len(), 8);
    let rest = &pack(0, b"hello")[1..];
    peer.go_on(streams, rest);
    peer.done();
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::Done);
    assert_eq!(fs::read(pair.destination.join("new")).unwrap(), b"hello");
}

#[test]
fn a_source_by_hand_that_keeps_to_the_rules_is_served() {
    let (sink, mut peer) = Sink::start();
    let len = NEW_LEN;
    offer_new(&mut peer, len);
    let mut hashes = BlockHashes::new(len);
    let content = [8; MIN_BLOCK_BYTES];
    assert!(hashes.set(0, BlockHash::of(&content, 0, len)));
    assert!(hashes.set(BLOCK_LEN, BlockHash::of_hole(4 * BLOCK_LEN, len)));
    let hole = Patch {
        place: BlockHeader { offset: BLOCK_LEN, ..place(len) },
        segments: vec![Segment::Hole(4 * BLOCK_LEN)],
    };
    peer.data(&[hole.encode(), end(len, hashes.finish().unwrap()), block(0, len, 0, &content)].concat());
    peer.done();
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::Done);
    let expected = [&content[..], &vec![0; 4 * MIN_BLOCK_BYTES]].concat();
    assert!(fs::read(pair.destination.join("new")).unwrap() == expected);
}
