//! `kubectl volferry copy`: between claims of two namespaces or clusters, through this machine.
//!
//! The source's pod runs `volferry sync` and the other one `volferry remote`, as two machines do by ssh; this process
//! joins their standard input and output. They tell each other the public halves of keys that they make in memory, so
//! only encrypted packets pass here.

use std::time::Duration;

use contract::Side;
use kube::ResourceExt as _;
use tokio::time::timeout;

use super::{
    args::{ClaimPlace, PodFlags, Scope, SyncFlags},
    claim_pod::ClaimPod,
    cluster::Cluster,
    error::PluginError,
    exec_stream::{ExecStream, pass_on},
    lost_connection::Tries,
    one_pod::{OnePod, show_errors},
    progress_line,
};
use crate::{signals::Stops, user_pods::one_off_job::ENGINE};

/// The command's name.
const COMMAND: &str = "copy";
/// How long the last errors of a process may take to arrive.
const LAST_ERRORS: Duration = Duration::from_secs(5);

/// One end: its cluster, and what is made there.
struct CopyEnd {
    cluster: Cluster,
    planned: ClaimPod,
}

impl CopyEnd {
    async fn plan(
        scope: &Scope,
        place: &ClaimPlace,
        side: Side,
        flags: &PodFlags,
    ) -> Result<Self, PluginError> {
        let cluster = Cluster::connect(&place.scope(scope)).await?;
        let planned = ClaimPod::plan(&cluster, &place.claim, COMMAND, side, flags).await?;
        Ok(Self { cluster, planned })
    }
}

/// A pod that runs.
struct RunningPod<'a> {
    made: &'a OnePod,
    pod: String,
}

impl<'a> RunningPod<'a> {
    async fn wait(made: &'a OnePod) -> Result<Self, PluginError> {
        Ok(Self { made, pod: made.running().await? })
    }

    async fn start(&self, command: &[String]) -> Result<ExecStream, PluginError> {
        ExecStream::start(&self.made.pods, &self.pod, command).await
    }

    async fn runs(&self) -> bool {
        self.made.runs(&self.pod).await
    }
}

/// Copies one claim's files to another. Both pods are gone afterwards, however that ends.
pub(super) async fn run(
    scope: &Scope,
    from: &ClaimPlace,
    to: &ClaimPlace,
    pod: &PodFlags,
    sync: &SyncFlags,
) -> Result<(), PluginError> {
    let mut stops = Stops::new().map_err(PluginError::Signals)?;
    let from = CopyEnd::plan(scope, from, Side::Source, pod).await?;
    let to = CopyEnd::plan(scope, to, Side::Sink, pod).await?;
    if from.planned.claim.uid() == to.planned.claim.uid() {
        let (namespace, name) = (to.cluster.namespace.clone(), to.planned.claim.name_any());
        return Err(PluginError::OneClaim { namespace, name });
    }
    let source = from.planned.make(&from.cluster).await?;
    let done = match to.planned.make(&to.cluster).await {
        Ok(sink) => {
            let line = line(&from, &to, sync);
            let copied = tokio::select! {
                copied = copy(&source, &sink, &line) => copied,
                () = stops.next() => Err(PluginError::Stopped { is_gone: true }),
            };
            sink.end(copied).await
        }
        Err(error) => Err(error),
    };
    source.end(done).await
}

/// Returns the command line of the source's pod.
fn line(from: &CopyEnd, to: &CopyEnd, sync: &SyncFlags) -> Vec<String> {
    let typed: Vec<_> = sync.flags.iter().map(|flag| flag.to_string_lossy().into_owned()).collect();
    let live = progress_line::flag().filter(|_| !typed.iter().any(|flag| flag.starts_with("--progress")));
    let flags = live.map(String::from).into_iter().chain(typed);
    let own =
        ["--rsh=-", "--remote-program", ENGINE, "--link=ssh", "--", from.planned.path()].map(String::from);
    let there = format!("{COMMAND}:{}", to.planned.path());
    [ENGINE.into(), "sync".into()].into_iter().chain(flags).chain(own).chain([there]).collect()
}

/// Runs the two ends, and again as long as only the connection is lost.
async fn copy(source: &OnePod, sink: &OnePod, line: &[String]) -> Result<(), PluginError> {
    let (source, sink) = tokio::try_join!(RunningPod::wait(source), RunningPod::wait(sink))?;
    let mut tries = Tries::default();
    loop {
        tries.begin();
        let status = join(&source, &sink, line).await?;
        let may_go_on = tries.may_go_on(status) && source.runs().await && sink.runs().await;
        match status {
            0 => return Ok(()),
            status if !may_go_on => return Err(PluginError::Ended { status }),
            _ => tries.pause().await,
        }
    }
}

/// Starts the two ends, joins them, and returns the source's exit status.
async fn join(source: &RunningPod<'_>, sink: &RunningPod<'_>, line: &[String]) -> Result<u8, PluginError> {
    let far = sink.start(&[ENGINE.into(), "remote".into()]).await?;
    let near = source.start(line).await?;
    let said = [tokio::spawn(show_errors(far.errors)), tokio::spawn(progress_line::show(near.errors))];
    let up = tokio::spawn(pass_on(near.output, far.input));
    let down = tokio::spawn(pass_on(far.output, near.input));
    let status = near.status.code().await;
    for said in said {
        let _ = timeout(LAST_ERRORS, said).await;
    }
    up.abort();
    down.abort();
    Ok(status)
}
