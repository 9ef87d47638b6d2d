//! An operator that is uninstalled before its SyncJobs: the SyncJobs and their namespace can be deleted.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
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
    let told = helm(&["test", "volferry", "--timeout", "120s"], "").unwrap();
    assert!(told.contains("Succeeded"), "{told}");
}

/// Stands for an uninstalled release of the chart. Installs it again when dropped, with the values it had, for the
/// other tests.
struct Uninstalled {
    values: Option<String>,
}

impl Uninstalled {
    /// Without `--keep-history`: `helm upgrade --install` takes the last revision by name, `v9` behind `v10`, for the
    /// newest, and where that is an uninstalled one fails.
    fn new() -> Result<Self> {
        let values = helm(&["get", "values", "volferry", "--output", "yaml"], "").context("use `e2e/run`")?;
        let uninstalled = Self { values: Some(values) };
        helm(&["uninstall", "volferry", "--wait", "--timeout", "120s"], "")?;
        Ok(uninstalled)
    }

    fn undo(mut self) -> Result<()> {
        self.install()
    }

    fn install(&mut self) -> Result<()> {
        let Some(values) = self.values.take() else { return Ok(()) };
        helm(
            &["install", "volferry", "charts/volferry", "--values", "-", "--wait", "--timeout", "120s"],
            &values,
        )
        .map(drop)
    }
}

impl Drop for Uninstalled {
    fn drop(&mut self) {
        if let Err(error) = self.install() {
            eprintln!("the operator is not installed again: {error:#}");
        }
    }
}

fn helm(args: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(programs::of_cluster("helm")?);
    command.args(["--namespace", SYSTEM_NAMESPACE]).args(args).current_dir(programs::repository());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let said = child.wait_with_output()?;
    ensure!(said.status.success(), "helm {}: {}", args.join(" "), String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8(said.stdout)?)
}
