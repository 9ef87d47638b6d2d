//! `kubectl volferry push`, `pull` and `copy` with real pods: what arrives is what was sent, and nothing stays.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use e2e::tree::{Listing, VARIED};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{api::ListParams, config::Kubeconfig};

use crate::prelude::*;

const LABEL: &str = "volferry.dev/one-off=data";
/// The image that `e2e/run` loads into the nodes.
pub(super) const IMAGE: &str = "--image=volferry/volferry:e2e";

/// A machine with a kubeconfig, which knows the cluster under two names.
pub(super) struct Laptop {
    dir: tempfile::TempDir,
    pub(super) context: String,
}

impl Laptop {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(std::env::var_os("KUBECONFIG").unwrap(), dir.path().join("kubeconfig")).unwrap();
        let laptop = Self { dir, context: String::new() };
        let context = laptop.kubectl(&["config", "current-context"]);
        let of_context = |field: &str| {
            let path = format!("jsonpath={{.contexts[?(@.name==\"{context}\")].context.{field}}}");
            laptop.kubectl(&["config", "view", "-o", &path])
        };
        let (cluster, user) = (of_context("cluster"), of_context("user"));
        let far = ["config", "set-context", "the/far", "--cluster", &cluster, "--user", &user];
        laptop.kubectl(&far);
        Self { context, ..laptop }
    }

    /// Returns a machine that knows the second cluster by that name.
    pub(super) fn of_two_clusters() -> Self {
        let laptop = Self::new();
        let near = Kubeconfig::read_from(laptop.folder("kubeconfig")).unwrap();
        let mut far = Kubeconfig::read_from(std::env::var_os("VOLFERRY_FAR_KUBECONFIG").unwrap()).unwrap();
        far.contexts[0].name = "the/far".into();
        // Of two contexts of one name, the first counts.
        let both = serde_json::to_string(&Kubeconfig {
            current_context: near.current_context.clone(),
            ..far.merge(near).unwrap()
        });
        fs::write(laptop.folder("kubeconfig"), both.unwrap()).unwrap();
        laptop
    }

    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn kubectl(&self, args: &[&str]) -> String {
        let mut kubectl = Command::new(programs::of_cluster("kubectl").unwrap());
        let said = kubectl.args(args).env("KUBECONFIG", self.folder("kubeconfig")).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_string()
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(programs::of_workspace("kubectl-volferry").unwrap());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("KUBECONFIG", self.folder("kubeconfig"))
            .env("VOLFERRY_CONFIG", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the plugin with success, and returns what it said.
    #[track_caller]
    pub(super) fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        errors(&output)
    }
}

pub(super) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(super) fn shell(folder: &Path, script: &str) -> Vec<u8> {
    fs::create_dir_all(folder).unwrap();
    let done = Command::new("bash").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

pub(super) fn list(folder: &Path) -> Listing {
    let entries = shell(folder, Listing::FIND);
    Listing::parse(&entries, &shell(folder, Listing::HASH)).unwrap().without_owners()
}

async fn assert_nothing_stays(sandbox: &Sandbox) {
    wait::until_none(&sandbox.api::<Job>(), LABEL, PATIENCE).await.unwrap();
    wait::until_none(&sandbox.api::<Pod>(), LABEL, PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_tree_goes_from_a_laptop_into_a_claim_and_back_and_to_another_cluster() {
    let sandbox = Sandbox::new("push").await;
    let other = sandbox.beside("push-to").await;
    let data = sandbox.volume("data", 1).await.unwrap();
    let laptop = Laptop::new();
    let here = laptop.folder("here");
    shell(&here, VARIED);

    // The claim is in use, so the pod has to go to the node of its user.
    sandbox.application("app", "data").await.unwrap();
    let place = ["-n", &sandbox.namespace, IMAGE];
    let said = laptop.run(&[&["push", "here", "data"][..], &place].concat());
    assert!(said.contains("created") && said.contains("link: quic/ssh"), "{said}");
    assert_same(&list(&here), &data.list().unwrap().without_owners());
    assert_nothing_stays(&sandbox).await;

    shell(&here, "rm -r site/img; echo more > more");
    let said = laptop.run(&[&["push", "here", "data"][..], &place, &["--", "--delete", "-v"]].concat());
    assert!(said.contains("deleted"), "{said}");
    assert_same(&list(&here), &data.list().unwrap().without_owners());

    laptop.run(&[&["pull", "data", "back"][..], &place].concat());
    assert_same(&list(&here), &list(&laptop.folder("back")));

    let copy = other.volume("data", 0).await.unwrap();
    let from = format!("{}/{}/data", laptop.context, sandbox.namespace);
    let to = format!("the/far/{}/data", other.namespace);
    let said = laptop.run(&["copy", &from, &to, IMAGE, "--", "--delete"]);
    assert!(said.contains("created"), "{said}");
    assert_same(&data.list().unwrap(), &copy.list().unwrap());
    let refused = laptop.command(&["copy", &from, &from, IMAGE]).output().unwrap();
    assert!(errors(&refused).contains("both are the claim"), "{}", errors(&refused));
    for sandbox in [&sandbox, &other] {
        assert_nothing_stays(sandbox).await;
    }
}

#[tokio::test]
async fn a_push_that_is_stopped_or_refused_leaves_no_pod_and_the_next_one_goes_on() {
    let sandbox = Sandbox::new("push-stop").await;
    let data = sandbox.volume("data", 0).await.unwrap();
    let laptop = Laptop::new();
    let here = laptop.folder("here");
    shell(&here, "head -c 30000000 /dev/urandom > large; echo small > small");
    let place = ["-n", &sandbox.namespace, IMAGE];
    let push = [&["push", "here", "data"][..], &place, &["--"]].concat();
    let slow = laptop.command(&[&push[..], &["--bandwidth-limit=1M", "--progress=json"]].concat());
    let running = start(slow);
    until_staged(&data).await;

    // Another run meets it.
    let busy = laptop.command(&push).output().unwrap();
    assert_eq!(busy.status.code(), Some(1), "{busy:?}");
    assert!(errors(&busy).contains("another run"), "{}", errors(&busy));

    let stop = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(stop.success());
    let stopped = running.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    assert!(errors(&stopped).contains("canceled"), "{}", errors(&stopped));
    assert_nothing_stays(&sandbox).await;

    laptop.run(&push);
    assert_same(&list(&here), &data.list().unwrap().without_owners());
    assert_nothing_stays(&sandbox).await;
}

#[tokio::test]
async fn a_push_whose_machine_dies_is_run_again_and_goes_on() {
    let sandbox = Sandbox::new("push-killed").await;
    let data = sandbox.volume("data", 1).await.unwrap();
    let laptop = Laptop::new();
    let here = laptop.folder("here");
    shell(&here, "head -c 30000000 /dev/urandom > large; echo small > small");
    let push = ["push", "here", "data", "-n", &sandbox.namespace, IMAGE, "--"];
    let mut slow = laptop.command(&[&push[..], &["--bandwidth-limit=1M"]].concat());
    slow.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = start(slow);
    until_staged(&data).await;
    let all = with_descendants(running.id());
    assert!(all.len() > 2, "the plugin, the engine and what joins it to the pod: {all:?}");
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    Command::new("kill").arg("-KILL").args(all).status().unwrap();
    running.wait().unwrap();

    // The process in its pod ends once it misses its peer.
    let report = laptop.folder("report.json");
    let again = [&push[..], &["--report", report.to_str().unwrap()]].concat();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = laptop.command(&again).output().unwrap();
        if output.status.success() {
            break;
        }
        assert!(errors(&output).contains("another run") && Instant::now() < deadline, "{}", errors(&output));
    }
    assert_same(&list(&here), &data.list().unwrap().without_owners());
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert!(report["work"]["bytesReused"].as_u64() > Some(0), "{report:#}");
    // The pod of the machine that died has nobody who deletes it, and a time after which it ends.
    let jobs = sandbox.api::<Job>().list(&ListParams::default().labels(LABEL)).await.unwrap().items;
    let [left] = <[Job; 1]>::try_from(jobs).unwrap();
    let spec = left.spec.unwrap();
    assert!(spec.active_deadline_seconds.is_some() && spec.ttl_seconds_after_finished.is_some());
}

/// Returns a process and those that it has started.
fn with_descendants(process: u32) -> Vec<u32> {
    let stat = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path().join("stat")).ok();
    // The number, the name in parentheses, the state and the parent.
    let parent_of = |stat: String| {
        let (head, tail) = stat.rsplit_once(')')?;
        let process: u32 = head.split_once(' ')?.0.parse().ok()?;
        Some((process, tail.split_whitespace().nth(1)?.parse::<u32>().ok()?))
    };
    let known: Vec<_> = fs::read_dir("/proc").unwrap().filter_map(stat).filter_map(parent_of).collect();
    let mut found = vec![process];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(known.iter().filter(|(_, of)| *of == parent).map(|(process, _)| process));
        at += 1;
    }
    found
}

fn start(mut command: Command) -> std::process::Child {
    command.spawn().unwrap()
}

/// Waits until a part of a file has arrived.
async fn until_staged(volume: &e2e::volume::Volume) {
    let deadline = Instant::now() + PATIENCE;
    while volume.staged_files().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "no file arrives");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_pod_of_a_push_runs_as_root_only_where_the_namespace_says_so() {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let root = Sandbox::with("push-root", labels, json!({"volferry.dev/privileged-syncers": "true"})).await;
    let data = root.volume("data", 0).await.unwrap();
    let laptop = Laptop::new();
    let here = laptop.folder("here");
    shell(&here, "echo mine > mine; chown 1234:5678 mine; chmod 600 mine");
    laptop.run(&["push", "here", "data", "-n", &root.namespace, IMAGE]);
    let owner = |volume: &e2e::volume::Volume| {
        String::from_utf8(volume.shell("stat -c %u:%g mine").unwrap()).unwrap().trim().to_string()
    };
    assert_eq!(owner(&data), "1234:5678");

    let usual = root.beside("push-user").await;
    let data = usual.volume("data", 0).await.unwrap();
    let refused = laptop.command(&["push", "here", "data", "-n", &usual.namespace, IMAGE, "--user=0"]);
    let refused = { refused }.output().unwrap();
    assert!(errors(&refused).contains("does not let syncers run as root"), "{}", errors(&refused));
    laptop.run(&["push", "here", "data", "-n", &usual.namespace, IMAGE, "--user=7777:8888"]);
    assert_eq!(owner(&data), "7777:8888");
    let jobs: Api<Job> = usual.api();
    assert!(jobs.list(&ListParams::default()).await.unwrap().items.is_empty());
}
