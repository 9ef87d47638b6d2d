use std::{env, error::Error as StdError, io, path::PathBuf};

use contract::Side;
use kube::{
    config::KubeconfigError,
    runtime::{wait, watcher},
};
use thiserror::Error;

use super::args::Scope;
use crate::{controller::read::DereferenceError, names::ANNOTATION_PRIVILEGED};
use ::migrate::MigrateError;

/// The reasons why a command failed.
#[derive(Debug, Error)]
pub(super) enum PluginError {
    #[error("cannot use the kubeconfig {file}: {why}")]
    Kubeconfig { file: String, why: String },
    #[error("cannot make a client of the kubeconfig's context")]
    Client(#[source] kube::Error),
    #[error("cannot {doing}")]
    Api { doing: String, source: kube::Error, reached: Option<Box<AskedServer>> },
    #[error("cannot wait for SyncRun {at}/{name}")]
    Wait { at: Box<Scope>, name: String, source: wait::Error },
    #[error("cannot watch {what}")]
    Watch { what: String, source: watcher::Error },
    #[error("there is no SyncJob {name} in namespace {at}")]
    NoJob { at: Box<Scope>, name: String },
    #[error("there is neither a SyncJob nor a SyncRun {name} in namespace {at}")]
    NoJobOrRun { at: Box<Scope>, name: String },
    #[error("SyncJob {at}/{name} has had no run")]
    NoRun { at: Box<Scope>, name: String },
    #[error("SyncJob {at}/{name} has no run that is queued or in progress")]
    NothingToCancel { at: Box<Scope>, name: String },
    #[error("SyncJob {namespace}/{name} has no snapshots in its status")]
    NoSnapshots { namespace: String, name: String },
    #[error("run {at}/{name} has no {}pods", end.map(|end| format!("{end} ")).unwrap_or_default())]
    NoPods { at: Box<Scope>, name: String, end: Option<Side> },
    #[error("cannot read the log of pod {pod}")]
    Log { at: Box<Scope>, pod: String, source: io::Error },
    #[error("SyncRun {at}/{name} was deleted")]
    RunDeleted { at: Box<Scope>, name: String },
    #[error("no run begins for SyncRun {at}/{name}: {why}")]
    NotBegun { at: Box<Scope>, name: String, why: String },
    #[error("run {at}/{name} has not succeeded: {how}")]
    RunFailed { at: Box<Scope>, name: String, how: String },
    #[error("cannot read the claims of SyncJob {job}")]
    Claims { at: Box<Scope>, job: String, source: DereferenceError },
    #[error("SyncJob {at}/{name} has no Job of a run from which the pod could be made")]
    NoSink { at: Box<Scope>, name: String },
    #[error("the destination of SyncJob {name} is a device, which has no snapshots")]
    NoFolder { name: String },
    #[error("there is no PersistentVolumeClaim {name} in namespace {at}, or it is being deleted")]
    NoClaim { at: Box<Scope>, name: String },
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
    PodFailed { at: Box<Scope>, pod: String, why: String },
    #[error("the answer of pod {pod} was lost")]
    Answer { pod: String, source: io::Error },
    #[error("the command in the pod failed with status {status}")]
    Answered { at: Box<Scope>, job: String, status: u8 },
    #[error("it took longer than {after}")]
    TooLong { after: String },
    #[error("stopped on request")]
    Stopped { is_gone: bool },
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

/// The API server that a request was sent to, and how a user gets there.
#[derive(Debug)]
pub(super) struct AskedServer {
    pub(super) server: String,
    pub(super) context: Option<String>,
    pub(super) scope: Scope,
}

impl PluginError {
    /// Makes the error that the kubeconfig which the user named, or else kubectl's, cannot be used.
    pub(super) fn kubeconfig(typed: &Scope, error: &KubeconfigError) -> Self {
        let of_kubectl = || env::var("KUBECONFIG").ok().filter(|file| !file.is_empty());
        let mut named = typed.kubeconfig.as_ref().map(|file| file.display().to_string()).or_else(of_kubectl);
        let why = match error {
            KubeconfigError::ReadConfig(source, file) => {
                named = Some(file.display().to_string());
                source.to_string()
            }
            KubeconfigError::Parse(problem) => {
                // The lines behind the first show the file.
                problem.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").into()
            }
            KubeconfigError::CurrentContextNotSet => "it has no current context".into(),
            KubeconfigError::LoadContext(name) => format!("it has no context {name}"),
            KubeconfigError::LoadClusterOfContext(name) => {
                format!("it has no cluster {name}, which its context names")
            }
            KubeconfigError::FindPath => "HOME is not set".into(),
            error => told(error),
        };
        Self::Kubeconfig { file: named.unwrap_or_else(|| "~/.kube/config".into()), why }
    }

    /// Makes the error that something is in the way, which the user can put out of it as `hint` says.
    pub(super) fn blocked(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Blocked { why: why.into(), hint: hint.into() }
    }

    /// Returns whether the user lacks a right.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }

    /// Returns what the user can do next. `of_line` is what was typed on the command line.
    pub(super) fn hint(&self, of_line: &Scope) -> String {
        self.hint_at_cluster(of_line).unwrap_or_else(|| self.hint_here())
    }

    /// Returns what the user can do next at the cluster, with the flags that lead there.
    fn hint_at_cluster(&self, of_line: &Scope) -> Option<String> {
        Some(match self {
            Self::Api { source, reached, .. } => api_hint(source, reached.as_deref(), of_line),
            Self::Kubeconfig { .. } | Self::Client(_) => {
                let file = Scope { context: None, ..of_line.clone() }.cluster_flags();
                format!(
                    "name a file with --kubeconfig or KUBECONFIG, and one of its contexts with --context; \
                     `kubectl config get-contexts{file}` lists them"
                )
            }
            Self::Watch { .. } => format!(
                "you need the right to list and watch them; `kubectl volferry doctor{}` says which rights are missing",
                of_line.flags()
            ),
            Self::Wait { at, name, .. } => {
                format!("the run goes on; `kubectl get{} syncrun {name}` shows how far it is", at.flags())
            }
            Self::NoJob { at, .. } | Self::NoJobOrRun { at, .. } => {
                let (there, cluster) = (at.flags(), at.cluster_flags());
                format!(
                    "`kubectl volferry status{there}` lists the SyncJobs there, `kubectl volferry status -A{cluster}` all"
                )
            }
            Self::NoRun { at, name } => {
                format!("`kubectl volferry status{} {name}` shows what it waits for", at.flags())
            }
            Self::NothingToCancel { at, name } => {
                format!("`kubectl volferry runs{} {name}` lists the runs that ended", at.flags())
            }
            Self::NoPods { at, .. } => format!(
                "pods stay of the last run and of the last failed one; `kubectl volferry runs{} JOB` has what each run \
                 reported",
                at.flags()
            ),
            Self::Log { at, .. } => format!(
                "a node that is gone has no logs; `kubectl volferry status{} JOB` shows the run",
                at.flags()
            ),
            Self::NotBegun { at, name, .. } => {
                format!("`kubectl delete syncrun{} {name}` takes the request back", at.flags())
            }
            Self::RunFailed { at, name, .. } => {
                format!("`kubectl volferry logs{} {name}` prints what its pods said", at.flags())
            }
            Self::Claims { at, .. } => format!("see whether `kubectl get pvc{}` reads them", at.flags()),
            Self::NoSink { at, name } => {
                format!("a run leaves one: `kubectl volferry run-now{} {name} --wait`", at.flags())
            }
            Self::NoClaim { at, .. } => format!("`kubectl get pvc{}` lists the claims there", at.flags()),
            Self::PodFailed { at, .. } => {
                format!("`kubectl volferry doctor{}` looks for what keeps pods from running", at.flags())
            }
            Self::Answered { at, job, .. } => format!(
                "what it said is above; `kubectl volferry browse{} {job}` lists the snapshots",
                at.flags()
            ),
            _ => return None,
        })
    }

    /// Returns what the user can do next, where no command at the cluster is named.
    fn hint_here(&self) -> String {
        let hint = match self {
            Self::Blocked { hint, .. } => hint,
            Self::Migrate(error) => return error.hint(),
            Self::NoRoot { .. } => {
                return format!(
                    "its owner can annotate it with {ANNOTATION_PRIVILEGED}=true; or name another --user"
                );
            }
            Self::NoSnapshots { .. } => {
                "spec.snapshots takes one after each run that succeeds; `volferry snapshot list` reads the volume itself"
            }
            Self::RunDeleted { .. } => "deleting a SyncRun ends its run; ask for another with run-now",
            Self::NoFolder { .. } => "spec.destination.volumeSnapshots keeps states of devices",
            Self::OneClaim { .. } => {
                "the form is CONTEXT/NAMESPACE/CLAIM; what is left out is that of the kubeconfig"
            }
            Self::Place { .. } => "name a folder of this machine",
            Self::OwnPath(_) => "see that /proc is mounted",
            Self::NoProgram { .. } => {
                "put the program `volferry` beside this one, or into a folder of PATH; both have to be of one \
                 version"
            }
            Self::Ended { .. } => "what it said is above",
            Self::TooLong { .. } => "raise --timeout",
            Self::Stopped { is_gone: true } => "the pod is gone",
            Self::Stopped { is_gone: false } => "delete what is left of the pod, as said above",
            Self::Signals(_) => "see how many files this user may have open",
            Self::Unwell => "each error above has its hint",
            Self::Yaml(_) => "report this, with the command line",
            Self::Json(_) => "leave out --output json",
            Self::Output(_) => "see where the output goes",
            _ => "try again",
        };
        hint.into()
    }
}

/// Returns an error and its causes on one line, with what an API server answered as its message alone: a client's text
/// of an answer has it several times, also in a form for those who debug it.
pub(super) fn told(error: &(dyn StdError + 'static)) -> String {
    let (mut text, mut next) = (String::new(), Some(error));
    while let Some(cause) = next {
        let whole = cause.to_string();
        let before = text.strip_suffix(whole.as_str()).map(String::from);
        let with_it = || if text.is_empty() { String::new() } else { format!("{text}: ") };
        if let Some(kube::Error::Api(answer)) = cause.downcast_ref() {
            let said = if answer.message.is_empty() { &answer.reason } else { &answer.message };
            return before.unwrap_or_else(with_it) + said;
        }
        if let Some(kube::Error::Service(_) | kube::Error::HyperError(_)) = cause.downcast_ref() {
            // The clients' texts are about their own layers; the last cause is the system's.
            let root = std::iter::successors(Some(cause), |cause| (*cause).source()).last().unwrap_or(cause);
            return format!("{}the API server cannot be reached: {root}", before.unwrap_or_else(with_it));
        }
        if before.is_none() {
            text = with_it() + &whole;
        }
        next = cause.source();
    }
    text
}

fn api_hint(error: &kube::Error, reached: Option<&AskedServer>, of_line: &Scope) -> String {
    let flags = &reached.map_or(of_line, |reached| &reached.scope).cluster_flags();
    let context = reached.and_then(|reached| reached.context.as_deref());
    let context = context.map(|name| format!(" of the context {name}")).unwrap_or_default();
    let server = reached.map_or("the API server", |reached| &reached.server);
    match error {
        kube::Error::Api(status) if status.code == 401 => format!(
            "{server} does not accept the credentials{context}: log in anew, until `kubectl auth whoami{flags}` works"
        ),
        kube::Error::Api(status) if status.is_forbidden() => {
            "the roles view (to read) and edit (to change) of the namespace include what this needs".into()
        }
        kube::Error::Api(status) if status.is_not_found() => format!(
            "the object is gone, or Volferry is not installed: `kubectl get crd{flags} syncjobs.volferry.dev`"
        ),
        kube::Error::Api(_) => "the API server's answer above says what it refused".into(),
        _ => format!(
            "see whether `kubectl version{flags}` reaches {server}{context}; --context names another one"
        ),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn at() -> Box<Scope> {
        let namespace = Some("prod".into());
        Box::new(Scope { namespace, context: Some("far".into()), ..Scope::default() })
    }

    #[test]
    fn errors_name_the_object_and_have_a_hint_for_its_cluster() {
        let error = PluginError::NoJob { at: at(), name: "web".into() };
        assert_eq!(error.to_string(), "there is no SyncJob web in namespace prod");
        let hint = error.hint(&Scope::default());
        assert!(hint.contains("`kubectl volferry status -n prod --context=far`"), "{hint}");
        let error = PluginError::NoPods { at: at(), name: "web".into(), end: Some(Side::Sink) };
        assert_eq!(error.to_string(), "run prod/web has no sink pods");
        let refused = PluginError::Watch { what: "pods".into(), source: watcher::Error::NoResourceVersion };
        assert!(refused.hint(&at()).contains("`kubectl volferry doctor -n prod --context=far`"));
    }

    #[test]
    fn an_error_names_the_kubeconfig_the_context_and_the_server() {
        let typed = Scope { kubeconfig: Some("/x/kube.yaml".into()), ..*at() };
        let error = PluginError::kubeconfig(&typed, &KubeconfigError::LoadContext("far".into()));
        assert_eq!(error.to_string(), "cannot use the kubeconfig /x/kube.yaml: it has no context far");
        let hint = error.hint(&typed);
        assert!(hint.contains("`kubectl config get-contexts --kubeconfig=/x/kube.yaml`"), "{hint}");
        let reached = || {
            let (server, context) = ("https://203.0.113.7:6443/".into(), Some("far".into()));
            Some(Box::new(AskedServer { server, context, scope: *at() }))
        };
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let source = kube::Error::Service(Box::new(io::Error::other(refused)));
        let error = PluginError::Api { doing: "list jobs".into(), source, reached: reached() };
        assert_eq!(told(&error), "cannot list jobs: the API server cannot be reached: connection refused");
        let hint = error.hint(&Scope::default());
        assert!(hint.contains(
            "`kubectl version --context=far` reaches https://203.0.113.7:6443/ of the context far"
        ));
        let source = kube::Error::Api(Status { code: 401, ..Status::default() }.boxed());
        let error = PluginError::Api { doing: "list jobs".into(), source, reached: reached() };
        let hint = error.hint(&Scope::default());
        assert!(hint.starts_with(
            "https://203.0.113.7:6443/ does not accept the credentials of the context far: log in"
        ));
    }

    #[test]
    fn an_answer_of_the_api_server_is_told_once() {
        let answer = || {
            let answer = Status { code: 403, reason: "Forbidden".into(), ..Status::default() };
            kube::Error::Api(Status { message: "jobs is forbidden".into(), ..answer }.boxed())
        };
        let error = PluginError::Api { doing: "list jobs".into(), source: answer(), reached: None };
        assert_eq!(told(&error), "cannot list jobs: jobs is forbidden");
        assert_eq!(told(&answer()), "jobs is forbidden");
        let refused = watcher::Error::WatchStartFailed(answer());
        let error = PluginError::Watch { what: "pods".into(), source: refused };
        let said = told(&error);
        assert!(said.starts_with("cannot watch pods: ") && said.ends_with(": jobs is forbidden"), "{said}");
        assert_eq!(said.matches("forbidden").count(), 1, "{said}");
        let error = PluginError::Log { at: at(), pod: "p".into(), source: io::ErrorKind::BrokenPipe.into() };
        assert_eq!(told(&error), contract::chain(&error));
    }
}
