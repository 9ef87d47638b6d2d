//! `volferry report`: what the reports of earlier runs say together.

mod columns;
mod history;
mod page;

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
};

use contract::{ExitCode, Report, regression::Rule};
use thiserror::Error;

use crate::{flags::ReportFlags, human::chain};
use history::History;

/// The most bytes that are read of one file: ten thousand reports.
const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug, Error)]
enum ReportError {
    #[error("cannot read {path}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a report, as `--report` writes them", path = .path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("{path} has no report", path = .0.display())]
    Empty(PathBuf),
    #[error("cannot write {path}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write the table")]
    Csv(#[from] csv::Error),
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Prints what the files say, in the form that is asked for.
pub(super) fn run(flags: &ReportFlags) -> ExitCode {
    match tell(flags) {
        Ok(()) => ExitCode::Done,
        // A reader that went away is no error.
        Err(ReportError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            ExitCode::Failed
        }
    }
}

fn tell(flags: &ReportFlags) -> Result<(), ReportError> {
    let mut out = io::stdout().lock();
    if flags.schema {
        let text = serde_json::to_string_pretty(&schemars::schema_for!(History)).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let rule = Rule { window: flags.window.into(), threshold: flags.threshold };
    let history = History::of(&read_all(&flags.files)?, rule);
    if let Some(path) = &flags.html {
        fs::write(path, page::page(&history))
            .map_err(|source| ReportError::Write { path: path.clone(), source })?;
        return Ok(());
    }
    if flags.json {
        let text = serde_json::to_string_pretty(&history).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else if flags.csv {
        out.write_all(&history.to_csv()?)?;
    } else {
        out.write_all(columns::table(&history).as_bytes())?;
    }
    Ok(())
}

/// Reads every report of all files, in the order of their runs.
fn read_all(files: &[PathBuf]) -> Result<Vec<Report>, ReportError> {
    let mut reports = Vec::new();
    for path in files {
        let before = reports.len();
        read_file(path, &mut reports)?;
        if reports.len() == before {
            return Err(ReportError::Empty(path.clone()));
        }
    }
    reports.sort_by(|a, b| a.start_time.cmp(&b.start_time));
    Ok(reports)
}

fn read_file(path: &Path, reports: &mut Vec<Report>) -> Result<(), ReportError> {
    let file = File::open(path).map_err(|source| ReportError::Read { path: path.into(), source })?;
    let text = BufReader::new(file.take(MAX_FILE_BYTES));
    for report in serde_json::Deserializer::from_reader(text).into_iter() {
        reports.push(report.map_err(|source| ReportError::Parse { path: path.into(), source })?);
    }
    Ok(())
}
