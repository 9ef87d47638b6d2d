//! Tests the monitoring: the list of metrics, and that the chart's alerts and dashboard use no other metrics.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use contract::RunResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use operator::{
    api::{HookRun, Run, RunHooks},
    telemetry::{
        job_gauges::JobState,
        metrics::{JobLabels, Metrics},
    },
};
use regex::Regex;
use serde_json::{Value, json};

const ALERTS: &str = "charts/volferry/files/monitoring/alerts.yaml";
const DASHBOARD: &str = "charts/volferry/files/monitoring/dashboard.json";
const LIST: &str = "operator/doc/metrics.md";

fn repository(path: &str) -> PathBuf {
    Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the text of `/metrics` with a series for each metric, since metrics without a series are left out.
fn exported() -> String {
    let metrics = Metrics::default();
    let job = JobLabels { namespace: "prod".into(), name: "web".into() };
    let standing = JobState {
        last_success_s: Some(1.0),
        last_run_s: Some(1.0),
        success_deadline_s: Some(2.0),
        damaged_snapshot_objects: Some(1),
        queued_since_s: Some(1.0),
        newest_snapshot_s: Some(1.0),
        destination_free_bytes: Some(1),
        ..JobState::default()
    };
    let time = || MicroTime(jiff::Timestamp::UNIX_EPOCH);
    let before = HookRun { start_time: time(), completion_time: Some(time()), failure: None };
    let hooks = Some(RunHooks { before: Some(before), ..RunHooks::default() });
    metrics.run_ended(&job, &Run { result: RunResult::Failed, hooks, ..Run::default() });
    metrics.retried(&job);
    metrics.stands(&job, standing);
    metrics.reconciled(Duration::from_secs(1), true);
    metrics.watch_stands("syncruns", "prod", true);
    metrics.watch_heard("syncruns", "prod", 1.0);
    metrics.held_by_other("prod", "team/volferry-operator", true);
    metrics.claim_filled("prod");
    metrics.claim_waits(&job, true);
    metrics.to_text()
}

/// Returns one table row for each metric: name of its series, type, unit, labels, meaning.
fn rows(text: &str) -> Vec<String> {
    let unit_of = |name: &str| {
        let line = format!("# UNIT {name} ");
        text.lines().find_map(|it| it.strip_prefix(&line)).unwrap_or_default()
    };
    let rows = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).map(|line| {
        let (name, help) = line.split_once(' ').unwrap_or((line, ""));
        let of_type = format!("# TYPE {name} ");
        let kind = text.lines().find_map(|it| it.strip_prefix(&of_type)).unwrap_or_default();
        let series = if kind == "counter" { format!("{name}_total") } else { name.into() };
        let labels = labels_of(text, name).join(", ");
        let help = help.trim_end_matches('.');
        format!("| `{series}` | {kind} | {} | {labels} | {help} |", unit_of(name))
    });
    rows.collect()
}

/// Returns the labels of a metric's series, except the bounds of a histogram.
fn labels_of(text: &str, name: &str) -> Vec<String> {
    let series = pattern(&format!(r"(?m)^{name}(_total|_sum)?\{{([^}}]*)\}}"));
    let Some(found) = series.captures(text) else { return Vec::new() };
    let label = pattern(r#"([a-z_]+)=""#);
    label.captures_iter(&found[2]).map(|it| format!("`{}`", &it[1])).collect()
}

/// Returns the names of all series that an expression can select.
fn series(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[track_caller]
fn assert_reads_only_what_is_exported(expressions: &[String]) {
    let text = exported();
    let there = series(&text);
    let metric = pattern("volferry_[a-z_]+");
    let mut read = 0;
    for expression in expressions {
        for name in metric.find_iter(expression) {
            assert!(there.contains(name.as_str()), "{expression}: the operator exports no {}", name.as_str());
            read += 1;
        }
    }
    assert!(
        read >= expressions.len() && read > 0,
        "an expression reads nothing of the operator: {expressions:?}"
    );
}

/// Returns the texts of all fields of that name, at any depth.
fn fields(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Object(entries) => entries
            .iter()
            .flat_map(|(key, value)| match value {
                Value::String(text) if key == name => vec![text.clone()],
                _ => fields(value, name),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(|item| fields(item, name)).collect(),
        _ => Vec::new(),
    }
}

fn alerts() -> Vec<Value> {
    let file = serde_saphyr::from_str::<Value>(&read(ALERTS));
    let file = file.unwrap_or_else(|error| panic!("{ALERTS}: {error}"));
    file["groups"][0]["rules"].as_array().cloned().unwrap_or_default()
}

#[test]
fn the_document_lists_every_metric_with_its_type_unit_and_labels() {
    let expected = rows(&exported());
    let source = read("operator/src/telemetry/metrics.rs");
    let of_jobs = pattern(r#"(?m)^    \("[a-z_]+","#).find_iter(&source).count();
    let others = pattern(r"\bs\.(plain|of|durations)\(").find_iter(&source).count();
    assert_eq!(
        expected.len(),
        of_jobs + others,
        "a metric has no series in this test, or is registered elsewhere"
    );
    let document = read(LIST);
    let listed: Vec<&str> = document.lines().filter(|line| line.starts_with("| `volferry_")).collect();
    assert_eq!(listed, expected, "the table of {LIST} should be\n{}", expected.join("\n"));
}

#[test]
fn alerts_read_exported_metrics_and_say_what_to_do() {
    let alerts = alerts();
    let expressions: Vec<String> = alerts.iter().map(|it| it["expr"].as_str().unwrap().to_string()).collect();
    assert_reads_only_what_is_exported(&expressions);
    let document = read(LIST);
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(document.contains(&format!("| `{name}` |")), "{name} is not in {LIST}");
        assert!(["info", "warning", "critical"].contains(&alert["labels"]["severity"].as_str().unwrap()));
        for text in ["summary", "runbook"] {
            assert!(alert["annotations"][text].as_str().is_some_and(|it| it.len() > 20), "{name}: {text}");
        }
    }
}

#[test]
fn the_dashboard_reads_exported_metrics_in_every_panel() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels with the id {}", panel["id"]);
        assert_reads_only_what_is_exported(&fields(panel, "expr"));
    }
    assert_reads_only_what_is_exported(&fields(&dashboard["templating"], "query")[1..]);
}

/// Returns promtool, which `.ci/tools test` unpacks into the cache if the machine has none.
fn promtool() -> Command {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")));
    let unpacked = cache.map(|cache| cache.join("volferry/tools/bin/promtool")).filter(|it| it.is_file());
    Command::new(unpacked.unwrap_or_else(|| "promtool".into()))
}

#[test]
fn alerts_fire_when_they_should() {
    for (command, file) in [("check", ALERTS), ("test", "operator/tests/alerts.test.yaml")] {
        let said = promtool().args([command, "rules"]).arg(repository(file)).output();
        let said = said.unwrap_or_else(|error| panic!("promtool: {error}: run .ci/tools test"));
        let text = [said.stdout, said.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        assert!(said.status.success(), "promtool {command} rules {file}: {text}");
    }
}

#[test]
fn the_components_of_kustomize_have_the_alerts_and_the_dashboard_of_the_chart() {
    let rules: Value = serde_saphyr::from_str(&read("config/components/alerts/rules.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&read(ALERTS)).unwrap();
    assert_eq!(rules["spec"], chart, "run make monitoring");
    assert_eq!(read("config/components/dashboard/volferry.json"), read(DASHBOARD), "run make monitoring");
}

/// Has Prometheus' own parser read the expressions, with values in the place of Grafana's variables.
#[test]
fn prometheus_understands_every_expression_of_the_dashboard() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let rules = fields(&dashboard["panels"], "expr").into_iter().enumerate().map(|(at, expr)| {
        let expr =
            expr.replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$namespace", "prod");
        assert!(!expr.contains('$'), "a variable without a value: {expr}");
        json!({"record": format!("panel:{at}"), "expr": expr})
    });
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), rules.to_string()).unwrap();
    let said = promtool().args(["check", "rules"]).arg(file.path()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
