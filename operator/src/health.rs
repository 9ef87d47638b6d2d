//! The HTTP server for probes and Prometheus.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// The state behind the probes and metrics.
#[derive(Default)]
pub struct Health {
    ready: AtomicBool,
    /// The metrics that `/metrics` shows.
    pub metrics: Metrics,
}

impl Health {
    /// Marks the replica as ready, because the API server answers and knows SyncJobs; `/readyz` succeeds from now on. A
    /// replica that waits for the lease is ready too.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }
}

/// Binds `address`, and serves `/healthz`, `/readyz` and `/metrics` until the process ends. Returns the bound address
/// once it listens; fails if it cannot bind.
pub async fn serve(address: SocketAddr, health: Arc<Health>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let local = listener.local_addr()?;
    let routes = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "the server for probes and metrics has ended");
        }
    });
    Ok(local)
}

async fn readyz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    match health.ready.load(Ordering::Relaxed) {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet\n"),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], health.metrics.to_text())
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
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
}
