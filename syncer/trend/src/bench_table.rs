//! What a bench found, for a terminal.

use std::{fmt::Write as _, time::Duration};

use contract::{BenchPlace, BenchResult};

use crate::human::{bytes, count, measured, printable};

/// Returns the volumes and the machine, and a line for each step below a line of headings.
pub fn bench_table(result: &BenchResult) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:12} {}", printable(value));
    };
    line("Source", &place(&result.source));
    line("Destination", &place(&result.destination));
    let machine = &result.machine;
    let memory = bytes(machine.memory_bytes);
    line("Machine", &format!("kernel {}, {} cores, {memory} of memory", machine.kernel, machine.cores));
    let (files, all) = (count(result.bench.count()), bytes(result.bench.bytes()));
    line("Tree", &format!("{files} files, {all}; {} % change", result.bench.change_percent));
    let _ = writeln!(
        text,
        "\n{:9}  {:>6}  {:>8}  {:>17}  {:>10}  {:>11}  WAITED FOR",
        "STEP", "ROUNDS", "MEDIAN", "LEAST TO MOST", "FILES/S", "BYTES/S"
    );
    for step in &result.steps {
        let took = |ms: u64| measured(Duration::from_millis(ms));
        let why =
            step.bottleneck.as_ref().map_or_else(String::new, |it| format!("{}: {}", it.cause, it.message));
        let _ = writeln!(
            text,
            "{:9}  {:>6}  {:>8}  {:>17}  {:>10}  {:>11}  {}",
            step.step.word(),
            step.rounds,
            took(step.median_ms),
            format!("{} to {}", took(step.least_ms), took(step.most_ms)),
            count(step.files_per_second as u64),
            format!("{}/s", bytes(step.bytes_per_second as u64)),
            printable(&why)
        );
    }
    result.notes.iter().for_each(|note| {
        let _ = writeln!(text, "note: {}", printable(note));
    });
    text
}

fn place(place: &BenchPlace) -> String {
    let BenchPlace { path, file_system, device, mount_options } = place;
    format!("{path}: {file_system} on {device} ({mount_options})")
}
