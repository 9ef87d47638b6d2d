//! The events of an end during a run and at its end, and an end that serves several runs.

use std::time::SystemTime;

use contract::{Phase, Progress, Timings};

use crate::common::prelude::*;

fn sum(timings: &Timings) -> u64 {
    let Timings { queue, pod_start, connect, scan, plan, delta, transfer, apply, commit, snapshot, total: _ } =
        *timings;
    queue + pod_start + connect + scan + plan + delta + transfer + apply + commit + snapshot
}

#[test]
fn both_ends_write_the_same_report_and_its_phases_add_up() {
    for pair in Pair::each(Way::NETWORK) {
        tree::gallery(&pair.source, Shape::Everything);
        let files = ["source.json", "sink.json"].map(|name| pair.dir().join(name));
        let flags = [format!("--report={}", text(&files[0])), "--run=nightly-7".into(), "--delete".into()];
        let sink_flag = format!("--report={}", text(&files[1]));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (source, sink) = pair.start_both(&flags, &[&sink_flag]);
        let (source, sink) = (source.wait(), sink.wait());
        let [written, received]: [Report; 2] =
            files.map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap());
        assert_eq!(written, received);
        assert_eq!(&written, source.report());
        assert_eq!(&received, sink.report());
        assert_eq!((written.run.as_str(), written.result), ("nightly-7", RunResult::Succeeded));
        assert_eq!(sum(&written.timings), written.timings.total, "{:?}", written.timings);
        assert!(written.timings.total > 0 && written.work.bytes_on_wire > written.work.bytes_changed / 100);
        assert!(written.start_time < written.completion_time);
        let usage = written.usage;
        assert!(usage.source_peak_rss > 0 && usage.sink_peak_rss > 0, "{usage:?}");
    }
}

#[test]
fn a_local_run_reports_too_and_nothing_crosses_a_wire() {
    let pair = Pair::new(Way::Local);
    tree::gallery(&pair.source, Shape::Everything);
    let report = pair.sync("a local run");
    assert_eq!(sum(&report.timings), report.timings.total);
    assert_eq!(report.work.bytes_on_wire, 0);
    assert!(report.rates.files_per_second > 0.0 && report.rates.bytes_per_second > 0.0);
}

#[test]
fn events_begin_with_the_address_and_end_with_the_report_and_progress_only_grows() {
    for pair in Pair::each(Way::NETWORK) {
        tree::many(&pair.source, 3000, 3000);
        let run = pair.done(&["--delete"]);
        for end in run.ends() {
            let listening = end.events.iter().position(|event| matches!(event, Event::Listening { .. }));
            let finished = end.events.iter().filter(|event| matches!(event, Event::Finished(_))).count();
            assert!(listening.is_none_or(|at| at == 0), "{:?}", end.events);
            assert_eq!(finished, 1);
            assert!(matches!(end.events.last(), Some(Event::Finished(_))));
        }
        run.ends().for_each(assert_progress_grows);
    }
}

fn assert_progress_grows(end: &Ended) {
    let progress: Vec<_> = end
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Progress(progress) => Some(*progress),
            _ => None,
        })
        .collect();
    for pair in progress.windows(2) {
        let order = |phase: Phase| phase as usize;
        assert!(order(pair[0].phase) <= order(pair[1].phase), "{pair:?}");
        let counts = |p: Progress| [p.files, p.bytes, p.files_total, p.bytes_total];
        let grow = counts(pair[0]).iter().zip(counts(pair[1])).all(|(before, after)| *before <= after);
        assert!(grow, "{pair:?}");
    }
    for now in progress {
        assert!(now.files_total <= 3000 && now.bytes_total <= 9_000_000, "{now:?}");
        assert!(now.files <= now.files_total && now.bytes <= now.bytes_total, "{now:?}");
    }
}

#[test]
fn a_listening_end_prints_one_line_of_json_and_no_more_unless_asked() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("file"), b"content");
    let identity = pair.key("sink");
    let mut sink = pair.start(&[
        "receive",
        text(&pair.destination),
        "--once",
        "--listen",
        ANY_PORT,
        "--identity",
        text(&identity),
    ]);
    let address = sink.listening();
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
    pair.start_send(&["--connect", &address.to_string()], &[]).wait().assert_exit(ExitCode::Done);
    let sink = sink.wait();
    sink.assert_exit(ExitCode::Done);
    assert_eq!(sink.events, [Event::Listening { address: address.to_string() }]);
}

#[test]
fn an_end_without_once_serves_run_after_run_until_it_is_told_to_stop() {
    let pair = Pair::new(Way::SinkListens);
    let file = pair.dir().join("report.json");
    let mut sink = pair.start_receive(&["--listen", ANY_PORT, "--report", text(&file)]);
    let address = sink.listening().to_string();
    let mut reports = Vec::new();
    for (run, content) in [("--run=first", "one"), ("--run=second", "two, longer")] {
        tree::file(&pair.source.join("file"), content.as_bytes());
        let called = contract::timestamp(SystemTime::now());
        let source = pair.start_send(&["--connect", &address], &[run, "--delete"]).wait();
        source.assert_exit(ExitCode::Done);
        let report = sink.finished();
        assert_eq!(&report, source.report());
        assert_eq!(run, format!("--run={}", report.run));
        assert_eq!(report.work.bytes_changed, content.len() as u64);
        assert!(report.start_time >= called, "the wait for a peer is counted: {report:?}, called {called}");
        pair.assert_copy(run);
        reports.push(report);
    }
    sink.signal(Signal::TERM);
    let sink = sink.wait();
    sink.assert_exit(ExitCode::Done);
    let finished: Vec<_> = sink
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Finished(report) => Some(&**report),
            _ => None,
        })
        .collect();
    assert_eq!(finished, reports.iter().collect::<Vec<_>>(), "a run that never began was told of");
    let kept: Report = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(kept.run, "second");
}

#[test]
fn an_end_that_serves_outlives_a_run_that_is_refused() {
    let pair = Pair::new(Way::SinkListens);
    (0..4).for_each(|i| tree::file(&pair.source.join(i.to_string()), b"content"));
    let mut sink = pair.start_receive(&["--listen", ANY_PORT]);
    let address = sink.listening().to_string();
    let send = |flags: &[&str]| pair.start_send(&["--connect", &address], flags).wait();
    send(&["--delete"]).assert_exit(ExitCode::Done);
    (0..4).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
    let refused = send(&["--delete", "--run=emptied"]);
    refused.assert_exit(ExitCode::Guard);
    tree::file(&pair.source.join("file"), b"content");
    send(&["--delete", "--force"]).assert_exit(ExitCode::Done);
    let told = [sink.finished(), sink.finished(), sink.finished()];
    assert_eq!(told.each_ref().map(|report| report.reason.as_deref()), [None, Some("SourceEmpty"), None]);
    assert_eq!((told[1].run.as_str(), &told[1].message), ("emptied", &refused.report().message));
    sink.signal(Signal::TERM);
    sink.wait().assert_exit(ExitCode::Done);
}

#[test]
fn usage_is_that_of_one_run_and_not_of_all_that_an_end_has_served() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(1).bytes(64_000_000));
    let mut sink = pair.start_receive(&["--listen", ANY_PORT]);
    let address = sink.listening().to_string();
    let usages = [(); 2].map(|()| {
        pair.start_send(&["--connect", &address], &[]).wait().assert_exit(ExitCode::Done);
        sink.finished().usage
    });
    let [first, second] = usages.map(|usage| usage.sink_cpu_ms);
    assert!(
        second < first / 2,
        "the second run, of which nothing was changed, took {second} ms, the first {first}"
    );
    sink.signal(Signal::TERM);
    sink.wait().assert_exit(ExitCode::Done);
}

#[test]
fn an_end_that_serves_logs_each_run_with_its_peer_and_its_figures() {
    let pair = Pair::new(Way::SinkListens);
    fs::write(pair.source.join("file"), "four").unwrap();
    let mut sink = pair.start_receive(&["--listen", ANY_PORT]);
    let address = sink.listening().to_string();
    for _ in 0..2 {
        pair.start_send(&["--connect", &address], &["--run=nightly"]).wait().assert_exit(ExitCode::Done);
        sink.finished();
    }
    sink.signal(Signal::TERM);
    let ended = sink.wait();
    ended.assert_exit(ExitCode::Done);
    let logged: Vec<&str> = ended.stderr.lines().collect();
    let [first, second] = logged[..] else { panic!("{logged:?}") };
    for (line, created) in [(first, 1), (second, 0)] {
        for part in ["run=\"nightly\"", "peer=127.0.0.1:", "result=Succeeded", &format!("created={created} ")]
        {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

#[test]
fn a_peer_that_dials_during_a_session_waits_for_its_turn() {
    /// The bytes of a connection's first packet; the peer sends another if it gets no answer.
    const ONE_PACKET: u64 = 1_200;
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("large"), &Rng::new(4).bytes(9_000_000));
    let mut sink = pair.start_receive(&["--listen", ANY_PORT]);
    let address = sink.listening();
    let relays = [4_000_000, ONE_PACKET].map(|bytes| Relay::holding(address, bytes));
    let send = |relay: &Relay, run: &str| {
        let source = pair.start_send(&["--connect", &relay.address().to_string()], &[run]);
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
    sink.wait().assert_exit(ExitCode::Done);
}

/// Starts an end that serves, and a first run that stands still in the middle of its content.
fn busy(pair: &Pair, once: &[&str]) -> (Running, Running, Relay) {
    tree::file(&pair.source.join("large"), &Rng::new(4).bytes(9_000_000));
    let mut sink = pair.start_receive(&[&["--listen", ANY_PORT], once].concat());
    let relay = Relay::holding(sink.listening(), 4_000_000);
    let first = pair.start_send(&["--connect", &relay.address().to_string()], &["--run=first"]);
    relay.wait_holding();
    (sink, first, relay)
}

#[test]
fn a_busy_end_says_so_to_those_that_dial_and_serves_them_in_their_order() {
    let pair = Pair::new(Way::SinkListens);
    let (mut sink, first, relay) = busy(&pair, &[]);
    let address = sink.listening_at().to_string();
    let mut waiting = ["second", "third", "fourth"].map(|run| {
        let link = ["--connect", &address, if run == "third" { "--link=tcp" } else { "--link=auto" }];
        let mut source = pair.start_send(&link, &[&format!("--run={run}")]);
        (source.waiting(), source)
    });
    for (at, (answer, _)) in waiting.iter().enumerate() {
        assert!(answer.peer.starts_with("127.0.0.1:") && answer.since.ends_with('Z'), "{answer:?}");
        assert_eq!(answer.number as usize, at + 1);
    }
    waiting[1].1.signal(Signal::TERM);
    assert_eq!(waiting[2].1.waiting().number, 2, "one before it has left");
    relay.release();
    first.wait().assert_exit(ExitCode::Done);
    let [second, third, fourth] = waiting.map(|(_, source)| source.wait());
    assert!(second.stderr.contains("the other end is busy with a run of 127.0.0.1:"), "{}", second.stderr);
    [second, fourth].iter().for_each(|source| source.assert_exit(ExitCode::Done));
    assert_eq!(third.reason(), "Canceled");
    assert_eq!([(); 3].map(|()| sink.finished().run), ["first", "second", "fourth"]);
    pair.assert_copy("after all");
    sink.signal(Signal::TERM);
    sink.wait().assert_exit(ExitCode::Done);
}

#[test]
fn a_peer_that_waits_for_an_end_that_goes_away_finds_that_nobody_listens() {
    let pair = Pair::new(Way::SinkListens);
    let (sink, first, relay) = busy(&pair, &["--once"]);
    let address = sink.listening_at().to_string();
    let mut second = pair.start_send(&["--connect", &address, "--connect-timeout=1"], &[]);
    second.waiting();
    relay.release();
    [first.wait(), sink.wait()].iter().for_each(|end| end.assert_exit(ExitCode::Done));
    let second = second.wait();
    second.assert_exit(ExitCode::PeerLost);
    assert!(second.report().message.contains(&address), "{}", second.report().message);
}

#[test]
fn a_diagnosis_of_the_way_to_a_busy_end_does_not_wait() {
    let pair = Pair::new(Way::SinkListens);
    let (sink, first, relay) = busy(&pair, &["--once"]);
    let (identity, address) = (pair.key("source"), sink.listening_at().to_string());
    let found = pair.output(&["doctor", "--connect", &address, "--identity", text(&identity)]);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        said.contains(&format!("note: {address} answers, and is busy with a run of 127.0.0.1:")),
        "{said}"
    );
    assert_eq!(found.status.code(), Some(0), "{said}");
    relay.release();
    [first.wait(), sink.wait()].iter().for_each(|end| end.assert_exit(ExitCode::Done));
}
