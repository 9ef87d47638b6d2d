//! The log on standard error.

use std::{io, sync::Arc};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer, filter::Targets, fmt, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

use super::{config::Output, flags::LogFormat, screen::Screen};

/// The module that warns of each file as it fails. The first of them are named when the run is over, which is
/// enough unless more is asked for.
const FAILED_FILES: &str = "syncer::report";

/// Starts the log: warnings of this program, and more with each `-v`; of the libraries that it uses one level
/// less. Writes above the bar.
pub(super) fn start(output: &Output, screen: &Arc<Screen>) {
    let (own, others) = levels(output.verbosity);
    let filter = Targets::new().with_target("syncer", own).with_default(others);
    let filter = match output.verbosity {
        0 => filter.with_target(FAILED_FILES, LevelFilter::ERROR),
        _ => filter,
    };
    let screen = Arc::clone(screen);
    let lines = fmt::layer().with_ansi(output.color).with_writer(move || ScreenWriter(Arc::clone(&screen)));
    let lines = match output.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    // Fails only where the process has a subscriber, which then is the one that its owner wants.
    let _ = registry().with(lines.with_filter(filter)).try_init();
}

fn levels(verbosity: u8) -> (LevelFilter, LevelFilter) {
    match verbosity {
        0 => (LevelFilter::WARN, LevelFilter::ERROR),
        1 => (LevelFilter::INFO, LevelFilter::WARN),
        2 => (LevelFilter::DEBUG, LevelFilter::INFO),
        _ => (LevelFilter::TRACE, LevelFilter::DEBUG),
    }
}

/// Passes each line on as it comes; the layer writes a line at once.
struct ScreenWriter(Arc<Screen>);

impl io::Write for ScreenWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.say(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
