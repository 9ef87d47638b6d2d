//! Very large files that arrive over several runs, each of which is cut off: what has arrived is neither sent nor read
//! again.

use std::{fs, path::Path};

use contract::ExitCode;
use rustix::process::Signal;

use crate::common::{
    pair::{Pair, Way},
    process::Running,
    relay::Relay,
    rng::Rng,
    tree,
    watch::until_written,
};

const ANY_PORT: &str = "127.0.0.1:0";

const LEN: u64 = 200 << 20;

/// What crosses in the first run.
const CROSSED: u64 = 150 << 20;

/// What a sink notes after 32 MiB, once it has all that crossed.
const NOTED: u64 = 96 << 20;

/// What each note says: that a block of 256 KiB has arrived.
const BLOCK: u64 = 256 << 10;
const ENTRY: u64 = 56;

/// Both ends of a run, over a link that stands still after `bytes`.
fn start_over(pair: &Pair, bytes: u64) -> (Running, Running, Relay) {
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT]);
    let relay = Relay::start(sink.listening(), bytes);
    let source = pair.start_send(&["--connect", &relay.address().to_string()], &[]);
    relay.wait_holding();
    (source, sink, relay)
}

/// Waits until the sink has noted what it can of all that crossed.
fn wait_for_notes(pair: &Pair) {
    let staging = pair.destination.join(".volferry/staging");
    until_written(&staging, || {
        let names = pair.staged().into_iter().filter(|name| name.ends_with(".blocks"));
        let lengths = names.filter_map(|name| Some(fs::metadata(staging.join(name)).ok()?.len()));
        lengths.sum::<u64>() >= ENTRY * (1 + NOTED / BLOCK)
    });
}

/// How many bytes a process has read from files.
fn bytes_read(process: &Running) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", process.pid())).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// A pair whose destination has most of a file, of a run that was cut off by a signal to both ends.
fn cut_off(signal: Signal) -> Pair {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(5).bytes(LEN as usize));
    let (source, sink, relay) = start_over(&pair, CROSSED);
    wait_for_notes(&pair);
    [&source, &sink].iter().for_each(|end| end.signal(signal));
    relay.release();
    drop([source.wait(), sink.wait()]);
    pair
}

#[test]
fn what_has_arrived_of_a_very_large_file_is_read_by_neither_end_again() {
    for signal in [Signal::TERM, Signal::KILL] {
        let pair = cut_off(signal);
        let (source, sink, relay) = start_over(&pair, 4 << 20);
        for (end, read) in [("source", bytes_read(&source)), ("sink", bytes_read(&sink))] {
            assert!(read < CROSSED - (32 << 20), "the {end} has read {read} bytes, {signal:?}");
        }
        relay.release();
        [source, sink].into_iter().for_each(|end| end.wait().assert_exit(ExitCode::Done));
        pair.assert_copy("of a file that arrived over two runs");
        pair.assert_staging_empty();
        pair.sync_unchanged("after that");
    }
}

/// Changes a file's content and keeps its length and time.
fn change_unseen(file: &Path) {
    let meta = fs::metadata(file).unwrap();
    let mut content = fs::read(file).unwrap();
    content[..4096].fill(7);
    fs::write(file, content).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_modified(meta.modified().unwrap()).unwrap();
}

#[test]
fn what_has_arrived_of_another_version_is_not_taken_for_the_new_one() {
    let pair = cut_off(Signal::TERM);
    change_unseen(&pair.source.join("large"));
    let (source, sink, relay) = start_over(&pair, CROSSED);
    wait_for_notes(&pair);
    [&source, &sink].iter().for_each(|end| end.signal(Signal::KILL));
    drop((source.wait(), sink.wait(), relay));
    pair.sync("the third run");
    pair.assert_copy("of the version that the source has");
}
