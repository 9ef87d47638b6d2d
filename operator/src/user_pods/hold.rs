//! `volferry-operator hold`: PID 1 of a pod that lives for one command of a user, who reaches it by `exec`. It ends
//! once nobody has been there for a while, so that a computer that went away leaves no pod.

use std::{
    fs, io,
    process::{self, ExitCode},
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::signals::Stops;

/// The pause between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// How long the pod waits for its user.
#[derive(Debug, Clone, Args)]
pub struct HoldArgs {
    /// End after this many seconds in which no other process runs here.
    #[arg(long, value_name = "SECONDS")]
    idle: u64,
}

/// Waits until no other process of this container has run for a while, or a signal asks to stop.
pub async fn run(args: &HoldArgs) -> ExitCode {
    match hold(Duration::from_secs(args.idle)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot see which processes run: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn hold(idle: Duration) -> io::Result<()> {
    let mut stops = Stops::new()?;
    let mut seen = Instant::now();
    while seen.elapsed() < idle {
        tokio::select! {
            () = stops.next() => return Ok(()),
            () = sleep(LOOK) => {}
        }
        let names = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.file_name()));
        if is_used(names.filter_map(|name| name.into_string().ok())) {
            seen = Instant::now();
        }
    }
    Ok(())
}

/// Returns whether there is another process among the names in `/proc`.
fn is_used(mut names: impl Iterator<Item = String>) -> bool {
    names.any(|name| name.parse().is_ok_and(|process: u32| process != process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_used_while_a_process_runs_beside_this_one() {
        let own = process::id();
        let used = |names: &[String]| is_used(names.iter().cloned());
        assert!(!used(&[own.to_string(), "self".into(), "1x".into()]));
        assert!(used(&[own.to_string(), (own + 1).to_string()]));
    }
}
