//! Very large files that arrive over several interrupted runs: a later run neither sends nor reads again the part that
//! has arrived.

use crate::common::prelude::*;

const LEN: u64 = 200 << 20;

/// The bytes that cross the link in the first run.
const CROSSED: u64 = 150 << 20;

/// The least number of bytes that the sink's notes cover once all of [`CROSSED`] has arrived: it writes notes after
/// every 32 MiB.
const NOTED: u64 = 96 << 20;

/// Returns the number of bytes that a process has read from files.
fn bytes_read(process: &Running) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", process.pid())).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// Makes a pair whose destination has most of a file, from a run that was interrupted by a signal to both ends.
fn cut_off(signal: Signal) -> Pair {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(5).bytes(LEN as usize));
    let (source, sink, relay) = pair.start_over(CROSSED, &[]);
    pair.wait_for_notes(NOTED);
    [&source, &sink].iter().for_each(|end| end.signal(signal));
    relay.release();
    drop([source.wait(), sink.wait()]);
    pair
}

#[test]
fn what_has_arrived_of_a_very_large_file_is_read_by_neither_end_again() {
    for signal in [Signal::TERM, Signal::KILL] {
        let pair = cut_off(signal);
        let (source, sink, relay) = pair.start_over(4 << 20, &[]);
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
    let (source, sink, relay) = pair.start_over(CROSSED, &[]);
    pair.wait_for_notes(NOTED);
    [&source, &sink].iter().for_each(|end| end.signal(Signal::KILL));
    drop((source.wait(), sink.wait(), relay));
    pair.sync("the third run");
    pair.assert_copy("of the version that the source has");
}
