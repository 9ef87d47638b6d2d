//! A sink that has the right key and breaks the protocol, against `volferry send`: the run ends and names the
//! violation, and the source is only read.

use syncer::internals::{
    delta::{
        chunk_sizes::ChunkSizes, features::Sampling, granules::Granules, list::list, short_name::ShortName,
    },
    wire::{BasisManifest, FileGroup, Message, Needs, Prefix, Refusal, SampleRequest, Update},
};

use crate::common::hostile::{Hostile, frame, of_run, put, varints};
use crate::common::prelude::*;

const NEED: u8 = 6;
const UPDATE: u8 = 11;
const SAMPLE_REQUEST: u8 = 19;

/// Runs `attack` as the sink of a `send` of a tree of two small files, one of three MiB and a folder, in the order of
/// names: `d`, `large`, `small`, `tiny`. Returns the end of the process.
fn against_source(attack: impl FnOnce(&mut Hostile)) -> Ended {
    let pair = Pair::new(Way::SourceListens);
    put(&pair.source.join("d/file"), b"content");
    put(&pair.source.join("large"), &vec![5; 3 << 20]);
    put(&pair.source.join("small"), b"small");
    put(&pair.source.join("tiny"), b"t");
    put(&pair.dir().join("secret"), b"a secret");
    let before = Snapshot::of(&pair.source);
    let mut source = pair.start_send(&["--listen", ANY_PORT], &[]);
    let mut peer = Hostile::dial(source.listening(), &pair.key("sink"));
    peer.welcome();
    attack(&mut peer);
    let status = fs::read_to_string(format!("/proc/{}/status", source.pid())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak: u64 = peak.map_or(0, |kib| kib.parse().unwrap());
    assert!(peak < 400 << 10, "{peak} KiB");
    peer.close();
    let ended = source.wait();
    Snapshot::of(&pair.source).assert_like(&before, UNTOUCHED, "the source");
    ended
}

pub(crate) fn need(dir: u32, indices: &[u32], prefixes: Vec<Prefix>) -> Message {
    Message::Need(Needs { first: 0, dir, indices: indices.to_vec(), prefixes })
}

pub(crate) fn update(dir: u32, index: u32, basis: BasisManifest) -> Message {
    Message::Update(Update { need: 0, dir, index, basis })
}

/// Makes a request for all features of these files.
pub(crate) fn sketch(dir: u32, indices: &[u32]) -> Message {
    let files = vec![FileGroup { dir, indices: indices.to_vec() }];
    Message::SampleRequest(SampleRequest { sampling: Sampling::within(u64::MAX, 0), files })
}

fn name(byte: u8) -> ShortName {
    ShortName::from_prefix(&[byte; 8]).unwrap()
}

pub(crate) fn granules(len: u64) -> BasisManifest {
    let bytes: u64 = 1 << 14;
    let names = (0..len.div_ceil(bytes)).map(|i| name(i as u8)).collect();
    BasisManifest::Granules(Granules::new(len, bytes, 0, names).unwrap())
}

pub(crate) fn chunks(content: &[u8]) -> BasisManifest {
    BasisManifest::Chunks(list(content, ChunkSizes::for_len(content.len() as u64)))
}

/// Makes the granules of one block, the `nth` of a file of three MiB.
fn block_of_granules(nth: u64) -> BasisManifest {
    let block: u64 = 1 << 20;
    let names = vec![name(nth as u8); 64];
    BasisManifest::Granules(Granules::new(3 * block, 1 << 14, nth * block, names).unwrap())
}

#[test]
fn what_there_is_of_a_file_is_said_in_order_and_of_few_files_at_once() {
    let say_parts = |parts: &[u64]| {
        let messages: Vec<_> = parts.iter().map(|nth| update(0, 1, block_of_granules(*nth))).collect();
        against_source(|peer| {
            let _ = messages.iter().all(|message| peer.say(message));
            while peer.hear().is_some() {}
        })
    };
    for parts in [&[1][..], &[0, 2], &[0, 0], &[0, 1, 0], &[0, 1, 2, 2]] {
        assert_violation(&say_parts(parts), &format!("{parts:?}"), "came out of order");
    }
    let chunks_after = against_source(|peer| {
        peer.say(&update(0, 1, block_of_granules(0)));
        peer.say(&update(0, 1, chunks(&[5; 3 << 20])));
        while peer.hear().is_some() {}
    });
    assert_violation(&chunks_after, "chunks after granules", "came out of order");
    let flood = against_source(|peer| {
        for need in 0..300 {
            let basis = block_of_granules(0);
            peer.say(&Message::Update(Update { need, dir: 0, index: 1, basis }));
        }
        while peer.hear().is_some() {}
    });
    assert_violation(&flood, "many files at once", "too many large files");
}

#[test]
fn what_there_is_not_cannot_be_asked_for() {
    let attacks: [(&str, Message, &str); 13] = [
        ("a directory", Message::Want(vec![9999]), "a directory was asked for that there is not"),
        ("the last number", Message::Want(vec![u32::MAX]), "a directory was asked for that there is not"),
        ("a file in it", need(9999, &[0], vec![]), "in a directory that there is not"),
        ("a place", need(0, &[1, 4], vec![]), "a file was asked for that there is not"),
        ("the last place", need(0, &[u32::MAX - 1], vec![]), "a file was asked for that there is not"),
        ("a directory's content", need(0, &[0], vec![]), "that is not a file"),
        ("an update in no directory", update(9999, 0, granules(100)), "in a directory that there is not"),
        ("an update of no file", update(0, 4, granules(100)), "a file was asked for that there is not"),
        ("an update of a directory", update(0, 0, chunks(&[1; 9000])), "that is not a file"),
        (
            "features of what is none",
            sketch(9999, &[0]),
            "something was asked about a file that there is not",
        ),
        ("features of a directory", sketch(0, &[0]), "something was asked about a file that there is not"),
        ("snapshots that stay here", Message::History(vec![1, 0, 0, 0, 0]), "History came instead of Need"),
        ("a source's message", Message::SourceDone(Box::default()), "SourceDone came instead of Need"),
    ];
    for (what, message, words) in attacks {
        let ended = against_source(|peer| {
            peer.say(&message);
            while peer.hear().is_some() {}
        });
        assert_violation(&ended, what, words);
    }
}

#[track_caller]
pub(crate) fn assert_violation(ended: &Ended, what: &str, words: &str) {
    ended.assert_exit(ExitCode::PeerLost);
    let Report { message, reason, .. } = ended.report();
    assert_eq!(reason.as_deref(), Some("ProtocolViolation"), "{what}: {message}");
    assert!(message.contains(words), "{what}: {message}");
}

#[test]
fn messages_that_are_none_end_the_run() {
    let refusal = Refusal { exit: ExitCode::Done, reason: "Done".into(), message: "done".into() };
    let mut says_done = Vec::new();
    Message::Refuse(refusal).encode(&mut says_done);
    let attacks: [(&str, Vec<u8>, &str); 10] = [
        ("an unknown kind", frame(99, b""), "unknown kind 99"),
        ("a long frame", vec![NEED, 0, 0, 0, 0, 255, 255, 255, 255], "4294967295 bytes"),
        ("as many prefixes as can be", frame(NEED, &varints(&[0, 0, u64::MAX])), "a malformed Need"),
        ("prefixes that are not there", frame(NEED, &varints(&[0, 0, 30_000])), "a malformed Need"),
        ("too many directories", frame(5, &vec![0; 60 << 20]), "more is asked for at once than may be"),
        (
            "granules that do not fit",
            frame(UPDATE, &[&varints(&[0, 0, 1, 0, 100_000, 16 << 10, 0])[..], &[7; 8]].concat()),
            "a malformed Update",
        ),
        ("samples that overlap", frame(SAMPLE_REQUEST, &varints(&[1, 0, 1, 1])), "a malformed SampleRequest"),
        ("chunks that are none", frame(UPDATE, &[0, 0, 1, 1, 8, 0, 0, 0]), "list of chunks"),
        ("a refusal of what is done", says_done, "a malformed Refuse"),
        ("a run far ahead", of_run(2, frame(NEED, b"")), "a run that has not begun"),
    ];
    for (what, bytes, words) in attacks {
        let ended = against_source(|peer| {
            peer.write(&bytes);
            while peer.hear().is_some() {}
        });
        assert_violation(&ended, what, words);
    }
}

#[test]
fn what_the_sink_says_it_has_may_be_anything() {
    let far = Prefix { nth: 0, len: u32::MAX, name: name(1) };
    let requests = [
        need(0, &[2], vec![far]),
        update(0, 1, granules(1 << 30)),
        update(0, 1, chunks(&[1; 5000])),
        update(0, 2, granules(4 << 20)),
        update(0, 2, chunks(&[9; 400_000])),
    ];
    for request in requests {
        let ended = against_source(|peer| peer.request(&request));
        ended.assert_exit(ExitCode::Done);
        assert_eq!(ended.report().result, RunResult::Succeeded);
    }
}

#[test]
fn requests_without_end_wait_for_whoever_made_them() {
    let floods = [Message::Want(vec![0; 1000]), need(0, &[1], vec![])];
    for flood in floods {
        let mut frame = Vec::new();
        flood.encode(&mut frame);
        let frames = frame.repeat((1 << 20) / frame.len());
        let ended = against_source(|peer| {
            // The sink reads nothing, so the source's answers fill the windows, and the source then stops reading.
            let taken = (0..200).take_while(|_| peer.write(&frames)).count();
            assert!(taken < 200);
        });
        ended.assert_exit(ExitCode::PeerLost);
    }
}

#[test]
fn a_sink_that_falls_silent_is_noticed() {
    let pair = Pair::new(Way::SourceListens);
    put(&pair.source.join("file"), b"content");
    let mut source = pair.start_send(&["--listen", ANY_PORT], &[]);
    let mut peer = Hostile::dial(source.listening(), &pair.key("sink"));
    peer.welcome();
    peer.vanish();
    let ended = source.wait();
    ended.assert_exit(ExitCode::PeerLost);
    assert_eq!(ended.reason(), "PeerLost");
}
