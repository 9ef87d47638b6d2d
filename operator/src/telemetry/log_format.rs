//! Configures the log: its filter and its format.

use std::{fmt, io::IsTerminal as _};

use clap::ValueEnum;
use contract::write_escaped_field;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{
        FormatFields,
        format::{Writer, debug_fn},
    },
};

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter if the environment variable `RUST_LOG` is not set. The HTTP client's own lines are left out: at its
/// finest level it would log bodies, which contain Secrets, and of an answer that it cannot read it warns with all of
/// it.
const DEFAULT_FILTER: &str = "info,kube=warn,kube_client=error,hyper=warn,tower=warn";

/// Sends log lines to standard error, because standard output belongs to a command's result. Call it once.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => lines.with_target(false).fmt_fields(escaped_fields()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Writes a message and its fields on one line, with control characters escaped, since they may come from a pod or a
/// peer.
fn escaped_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        write_escaped_field(writer, field.name(), value)
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_forges_no_line_of_the_log() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .fmt_fields(escaped_fields())
            .finish();
        let evil = "a\r\nWARN forged\x1b[2J";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info_span!("run", job = evil).in_scope(|| tracing::warn!(%evil, "it said: {evil}"));
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
        assert_eq!(text.matches(r"a\r\nWARN forged\u{1b}[2J").count(), 3, "{text}");
    }
}
