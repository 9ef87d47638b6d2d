//! The objects that the chart renders for its values, by the helm that installs it in the other tests.

use std::process::Command;

use anyhow::{Result, ensure};
use e2e::programs;
use serde_json::Value;

/// Renders the chart with those `--set` values, without its CRDs.
fn render(values: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(programs::of_cluster("helm")?);
    command.args(["template", "volferry"]).arg(programs::repository().join("charts/volferry"));
    command.args(["--namespace", "ops", "--kube-version", "1.30.0", "--set", "crds.install=false"]);
    for value in values {
        command.args(["--set", value]);
    }
    let said = command.output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(serde_saphyr::from_multiple(&String::from_utf8(said.stdout)?)?)
}

/// Returns the only object of that kind.
fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|it| it["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

#[test]
fn monitoring_and_the_budget_are_rendered_only_on_request() {
    let objects = render(&[]).unwrap();
    for kind in ["ServiceMonitor", "PrometheusRule", "ConfigMap", "PodDisruptionBudget"] {
        assert!(!objects.iter().any(|it| it["kind"] == kind), "{kind}");
    }
    assert!(one(&objects, "Deployment")["spec"]["strategy"].is_null());
}

#[test]
fn hooks_need_a_value_and_who_writes_them_the_same_right() {
    let may_exec =
        |objects: &[Value], kind: &str| one(objects, kind)["rules"].to_string().contains("pods/exec");
    let operators: Vec<Value> = render(&[]).unwrap();
    let operators: Vec<Value> = operators
        .into_iter()
        .filter(|it| {
            !["-edit", "-admin", "-view"]
                .iter()
                .any(|of| it["metadata"]["name"].as_str().unwrap().ends_with(of))
        })
        .collect();
    assert!(!may_exec(&operators, "ClusterRole"));
    let namespaced = render(&["watchNamespaces={prod,test}", "hooks.enabled=true"]).unwrap();
    assert!(!namespaced.iter().any(|it| it["kind"].as_str().unwrap().starts_with("ValidatingAdmission")));
    let with_exec =
        namespaced.iter().filter(|it| it["kind"] == "Role" && it["rules"].to_string().contains("pods/exec"));
    let namespaces: Vec<_> = with_exec.map(|it| it["metadata"]["namespace"].as_str().unwrap()).collect();
    assert_eq!(namespaces, ["prod", "test"]);
    let args = &one(&namespaced, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(args.to_string().contains("--watch-namespaces=prod,test"), "{args}");
    let enabled = render(&["hooks.enabled=true", "rbac.aggregate=false"]).unwrap();
    assert!(may_exec(&enabled, "ClusterRole"));

    let file = programs::repository().join("config/rbac/hooks-policy.yaml");
    let ours: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
    let policy = one(&enabled, "ValidatingAdmissionPolicy");
    assert_eq!(policy["spec"], ours[0]["spec"], "as of kustomize");
    let binding = one(&enabled, "ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], ours[1]["spec"]["validationActions"]);
}

#[test]
fn syncer_pods_have_an_image_and_settings_of_their_own_if_the_values_say_so() {
    let args = |values: &[&str]| {
        let objects = render(values).unwrap();
        let container = &one(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let args = container["args"].as_array().unwrap();
        args.iter().map(|arg| arg.as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let has = |args: &[String], arg: &str| args.iter().any(|it| it == arg);
    let own = args(&["image.tag=v1", "image.pullPolicy=Always"]);
    assert!(has(&own, "--image=volferry/volferry:v1") && has(&own, "--image-pull-policy=Always"), "{own:?}");
    let other = args(&["image.pullPolicy=Always", "syncers.image.repository=r/s", "syncers.image.tag=v2"]);
    assert!(has(&other, "--image=r/s:v2"), "{other:?}");
    assert!(!other.iter().any(|arg| arg.starts_with("--image-pull-policy")), "{other:?}");
    let pods = args(&["syncers.pods.resources.limits.memory=1Gi", "syncers.pods.priorityClassName=low"]);
    let json = r#"--syncer-pods={"priorityClassName":"low","resources":{"limits":{"memory":"1Gi"}}}"#;
    assert!(has(&pods, json), "{pods:?}");
    assert!(render(&["syncers.pod.resources=1"]).is_err(), "a value that there is not");
}

#[test]
fn the_operators_pods_can_have_variables_a_security_context_and_a_network_policy() {
    let objects = render(&[]).unwrap();
    assert!(!objects.iter().any(|it| it["kind"] == "NetworkPolicy"));
    let values = [
        "extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT",
        "extraEnv[0].value=http://collector:4318",
        "podSecurityContext.runAsUser=1000",
        "containerSecurityContext.readOnlyRootFilesystem=false",
        "networkPolicy.enabled=true",
        "networkPolicy.egress[0].ports[0].port=4318",
    ];
    let objects = render(&values).unwrap();
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(env.iter().any(|it| it["value"] == "http://collector:4318"), "{env:?}");
    let security = &pod["securityContext"];
    assert_eq!((&security["runAsUser"], &security["runAsNonRoot"]), (&1000.into(), &true.into()));
    let security = &pod["containers"][0]["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], false);
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
    let policy = one(&objects, "NetworkPolicy");
    assert_eq!(policy["spec"]["podSelector"], one(&objects, "Deployment")["spec"]["selector"]);
    assert_eq!(policy["spec"]["egress"].as_array().unwrap().len(), 3);
}

#[test]
fn a_limit_on_the_runs_of_a_node_takes_the_right_to_read_volumes() {
    let reads_volumes = |objects: &[Value]| {
        let operators = objects.iter().filter(|it| it["kind"] == "ClusterRole");
        operators.into_iter().any(|it| it["rules"].to_string().contains("persistentvolumes"))
    };
    assert!(!reads_volumes(&render(&[]).unwrap()));
    let limited = render(&["queue.maxRunsPerNode=2"]).unwrap();
    assert!(reads_volumes(&limited));
    let args = one(&limited, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("--max-runs-per-node=2"), "{args}");
    let confined = render(&["queue.maxRunsPerNode=2", "watchNamespaces={prod}"]).unwrap_err().to_string();
    assert!(confined.contains("queue.maxRunsPerNode"), "{confined}");
}

#[test]
fn a_budget_and_a_strategy_are_about_the_operators_pods() {
    let values = ["podDisruptionBudget.enabled=true", "updateStrategy.type=Recreate", "replicas=2"];
    let objects = render(&values).unwrap();
    let (budget, deployment) = (one(&objects, "PodDisruptionBudget"), one(&objects, "Deployment"));
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let share = ["podDisruptionBudget.enabled=true", "podDisruptionBudget.maxUnavailable=50%"];
    assert_eq!(one(&render(&share).unwrap(), "PodDisruptionBudget")["spec"]["maxUnavailable"], "50%");
    assert!(render(&["podDisruptionBudget.maxUnavailable=half"]).is_err());
}

#[test]
fn a_service_monitor_selects_the_service_and_keeps_the_namespace_of_jobs() {
    let values = ["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=30s"];
    let objects =
        render(&[&values[..], &["metrics.serviceMonitor.labels.release=prometheus"]].concat()).unwrap();
    let (monitor, service) = (one(&objects, "ServiceMonitor"), one(&objects, "Service"));
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(service["metadata"]["labels"][label], *value);
    }
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!((&endpoint["honorLabels"], &endpoint["interval"]), (&true.into(), &"30s".into()));
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"][0], service["metadata"]["namespace"]);

    let without = render(&[values[0], "metrics.service.create=false"]).unwrap_err().to_string();
    assert!(without.contains("metrics.service.create"), "{without}");
}

#[test]
fn alerts_and_dashboard_are_rendered_as_their_files_say() {
    let values = ["metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true"];
    let labels =
        ["metrics.prometheusRule.labels.role=alerts", "metrics.dashboard.annotations.grafana_folder=Storage"];
    let objects = render(&[values, labels].concat()).unwrap();
    let file = |name: &str| {
        let folder = programs::repository().join("charts/volferry/files/monitoring");
        std::fs::read_to_string(folder.join(name)).unwrap()
    };
    let rule = one(&objects, "PrometheusRule");
    assert_eq!(rule["spec"], serde_saphyr::from_str::<Value>(&file("alerts.yaml")).unwrap());
    assert_eq!(rule["metadata"]["labels"]["role"], "alerts");
    let dashboard = one(&objects, "ConfigMap");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(dashboard["metadata"]["annotations"]["grafana_folder"], "Storage");
    let shown: Value = serde_json::from_str(dashboard["data"]["volferry.json"].as_str().unwrap()).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(&file("dashboard.json")).unwrap());
}
