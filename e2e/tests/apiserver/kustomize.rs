//! The objects of overlays of `config/default` with components, by the kubectl that the other tests use.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Result, ensure};
use e2e::programs;
use serde_json::{Value, json};

use crate::chart::one;

/// Builds an overlay with these components, in that order, which moves all into a namespace if one is given.
fn overlay(namespace: Option<&str>, components: &[&str]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let here = folder.path().canonicalize()?;
    // kustomize refuses absolute paths of folders.
    let up = "../".repeat(here.components().count() - 1);
    let config = programs::repository().canonicalize()?.join("config");
    let config = format!("{up}{}", config.strip_prefix("/")?.display());
    let components: Vec<String> = components.iter().map(|it| format!("{config}/components/{it}")).collect();
    let mut overlay = json!({
        "kind": "Kustomization",
        "resources": [format!("{config}/default")],
        "components": components,
    });
    if let Some(namespace) = namespace {
        overlay["namespace"] = namespace.into();
    }
    fs::write(here.join("kustomization.yaml"), overlay.to_string())?;
    let said = Command::new(programs::of_cluster("kubectl")?).arg("kustomize").arg(&here).output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(serde_saphyr::from_multiple(&String::from_utf8(said.stdout)?)?)
}

/// Who makes an account of that name in the namespace that a binding was left with would have the operator's rights.
#[test]
fn an_overlay_moves_the_subjects_of_each_binding_with_their_accounts() {
    for (given, namespace) in [(None, "volferry-system"), (Some("team-a"), "team-a")] {
        let all = overlay(given, &["hooks", "nodes", "populator"]).unwrap();
        let confined = overlay(given, &["hooks", "own-namespace"]).unwrap();
        for (objects, bindings) in [(all, 6), (confined, 3)] {
            let subjects = objects.iter().filter_map(|it| it["subjects"].as_array());
            assert_eq!(subjects.clone().count(), bindings);
            for subject in subjects.flatten() {
                assert_eq!(subject["namespace"], namespace, "{subject}");
            }
        }
    }
}

/// Without one, `kubectl apply` would put them into the namespace of whoever calls it, where they are about nothing.
#[test]
fn each_object_of_each_component_is_in_the_namespace_of_the_overlay() {
    let folders = fs::read_dir(programs::repository().join("config/components")).unwrap();
    let names: BTreeSet<String> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // That one leaves out what others add.
    let others: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| *name != "own-namespace").collect();
    assert!(others.len() > 5 && others.len() < names.len(), "{names:?}");
    let of_no_namespace = [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Namespace",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    for (given, namespace) in [(None, "volferry-system"), (Some("team-a"), "team-a")] {
        for components in [&others[..], &["hooks", "own-namespace"]] {
            for object in overlay(given, components).unwrap() {
                if !of_no_namespace.contains(&object["kind"].as_str().unwrap()) {
                    assert_eq!(object["metadata"]["namespace"], namespace, "{}", object["metadata"]);
                }
            }
        }
    }
}

#[test]
fn the_populator_gets_what_components_do_to_the_operator() {
    let components = ["populator", "service-monitor", "metrics-token", "network-policy", "openshift", "log"];
    let objects = overlay(None, &components).unwrap();
    let deployments = objects.iter().filter(|it| it["kind"] == "Deployment").collect::<Vec<_>>();
    let [policy, monitor] = ["NetworkPolicy", "ServiceMonitor"].map(|kind| one(&objects, kind));
    assert_eq!(deployments.len(), 2);
    for deployment in deployments {
        let pods = &deployment["spec"]["template"];
        let pod = &pods["spec"];
        assert_eq!(pod["securityContext"]["runAsUser"], Value::Null, "{pod:#}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{pod:#}");
        let container = &pod["containers"][0];
        assert_eq!(container["args"][1], "--log-format=text");
        let token = json!({"name": "VOLFERRY_METRICS_TOKEN_FILE", "value": "/run/metrics/token"});
        assert!(container["env"].as_array().unwrap().contains(&token), "{container:#}");
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/run/metrics");
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], "volferry-metrics-token");
        assert!(selects(&policy["spec"]["podSelector"], &pods["metadata"]["labels"]), "{policy:#}");
        let same =
            |it: &&Value| it["kind"] == "Service" && it["metadata"]["name"] == deployment["metadata"]["name"];
        let service = objects.iter().find(same).unwrap();
        assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
        assert!(selects(&monitor["spec"]["selector"], &service["metadata"]["labels"]), "{service:#}");
    }
}

/// Returns whether a selector, whose only expression has the operator In, selects what has those labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let among = &selector["matchExpressions"][0];
    let mut same = selector["matchLabels"].as_object().unwrap().iter();
    same.all(|(label, value)| labels[label] == *value)
        && among["values"].as_array().unwrap().contains(&labels[among["key"].as_str().unwrap()])
}

#[test]
fn prometheus_shows_the_token_that_readers_of_metrics_have_to_show() {
    let shown = |components: &[&str]| {
        let objects = overlay(None, components).unwrap();
        one(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"].clone()
    };
    let secret = json!({"name": "volferry-metrics-token", "key": "token"});
    assert_eq!(shown(&["service-monitor", "metrics-token"]), secret);
    assert_eq!(shown(&["service-monitor"]), Value::Null);
}
