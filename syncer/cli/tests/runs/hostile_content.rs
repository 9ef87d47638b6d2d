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

use super::hostile_source::{Attack, BLOCK_LEN, NEW_LEN, Sink, assert_refused, offer_new};
use crate::common::hostile::{Hostile, file, frame, of_run, varints};
use crate::common::prelude::*;

#[test]
fn frames_that_are_none_or_were_not_asked_for_end_the_run() {
    assert_refused(&[
        (
            "an unknown kind",
            |peer| {
                offer_new(peer, 5);
                peer.data(&frame(99, b""));
            },
            "unknown kind 99",
        ),
        (
            "a long frame",
            |peer| {
                offer_new(peer, 5);
                peer.data(&[PACK, 0, 0, 0, 0, 255, 255, 255, 255]);
            },
            "4294967295 bytes",
        ),
        (
            "a frame that is cut off",
            |peer| {
                offer_new(peer, 5);
                peer.data(&[PACK, 0, 0, 0, 0, 100, 0, 0, 0, 1, 2]);
            },
            "inside of a frame",
        ),
        (
            "a frame of a run that has not begun",
            |peer| {
                offer_new(peer, 5);
                peer.data(&of_run(1, pack(0, b"hello")));
            },
            "a run that has not begun",
        ),
        (
            "a file that nobody needs",
            |peer| {
                offer_new(peer, 5);
                peer.data(&pack(7000, b"hello"));
            },
            "not asked for",
        ),
        (
            "a block of it",
            |peer| {
                offer_new(peer, 5);
                peer.data(&block(7000, 300, 0, &[1; 300]));
            },
            "not asked for",
        ),
        (
            "a pack that is larger than it is",
            |peer| {
                offer_new(peer, 5);
                peer.data(&frame(PACK, &varints(&[0, 0, 1 << 40])));
            },
            "a malformed Pack",
        ),
        (
            "a block beyond its file",
            |peer| {
                offer_new(peer, NEW_LEN);
                peer.data(&block(0, 100, 0, &[1; 300]));
            },
            "a malformed Block",
        ),
        (
            "a bomb",
            |peer| {
                offer_new(peer, 5);
                let bomb = zstd::bulk::compress(&vec![0; 256 << 20], 1).unwrap();
                peer.data(&frame(PACK | COMPRESSED, &[&3_000_000_u32.to_le_bytes()[..], &bomb].concat()));
            },
            "a malformed compressed frame",
        ),
        (
            "a length that is a lie",
            |peer| {
                offer_new(peer, 5);
                let packed = zstd::bulk::compress(&[7; 100], 1).unwrap();
                peer.data(&frame(PACK | COMPRESSED, &[&101_u32.to_le_bytes()[..], &packed].concat()));
            },
            "a malformed compressed frame",
        ),
        (
            "a frame that unpacks to too much",
            |peer| {
                offer_new(peer, 5);
                peer.data(&frame(PACK | COMPRESSED, &u32::MAX.to_le_bytes()));
            },
            "4294967295 bytes",
        ),
    ]);
}

#[test]
fn parts_that_do_not_fit_their_file_end_the_run() {
    assert_refused(&[
        (
            "two lengths",
            |peer| {
                offer_new(peer, NEW_LEN);
                let frames = [
                    block(0, 2 * BLOCK_LEN, 0, &[1; MIN_BLOCK_BYTES]),
                    block(0, BLOCK_LEN + 5, BLOCK_LEN, b"hello"),
                ];
                peer.data(&frames.concat());
            },
            "two lengths",
        ),
        (
            "a block that comes twice",
            |peer| {
                offer_new(peer, NEW_LEN);
                peer.data(
                    &[
                        block(0, 2 * BLOCK_LEN, 0, &[1; MIN_BLOCK_BYTES]),
                        block(0, 2 * BLOCK_LEN, 0, &[2; MIN_BLOCK_BYTES]),
                    ]
                    .concat(),
                );
            },
            "came more than once",
        ),
        (
            "bytes kept of a file that there is not",
            |peer| {
                offer_new(peer, NEW_LEN);
                peer.data(
                    &Patch { place: place(2 * BLOCK_LEN), segments: vec![Segment::Kept(BLOCK_LEN)] }.encode(),
                );
            },
            "kept of a file that there is not",
        ),
        (
            "chunks of a file that there is not",
            |peer| {
                offer_new(peer, NEW_LEN);
                peer.data(&chunks(3 * BLOCK_LEN, 0, CHUNK_LEN));
            },
            "in another way than it was begun",
        ),
        (
            "chunks that come twice",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(
                    &[chunks(2 * BLOCK_LEN, 0, CHUNK_LEN), chunks(2 * BLOCK_LEN, 0, CHUNK_LEN)].concat(),
                );
            },
            "came more than once",
        ),
        (
            "chunks that are shorter than it cuts",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(&chunks(2 * BLOCK_LEN, 0, CHUNK_LEN - 1));
            },
            "a chunk is too short",
        ),
        (
            "a block of a file that comes in chunks",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(&block(0, 2 * BLOCK_LEN, 0, &[1; MIN_BLOCK_BYTES]));
            },
            "in another way than it was begun",
        ),
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

/// Checks that each false statement about a file's content fails only that file, and that the destination's entries
/// stay.
#[track_caller]
fn assert_file_fails(lies: &[Attack]) {
    for (what, lie, words) in lies {
        let (sink, mut peer) = Sink::start();
        let before = Snapshot::of(&sink.pair.destination);
        lie(&mut peer);
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

#[test]
fn a_lie_about_content_is_the_failure_of_its_file() {
    const NO_HASH: &str = "does not have the hash";
    assert_file_fails(&[
        (
            "a packed file",
            |peer| {
                offer_new(peer, 5);
                let mut pack = pack(0, b"hello");
                *pack.last_mut().unwrap() ^= 1;
                peer.data(&pack);
            },
            NO_HASH,
        ),
        (
            "a file in blocks",
            |peer| {
                offer_new(peer, 200_000);
                peer.data(
                    &[block(0, 200_000, 0, &[1; 200_000]), end(200_000, TransferHash([1; 32]))].concat(),
                );
            },
            NO_HASH,
        ),
        (
            "the end before the content",
            |peer| {
                offer_new(peer, 200_000);
                peer.data(
                    &[end(200_000, TransferHash::of(&[2; 200_000])), block(0, 200_000, 0, &[1; 200_000])]
                        .concat(),
                );
            },
            NO_HASH,
        ),
        (
            "a file in chunks",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                let len = u64::from(CHUNK_LEN);
                let parts = [0, 2 * len, len].map(|offset| {
                    let mut chunks = ChunksBuilder::default();
                    let copied = Some(Copied { offset, len: CHUNK_LEN });
                    chunks.push(ChunkPart { copied, literal: b"" });
                    chunks.finish(&BlockHeader { offset, ..place(3 * len) })
                });
                peer.data(&[parts.concat(), end(3 * len, TransferHash([3; 32]))].concat());
            },
            NO_HASH,
        ),
        (
            "chunks beyond the file that they are copied from",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(&[chunks(100, 1 << 40, 100), end(100, TransferHash([3; 32]))].concat());
            },
            "",
        ),
        (
            "the longest file there can be",
            |peer| {
                let len = 1 << 61;
                offer_new(peer, NEW_LEN);
                let hole = Patch { place: place(len), segments: vec![Segment::Hole(len)] };
                peer.data(&[hole.encode(), end(len, TransferHash([4; 32]))].concat());
            },
            "",
        ),
        (
            "more kept of a small file than there is",
            |peer| {
                offer_new(peer, 500);
                let files = [&varints(&[0, 4, 500])[..], &500_u32.to_le_bytes(), &[5; 32]].concat();
                let hash = TransferHash::of(&files).0;
                peer.data(&frame(PACK, &[&hash[..], &files].concat()));
            },
            "",
        ),
    ]);
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
