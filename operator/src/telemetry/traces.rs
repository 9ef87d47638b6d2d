//! Sends traces of runs by OTLP over HTTP to the collector that the environment names.
//!
//! A run is one trace, whose id is the UID of its SyncRun. The id of the root span is derived from that, too. So the
//! operator and both ends agree on them without communication, even if any of them restarts.

use std::time::Duration;

use contract::chain;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

pub use super::spans::{of_end, of_run};

/// The environment variables that name a collector; the signal-specific one takes precedence.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The operator's environment variables that are passed on to its syncer pods, unless their values contain a password.
/// Everybody who may read pods can read them, so `OTEL_EXPORTER_OTLP_HEADERS`, which may hold a token, is not included.
const PASSED_ON: [&str; 6] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
];

/// The timeout of one request: OTLP's own default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of runs whose spans wait to be sent. Spans of further runs are dropped, so that a collector that
/// hangs costs no memory.
const MAX_WAITING: usize = 256;

/// Sends spans, one run at a time, if the environment names a collector.
#[derive(Debug, Default)]
pub struct Traces(Option<Sending>);

#[derive(Debug)]
struct Sending {
    queue: mpsc::Sender<Vec<SpanData>>,
    task: JoinHandle<()>,
}

impl Traces {
    /// Starts the exporter for the spans of `service`. Without a collector in the environment, or with
    /// `OTEL_SDK_DISABLED=true`, nothing is ever sent. A failure is only logged, because no run depends on its trace.
    pub fn from_env(service: &'static str) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = ENDPOINTS.into_iter().find_map(variable);
        let is_disabled =
            variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some(endpoint) = endpoint.filter(|_| !is_disabled) else { return Self::default() };
        match exporter(service, &endpoint) {
            Ok(exporter) => Self::start(exporter),
            Err(error) => {
                tracing::warn!(error = chain(&error), "no traces are sent");
                Self::default()
            }
        }
    }

    fn start(exporter: SpanExporter) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Vec<SpanData>>(MAX_WAITING);
        let task = tokio::spawn(async move {
            while let Some(spans) = waiting.recv().await {
                if let Err(error) = exporter.export(spans).await {
                    tracing::warn!(error = chain(&error), "the spans of a run could not be sent");
                }
            }
        });
        Self(Some(Sending { queue, task }))
    }

    /// Sends the spans that `spans` returns later, without waiting. `spans` is not called if nothing is sent.
    pub fn send(&self, spans: impl FnOnce() -> Vec<SpanData>) {
        let Some(Sending { queue, .. }) = &self.0 else { return };
        if queue.try_send(spans()).is_err() {
            tracing::warn!("the spans of a run are dropped, because the collector is too slow");
        }
    }

    /// Waits until all spans are sent, for `patience` at most. Call it before the process ends.
    pub async fn finish(self, patience: Duration) {
        let Some(Sending { queue, task }) = self.0 else { return };
        drop(queue);
        if timeout(patience, task).await.is_err() {
            tracing::warn!("the spans of a run could not be sent in time");
        }
    }
}

/// Returns the environment variables of this process that its syncer pods get as well.
pub fn passed_on() -> Vec<(String, String)> {
    let variable = |name: &&str| Some(((*name).to_string(), std::env::var(name).ok()?));
    PASSED_ON.iter().filter_map(variable).filter(|(_, value)| !holds_password(value)).collect()
}

/// Returns whether a value may be an address with a user's name and password, as in `https://user:password@host`.
fn holds_password(value: &str) -> bool {
    value.contains('@')
}

fn exporter(service: &'static str, endpoint: &str) -> Result<SpanExporter, SetUpError> {
    let builder = SpanExporter::builder().with_http();
    let builder = if endpoint.starts_with("https:") {
        builder.with_http_client(HyperClient::new(tls()?, REQUEST_TIMEOUT, None))
    } else {
        builder.with_http_client(HyperClient::with_default_connector(REQUEST_TIMEOUT, None))
    };
    let mut exporter = builder.build()?;
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the name.
    let name = KeyValue::new("service.name", service);
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let own = Resource::builder_empty().with_attributes([name, version]).build();
    exporter.set_resource(&merged(&own, &Resource::builder().build()));
    Ok(exporter)
}

/// Merges `own` with the environment's attributes, which override it, except the SDK's default name for a service
/// without one.
fn merged(own: &Resource, environment: &Resource) -> Resource {
    let is_said = |name: &str, value: &str| name != "service.name" || !value.starts_with("unknown_service");
    let said = environment.iter().filter(|(name, value)| is_said(name.as_str(), &value.as_str()));
    let all = own.iter().chain(said).map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    Resource::builder_empty().with_attributes(all.collect::<Vec<_>>()).build()
}

/// Returns a TLS connector that trusts the system's certificates, or those in `SSL_CERT_FILE`.
fn tls()
-> Result<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, SetUpError> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
    Ok(builder.map_err(SetUpError::Roots)?.https_only().enable_http1().build())
}

#[derive(Debug, thiserror::Error)]
enum SetUpError {
    #[error("the collector's address, or another variable OTEL_EXPORTER_OTLP_*, cannot be used")]
    Exporter(#[from] ExporterBuildError),
    #[error("the certificates that the system trusts cannot be read")]
    Roots(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Bytes, extract::State, routing::post};
    use contract::{Report, Side};
    use opentelemetry_otlp::WithExportConfig as _;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;

    use super::*;

    /// Starts a collector, and returns its address and the requests that it receives.
    async fn collector() -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
        let (received, requests) = mpsc::unbounded_channel();
        let take = async |State(received): State<mpsc::UnboundedSender<_>>, body: Bytes| {
            received.send(ExportTraceServiceRequest::decode(body).unwrap()).unwrap();
        };
        let router = Router::new().route("/v1/traces", post(take)).with_state(received);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (endpoint, requests)
    }

    #[tokio::test]
    async fn spans_reach_a_collector_before_the_process_ends() {
        let (endpoint, mut requests) = collector().await;
        let client = HyperClient::with_default_connector(REQUEST_TIMEOUT, None);
        let builder = SpanExporter::builder().with_http().with_http_client(client).with_endpoint(endpoint);
        let traces = Traces::start(builder.build().unwrap());
        let times = [std::time::SystemTime::now(); 2];
        traces.send(|| of_end("u", "web-1-0", Side::Sink, &Report::default(), times));
        traces.finish(Duration::from_secs(60)).await;
        let request = requests.try_recv().unwrap();
        let span = &request.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((span.name.as_str(), span.trace_id.len()), ("sink", 16));
    }

    #[tokio::test]
    async fn a_collector_that_is_not_there_holds_nothing_up() {
        let client = HyperClient::with_default_connector(REQUEST_TIMEOUT, None);
        let builder = SpanExporter::builder().with_http().with_http_client(client);
        let traces = Traces::start(builder.with_endpoint("http://127.0.0.1:9/v1/traces").build().unwrap());
        (0..2 * MAX_WAITING).for_each(|_| traces.send(Vec::new));
        traces.finish(Duration::ZERO).await;
        Traces::default().send(|| unreachable!("nothing is sent"));
    }

    #[test]
    fn an_address_with_a_password_stays_with_the_operator() {
        let addresses = ["http://collector:4318", "https://user:secret@collector", "1000"];
        assert_eq!(addresses.map(holds_password), [false, true, false]);
    }

    #[test]
    fn a_service_has_its_own_name_unless_the_environment_says_another() {
        let name = |resource: &Resource| {
            let found = resource.iter().find(|(name, _)| name.as_str() == "service.name");
            found.map(|(_, name)| name.to_string())
        };
        let of = |value: &'static str| {
            Resource::builder_empty().with_attributes([KeyValue::new("service.name", value)]).build()
        };
        assert_eq!(name(&merged(&of("own"), &of("unknown_service:volferry"))).unwrap(), "own");
        assert_eq!(name(&merged(&of("own"), &of("said"))).unwrap(), "said");
    }
}
