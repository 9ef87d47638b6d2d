//! The bottleneck that a run's report and summary name, in runs that wait for one cause far longer than for all others
//! on any machine.

use contract::{Cause, Phase};

use crate::common::cpu_group::CpuGroup;
use crate::common::prelude::*;

/// Runs with `flags`, and returns the bottleneck's word and the summary's line that names it.
#[track_caller]
fn word(pair: &Pair, flags: &[&str]) -> (Cause, String) {
    let run = pair.done(flags);
    let bottleneck = run.report().bottleneck.clone().unwrap();
    let log = match &run {
        Run::Local(ended) | Run::Network { source: ended, .. } => &ended.stderr,
    };
    let line = log.lines().find(|line| line.starts_with("bottleneck: ")).unwrap_or_default().to_owned();
    assert_eq!(line, format!("bottleneck: {}", bottleneck.message), "{log}");
    (bottleneck.cause, line)
}

#[test]
fn a_run_with_a_low_limit_waits_for_the_limit() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("f"), &Rng::new(3).bytes(3_000_000));
        assert_eq!(word(&pair, &["--bandwidth-limit=1M"]).0, Cause::BandwidthLimit, "{way:?}");
    }
}

#[test]
fn a_run_that_compresses_as_well_as_it_can_waits_for_the_sources_processors() {
    for pair in Pair::each(Way::NETWORK) {
        let words = Rng::new(4).bytes(16_000_000).into_iter().map(|byte| b'a' + byte % 8).collect::<Vec<_>>();
        tree::file(&pair.source.join("f"), &words);
        let (cause, line) = word(&pair, &["--compression=19"]);
        assert_eq!(cause, Cause::SourceCpu, "{line}");
    }
}

/// Only on one machine: the handshake of an end that is stopped this often could take longer than a peer waits.
#[test]
fn a_run_that_its_container_stops_waits_for_its_cpu_limit() {
    let Some(group) = CpuGroup::new("limit") else { return };
    assert_waits_for_limit(&group);
}

#[test]
fn a_limit_of_a_group_above_the_containers_is_seen() {
    let Some(group) = CpuGroup::above("limit-above") else { return };
    assert_waits_for_limit(&group);
}

#[track_caller]
fn assert_waits_for_limit(group: &CpuGroup) {
    let mut pair = Pair::new(Way::Local);
    pair.limited = Some(group.program(pair.dir()));
    tree::many(&pair.source, 1200, 3000);
    let (cause, line) = word(&pair, &[]);
    assert_eq!(cause, Cause::Cpu, "{line}");
    assert!(line.ends_with(" the run waited for its CPU limit"), "{line}");
}

#[test]
fn both_ends_say_what_they_did_in_each_phase() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::many(&pair.source, 200, 3000);
        let run = pair.done(&[]);
        let efforts = &run.report().efforts;
        let phases = |end: &[contract::Effort]| end.iter().map(|effort| effort.phase).collect::<Vec<_>>();
        for phase in [Phase::Scan, Phase::Plan, Phase::Transfer, Phase::Commit] {
            assert!(phases(&efforts.sink).contains(&phase), "{way:?}: {phase:?}");
        }
        assert!(phases(&efforts.source).contains(&Phase::Scan), "{way:?}");
        let sends = phases(&efforts.source).contains(&Phase::Transfer);
        assert_eq!(sends, way != Way::Local, "on one machine the sink's threads copy");
        let moved = efforts.sink.iter().find(|effort| effort.phase == Phase::Transfer).unwrap();
        assert!(moved.wall_us > 0, "{moved:?}");
    }
}
