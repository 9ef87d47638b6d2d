//! `kubectl volferry move` of a StatefulSet.

use futures::FutureExt as _;

use crate::{
    moving_stage::{CLAIM, RUNS, Scene, during},
    prelude::*,
};

#[tokio::test]
async fn a_statefulset_moves_and_comes_back_wherever_the_command_is_killed() {
    let (stage, _controller) = Stage::with_controller("moving").await.unwrap();
    let scene = Scene::new(stage).await.unwrap();
    let to = ["--to-class=moved-to"];
    let moved = async {
        let old = scene.volume().await;
        wait::until(&scene.pods, "db-0", "it runs", PATIENCE, |_| true).await.unwrap();
        let plan = scene.run(&to, 0).await;
        assert!(plan.contains("from 1 to 0") && plan.contains("Nothing has been changed"), "{plan}");
        assert_eq!(scene.made(), "");
        let lives = scene
            .run_in_lives(&[&to[..], &["--apply"]].concat(), async || false)
            .boxed_local()
            .await
            .unwrap();
        assert!(lives > 15, "it has {lives} lives");
        old
    };
    let old = during(scene.play(&RUNS), moved).await;

    let new = scene.volume().await;
    assert_ne!(old, new);
    assert_eq!(scene.class_and_replicas().await, ("moved-to".into(), 1));
    assert_eq!(scene.policy(&old).await.unwrap(), "Retain");
    assert_eq!(scene.policy(&new).await.unwrap(), "Delete");
    assert!(scene.made().starts_with("secret/") && !scene.made().contains(' '), "{}", scene.made());
    let again = during(scene.play_storage(), scene.run(&[&to[..], &["--apply"]].concat(), 0)).await;
    assert!(again.contains("is on storage class moved-to"), "{again}");
    let other = scene.run(&["--to-class=moved-lazily"], 1).await;
    assert!(other.contains("has not been closed"), "{other}");

    during(scene.play_others(), async {
        scene.run_in_lives(&["--back", "--apply"], async || false).boxed_local().await.unwrap()
    })
    .await;
    assert_eq!(scene.volume().await, old);
    assert_eq!(scene.class_and_replicas().await, ("slow".into(), 1));
    assert_eq!(scene.policy(&new).await.unwrap(), "Retain", "what was written since is kept");

    let plan = scene.run(&["--forget"], 0).await;
    assert!(plan.contains(&new), "{plan}");
    scene.run(&["--forget", "--apply"], 0).await;
    assert_eq!(scene.policy(&new).await.unwrap(), "Delete");
    assert_eq!(scene.policy(&old).await.unwrap(), "Delete");
    assert_eq!(scene.made(), "");
}

#[tokio::test]
async fn a_workload_that_has_run_again_is_compared_again_and_goes_back_once_a_claim_is_swapped() {
    let (stage, _controller) = Stage::with_controller("ran-again").await.unwrap();
    let scene = Scene::new(stage).await.unwrap();
    let forth = ["--to-class=moved-to", "--apply"];
    let compared = async {
        let old = scene.volume().await;
        wait::until(&scene.pods, "db-0", "it runs", PATIENCE, |_| true).await.unwrap();
        let is_compared = async || scene.record().await.is_some_and(|(_, stage)| stage == "Swap");
        scene.run_in_lives(&forth, is_compared).boxed_local().await.unwrap();
        let said = scene.run_beside_another(&forth).boxed_local().await;
        assert!(said.contains("has changed meanwhile"), "{said}");
        old
    };
    let old = during(scene.play(&RUNS), compared).await;
    assert_eq!((scene.volume().await, scene.played.get()), (old.clone(), 4));

    // The SyncJob is deleted, but the claim has its old volume.
    let compared_again = async {
        scene.start_again().boxed_local().await;
        scene.run_in_lives(&forth, async || scene.reserved().await.is_some()).boxed_local().await.unwrap();
    };
    during(scene.play(&RUNS[1..]), compared_again).await;
    assert_eq!(scene.played.get(), 7, "what it wrote is copied, too");
    let new = scene.reserved().await.expect("the claim is being swapped");

    let back = async {
        scene.start_again().boxed_local().await;
        let said = scene.run(&forth, 1).await;
        assert!(said.contains("may have run since") && said.contains("--back"), "{said}");
        scene.run(&["--back", "--apply"], 0).await;
    };
    during(scene.play_others(), back).await;
    assert_eq!(scene.volume().await, old);
    assert_eq!(scene.class_and_replicas().await, ("slow".into(), 1));
    assert_eq!(scene.policy(&new).await.unwrap(), "Retain");
    scene.run(&["--forget", "--apply"], 0).await;
    assert_eq!(scene.policy(&new).await.unwrap(), "Delete");
    assert_eq!(scene.reserved().await, None, "the storage takes it for one that was used, and deletes it");
    assert_eq!(scene.made(), "");
}

#[tokio::test]
async fn what_could_not_be_moved_whole_is_refused_and_a_move_without_an_operator_goes_back() {
    let scene = Scene::new(Stage::new("unmovable").await.unwrap()).await.unwrap();
    let step = async {
        let old = scene.volume().await;
        wait::until(&scene.pods, "db-0", "it runs", PATIENCE, |_| true).await.unwrap();
        for (flags, words) in [
            (&["--to-class=none"][..], "there is no StorageClass none"),
            (&["--to-class=slow"], "there is no StorageClass slow"),
            (&["--to-class=moved-to", "--claim=wal"], "has no claim or template wal"),
            (&["--back"], "no move of statefulset/db is recorded"),
            (&[], "the class is missing"),
        ] {
            let said = scene.run(flags, 1).await;
            assert!(said.contains(words), "{said}");
        }
        let lazily = scene.run(&["--to-class=moved-lazily"], 0).await;
        assert!(lazily.contains(CLAIM), "{lazily}");
        scene.pod("backup", &Value::Null).await.unwrap();
        let said = scene.run(&["--to-class=moved-to"], 1).await;
        assert!(said.contains("is used by pod backup"), "{said}");
        scene.pods.delete("backup", &DeleteParams::default().grace_period(0)).await.unwrap();

        others_that_write_are_refused(&scene).boxed_local().await;

        let said = scene.run(&["--to-class=moved-to", "--apply", "--timeout=1s"], 1).await;
        assert!(said.contains("no operator has looked at it yet"), "{said}");
        assert_eq!(scene.class_and_replicas().await, ("slow".into(), 1), "it runs as before");
        assert!(scene.made().contains("syncjob"), "{}", scene.made());
        let said = scene.run(&["--forget"], 1).await;
        assert!(said.contains("at stage Copy"), "{said}");
        scene.run(&["--back", "--apply"], 0).await;
        assert_eq!(scene.made(), "");
        assert_eq!(scene.volume().await, old);
        assert_eq!(scene.record().await, None);
    };
    during(scene.play_others(), step).await;
}

async fn others_that_write_are_refused(scene: &Scene) {
    let (to, namespace) = (["--to-class=moved-to"], &scene.stage.namespace);
    let abroad = Stage::new("unmovable-abroad").await.unwrap();
    for stage in [&scene.stage, &abroad] {
        let claim = json!({"claimName": CLAIM, "namespace": namespace});
        stage.sync("mirror", json!({"destination": {"persistentVolumeClaim": claim}})).await.unwrap();
        let said = scene.run(&to, 1).await;
        let path = format!("SyncJob {}/mirror writes to claim {CLAIM}", stage.namespace);
        assert!(said.contains(&path) && said.contains("suspend"), "{said}");
        stage.patch("mirror", json!({"spec": {"suspend": true}})).await.unwrap();
    }
    let endpoint = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncEndpoint", "metadata": {"name": "inbox"},
        "spec": {"persistentVolumeClaim": {"claimName": CLAIM}, "access": "Write"}});
    scene.stage.kubectl.apply(&endpoint.to_string()).unwrap();
    let said = scene.run(&to, 1).await;
    assert!(said.contains("SyncEndpoint inbox lets its peers write"), "{said}");
    scene.stage.kubectl.run(&["delete", "syncendpoint", "inbox"]).unwrap();
    let plan = scene.run(&to, 0).await;
    assert!(plan.contains("SyncJob mirror knows the old claim"), "{plan}");
}
