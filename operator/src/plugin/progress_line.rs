//! The progress of a run in a pod, as one line of this terminal.

use std::io::{self, IsTerminal as _, Write as _};

use contract::{Event, Progress};
use rustix::termios::tcgetwinsize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::output;
use crate::human;

/// The flag by which the engine prints its progress in a form that [`show`] reads.
const FLAG: &str = "--progress=json";
/// The longest line of text that is shown, in bytes.
const MAX_LINE_BYTES: usize = 1024;

/// Returns the flag for progress, if this process has a terminal to show it on.
pub(super) fn flag() -> Option<&'static str> {
    io::stderr().is_terminal().then_some(FLAG)
}

/// Shows what an engine says: its progress in one line, and all else as it is.
pub(super) async fn show(from: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line).await, Ok(1..)) {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        match serde_json::from_slice(text) {
            Ok(Event::Progress(progress)) => draw(&bar(&progress)),
            Ok(_) => draw(""),
            Err(_) => {
                if io::stderr().is_terminal() {
                    draw("");
                }
                output::complain(&human::clipped(&String::from_utf8_lossy(text), MAX_LINE_BYTES));
            }
        }
        line.clear();
    }
}

/// Puts a text in the place of the terminal's last line.
fn draw(text: &str) {
    let columns = tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
    let text: String = text.chars().take(columns.saturating_sub(1)).collect();
    // A terminal that is gone shows nothing.
    drop(write!(io::stderr(), "\r{text}\x1b[K"));
}

fn bar(progress: &Progress) -> String {
    let Progress { phase, files, files_total, bytes, bytes_total, rate } = progress;
    let (done, all) = (human::bytes(*bytes), human::bytes(*bytes_total));
    format!("{phase:?}: {done} of {all}, {files}/{files_total} files, {}/s", human::bytes(*rate))
}

#[cfg(test)]
mod tests {
    use contract::Phase;

    use super::*;

    #[test]
    fn progress_is_one_line() {
        let progress = Progress {
            phase: Phase::Transfer,
            bytes: 1 << 20,
            bytes_total: 1 << 30,
            files: 3,
            files_total: 9,
            rate: 2048,
        };
        assert_eq!(bar(&progress), "Transfer: 1.0Mi of 1.0Gi, 3/9 files, 2.0Ki/s");
    }
}
