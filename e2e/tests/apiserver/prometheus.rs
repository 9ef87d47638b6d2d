//! The chart's alerts and dashboard in a real Prometheus, which reads a controller that has runs.

use std::{fs, net::SocketAddr, process::Command};

use e2e::{diagnosis, supervised::Supervised};
use jiff::Timestamp;
use tempfile::TempDir;
use testkit::ports;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    chart::{one, render},
    prelude::*,
};

/// The values of the chart that make what this test reads.
const ON_REQUEST: [&str; 3] = [
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboard.enabled=true",
];

/// The end of an expression that is 0 where there is no series.
const OR_ZERO: &str = " or vector(0)";

/// The panels that show how often something happened, which is above 0 after these runs.
const RATES: [&str; 4] = ["Runs that ended", "Bytes", "Files", "Reconciliations"];

/// A Prometheus that reads a controller each second, and evaluates the chart's alerts as often.
struct Prometheus {
    /// Dropped before the folder that it writes to.
    _process: Supervised,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// Starts it with the alerts of the chart's objects. It reads the controller as their ServiceMonitor says.
    fn start(chart: &[Value], controller: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name);
        let service = &one(chart, "Service")["metadata"];
        let endpoint = &one(chart, "ServiceMonitor")["spec"]["endpoints"][0];
        let labels = json!({"namespace": service["namespace"]});
        let target = json!({"targets": [controller.to_string()], "labels": labels});
        let scrape = json!({"job_name": service["name"], "metrics_path": endpoint["path"],
            "honor_labels": endpoint["honorLabels"], "static_configs": [target]});
        let config = json!({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.json"], "scrape_configs": [scrape]});
        // Prometheus reads YAML, of which JSON is a part.
        fs::write(below("rules.json"), one(chart, "PrometheusRule")["spec"].to_string()).unwrap();
        fs::write(below("prometheus.json"), config.to_string()).unwrap();
        let address = ports::unused();
        let mut command = Command::new(programs::of_tools("prometheus").unwrap());
        command
            .arg(format!("--config.file={}", below("prometheus.json").display()))
            .arg(format!("--storage.tsdb.path={}", below("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Supervised::start(&mut command, &below("log")).unwrap();
        Self { _process: process, address, folder }
    }

    /// Returns what its HTTP API answers; `None` before it is ready.
    async fn get(&self, path: &str) -> Option<Value> {
        let mut connection = TcpStream::connect(self.address).await.ok()?;
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n");
        connection.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Waits until it has read the controller.
    async fn until_up(&self) {
        let is_up = async || {
            let answer = self.get("targets?state=active").await;
            answer.is_some_and(|it| it["data"]["activeTargets"][0]["health"] == "up")
        };
        let up = wait::poll("Prometheus has read the controller", PATIENCE, is_up).await;
        assert!(up.is_ok(), "{:#?}", self.get("targets?state=active").await);
    }

    /// Returns the present values of an expression's series. It has to accept the expression.
    async fn values(&self, expression: &str) -> Vec<f64> {
        let answer = self.get(&format!("query?query={}", encoded(expression))).await.expect("an answer");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        assert_eq!(answer["data"]["resultType"], "vector", "{expression}: {answer}");
        let series = answer["data"]["result"].as_array().unwrap();
        series.iter().map(|it| it["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Returns those expressions of which no series has a number now. A sum without a series is none, and not 0.
    async fn without_numbers<'a>(&self, expressions: &[(&'a str, String)]) -> Vec<(&'a str, String)> {
        let mut empty = Vec::new();
        for (panel, expression) in expressions {
            let summed = expression.strip_suffix(OR_ZERO).unwrap_or(expression);
            if !self.values(summed).await.iter().any(|value| value.is_finite()) {
                empty.push((*panel, expression.clone()));
            }
        }
        empty
    }

    /// Returns all alerts, once each has been evaluated after `since`.
    async fn alerts(&self, since: Timestamp) -> Vec<Value> {
        let look = async || {
            let answer = self.get("rules?type=alert").await?;
            let groups = answer["data"]["groups"].as_array()?;
            let alerts = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
            let alerts: Vec<Value> = alerts.cloned().collect();
            let evaluated = |alert: &Value| alert["lastEvaluation"].as_str()?.parse::<Timestamp>().ok();
            alerts.iter().all(|alert| evaluated(alert) > Some(since)).then_some(alerts)
        };
        wait::poll_for("each alert has been evaluated", PATIENCE, look).await.unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            diagnosis::print_file(&self.folder.path().join("log"));
        }
    }
}

/// Returns a text as a part of a URL's query.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Returns each expression of the dashboard after its panel's title, with values in the place of Grafana's variables.
fn expressions<'a>(dashboard: &'a Value, namespace: &str) -> Vec<(&'a str, String)> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "5m").replace("$namespace", namespace);
            assert!(!expression.contains('$'), "a variable without a value: {expression}");
            found.push((panel["title"].as_str().unwrap(), expression));
        }
    }
    found
}

/// Returns the path in the API that has the choices for the dashboard's variable `namespace`.
fn choices(dashboard: &Value) -> String {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variable = variables.iter().find(|it| it["name"] == "namespace").unwrap();
    let query = variable["query"].as_str().unwrap();
    let values = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')')?.split_once(", "));
    let (metric, label) = values.unwrap_or_else(|| panic!("{query}"));
    format!("label/{label}/values?match%5B%5D={}", encoded(metric))
}

/// Has the run of a SyncJob fail with what no other try can help.
async fn fail_for_good(stage: &Stage) {
    stage.claim("to-broken", "Bound").await.unwrap();
    let destination = json!({"persistentVolumeClaim": {"claimName": "to-broken"}});
    stage.sync("broken", json!({"destination": destination})).await.unwrap();
    let pods = stage.kubelet.start_both("broken", &[]).await.unwrap();
    let report = bad_report("broken-1", "DeleteLimitExceeded", "too many deletes");
    for pod in &pods {
        stage.kubelet.end(pod, 4, &serde_json::to_string(&report).unwrap()).await.unwrap();
    }
    stage.until_is("broken", "Stalled").await.unwrap();
}

/// Asks for a run of `web` by its number, and plays it to its end.
async fn run_web(stage: &Stage, number: u32, play: Play) {
    let script = async {
        stage.patch("web", json!({"spec": {"trigger": number.to_string()}})).await?;
        let run = format!("web-{number}");
        stage.until("web", "its run is over", |job| syncjob::text(job, "/lastRun/id") == run).await
    };
    tokio::select! {
        done = script => drop(done.unwrap()),
        error = stage.kubelet.play("web", play) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn prometheus_shows_runs_in_each_panel_of_the_dashboard_and_evaluates_each_alert() {
    let chart = render(&ON_REQUEST).unwrap();
    let stage = Stage::new("prometheus").await.unwrap();
    let address = ports::unused();
    let listen = format!("--listen={address}");
    let _controller = stage.controller_with(&["--leader-elect=false", &listen]).await.unwrap();
    fail_for_good(&stage).await;
    stage.sync("web", json!({"schedule": {"cron": "@yearly"}, "trigger": "1"})).await.unwrap();
    run_web(&stage, 1, Play::FirstFails).await;

    let prometheus = Prometheus::start(&chart, address);
    prometheus.until_up().await;
    let counted = async || prometheus.values("volferry_runs_total").await.len() == 2;
    wait::poll("the runs of both results are counted", PATIENCE, counted).await.unwrap();
    // What was counted before Prometheus first read it is no part of a rate.
    run_web(&stage, 2, Play::Succeeds).await;

    let dashboard = one(&chart, "ConfigMap")["data"]["volferry.json"].as_str().unwrap();
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let expressions = expressions(&dashboard, &stage.namespace);
    for (_, expression) in &expressions {
        prometheus.values(expression).await;
    }
    let is_filled = async || prometheus.without_numbers(&expressions).await.is_empty();
    let filled = wait::poll("each panel is filled", PATIENCE, is_filled).await;
    assert!(filled.is_ok(), "nothing is shown: {:#?}", prometheus.without_numbers(&expressions).await);
    let shown = async |title: &str| {
        let (_, expression) = expressions.iter().find(|(panel, _)| *panel == title).unwrap();
        prometheus.values(expression).await
    };
    for panel in RATES {
        assert!(shown(panel).await.iter().any(|value| *value > 0.0), "{panel}");
    }
    assert_eq!([shown("Failed").await, shown("Stalled").await], [[1.0], [1.0]]);
    let namespaces = prometheus.get(&choices(&dashboard)).await.unwrap();
    assert_eq!(namespaces["data"], json!([stage.namespace]));

    let alerts = prometheus.alerts(Timestamp::now()).await;
    let rules = &one(&chart, "PrometheusRule")["spec"]["groups"][0]["rules"];
    assert_eq!(alerts.len(), rules.as_array().unwrap().len());
    for alert in &alerts {
        assert_eq!(alert["health"], "ok", "{alert:#}");
    }
    let stalled = alerts.iter().find(|alert| alert["name"] == "VolferryJobStalled").unwrap();
    let labels = &stalled["alerts"][0]["labels"];
    assert_eq!((&labels["namespace"], &labels["name"]), (&json!(stage.namespace), &json!("broken")));
}
