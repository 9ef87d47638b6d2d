//! Fills figures into documents: each table of figures stands between two marks, and is written from a file in
//! `benches/results`, never by hand.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;

use crate::{
    comparison_table::{OURS, Results, Table, number, or_dash, write_aligned},
    trees::Tree,
};

/// The most columns of a line of prose.
const COLUMNS: usize = 120;

/// The mark before a table, followed by the name of the file in `benches/results` without its extension.
const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->";
/// The mark after a table.
const END: &str = "<!-- end of figures -->";

/// Rewrites the tables of `document` from the files in `results`.
pub fn fill(document: &str, results: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut lines = (1..).zip(document.lines());
    while let Some((number, line)) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(BEGIN_END)) else {
            ensure!(
                !is_head_of_figures(line),
                "line {number}: a table of figures outside of marks\nhint: benches/README.md, Figures in documents"
            );
            continue;
        };
        text.push_str(&generated(results, name)?);
        if !lines.any(|(_, line)| line == END) {
            bail!("line {number}: {BEGIN}{name}{BEGIN_END} has no {END}");
        }
        text.push_str(END);
        text.push('\n');
    }
    Ok(text)
}

/// Returns whether a line is the separator below the head of a table with columns of numbers.
fn is_head_of_figures(line: &str) -> bool {
    line.starts_with('|') && line.contains("-:") && line.chars().all(|char| "|-: ".contains(char))
}

/// Returns the text of the results of this name: a table that a script has printed, or what the bench of the peers has
/// written as JSON.
fn generated(results: &Path, name: &str) -> anyhow::Result<String> {
    if let Ok(printed) = std::fs::read_to_string(results.join(name).with_extension("md")) {
        return Ok(format!("\n{printed}\n"));
    }
    let path = results.join(name).with_extension("json");
    let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let results = serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(tables(&results))
}

fn tables(results: &Results) -> String {
    let mut text = String::from("\n");
    for table in &results.tables {
        text.push_str(&medians(table));
        text.push('\n');
    }
    let _ =
        writeln!(text, "{}: medians of {} rounds in ms; {}.", results.date, results.rounds, results.machine);
    if !results.note.is_empty() {
        let _ = writeln!(text, "{}", results.note);
    }
    text.push('\n');
    for tool in results.tables.iter().flat_map(|table| &table.tools) {
        let leaves_out = if tool.leaves_out.is_empty() { "nothing" } else { &tool.leaves_out };
        let line = format!("- {} ({}) leaves out {leaves_out}.", tool.name, tool.version);
        text.push_str(&wrapped(&line));
    }
    text.push('\n');
    text
}

/// Breaks an item of a list into lines, as documents have them.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split_whitespace() {
        let line = lines.last().map_or(0, String::len);
        if line + 1 + word.len() > COLUMNS {
            lines.push("  ".into());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.trim().is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Formats the table with only the medians, Volferry's first.
fn medians(table: &Table) -> String {
    let peers = table.tools.iter().map(|tool| tool.name.as_str()).filter(|name| *name != OURS);
    let tools: Vec<&str> = std::iter::once(OURS).chain(peers).collect();
    let mut cells =
        vec![[vec!["tree", "step"], tools.clone()].concat().into_iter().map(String::from).collect()];
    let mut last = "";
    for line in &table.rows {
        let title: &str = match Tree::from_str(&line.tree, false) {
            Ok(tree) => tree.title(),
            Err(_) => &line.tree,
        };
        let tree = if title == last { "" } else { title };
        last = title;
        let median = |tool: &&str| match line.tools.get(*tool) {
            Some(figures) if figures.failure.is_some() => "fails".into(),
            figures => or_dash(figures.and_then(|figures| figures.median_ms).map(number)),
        };
        let row = [vec![tree.to_string(), line.phase.clone()], tools.iter().map(median).collect()].concat();
        cells.push(row);
    }
    let mut text = String::new();
    write_aligned(&mut text, &cells, 2);
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const RESULTS: &str = r#"{"date": "2026-11-22", "rounds": 5, "durable": false, "missing": [],
        "machine": {"cores": 2, "cpu": "test", "memoryMib": 1, "kernel": "6", "fileSystem": "tmpfs", "load": 0.0},
        "tables": [{"title": "network", "tools": [
            {"name": "rsync daemon", "version": "3.5", "leavesOut": "encryption"}, {"name": "volferry", "version": "0.1"}],
        "rows": [{"tree": "net1k", "phase": "first", "reachMs": 60.0, "verdict": "ahead", "tools": {
            "volferry": {"medianMs": 43.2}, "rsync daemon": {"medianMs": 192.0}}}]}]}"#;

    fn filled(document: &str) -> anyhow::Result<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("network.json"), RESULTS).unwrap();
        fill(document, dir.path())
    }

    #[test]
    fn a_table_is_written_from_its_file_and_the_rest_stays() {
        let text =
            filled("before\n<!-- figures: network -->\nold\n<!-- end of figures -->\nafter\n").unwrap();
        assert!(text.starts_with("before\n<!-- figures: network -->\n\n| tree"), "{text}");
        assert!(text.ends_with("<!-- end of figures -->\nafter\n") && !text.contains("old"), "{text}");
        assert!(text.contains("| 1,008 files, 21 MB | first |       43 |          192 |"), "{text}");
        assert!(text.contains("- rsync daemon (3.5) leaves out encryption."), "{text}");
        assert_eq!(filled(&text).unwrap(), text, "nothing changes the second time");
    }

    /// The door of the project has a few figures between words, which no mark fills.
    #[test]
    fn the_figures_of_the_readme_are_those_of_the_results() {
        let top = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..");
        let readme = fs::read_to_string(top.join("README.md")).unwrap();
        let row = |name: &str, tree: &str, step: &str| {
            let filled = generated(&top.join("benches/results"), name).unwrap();
            let (_, rows) = filled.split_once(&format!("| {tree}")).unwrap();
            let row = rows.lines().find(|row| row.contains(&format!("| {step}"))).unwrap();
            row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        // Of a table, the columns of Volferry and of rsync, or its daemon, counted from that of the step.
        let (of_ssh, of_network) = (("ssh", 2, 5), ("network", 1, 2));
        for (words, tree, step, (name, ours, rsync)) in [
            ("first copy of 50,000 small files", "50,000 files", "first", of_ssh),
            ("nothing has changed in 50,000 files", "50,000 files", "no change", of_ssh),
            ("40 files of 8 MiB get other names", "40 files of 8 MiB", "renamed", of_network),
        ] {
            let cells = row(name, tree, step);
            let step = cells.iter().position(|cell| cell == step).unwrap();
            let (ours, rsync) = (&cells[step + ours], &cells[step + rsync]);
            let line = readme.lines().find(|line| line.contains(words)).unwrap();
            assert!(
                line.contains(&format!("**{ours} ms**")) && line.contains(&format!("| {rsync} ms")),
                "{line}"
            );
        }
    }

    #[test]
    fn a_long_item_is_broken_between_words() {
        let item = format!("- tool (version 1) {}.", "word ".repeat(40).trim());
        let text = wrapped(&item);
        assert!(text.lines().all(|line| line.len() <= COLUMNS) && text.lines().count() == 2, "{text}");
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), item.split_whitespace().collect::<Vec<_>>());
        assert!(text.contains("\n  word"), "{text}");
    }

    #[test]
    fn a_table_of_figures_by_hand_and_a_mark_without_an_end_are_errors() {
        let by_hand = filled("| tool | ms |\n|---|--:|\n| a | 5 |\n").unwrap_err();
        assert!(by_hand.to_string().contains("line 2: a table of figures outside"), "{by_hand}");
        assert!(filled("<!-- figures: network -->\n").is_err());
        assert!(filled("<!-- figures: other -->\n<!-- end of figures -->\n").is_err());
        assert!(filled("| command | does |\n|---|---|\n").is_ok());
    }
}
