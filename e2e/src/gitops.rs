//! The controllers of Flux and Argo CD as processes beside an API server, and a git repository that they read.

use std::{
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    apiserver::{ApiServer, User, free_ports},
    programs,
    supervised::{self, Supervised},
};

/// A process listens within seconds; on a busy machine it takes longer.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// A git repository with a branch `main`, served over HTTP.
pub struct Fleet {
    url: String,
    folder: TempDir,
    _server: Supervised,
}

impl Fleet {
    /// Serves a fresh repository, and makes a clone of it.
    ///
    /// # Errors
    ///
    /// An error names the command of git that failed, or the server's log.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let clone = folder.path().join("clone");
        git(folder.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "fleet.git"])?;
        git(&folder.path().join("fleet.git"), &["config", "http.receivepack", "true"])?;
        git(folder.path(), &["clone", "--quiet", "fleet.git", "clone"])?;
        git(&clone, &["config", "user.name", "Test"])?;
        git(&clone, &["config", "user.email", "test@example.org"])?;
        git(&clone, &["commit", "--quiet", "--allow-empty", "--message", "An empty fleet"])?;
        git(&clone, &["push", "--quiet", "origin", "HEAD:main"])?;
        let [port] = free_ports()?;
        let mut command = Command::new(programs::of_cluster("gitops")?);
        command.args(["git", &address(port)]).arg(folder.path());
        let server = listening(&mut command, &folder.path().join("git.log"), port)?;
        let url = format!("http://{}/fleet.git", address(port));
        git(&clone, &["remote", "set-url", "origin", &url])?;
        Ok(Self { url, folder, _server: server })
    }

    /// Returns the address to clone from and to push to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the folder of the clone.
    pub fn clone_folder(&self) -> PathBuf {
        self.folder.path().join("clone")
    }
}

/// Flux: its source-controller and its kustomize-controller.
pub struct Flux {
    _processes: [Supervised; 2],
    _folder: TempDir,
}

impl Flux {
    /// Installs the CRDs and starts the controllers, with all rights.
    ///
    /// # Errors
    ///
    /// An error names what the API server refused, a missing program, or the log of one that does not listen.
    pub fn start(server: &ApiServer) -> Result<Self> {
        let kubectl = server.kubectl("flux-system")?;
        kubectl.run(&["create", "namespace", "flux-system"])?;
        for controller in ["source-controller", "kustomize-controller"] {
            apply(server, "-f", &programs::manifests_of(controller)?.join("bases"), "flux-system")?;
        }
        let folder = tempfile::tempdir()?;
        let [storage, source_health, health] = free_ports()?;
        let mut source = controller(server, "source-controller", source_health)?;
        source.arg(format!("--storage-path={}", folder.path().display()));
        source.arg(format!("--storage-addr={}", address(storage)));
        source.arg(format!("--storage-adv-addr={}", address(storage)));
        let source = listening(&mut source, &server.log("source-controller"), storage)?;
        let mut kustomize = controller(server, "kustomize-controller", health)?;
        let kustomize = listening(&mut kustomize, &server.log("kustomize-controller"), health)?;
        Ok(Self { _processes: [kustomize, source], _folder: folder })
    }
}

/// Prepares a controller of Flux with what both have in common.
fn controller(server: &ApiServer, name: &str, health: u16) -> Result<Command> {
    let mut command = Command::new(programs::of_cluster(name)?);
    command
        .arg("--metrics-addr=0")
        .arg(format!("--health-addr={}", address(health)))
        .env("KUBECONFIG", server.kubeconfig(User::Admin))
        .env("RUNTIME_NAMESPACE", "flux-system");
    Ok(command)
}

/// Argo CD: its application controller, its repository server, and their cache.
pub struct ArgoCd {
    _processes: [Supervised; 3],
    _folder: TempDir,
}

impl ArgoCd {
    /// Installs the CRDs, the default configuration and project, and starts the parts, with all rights.
    ///
    /// # Errors
    ///
    /// An error names what the API server refused, a missing program, or the log of one that does not listen.
    pub fn start(server: &ApiServer) -> Result<Self> {
        let manifests = programs::manifests_of("argocd")?;
        let kubectl = server.kubectl("argocd")?;
        kubectl.run(&["create", "namespace", "argocd"])?;
        apply(server, "-k", &manifests.join("crds"), "argocd")?;
        apply(server, "-k", &manifests.join("config"), "argocd")?;
        for object in made_by_the_server() {
            kubectl.pipe(&["apply", "--server-side", "--filename=-"], &object.to_string())?;
        }
        let folder = tempfile::tempdir()?;
        let [redis, repositories, metrics, health] = free_ports()?;
        let cache = listening(
            Command::new(programs::of_cluster("gitops")?).args(["redis", &address(redis)]),
            &server.log("argocd-redis"),
            redis,
        )?;
        let mut repository_server = part(server, "argocd-repo-server", folder.path(), redis, metrics)?;
        repository_server.args(["--disable-tls", "--address=127.0.0.1", &format!("--port={repositories}")]);
        let repository_server =
            listening(&mut repository_server, &server.log("argocd-repo-server"), repositories)?;
        let mut applications = part(server, "argocd-application-controller", folder.path(), redis, health)?;
        applications.args(["--namespace=argocd", "--repo-server-plaintext"]);
        applications.arg(format!("--repo-server={}", address(repositories)));
        let applications =
            listening(&mut applications, &server.log("argocd-application-controller"), health)?;
        Ok(Self { _processes: [applications, repository_server, cache], _folder: folder })
    }
}

/// Prepares a part of Argo CD. One program has all parts, and a variable names the one to be.
fn part(server: &ApiServer, name: &str, folder: &Path, redis: u16, metrics: u16) -> Result<Command> {
    let program = programs::of_cluster("argocd")?;
    let mut path = vec![program.parent().context("a program lies in a folder")?.to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(program);
    command
        .arg(format!("--redis={}", address(redis)))
        .arg(format!("--metrics-port={metrics}"))
        .env("ARGOCD_BINARY_NAME", name)
        // The cluster of an Application is that of the kubeconfig, as if the process ran in it.
        .env("ARGOCD_FAKE_IN_CLUSTER", "true")
        .env("KUBECONFIG", server.kubeconfig(User::Admin))
        .env("ARGOCD_GPG_ENABLED", "false")
        .env("ARGOCD_TLS_DATA_PATH", folder)
        .env("ARGOCD_SSH_DATA_PATH", folder)
        .env("ARGOCD_PLUGINSOCKFILEPATH", folder)
        .env("TMPDIR", folder)
        .env("HOME", folder)
        .env("PATH", std::env::join_paths(path)?);
    Ok(command)
}

/// Returns the objects that the server of Argo CD, which no test needs, makes at its first start. Without the key, the
/// other parts do not read changes of `argocd-cm`.
fn made_by_the_server() -> [Value; 2] {
    let project = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "default"},
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}],
            "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
        },
    });
    let key = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "argocd-secret"},
        "stringData": {"server.secretkey": "of-the-test"},
    });
    [project, key]
}

/// Applies manifests, and waits for the CRDs among them.
fn apply(server: &ApiServer, how: &str, manifests: &Path, namespace: &str) -> Result<()> {
    let kubectl = server.kubectl(namespace)?;
    kubectl.run(&["apply", "--server-side", how, &manifests.display().to_string()])?;
    // A CRD that has no conditions yet fails a wait for one.
    for what in ["jsonpath={.status.acceptedNames.plural}", "condition=Established"] {
        kubectl.run(&["wait", &format!("--for={what}"), "--timeout=30s", "crd", "--all"])?;
    }
    Ok(())
}

/// Starts a process and returns when it listens at a port.
fn listening(command: &mut Command, log: &Path, port: u16) -> Result<Supervised> {
    let mut process = Supervised::start(command, log)?;
    let connect = || Ok(TcpStream::connect(address(port)).map(drop)?);
    let is_alive = || {
        let ended = process.ended()?;
        ensure!(ended.is_none(), "{command:?} ended: {ended:?}");
        Ok(())
    };
    let ready = supervised::wait_until(START_TIMEOUT, connect, is_alive);
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    ready.with_context(|| format!("{command:?} does not listen\n{}", text()))?;
    Ok(process)
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn git(folder: &Path, args: &[&str]) -> Result<()> {
    let done = Command::new("git").args(args).current_dir(folder).output().context("cannot run git")?;
    ensure!(
        done.status.success(),
        "git {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}
