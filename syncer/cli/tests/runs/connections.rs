//! Runs over several connections: they are one link, and nobody else's.

use std::{fs, thread, time::Instant};

use contract::{ExitCode, RunResult};
use rustix::process::Signal;

use crate::common::{
    pair::{Pair, Run, Way, text},
    process::{Ended, Running},
    relay::Relay,
    rng::Rng,
    tree::{self, Shape},
};

const ANY_PORT: &str = "127.0.0.1:0";

/// Several connections, and a log that tells of each.
const FOUR: [&str; 2] = ["--connections=4", "-vv"];

/// Small files, and more of large ones than crosses before there are further connections.
fn large_and_small(pair: &Pair) {
    tree::gallery(&pair.source, Shape::Everything);
    tree::many(&pair.source, 300, 3000);
    let mut rng = Rng::new(7);
    (0..4).for_each(|i| tree::file(&pair.source.join(format!("large{i}")), &rng.bytes(9_000_000 + i)));
}

/// How many connections an end says that it had, each in a line of the log, and how many packets it sent over each.
#[track_caller]
fn connections(end: &Ended) -> Vec<u64> {
    let lines: Vec<&str> =
        end.stderr.lines().filter(|line| line.contains("the path of a connection")).collect();
    let field = |line: &str, name: &str| -> u64 {
        let at = line.find(name).unwrap_or_else(|| panic!("no {name} in {line}")) + name.len();
        line[at..].split_whitespace().next().unwrap().parse().unwrap()
    };
    for (number, line) in (1..).zip(&lines) {
        assert_eq!((field(line, " number="), field(line, " of=")), (number, lines.len() as u64));
    }
    lines.iter().map(|line| field(line, " sent=")).collect()
}

/// Both ends of a run with `flags`, with a log of both, over a link that stands still after `bytes` if there is one.
fn start(pair: &Pair, flags: &[&str], bytes: Option<u64>) -> (Running, Running, Option<Relay>) {
    let relay = |to| bytes.map(|bytes| Relay::start(to, bytes));
    let dial = |relay: &Option<Relay>, to| relay.as_ref().map_or(to, Relay::address).to_string();
    match pair.way {
        Way::SinkListens => {
            let mut sink = pair.start_receive(&["--once", "-vv", "--listen", ANY_PORT]);
            let address = sink.listening();
            let relay = relay(address);
            (pair.start_send(&["--connect", &dial(&relay, address)], flags), sink, relay)
        }
        _ => {
            let mut source = pair.start_send(&["--listen", ANY_PORT], flags);
            let address = source.listening();
            let relay = relay(address);
            let sink = pair.start_receive(&["--once", "-vv", "--connect", &dial(&relay, address)]);
            (source, sink, relay)
        }
    }
}

fn run(pair: &Pair, flags: &[&str]) -> Run {
    let (source, sink, _) = start(pair, flags, None);
    Run::Network { source: source.wait(), sink: sink.wait() }
}

#[test]
fn what_several_connections_carry_arrives_whichever_end_dials() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        large_and_small(&pair);
        let run = run(&pair, &FOUR);
        run.assert_exit(ExitCode::Done);
        pair.assert_copy("four connections");
        run.ends().for_each(|end| assert_eq!(connections(end).len(), 4, "{way:?}: {}", end.stderr));
        let sent = connections(run.ends().next().unwrap());
        let further: u64 = sent[1..].iter().sum();
        assert!(further > 300, "the further connections of the source carried no data: {sent:?}");
        let content: u64 = (0..4).map(|i| 9_000_000 + i).sum();
        assert!(run.report().work.bytes_on_wire > content, "{:?}", run.report().work);
    }
}

#[test]
fn a_run_with_little_to_send_has_one_connection() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        tree::many(&pair.source, 300, 3000);
        let run = run(&pair, &FOUR);
        run.assert_exit(ExitCode::Done);
        run.ends().for_each(|end| assert_eq!(connections(end).len(), 1, "{way:?}: {}", end.stderr));
    }
}

#[test]
fn all_connections_share_one_limit() {
    const LIMIT: u64 = 8 << 20;
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(1).bytes(16_000_000));
    let begin = Instant::now();
    let run = run(&pair, &[&FOUR[..], &["--bandwidth-limit=8Mi"]].concat());
    let took = begin.elapsed();
    run.assert_exit(ExitCode::Done);
    run.ends().for_each(|end| assert_eq!(connections(end).len(), 4, "{}", end.stderr));
    pair.assert_copy("four connections under a limit");
    let least = 16_000_000.0 / LIMIT as f64 * 0.9;
    assert!(took.as_secs_f64() > least, "{took:?} for what takes {least} s at the limit");
}

/// A run of which the link stands still when there are several connections.
fn start_held(pair: &Pair) -> (Running, Running, Relay) {
    let mut rng = Rng::new(3);
    (0..2).for_each(|i| tree::file(&pair.source.join(format!("large{i}")), &rng.bytes(40_000_000 + i)));
    let (source, sink, relay) = start(pair, &FOUR, Some(60_000_000));
    let relay = relay.unwrap();
    relay.wait_holding();
    (source, sink, relay)
}

fn kill_one_end(way: Way, source_dies: bool) {
    let pair = Pair::new(way);
    let (source, sink, _relay) = start_held(&pair);
    let (killed, survivor) = if source_dies { (source, sink) } else { (sink, source) };
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait().exit, None);
    let survivor = survivor.wait();
    survivor.assert_exit(ExitCode::PeerLost);
    assert_eq!((survivor.reason(), survivor.report().result), ("PeerLost", RunResult::Failed));
    assert_eq!(connections(&survivor).len(), 4, "{way:?}: {}", survivor.stderr);
    pair.sync("after a peer was killed");
}

#[test]
fn the_end_of_one_peer_is_the_end_of_all_its_connections() {
    // Most of the time is spent in waiting for a peer that is gone, so all wait at once.
    thread::scope(|scope| {
        for (way, source_dies) in
            [(Way::SinkListens, true), (Way::SinkListens, false), (Way::SourceListens, true)]
        {
            scope.spawn(move || kill_one_end(way, source_dies));
        }
    });
}

#[test]
fn an_end_that_is_told_to_stop_closes_all_its_connections() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        let (source, sink, relay) = start_held(&pair);
        source.signal(Signal::TERM);
        relay.release();
        for end in [source.wait(), sink.wait()] {
            end.assert_exit(ExitCode::Failed);
            assert_eq!((end.reason(), end.report().result), ("Canceled", RunResult::Canceled), "{way:?}");
        }
        pair.assert_only_parts_staged(fs::read_dir(&pair.source).unwrap().count());
    }
}

#[test]
fn who_comes_while_a_run_has_several_connections_waits_for_its_turn() {
    /// The first packet of a connection; another follows when there is no answer.
    const ONE_PACKET: u64 = 1_200;
    let pair = Pair::new(Way::SinkListens);
    let mut rng = Rng::new(4);
    (0..2).for_each(|i| tree::file(&pair.source.join(format!("large{i}")), &rng.bytes(40_000_000 + i)));
    let mut sink = pair.start_receive(&["-vv", "--listen", ANY_PORT]);
    let address = sink.listening();
    let relays = [60_000_000, ONE_PACKET].map(|bytes| Relay::start(address, bytes));
    let send = |relay: &Relay, run: &str| {
        let flags = [&FOUR[..], &[run]].concat();
        let source = pair.start_send(&["--connect", &relay.address().to_string()], &flags);
        relay.wait_holding();
        source
    };
    let first = send(&relays[0], "--run=first");
    let second = send(&relays[1], "--run=second");
    relays.iter().for_each(Relay::release);
    [first.wait(), second.wait()].iter().for_each(|source| source.assert_exit(ExitCode::Done));
    assert_eq!([sink.finished().run, sink.finished().run], ["first", "second"]);
    pair.assert_copy("after both");
    sink.signal(Signal::TERM);
    let sink = sink.wait();
    sink.assert_exit(ExitCode::Done);
    // Attempts that the dialling end gave up while its packets were held are turned away; the second run's connection
    // is not.
    assert!(!sink.stderr.contains("a further connection was turned away"), "{}", sink.stderr);
}

#[test]
fn shards_have_several_connections_each() {
    let pair = Pair::new(Way::SinkListens);
    for dir in ["a", "b"] {
        fs::create_dir(pair.source.join(dir)).unwrap();
        tree::file(&pair.source.join(dir).join("large"), &Rng::new(9).bytes(9_000_000));
    }
    let start = |shard: &str| start(&pair, &[&FOUR[..], &["--run=r", shard]].concat(), None);
    let shards = ["--shard=0/2", "--shard=1/2"].map(start);
    for (source, sink, _) in shards {
        let run = Run::Network { source: source.wait(), sink: sink.wait() };
        run.assert_exit(ExitCode::Done);
        run.ends().for_each(|end| assert_eq!(connections(end).len(), 4, "{}", end.stderr));
    }
    pair.assert_copy("two shards of four connections");
}

#[test]
fn more_connections_than_there_may_be_are_refused_by_the_flags_name() {
    let pair = Pair::new(Way::SinkListens);
    for refused in ["--connections=9", "--connections=-1", "--connections=many"] {
        let identity = pair.key("source");
        let args = ["send", text(&pair.source), "--connect=h:1", "--identity", text(&identity), refused];
        let end = pair.start(&args).wait();
        end.assert_exit(ExitCode::Usage);
        assert!(end.stderr.contains("--connections"), "{}", end.stderr);
    }
}
