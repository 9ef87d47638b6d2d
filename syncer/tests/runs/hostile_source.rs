//! A source that has the right key and keeps to nothing else, against `volferry receive`: the run ends, says what was broken, and nothing
//! that it should not touch was touched.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use contract::{ExitCode, Report};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use syncer::{
    codec::put_varint,
    entry::{Entry, Kind},
    hash::{BLOCK_BYTES, BlockHash, BlockHashes, ContentHash},
    wire::{
        Basis, Message, Update,
        compress::COMPRESSED,
        data::{Block, END, End, PACK, PackBuilder, Whole},
        patch::{ChunksBuilder, Patch, Place, Segment},
    },
};

use crate::common::{
    hostile::{Hostile, dir, entry, file, frame, listed, put, tree, varints},
    oracle::{Aspects, Snapshot, UNTOUCHED},
    pair::{Pair, Way, text},
    process::{Ended, Running, program},
};

const BLOCK_LEN: u64 = BLOCK_BYTES as u64;

/// Of a new file that comes in blocks. Nothing at the destination is as long, so all of it is asked for.
const NEW_LEN: u64 = 5 * BLOCK_LEN;

/// What a process may take, in KiB, all its threads' stacks and mapped libraries included.
const ADDRESS_SPACE_KIB: u32 = 1 << 20;

/// The root itself has `.volferry` made in it.
const BELOW_ROOT: Aspects = Aspects { root: false, ..UNTOUCHED };

/// A `receive` that waits, and what a source could reach.
struct Sink {
    pair: Pair,
    running: Running,
    outside: PathBuf,
    before: Snapshot,
}

impl Sink {
    /// Whose destination already has a file, a folder with a file, and a file of three blocks.
    fn start() -> (Self, Hostile) {
        Self::start_with(|_| {})
    }

    /// The same, with what else is put into the destination.
    fn start_with(put_more: impl FnOnce(&Path)) -> (Self, Hostile) {
        let pair = Pair::new(Way::SinkListens);
        put_more(&pair.destination);
        let outside = pair.dir().join("outside");
        put(&outside.join("secret"), b"theirs");
        put(&pair.destination.join("kept"), b"kept");
        put(&pair.destination.join("d/kept"), b"kept");
        put(&pair.destination.join("old"), &vec![7; 3 * BLOCK_BYTES]);
        let before = Snapshot::of(&outside);
        let mut running = Running::start(bounded(&[
            "receive",
            text(&pair.destination),
            "--once",
            "--progress=json",
            "--identity",
            text(&pair.key("sink")),
            "--listen=127.0.0.1:0",
        ]));
        let peer = Hostile::dial(running.listening(), &pair.key("source"));
        (Self { pair, running, outside, before }, peer)
    }

    /// The end of the process. What is outside of the destination is as it was, and so is what was in it.
    #[track_caller]
    fn end(self) -> (Ended, Pair) {
        let ended = self.running.wait();
        Snapshot::of(&self.outside).assert_like(&self.before, UNTOUCHED, "what is outside");
        for path in ["kept", "d/kept"] {
            assert_eq!(fs::read(self.pair.destination.join(path)).unwrap(), b"kept");
        }
        assert_eq!(fs::read(self.pair.destination.join("old")).unwrap(), vec![7; 3 * BLOCK_BYTES]);
        (ended, self.pair)
    }
}

/// `volferry` with little memory: what would take more of it ends with a signal, which is no documented exit.
pub(crate) fn bounded(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(program()).args(args).env("MALLOC_ARENA_MAX", "2");
    command
}

/// What is asked for of one file `new` of this size, as the first need of the run.
fn offer_new(peer: &mut Hostile, size: u64) {
    peer.offer(&[file("new", size)]);
    assert_eq!(peer.need().indices, [0]);
}

type Act = fn(&mut Hostile);

/// What it is called, what is done, and words of the answer.
type Attack = (&'static str, Act, &'static str);

/// Each attack is answered as a violation of the protocol, with a message that has these words, and changes nothing.
#[track_caller]
fn assert_refused(attacks: &[Attack]) {
    for (what, attack, words) in attacks {
        let (sink, mut peer) = Sink::start();
        let before = Snapshot::of(&sink.pair.destination);
        attack(&mut peer);
        let (ended, pair) = sink.end();
        ended.assert_exit(ExitCode::PeerLost);
        let Report { message, reason, .. } = ended.report();
        assert_eq!(reason.as_deref(), Some("ProtocolViolation"), "{what}: {message}");
        assert!(message.contains(words), "{what}: {message}");
        Snapshot::of(&pair.destination).assert_like(&before, BELOW_ROOT, what);
        pair.assert_staging_empty();
        let _ = peer.closed();
    }
}

#[test]
fn messages_that_are_none_or_out_of_place_end_the_run() {
    assert_refused(&[
        (
            "no Hello",
            |peer| {
                peer.say(&tree());
            },
            "Tree came instead of Hello",
        ),
        (
            "two",
            |peer| {
                peer.hello();
                peer.hello();
            },
            "Hello came instead of Tree",
        ),
        (
            "an unknown kind",
            |peer| {
                peer.write(&frame(99, b""));
            },
            "unknown kind 99",
        ),
        (
            "a long frame",
            |peer| {
                peer.write(&[3, 255, 255, 255, 255]);
            },
            "4294967295 bytes",
        ),
        (
            "a frame that is cut off",
            |peer| {
                peer.write(&[3, 100, 0, 0, 0, 1, 2]);
                peer.finish();
            },
            "inside of a frame",
        ),
        (
            "no JSON",
            |peer| {
                peer.write(&frame(1, b"{"));
            },
            "a malformed Hello",
        ),
        (
            "more than the body",
            |peer| {
                peer.write(&frame(7, b"x"));
            },
            "a malformed NeedsEnd",
        ),
        (
            "a directory that was not asked for",
            |peer| {
                peer.hello();
                peer.say(&tree());
                while !matches!(peer.hear(), Some(Message::Want(_))) {}
                peer.say(&listed(5, 6, &[]));
            },
            "a directory came that was not asked for",
        ),
        (
            "more than may be pushed",
            |peer| {
                peer.hello();
                let names: Vec<_> = (0..20_000).map(|i| format!("{i:05}")).collect();
                let files: Vec<_> = names.iter().map(|name| file(name, 1)).collect();
                peer.say(&listed(0, 1, &files));
            },
            "more was pushed than may be",
        ),
    ]);
}

#[test]
fn listings_that_lead_elsewhere_or_lie_end_the_run() {
    assert_refused(&[
        ("a path", |peer| peer.offer(&[file("d/kept", 1)]), "not a name"),
        ("the parent", |peer| peer.offer(&[dir("..")]), "not a name"),
        ("itself", |peer| peer.offer(&[dir(".")]), "not a name"),
        ("no name", |peer| peer.offer(&[file("", 1)]), "not a name"),
        ("a NUL", |peer| peer.offer(&[file("a\0b", 1)]), "not a name"),
        ("out of order", |peer| peer.offer(&[file("b", 1), file("a", 1)]), "not in order"),
        ("twice", |peer| peer.offer(&[file("a", 1), file("a", 1)]), "not in order"),
        ("a socket", |peer| peer.offer(&[entry(b"a", Kind::Socket)]), "a socket was sent"),
        ("our folder", |peer| peer.offer(&[dir(".volferry"), file("a", 1)]), "Volferry's own folder"),
        ("a link into it", |peer| peer.offer(&[Entry::hard_link(b"a", b".volferry/volume")]), "hard link"),
        ("a link out", |peer| peer.offer(&[Entry::hard_link(b"a", b"../outside/secret")]), "hard link"),
        ("a long file", |peer| peer.offer(&[file("a", u64::MAX)]), "beyond what a file can have"),
        (
            "more than there is",
            |peer| {
                peer.hello();
                peer.write(&frame(3, &varints(&[0, 1, u32::MAX.into(), 0, 1, 0, 0, 0])));
            },
            "a malformed Listed: the data ends too early",
        ),
        (
            "a tree without end",
            |peer| {
                let name = "n".repeat(255);
                peer.hello();
                peer.say(&tree());
                while let Some(message) = peer.hear() {
                    if let Message::Want(dirs) = message {
                        for at in dirs {
                            peer.say(&listed(at, at + 1, &[dir(&name)]));
                        }
                    }
                }
            },
            "a path is longer than a path can be",
        ),
    ]);
}

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
                peer.data(&[PACK, 255, 255, 255, 255]);
            },
            "4294967295 bytes",
        ),
        (
            "a frame that is cut off",
            |peer| {
                offer_new(peer, 5);
                peer.data(&[PACK, 100, 0, 0, 0, 1, 2]);
            },
            "inside of a frame",
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
                    block(0, 2 * BLOCK_LEN, 0, &[1; BLOCK_BYTES]),
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
                        block(0, 2 * BLOCK_LEN, 0, &[1; BLOCK_BYTES]),
                        block(0, 2 * BLOCK_LEN, 0, &[2; BLOCK_BYTES]),
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
                peer.data(&chunks(3 * BLOCK_LEN, Some((0, 100))));
            },
            "in another way than it was begun",
        ),
        (
            "chunks that come twice",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(
                    &[chunks(2 * BLOCK_LEN, Some((0, 100))), chunks(2 * BLOCK_LEN, Some((0, 100)))].concat(),
                );
            },
            "came more than once",
        ),
        (
            "a block of a file that comes in chunks",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(&block(0, 2 * BLOCK_LEN, 0, &[1; BLOCK_BYTES]));
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

pub(crate) fn end(file_len: u64, hash: ContentHash) -> Vec<u8> {
    End { need: 0, attempt: 0, outcome: Ok(Whole { file_len, hash, fresh: None }) }.encode()
}

pub(crate) fn place(file_len: u64) -> Place {
    Place { need: 0, attempt: 0, file_len, offset: 0 }
}

/// One chunk of 100 bytes from the start of the file.
pub(crate) fn chunks(file_len: u64, copied: Option<(u64, u32)>) -> Vec<u8> {
    let mut chunks = ChunksBuilder::default();
    chunks.push(copied, if copied.is_some() { b"" } else { &[9; 100] });
    chunks.finish(&place(file_len))
}

/// Offers another version of the destination's large file, and waits until its chunks are told.
fn offer_update(peer: &mut Hostile, size: u64) {
    peer.offer(&[file("old", size)]);
    loop {
        match peer.hear() {
            Some(Message::Update(Update { need: 0, basis: Basis::Chunks(_), .. })) => return,
            Some(Message::Welcome(_) | Message::Want(_)) => {}
            other => panic!("not an update: {other:?}"),
        }
    }
}

/// Each lie about a file's content is that file's failure: what was there stays.
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
                offer_new(peer, 300_000);
                peer.data(
                    &[block(0, 300_000, 0, &[1; 300_000]), end(300_000, ContentHash([1; 32]))].concat(),
                );
            },
            NO_HASH,
        ),
        (
            "the end before the content",
            |peer| {
                offer_new(peer, 300_000);
                peer.data(
                    &[end(300_000, ContentHash::of(&[2; 300_000])), block(0, 300_000, 0, &[1; 300_000])]
                        .concat(),
                );
            },
            NO_HASH,
        ),
        (
            "a file in chunks",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                let place = |offset| Place { offset, ..place(300) };
                let parts = [0, 200, 100].map(|offset| {
                    let mut chunks = ChunksBuilder::default();
                    chunks.push(Some((offset, 100)), b"");
                    chunks.finish(&place(offset))
                });
                peer.data(&[parts.concat(), end(300, ContentHash([3; 32]))].concat());
            },
            NO_HASH,
        ),
        (
            "chunks beyond the file that they are copied from",
            |peer| {
                offer_update(peer, 2 * BLOCK_LEN);
                peer.data(&[chunks(100, Some((1 << 40, 100))), end(100, ContentHash([3; 32]))].concat());
            },
            "",
        ),
        (
            "the longest file there can be",
            |peer| {
                let len = 1 << 61;
                offer_new(peer, NEW_LEN);
                let hole = Patch { place: place(len), segments: vec![Segment::Hole(len)] };
                peer.data(&[hole.encode(), end(len, ContentHash([4; 32]))].concat());
            },
            "",
        ),
        (
            "more kept of a small file than there is",
            |peer| {
                offer_new(peer, 500);
                let files = [&varints(&[0, 4, 500])[..], &500_u32.to_le_bytes(), &[5; 32]].concat();
                let hash = ContentHash::of(&files).0;
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
    // The sink says what it has in 32,768 messages, which are more than wait for a peer that hears the first alone.
    while !matches!(peer.hear().unwrap(), Message::Update(Update { need: 0, basis: Basis::Granules(_), .. }))
    {
    }
    peer.data(&block(0, LEN, LEN - BLOCK_LEN, &[1; BLOCK_BYTES]));
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::PeerLost);
    let message = &ended.report().message;
    assert!(message.contains("came before it was asked for"), "{message}");
    pair.assert_staging_empty();
}

#[test]
fn a_large_file_that_has_become_empty_arrives_empty() {
    let (sink, mut peer) = Sink::start();
    offer_new(&mut peer, 300_000);
    peer.data(&end(0, ContentHash::of(&[])));
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
fn a_source_that_falls_silent_is_noticed() {
    let (sink, mut peer) = Sink::start();
    offer_new(&mut peer, 5);
    peer.vanish();
    let (ended, _) = sink.end();
    ended.assert_exit(ExitCode::PeerLost);
    assert_eq!(ended.reason(), "PeerLost");
}

#[test]
fn a_peer_of_another_protocol_is_turned_away_and_the_wait_goes_on() {
    let pair = Pair::new(Way::SinkListens);
    put(&pair.source.join("file"), b"content");
    let mut sink = pair.start_receive(&["--once", "--listen", "127.0.0.1:0"]);
    let address = sink.listening();
    for protocol in [&b"volferry/0"[..], b"volferry/2", b"h3"] {
        assert!(Hostile::try_dial(address, &pair.key("source"), protocol).is_err());
    }
    pair.start_send(&["--connect", &address.to_string()], &[]).wait().assert_exit(ExitCode::Done);
    sink.wait().assert_exit(ExitCode::Done);
    pair.assert_copy("after strangers");
}

#[test]
fn a_folder_that_becomes_a_link_in_mid_run_leads_nowhere() {
    let cases: [(u64, Act); 2] = [
        (5, |peer| {
            peer.data(&pack(0, b"hello"));
        }),
        (300_000, |peer| {
            let content = [1; 300_000];
            peer.data(&[block(0, 300_000, 0, &content), end(300_000, ContentHash::of(&content))].concat());
        }),
    ];
    for (size, send) in cases {
        let (sink, mut peer) = Sink::start();
        peer.hello();
        peer.say(&listed(0, 1, &[dir("d")]));
        peer.say(&listed(1, 2, &[file("planted", size)]));
        peer.say(&tree());
        assert_eq!(peer.need().indices, [0]);
        let (folder, aside) = (sink.pair.destination.join("d"), sink.pair.dir().join("aside"));
        fs::rename(&folder, &aside).unwrap();
        symlink(&sink.outside, &folder).unwrap();
        send(&mut peer);
        peer.done();
        let Sink { running, outside, before, .. } = sink;
        let ended = running.wait();
        ended.assert_exit(ExitCode::Partial);
        assert!(
            ended.report().failures.iter().any(|failure| failure.path == "d/planted"),
            "{:?}",
            ended.report()
        );
        Snapshot::of(&outside).assert_like(&before, UNTOUCHED, "what the link leads to");
        assert!(!aside.join("planted").exists());
    }
}

#[test]
fn a_folder_and_a_link_that_change_places_all_the_time_lead_nowhere() {
    let pair = Pair::new(Way::SinkListens);
    for i in 0..40 {
        put(&pair.source.join(format!("d/e/{i}")), b"content");
    }
    let outside = pair.dir().join("outside");
    put(&outside.join("e/theirs"), b"theirs");
    let (folder, link) = (pair.destination.join("d"), pair.dir().join("link"));
    fs::create_dir_all(folder.join("e")).unwrap();
    symlink(&outside, &link).unwrap();
    let before = Snapshot::of(&outside);
    let stop = AtomicBool::new(false);
    // While a run replaces either of them, there is nothing to be exchanged.
    let swap = || renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).is_ok();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                swap();
            }
        });
        for i in 0..20 {
            put(&pair.source.join(format!("d/e/{}", i % 7)), format!("content {i}").as_bytes());
            for end in pair.run(&["--delete", "--force"]).ends() {
                assert!(
                    matches!(end.exit, Some(ExitCode::Done | ExitCode::Partial | ExitCode::Failed)),
                    "{end:?}"
                );
            }
            Snapshot::of(&outside).assert_like(&before, UNTOUCHED, "what the link leads to");
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn a_source_by_hand_that_keeps_to_the_rules_is_served() {
    let (sink, mut peer) = Sink::start();
    let len = NEW_LEN;
    offer_new(&mut peer, len);
    let mut hashes = BlockHashes::new(len);
    let content = [8; BLOCK_BYTES];
    assert!(hashes.set(0, BlockHash::of(&content, 0, len)));
    assert!(hashes.set(BLOCK_LEN, BlockHash::of_hole(4 * BLOCK_LEN)));
    let hole = Patch {
        place: Place { offset: BLOCK_LEN, ..place(len) },
        segments: vec![Segment::Hole(4 * BLOCK_LEN)],
    };
    peer.data(&[hole.encode(), end(len, hashes.finish().unwrap()), block(0, len, 0, &content)].concat());
    peer.done();
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::Done);
    let expected = [&content[..], &vec![0; 4 * BLOCK_BYTES]].concat();
    assert!(fs::read(pair.destination.join("new")).unwrap() == expected);
}
