//! An operator that is uninstalled before its SyncJobs: the SyncJobs and their namespace can be deleted.

use std::process::Command;

use anyhow::{Result, ensure};
use e2e::cluster::SYSTEM_NAMESPACE;
use k8s_openapi::api::core::v1::Namespace;

use crate::prelude::*;

#[tokio::test]
async fn a_namespace_goes_after_the_operator_was_uninstalled_during_a_run() {
    let sandbox = Sandbox::alone("uninstalled").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::SLOW).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();

    let uninstalled = Uninstalled::new().unwrap();
    let namespaces: Api<Namespace> = Api::all(sandbox.client.clone());
    namespaces.delete(&sandbox.namespace, &DeleteParams::default()).await.unwrap();
    wait::until_gone(&namespaces, &sandbox.namespace, PATIENCE).await.unwrap();
    uninstalled.undo().unwrap();
    let told = helm(&["test", "volferry", "--timeout", "120s"]).unwrap();
    assert!(told.contains("Succeeded"), "{told}");
}

/// Stands for an uninstalled release of the chart. Installs it again when dropped, for the other tests.
struct Uninstalled {
    revision: Option<String>,
}

impl Uninstalled {
    fn new() -> Result<Self> {
        let history: Value = serde_json::from_str(&helm(&["history", "volferry", "--output", "json"])?)?;
        let last = history.as_array().and_then(|revisions| revisions.last());
        let revision = last.map(|last| last["revision"].to_string());
        ensure!(revision.is_some(), "the chart is not installed: use `e2e/run`");
        let uninstalled = Self { revision };
        helm(&["uninstall", "volferry", "--keep-history", "--wait", "--timeout", "120s"])?;
        Ok(uninstalled)
    }

    fn undo(mut self) -> Result<()> {
        self.install()
    }

    fn install(&mut self) -> Result<()> {
        let Some(revision) = self.revision.take() else { return Ok(()) };
        helm(&["rollback", "volferry", &revision, "--wait", "--timeout", "120s"]).map(drop)
    }
}

impl Drop for Uninstalled {
    fn drop(&mut self) {
        if let Err(error) = self.install() {
            eprintln!("the operator is not installed again: {error:#}");
        }
    }
}

fn helm(args: &[&str]) -> Result<String> {
    let mut command = Command::new(programs::of_cluster("helm")?);
    let said = command.args(["--namespace", SYSTEM_NAMESPACE]).args(args).output()?;
    ensure!(said.status.success(), "helm {}: {}", args.join(" "), String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8(said.stdout)?)
}
