//! The runs in columns, for a terminal.

use std::{fmt::Write as _, time::Duration};

use contract::{
    RunResult,
    human::{bytes, count, measured},
    printable,
    regression::{Slower, Usual, Verdict},
};

use super::history::{History, RunRow};

/// Returns a line for each run below a line of headings, and a last line that tells whether runs have become slower.
pub(super) fn table(history: &History) -> String {
    let mut text = format!(
        "{:20}  {:9}  {:>11}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:24}  {}\n",
        "STARTED", "KIND", "ENTRIES", "CHANGED", "BYTES", "TOOK", "SCAN", "TRANSFER", "WAITED FOR", "NOTE"
    );
    for row in &history.runs {
        let _ = writeln!(
            text,
            "{:20}  {:9}  {:>11}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:24}  {}",
            printable(&whole_seconds(&row.start_time)),
            format!("{:?}", row.kind).to_lowercase(),
            count(row.entries),
            count(row.changed),
            bytes(row.bytes_changed),
            took(row.timings.total),
            took(row.timings.scan),
            took(row.timings.transfer),
            row.waited_for(),
            note(row)
        );
    }
    let _ = writeln!(text, "\n{}", conclusion(&history.verdict()));
    text
}

/// Removes fractions of a second from a time. A text that is not a time stays as it is.
fn whole_seconds(time: &str) -> String {
    let parsed = time.parse::<jiff::Timestamp>();
    parsed.map_or_else(|_| time.into(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

pub(super) fn took(ms: u64) -> String {
    measured(Duration::from_millis(ms))
}

pub(super) fn note(row: &RunRow) -> &'static str {
    match (row.result, row.verdict.slower, row.verdict.usual) {
        (RunResult::Failed, ..) => "failed",
        (RunResult::PartiallyFailed, ..) => "some files failed",
        (RunResult::Canceled, ..) => "stopped",
        (RunResult::Succeeded, Some(_), _) => "slower",
        (RunResult::Succeeded, None, Some(usual)) if row.timings.running() > usual.limit_ms => "slow once",
        (RunResult::Succeeded, None, _) => "",
    }
}

/// Puts the last run's verdict into one sentence.
pub(super) fn conclusion(verdict: &Verdict) -> String {
    match verdict {
        Verdict { usual: None, .. } => {
            "Too few comparable runs to say whether they have become slower.".into()
        }
        Verdict { usual: Some(usual), slower: None } => format!(
            "No slower than usual: comparable runs take {}, and up to {} is ordinary ({} runs).",
            took(usual.median_ms),
            took(usual.limit_ms),
            usual.runs
        ),
        Verdict { usual: Some(usual), slower: Some(slower) } => told_slower(usual, slower),
    }
}

fn told_slower(usual: &Usual, slower: &Slower) -> String {
    format!(
        "Slower: the last three comparable runs took {:.2} times the usual {}. The phase `{}` grew most, from {} to {}.",
        slower.ratio,
        took(usual.median_ms),
        slower.phase,
        took(slower.phase_before_ms),
        took(slower.phase_now_ms)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_has_whole_seconds() {
        assert_eq!(whole_seconds("2026-11-23T08:32:02.843Z"), "2026-11-23T08:32:02Z");
        assert_eq!(whole_seconds("never"), "never");
    }
}
