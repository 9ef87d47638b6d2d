//! The HTTP server for probes and Prometheus.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{net::TcpListener, time::Instant};

use super::{bounded_listener::BoundedListener, metrics::Metrics};

/// How often a controller shows that it moves.
pub const PULSE: Duration = Duration::from_secs(10);
/// How long a controller may stand still before `/healthz` fails and the kubelet restarts it: longer than a
/// reconciliation may take, so that a slow API server is no reason.
const STILL: Duration = Duration::from_secs(300);

/// The kinds without whose watches no run goes on.
const NEEDED: [&str; 5] = ["jobs", "persistentvolumeclaims", "pods", "syncjobs", "syncruns"];

/// The state behind the probes and metrics.
#[derive(Default)]
pub struct Health {
    ready: AtomicBool,
    /// When the controller began, which it does once it leads.
    began: OnceLock<Instant>,
    /// When the controller last moved, in seconds after it began.
    moved_s: AtomicU64,
    /// The file with the token that a reader of `/metrics` has to show; `None`: everybody may read them.
    metrics_token: Option<PathBuf>,
    /// Of each watch, by its kind and namespace, the error with which the API server refuses it at present.
    watches: Mutex<BTreeMap<(String, String), Option<String>>>,
    /// The metrics that `/metrics` shows.
    pub metrics: Metrics,
}

impl Health {
    /// Has readers of `/metrics` show the token in that file.
    #[must_use]
    pub fn asking_for_token(self, file: Option<PathBuf>) -> Self {
        Self { metrics_token: file, ..self }
    }

    /// Marks the replica as ready, because the API server answers and knows SyncJobs; `/readyz` succeeds from now on. A
    /// replica that waits for the lease is ready too.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Records that the controller moves. From the first call on, `/healthz` fails if the calls stop.
    pub fn beat(&self) {
        let began = self.began.get_or_init(Instant::now);
        self.moved_s.store(began.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// Returns for how long the controller has stood still, if that is too long.
    fn stands_still(&self) -> Option<Duration> {
        let moved = Duration::from_secs(self.moved_s.load(Ordering::Relaxed));
        let still = self.began.get()?.elapsed().saturating_sub(moved);
        (still > STILL).then_some(still)
    }

    /// Returns whether a reader with these headers may see the metrics. The file is read anew, so that its token can be
    /// replaced; without the file nobody may.
    async fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(file) = &self.metrics_token else { return true };
        let shown = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let shown = shown
            .and_then(|it| it.strip_prefix("Bearer "))
            .map(|token| blake3::hash(token.trim().as_bytes()));
        match tokio::fs::read_to_string(file).await {
            // The comparison of hashes takes the same time for each token.
            Ok(token) => !token.trim().is_empty() && shown == Some(blake3::hash(token.trim().as_bytes())),
            Err(error) => {
                tracing::error!(file = %file.display(), %error, "the token of /metrics cannot be read");
                false
            }
        }
    }
    /// Notes whether a watch works, or the error with which the API server refuses it. `namespace` is empty for a watch
    /// of all namespaces.
    pub fn watched(&self, kind: &str, namespace: &str, error: Option<String>) {
        let fails = error.is_some();
        let before = self.watches.lock().insert((kind.into(), namespace.into()), error);
        if before.is_none_or(|before| before.is_some() != fails) {
            self.metrics.watch_stands(kind, namespace, fails);
        }
    }

    /// Notes that the API server has sent something on a watch.
    pub fn heard(&self, kind: &str, namespace: &str) {
        self.metrics.watch_heard(kind, namespace, Timestamp::now().as_duration().as_secs_f64());
    }

    /// Returns why this replica is not ready: a kind that it needs can be watched nowhere. A namespace that fails while
    /// others go on is told by the metrics only.
    fn fault(&self) -> Option<String> {
        let watches = self.watches.lock();
        let of = |kind: &str| watches.iter().filter(move |((it, _), _)| it == kind).collect::<Vec<_>>();
        NEEDED.iter().find_map(|kind| {
            let of_kind = of(kind);
            let first = of_kind.first()?.1.as_ref()?;
            let all_fail = of_kind.iter().all(|(_, error)| error.is_some());
            all_fail.then(|| format!("{kind} cannot be watched: {first}\n"))
        })
    }
}

/// Binds `address`, and serves `/healthz`, `/readyz` and `/metrics` until the process ends. Returns the bound address
/// once it listens; fails if it cannot bind.
pub async fn serve(address: SocketAddr, health: Arc<Health>) -> io::Result<SocketAddr> {
    let listener = listen(address).await?;
    let local = listener.local_addr()?;
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(BoundedListener::from(listener), routes).await {
            tracing::error!(%error, "the server for probes and metrics has ended");
        }
    });
    Ok(local)
}

/// Listens at an address. A system without IPv6 has `[::]` as `0.0.0.0`.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

async fn healthz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    match health.stands_still() {
        None => (StatusCode::OK, "ok\n".to_string()),
        Some(still) => {
            let said = format!("the controller has stood still for {} s\n", still.as_secs());
            (StatusCode::INTERNAL_SERVER_ERROR, said)
        }
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let silent = || "the API server has not answered yet\n".to_string();
    let is_ready = health.ready.load(Ordering::Relaxed);
    match if is_ready { health.fault() } else { Some(silent()) } {
        None => (StatusCode::OK, "ok\n".to_string()),
        Some(fault) => (StatusCode::SERVICE_UNAVAILABLE, fault),
    }
}

async fn metrics(State(health): State<Arc<Health>>, headers: HeaderMap) -> impl IntoResponse {
    if !health.admits(&headers).await {
        let asks = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, asks, "the token is missing or wrong\n").into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], health.metrics.to_text()).into_response()
}

#[cfg(test)]
mod tests {
    use contract::client_bounds::MOST_OF_CLIENT;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        get_with(address, path, "").await
    }

    async fn get_with(address: SocketAddr, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{header}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_reach_every_address_of_either_family() {
        let address = serve("[::]:0".parse().unwrap(), Arc::default()).await.unwrap();
        let mut loopbacks: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into()];
        loopbacks.extend(address.is_ipv6().then_some(IpAddr::from(Ipv6Addr::LOCALHOST)));
        for loopback in loopbacks {
            assert!(get((loopback, address.port()).into(), "/healthz").await.starts_with("HTTP/1.1 200"));
        }
    }

    #[tokio::test]
    async fn a_client_that_fills_its_part_of_the_port_keeps_no_other_out() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::default()).await.unwrap();
        let mut flood = Vec::new();
        for _ in 0..MOST_OF_CLIENT {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = other.connect(address).await.unwrap();
        other.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test]
    async fn a_replica_is_alive_at_once_and_ready_once_the_api_server_has_answered() {
        let health = Arc::new(Health::default());
        let address = serve("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        health.set_ready();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/metrics").await.contains("volferry_reconcile_duration_seconds"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_stands_still_is_restarted_and_one_that_waits_for_its_lease_is_not() {
        let health = Health::default();
        tokio::time::advance(2 * STILL).await;
        assert_eq!(health.stands_still(), None);
        health.beat();
        tokio::time::advance(STILL).await;
        assert_eq!(health.stands_still(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.stands_still(), Some(STILL + Duration::from_secs(1)));
        health.beat();
        assert_eq!(health.stands_still(), None);
    }

    #[tokio::test]
    async fn metrics_ask_for_the_token_that_the_file_has_now() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let health = Arc::new(Health { metrics_token: Some(file.clone()), ..Health::default() });
        let address = serve("127.0.0.1:0".parse().unwrap(), health).await.unwrap();
        let read = async |token: &str| {
            get_with(address, "/metrics", &format!("authorization: Bearer {token}\r\n")).await
        };
        assert!(read("").await.starts_with("HTTP/1.1 401"), "without the file nobody may");
        for token in ["first", "second"] {
            std::fs::write(&file, format!("{token}\n")).unwrap();
            assert!(read(token).await.starts_with("HTTP/1.1 200"));
            assert!(read("other").await.starts_with("HTTP/1.1 401"));
            assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 401"));
        }
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"), "probes need no token");
    }

    #[tokio::test]
    async fn a_replica_is_not_ready_while_a_kind_can_be_watched_nowhere_and_metrics_name_each_namespace() {
        let health = Arc::new(Health::default());
        health.set_ready();
        let address = serve("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap();
        let ready = async || get(address, "/readyz").await.starts_with("HTTP/1.1 200");
        let refused = || Some("forbidden".to_string());
        health.watched("volumeattachments", "", refused());
        assert!(ready().await, "runs go on without it");
        health.watched("syncruns", "a", refused());
        let said = get(address, "/readyz").await;
        assert!(said.starts_with("HTTP/1.1 503") && said.contains("syncruns cannot be watched: forbidden"));
        health.watched("syncruns", "b", None);
        assert!(ready().await, "b goes on");
        let text = get(address, "/metrics").await;
        for (namespace, fails) in [("a", 1), ("b", 0)] {
            let line =
                format!("volferry_watch_failing{{kind=\"syncruns\",namespace=\"{namespace}\"}} {fails}");
            assert!(text.contains(&line), "{line}: {text}");
        }
        health.watched("syncruns", "a", None);
        assert!(get(address, "/metrics").await.contains("namespace=\"a\"} 0"));
    }
}
