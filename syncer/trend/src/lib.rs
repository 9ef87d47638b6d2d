//! Renders the reports of several runs together, in the forms of `volferry report`.
//!
//! `history` judges each run by those before it; `columns`, `page` with its charts, and `bench_table` render that as
//! text.

mod bench_table;
mod chart;
mod columns;
mod escape_html;
mod history;
mod page;

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use contract::{BenchFigures, BenchResult, Report, regression::Rule};
use serde_json::Value;
use thiserror::Error;

pub use bench_table::bench_table;
use history::History;

/// The largest number of bytes that is read of one file: ten thousand reports.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The forms of a report; without one, it is a table.
#[derive(Debug, Clone, Args)]
pub struct FormFlags {
    /// Print JSON
    #[arg(long, conflicts_with_all = ["csv", "html"])]
    pub json: bool,
    /// Print comma-separated values, a line a run
    #[arg(long, conflicts_with = "html")]
    pub csv: bool,
    /// Write one page for a browser, which needs nothing else
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
    /// Print the schema of --json
    #[arg(long, conflicts_with_all = ["json", "csv", "html"])]
    pub schema: bool,
    /// Take this many runs for what is usual
    #[arg(long, value_name = "RUNS", default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=50))]
    pub window: u8,
    /// Find runs that take this many times what is usual
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = slowdown)]
    pub threshold: f64,
}

/// Parses a factor above 1.
fn slowdown(typed: &str) -> Result<f64, String> {
    let factor = typed.parse().ok().filter(|factor: &f64| *factor >= 1.1 && *factor <= 100.0);
    factor.ok_or_else(|| "a factor from 1.1 to 100, such as 1.5".into())
}

/// Why reports cannot be read or rendered.
#[derive(Debug, Error)]
pub enum TrendError {
    /// A file cannot be read.
    #[error("cannot read {path}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file contains something else.
    #[error("{path} is not a report, as `--report` writes them", path = .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// A file contains no report.
    #[error("{path} has no report", path = .0.display())]
    Empty(PathBuf),
    /// The page cannot be written.
    #[error("cannot write {path}", path = .path.display())]
    Write {
        /// The page.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Comma-separated values cannot be made.
    #[error("cannot write the table")]
    Csv(#[from] csv::Error),
    /// Standard output cannot be written to.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl TrendError {
    /// Returns whether a reader of standard output went away, which is no error.
    pub fn is_gone_reader(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The data of a report page: runs, and the benches that some of them were made for.
#[derive(Debug, Default)]
pub struct Reports {
    /// The runs, in any order.
    pub runs: Vec<Report>,
    /// The benches; their runs may be among `runs`, too.
    pub benches: Vec<BenchFigures>,
}

impl Reports {
    /// Reads every report of all files.
    ///
    /// # Errors
    /// [`TrendError::Read`], [`TrendError::Parse`], and [`TrendError::Empty`] for a file without a report.
    pub fn read(files: &[PathBuf]) -> Result<Self, TrendError> {
        let mut reports = Self::default();
        for path in files {
            let before = reports.runs.len();
            reports.read_file(path)?;
            if reports.runs.len() == before {
                return Err(TrendError::Empty(path.clone()));
            }
        }
        Ok(reports)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), TrendError> {
        let file = File::open(path).map_err(|source| TrendError::Read { path: path.into(), source })?;
        let text = BufReader::new(file.take(MAX_FILE_BYTES));
        let failed = |source| TrendError::Parse { path: path.into(), source };
        for found in serde_json::Deserializer::from_reader(text).into_iter::<Value>() {
            self.add(found.map_err(failed)?).map_err(failed)?;
        }
        Ok(())
    }

    fn add(&mut self, value: Value) -> Result<(), serde_json::Error> {
        // All fields of a report have defaults, and a list without any is one for serde, too.
        if value.as_object().is_none_or(serde_json::Map::is_empty) {
            return Err(serde::de::Error::custom("it has no field of a report"));
        }
        if value.get("bench").is_none() {
            self.runs.push(serde_json::from_value(value)?);
            return Ok(());
        }
        let BenchResult { figures, mut runs } = serde_json::from_value(value)?;
        self.runs.append(&mut runs);
        self.benches.push(figures);
        Ok(())
    }

    /// Writes the report to `out`, or to the page that the options name.
    ///
    /// # Errors
    /// [`TrendError::Write`], [`TrendError::Csv`] and [`TrendError::Output`].
    pub fn print(mut self, form: &FormFlags, out: &mut impl Write) -> Result<(), TrendError> {
        if form.schema {
            return Ok(write_json(out, &schemars::schema_for!(History))?);
        }
        self.runs.sort_by(|a, b| a.start_time.cmp(&b.start_time));
        let rule = Rule { window: form.window.into(), threshold: form.threshold };
        let history = History::of(&self.runs, rule);
        if let Some(path) = &form.html {
            let page = page::page(&history, &self.benches);
            return fs::write(path, page).map_err(|source| TrendError::Write { path: path.clone(), source });
        }
        if form.json {
            write_json(out, &history)?;
        } else if form.csv {
            out.write_all(&history.to_csv()?)?;
        } else {
            out.write_all(columns::table(&history).as_bytes())?;
            self.benches.iter().try_for_each(|bench| write!(out, "\n{}", bench_table(bench)))?;
        }
        Ok(())
    }
}

fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(out, "{}", contract::printable_json(&text))
}
