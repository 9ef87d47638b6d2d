//! All samples in one namespace, applied as a new user does.

use crate::prelude::*;

/// Samples that run at once, each onto a claim of its own.
const RUN: [&str; 4] = ["web-assets", "web-mirror", "web-assets-tuned", "web-assets-behind-a-policy"];
/// Samples that run once they are resumed, but for `disk-image`, whose claims the samples do not make.
const SUSPENDED: [&str; 3] = ["uploads", "local-copy", "disk-image"];
/// Samples that stay suspended.
const LEFT: [&str; 3] = ["web-snapshots", "web-restored", "web-from-prod"];

#[tokio::test]
async fn samples_that_are_applied_together_do_not_disturb_each_other() {
    let (stage, _controller) = Stage::with_controller("samples").await.unwrap();
    let samples = programs::repository().join("config/samples");
    stage.kubectl.run(&["apply", "-k", samples.to_str().unwrap()]).unwrap();
    for name in SUSPENDED.into_iter().chain(LEFT) {
        let suspended = stage.until_is(name, "Ready").await.unwrap();
        assert!(syncjob::has_reason(&suspended, "Ready", "Suspended"), "{suspended:#?}");
    }
    let archive = stage.until_is("archive", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&archive, "Stalled", "ClaimNotFound"), "{archive:#?}");
    for name in RUN {
        ends_well(&stage, name).await;
    }

    for name in SUSPENDED {
        stage.patch(name, serde_json::json!({"spec": {"suspend": false}})).await.unwrap();
    }
    ends_well(&stage, "uploads").await;
    let pod = stage.kubelet.new_pod("local-copy", Side::Sink, &[]).await.unwrap();
    stage.kubelet.start(&pod).await.unwrap();
    stage.kubelet.succeed_one(Side::Sink, &pod, &good_report("local-copy-1")).await.unwrap();
    stage.until_reason("local-copy", "Ready", "Succeeded").await.unwrap();
    let disk = stage.until_is("disk-image", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&disk, "Stalled", "ClaimNotFound"), "{disk:#?}");
}

/// Simulates the pods of a job until its run has succeeded.
async fn ends_well(stage: &Stage, name: &str) {
    tokio::select! {
        done = stage.until_reason(name, "Ready", "Succeeded") => drop(done.unwrap()),
        error = stage.kubelet.play(name, Play::Succeeds) => panic!("{name}: {error:?}"),
    }
}
