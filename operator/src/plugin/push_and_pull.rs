//! `kubectl volferry push` and `pull`: between a folder of this machine and a claim, with nothing but a kubeconfig.
//!
//! A pod mounts the claim, and `volferry sync` of this machine starts its other end there, as it does by ssh elsewhere:
//! `kubectl volferry stream` takes the place of ssh, and `exec` that of the far machine's shell. Both ends make their
//! keys in memory and tell each other the public halves by that stream, which the API server authenticates.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf, absolute},
    process::ExitStatus,
};

use contract::Side;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::{
    args::{PodFlags, SyncFlags},
    claim_pod::ClaimPod,
    cluster::Cluster,
    error::PluginError,
    lost_connection::Tries,
    one_pod::OnePod,
    quoting::quoted,
};
use crate::{signals::Stops, user_pods::one_off_job::ENGINE};

/// The engine's program.
const PROGRAM: &str = "volferry";
/// The way of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From this machine to the claim.
    Push,
    /// From the claim to this machine.
    Pull,
}

impl Way {
    /// Returns the command's name.
    fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }

    /// Returns the claim's end.
    fn side(self) -> Side {
        match self {
            Self::Push => Side::Sink,
            Self::Pull => Side::Source,
        }
    }
}

/// Brings the claim in step with a place of this machine, or the other way round. The pod is gone afterwards, however
/// that ends.
pub(super) async fn run(
    cluster: &Cluster,
    way: Way,
    here: &Path,
    claim: &str,
    pod: &PodFlags,
    sync: &SyncFlags,
) -> Result<(), PluginError> {
    let mut stops = Stops::new().map_err(PluginError::Signals)?;
    let here = absolute(here).map_err(|source| PluginError::Place { path: here.into(), source })?;
    let planned = ClaimPod::plan(cluster, claim, way.name(), way.side(), pod).await?;
    let made = planned.make(cluster).await?;
    let moved = async {
        let running = tokio::select! {
            running = made.running() => running?,
            () = stops.next() => return Err(PluginError::Stopped { is_gone: true }),
        };
        let there = OsString::from(format!("{running}:{}", planned.path()));
        let places = match way {
            Way::Push => [here.into(), there],
            Way::Pull => [there, here.into()],
        };
        sync_again(&line(cluster, sync, places)?, &made, &running, &mut stops).await
    };
    let done = moved.await;
    made.end(done).await
}

/// Returns the arguments of `volferry`.
fn line(cluster: &Cluster, sync: &SyncFlags, places: [OsString; 2]) -> Result<Vec<OsString>, PluginError> {
    let own = env::current_exe().map_err(PluginError::OwnPath)?;
    let rsh = rsh(own, cluster.scope.kubeconfig.as_deref(), cluster.context.as_deref(), &cluster.namespace);
    let flags = ["--rsh".into(), rsh, "--remote-program".into(), ENGINE.into(), "--link=ssh".into()];
    let all = ["sync".into()].into_iter().chain(sync.flags.iter().cloned()).chain(flags);
    Ok(all.chain(["--".into()]).chain(places).collect())
}

/// Returns the command that takes the place of ssh. It names the cluster that the pod is in: by the time that a lost
/// connection is opened again, another context of the kubeconfig may be the current one.
fn rsh(own: PathBuf, kubeconfig: Option<&Path>, context: Option<&str>, namespace: &str) -> OsString {
    let flag = |name: &str, value: &OsStr| [OsStr::new(name), value].into_iter().collect::<OsString>();
    let kubeconfig = kubeconfig.map(|file| flag("--kubeconfig=", file.as_os_str()));
    let context = context.map(|context| flag("--context=", OsStr::new(context)));
    let namespace = flag("--namespace=", OsStr::new(namespace));
    let flags = kubeconfig.into_iter().chain(context).chain([namespace, "stream".into()]);
    let words = [own.into_os_string()].into_iter().chain(flags);
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(OsStr::new(" "))
}

/// Runs `volferry`, and again as long as only the connection is lost.
async fn sync_again(
    line: &[OsString],
    made: &OnePod,
    pod: &str,
    stops: &mut Stops,
) -> Result<(), PluginError> {
    let program = program();
    let mut tries = Tries::default();
    loop {
        tries.begin();
        let mut command = Command::new(&program);
        // Ctrl-C reaches this process alone, which passes it on.
        let started = command.args(line).process_group(0).kill_on_drop(true).spawn();
        let child = started.map_err(|source| PluginError::NoProgram { program: program.clone(), source })?;
        let EndedProcess { status, is_stopped } = ended(child, stops).await.map_err(PluginError::Signals)?;
        let status = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        let may_go_on = !is_stopped && tries.may_go_on(status) && made.runs(pod).await;
        match status {
            0 => return Ok(()),
            status if !may_go_on => return Err(PluginError::Ended { status }),
            _ => {}
        }
        tokio::select! {
            () = tries.pause() => {}
            () = stops.next() => return Err(PluginError::Stopped { is_gone: true }),
        }
    }
}

/// Returns the program beside this one, or else the one of that name in the path.
fn program() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}

/// How a process has ended.
struct EndedProcess {
    status: ExitStatus,
    /// Whether a signal has asked for it.
    is_stopped: bool,
}

/// Waits for the end of a process. The first signal asks it to stop in order, the second ends it.
async fn ended(mut child: Child, stops: &mut Stops) -> io::Result<EndedProcess> {
    let mut is_stopped = false;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(EndedProcess { status: status?, is_stopped }),
            () = stops.next() => {
                let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
                match pid.filter(|_| !is_stopped) {
                    // Fails only if it has ended.
                    Some(pid) => drop(kill_process(pid, Signal::INT)),
                    None => child.start_kill()?,
                }
                is_stopped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_in_the_place_of_ssh_names_the_kubeconfig_and_the_context() {
        let file = Some(Path::new("/home/me/my kube"));
        let full = rsh("/bin/kubectl-volferry".into(), file, Some("far"), "prod");
        let flags = "'--kubeconfig=/home/me/my kube' --context=far --namespace=prod stream";
        assert_eq!(full, OsString::from(format!("/bin/kubectl-volferry {flags}")));
        assert_eq!(rsh("/p".into(), None, None, "prod"), "/p --namespace=prod stream");
    }
}
