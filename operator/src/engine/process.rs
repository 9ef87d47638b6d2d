//! A `volferry` process: its events, its exit, and its last output.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use contract::{Contact, Event};
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    task::JoinHandle,
};

/// The maximum length of a line, in bytes; longer ones are cut. The longest line is a report, of a few KiB.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The number of last lines on standard error that are kept.
const TAIL_LINES: usize = 5;

/// The reasons why a process cannot be run.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The process cannot be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The process was started, but cannot be waited for.
    #[error("cannot wait for the process")]
    Wait(#[source] io::Error),
}

/// A running `volferry`. Dropping it kills the process.
#[derive(Debug)]
pub struct Syncer {
    child: Child,
    stdin: Option<ChildStdin>,
    events: mpsc::Receiver<Event>,
    stderr: JoinHandle<VecDeque<String>>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The status from the system.
    pub status: ExitStatus,
    /// The last lines that it wrote to standard error.
    pub tail: Vec<String>,
}

impl Exit {
    /// Returns the exit status; for a killed process 128 plus the signal's number, as in shells.
    pub fn code(&self) -> i32 {
        self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal)).unwrap_or(1)
    }
}

impl Syncer {
    /// Starts `program`. Its standard error is passed on to this process's own; its standard output is parsed as
    /// events. Fails if the program cannot be started.
    pub fn start(program: PathBuf, args: impl IntoIterator<Item = OsString>) -> Result<Self, ProcessError> {
        Self::start_with(program, args, None)
    }

    /// Starts `program` as [`Self::start`] does, with a file of certificates of authorities in the place of the
    /// system's.
    pub fn start_with(
        program: PathBuf,
        args: impl IntoIterator<Item = OsString>,
        authorities: Option<PathBuf>,
    ) -> Result<Self, ProcessError> {
        let mut child = Command::new(&program)
            .args(args)
            .envs(authorities.map(|file| ("SSL_CERT_FILE", file)))
            // A run does what its SyncJob says, whatever this user has as defaults.
            .env("VOLFERRY_CONFIG", "none")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ProcessError::Spawn { program, source })?;
        let (sender, events) = mpsc::channel(16);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read_events(stdout, sender));
        }
        let stderr = tokio::spawn(pass_on(child.stderr.take()));
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, events, stderr })
    }

    /// Returns the next event; `None` once the process has closed its standard output. No event is lost if the future
    /// is dropped.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Sends the peer's contact to the process. A failure is only logged, since the exit of the process says more.
    pub async fn introduce(&mut self, peer: &Contact) {
        let Some(mut stdin) = self.stdin.take() else { return };
        let line = serde_json::to_string(peer).unwrap_or_default() + "\n";
        if let Err(error) = stdin.write_all(line.as_bytes()).await {
            tracing::warn!(%error, "the syncer cannot be told of its peer");
        }
    }

    /// Closes the standard input, by which a process that waits for its peer's contact learns that none will come.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Asks the process to stop (SIGTERM). Does nothing if the process has been waited for.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks a service to read its files again (SIGHUP).
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            tracing::warn!(%error, "the syncer cannot be signalled");
        }
    }

    /// Waits for the exit of the process. Unread events are lost. The future may be dropped and called again.
    pub async fn wait(&mut self) -> Result<Exit, ProcessError> {
        self.events.close();
        let status = self.child.wait().await.map_err(ProcessError::Wait)?;
        let tail = (&mut self.stderr).await.map(Vec::from).unwrap_or_default();
        Ok(Exit { status, tail })
    }
}

async fn read_events(stdout: impl AsyncRead + Unpin, events: mpsc::Sender<Event>) {
    let mut lines = BoundedLines::new(stdout);
    while let Some(line) = lines.next().await {
        match serde_json::from_str(&line) {
            // If the receiver is gone, events are dropped; the pipe is still drained, or the process would block.
            Ok(event) => drop(events.send(event).await),
            Err(error) => tracing::debug!(%error, "a line of the syncer's output is no event"),
        }
    }
}

async fn pass_on(stderr: Option<impl AsyncRead + Unpin>) -> VecDeque<String> {
    let mut tail = VecDeque::with_capacity(TAIL_LINES);
    let Some(stderr) = stderr else { return tail };
    let mut lines = BoundedLines::new(stderr);
    while let Some(line) = lines.next().await {
        eprintln!("{line}");
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(line);
    }
    tail
}

/// Reads lines of bounded length from a stream of any bytes.
struct BoundedLines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    fn new(stream: R) -> Self {
        Self { reader: BufReader::new(stream), line: Vec::new() }
    }

    /// Returns the next line; `None` at the end of the stream or after a read error.
    async fn next(&mut self) -> Option<String> {
        loop {
            let chunk = self.reader.fill_buf().await.unwrap_or_default();
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let (part, used) = match newline {
                Some(at) => (&chunk[..at], at + 1),
                None => (chunk, chunk.len()),
            };
            let room = MAX_LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            self.reader.consume(used);
            if newline.is_some() || (used == 0 && !self.line.is_empty()) {
                return Some(self.take_line());
            }
            if used == 0 {
                return None;
            }
        }
    }

    fn take_line(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        line
    }
}

#[cfg(test)]
mod tests {
    use contract::{Phase, Progress};

    use super::*;

    fn shell(script: &str) -> Syncer {
        Syncer::start("/bin/sh".into(), ["-c".into(), script.into()]).unwrap()
    }

    #[tokio::test]
    async fn events_are_read_among_other_lines() {
        let event = Event::Progress(Progress { phase: Phase::Transfer, files: 3, ..Progress::default() });
        let line = serde_json::to_string(&event).unwrap();
        let mut syncer = shell(&format!("echo hello; echo '{line}'; echo '{{\"event\":'"));
        assert_eq!(syncer.next_event().await, Some(event));
        assert_eq!(syncer.next_event().await, None);
        assert_eq!(syncer.wait().await.unwrap().code(), 0);
    }

    #[tokio::test]
    async fn the_exit_carries_status_and_last_words() {
        let exit = shell("for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 4").wait().await.unwrap();
        assert_eq!(exit.code(), 4);
        assert_eq!(exit.tail.first().unwrap(), "line 3");
        assert_eq!(exit.tail.last().unwrap(), "line 7");
    }

    #[tokio::test]
    async fn a_terminated_process_can_still_report() {
        let script = "trap 'echo \"{\\\"event\\\":\\\"listening\\\",\\\"address\\\":\\\"bye\\\"}\"; exit 5' TERM; \
                      echo '{\"event\":\"listening\",\"address\":\"up\"}'; while :; do sleep 0.01; done";
        let mut syncer = shell(script);
        assert_eq!(syncer.next_event().await, Some(Event::Listening { address: "up".into() }));
        syncer.terminate();
        assert_eq!(syncer.next_event().await, Some(Event::Listening { address: "bye".into() }));
        assert_eq!(syncer.wait().await.unwrap().code(), 5);
    }

    #[tokio::test]
    async fn a_process_hears_of_its_peer_or_that_there_is_none() {
        let contact = Contact { fingerprint: contract::Fingerprint::of(b"key"), address: Some("h:1".into()) };
        let mut syncer = shell("read line; echo \"heard $line\" >&2");
        syncer.introduce(&contact).await;
        let said = format!("heard {}", serde_json::to_string(&contact).unwrap());
        assert_eq!(syncer.wait().await.unwrap().tail, [said]);
        let mut syncer = shell("read line || exit 7");
        syncer.hang_up();
        assert_eq!(syncer.wait().await.unwrap().code(), 7);
    }

    #[tokio::test]
    async fn a_killed_process_has_the_shells_code() {
        assert_eq!(shell("kill -9 $$").wait().await.unwrap().code(), 137);
    }

    #[tokio::test]
    async fn output_that_nobody_reads_does_not_block_the_process() {
        let line = r#"{"event":"listening","address":"0123456789012345678901234567890123456789"}"#;
        let script = format!("i=0; while [ $i -lt 3000 ]; do echo '{line}'; i=$((i+1)); done");
        assert_eq!(shell(&script).wait().await.unwrap().code(), 0);
    }

    #[tokio::test]
    async fn lines_are_bounded_and_the_last_needs_no_newline() {
        let long = vec![b'x'; MAX_LINE_BYTES + 10];
        let mut lines = BoundedLines::new(&long[..]);
        assert_eq!(lines.next().await.unwrap().len(), MAX_LINE_BYTES);
        assert_eq!(lines.next().await, None);
        let mut lines = BoundedLines::new(&b"a\n\xff\nb"[..]);
        assert_eq!(lines.next().await.as_deref(), Some("a"));
        assert_eq!(lines.next().await.as_deref(), Some("\u{fffd}"));
        assert_eq!(lines.next().await.as_deref(), Some("b"));
        assert_eq!(lines.next().await, None);
    }

    #[test]
    fn a_missing_program_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async { Syncer::start("/no/such".into(), []).unwrap_err() });
        assert_eq!(error.to_string(), "cannot start /no/such");
    }
}
