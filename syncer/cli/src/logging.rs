//! The log on standard error, and in the file of `--log-file`.

use std::{fmt, io, sync::Arc};

use contract::write_escaped_field;
use syncer::{failures::FAILED_FILES, report::NOTES};
use tracing::{Event, Subscriber, field::Field, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    field::MakeExt as _,
    filter::Targets,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Writer, debug_fn},
        layer,
    },
    layer::SubscriberExt as _,
    registry,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use super::{
    config::Output,
    flags::LogFormat,
    run_log::{FILE_ONLY, RUNS},
    screen::Screen,
};

/// The module that logs each damaged object that a restore needs. The end of the run names the first, as it does with
/// failed files.
const DAMAGED_OBJECTS: &str = "syncer::ends::damaged_content";

/// The modules that log an error which the report tells of: the stream below a connection ends, which is no error after
/// a run, or a certificate is refused.
const REPORTED: [&str; 2] = ["quinn::endpoint", "rustls_platform_verifier"];

/// The crates of this program: its engine, the engine's core, and the command line.
const OWN_CRATES: [&str; 3] = ["syncer", "volferry_core", "volferry"];

/// What the lines of a log are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// A person waits for the end of the run, which has the notes, the failures and the error.
    Waits,
    /// A person or program looks at what a service did, and when.
    LooksBack,
}

/// Starts the log: warnings of this program and a line for each run, and more with each `-v`; the libraries log one
/// level less. Writes above the bar, and the lines of runs and failed files to the log file in any case.
pub(super) fn start(output: &Output, reader: Reader, screen: &Arc<Screen>) {
    let is_terse = (output.log_format, output.verbosity) == (LogFormat::Text, 0);
    let is_plain = is_terse && reader == Reader::Waits;
    let filter = filter(output.verbosity, output.quiet).with_target(FILE_ONLY, LevelFilter::OFF);
    let named_at_end = [FAILED_FILES, DAMAGED_OBJECTS].map(|name| (name, LevelFilter::OFF));
    let filter = if is_terse { filter.with_targets(named_at_end) } else { filter };
    let filter = if is_plain && output.quiet { filter.with_target(NOTES, LevelFilter::OFF) } else { filter };
    let screen = Arc::clone(screen);
    let writer = move || ScreenWriter { screen: Arc::clone(&screen), is_plain };
    let lines = layer().with_ansi(output.color).with_writer(writer);
    let lines = match output.log_format {
        LogFormat::Text if is_plain => lines.event_format(PlainLines).fmt_fields(escaped_fields()).boxed(),
        LogFormat::Text => lines.fmt_fields(escaped_fields()).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let file = output.log_file.as_ref().map(|file| {
        let lines = layer().with_ansi(false).with_writer(Arc::clone(file));
        let lines = match output.log_format {
            LogFormat::Text => lines.fmt_fields(escaped_fields()).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        lines.with_filter(self::filter(output.verbosity.max(1), false))
    });
    // Fails only if the process has a subscriber already, which its owner has chosen.
    let _ = registry().with(lines.with_filter(filter)).with(file).try_init();
}

/// Writes a message and its fields on one line, with control characters from a peer escaped.
fn escaped_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        write_escaped_field(writer, field.name(), value)
    })
    .delimited(" ")
}

/// The form of lines for a person who waits: like an error, without the time and the module.
struct PlainLines;

impl<S, F> FormatEvent<S, F> for PlainLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    F: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, F>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(match *event.metadata().level() {
            tracing::Level::ERROR => "error: ",
            _ if event.metadata().target() == NOTES => "note: ",
            _ => "warning: ",
        })?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Returns the log levels of each crate.
fn filter(verbosity: u8, quiet: bool) -> Targets {
    let [own, others] = [verbosity.saturating_add(1), verbosity.min(3)].map(level);
    let filter = Targets::new().with_targets(OWN_CRATES.map(|name| (name, own))).with_default(others);
    let quiet_ones = REPORTED.map(|name| (name, LevelFilter::OFF));
    // Anybody who reaches a service could fill its log with them.
    let filter = if verbosity < 3 { filter.with_targets(quiet_ones) } else { filter };
    if verbosity == 0 && !quiet { filter.with_target(RUNS, LevelFilter::INFO) } else { filter }
}

/// Returns the level for a verbosity; that of the own crates is one above that of others.
fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::ERROR,
        1 => LevelFilter::WARN,
        2 => LevelFilter::INFO,
        3 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Writes each log line to the screen; the layer writes a line at once.
struct ScreenWriter {
    screen: Arc<Screen>,
    /// Whether the lines are for a person, who does not want to read them again in the summary.
    is_plain: bool,
}

impl io::Write for ScreenWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if self.is_plain {
            self.screen.warn(&text);
        } else {
            self.screen.say(&text);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_crate_of_the_program_warns_without_being_asked_and_libraries_do_not() {
        let filter = filter(0, false);
        for own in [module_path!(), "volferry_core::tree::filter", "syncer::session"] {
            assert!(filter.would_enable(own, &tracing::Level::WARN), "{own}");
        }
        assert!(!filter.would_enable("quinn::connection", &tracing::Level::WARN));
    }

    #[test]
    fn each_run_is_logged_unless_the_user_wants_it_quiet() {
        for (quiet, is_logged) in [(false, true), (true, false)] {
            assert_eq!(filter(0, quiet).would_enable(RUNS, &tracing::Level::INFO), is_logged);
            assert!(filter(0, quiet).would_enable(RUNS, &tracing::Level::WARN));
        }
    }

    #[test]
    fn control_characters_are_escaped_in_the_message_and_in_every_field() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = layer().with_ansi(false).with_writer(move || writer.clone()).fmt_fields(escaped_fields());
        let evil = "a\r\nWARN forged\x1b[2J\u{9b}";
        tracing::subscriber::with_default(registry().with(layer), || {
            tracing::warn!(shown = %evil, debug = ?evil, run = evil, "from the peer: {evil}");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
        let escaped = r"a\r\nWARN forged\u{1b}[2J\u{9b}";
        assert!(text.contains(&format!("from the peer: {escaped} shown={escaped} debug=\"a")), "{text}");
    }
}
