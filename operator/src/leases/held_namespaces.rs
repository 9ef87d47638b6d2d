//! Holds namespaces: of several releases of the operator that watch a namespace, the one that holds its Lease works
//! there, and the others leave it alone and name that one.
//!
//! The holder is a release and no replica, so a change of leaders changes nothing. As with replicas, clocks are not
//! compared, and a release gives a namespace up before another may take it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use contract::chain;
use futures::{StreamExt as _, stream};
use kube::Client;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::election::{Attempt, Election, LastSeen};
use crate::{human, names, telemetry::probes::Health};

/// How long a Lease is valid after its last renewal, and so how soon another release takes a namespace over.
const VALID: Duration = Duration::from_secs(180);
/// How long this release goes on without a renewal: shorter, by more than a reconciliation takes.
const GIVE_UP: Duration = Duration::from_secs(100);
/// The interval between renewals. Each is two requests for each namespace that has SyncJobs.
pub(crate) const RENEWAL: Duration = Duration::from_secs(40);
/// How long it is believed that another release holds a namespace.
const BELIEVED: Duration = Duration::from_secs(10);
/// The bound for the name of another release, in bytes.
const MAX_HOLDER_BYTES: usize = 256;
/// How long the metrics of a namespace stay after its last SyncJob: so Prometheus has seen how its last runs ended.
const METRICS_STAY: Duration = Duration::from_secs(3600);
/// How many Leases are renewed at a time.
const AT_A_TIME: usize = 8;

/// The Lease of a namespace cannot be had, so nobody knows whose it is.
#[derive(Debug, Error)]
#[error("cannot take the Lease {} in namespace {namespace}", names::NAMESPACE_LEASE)]
pub(crate) struct NotTaken {
    namespace: String,
    source: kube::Error,
}

/// The namespaces that this release holds, and those that others hold.
pub(crate) struct Namespaces {
    client: Client,
    health: Arc<Health>,
    /// The name of this release: the namespace and name of the Lease of its replicas.
    release: String,
    known: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Hold>>>>,
    /// When the namespaces that have metrics and no SyncJobs any more were let go.
    left: Mutex<HashMap<String, Instant>>,
}

/// What is known of the Lease of one namespace.
#[derive(Default)]
struct Hold {
    /// The time of the last renewal, if this release holds the namespace.
    renewed: Option<Instant>,
    /// The release that held the namespace, and when that was seen.
    other: Option<(String, Instant)>,
    seen: Option<LastSeen>,
}

impl Namespaces {
    pub(crate) fn new(client: Client, health: Arc<Health>, release: String) -> Self {
        Self { client, health, release, known: Mutex::default(), left: Mutex::default() }
    }

    /// Returns whether this release holds the namespace, which it takes if it is free or was given up.
    ///
    /// # Errors
    /// If the API server does not say. The caller does nothing in the namespace.
    pub(crate) async fn holds(&self, namespace: &str) -> Result<bool, NotTaken> {
        let hold = self.known.lock().entry(namespace.into()).or_default().clone();
        let mut hold = hold.lock().await;
        if hold.renewed.is_some_and(|at| at.elapsed() < GIVE_UP) {
            return Ok(true);
        }
        if hold.other.as_ref().is_some_and(|(_, at)| at.elapsed() < BELIEVED) {
            return Ok(false);
        }
        self.ask(namespace, &mut hold).await?;
        Ok(hold.renewed.is_some())
    }

    /// Renews the Leases of those namespaces with SyncJobs that this release holds, and forgets all others.
    pub(crate) async fn renew(&self, with_jobs: &BTreeSet<String>) {
        let all = std::mem::take(&mut *self.known.lock());
        let (kept, dropped): (HashMap<_, _>, HashMap<_, _>) =
            all.into_iter().partition(|(namespace, _)| with_jobs.contains(namespace));
        self.known.lock().extend(kept.clone());
        self.forget_metrics(with_jobs, dropped.keys());
        for (namespace, hold) in dropped {
            self.no_other(&namespace, &mut *hold.lock().await);
        }
        let renewed = stream::iter(kept).for_each_concurrent(AT_A_TIME, |(namespace, hold)| async move {
            let mut hold = hold.lock().await;
            if hold.renewed.is_none() {
                return;
            }
            let renewal = timeout(RENEWAL, self.ask(&namespace, &mut hold)).await;
            if let Ok(Err(error)) = renewal {
                tracing::warn!(error = chain(&error), "the Lease of a namespace is not renewed yet");
            }
        });
        renewed.await;
    }

    /// Removes the metrics of namespaces that have had no SyncJobs for long.
    fn forget_metrics<'a>(&self, with_jobs: &BTreeSet<String>, dropped: impl Iterator<Item = &'a String>) {
        let mut left = self.left.lock();
        left.retain(|namespace, _| !with_jobs.contains(namespace));
        for namespace in dropped {
            left.entry(namespace.clone()).or_insert_with(Instant::now);
        }
        left.retain(|namespace, since| {
            let stays = since.elapsed() < METRICS_STAY;
            if !stays {
                self.health.metrics.forget_namespace(namespace);
            }
            stays
        });
    }

    /// Takes or renews the Lease of a namespace.
    async fn ask(&self, namespace: &str, hold: &mut Hold) -> Result<(), NotTaken> {
        let election = Election::new(self.client.clone(), namespace, names::NAMESPACE_LEASE, &self.release);
        let asked = Instant::now();
        let mut attempt = Ok(Attempt::Raced);
        while let Ok(Attempt::Raced) = attempt {
            attempt = election.clone().valid_for(VALID).attempt(&mut hold.seen).await;
        }
        match attempt {
            Ok(Attempt::HeldBy(other)) => self.leave(namespace, hold, &other),
            Ok(Attempt::Held(_) | Attempt::Raced) => self.acquire(namespace, hold, asked),
            // No other release can take it, either.
            Err(error) if is_going(&error) => self.acquire(namespace, hold, asked),
            Err(source) => {
                hold.renewed = hold.renewed.filter(|at| at.elapsed() < GIVE_UP);
                return Err(NotTaken { namespace: namespace.into(), source });
            }
        }
        Ok(())
    }

    fn acquire(&self, namespace: &str, hold: &mut Hold, asked: Instant) {
        self.no_other(namespace, hold);
        hold.renewed = Some(asked);
    }

    fn leave(&self, namespace: &str, hold: &mut Hold, other: &str) {
        // Whoever may write Leases there writes it, and it becomes a label of a metric.
        let other = human::clipped(other, MAX_HOLDER_BYTES);
        if hold.other.as_ref().is_none_or(|(before, _)| *before != other) {
            let said = "another release of the operator holds the namespace, so nothing is done there";
            tracing::warn!(namespace, holder = other, "{said}");
            self.no_other(namespace, hold);
        }
        self.health.metrics.held_by_other(namespace, &other, true);
        hold.renewed = None;
        hold.other = Some((other, Instant::now()));
    }

    fn no_other(&self, namespace: &str, hold: &mut Hold) {
        if let Some((before, _)) = hold.other.take() {
            tracing::info!(namespace, holder = before, "that release holds the namespace no more");
            self.health.metrics.held_by_other(namespace, &before, false);
        }
    }
}

/// Returns whether an error says that the namespace is being deleted, or gone.
fn is_going(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found() || causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, Request, Response};
    use contract::RunResult;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::advance;

    use super::*;
    use crate::{api::Run, telemetry::metrics::JobLabels};

    /// The one Lease of an API server; `None` for the answer 503.
    type Server = Arc<Mutex<Option<Value>>>;

    fn release(name: &str, server: &Server) -> Namespaces {
        let server = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let sent = body.collect_bytes().await.unwrap();
                let mut lease = server.lock();
                let (code, answer) = match (&mut *lease, parts.method) {
                    (None, _) => (503, failure(503, "ServiceUnavailable")),
                    (Some(Value::Null), Method::GET) => (404, failure(404, "NotFound")),
                    (Some(lease), Method::GET) => (200, lease.clone()),
                    (Some(lease), _) => {
                        *lease = serde_json::from_slice(&sent).unwrap();
                        (200, lease.clone())
                    }
                };
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Namespaces::new(Client::new(service, "default"), Arc::default(), name.into())
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_releases_holds_a_namespace_and_the_other_names_it_until_it_is_stale() {
        let server = Arc::new(Mutex::new(Some(Value::Null)));
        let (first, second) = (release("one/a", &server), release("two/b", &server));
        assert!(first.holds("prod").await.unwrap());
        assert!(!second.holds("prod").await.unwrap());
        let said = second.health.metrics.to_text();
        let line = "volferry_namespace_held_by_other{namespace=\"prod\",holder=\"one/a\"} 1";
        assert!(said.contains(line), "{said}");
        for _ in 0..6 {
            advance(RENEWAL).await;
            first.renew(&["prod".to_string()].into()).await;
            assert!(first.holds("prod").await.unwrap());
            assert!(!second.holds("prod").await.unwrap(), "it is renewed");
        }
        advance(VALID).await;
        assert!(!second.holds("prod").await.unwrap(), "it is valid for that long since it was seen");
        advance(BELIEVED).await;
        assert!(second.holds("prod").await.unwrap(), "nobody renews it any more");
        assert!(!second.health.metrics.to_text().contains("one/a"));
        assert!(!first.holds("prod").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_gives_a_namespace_up_before_another_may_take_it() {
        let server = Arc::new(Mutex::new(Some(Value::Null)));
        let first = release("one/a", &server);
        assert!(first.holds("prod").await.unwrap());
        let lease = server.lock().take();
        advance(GIVE_UP - Duration::from_secs(1)).await;
        first.renew(&["prod".to_string()].into()).await;
        assert!(first.holds("prod").await.unwrap(), "an API server that is away for a moment stops nobody");
        advance(Duration::from_secs(1)).await;
        assert!(first.holds("prod").await.is_err());
        assert!(GIVE_UP + crate::controller::reconcile_timeout::TIMEOUT < VALID);
        *server.lock() = lease;
        assert!(first.holds("prod").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_syncjobs_is_let_go() {
        let server = Arc::new(Mutex::new(Some(Value::Null)));
        let (first, second) = (release("one/a", &server), release("two/b", &server));
        assert!(first.holds("prod").await.unwrap() && !second.holds("prod").await.unwrap());
        first.renew(&BTreeSet::new()).await;
        advance(VALID + BELIEVED).await;
        assert!(second.holds("prod").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_of_a_namespace_stay_for_a_while_after_its_last_syncjob() {
        let first = release("one/a", &Arc::new(Mutex::new(Some(Value::Null))));
        let metrics = &first.health.metrics;
        for namespace in ["gone", "prod"] {
            assert!(first.holds(namespace).await.unwrap());
            let job = JobLabels { namespace: namespace.into(), name: "web".into() };
            let run = Run { result: RunResult::Failed, ..Run::default() };
            metrics.run_ended(&job, &run);
            metrics.retried(&job);
            metrics.claim_filled(namespace);
        }
        let with_jobs = ["prod".to_string()].into();
        first.renew(&with_jobs).await;
        advance(METRICS_STAY - Duration::from_secs(1)).await;
        first.renew(&with_jobs).await;
        assert!(metrics.to_text().contains("volferry_runs_total{namespace=\"gone\""));
        advance(Duration::from_secs(1)).await;
        first.renew(&with_jobs).await;
        let text = metrics.to_text();
        assert!(
            !text.contains("\"gone\"") && text.contains("volferry_runs_total{namespace=\"prod\""),
            "{text}"
        );
    }
}
