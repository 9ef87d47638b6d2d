//! Runs child processes: timed runs with a limit, and daemons that end with the test or bench.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// The limit of any wait. On a machine that does little else, every wait takes less than a tenth of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a finished process.
#[derive(Debug)]
pub struct Finished {
    /// The time from just before the process was started until it ended.
    pub elapsed: Duration,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a command to its end. A status other than 0, or exceeding `limit` (the process is killed then), is an error
/// with the end of its output. Output goes to files in `logs`, so that nothing has to be read while the clock runs.
pub fn run_timed(mut command: Command, logs: &Path, limit: Duration) -> anyhow::Result<Finished> {
    let (out, err) = (logs.join("stdout"), logs.join("stderr"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let program = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
    let status = wait_within(&mut child, limit).with_context(|| program.clone())?;
    let elapsed = start.elapsed();
    let (stdout, stderr) = (read_lossy(&out)?, read_lossy(&err)?);
    ensure!(status.success(), "{program}: {status}: {}", tail(&format!("{stdout}\n{stderr}")));
    Ok(Finished { elapsed, stdout, stderr })
}

/// Runs a command that is not measured, and returns its standard output. A status other than 0 is an error.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {program}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {}", output.status, tail(&stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until the process has ended; kills it after `limit` and fails.
pub fn wait_within(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let handle = pidfd_open(pid_of(child)?, PidfdFlags::empty())?;
    if !readable_within(&handle, limit)? {
        child.kill()?;
        child.wait()?;
        bail!("it ran for more than {} s and was killed", limit.as_secs());
    }
    Ok(child.wait()?)
}

/// A process that is killed, if it still runs, when this value is dropped.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Fails if it has ended by itself, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that serves until this value is dropped. The kernel kills it if the bench dies first.
#[derive(Debug)]
pub struct Daemon {
    child: KilledOnDrop,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: PathBuf,
}

impl Daemon {
    /// Starts `program`, with its standard error in `logs`.
    pub fn start(program: &Path, args: &[&str], logs: &Path) -> anyhow::Result<Self> {
        let stderr = logs.join("daemon-stderr");
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Self { child: KilledOnDrop(child), stdout, stderr })
    }

    /// Returns the first line that it prints.
    pub fn first_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.stdout
            && readable_within(stdout.get_ref(), PATIENCE)?
        {
            stdout.read_line(&mut line)?;
        }
        ensure!(!line.is_empty(), "the daemon said nothing: {}", self.complaint());
        Ok(line)
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns the end of its standard error so far.
    pub fn complaint(&self) -> String {
        tail(&read_lossy(&self.stderr).unwrap_or_default())
    }

    /// Waits until it accepts TCP connections at `address`.
    pub fn accepts(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.until(|| TcpStream::connect(address).is_ok())
            .with_context(|| format!("waiting for it to listen at {address}"))
    }

    /// Waits until a UDP socket is bound to the port. Such a socket need not answer, so the kernel's table is read.
    pub fn binds_udp(&mut self, port: u16) -> anyhow::Result<()> {
        let needle = format!(":{port:04X} ");
        let bound = || std::fs::read_to_string("/proc/net/udp").is_ok_and(|table| table.contains(&needle));
        self.until(bound).with_context(|| format!("waiting for it to bind UDP port {port}"))
    }

    /// Stops its execution until [`Daemon::resume`], because a server that polls without a client must not take CPU
    /// time from the others.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Undoes [`Daemon::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(pid_of(&self.child.0)?, signal)?)
    }

    /// Waits until it ends by itself; fails if its status is not 0.
    pub fn finish(mut self, limit: Duration) -> anyhow::Result<()> {
        let status = wait_within(&mut self.child.0, limit)?;
        ensure!(status.success(), "{status}: {}", self.complaint());
        Ok(())
    }

    /// Waits for a condition by polling, because no event reports that another process has started to listen.
    pub fn until(&mut self, ready: impl Fn() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !ready() {
            if let Some(status) = self.child.0.try_wait()? {
                bail!("it ended ({status}): {}", self.complaint());
            }
            ensure!(Instant::now() < deadline, "not ready: {}", self.complaint());
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// Returns the path of a program, searched in `PATH` and where Debian keeps daemons.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

fn pid_of(child: &Child) -> anyhow::Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process without an id")
}

/// What a run took.
#[derive(Debug)]
pub struct WatchedRun {
    /// Its duration.
    pub elapsed: Duration,
    /// Its peak memory.
    pub peak_bytes: f64,
}

/// Runs a command to its end, without its output. The memory is polled every 5 ms, because the kernel drops it with the
/// process. A status other than 0, or exceeding `limit` (the process is killed then), is an error.
pub fn run_watched(mut command: Command, limit: Duration) -> anyhow::Result<WatchedRun> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context(program.clone())?;
    let handle = pidfd_open(pid_of(&child)?, PidfdFlags::empty())?;
    let mut peak_bytes = 0.0;
    while start.elapsed() < limit && !readable_within(&handle, Duration::from_millis(5))? {
        peak_bytes = peak_of(child.id()).unwrap_or(peak_bytes);
    }
    let status = wait_within(&mut child, limit.saturating_sub(start.elapsed())).context(program.clone())?;
    ensure!(status.success(), "{program}: {status}");
    Ok(WatchedRun { elapsed: start.elapsed(), peak_bytes })
}

/// Returns the peak memory of a running process in bytes.
fn peak_of(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn readable_within(fd: &impl AsFd, limit: Duration) -> anyhow::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            // A signal to the bench; its sender also stops the awaited process, or that ends by itself.
            Err(Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

fn read_lossy(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last few lines, joined to one.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_run_gives_its_output_and_its_time() {
        let logs = tempfile::tempdir().unwrap();
        let done = run_timed(shell("sleep 0.05; echo out; echo err >&2"), logs.path(), PATIENCE).unwrap();
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
        assert!(done.elapsed >= Duration::from_millis(50));
    }

    #[test]
    fn a_failed_run_says_what_the_program_said() {
        let logs = tempfile::tempdir().unwrap();
        let error = run_timed(shell("echo no such volume >&2; exit 3"), logs.path(), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("exit status: 3: no such volume"), "{error}");
    }

    #[test]
    fn a_run_that_hangs_is_killed() {
        let logs = tempfile::tempdir().unwrap();
        let error = run_timed(shell("exec sleep 60"), logs.path(), Duration::from_millis(50)).unwrap_err();
        assert!(format!("{error:#}").contains("was killed"), "{error:#}");
    }

    #[test]
    fn a_daemon_ends_with_its_handle() {
        let logs = tempfile::tempdir().unwrap();
        let script = ["-c", "echo ready; exec sleep 60"];
        let mut daemon = Daemon::start(Path::new("/bin/sh"), &script, logs.path()).unwrap();
        assert_eq!(daemon.first_line().unwrap(), "ready\n");
        let process = PathBuf::from(format!("/proc/{}", daemon.id()));
        assert!(process.exists());
        drop(daemon);
        assert!(!process.exists());
    }

    #[test]
    fn a_daemon_that_cannot_start_says_why() {
        let logs = tempfile::tempdir().unwrap();
        let script = ["-c", "echo port taken >&2; exit 1"];
        let mut daemon = Daemon::start(Path::new("/bin/sh"), &script, logs.path()).unwrap();
        let error = daemon.accepts(crate::ports::unused()).unwrap_err();
        assert!(format!("{error:#}").contains("port taken"), "{error:#}");
    }
}
