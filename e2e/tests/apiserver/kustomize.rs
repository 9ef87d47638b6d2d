//! The objects of overlays of `config/default` with components, by the kubectl that the other tests use.

use std::{fs, process::Command};

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
