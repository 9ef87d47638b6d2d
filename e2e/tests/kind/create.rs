//! A destination whose claim the operator creates.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::prelude::*;

#[tokio::test]
async fn a_claim_is_created_filled_and_kept_when_the_job_goes() {
    let sandbox = Sandbox::new("create").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    from.shell_as_syncer("echo content > file").unwrap();
    sandbox.sync("copy", json!({"destination": {"create": {}}})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/lastRun/work/filesCreated"), 1);

    let claims: Api<PersistentVolumeClaim> = sandbox.api();
    let made = claims.get("to").await.unwrap().spec.unwrap();
    assert_eq!(made.access_modes.unwrap(), ["ReadWriteOnce"]);
    let requests = made.resources.and_then(|it| it.requests).unwrap();
    assert_eq!(requests["storage"].0, "1Gi", "as much as the source's claim asks for");
    let to = Volume::of(&sandbox, "to").await.unwrap();
    assert_eq!(to.shell("cat file").unwrap(), b"content\n");

    sandbox.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    e2e::wait::until_gone(&sandbox.jobs, "copy", e2e::cluster::PATIENCE).await.unwrap();
    assert_eq!(claims.get("to").await.unwrap().metadata.deletion_timestamp, None);
    assert_eq!(to.shell("cat file").unwrap(), b"content\n", "the copy outlives the SyncJob");

    let own = json!({"destination": {"persistentVolumeClaim": {"claimName": "own"}, "create": {}}, "deletionPolicy": "Delete"});
    sandbox.sync("owner", own).await.unwrap();
    sandbox.until_is("owner", "Ready").await.unwrap();
    sandbox.jobs.delete("owner", &DeleteParams::default()).await.unwrap();
    e2e::wait::until_gone(&claims, "own", e2e::cluster::PATIENCE).await.unwrap();
}
