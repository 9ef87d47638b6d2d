//! A source that has the right key and breaks the protocol, against `volferry receive`: the run ends and names the
//! violation, and no entry that it should not touch was touched.

use syncer::internals::{
    block_sizes::MIN_BLOCK_BYTES,
    entry::{Entry, Kind},
    wire::Message,
};

use crate::common::hostile::{Hostile, dir, entry, file, frame, listed, put, tree, varints};
use crate::common::prelude::*;

pub(super) const BLOCK_LEN: u64 = MIN_BLOCK_BYTES as u64;

/// The length of a new file that comes in blocks. No file at the destination is as long, so the sink requests all of
/// it.
pub(super) const NEW_LEN: u64 = 5 * BLOCK_LEN;

/// The length of the destination's large file, which is long enough for chunks.
const OLD_BYTES: usize = 12 * MIN_BLOCK_BYTES;

/// The limit of a process's address space in KiB, with all its threads' stacks and mapped libraries.
const ADDRESS_SPACE_KIB: u32 = 1 << 20;

/// Compares all entries below the root: the run makes `.volferry` in the root.
const BELOW_ROOT: Aspects = Aspects { root: false, ..UNTOUCHED };

/// A `receive` that waits for its peer, and the files that a source could reach.
pub(super) struct Sink {
    pub pair: Pair,
    pub running: Running,
    pub outside: PathBuf,
    pub before: Snapshot,
}

impl Sink {
    /// Starts a `receive` whose destination has a file, a folder with a file, and a file long enough for chunks;
    /// connects to it.
    pub(super) fn start() -> (Self, Hostile) {
        Self::start_with(|_| {})
    }

    /// Starts a `receive` as [`Sink::start`] does, after `put_more` has added entries to the destination.
    pub(super) fn start_with(put_more: impl FnOnce(&Path)) -> (Self, Hostile) {
        let pair = Pair::new(Way::SinkListens);
        put_more(&pair.destination);
        let outside = pair.dir().join("outside");
        put(&outside.join("secret"), b"theirs");
        put(&pair.destination.join("kept"), b"kept");
        put(&pair.destination.join("d/kept"), b"kept");
        put(&pair.destination.join("old"), &vec![7; OLD_BYTES]);
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

    /// Waits for the end of the process, and checks that the files outside of the destination and in it are unchanged.
    #[track_caller]
    pub(super) fn end(self) -> (Ended, Pair) {
        let ended = self.running.wait();
        Snapshot::of(&self.outside).assert_like(&self.before, UNTOUCHED, "what is outside");
        for path in ["kept", "d/kept"] {
            assert_eq!(fs::read(self.pair.destination.join(path)).unwrap(), b"kept");
        }
        assert_eq!(fs::read(self.pair.destination.join("old")).unwrap(), vec![7; OLD_BYTES]);
        (ended, self.pair)
    }
}

/// Returns `volferry` with limited memory: more memory ends it with a signal, which is no documented exit.
pub(crate) fn bounded(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(program()).args(args).env("MALLOC_ARENA_MAX", "2");
    command
}

/// Offers one file `new` of this size, and checks that the sink's first request is for it.
pub(super) fn offer_new(peer: &mut Hostile, size: u64) {
    peer.offer(&[file("new", size)]);
    assert_eq!(peer.need().indices, [0]);
}

/// Offers a new file that is unlike all others in length and name, and waits until the sink requests its features.
fn offer_unlike(peer: &mut Hostile) {
    peer.offer(&[file("new", NEW_LEN)]);
    while !matches!(peer.hear().expect("nothing is asked"), Message::SampleRequest(_)) {}
}

pub(super) type Act = fn(&mut Hostile);

/// Checks that an attack is refused as a violation of the protocol with a message that contains `words`, and that no
/// visible entry changes.
#[track_caller]
pub(super) fn assert_refused(what: &str, attack: impl FnOnce(&mut Hostile), words: &str) {
    let (sink, mut peer) = Sink::start();
    let before = Snapshot::of(&sink.pair.destination);
    attack(&mut peer);
    let (ended, pair) = sink.end();
    ended.assert_exit(ExitCode::PeerLost);
    let Report { message, reason, .. } = ended.report();
    assert_eq!(reason.as_deref(), Some("ProtocolViolation"), "{what}: {message}");
    assert!(message.contains(words), "{what}: {message}");
    Snapshot::of(&pair.destination).assert_like(&before, BELOW_ROOT, what);
    pair.assert_only_parts_staged(1);
    let _ = peer.closed();
}

#[test]
fn bytes_that_are_no_message_end_the_run() {
    for (what, bytes, words) in [
        ("an unknown kind", frame(99, b""), "unknown kind 99"),
        ("a long frame", vec![3, 0, 0, 0, 0, 255, 255, 255, 255], "4294967295 bytes"),
        ("no JSON", frame(1, b"{"), "a malformed Hello"),
        ("more than the body", frame(7, b"x"), "a malformed NeedsEnd"),
    ] {
        let write = |peer: &mut Hostile| {
            peer.write(&bytes);
        };
        assert_refused(what, write, words);
    }
    let cut_off = |peer: &mut Hostile| {
        peer.write(&[3, 0, 0, 0, 0, 100, 0, 0, 0, 1, 2]);
        peer.finish();
    };
    assert_refused("a frame that is cut off", cut_off, "inside of a frame");
}

#[test]
fn messages_out_of_place_end_the_run() {
    let no_hello = |peer: &mut Hostile| {
        peer.say(&tree());
    };
    assert_refused("no Hello", no_hello, "Tree came instead of Hello");
    let two = |peer: &mut Hostile| {
        peer.hello();
        peer.hello();
    };
    assert_refused("two", two, "Hello came instead of Tree");
    let unasked = |peer: &mut Hostile| {
        peer.hello();
        peer.say(&tree());
        while !matches!(peer.hear(), Some(Message::Want(_))) {}
        peer.say(&listed(5, 6, &[]));
    };
    assert_refused("another directory", unasked, "a directory came that was not asked for");
    let too_much = |peer: &mut Hostile| {
        peer.hello();
        let names: Vec<_> = (0..20_000).map(|i| format!("{i:05}")).collect();
        let files: Vec<_> = names.iter().map(|name| file(name, 1)).collect();
        peer.say(&listed(0, 1, &files));
    };
    assert_refused("more than may be pushed", too_much, "more was pushed than may be");
    let other_features = |peer: &mut Hostile| {
        offer_unlike(peer);
        peer.say(&Message::Samples(vec![vec![1], vec![2]]));
    };
    assert_refused("features of more files", other_features, "other features came than were asked for");
    let short_features = |peer: &mut Hostile| {
        offer_unlike(peer);
        peer.write(&frame(20, &[3, 1, 2, 3, 4, 5, 6, 7, 8]));
    };
    assert_refused("features that end early", short_features, "a malformed Samples");
}

#[test]
fn listings_that_lead_elsewhere_or_lie_end_the_run() {
    let listings: &[(&str, Act, &str)] = &[
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
            "a directory in parts that lies",
            |peer| {
                peer.hello();
                peer.write(&frame(12, &varints(&[0, 1, 1, 0, 1])));
                peer.write(&frame(12, &varints(&[300_000, 0, 0])));
                for _ in 0..3 {
                    peer.write(&frame(12, &[0xff; 100_000]));
                }
                peer.write(&frame(3, &[0]));
            },
            "a malformed Listed: an entry has a flag",
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
    ];
    for (what, offer, words) in listings {
        assert_refused(what, offer, words);
    }
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
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT]);
    let address = sink.listening();
    for protocol in [&b"volferry/1"[..], b"volferry/4", b"h3"] {
        assert!(Hostile::try_dial(address, &pair.key("source"), protocol).is_err());
    }
    pair.start_send(&["--connect", &address.to_string()], &[]).wait().assert_exit(ExitCode::Done);
    sink.wait().assert_exit(ExitCode::Done);
    pair.assert_copy("after strangers");
}
