//! `volferry report`: what the reports of earlier runs say together.

use std::io::{self, Write as _};

use contract::ExitCode;
use trend::{Reports, TrendError, human::chain};

use crate::flags::ReportFlags;

/// Prints what the files say, in the form that is asked for.
pub(super) fn run(flags: &ReportFlags) -> ExitCode {
    match tell(flags) {
        Ok(()) => ExitCode::Done,
        Err(error) if error.is_gone_reader() => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            ExitCode::Failed
        }
    }
}

fn tell(flags: &ReportFlags) -> Result<(), TrendError> {
    Reports::read(&flags.files)?.tell(&flags.form, &mut io::stdout().lock())
}
