//! Logs: what is logged, and in which form.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged when the environment variable `RUST_LOG` says nothing else. The HTTP client's own lines are
/// left out: at its finest level it would log bodies, and bodies hold Secrets.
const DEFAULT_FILTER: &str = "info,kube=warn,hyper=warn,tower=warn";

/// Sends log lines to standard error, because standard output belongs to a command's result. Call it once.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => lines.with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// An error and all its sources on one line. Sources that the error's own text already ends with are not
/// repeated.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeats(#[source] std::fmt::Error);

    #[test]
    fn a_chain_says_each_thing_once() {
        let inner = std::fmt::Error.to_string();
        assert_eq!(chain(&Repeats(std::fmt::Error)), format!("outer: {inner}"));
    }
}
