//! Standard output, of which a command must not lose a part and end as if all were well.

use std::{
    io::{self, Write as _},
    sync::OnceLock,
};

use contract::ExitCode;

/// Set when something could not be written.
static HAS_FAILED: OnceLock<()> = OnceLock::new();

/// Prints `text`. A reader that has closed standard output, such as `head`, wants no more of it. Any other failure is
/// told once, and [`exit`] remembers it. Returns whether more can be printed.
pub(crate) fn print(text: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    written.inspect_err(failed).is_ok()
}

/// Prints a value as JSON, for commands that end with an error if it cannot be written.
pub(crate) fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(io::stdout(), "{}", contract::printable_json(&text))
}

/// Tells of a failure to write.
pub(crate) fn failed(error: &io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe && HAS_FAILED.set(()).is_ok() {
        let _ = writeln!(io::stderr(), "error: cannot write to standard output: {error}");
    }
}

/// Returns the exit code of the process whose command has ended with this one.
pub(crate) fn exit(code: ExitCode) -> ExitCode {
    match code {
        ExitCode::Done if HAS_FAILED.get().is_some() => ExitCode::Failed,
        code => code,
    }
}
