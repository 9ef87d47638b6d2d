//! Backups of a claim into object storage, and how it comes back: what `docs/src/howto/bucket-backups.md` has its
//! reader apply, with an S3 server on this machine.

use std::{
    net::{IpAddr, UdpSocket},
    path::Path,
    process::Command,
};

use contract::VerifyReport;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use testkit::s3_server::{ACCESS_KEY, S3Server, SECRET_KEY};

use crate::{page, prelude::*};

const PAGE: &str = "howto/bucket-backups";

/// The image that `e2e/run` installs.
const IMAGE: &str = "volferry/volferry:e2e";

/// Returns the address of this machine on the way to the cluster's nodes, which their pods reach as well.
async fn own_address(sandbox: &Sandbox) -> IpAddr {
    let nodes = Api::<Node>::all(sandbox.client.clone()).list(&ListParams::default()).await.unwrap();
    let addresses = nodes.items[0].status.clone().unwrap().addresses.unwrap();
    let node = addresses.into_iter().find(|it| it.type_ == "InternalIP").unwrap().address;
    // Nothing is sent: the system chooses the address for what would be.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect((node.as_str(), 9)).unwrap();
    socket.local_addr().unwrap().ip()
}

/// Returns the variables of the Secret.
fn variables(store: &S3Server) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ALLOW_HTTP", "true".into()),
        ("AWS_ENDPOINT_URL", format!("http://{}", store.address())),
    ]
}

fn volferry(args: &[&str], variables: &[(&'static str, String)], key: &Path) -> String {
    let mut command = Command::new(programs::of_workspace("volferry").unwrap());
    command.args(args).envs(variables.iter().map(|(name, value)| (name, value)));
    let said = command.env("VOLFERRY_KEY_FILE", key).output().unwrap();
    assert!(said.status.success(), "{args:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

#[tokio::test]
async fn a_claim_is_backed_up_into_object_storage_and_comes_back_as_the_page_says() {
    // The restore of the page runs as root.
    let sandbox = Sandbox::with("buckets", json!({}), json!({})).await;
    let data = sandbox.volume("web-data", 0).await.unwrap();
    data.shell_as_syncer(tree::VARIED).unwrap();
    let store = S3Server::start_at(tempfile::tempdir().unwrap(), "backups", own_address(&sandbox).await);
    let (variables, key) = (variables(&store), store.dir().join("encryption.key"));
    volferry(&["snapshot", "key", key.to_str().unwrap()], &[], &key);
    let file = format!("--from-file={}", key.display());
    let literals: Vec<String> =
        variables.iter().map(|(name, value)| format!("--from-literal={name}={value}")).collect();
    let secret = ["create", "secret", "generic", "s3", &file];
    let secret: Vec<&str> = secret.into_iter().chain(literals.iter().map(String::as_str)).collect();
    sandbox.kubectl.run(&secret).unwrap();

    let mut job = page::manifest(PAGE, "SyncJob");
    // The storage of this cluster takes no snapshots, and the test does not wait until the morning.
    syncjob::merge(
        &mut job,
        json!({"spec": {"schedule": null, "trigger": "one", "source": {"pointInTime": null},
            "snapshots": {"verify": {"parts": 2}}}}),
    );
    syncjob::create(&sandbox.jobs, job).await.unwrap();
    let one = sandbox.until_is("web-backup", "Ready").await.unwrap();
    let first = syncjob::text(&one, "/snapshots/latest").to_owned();
    data.shell_as_syncer("rm -r site/img; echo new page > site/new.html").unwrap();
    let listing = data.list().unwrap();
    let two = sandbox.run_again("web-backup", "two").await.unwrap();
    let second = syncjob::text(&two, "/snapshots/latest").to_owned();
    assert!(first.len() == 16 && second.len() == 16 && first != second, "{two:#?}");
    let work: Work = syncjob::part(&two, "/lastRun/work").unwrap();
    assert!(work.files_created == 1 && work.bytes_on_wire < 1 << 20, "only the change is sent: {work:?}");

    let name = format!("{}/web-backup", sandbox.namespace);
    let checked: VerifyReport = syncjob::part(&two, "/lastRun/snapshot/verify").unwrap();
    assert!(checked.part == "2/2" && checked.damaged == 0, "{checked:?}");
    let listed =
        volferry(&["snapshot", "list", "--json", "s3://backups/web", "--job", &name], &variables, &key);
    assert!(listed.contains(&second), "{listed}");

    let restored = sandbox.volume("web-new", 1).await.unwrap();
    let restore = page::manifest(PAGE, "Job").to_string();
    let restore = restore.replace("registry.example.com/volferry:0.1.0", IMAGE);
    sandbox.kubectl.apply(&restore.replace("web-data", "web-new")).unwrap();
    let wait = ["wait", "--for=condition=Complete", "job/web-restore", "--timeout=120s"];
    let done = sandbox.kubectl.run(&wait);
    let log = sandbox.kubectl.run(&["logs", "job/web-restore", "--all-containers"]);
    done.unwrap_or_else(|error| panic!("{error:#}: {log:?}"));
    assert_same(&listing, &restored.list().unwrap());
}
