//! The longest names that Kubernetes accepts.

use std::collections::BTreeSet;

use e2e::kubelet;

use crate::prelude::*;

/// The longest name of an object.
const LONGEST: usize = 253;
/// The longest name of a Job whose pods get valid names, and of a pod whose name is also its host name.
const LONGEST_HOST: usize = 63;

/// The jobs' names differ in the last letter, so objects of one could be mistaken for the other's.
#[tokio::test]
async fn jobs_and_claims_with_the_longest_names_run_and_do_not_get_mixed_up() {
    let (stage, _controller) = Stage::with_controller("names").await.unwrap();
    let named = |letter: &str, end: &str| letter.repeat(LONGEST - 1) + end;
    for end in ["a", "b"] {
        let claim = named("c", end);
        stage.claim(&claim, "Bound").await.unwrap();
        let destination = json!({"destination": {"persistentVolumeClaim": {"claimName": claim}}});
        stage.sync(&named("j", end), destination).await.unwrap();
    }
    let mut pods: Vec<Pod> = Vec::new();
    for _ in 0..2 {
        let [source, sink] = stage.kubelet.start_any(&pods).await.unwrap();
        let report = good_report(&kubelet::try_of(&sink));
        stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
        pods.extend([source, sink]);
    }
    for end in ["a", "b"] {
        stage.until_is(&named("j", end), "Ready").await.unwrap();
    }
    let names: BTreeSet<String> = pods.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names.len(), 4);
    assert!(names.iter().all(|name| name.len() <= LONGEST_HOST), "{names:?}");
    let runs = stage.runs.list(&ListParams::default()).await.unwrap().items;
    let runs: BTreeSet<String> = runs.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(runs.len(), 2, "{runs:?}");
}
