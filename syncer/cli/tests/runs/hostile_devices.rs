//! Peers that have the right key and break the protocol, where one end is a device: the length of the device limits the
//! offsets that they may name.

use contract::{ChangedBlocks, ChangedRanges};
use syncer::internals::{
    block_sizes::MIN_BLOCK_BYTES,
    delta::short_name::ShortName,
    hash::TransferHash,
    wire::{
        BasisManifest, FileGroup, Message, Prefix, Update,
        patch::{BlockHeader, Patch, Segment},
    },
};

use crate::common::prelude::*;
use crate::{
    common::hostile::{Hostile, hello_of, put, tree},
    hostile_content::{block, chunks, end, pack, place},
    hostile_sink::{assert_violation, chunks as chunk_names, granules, need, sketch, update},
    hostile_source::bounded,
};

const LEN: u64 = 3 * MIN_BLOCK_BYTES as u64;

/// Runs `attack` as the source of a `receive` whose destination is an image of three blocks, or does not exist. Returns
/// the end of the process.
fn against_sink(is_new: bool, attack: impl FnOnce(&mut Hostile)) -> (Ended, Pair) {
    let mut pair = Pair::new(Way::SinkListens);
    pair.destination = pair.dir().join("image");
    put(&pair.dir().join("secret"), b"theirs");
    if !is_new {
        put(&pair.destination, &vec![7; LEN as usize]);
    }
    let mut running = Running::start(bounded(&[
        "receive",
        text(&pair.destination),
        "--image",
        "--once",
        "--progress=json",
        "--identity",
        text(&pair.key("sink")),
        "--listen=127.0.0.1:0",
    ]));
    let mut peer = Hostile::dial(running.listening(), &pair.key("source"));
    attack(&mut peer);
    let ended = running.wait();
    assert_eq!(fs::read(pair.dir().join("secret")).unwrap(), b"theirs");
    (ended, pair)
}

/// Offers a device of the image's length, and waits until the sink requests its only part.
fn offer(peer: &mut Hostile) {
    peer.say(&hello_of(Some(LEN)));
    loop {
        match peer.hear() {
            Some(Message::Update(Update {
                need: 0,
                dir: 0,
                index: 0,
                basis: BasisManifest::Granules(names),
            })) => {
                assert_eq!(names.file_len(), LEN);
                return;
            }
            Some(Message::Need(needs)) => return assert_eq!(needs.indices, [0]),
            Some(Message::Welcome(_) | Message::Forecast(_)) => {}
            other => panic!("not the part: {other:?}"),
        }
    }
}

fn hole(file_len: u64, offset: u64, len: u64) -> Vec<u8> {
    let place = BlockHeader { offset, ..place(file_len) };
    Patch { place, segments: vec![Segment::Hole(len)] }.encode()
}

#[test]
fn what_is_beyond_a_device_is_neither_written_nor_made_room_for() {
    static SAME: [u8; MIN_BLOCK_BYTES] = [7; MIN_BLOCK_BYTES];
    type Attack = (&'static str, fn() -> Vec<u8>, &'static str);
    let attacks: [Attack; 11] = [
        ("a longer part", || block(0, 1 << 30, 0, &SAME), "has another length"),
        ("a shorter part", || block(0, LEN - 1, 0, &SAME), "has another length"),
        ("a block behind the end", || block(0, 1 << 30, LEN, &SAME), "has another length"),
        ("a block behind its own end", || block(0, LEN, LEN, &SAME), "a malformed Block"),
        ("a hole of everything", || hole(1 << 50, 0, 1 << 50), "has another length"),
        ("a hole over the end", || hole(LEN, 0, LEN + 1), "a malformed Patch"),
        ("an end of another length", || end(LEN + 1, TransferHash([0; 32])), "has another length"),
        ("a part that was not asked for", || block(1, LEN, 0, &SAME), "that was not asked for"),
        ("a block twice", || [block(0, LEN, 0, &SAME), block(0, LEN, 0, &SAME)].concat(), "more than once"),
        ("a small file", || pack(0, &[9; 100]), "in another way"),
        ("chunks", || chunks(LEN, 0, 100), "in another way"),
    ];
    for (what, frames, words) in attacks {
        let (ended, pair) = against_sink(false, |peer| {
            offer(peer);
            peer.data(&frames());
        });
        assert_violation(&ended, what, words);
        assert!(fs::read(&pair.destination).unwrap() == [7; LEN as usize], "{what}");
    }
}

#[test]
fn a_length_that_no_device_has_ends_the_run() {
    for len in [0, 1 << 60, u64::MAX] {
        let (ended, pair) = against_sink(false, |peer| {
            peer.say(&hello_of(Some(len)));
            while peer.hear().is_some() {}
        });
        assert_violation(&ended, &len.to_string(), "no bytes, or more than one may have");
        assert!(fs::read(&pair.destination).unwrap() == [7; LEN as usize], "{len}");
    }
}

#[test]
fn blocks_that_changed_behind_the_end_of_a_device_end_the_run() {
    let (ended, pair) = against_sink(false, |peer| {
        let Message::Hello(mut hello) = hello_of(Some(LEN)) else { panic!() };
        let ranges = ChangedRanges::new([(0, 1), (LEN - 1, 2)]).unwrap();
        hello.params.changed_blocks = Some(ChangedBlocks { ranges, ..ChangedBlocks::default() });
        peer.say(&Message::Hello(hello));
        while peer.hear().is_some() {}
    });
    assert_violation(&ended, "beyond", "blocks changed behind the end of a device");
    assert!(fs::read(&pair.destination).unwrap() == [7; LEN as usize]);
}

#[test]
fn nothing_is_kept_of_a_new_image() {
    let (ended, _) = against_sink(true, |peer| {
        offer(peer);
        peer.data(
            &Patch { place: place(LEN), segments: vec![Segment::Kept(MIN_BLOCK_BYTES as u64)] }.encode(),
        );
    });
    assert_violation(&ended, "kept", "kept of a file that there is not");
}

#[test]
fn a_tree_in_a_devices_run_ends_it() {
    let (ended, _) = against_sink(false, |peer| {
        offer(peer);
        peer.data(&[hole(LEN, 0, LEN), end(LEN, TransferHash([0; 32]))].concat());
        peer.say(&tree());
        while peer.hear().is_some() {}
    });
    assert_violation(&ended, "a tree", "Tree came instead of SourceDone");
}

#[test]
fn a_lie_about_a_devices_content_is_its_failure() {
    let (ended, _) = against_sink(false, |peer| {
        offer(peer);
        peer.data(&[hole(LEN, 0, LEN), end(LEN, TransferHash([0; 32]))].concat());
        peer.done();
    });
    ended.assert_exit(ExitCode::Partial);
    let report = ended.report();
    assert!(report.failures[0].error.contains("does not have the hash"), "{:?}", report.failures);
    assert_eq!(report.work.files_failed, 1);
}

/// Runs `attack` as the sink of a `send` of an image of three blocks. Returns the end of the process.
fn against_source(attack: impl FnOnce(&mut Hostile)) -> Ended {
    let mut pair = Pair::new(Way::SourceListens);
    pair.is_of_devices = true;
    put(&pair.source.join("image"), &vec![5; LEN as usize]);
    let folder = pair.source.clone();
    pair.source = folder.join("image");
    let before = Snapshot::of(&folder);
    let mut source = pair.start_send(&["--listen", ANY_PORT], &[]);
    let mut peer = Hostile::dial(source.listening(), &pair.key("sink"));
    peer.say(&Message::Welcome(syncer::internals::wire::Welcome { version: "0".into(), dry_run: false }));
    assert!(matches!(peer.hear(), Some(Message::Hello(hello)) if hello.device == Some(LEN)));
    attack(&mut peer);
    peer.close();
    let ended = source.wait();
    Snapshot::of(&folder).assert_like(&before, UNTOUCHED, "the source");
    ended
}

#[test]
fn parts_that_a_device_does_not_have_cannot_be_asked_for() {
    let hash = |dir, index| Message::Hash(vec![FileGroup { dir, indices: vec![index] }]);
    let attacks: [(&str, Message, &str); 7] = [
        ("a second part", need(0, &[1], vec![]), "a file was asked for that there is not"),
        ("a folder", need(1, &[0], vec![]), "in a directory that there is not"),
        ("an update of a second part", update(0, 1, granules(100)), "a file was asked for that there is not"),
        ("the hash of a second part", hash(0, 1), "something was asked about a file that there is not"),
        (
            "the features of a second part",
            sketch(0, &[1]),
            "something was asked about a file that there is not",
        ),
        ("the hash in a folder", hash(1, 0), "something was asked about a file that there is not"),
        ("a folder's listing", Message::Want(vec![1]), "a directory was asked for that there is not"),
    ];
    for (what, message, words) in attacks {
        let ended = against_source(|peer| {
            peer.say(&message);
            while peer.hear().is_some() {}
        });
        assert_violation(&ended, what, words);
    }
}

#[test]
fn what_the_sink_says_it_has_of_a_device_may_be_anything() {
    let far = Prefix { nth: 0, len: u32::MAX, name: ShortName::from_prefix(&[1; 8]).unwrap() };
    let requests = [
        need(0, &[0], vec![far]),
        update(0, 0, granules(1 << 30)),
        update(0, 0, granules(5)),
        update(0, 0, chunk_names(&[1; 50_000])),
        Message::Hash(vec![FileGroup { dir: 0, indices: vec![0] }]),
        sketch(0, &[0]),
    ];
    for request in requests {
        let ended = against_source(|peer| peer.request(&request));
        ended.assert_exit(ExitCode::Done);
        assert_eq!(ended.report().result, RunResult::Succeeded);
    }
}
