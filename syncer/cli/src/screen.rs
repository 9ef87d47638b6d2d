//! Standard output and standard error, shared by the bar, the log, the lines of JSON and the summary, so that none of
//! them splits another's line.

use std::io::{self, Write as _};

use contract::Event;
use parking_lot::{Mutex, MutexGuard};
use rustix::termios::tcgetwinsize;

const CLEAR_LINE: &str = "\r\x1b[2K";

/// The output streams of the process. Writers wait for each other only if a bar is shown.
#[derive(Debug)]
pub(super) struct Screen {
    /// The line at the bottom of the terminal, if there is to be one; empty while none is shown.
    bar: Option<Mutex<String>>,
    /// The warnings so far, which nobody wants to read twice.
    warned: Mutex<String>,
}

impl Screen {
    pub(super) fn new(with_bar: bool) -> Self {
        Self { bar: with_bar.then(Mutex::default), warned: Mutex::default() }
    }

    /// Prints `event` as one line on standard output.
    pub(super) fn event(&self, event: &Event) -> io::Result<()> {
        self.line(&serde_json::to_string(event)?)
    }

    /// Prints `text` as one line on standard output.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let line = format!("{text}\n");
        self.beside_bar(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.as_bytes())?;
            stdout.flush()
        })
    }

    /// Prints `text`, whole lines, on standard error. Errors are ignored, because they could not be reported.
    pub(super) fn say(&self, text: &str) {
        let _ = self.beside_bar(|| io::stderr().lock().write_all(text.as_bytes()));
    }

    /// Prints `text` as [`say`](Self::say) does, and remembers it.
    pub(super) fn warn(&self, text: &str) {
        self.warned.lock().push_str(text);
        self.say(text);
    }

    /// Returns whether a warning has said this already.
    pub(super) fn has_warned(&self, of: &str) -> bool {
        self.warned.lock().contains(of)
    }

    /// Prints `text` as [`say`](Self::say) does, if there is a bar, and so a person who watches it.
    pub(super) fn hint(&self, text: &str) {
        if self.bar.is_some() {
            self.say(text);
        }
    }

    /// Replaces the bar that was shown by `line`, which must fit the terminal's width.
    pub(super) fn draw_bar(&self, line: String) {
        let Some(mut bar) = self.lock_bar() else { return };
        if *bar != line {
            let _ = io::stderr().lock().write_all(format!("{CLEAR_LINE}{line}").as_bytes());
            *bar = line;
        }
    }

    /// Removes the bar.
    pub(super) fn clear_bar(&self) {
        self.draw_bar(String::new());
    }

    /// Returns the number of columns that the bar may fill: all but the last, in which some terminals would begin a new
    /// line.
    pub(super) fn bar_width(&self) -> usize {
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
        usize::from(if columns == 0 { 80 } else { columns }) - 1
    }

    fn beside_bar(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.lock_bar().filter(|bar| !bar.is_empty()) {
            None => write(),
            Some(bar) => {
                io::stderr().lock().write_all(CLEAR_LINE.as_bytes())?;
                write()?;
                io::stderr().lock().write_all(bar.as_bytes())
            }
        }
    }

    fn lock_bar(&self) -> Option<MutexGuard<'_, String>> {
        self.bar.as_ref().map(|bar| bar.lock())
    }
}
