//! Processes that never outlive the test that started them.

use std::{
    fs::File,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// The pause between two probes of [`wait_until`].
const PROBE_PERIOD: Duration = Duration::from_millis(50);

/// Calls `probe` until it succeeds, because no event tells that a started process is ready.
///
/// # Errors
/// The probe's last error after `timeout`, or the error of `is_alive`, which is called between probes.
pub fn wait_until(
    timeout: Duration,
    mut probe: impl FnMut() -> Result<()>,
    mut is_alive: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let Err(error) = probe() else { return Ok(()) };
        is_alive()?;
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(PROBE_PERIOD);
    }
}

/// A process that is killed with those that it started when this is dropped, and also when the test process ends
/// without dropping it: a static is never dropped, and the test process may be killed.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    reaper: Reaper,
}

impl Supervised {
    /// Starts `command` with its output in the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let program = command.get_program().to_owned();
        let output = File::options().create(true).append(true).open(log).context("a process's log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let reaper = Reaper::new(&format!("kill -KILL -{}", child.id()))?;
        Ok(Self { child, reaper })
    }

    /// Returns the process's exit status, or `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a process")
    }

    /// Asks the process to stop, as a kubelet does (SIGTERM), and waits until it has ended.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let told = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        anyhow::ensure!(told.context("cannot run kill")?.success(), "no process to stop");
        self.child.wait().context("cannot wait for a process")
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Each fails only for processes that have ended.
        let group = format!("-{}", self.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.child.kill());
        drop(self.child.wait());
        self.reaper.disarm();
    }
}

/// A shell that runs a command once its parent process has ended in any way: it waits for the end of a pipe that only
/// the parent holds open.
#[derive(Debug)]
pub struct Reaper(Child);

impl Reaper {
    /// Arms a reaper with a shell command.
    pub fn new(command: &str) -> Result<Self> {
        let script = format!("trap '' HUP INT TERM; read -r word || {{ {command}; }}");
        Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
            .context("cannot start /bin/sh")
    }

    fn disarm(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
