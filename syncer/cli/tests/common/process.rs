//! The program as a process: a test starts it, reads its events, sends it signals, and waits for it within a limit.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use contract::{BusyAnswer, Contact, Event, ExitCode, Report};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

pub use testkit::process::PATIENCE;

use super::scratch::{self, NOBODY};

/// A process of `volferry` that was started. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    /// Names this process even after its end, when another process may have its number.
    handle: OwnedFd,
    events: mpsc::Receiver<Event>,
    heard: Vec<Event>,
    /// The lines of its standard error.
    said: mpsc::Receiver<String>,
    ended: mpsc::Receiver<(ExitStatus, String)>,
    /// Its standard input, if that is open.
    stdin: Option<ChildStdin>,
    over: bool,
}

/// The end of a process.
#[derive(Debug)]
pub struct Ended {
    /// `None` when a signal ended it.
    pub exit: Option<ExitCode>,
    /// All events that it printed on standard output.
    pub events: Vec<Event>,
    pub stderr: String,
}

/// The user of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user that runs the tests.
    Same,
    /// [`NOBODY`], or the user that runs the tests if that is not root.
    Nobody,
}

impl User {
    /// Returns the user's number.
    pub fn id(self) -> u32 {
        match self {
            Self::Nobody if scratch::is_root() => NOBODY,
            _ => rustix::process::geteuid().as_raw(),
        }
    }
}

/// Returns the command `volferry` with `args`, not started. `program` has to be within reach of [`User::Nobody`].
pub fn command(program: &Path, user: User, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("VOLFERRY_CONFIG", "none");
    if user == User::Nobody && scratch::is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Returns the path of the tested program.
pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_volferry").into()
}

/// Links or copies the program into `dir`, for users who cannot reach its build folder; returns its path.
pub fn program_in(dir: &Path) -> PathBuf {
    let path = dir.join("volferry");
    if fs::hard_link(program(), &path).is_err() {
        // Not copied by this process: a process that another thread starts meanwhile would inherit the file open for
        // writing, and the kernel would refuse to run it.
        let copied = Command::new("cp").args([&program(), &path]).status().unwrap();
        assert!(copied.success());
    }
    path
}

impl Running {
    pub fn start(command: Command) -> Self {
        Self::start_on(Stdio::null(), command)
    }

    /// Starts a process that reads the line of [`tell`](Self::tell) from its standard input.
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
        let (say, said) = mpsc::channel();
        thread::spawn(move || {
            let mut stderr = String::new();
            let mut pipe = BufReader::new(child.stderr.take().expect("it is piped"));
            let mut line = String::new();
            while pipe.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                stderr.push_str(&line);
                let _ = say.send(std::mem::take(&mut line));
            }
            if let Ok(status) = child.wait() {
                let _ = tell.send((status, stderr));
            }
        });
        Self { pid, handle, events, heard: Vec::new(), said, ended, stdin, over: false }
    }

    /// Waits for the event with the contact by which the peer knows the process.
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

    /// Waits for the event with the address at which the process listens.
    #[track_caller]
    pub fn listening(&mut self) -> SocketAddr {
        match self.next_event() {
            Event::Listening { address } => address.parse().unwrap(),
            other => panic!("not where it listens: {other:?}"),
        }
    }

    /// Returns the address of an event that was waited for.
    #[track_caller]
    pub fn listening_at(&self) -> SocketAddr {
        let address = self.heard.iter().find_map(|event| match event {
            Event::Listening { address } => address.parse().ok(),
            _ => None,
        });
        address.expect("it has not said where it listens")
    }

    /// Waits for a line of its standard error that contains `text`.
    #[track_caller]
    pub fn until_said(&self, text: &str) {
        while !self.said.recv_timeout(PATIENCE).expect("it does not say this").contains(text) {}
    }

    /// Waits until a run is over, in a process that may serve more runs; returns its report.
    #[track_caller]
    pub fn finished(&mut self) -> Report {
        loop {
            if let Event::Finished(report) = self.next_event() {
                return *report;
            }
        }
    }

    /// Waits until the other end answers that it is busy; returns the answer.
    #[track_caller]
    pub fn waiting(&mut self) -> BusyAnswer {
        loop {
            if let Event::Waiting(answer) = self.next_event() {
                return answer;
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

    /// Kills the process, unless it has ended.
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
    /// Returns the report of the last run, from the last line.
    #[track_caller]
    pub fn report(&self) -> &Report {
        match self.events.last() {
            Some(Event::Finished(report)) => report,
            other => panic!("the last line is {other:?}, not a report; {}", self.stderr),
        }
    }

    /// Returns the report's reason for a failure, or `none`.
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
