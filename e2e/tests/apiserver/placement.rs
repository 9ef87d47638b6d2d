//! Where syncer pods are to run, by what the cluster says of their volumes.

use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::prelude::*;

/// Returns the node affinity of a pod.
fn node_affinity(pod: &Pod) -> Value {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.clone()).unwrap_or_default();
    json!(affinity.node_affinity)
}

#[tokio::test]
async fn a_syncer_is_drawn_to_the_node_that_its_volume_is_attached_to() {
    let stage = Stage::new("attached").await.unwrap();
    let volume = format!("{}-volume", stage.namespace);
    stage.claim_of("attached", "Bound", json!({"volumeName": volume})).await.unwrap();
    let attachments = Api::<VolumeAttachment>::all(stage.client.clone());
    let attachment = json!({"metadata": {"name": volume}, "spec": {"attacher": "csi.of-the-test",
        "nodeName": "n1", "source": {"persistentVolumeName": volume}}});
    let attachment = serde_json::from_value(attachment).unwrap();
    attachments.create(&PostParams::default(), &attachment).await.unwrap();
    let attached = Patch::Merge(json!({"status": {"attached": true}}));
    attachments.patch_status(&volume, &PatchParams::default(), &attached).await.unwrap();

    let _controller = stage.controller(Cut::Never).await.unwrap();
    let destination = json!({"persistentVolumeClaim": {"claimName": "attached"}});
    stage.sync("web", json!({"destination": destination})).await.unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    let is_node = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let preferred = json!([{"weight": 100, "preference": {"matchFields": [is_node]}}]);
    assert_eq!(node_affinity(&sink), json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred}));
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await.unwrap();
    assert_eq!(node_affinity(&source), Value::Null);
}
