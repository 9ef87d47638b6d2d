//! What a command prints, and where its report goes.

use std::{
    env,
    fs::{self, File},
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::config_error::ConfigError;
use crate::flags::{LogFormat, OutputFlags, ProgressFlag};

#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) report: Option<PathBuf>,
    /// Whether nothing is asked but whether other runs leave the ends free.
    pub(crate) check_free: bool,
    pub(crate) progress: ProgressMode,
    /// Whether successful runs are left out of the printed lines.
    pub(crate) quiet: bool,
    pub(crate) color: bool,
    pub(crate) verbosity: u8,
    /// The form in which changes are printed.
    pub(crate) changes: ChangeForm,
    pub(crate) log_format: LogFormat,
    /// The file that the log also goes to.
    pub(crate) log_file: Option<Arc<File>>,
}

/// The form of the lines for changes, on standard output or in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeForm {
    Words,
    /// The form of rsync; `sends` is whether this end sends the files.
    Letters {
        sends: bool,
    },
    /// An event on standard output.
    Event,
    /// A line of the log.
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressMode {
    Bar,
    Json,
    None,
}

/// The properties of the process's environment that a configuration depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// Whether standard error is a terminal.
    pub(crate) terminal: bool,
    /// Whether the terminal can move its cursor.
    pub(crate) cursor: bool,
    /// Whether colours may be used on a terminal (see <https://no-color.org>).
    pub(crate) color: bool,
}

impl Surroundings {
    pub(crate) fn here() -> Self {
        let filled = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            terminal: io::stderr().is_terminal(),
            cursor: filled("TERM").is_some_and(|term| term != "dumb"),
            color: filled("NO_COLOR").is_none(),
        }
    }
}

impl Output {
    pub(super) fn resolve(
        flags: OutputFlags,
        sends: bool,
        surroundings: Surroundings,
    ) -> Result<Self, ConfigError> {
        if let Some(path) = &flags.report {
            check_report(path, flags.progress)?;
        }
        let can_draw = surroundings.terminal && surroundings.cursor;
        let progress = match flags.progress {
            ProgressFlag::Json => ProgressMode::Json,
            ProgressFlag::None => ProgressMode::None,
            ProgressFlag::Auto | ProgressFlag::Bar if can_draw && !flags.quiet => ProgressMode::Bar,
            ProgressFlag::Auto | ProgressFlag::Bar => ProgressMode::None,
        };
        let changes = match (progress, flags.log_format) {
            (ProgressMode::Json, _) => ChangeForm::Event,
            (_, LogFormat::Json) => ChangeForm::Log,
            _ if flags.itemize_changes => ChangeForm::Letters { sends },
            _ => ChangeForm::Words,
        };
        Ok(Self {
            report: flags.report,
            check_free: flags.check_free,
            changes,
            progress,
            quiet: flags.quiet,
            color: can_draw && surroundings.color,
            verbosity: flags.verbose,
            log_format: flags.log_format,
            log_file: flags.log_file.map(open_log).transpose()?,
        })
    }
}

/// Opens the file to whose end the log is added; it is made if it is not there.
fn open_log(path: PathBuf) -> Result<Arc<File>, ConfigError> {
    let opened = File::options().append(true).create(true).open(&path);
    opened.map(Arc::new).map_err(|source| ConfigError::LogFile { path, source })
}

fn check_report(path: &Path, progress: ProgressFlag) -> Result<(), ConfigError> {
    if path == Path::new("-") {
        return if progress == ProgressFlag::Json { Err(ConfigError::ReportTwice) } else { Ok(()) };
    }
    if path.is_dir() {
        return Err(ConfigError::ReportIsFolder(path.into()));
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    let (path, folder) = (path.to_owned(), folder.to_owned());
    // A file is replaced by a new one, and what is no file is written to.
    let is_replaced = fs::metadata(&path).map_or(true, |found| found.is_file());
    match fs::metadata(&folder) {
        Ok(found) if !found.is_dir() => Err(ConfigError::ReportFolder { path, folder }),
        Err(_) => Err(ConfigError::ReportFolder { path, folder }),
        Ok(_) if is_replaced && accessat(CWD, &folder, Access::WRITE_OK, AtFlags::EACCESS).is_err() => {
            Err(ConfigError::ReportFolderClosed { path, folder })
        }
        Ok(_) => Ok(()),
    }
}
