//! The process of ssh, or of another program in its place, that leads to the far end.

use std::{
    convert::Infallible,
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use contract::printable;
use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    stdio::dup2_stdout,
};
use syncer::session::ByteStream;

use crate::screen::Screen;

/// How long the process may take to end once its input is closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last lines of standard error that are kept, and the longest line.
const KEPT_LINES: usize = 20;
const MAX_LINE_BYTES: u64 = 4096;

/// Starts the program of the remaining arguments so that Ctrl-C does not reach it: the run then ends in order, for
/// which it needs the connection.
const UNINTERRUPTED: &str = r#"trap "" INT; exec "$@""#;

/// The stream to the far end: a process that leads there, or this process's own standard input and output.
#[derive(Debug)]
pub(crate) struct Ssh {
    /// The name of the program that leads there.
    program: String,
    process: Option<Process>,
    input: OwnedFd,
    output: OwnedFd,
    errors: Arc<Mutex<Vec<String>>>,
    /// Ends with the process's errors.
    error_reader: Receiver<Infallible>,
    /// Whether the process was stopped because the far end did not answer in time.
    is_late: Arc<AtomicBool>,
}

/// It is killed when dropped, unless it has ended.
#[derive(Debug)]
struct Process {
    child: Child,
    handle: OwnedFd,
}

/// Files that share the process's pipes.
pub(crate) struct Pipes {
    pub(crate) from: File,
    pub(crate) to: File,
}

/// The end of the process.
pub(crate) struct SshEnd {
    pub(crate) status: Option<ExitStatus>,
    /// The last lines of its errors.
    pub(crate) errors: Vec<String>,
}

/// The time that the far end has to answer. The process is stopped when that is over, unless this is dropped before.
pub(crate) struct AnswerWatch {
    deadline: Instant,
    late: Late,
    _answered: mpsc::Sender<Infallible>,
}

/// Stops a process that did not lead to an answer in time.
struct Late {
    is_late: Arc<AtomicBool>,
    /// `None` of standard input and output, which nothing ends.
    process: Option<OwnedFd>,
}

impl Late {
    fn stop(&self) {
        self.is_late.store(true, SeqCst);
        // Fails only if it has ended. ssh gives a terminal its echo back.
        let _ = self.process.as_ref().map(|process| pidfd_send_signal(process, Signal::TERM));
    }
}

/// What the far end says, as long as it has time to. What the process has started may outlive it and keep the pipe
/// open, so the end of the pipe alone is not waited for.
pub(crate) struct Heard {
    from: File,
    watch: Option<AnswerWatch>,
    /// Whether the first words end the wait.
    any_word_counts: bool,
}

impl Heard {
    pub(crate) fn new(from: File, watch: Option<AnswerWatch>, any_word_counts: bool) -> Self {
        Self { from, watch, any_word_counts }
    }
}

impl io::Read for Heard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(watch) = &self.watch {
            watch.until_heard(&self.from)?;
        }
        let len = self.from.read(buffer)?;
        self.watch = self.watch.take().filter(|_| !self.any_word_counts);
        Ok(len)
    }
}

impl AnswerWatch {
    /// Waits until there is something to read.
    fn until_heard(&self, from: &impl AsFd) -> io::Result<()> {
        let mut readable = [PollFd::new(from, PollFlags::IN)];
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match poll(&mut readable, Timespec::try_from(left).ok().as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => {
                    self.late.stop();
                    return Err(io::ErrorKind::TimedOut.into());
                }
                ready => return Ok(ready.map(drop)?),
            }
        }
    }
}

impl Ssh {
    /// Starts `rsh`, the words of a command line, with a host and the command to run there. Its errors appear on the
    /// `screen`.
    pub(crate) fn start(
        rsh: &[OsString],
        host: &OsStr,
        command: &OsStr,
        screen: &Arc<Screen>,
    ) -> io::Result<Self> {
        if !rsh.first().is_some_and(|program| is_there(program)) {
            return Err(Errno::NOENT.into());
        }
        let mut process = Command::new("sh");
        process.args(["-c", UNINTERRUPTED, "sh"]).args(rsh).arg(host).arg(command);
        let mut child =
            process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = child.stdin.take().ok_or_else(missing)?.into();
        let output = child.stdout.take().ok_or_else(missing)?.into();
        let errors = Arc::<Mutex<Vec<String>>>::default();
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let (kept, screen) = (Arc::clone(&errors), Arc::clone(screen));
        let (reads, error_reader) = mpsc::channel();
        let read = move || {
            pass_on(BufReader::new(stderr), &screen, &kept);
            drop(reads);
        };
        thread::Builder::new().name("ssh errors".into()).spawn(read)?;
        let process = Some(Process { child, handle });
        let program = rsh.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
        let program = program.to_string_lossy().into_owned();
        Ok(Self { program, process, input, output, errors, error_reader, is_late: Arc::default() })
    }

    /// Takes this process's standard input and output for the stream. What would be printed goes to standard error.
    pub(crate) fn of_stdio() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        dup2_stdout(io::stderr())?;
        let (_, error_reader) = mpsc::channel();
        let (errors, is_late) = (Arc::default(), Arc::default());
        let program = String::new();
        Ok(Self { program, process: None, input: output, output: input, errors, error_reader, is_late })
    }

    /// Returns the name of another program than ssh that was to lead there.
    pub(crate) fn other_program(&self) -> Option<&str> {
        Some(self.program.as_str()).filter(|program| *program != "ssh")
    }

    /// Gives the far end so long to answer, until the watch is dropped.
    pub(crate) fn expect_answer(&self, within: Duration) -> io::Result<AnswerWatch> {
        let (watch, answered) = mpsc::channel::<Infallible>();
        let late = || {
            let process = self.process.as_ref().map(|process| process.handle.try_clone()).transpose()?;
            io::Result::Ok(Late { is_late: Arc::clone(&self.is_late), process })
        };
        let watch = AnswerWatch { deadline: Instant::now() + within, late: late()?, _answered: watch };
        // What is said to the far end may not get through, either.
        let late = late()?;
        let wait = move || {
            if answered.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
                late.stop();
            }
        };
        thread::Builder::new().name("answer".into()).spawn(wait)?;
        Ok(watch)
    }

    /// Returns whether the process was stopped because the far end did not answer in time.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(SeqCst)
    }

    /// Returns files for both directions.
    pub(crate) fn files(&self) -> io::Result<Pipes> {
        Ok(Pipes { from: self.output.try_clone()?.into(), to: self.input.try_clone()?.into() })
    }

    /// Returns both directions as a stream for packets.
    pub(crate) fn stream(&self) -> io::Result<ByteStream> {
        Ok(ByteStream::of_command(self.output.try_clone()?, self.input.try_clone()?))
    }

    /// Closes the process's input and waits for its end; kills it if that takes long.
    pub(crate) fn end(mut self) -> SshEnd {
        let (input, output) = (dev_null(), dev_null());
        if let (Ok(input), Ok(output)) = (input, output) {
            (self.input, self.output) = (input, output);
        }
        let Some(mut process) = self.process.take() else {
            return SshEnd { status: None, errors: Vec::new() };
        };
        // A process that was stopped may have left others, which keep the pipe of its errors open.
        let for_errors = if self.is_late() { Duration::ZERO } else { PATIENCE };
        let deadline = Instant::now() + for_errors;
        let mut ended = [PollFd::new(&process.handle, PollFlags::IN)];
        // A failure is a wait that was too short.
        let _ = poll(&mut ended, Timespec::try_from(PATIENCE).ok().as_ref());
        let status = process.child.try_wait().ok().flatten();
        // The last lines may be in the pipe. A master connection of ssh, which stays for later ones, may keep it open.
        let _ = self.error_reader.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        drop(process);
        SshEnd { status, errors: std::mem::take(&mut *self.errors.lock()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether the shell finds a program: by its path, or below a folder of `PATH`.
fn is_there(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

fn dev_null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Shows each line of the process's errors at once, and keeps the last ones.
fn pass_on(mut errors: impl io::BufRead, screen: &Screen, kept: &Mutex<Vec<String>>) {
    let mut line = Vec::new();
    while errors.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        let text = printable(String::from_utf8_lossy(&line).trim_end()).to_string();
        screen.say(&format!("{text}\n"));
        let mut kept = kept.lock();
        if kept.len() == KEPT_LINES {
            kept.remove(0);
        }
        kept.push(text);
        line.clear();
    }
}
