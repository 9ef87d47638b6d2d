//! The objects of overlays of `config/default` with components, by the kubectl that the other tests use.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Result, ensure};
use e2e::programs;
use serde_json::{Value, json};

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
