use std::{fs, path::PathBuf};

use serde_json::Value;

use super::*;
use api::admission::{Admitted, admit};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("fixtures").join(name)
}

fn text(drafts: &[Draft]) -> String {
    drafts.iter().flat_map(|draft| draft.lines().unwrap()).map(|line| line + "\n").collect()
}

/// Validates each SyncJob as the API server would.
fn judged(yaml: &str) -> Vec<Result<Admitted, String>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    objects.into_iter().map(|object| admit(object).map_err(|error| error.to_string())).collect()
}

/// Compares the conversion of a VolSync fixture with the file beside it.
fn compare(name: &str) -> String {
    let made = text(&volsync_drafts(&fixture(&format!("{name}.yaml"))).unwrap());
    let expected = fs::read_to_string(fixture(&format!("{name}.syncjobs.yaml"))).unwrap_or_default();
    assert_eq!(made, expected, "of {name}:\n{made}");
    made
}

#[test]
fn a_pair_becomes_one_sync_job_that_the_api_server_takes() {
    let judged = judged(&compare("pair"));
    assert!(matches!(judged.as_slice(), [Ok(Admitted::SyncJob(_))]), "{judged:?}");
}

#[test]
fn a_backup_by_restic_goes_to_object_storage_whose_bucket_is_to_be_named() {
    let made = compare("restic");
    assert!(judged(&made)[0].as_ref().unwrap_err().contains("is no place in object storage"));
    let named = judged(&made.replace(volsync::UNKNOWN_BUCKET, "s3://backups"));
    let [Ok(Admitted::SyncJob(backup)), Err(unnamed)] = named.as_slice() else { panic!("{named:?}") };
    assert_eq!(backup.spec.destination.object_store.as_ref().unwrap().url, "s3://backups/notes");
    assert_eq!(backup.spec.snapshots.as_ref().unwrap().retain.within.as_deref(), Some("72h"));
    assert!(unnamed.contains("claimName"), "{unnamed}");
}

#[test]
fn a_half_has_a_claim_to_be_named_and_one_that_is_reached_from_outside_becomes_an_endpoint() {
    let mut judged = judged(&compare("halves"));
    let endpoint = judged.remove(2);
    assert!(matches!(endpoint, Ok(Admitted::SyncEndpoint(_))), "{endpoint:?}");
    for refused in judged {
        let refused = refused.unwrap_err();
        assert!(refused.contains("claimName") || refused.contains("publicKey"), "{refused}");
    }
}

#[test]
fn files_without_objects_of_volsync_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let path = folder.path().join("objects.yaml");
        fs::write(&path, text).unwrap();
        volsync_drafts(&path).unwrap_err()
    };
    assert!(matches!(write("kind: ConfigMap"), MigrateError::Nothing { .. }));
    assert!(matches!(write("a: ["), MigrateError::File(_)));
    let odd = write("kind: ReplicationSource\nmetadata: {name: a}\nspec: {sourcePVC: [1], rsync: {}}");
    assert_eq!(odd.to_string(), "ReplicationSource a: spec.sourcePVC is not what VolSync has there");
    let missing = volsync_drafts(&folder.path().join("none.yaml")).unwrap_err();
    assert!(missing.hint().contains("standard input"), "{missing}");
}

#[test]
fn a_command_line_of_pv_migrate_becomes_a_sync_job() {
    let line = "--source old --dest new --source-namespace a --dest-namespace a -d --no-chown --compress=false -s mnt2,mount \
                --source-path /x -i --helm-set a=b";
    let args: Vec<String> = line.split_whitespace().map(Into::into).collect();
    let made = text(&[pv_migrate::draft(&args).unwrap()]);
    let judged = judged(&made);
    let [Ok(Admitted::SyncJob(job))] = judged.as_slice() else { panic!("{judged:?}") };
    let spec = &job.spec;
    assert_eq!((spec.source.path.as_str(), spec.destination.path.as_str()), ("/x", "/"));
    assert!(spec.files.delete && spec.files.preserve.ownership == contract::Ownership::Never);
    assert_eq!(spec.transfer.placement, api::Placement::Local);
    assert_eq!(spec.transfer.compression, api::CompressionMode::None);
    assert_eq!(job.metadata.namespace.as_deref(), Some("a"));
    let two = "--source old --dest new -n a -N b -s mnt2".split_whitespace().map(Into::into);
    let draft = pv_migrate::draft(&two.collect::<Vec<_>>()).unwrap();
    assert_eq!(
        draft.spec.destination.persistent_volume_claim.as_ref().unwrap().namespace.as_deref(),
        Some("b")
    );
    assert_eq!(draft.spec.transfer.placement, api::Placement::Auto);
    assert!(text(&[draft]).contains("# - The namespace b has to allow this by a SyncGrant"));

    let old = ["migrate", "old", "new"].map(String::from);
    assert!(text(&[pv_migrate::draft(&old).unwrap()]).contains("name: old-to-new"));
    for odd in ["--source old", "--source a --dest b --no-such-flag", "old new"] {
        let args: Vec<String> = odd.split_whitespace().map(Into::into).collect();
        let error = pv_migrate::draft(&args).unwrap_err();
        assert!(matches!(error, MigrateError::PvMigrate(_)), "{odd}: {error}");
    }
}

#[test]
fn claims_of_two_clusters_are_copied_and_synced_between_just_these() {
    let far = |flags: &str| {
        let args = format!("--source old --dest new -n a {flags}");
        let args: Vec<String> = args.split_whitespace().map(Into::into).collect();
        text(&[pv_migrate::draft(&args).unwrap()])
    };
    let copy = "kubectl volferry copy";
    for (flags, command) in [
        ("-c one -C two -d", format!(": {copy} one/a/old two/NAMESPACE/new -- --delete\n")),
        ("-C two -N b", format!(": {copy} a/old two/b/new\n")),
        (
            "-c one -C two -K /k",
            format!(": KUBECONFIG=$HOME/.kube/config:/k {copy} one/a/old two/NAMESPACE/new\n"),
        ),
        (
            "-k /k -c one -C two",
            format!(": KUBECONFIG=/k:$HOME/.kube/config {copy} one/a/old two/NAMESPACE/new\n"),
        ),
        ("-k /k -K /k -c one -C two", format!(": KUBECONFIG=/k {copy} one/a/old two/NAMESPACE/new\n")),
        // Without names, both would be in the current context of the first file, and so is a name that both have.
        (
            "-k /a -K /b -N b -d",
            format!(": KUBECONFIG=/a:/b {copy} CONTEXT/a/old CONTEXT/b/new -- --delete. CONTEXT"),
        ),
        ("-k /a -K /b -c x -C x", format!("{copy} CONTEXT/a/old CONTEXT/NAMESPACE/new. CONTEXT")),
        ("-K /b -C two", format!("{copy} CONTEXT/a/old two/NAMESPACE/new. CONTEXT")),
    ] {
        let made = far(flags);
        assert!(made.contains(&command), "{flags}: {made}");
    }
    let made = far("-c one -C two -P /x -o -s mnt2");
    assert!(judged(&made)[0].as_ref().unwrap_err().contains("publicKey"), "{made}");
    let key = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";
    let judged = judged(&made.replace(api::KEY_TO_FILL_IN, key));
    let [Ok(Admitted::SyncJob(job))] = judged.as_slice() else { panic!("{judged:?}") };
    let endpoint = job.spec.destination.endpoint.as_ref().unwrap();
    assert_eq!(endpoint.address, "STATUS.ADDRESS::new/x");
}
