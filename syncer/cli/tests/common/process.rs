//! The program as a process: started, listened to, signalled, and waited for with an end to the patience.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::SocketAddr,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use contract::{Contact, Event, ExitCode, Report};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::scratch::{self, NOBODY};

/// How long anything may take before a test gives it up. Nothing takes a tenth of it on a machine that does little
/// else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A `volferry` that runs, or ran. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    /// Names this process even when it is over and another has its number.
    handle: OwnedFd,
    events: mpsc::Receiver<Event>,
    heard: Vec<Event>,
    ended: mpsc::Receiver<(ExitStatus, String)>,
    /// Its standard input, where that is open.
    stdin: Option<ChildStdin>,
    over: bool,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` when a signal ended it.
    pub exit: Option<ExitCode>,
    /// What it printed on standard output, all of it events.
    pub events: Vec<Event>,
    pub stderr: String,
}

/// Who runs a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Same,
    /// [`NOBODY`], or whoever runs the tests where that is not root.
    Nobody,
}

impl User {
    /// The user's number.
    pub fn id(self) -> u32 {
        match self {
            Self::Nobody if scratch::is_root() => NOBODY,
            _ => rustix::process::geteuid().as_raw(),
        }
    }
}

/// `volferry` with `args`, not started. `program` is where [`User::Nobody`] can reach it.
pub fn command(program: &Path, user: User, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    if user == User::Nobody && scratch::is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The program that the tests are of.
pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_volferry").into()
}

/// The program in `dir`, for users who cannot reach the folder that it was built in.
pub fn program_in(dir: &Path) -> PathBuf {
    let path = dir.join("volferry");
    if fs::hard_link(program(), &path).is_err() {
        // Were this process to copy it, a process that another thread starts meanwhile would inherit the file open for
        // writing, and the kernel would not run it.
        let copied = Command::new("cp").args([&program(), &path]).status().unwrap();
        assert!(copied.success());
    }
    path
}

impl Running {
    pub fn start(command: Command) -> Self {
        Self::start_on(Stdio::null(), command)
    }

    /// Starts a process that waits for what [`tell`](Self::tell) says.
    pub fn start_listening(command: Command) -> Self {
        Self::start_on(Stdio::piped(), command)
    }

    fn start_on(stdin: Stdio, mut command: Command) -> Self {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let events = read_events(&mut child);
        let stdin = child.stdin.take();
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut stderr = String::new();
            let read = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
            let status = child.wait();
            if let (Some(Ok(_)), Ok(status)) = (read, status) {
                let _ = tell.send((status, stderr));
            }
        });
        Self { pid, handle, events, heard: Vec::new(), ended, stdin, over: false }
    }

    /// Waits for the line that says how the peer knows the process.
    #[track_caller]
    pub fn contact(&mut self) -> Contact {
        match self.next_event() {
            Event::Contact(contact) => contact,
            other => panic!("no contact: {other:?}"),
        }
    }

    /// Writes a line to the process's standard input, and closes it.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        let mut stdin = self.stdin.take().expect("nothing is to be told");
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for the line that says where the process listens.
    #[track_caller]
    pub fn listening(&mut self) -> SocketAddr {
        match self.next_event() {
            Event::Listening { address } => address.parse().unwrap(),
            other => panic!("not where it listens: {other:?}"),
        }
    }

    /// Waits until a run is over, in a process that may serve more of them.
    #[track_caller]
    pub fn finished(&mut self) -> Report {
        loop {
            if let Event::Finished(report) = self.next_event() {
                return *report;
            }
        }
    }

    /// Waits until bytes of the content have arrived, or the run is over.
    #[track_caller]
    pub fn moved(&mut self) {
        loop {
            match self.next_event() {
                Event::Progress(progress) if progress.bytes > 0 => return,
                Event::Finished(_) => return,
                _ => {}
            }
        }
    }

    #[track_caller]
    fn next_event(&mut self) -> Event {
        let event = self.events.recv_timeout(PATIENCE);
        let event = event.unwrap_or_else(|_| match self.ended.recv_timeout(Duration::ZERO) {
            Ok((status, stderr)) => panic!("it ended with {status}: {stderr}"),
            Err(_) => panic!("no event came"),
        });
        self.heard.push(event.clone());
        event
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.handle, signal).unwrap();
    }

    /// Kills the process, unless it is over.
    pub fn kill(&self) {
        match pidfd_send_signal(&self.handle, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let (status, stderr) = self.ended.recv_timeout(PATIENCE).expect("the process does not end");
        self.over = true;
        let mut events = std::mem::take(&mut self.heard);
        events.extend(self.events.iter());
        let known = |status| {
            ExitCode::from_status(status).unwrap_or_else(|| panic!("undocumented status {status}: {stderr}"))
        };
        Ended { exit: status.code().map(known), events, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.kill();
        }
    }
}

impl Ended {
    /// The report of the last run, from the last line.
    #[track_caller]
    pub fn report(&self) -> &Report {
        match self.events.last() {
            Some(Event::Finished(report)) => report,
            other => panic!("the last line is {other:?}, not a report; {}", self.stderr),
        }
    }

    /// The word that says why the run was not a success.
    #[track_caller]
    pub fn reason(&self) -> &str {
        self.report().reason.as_deref().unwrap_or("none")
    }

    #[track_caller]
    pub fn assert_exit(&self, expected: ExitCode) {
        assert_eq!(self.exit, Some(expected), "{:?}\n{}", self.events.last(), self.stderr);
    }
}

fn read_events(child: &mut Child) -> mpsc::Receiver<Event> {
    let (tell, events) = mpsc::channel();
    let stdout = child.stdout.take();
    thread::spawn(move || {
        for line in stdout.map(BufReader::new).into_iter().flat_map(BufReader::lines).map_while(Result::ok) {
            let event = serde_json::from_str(&line);
            let event = event.unwrap_or_else(|error| panic!("{error} in the line {line:?}"));
            let _ = tell.send(event);
        }
    });
    events
}
