//! An image that cannot be pulled: the status names it, and the run continues once the operator has one that can.

use anyhow::{Context as _, Result};
use e2e::kubectl::Kubectl;

use crate::prelude::*;

const FOREIGN: &str = "registry.invalid/volferry:none";

#[tokio::test]
async fn a_foreign_image_is_named_and_can_be_corrected() {
    let sandbox = Sandbox::alone("image").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer("echo hello > a").unwrap();
    let operator = Operator::with_image(&sandbox.system, FOREIGN).unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    let named = |job: &kube::api::DynamicObject| syncjob::has_reason(job, "Reconciling", "ImagePullFailed");
    let waiting = sandbox.until("copy", "the image is named", named).await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(message.contains(FOREIGN) && message.contains("--image"), "{message}");

    drop(operator);
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());
}

/// The operator with another image for syncer pods; its own image is set again when this is dropped.
struct Operator {
    kubectl: Kubectl,
    arguments: Value,
}

impl Operator {
    fn with_image(kubectl: &Kubectl, image: &str) -> Result<Self> {
        let path = "jsonpath={.spec.template.spec.containers[0].args}";
        let arguments = kubectl.run(&["get", "deployment", "volferry-operator", "-o", path])?;
        let arguments: Value = serde_json::from_str(&arguments).context("the operator's arguments")?;
        let operator = Self { kubectl: kubectl.clone(), arguments: arguments.clone() };
        let changed = arguments.as_array().into_iter().flatten().map(|argument| match argument.as_str() {
            Some(argument) if argument.starts_with("--image=") => json!(format!("--image={image}")),
            _ => argument.clone(),
        });
        operator.set_arguments(&changed.collect())?;
        Ok(operator)
    }

    fn set_arguments(&self, arguments: &Value) -> Result<()> {
        let patch =
            json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments}]);
        let patch = ["patch", "deployment", "volferry-operator", "--type=json", "-p", &patch.to_string()];
        self.kubectl.run(&patch)?;
        self.kubectl.run(&["rollout", "status", "deployment/volferry-operator", "--timeout=120s"])?;
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Err(error) = self.set_arguments(&self.arguments) {
            eprintln!("the operator keeps a foreign image: {error:#}");
        }
    }
}
