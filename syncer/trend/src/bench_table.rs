//! The figures of a bench, for a terminal.

use std::{fmt::Write as _, time::Duration};

use contract::{
    BenchFigures, BenchMachine, BenchPlace,
    human::{bytes, count, measured},
    printable,
};

/// Returns the volumes and the machines, and a line for each step below a line of headings.
pub fn bench_table(result: &BenchFigures) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:12} {}", printable(value));
    };
    let ends = [("Source", &result.source), ("Destination", &result.destination)];
    for (name, place) in ends.iter().filter_map(|(name, place)| Some((name, place.as_ref()?))) {
        line(name, &place.volume());
    }
    machines(result).iter().for_each(|(name, machine)| line(name, machine));
    let (files, all) = (count(result.bench.count()), bytes(result.bench.bytes()));
    line("Tree", &format!("{files} files, {all}; {} % change", result.bench.change_percent));
    let _ = writeln!(
        text,
        "\n{:9}  {:>6}  {:>8}  {:>17}  {:>10}  {:>11}  WAITED FOR",
        "STEP", "ROUNDS", "MEDIAN", "LEAST TO MOST", "FILES/S", "BYTES/S"
    );
    for step in &result.steps {
        let took = |ms: u64| measured(Duration::from_millis(ms));
        let why = step.bottleneck.as_ref().map_or("", |it| &it.message);
        let _ = writeln!(
            text,
            "{:9}  {:>6}  {:>8}  {:>17}  {:>10}  {:>11}  {}",
            step.step.word(),
            step.rounds,
            took(step.median_ms),
            format!("{} to {}", took(step.least_ms), took(step.most_ms)),
            count(step.files_per_second as u64),
            format!("{}/s", bytes(step.bytes_per_second as u64)),
            printable(why)
        );
    }
    result.notes.iter().for_each(|note| {
        let _ = writeln!(text, "note: {}", printable(note));
    });
    text
}

/// Returns the machines of the ends with their labels: one, if both ends ran on it.
pub(crate) fn machines(result: &BenchFigures) -> Vec<(&'static str, String)> {
    let places = [("Source on", &result.source), ("Written on", &result.destination)];
    let places: Vec<_> =
        places.into_iter().filter_map(|(name, place)| Some((name, place.as_ref()?))).collect();
    match places[..] {
        [(_, source), (_, destination)] if on(source) == on(destination) => vec![("Machine", on(source))],
        _ => places.into_iter().map(|(name, place)| (name, on(place))).collect(),
    }
}

fn on(place: &BenchPlace) -> String {
    let BenchMachine { kernel, cores, memory_bytes } = &place.machine;
    let node = place.node.iter().map(|node| format!("node {node}, ")).collect::<String>();
    format!("{node}kernel {kernel}, {cores} cores, {} of memory", bytes(*memory_bytes))
}
