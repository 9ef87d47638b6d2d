//! Tests the health of SyncJobs in Argo CD, by the health check in `config/argocd`, run in Lua as Argo CD does it.

use std::{error::Error, fs, path::Path, process::Command};

use contract::{ExitCode, Report, RunResult};
use jiff::Timestamp;
use operator::{
    api::{SyncJob, SyncJobSpec, SyncJobStatus},
    fault::Fault,
    model::{outcome::Outcome, status},
};
use serde_json::Value;

const KEY: &str = "resource.customizations.health.volferry.dev_SyncJob";

/// Runs the health check on a SyncJob of generation 1 with that status. Returns the health and its message.
#[track_caller]
fn health(status: Option<SyncJobStatus>) -> (String, String) {
    try_health(status).unwrap_or_else(|error| panic!("{error}"))
}

fn try_health(status: Option<SyncJobStatus>) -> Result<(String, String), Box<dyn Error>> {
    let file = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../config/argocd/argocd-cm.yaml");
    let patch: Value = serde_saphyr::from_str(&fs::read_to_string(file)?)?;
    let check = patch["data"][KEY].as_str().ok_or("no health check")?;
    let mut job = SyncJob::new("web", SyncJobSpec::default());
    job.metadata.generation = Some(1);
    job.status = status;
    let job = lua(&serde_json::to_value(job)?);
    let program = format!(
        "obj = {job}\nlocal function check()\n{check}\nend\nlocal hs = check()\nio.write(hs.status, \"\\n\", hs.message)"
    );
    let lua = Command::new("lua5.1").args(["-e", &program]).output();
    let said = lua.map_err(|error| format!("lua5.1: {error}: run .ci/tools test"))?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into());
    }
    let said = String::from_utf8(said.stdout)?;
    let (health, message) = said.split_once('\n').ok_or("no message")?;
    Ok((health.into(), message.into()))
}

/// Converts JSON to a Lua expression.
fn lua(value: &Value) -> String {
    let list = |items: Vec<String>| format!("{{{}}}", items.join(", "));
    match value {
        Value::Null => "nil".into(),
        Value::Array(items) => list(items.iter().map(lua).collect()),
        Value::Object(fields) => {
            list(fields.iter().map(|(key, value)| format!("[{key:?}] = {}", lua(value))).collect())
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn ended(result: RunResult) -> SyncJobStatus {
    let mut status = begun();
    let reason = (result != RunResult::Succeeded).then(|| "NoSpace".into());
    let report = Report { result, reason, message: "said".into(), ..Report::default() };
    let outcome = Outcome { report, may_retry: false, exit: ExitCode::Failed };
    status::finish(&mut status, &outcome, None, Timestamp::UNIX_EPOCH);
    status
}

fn begun() -> SyncJobStatus {
    let mut status = SyncJobStatus::default();
    let run = status::new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH);
    status::begin(&mut status, run, Timestamp::UNIX_EPOCH);
    status
}

#[test]
fn a_job_that_the_operator_has_not_seen_in_its_present_form_is_progressing() {
    let unseen = SyncJobStatus { observed_generation: Some(-1), ..SyncJobStatus::default() };
    let older = SyncJobStatus { observed_generation: Some(0), ..ended(RunResult::Succeeded) };
    for status in [None, Some(unseen), Some(older)] {
        assert_eq!(health(status).0, "Progressing");
    }
}

#[test]
fn the_conditions_decide_over_a_job_that_it_has_seen() {
    assert_eq!(health(Some(begun())), ("Progressing".into(), "Run web-1 begins.".into()));
    assert_eq!(health(Some(ended(RunResult::Succeeded))).0, "Healthy");
    for result in [RunResult::Failed, RunResult::PartiallyFailed] {
        let (health, message) = health(Some(ended(result)));
        assert_eq!(health, "Degraded");
        assert!(message.contains("said"), "{message}");
    }
    let mut suspended = SyncJobStatus::default();
    status::suspended(&mut suspended, false, 1, Timestamp::UNIX_EPOCH);
    assert_eq!(health(Some(suspended)).0, "Suspended");
    let mut stalled = SyncJobStatus::default();
    status::refused(&mut stalled, &Fault::new("ClaimNotFound", "no claim"), 1, Timestamp::UNIX_EPOCH);
    assert_eq!(health(Some(stalled)), ("Degraded".into(), "no claim".into()));
}
