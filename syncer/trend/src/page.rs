//! The runs as one HTML page that needs nothing else: no script, no font, no network. Colours follow the reader's light
//! or dark mode; each bar can be reached by the keyboard and leads to its run's line; printed, it is black on white.
//!
//! Runs of one kind share charts: a first run is so much longer than the others that their bars would vanish beside it.

use std::fmt::Write as _;

use contract::{
    BenchFigures, RunKind,
    human::{bytes, count},
    regression::PHASES,
};

use super::{
    chart::charts,
    columns::{conclusion, note, took},
    history::{History, RunRow},
};
use crate::{bench_table::machines, escape_html::escaped};

/// The kinds of runs in the order of their sections, with their headings.
const KINDS: [(RunKind, &str); 3] = [
    (RunKind::Changed, "Runs that found changes"),
    (RunKind::Unchanged, "Runs that found no change"),
    (RunKind::First, "First runs"),
];

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #d8dee4; --alarm: #b42318;
  --p0: #7c8b9a; --p1: #2f6fb3; --p2: #5aa2d6; --p3: #8e6bbf; --p4: #2e8b57; --p5: #c98a1b; --p6: #9c5b34; --p7: #5b7f95; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171a; --faint: #3a4047; --alarm: #ff8a80;
  --p0: #93a1b0; --p1: #6aa5e6; --p2: #9ccdf0; --p3: #b99be3; --p4: #6cc492; --p5: #e8b75a; --p6: #cf9168; --p7: #90b4c9; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: .9rem; margin: .5rem 0 0; } svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font-size: 13px; }
div.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 0 1.5rem; }
.scale { stroke: var(--faint); } .usual { stroke: var(--ink); stroke-dasharray: 2 4; fill: none; }
.limit { stroke: var(--alarm); stroke-dasharray: 6 3; fill: none; }
a:focus-visible { outline: 2px solid var(--alarm); } a:focus-visible rect { stroke: var(--alarm); stroke-width: 2; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
tr:target { outline: 2px solid var(--alarm); } .alarm { color: var(--alarm); font-weight: 600; }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
ul.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; }
@media print { div.wide { overflow: visible; } :root { --ink: #000; --paper: #fff; --faint: #bbb; --alarm: #a00; } body { max-width: none; margin: 0; }
  div.charts section, tr { break-inside: avoid; } a { color: inherit; text-decoration: none; } }
";

/// Returns the page.
pub(super) fn page(history: &History, benches: &[BenchFigures]) -> String {
    let verdict = history.verdict();
    let class = if verdict.slower.is_some() { "alarm" } else { "calm" };
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Volferry: {runs} runs</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Volferry: {runs} runs</h1>\n<p class=\"{class}\">{}</p>\n",
        escaped(&conclusion(&verdict)),
        runs = history.runs.len(),
    );
    benches.iter().for_each(|found| bench(&mut html, found));
    key(&mut html);
    for (kind, title) in KINDS {
        let of_kind: Vec<_> = history.runs.iter().enumerate().filter(|(_, row)| row.kind == kind).collect();
        charts(&mut html, title, &of_kind);
    }
    rows(&mut html, &history.runs);
    html.push_str("</body>\n</html>\n");
    html
}

/// Adds the figures of a bench: its volumes and machine, and a line for each step.
fn bench(html: &mut String, found: &BenchFigures) {
    let ends = [("Source", &found.source), ("Destination", &found.destination)];
    let places = ends.into_iter().filter_map(|(name, place)| Some((name, place.as_ref()?.volume())));
    let facts =
        places.chain(machines(found)).map(|(name, fact)| format!("<li>{name} {}</li>", escaped(&fact)));
    let _ = write!(
        html,
        "<h2>Bench of {}</h2>\n<ul>{}<li>{} files, {}; {} % change</li></ul>\n\
         <div class=\"wide\" tabindex=\"0\">\n<table class=\"bench\">\n<thead><tr>",
        escaped(&found.start_time),
        facts.collect::<String>(),
        count(found.bench.count()),
        bytes(found.bench.bytes()),
        found.bench.change_percent,
    );
    for name in ["Step", "Rounds", "Median", "Least", "Most", "Files/s", "Bytes/s", "Waited for"] {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for step in &found.steps {
        let why = step.bottleneck.as_ref().map_or("", |it| &it.message);
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}/s</td><td>{}</td></tr>",
            step.step.word(),
            step.rounds,
            took(step.median_ms),
            took(step.least_ms),
            took(step.most_ms),
            count(step.files_per_second as u64),
            bytes(step.bytes_per_second as u64),
            escaped(why)
        );
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
}

fn key(html: &mut String) {
    html.push_str("<ul class=\"key\">");
    for (at, (name, _)) in PHASES.iter().enumerate() {
        let _ = write!(html, "<li><i style=\"background: var(--p{at})\"></i>{name}</li>");
    }
    html.push_str("<li>dotted: the usual time; dashed: the time above which a run is slow</li></ul>\n");
}

fn rows(html: &mut String, rows: &[RunRow]) {
    html.push_str("<h2>Runs</h2>\n<div class=\"wide\" tabindex=\"0\">\n<table>\n<thead><tr>");
    for name in ["Started", "Run", "Entries", "Changed", "Bytes", "Took"] {
        let _ = write!(html, "<th>{name}</th>");
    }
    for (name, _) in PHASES {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("<th>Waited for</th><th>Note</th></tr></thead>\n<tbody>\n");
    for (at, row) in rows.iter().enumerate() {
        let _ = write!(
            html,
            "<tr id=\"run-{at}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            escaped(&row.start_time),
            escaped(&row.run),
            count(row.entries),
            count(row.changed),
            bytes(row.bytes_changed),
            took(row.timings.total)
        );
        for (_, of) in PHASES {
            let _ = write!(html, "<td>{}</td>", took(of(&row.timings)));
        }
        let class = if row.verdict.slower.is_some() { "alarm" } else { "calm" };
        let why = row.bottleneck.as_ref().map_or("", |it| &it.message);
        let _ = write!(html, "<td title=\"{}\">{}</td>", escaped(why), row.waited_for());
        let _ = writeln!(html, "<td class=\"{class}\">{}</td></tr>", note(row));
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use contract::{Report, Timings, Work, regression::Rule};

    use super::*;

    fn history() -> History {
        let report = |at: u64| Report {
            run: format!("<script>alert({at})</script>"),
            start_time: format!("2026-11-{:02}T00:00:00Z", at + 1),
            timings: Timings { total: 5_000, transfer: 4_000, scan: 1_000, ..Timings::default() },
            work: Work { files_scanned: 10, files_updated: 1, bytes_changed: 1 << 20, ..Work::default() },
            ..Report::default()
        };
        History::of(&(0..12).map(report).collect::<Vec<_>>(), Rule::default())
    }

    #[test]
    fn what_a_report_says_is_shown_and_not_carried_out() {
        let page = page(&history(), &[]);
        assert!(page.contains("&lt;script&gt;alert(3)") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        let page = page(&history(), &[]);
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn each_run_has_a_line_and_a_bar_that_leads_to_it_in_each_chart() {
        let page = page(&history(), &[]);
        for run in 0..12 {
            assert_eq!(page.matches(&format!("id=\"run-{run}\"")).count(), 1);
            assert_eq!(page.matches(&format!("href=\"#run-{run}\"")).count(), 3);
        }
        // Ten runs make a baseline: each of the last three has two lines.
        assert_eq!(page.matches("class=\"limit\"").count(), 3);
    }

    #[test]
    fn a_first_run_shares_no_chart_with_the_short_runs_after_it() {
        let run = |total: u64, created: u64, updated: u64| Report {
            timings: Timings { total, transfer: total, ..Timings::default() },
            work: Work {
                files_scanned: 10,
                files_created: created,
                files_updated: updated,
                ..Work::default()
            },
            ..Report::default()
        };
        let history = History::of(&[run(900_000, 10, 0), run(180, 0, 1), run(12, 0, 0)], Rule::default());
        let page = page(&history, &[]);
        let sections: Vec<_> = page.split("<h2>").skip(1).map(|it| it.split('<').next().unwrap()).collect();
        let expected =
            ["Runs that found changes: 1", "Runs that found no change: 1", "First runs: 1", "Runs"];
        assert_eq!(sections, expected);
        let scales: Vec<_> =
            page.split("text-anchor=\"end\">").skip(1).map(|it| it.split('<').next().unwrap()).collect();
        let expected =
            ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "0 ms", "5 ms", "10 ms", "15 ms", "0 ms"];
        assert_eq!(scales[..10], expected);
        assert_eq!(scales[10..], ["5:00", "10:00", "15:00"], "no chart of bytes where none changed");
    }
}
