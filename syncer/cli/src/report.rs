//! `volferry report`: judges the reports of several runs together.

use std::io::{self, Write as _};

use contract::{ExitCode, chain};
use trend::{Reports, TrendError};

use crate::flags::ReportFlags;

/// Prints the judgement of the files' reports in the requested form.
pub(super) fn run(flags: &ReportFlags) -> ExitCode {
    match print_reports(flags) {
        Ok(()) => ExitCode::Done,
        Err(error) if error.is_gone_reader() => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            if matches!(error, TrendError::Parse { .. }) {
                let _ = writeln!(io::stderr(), "hint: `volferry sync --report FILE` writes one");
            }
            ExitCode::Failed
        }
    }
}

fn print_reports(flags: &ReportFlags) -> Result<(), TrendError> {
    Reports::read(&flags.files)?.print(&flags.form, &mut io::stdout().lock())
}
