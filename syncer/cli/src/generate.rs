//! `volferry generate`: prints completions and writes manual pages, made from the flags.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use clap::CommandFactory as _;
use contract::{ExitCode, chain};

use crate::{
    completions,
    flags::{Flags, GenerateFlags, rsync_flags},
    refuse_own_folder,
};

/// Makes the requested output. An error is printed, and names the folder.
pub(super) fn run(flags: &GenerateFlags) -> ExitCode {
    if let Some(shell) = flags.completions
        && let Err(error) = completions::script(shell).and_then(|script| print(&script))
    {
        let _ = writeln!(io::stderr(), "error: the completions cannot be printed: {error}");
        return ExitCode::Failed;
    }
    if flags.rsync_flags
        && let Err(error) = print(rsync_flags::table().as_bytes())
    {
        let _ = writeln!(io::stderr(), "error: the table cannot be printed: {error}");
        return ExitCode::Failed;
    }
    let Some(folder) = &flags.man else { return ExitCode::Done };
    match write_pages(folder) {
        Ok(()) => ExitCode::Done,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}: {}", folder.display(), chain(&error));
            ExitCode::Failed
        }
    }
}

/// Prints a text. It is not an error if the reader, such as `head`, closes early.
fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Writes a page for the program and one for each subcommand, such as `volferry-snapshot-create.1`.
fn write_pages(folder: &Path) -> io::Result<()> {
    refuse_own_folder::check(folder)?;
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Flags::command().disable_help_subcommand(true), folder)
}
