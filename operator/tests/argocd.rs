//! Tests the health of SyncJobs in Argo CD, by the health check in `config/argocd`, run in Lua as Argo CD does it.

use std::{error::Error, fs, path::Path, process::Command};

use jiff::Timestamp;
use operator::{
    api::{SyncJob, SyncJobSet, SyncJobSetSpec, SyncJobSpec, SyncJobStatus},
    sets::{members::Plan, set_standing},
};
use serde::Serialize;
use serde_json::Value;

use crate::states::{self, State};

const KEY: &str = "resource.customizations.health.volferry.dev_";

/// Runs the health check on a SyncJob of generation 1 with that status. Returns the health and its message.
#[track_caller]
fn health(status: Option<SyncJobStatus>) -> (String, String) {
    let mut job = SyncJob::new("web", SyncJobSpec::default());
    job.metadata.generation = Some(1);
    job.status = status;
    judged(job).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the health check of an object's kind on it.
fn judged(object: impl Serialize) -> Result<(String, String), Box<dyn Error>> {
    let object = serde_json::to_value(object)?;
    let file = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../config/argocd/argocd-cm.yaml");
    let patch: Value = serde_saphyr::from_str(&fs::read_to_string(file)?)?;
    let key = format!("{KEY}{}", object["kind"].as_str().unwrap_or_default());
    let check = patch["data"][key].as_str().ok_or("no health check")?;
    let object = lua(&object);
    let program = format!(
        "obj = {object}\nlocal function check()\n{check}\nend\nlocal hs = check()\nio.write(hs.status, \"\\n\", hs.message)"
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

#[test]
fn argo_cd_knows_a_job_in_each_of_its_states() {
    assert_eq!(health(None).0, "Progressing");
    for State { name, status, argo, .. } in states::all() {
        let (health, message) = health(Some(status));
        assert_eq!((health.as_str(), message.is_empty()), (argo, false), "{name}: {message}");
    }
}

#[test]
fn the_message_tells_what_a_person_has_to_know() {
    let told = |name: &str| {
        let state = states::all().into_iter().find(|state| state.name == name).unwrap();
        health(Some(state.status)).1
    };
    assert_eq!(told("begun"), "Run web-1 begins.");
    assert_eq!(told("no claim"), "no claim");
    for name in ["failed", "failed by schedule", "refused by schedule"] {
        assert!(told(name).contains("said"), "{name}: {}", told(name));
    }
}

#[test]
fn argo_cd_knows_a_set_in_each_of_its_states() {
    let mut set = SyncJobSet::new("web", SyncJobSetSpec::default());
    set.metadata.generation = Some(1);
    let health = |set: &SyncJobSet| judged(set).unwrap().0;
    assert_eq!(health(&set), "Progressing");
    let mut stands = |plan: Plan| {
        set.status = Some(set_standing::status(&set, &plan, &[], Timestamp::UNIX_EPOCH));
        health(&set)
    };
    assert_eq!(stands(Plan { matched: 1, ..Plan::default() }), "Progressing");
    assert_eq!(stands(Plan { problems: vec![Default::default()], ..Plan::default() }), "Degraded");
    assert_eq!(stands(Plan::default()), "Healthy");
}
