//! The objects that the chart renders for its values, by the helm that installs it in the other tests.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Result, ensure};
use e2e::programs;
use serde_json::Value;

/// Renders the chart with those `--set` values, without its CRDs.
pub(crate) fn render(values: &[&str]) -> Result<Vec<Value>> {
    render_with(values, &[])
}

/// Renders the chart with those `--set` values and further arguments of helm.
fn render_with(values: &[&str], more: &[&str]) -> Result<Vec<Value>> {
    render_as("volferry", "ops", values, more)
}

/// Renders the chart as a release of that name in that namespace.
fn render_as(release: &str, namespace: &str, values: &[&str], more: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(programs::of_cluster("helm")?);
    command.args(["template", release]).arg(programs::repository().join("charts/volferry"));
    command.args(["--namespace", namespace, "--kube-version", "1.30.0", "--set", "crds.install=false"]);
    command.args(more);
    for value in values {
        command.args(["--set", value]);
    }
    let said = command.output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(serde_saphyr::from_multiple(&String::from_utf8(said.stdout)?)?)
}

/// Returns the only object of that kind.
pub(crate) fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
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
            !["-edit", "-view"].iter().any(|of| it["metadata"]["name"].as_str().unwrap().ends_with(of))
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

    for name in ["hooks", "endpoint-keys"] {
        let file = programs::repository().join(format!("config/rbac/{name}-policy.yaml"));
        let ours: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
        let of = |kind: &str| {
            let is_it =
                |it: &&Value| it["kind"] == kind && it["metadata"]["name"].as_str().unwrap().ends_with(name);
            enabled.iter().find(is_it).unwrap()
        };
        let (policy, binding) = (of("ValidatingAdmissionPolicy"), of("ValidatingAdmissionPolicyBinding"));
        assert_eq!(policy["spec"], ours[0]["spec"], "as of kustomize");
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], ours[1]["spec"]["validationActions"]);
    }
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
    for unknown in [
        "pod.resources=1",
        "pods.resources.limit.memory=1Gi",
        "pods.nodeSelectors.a=b",
        "pods.serviceAccountName=a",
    ] {
        assert!(render(&[&format!("syncers.{unknown}")]).is_err(), "{unknown}");
    }
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
    let selector = &policy["spec"]["podSelector"];
    let component = &selector["matchExpressions"][0];
    let with_populator = render(&["populator.enabled=true"]).unwrap();
    for pods in with_populator.iter().filter(|it| it["kind"] == "Deployment") {
        let labels = &pods["spec"]["template"]["metadata"]["labels"];
        for (label, value) in selector["matchLabels"].as_object().unwrap() {
            assert_eq!(labels[label], *value, "{pods:#}");
        }
        let label = &labels[component["key"].as_str().unwrap()];
        assert!(component["values"].as_array().unwrap().contains(label), "{component}: {pods:#}");
    }
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
fn a_token_for_metrics_is_mounted_for_the_operator_and_named_to_prometheus() {
    let values = ["metrics.token.secretName=scrape", "metrics.serviceMonitor.enabled=true"];
    let objects = render(&values).unwrap();
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert!(pod["containers"][0]["args"].to_string().contains("--metrics-token-file=/run/metrics/token"));
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/run/metrics");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "scrape");
    let shown = &one(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"];
    assert_eq!((&shown["name"], &shown["key"]), (&"scrape".into(), &"token".into()));

    let values = ["metrics.serviceMonitor.enabled=true", "populator.enabled=true"];
    let objects = render_with(&values, &["--set-string", "metrics.token.secretName=123"]).unwrap();
    for deployment in objects.iter().filter(|it| it["kind"] == "Deployment") {
        assert_eq!(deployment["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"], "123");
    }
    let shown = &one(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"];
    assert_eq!(shown["name"], "123");
}

#[test]
fn on_openshift_the_operators_user_is_left_to_the_cluster() {
    let user = |apis: &str| {
        let objects = render_with(&[], &["--api-versions", apis]).unwrap();
        one(&objects, "Deployment")["spec"]["template"]["spec"]["securityContext"].clone()
    };
    let assigned = user("security.openshift.io/v1");
    assert_eq!((&assigned["runAsUser"], &assigned["runAsGroup"]), (&Value::Null, &Value::Null));
    assert_eq!(assigned["runAsNonRoot"], true);
    assert_eq!(user("apps/v1")["runAsUser"], 65532);
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

#[test]
fn labels_for_all_are_on_every_object_and_replace_none_of_the_charts() {
    let values = ["commonLabels.team=storage", "commonLabels.app\\.kubernetes\\.io/name=other"];
    for object in render(&values).unwrap() {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["team"], "storage", "{object}");
        assert_eq!(labels["app.kubernetes.io/name"], "volferry", "{object}");
        let selector = &object["spec"]["selector"];
        assert!(!selector.to_string().contains("team"), "an upgrade cannot change a selector: {object}");
    }
}

#[test]
fn the_operator_can_have_more_arguments_and_volumes() {
    let values = [
        "extraArgs={--max-runs=3}",
        "extraVolumes[0].name=ca",
        "extraVolumes[0].configMap.name=ca",
        "extraVolumeMounts[0].name=ca",
        "extraVolumeMounts[0].mountPath=/etc/ca",
        "metrics.token.secretName=scrape",
        "revisionHistoryLimit=2",
    ];
    let objects = render(&values).unwrap();
    let deployment = &one(&objects, "Deployment")["spec"];
    assert_eq!(deployment["revisionHistoryLimit"], 2);
    let pod = &deployment["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"].as_array().unwrap().last().unwrap(), "--max-runs=3");
    let named = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(named(&pod["volumes"]), ["metrics-token", "ca"]);
    assert_eq!(named(&pod["containers"][0]["volumeMounts"]), ["metrics-token", "ca"]);
}

#[test]
fn the_populator_has_the_volumes_variables_and_strategy_of_the_operator() {
    let values = [
        "populator.enabled=true",
        "extraEnv[0].name=SSL_CERT_FILE",
        "extraEnv[0].value=/etc/ca/ca.crt",
        "extraVolumes[0].name=ca",
        "extraVolumes[0].configMap.name=ca",
        "extraVolumeMounts[0].name=ca",
        "extraVolumeMounts[0].mountPath=/etc/ca",
        "updateStrategy.type=Recreate",
    ];
    for token in ["", "scrape"] {
        let token = format!("metrics.token.secretName={token}");
        let objects = render(&[&values[..], &[token.as_str()]].concat()).unwrap();
        let [operator, populator]: [&Value; 2] = ["controller", "populator"].map(|component| {
            let of = |it: &&Value| it["metadata"]["labels"]["app.kubernetes.io/component"] == component;
            &objects.iter().filter(of).find(|it| it["kind"] == "Deployment").unwrap()["spec"]
        });
        assert_eq!(populator["strategy"], operator["strategy"]);
        let [of_operator, of_populator] = [operator, populator].map(|it| &it["template"]["spec"]);
        assert_eq!(of_populator["volumes"], of_operator["volumes"]);
        let [theirs, own] = [of_operator, of_populator].map(|it| &it["containers"][0]);
        assert_eq!(own["volumeMounts"], theirs["volumeMounts"]);
        assert_eq!(own["env"], theirs["env"]);
    }
}

#[test]
fn a_service_monitor_can_relabel_and_use_tls() {
    let values = [
        "metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor.scheme=https",
        "metrics.serviceMonitor.tlsConfig.insecureSkipVerify=true",
        "metrics.serviceMonitor.relabelings[0].targetLabel=cluster",
        "metrics.serviceMonitor.relabelings[0].replacement=one",
        "metrics.serviceMonitor.metricRelabelings[0].action=labeldrop",
    ];
    let objects = render(&values).unwrap();
    let endpoint = &one(&objects, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["scheme"], &endpoint["tlsConfig"]["insecureSkipVerify"]),
        (&"https".into(), &true.into())
    );
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "cluster");
    assert_eq!(endpoint["metricRelabelings"][0]["action"], "labeldrop");
}

#[test]
fn alerts_can_have_other_thresholds_or_be_left_out() {
    let alerts = |values: &[&str]| -> anyhow::Result<Vec<Value>> {
        let objects = render(&[&["metrics.prometheusRule.enabled=true"], values].concat())?;
        Ok(one(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap().clone())
    };
    let all = alerts(&[]).unwrap();
    let changed = alerts(&[
        "metrics.prometheusRule.alerts.VolferryQueuedLong.threshold=7200",
        "metrics.prometheusRule.alerts.VolferryQueuedLong.for=15m",
        "metrics.prometheusRule.alerts.VolferryQueuedLong.severity=info",
        "metrics.prometheusRule.alerts.VolferryPerformanceRegressed.enabled=false",
    ])
    .unwrap();
    let found = |rules: &[Value], name: &str| rules.iter().find(|it| it["alert"] == name).cloned();
    assert!(found(&all, "VolferryPerformanceRegressed").is_some());
    assert_eq!(found(&changed, "VolferryPerformanceRegressed"), None);
    assert_eq!(changed.len(), all.len() - 1);
    let queued = found(&changed, "VolferryQueuedLong").unwrap();
    assert!(queued["expr"].as_str().unwrap().ends_with(" > 7200"), "{queued}");
    assert_eq!((&queued["for"], &queued["labels"]["severity"]), (&"15m".into(), &"info".into()));
    for wrong in ["NoSuchAlert.for=1m", "VolferryJobFailed.threshold=2"] {
        let error = alerts(&[&format!("metrics.prometheusRule.alerts.{wrong}")]).unwrap_err().to_string();
        assert!(error.contains(wrong.split('.').next().unwrap()), "{error}");
    }
}

#[test]
fn the_test_of_a_release_asks_the_operators_service_within_the_restricted_standard() {
    let values =
        ["networkPolicy.enabled=true", "networkPolicy.from[0].podSelector.matchLabels.app=prometheus"];
    let objects = render(&values).unwrap();
    let (test, service) = (one(&objects, "Pod"), one(&objects, "Service"));
    assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
    let address = format!("{}:8080", service["metadata"]["name"].as_str().unwrap());
    assert_eq!(test["spec"]["containers"][0]["args"], serde_json::json!(["ready", address]));
    assert_eq!(test["spec"]["securityContext"]["runAsNonRoot"], true);
    assert_eq!(test["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"][0], "ALL");
    assert_ne!(
        test["metadata"]["labels"]["app.kubernetes.io/component"], "controller",
        "it would get traffic"
    );
    let from = one(&objects, "NetworkPolicy")["spec"]["ingress"][0]["from"].as_array().unwrap();
    let of_test = &from[1]["podSelector"]["matchLabels"];
    for (label, value) in of_test.as_object().unwrap() {
        assert_eq!(test["metadata"]["labels"][label], *value);
    }
    assert!(!render(&["metrics.service.create=false"]).unwrap().iter().any(|it| it["kind"] == "Pod"));
}

#[test]
fn names_of_services_have_no_dots_and_end_with_a_word_whatever_the_release_is_called() {
    let service = |release: &str, values: &[&str]| {
        let objects = render_as(release, "ops", values, &[]).unwrap();
        let labels = &one(&objects, "Deployment")["spec"]["selector"]["matchLabels"];
        assert_eq!(labels["app.kubernetes.io/instance"], release);
        one(&objects, "Service")["metadata"]["name"].as_str().unwrap().to_string()
    };
    assert_eq!(service("web.prod", &[]), "web-prod-volferry-operator");
    assert_eq!(service("volferry.prod", &[]), "volferry-prod-operator");
    assert_eq!(service("prod", &["nameOverride=sync.er"]), "prod-sync-er-operator");
    let cut_at_the_dot = format!("{}.b", "a".repeat(51));
    assert_eq!(service(&cut_at_the_dot, &[]), format!("{}-operator", "a".repeat(51)));
    // A cluster may take such a name, and a release without the Service has one.
    assert_eq!(service("123", &[]), "123-volferry-operator");
    assert_eq!(service("prod", &["fullnameOverride=web-1"]), "web-1-operator");
    for refused in ["web.prod", "1web", "web-", "-web"] {
        assert!(render(&[&format!("fullnameOverride={refused}")]).is_err(), "{refused}");
    }
}

/// The binding of the one that comes second would else take the rights from the account of the first.
#[test]
fn no_two_releases_have_a_name_of_the_cluster_in_common() {
    let of_cluster = |release: &str, namespace: &str| {
        let objects = render_as(release, namespace, &["populator.enabled=true"], &[]).unwrap();
        let ours = objects.into_iter().filter(|it| it["metadata"]["namespace"].is_null());
        ours.map(|it| (it["kind"].to_string(), it["metadata"]["name"].to_string())).collect::<BTreeSet<_>>()
    };
    let (one, other) = (of_cluster("prod-volferry", "volferry"), of_cluster("volferry", "volferry-prod"));
    assert!(one.len() > 5, "{one:?}");
    assert_eq!(one.len(), other.len());
    assert!(one.is_disjoint(&other), "{one:?} {other:?}");
}

#[test]
fn who_may_edit_or_view_syncjobs_of_a_confined_release_is_up_to_each_namespace() {
    let cluster = render(&[]).unwrap();
    let rules = |of: &str| {
        let is_it = |it: &&Value| it["metadata"]["name"] == format!("ops.volferry-operator-{of}");
        cluster.iter().find(is_it).unwrap()["rules"].as_array().unwrap().clone()
    };
    let confined = render(&["watchNamespaces={prod,test}"]).unwrap();
    assert!(!confined.iter().any(|it| it["kind"] == "ClusterRole"));
    for namespace in ["prod", "test"] {
        let role = |of: &str| {
            let name = format!("ops.volferry-operator-{of}");
            let is_it = |it: &&Value| {
                it["kind"] == "Role"
                    && it["metadata"]["name"] == name
                    && it["metadata"]["namespace"] == namespace
            };
            confined.iter().find(is_it).unwrap()["rules"].as_array().unwrap().clone()
        };
        assert_eq!(role("view"), rules("view"));
        // The cluster's role edit has what those of the role view may do.
        assert_eq!(role("edit"), [rules("edit"), rules("view")].concat());
    }
    let mut bound = confined.iter().filter_map(|it| it["roleRef"]["name"].as_str());
    assert!(bound.all(|name| !name.ends_with("-edit") && !name.ends_with("-view")));
    for (refused, roles) in [("rbac.create=false", 0), ("rbac.aggregate=false", 2)] {
        let without = render(&["watchNamespaces={prod,test}", refused]).unwrap();
        let roles_of = |it: &&Value| it["kind"] == "Role" && it["metadata"]["namespace"] != "ops";
        assert_eq!(without.iter().filter(roles_of).count(), roles, "{refused}: those of the operator alone");
    }
}
