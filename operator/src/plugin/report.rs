//! `volferry-operator report`: evaluates the SyncRuns of a namespace, or of files, together.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use kube::ResourceExt as _;
use thiserror::Error;
use trend::{FormFlags, Reports, TrendError};

use super::{
    args::Scope,
    cluster::Cluster,
    error::{PluginError, told},
    lines, output,
};
use crate::api::{
    RunCause, SyncRun,
    manifest_file::{ManifestFileError, objects},
};

/// Which SyncRuns are told, and how.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files with SyncRuns as YAML or JSON, also as lists; - is standard input. Absent: the cluster is asked.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only the runs of this SyncJob.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    form: FormFlags,
}

#[derive(Debug, Error)]
enum ReportError {
    #[error(transparent)]
    File(#[from] ManifestFileError),
    #[error("a SyncRun in {path} has an unknown form", path = .path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("no SyncRun that has ended was found")]
    Nothing,
    #[error("the SyncRuns are of several SyncJobs, whose times cannot be compared: {0}")]
    SeveralJobs(String),
    #[error(transparent)]
    Cluster(#[from] PluginError),
    #[error(transparent)]
    Trend(#[from] TrendError),
}

impl ReportError {
    /// Returns what the user can do next.
    fn hint(&self, typed: &Scope) -> Option<String> {
        match self {
            Self::File(_) | Self::Parse { .. } => Some(format!(
                "`kubectl get syncruns{} -o yaml` prints what this command reads",
                typed.flags()
            )),
            Self::Nothing => Some(format!(
                "`kubectl get syncruns -A{}` lists those of all namespaces",
                typed.cluster_flags()
            )),
            Self::SeveralJobs(_) => Some("choose one of them with --job".into()),
            Self::Cluster(error) => Some(error.hint(typed)),
            Self::Trend(_) => None,
        }
    }
}

/// Prints the report of the runs, in the requested form. An error goes to standard error, and the exit code is 1.
pub async fn run(args: ReportArgs) -> ExitCode {
    let typed = args.scope.clone();
    match print_reports(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(ReportError::Trend(error)) if error.is_gone_reader() => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("error: {}", told(&error)));
            error.hint(&typed).into_iter().for_each(|hint| output::complain(&format!("hint: {hint}")));
            ExitCode::FAILURE
        }
    }
}

async fn print_reports(args: ReportArgs) -> Result<(), ReportError> {
    let reports = if args.form.schema {
        Reports::default()
    } else {
        reports(all_runs(&args).await?, args.job.as_deref())?
    };
    Ok(reports.print(&args.form, &mut io::stdout().lock())?)
}

async fn all_runs(args: &ReportArgs) -> Result<Vec<SyncRun>, ReportError> {
    if args.files.is_empty() {
        return Ok(Cluster::connect(&args.scope).await?.all_runs().await?);
    }
    let read = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(read.into_iter().flatten().collect())
}

/// Returns the SyncRuns in a file. Objects of other kinds are ignored.
fn read(path: &Path) -> Result<Vec<SyncRun>, ReportError> {
    let runs =
        objects(path)?.into_iter().filter(|object| object["kind"] == "SyncRun").map(serde_json::from_value);
    runs.collect::<Result<_, _>>().map_err(|source| ReportError::Parse { path: path.into(), source })
}

/// Returns the reports of the runs that have ended. Fails if they belong to several SyncJobs.
fn reports(mut runs: Vec<SyncRun>, job: Option<&str>) -> Result<Reports, ReportError> {
    runs.retain(|run| job.is_none_or(|job| run.spec.sync_job.name == job));
    let ended = runs.iter().filter_map(|run| Some((job_of(run), run.status.as_ref()?.report.as_ref()?)));
    let (jobs, ended): (BTreeSet<_>, Vec<_>) = ended.unzip();
    let benches = ended.iter().filter_map(|run| run.benchmark.as_deref().cloned()).collect();
    let of_job = ended.iter().filter(|run| run.cause != Some(RunCause::Benchmark));
    let reports = of_job.map(|run| lines::report(run, None)).collect();
    match jobs.len() {
        0 => Err(ReportError::Nothing),
        1 => Ok(Reports { runs: reports, benches }),
        _ => Err(ReportError::SeveralJobs(jobs.into_iter().collect::<Vec<_>>().join(", "))),
    }
}

fn job_of(run: &SyncRun) -> String {
    match run.namespace() {
        Some(namespace) => format!("{namespace}/{}", run.spec.sync_job.name),
        None => run.spec.sync_job.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(runs: &[(&str, &str, bool)]) -> String {
        let run = |(name, job, has_ended): &(&str, &str, bool)| {
            let status = if *has_ended {
                format!(", status: {{report: {{id: {name}, result: Succeeded}}}}")
            } else {
                String::new()
            };
            format!(
                "- {{apiVersion: volferry.dev/v1alpha1, kind: SyncRun, metadata: {{name: {name}, \
                 namespace: prod}}, spec: {{syncJob: {{name: {job}}}}}{status}}}\n"
            )
        };
        format!("kind: List\nitems:\n- kind: Pod\n{}", runs.iter().map(run).collect::<String>())
    }

    fn read_text(text: &str) -> Result<Vec<SyncRun>, ReportError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn runs_that_have_ended_are_told_of_one_job() {
        let runs = read_text(&list(&[("a", "web", true), ("b", "web", false), ("c", "db", true)])).unwrap();
        assert_eq!(runs.len(), 3);
        let told = reports(runs.clone(), Some("web")).unwrap();
        assert_eq!(told.runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["a"]);
        let error = reports(runs.clone(), None).unwrap_err();
        assert!(error.to_string().ends_with(": prod/db, prod/web"), "{error}");
        assert!(matches!(reports(runs, Some("mail")), Err(ReportError::Nothing)));
    }

    #[test]
    fn benchmarks_are_told_apart_from_runs() {
        let figures = "{bench: {files: [{count: 1, bytes: 2}]}, startTime: x, steps: []}";
        let list = list(&[("a", "web", true), ("b", "web", true)])
            .replace("{id: b,", &format!("{{id: b, cause: Benchmark, benchmark: {figures},"));
        let told = reports(read_text(&list).unwrap(), None).unwrap();
        assert_eq!(told.runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(told.benches.len(), 1);
    }

    #[test]
    fn a_file_of_something_else_is_named() {
        let error = read_text("a: [").unwrap_err();
        assert!(error.to_string().contains(":1:4: unclosed bracket"), "{error}");
        let error = read_text("kind: SyncRun\nspec: 3\n").unwrap_err();
        assert!(error.to_string().ends_with(" has an unknown form"), "{error}");
    }
}
