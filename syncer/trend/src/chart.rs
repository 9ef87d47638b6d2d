//! Bar charts as SVG, made here: chart libraries put colours into the picture, where a page's style cannot change
//! them, or bring a script; a bar is one element.

use std::fmt::Write as _;

use contract::{
    human::{bytes, count},
    regression::PHASES,
};

use super::{columns::took, history::RunRow};
use crate::escape_html::escaped;

/// Size of a chart, in units of its view box.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 200.0;
/// Room for the scale's words, left and below.
const LEFT: f64 = 76.0;
const BELOW: f64 = 10.0;
/// The most steps of a scale.
const STEPS: f64 = 4.0;
/// Steps of a scale of time from ten seconds on, in seconds: those of a clock.
const CLOCK_STEPS: [f64; 11] =
    [10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0];

/// A bar: its stacked parts, each with a colour, its title, and the run that it leads to.
struct Bar {
    run: usize,
    parts: Vec<(usize, f64)>,
    title: String,
    usual: Option<(f64, f64)>,
}

impl Bar {
    fn height(&self) -> f64 {
        self.parts.iter().map(|(_, part)| part).sum()
    }
}

/// The unit of a chart.
#[derive(Clone, Copy)]
enum Scale {
    /// Milliseconds.
    Time,
    Bytes,
    /// Bytes per second.
    Rate,
}

impl Scale {
    fn word(self, value: f64) -> String {
        match self {
            Self::Time => took(value as u64),
            Self::Bytes => bytes(value as u64),
            Self::Rate => format!("{}/s", bytes(value as u64)),
        }
    }

    /// Returns the smallest round step of which at most [`STEPS`] reach `most`.
    fn step(self, most: f64) -> f64 {
        let least = (most / STEPS).max(1.0);
        let clock = CLOCK_STEPS.map(|seconds| seconds * 1000.0);
        if matches!(self, Self::Time) && least > clock[0] / 2.0 {
            return clock.into_iter().find(|step| *step >= least).unwrap_or_else(|| {
                let day = 86_400_000.0;
                (least / day).ceil() * day
            });
        }
        let power = 10_f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0].map(|step| step * power);
        steps.into_iter().find(|step| *step >= least).unwrap_or(power * 10.0)
    }
}

/// Adds the charts of runs of one kind below a heading: time, changed bytes and their rate. `runs` have their numbers.
pub(super) fn charts(html: &mut String, title: &str, runs: &[(usize, &RunRow)]) {
    if runs.is_empty() {
        return;
    }
    let _ = write!(html, "<h2>{title}: {}</h2>\n<div class=\"charts\">\n", count(runs.len() as u64));
    chart(html, "Time of each run, by phase", Scale::Time, &runs.iter().map(timed).collect::<Vec<_>>());
    let plain = |scale: Scale, of: fn(&RunRow) -> f64| -> Vec<_> {
        let bar = |(at, row): &(usize, &RunRow)| Bar {
            run: *at,
            parts: vec![(1, of(row))],
            title: format!("{}: {}", row.start_time, scale.word(of(row))),
            usual: None,
        };
        runs.iter().map(bar).collect()
    };
    let sizes = plain(Scale::Bytes, |row| row.bytes_changed as f64);
    let rates = plain(Scale::Rate, |row| row.bytes_per_second);
    if sizes.iter().any(|bar| bar.height() > 0.0) {
        chart(html, "Changed bytes", Scale::Bytes, &sizes);
        chart(html, "Changed bytes per second", Scale::Rate, &rates);
    }
    html.push_str("</div>\n");
}

fn timed((run, row): &(usize, &RunRow)) -> Bar {
    Bar {
        run: *run,
        parts: PHASES.iter().enumerate().map(|(at, (_, of))| (at, of(&row.timings) as f64)).collect(),
        title: format!("{}: {}", row.start_time, took(row.timings.running())),
        usual: row.verdict.usual.map(|usual| (usual.median_ms as f64, usual.limit_ms as f64)),
    }
}

fn chart(html: &mut String, title: &str, scale: Scale, bars: &[Bar]) {
    let limits = bars.iter().filter_map(|bar| bar.usual.map(|(_, limit)| limit));
    let most = bars.iter().map(Bar::height).chain(limits).fold(1.0, f64::max);
    let tick = scale.step(most);
    let ticks = (most / tick).ceil();
    let y = |value: f64| HEIGHT - BELOW - value / (tick * ticks) * (HEIGHT - BELOW - 10.0);
    let _ = writeln!(
        html,
        "<section><h3>{title}</h3>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"group\" aria-label=\"{title}\">"
    );
    for value in (0..=ticks as u32).map(|at| tick * f64::from(at)) {
        let (at, words) = (y(value), escaped(&scale.word(value)));
        let _ = writeln!(
            html,
            "<line class=\"scale\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{words}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let step = (WIDTH - LEFT) / bars.len().max(1) as f64;
    // A few bars are no wider than they are readable.
    let width = (step * 0.8).min(40.0);
    for (at, bar) in bars.iter().enumerate() {
        let x = LEFT + step * at as f64;
        draw(html, bar, x + (step - width) / 2.0, width, &y);
        let Some((usual, limit)) = bar.usual else { continue };
        for (class, value) in [("usual", usual), ("limit", limit)] {
            let _ = writeln!(
                html,
                "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>",
                x + step,
                y(value)
            );
        }
    }
    html.push_str("</svg>\n</section>\n");
}

fn draw(html: &mut String, bar: &Bar, x: f64, width: f64, y: &dyn Fn(f64) -> f64) {
    let title = escaped(&bar.title);
    let _ = write!(html, "<a href=\"#run-{}\" aria-label=\"{title}\"><title>{title}</title>", bar.run);
    let mut below = 0.0;
    for (colour, part) in &bar.parts {
        let (top, bottom) = (y(below + part), y(below));
        let _ = write!(
            html,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"var(--p{colour})\"/>",
            bottom - top
        );
        below += part;
    }
    html.push_str("</a>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_scale_are_round() {
        let time = |most: f64| took(Scale::Time.step(most) as u64);
        assert_eq!([3.0, 449.0, 1_900.0, 19_000.0].map(time), ["1 ms", "200 ms", "500 ms", "5.0 s"]);
        assert_eq!([21_000.0, 200_000.0, 900_000.0].map(time), ["10.0 s", "1:00", "5:00"]);
        assert_eq!([14_000_000.0, 200_000_000.0].map(time), ["1:00:00", "24:00:00"]);
        let bytes = |most: f64| bytes(Scale::Bytes.step(most) as u64);
        assert_eq!([0.0, 15_000_000.0, 41.0].map(bytes), ["1 B", "5.0 MB", "20 B"]);
    }
}
