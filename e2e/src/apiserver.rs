//! A real Kubernetes control plane without a node: etcd, kube-apiserver, and those controllers of
//! kube-controller-manager that work without a node: Jobs, garbage collection, namespaces and service accounts. It has
//! no scheduler and no kubelet, so the test decides what each pod does.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::{
    kubectl::Kubectl,
    programs,
    supervised::{self, Reaper, Supervised},
};

/// A start takes a few seconds; several at once on a busy machine take longer.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// The controllers that work without a node.
const CONTROLLERS: &str = "job-controller,garbage-collector-controller,namespace-controller,\
                           serviceaccount-controller,root-ca-certificate-publisher-controller";

/// A running control plane with the objects of `config/default` installed.
#[derive(Debug)]
pub struct ApiServer {
    folder: PathBuf,
    port: u16,
    etcd_port: u16,
    /// The processes in the order of dropping, with the names of their logs.
    processes: Mutex<Vec<(String, Supervised)>>,
    /// Removes the folder when dropped.
    _reaper: Reaper,
}

/// A user of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// A user with all rights.
    Admin,
    /// The operator's account, with the rights that `config/rbac` gives it.
    Operator,
    /// The populator's account, with the rights that `config/populator` gives it.
    Populator,
}

impl User {
    /// Returns the bearer token, which is no secret on a loopback address of a test.
    fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Populator => "populator",
        }
    }
}

impl ApiServer {
    /// Returns the control plane that the tests of a program share. The first call starts it, and it ends with the
    /// program.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Result<Arc<ApiServer>>> = OnceLock::new();
        match SHARED.get_or_init(|| Self::start().map(Arc::new)) {
            Ok(server) => Arc::clone(server),
            Err(error) => panic!("no API server: {error:#}"),
        }
    }

    /// Starts a control plane on free loopback ports and installs the objects of `config/default`.
    pub fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("volferry-apiserver-").tempdir()?.keep();
        let reaper = Reaper::new(&format!("sleep 1; rm -rf '{}'", folder.display()))?;
        let [etcd_port, peer_port, port] = free_ports()?;
        let server = Self { folder, port, etcd_port, processes: Mutex::default(), _reaper: reaper };
        server.write_credentials()?;
        server.start_etcd(peer_port)?;
        server.start_apiserver()?;
        server.write_kubeconfigs()?;
        server.wait_until_ready()?;
        // First, since the garbage collector takes half a minute to notice kinds that are new.
        server.install()?;
        server.start_controller_manager()?;
        Ok(server)
    }

    /// Ends kube-apiserver at once and starts it again.
    pub fn restart(&self) -> Result<()> {
        self.processes().retain(|(name, _)| name != "kube-apiserver");
        self.start_apiserver()?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.wait_until("the API server is ready", |server| {
            server.kubectl("default")?.run(&["get", "--raw", "/readyz"]).map(drop)
        })
    }

    fn processes(&self) -> MutexGuard<'_, Vec<(String, Supervised)>> {
        self.processes.lock()
    }

    /// Returns the path of a user's kubeconfig.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.folder.join(user.token()).with_extension("kubeconfig")
    }

    /// Returns the client configuration by which a user reaches the API server.
    pub async fn config(&self, user: User) -> Result<Config> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(user))?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// Returns a client with a user's rights. It works only on the runtime that it was made on, so each test makes its
    /// own.
    pub async fn client(&self, user: User) -> Result<Client> {
        Ok(Client::try_from(self.config(user).await?)?)
    }

    /// Returns a kubectl with all rights.
    pub fn kubectl(&self, namespace: &str) -> Result<Kubectl> {
        Kubectl::new(&self.kubeconfig(User::Admin), namespace)
    }

    /// Returns the path of a process's log, whether or not it exists yet.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension("log")
    }

    fn write_credentials(&self) -> Result<()> {
        let tokens = "admin,admin,admin,system:masters\n\
                      operator,system:serviceaccount:volferry-system:volferry-operator,operator,system:serviceaccounts\n\
                      populator,system:serviceaccount:volferry-system:volferry-populator,populator,system:serviceaccounts\n";
        std::fs::write(self.folder.join("tokens"), tokens)?;
        let made = Command::new("openssl")
            .args(["genrsa", "-traditional", "-out"])
            .arg(self.folder.join("accounts.key"))
            .arg("2048")
            .output()
            .context("cannot run openssl: install it")?;
        ensure!(made.status.success(), "openssl makes no key: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    fn start_etcd(&self, peer_port: u16) -> Result<()> {
        let (clients, peers) = (url("http", self.etcd_port), url("http", peer_port));
        let mut command = Command::new(programs::of_cluster("etcd")?);
        command
            .arg(format!("--data-dir={}", self.folder.join("etcd").display()))
            .args([format!("--listen-client-urls={clients}"), format!("--advertise-client-urls={clients}")])
            .args([format!("--listen-peer-urls={peers}"), format!("--initial-advertise-peer-urls={peers}")])
            .arg(format!("--initial-cluster=default={peers}"))
            .arg("--unsafe-no-fsync");
        self.launch("etcd", &mut command)
    }

    fn start_apiserver(&self) -> Result<()> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(programs::of_cluster("kube-apiserver")?);
        command
            // It needs half of the suite's processor time, a fifth of that for garbage at Go's usual 100 %.
            .env("GOGC", "500")
            .arg(format!("--etcd-servers={}", url("http", self.etcd_port)))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", file("pki")))
            .arg(format!("--token-auth-file={}", file("tokens")))
            .arg("--authorization-mode=RBAC")
            .arg("--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("accounts.key")))
            .arg(format!("--service-account-signing-key-file={}", file("accounts.key")));
        self.launch("kube-apiserver", &mut command)
    }

    fn start_controller_manager(&self) -> Result<()> {
        let mut command = Command::new(programs::of_cluster("kube-controller-manager")?);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig(User::Admin).display()))
            .arg(format!("--controllers={CONTROLLERS}"))
            .arg(format!("--root-ca-file={}", self.certificate().display()))
            .arg(format!("--service-account-private-key-file={}", self.folder.join("accounts.key").display()))
            // With its usual 20 requests a second, the events of many tests at a time come over a minute late.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
            .args(["--leader-elect=false", "--secure-port=0"]);
        self.launch("kube-controller-manager", &mut command)
    }

    /// Returns the certificate that kube-apiserver made itself when it started, with its issuer.
    fn certificate(&self) -> PathBuf {
        self.folder.join("pki/apiserver.crt")
    }

    fn write_kubeconfigs(&self) -> Result<()> {
        self.wait_until("kube-apiserver has a certificate", |server| {
            std::fs::metadata(server.certificate()).map(drop).map_err(Into::into)
        })?;
        for user in [User::Admin, User::Operator, User::Populator] {
            std::fs::write(self.kubeconfig(user), self.kubeconfig_text(user))?;
        }
        Ok(())
    }

    fn kubeconfig_text(&self, user: User) -> String {
        let cluster = json!({"server": url("https", self.port), "certificate-authority": self.certificate()});
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": user.token()}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        })
        .to_string()
    }

    /// Installs the CRDs, and the accounts of operator and populator with their rights. Their Deployments have no pods.
    fn install(&self) -> Result<()> {
        let kubectl = self.kubectl("volferry-system")?;
        for part in ["config/default", "config/populator"] {
            let folder = programs::repository().join(part).display().to_string();
            kubectl.run(&["apply", "--server-side", "-k", &folder])?;
        }
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"])?;
        Ok(())
    }

    fn launch(&self, name: &str, command: &mut Command) -> Result<()> {
        let process = Supervised::start(command, &self.log(name))?;
        self.processes().insert(0, (name.into(), process));
        Ok(())
    }

    /// Calls `probe` until it succeeds; the API server's readiness cannot be watched.
    ///
    /// # Errors
    /// A process ends before that, or [`START_TIMEOUT`] passes; `what` finishes the sentence "waited in vain until …".
    fn wait_until(&self, what: &str, probe: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let is_alive = || {
            for (_, process) in self.processes().iter_mut() {
                if let Some(status) = process.ended()? {
                    bail!("a process ended with {status}; the logs are in {}", keep(&self.folder));
                }
            }
            Ok(())
        };
        let ready = supervised::wait_until(START_TIMEOUT, || probe(self), is_alive);
        ready.with_context(|| format!("waited in vain until {what}"))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.processes().clear();
    }
}

/// Copies the logs to a folder that outlives the test, and returns its name.
fn keep(folder: &Path) -> String {
    let kept = folder.with_extension("failed");
    drop(Command::new("cp").arg("-r").arg(folder).arg(&kept).status());
    kept.display().to_string()
}

fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}

/// Returns ports that nobody listens on, each of them once. They are below those that Linux gives to connections, from
/// 32,768 on (ip(7)), so none takes them before a server does, or while one restarts. The process's id keeps programs
/// that run at the same time apart.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    static NEXT: Mutex<Option<u16>> = Mutex::new(None);
    let mut next = NEXT.lock();
    let mut ports = [0; N];
    for port in &mut ports {
        let start =
            next.map_or_else(|| Ok(10_000 + u16::try_from(std::process::id() % 20_000)?), anyhow::Ok)?;
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        *port = (start..32_768).find(is_free).context("no port below 32,768 is free")?;
        *next = Some(*port + 1);
    }
    Ok(ports)
}
