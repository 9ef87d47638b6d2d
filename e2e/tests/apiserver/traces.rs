//! Traces: what the operator and the agents of both ends send to a collector makes one trace a run.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use contract::{Event, Timings};
use http_body_util::BodyExt as _;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceRequest, trace::v1::Span};
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::prelude::*;

/// A collector, and the spans that it has received.
struct Collector {
    endpoint: String,
    spans: mpsc::UnboundedReceiver<Span>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (received, spans) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, received.clone()));
            }
        });
        Self { endpoint, spans }
    }

    async fn next(&mut self) -> Span {
        tokio::time::timeout(PATIENCE, self.spans.recv()).await.expect("a span comes").unwrap()
    }
}

/// Answers the requests of one connection.
async fn serve(connection: TcpStream, received: mpsc::UnboundedSender<Span>) {
    let take = service_fn(async |request: Request<Incoming>| {
        let body = request.into_body().collect().await?.to_bytes();
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).for_each(|span| received.send(span).unwrap());
        Ok::<_, hyper::Error>(Response::new(String::new()))
    });
    // A client that goes away has sent what it wanted to.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), take).await;
}

/// Runs the agent as the pod would, with a program in the place of the syncer that only reports.
fn run_agent(pod: &Pod, report: &Report) {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let folder = tempfile::tempdir().unwrap();
    let finished = serde_json::to_string(&Event::Finished(Box::new(report.clone()))).unwrap();
    let own = container.args.as_ref().unwrap().iter().take_while(|arg| *arg != "--");
    let variables = container.env.iter().flatten().filter_map(|it| Some((&it.name, it.value.as_ref()?)));
    let status = Command::new(programs::of_workspace("volferry-operator").unwrap())
        .args(own)
        .arg(format!("--termination-log={}", folder.path().join("log").display()))
        .args(["--", "/bin/sh", "-c", &format!("echo '{finished}'")])
        .env_clear()
        .envs(variables)
        .env("POD_IP", "127.0.0.1")
        .stderr(Stdio::inherit())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_run_is_one_trace_of_the_operator_and_both_ends() {
    let mut collector = Collector::start().await;
    let stage = Stage::new("traces").await.unwrap();
    let endpoint = collector.endpoint.clone();
    let _controller = stage.controller_with_env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let timings = Timings { scan: 20, transfer: 30, ..Timings::default() };
    let report = Report { timings, start_time: Timestamp::now().to_string(), ..good_report("web-1") };
    [&source, &sink].into_iter().for_each(|pod| run_agent(pod, &report));
    stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
    let run = stage.run("web-1", "it is done", |run| syncjob::text(run, "/stage") == "Done").await.unwrap();

    let mut spans = Vec::new();
    while !spans.iter().any(|span: &Span| span.name == "running") {
        spans.push(collector.next().await);
    }
    let trace: Vec<u8> = run.metadata.uid.unwrap().bytes().filter(u8::is_ascii_hexdigit).collect();
    let trace = String::from_utf8(trace).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == trace), "{spans:#?}");
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
    assert_eq!(ids.len(), spans.len());
    let root = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert_eq!(root.name, "run web-1");
    for side in [Side::Source, Side::Sink] {
        let end = spans.iter().find(|span| span.name == side.to_string()).unwrap();
        assert_eq!(end.parent_span_id, root.span_id);
        let phases = spans.iter().filter(|span| span.parent_span_id == end.span_id);
        assert_eq!(phases.map(|span| span.name.as_str()).collect::<Vec<_>>(), ["scan", "transfer"]);
    }
}
