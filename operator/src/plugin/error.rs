use std::{io, path::PathBuf};

use contract::Side;
use kube::{
    config::KubeconfigError,
    runtime::{wait, watcher},
};
use thiserror::Error;

use crate::{controller::read::DereferenceError, names::ANNOTATION_PRIVILEGED};
use ::migrate::MigrateError;

/// The reasons why a command failed.
#[derive(Debug, Error)]
pub(super) enum PluginError {
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[source] KubeconfigError),
    #[error("cannot make a client of the kubeconfig's context")]
    Client(#[source] kube::Error),
    #[error("cannot {doing}")]
    Api { doing: String, source: kube::Error },
    #[error("cannot wait for SyncRun {namespace}/{name}")]
    Wait { namespace: String, name: String, source: wait::Error },
    #[error("cannot watch {what}")]
    Watch { what: String, source: watcher::Error },
    #[error("there is no SyncJob {name} in namespace {namespace}")]
    NoJob { namespace: String, name: String },
    #[error("there is neither a SyncJob nor a SyncRun {name} in namespace {namespace}")]
    NoJobOrRun { namespace: String, name: String },
    #[error("SyncJob {namespace}/{name} has had no run")]
    NoRun { namespace: String, name: String },
    #[error("SyncJob {namespace}/{name} has no run that is queued or in progress")]
    NothingToCancel { namespace: String, name: String },
    #[error("SyncJob {namespace}/{name} has no snapshots in its status")]
    NoSnapshots { namespace: String, name: String },
    #[error("run {namespace}/{name} has no {}pods", end.map(|end| format!("{end} ")).unwrap_or_default())]
    NoPods { namespace: String, name: String, end: Option<Side> },
    #[error("cannot read the log of pod {pod}")]
    Log { pod: String, source: io::Error },
    #[error("SyncRun {namespace}/{name} was deleted")]
    RunDeleted { namespace: String, name: String },
    #[error("run {namespace}/{name} has not succeeded: {how}")]
    RunFailed { namespace: String, name: String, how: String },
    #[error("cannot read the claims of SyncJob {job}")]
    Claims { job: String, source: DereferenceError },
    #[error("SyncJob {namespace}/{name} has no Job of a run from which the pod could be made")]
    NoSink { namespace: String, name: String },
    #[error("the destination of SyncJob {name} is a device, which has no snapshots")]
    NoFolder { name: String },
    #[error("there is no PersistentVolumeClaim {name} in namespace {namespace}, or it is being deleted")]
    NoClaim { namespace: String, name: String },
    #[error("both are the claim {namespace}/{name}")]
    OneClaim { namespace: String, name: String },
    #[error("namespace {namespace} does not let syncers run as root")]
    NoRoot { namespace: String },
    #[error("{} is no path", path.display())]
    Place { path: PathBuf, source: io::Error },
    #[error("the path of this program is not known")]
    OwnPath(#[source] io::Error),
    #[error("cannot start `{}`", program.display())]
    NoProgram { program: PathBuf, source: io::Error },
    #[error("it ended with status {status}")]
    Ended { status: u8 },
    #[error("cannot watch the pod")]
    WatchPod(#[source] watcher::Error),
    #[error("the pod in namespace {namespace} was deleted")]
    PodGone { namespace: String },
    #[error("pod {pod} has ended before it answered: {why}")]
    PodFailed { pod: String, why: String },
    #[error("the answer of pod {pod} was lost")]
    Answer { pod: String, source: io::Error },
    #[error("the command in the pod failed with status {status}")]
    Answered { status: u8 },
    #[error("it took longer than {after}")]
    TooLong { after: String },
    #[error("stopped on request")]
    Stopped,
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("something keeps runs from succeeding")]
    Unwell,
    #[error("{why}")]
    Blocked { why: String, hint: String },
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error("cannot make YAML of the objects")]
    Yaml(#[source] Box<serde_saphyr::SerializeError>),
    #[error("cannot make JSON of the answer")]
    Json(#[from] serde_json::Error),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

impl PluginError {
    /// Makes the error that something is in the way, which the user can put out of it as `hint` says.
    pub(super) fn blocked(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Blocked { why: why.into(), hint: hint.into() }
    }

    /// Returns whether the user lacks a right.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }

    /// Returns what the user can do next.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Kubeconfig(_) | Self::Client(_) => {
                "`kubectl config get-contexts` lists the contexts; name one with --context, a file with KUBECONFIG".into()
            }
            Self::Api { source, .. } => api_hint(source).into(),
            Self::Watch { .. } => "you need the right to list and watch them; `kubectl volferry doctor` says which rights are missing".into(),
            Self::Wait { namespace, name, .. } => {
                format!("the run goes on; `kubectl get -n {namespace} syncrun {name}` shows how far it is")
            }
            Self::NoJob { namespace, .. } | Self::NoJobOrRun { namespace, .. } => {
                format!("`kubectl volferry status -n {namespace}` lists the SyncJobs there, `status -A` all")
            }
            Self::NoRun { namespace, name } => {
                format!("`kubectl volferry status -n {namespace} {name}` shows what it waits for")
            }
            Self::NothingToCancel { namespace, name } => {
                format!("`kubectl volferry runs -n {namespace} {name}` lists the runs that ended")
            }
            Self::NoSnapshots { .. } => {
                "spec.snapshots takes one after each run that succeeds; `volferry snapshot list` reads the volume itself".into()
            }
            Self::NoPods { .. } => {
                "pods stay of the last run and of the last failed one; `kubectl volferry runs JOB` has what each run reported".into()
            }
            Self::Log { .. } => "a node that is gone has no logs; `kubectl volferry status JOB` shows the run".into(),
            Self::RunDeleted { .. } => "deleting a SyncRun ends its run; ask for another with run-now".into(),
            Self::RunFailed { namespace, name, .. } => {
                format!("`kubectl volferry logs -n {namespace} {name}` prints what its pods said")
            }
            Self::Claims { .. } => "see whether `kubectl get pvc` reads them".into(),
            Self::NoSink { namespace, name } => {
                format!("a run leaves one: `kubectl volferry run-now -n {namespace} {name} --wait`")
            }
            Self::NoFolder { .. } => "spec.destination.volumeSnapshots keeps states of devices".into(),
            Self::NoClaim { namespace, .. } => format!("`kubectl get pvc -n {namespace}` lists the claims there"),
            Self::OneClaim { .. } => "the form is CONTEXT/NAMESPACE/CLAIM; what is left out is that of the kubeconfig".into(),
            Self::NoRoot { .. } => {
                format!("its owner can annotate it with {ANNOTATION_PRIVILEGED}=true; or name another --user")
            }
            Self::Place { .. } => "name a folder of this machine".into(),
            Self::OwnPath(_) => "see that /proc is mounted".into(),
            Self::NoProgram { .. } => {
                "put the program `volferry` beside this one, or into a folder of PATH; both have to be of one version".into()
            }
            Self::Ended { .. } => "what it said is above".into(),
            Self::WatchPod(_) | Self::PodGone { .. } | Self::Answer { .. } => "try again".into(),
            Self::PodFailed { .. } => "`kubectl volferry doctor` looks for what keeps pods from running".into(),
            Self::Answered { .. } => "what it said is above; `kubectl volferry browse JOB` lists the snapshots".into(),
            Self::TooLong { .. } => "raise --timeout".into(),
            Self::Stopped => "the pod is gone".into(),
            Self::Signals(_) => "see how many files this user may have open".into(),
            Self::Unwell => "each error above has its hint".into(),
            Self::Blocked { hint, .. } => hint.clone(),
            Self::Migrate(error) => error.hint(),
            Self::Yaml(_) => "report this, with the command line".into(),
            Self::Json(_) => "leave out --output json".into(),
            Self::Output(_) => "see where the output goes".into(),
        }
    }
}

fn api_hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            "the roles view (to read) and edit (to change) of the namespace include what this needs"
        }
        kube::Error::Api(status) if status.is_not_found() => {
            "the object is gone, or Volferry is not installed: `kubectl get crd syncjobs.volferry.dev`"
        }
        kube::Error::Api(_) => "the API server's answer above says what it refused",
        _ => "see whether `kubectl version` reaches the API server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_object_and_have_a_hint() {
        let name = || ("prod".to_string(), "web".to_string());
        let (namespace, job) = name();
        let error = PluginError::NoJob { namespace, name: job };
        assert_eq!(error.to_string(), "there is no SyncJob web in namespace prod");
        assert!(error.hint().contains("kubectl volferry status -n prod"), "{}", error.hint());
        let (namespace, run) = name();
        let error = PluginError::NoPods { namespace, name: run, end: Some(Side::Sink) };
        assert_eq!(error.to_string(), "run prod/web has no sink pods");
    }
}
