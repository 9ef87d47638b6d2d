//! A proxy to the API server that breaks off at a chosen write.
//!
//! A killed program ends between two of its writes, or after a write whose answer it has not received. A program that
//! uses a [`CutLine`] can be killed at each of these points. A test goes through some of them, others each time, or
//! through all.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    convert::Infallible,
    hash::{BuildHasher as _, Hasher as _},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::client::{Body, Client};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

/// The point at which the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// At no point.
    Never,
    /// After this number of writes: the next write does not reach the API server.
    Before(usize),
    /// At the write after this number of writes: it reaches the API server, and its answer is lost.
    After(usize),
    /// After this number of requests of any kind: the next request does not reach the API server.
    Request(usize),
}

/// The number of writes at which a test is cut, unless the environment variable `VOLFERRY_EVERY_CUT` is set: each such
/// life takes seconds of an API server.
const SAMPLE: usize = 5;

/// Returns the writes before which the lives of a test are cut: one of each fifth of them, others in each call, or all
/// where that was asked for.
pub fn cut_writes(writes: usize) -> Vec<usize> {
    if std::env::var_os("VOLFERRY_EVERY_CUT").is_some() || writes <= SAMPLE {
        return (0..writes).collect();
    }
    let parts = (0..SAMPLE).map(|part| writes * part / SAMPLE..writes * (part + 1) / SAMPLE);
    parts.map(|part| part.start + random_below(part.len())).collect()
}

/// Returns cuts before some of the writes.
pub fn cuts_before(writes: usize) -> impl Iterator<Item = Cut> {
    cut_writes(writes).into_iter().map(Cut::Before)
}

/// Has a life for each cut, of which `at_once` go on at a time.
///
/// # Errors
/// A life fails; the error names its cut.
pub async fn each<T, L: Future<Output = Result<T>>>(
    cuts: impl Iterator<Item = Cut>,
    at_once: usize,
    life: impl Fn(Cut) -> L,
) -> Result<()> {
    let lives = cuts.map(|cut| life(cut).map(move |lived| lived.with_context(|| format!("{cut:?}"))));
    stream::iter(lives).buffer_unordered(at_once).map_ok(drop).try_collect().await
}

/// Returns a number from 0 up to the limit.
pub fn random_below(limit: usize) -> usize {
    usize::try_from(RandomState::new().build_hasher().finish() % limit.max(1) as u64).unwrap_or_default()
}

/// A loopback address that passes requests on with the rights of one user, until the cut.
#[derive(Debug)]
pub struct CutLine {
    address: SocketAddr,
    state: Arc<State>,
    /// The serving tasks, which end when this is dropped.
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    cut: Cut,
    requests: AtomicUsize,
    writes: AtomicUsize,
    tally: Mutex<Tally>,
    reached: Notify,
}

/// The number of requests of each kind, by verb and resource, such as `PATCH syncjobs/status` and `LIST pods`.
pub type Tally = BTreeMap<String, usize>;

impl CutLine {
    /// Starts to pass requests on by `client`, with its rights.
    pub async fn new(client: Client, cut: Cut) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a loopback port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            cut,
            requests: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            tally: Mutex::default(),
            reached: Notify::new(),
        });
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, client, state.clone()));
        Ok(Self { address, state, _serving: serving })
    }

    /// Returns the URL that programs use in place of the API server's.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the cut has been reached. From then on no request is answered.
    pub async fn reached(&self) {
        self.state.reached.notified().await;
    }

    /// Returns the number of requests that have begun.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Returns the number of requests of each kind that have begun.
    pub fn tally(&self) -> Tally {
        self.state.tally.lock().clone()
    }

    /// Returns the number of writes that have begun.
    pub fn writes(&self) -> usize {
        self.state.writes.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, client: Client, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, client.clone(), state.clone()));
    }
}

async fn serve(stream: TcpStream, client: Client, state: Arc<State>) {
    let service = service_fn(|request| pass(request, client.clone(), state.clone()));
    // An error means that the peer has gone away, as a killed program does.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn pass(
    request: Request<Incoming>,
    client: Client,
    state: Arc<State>,
) -> Result<Response<Body>, Infallible> {
    let number = state.requests.fetch_add(1, Ordering::SeqCst);
    *state.tally.lock().entry(kind_of(&request)).or_default() += 1;
    let write = is_write(&request).then(|| state.writes.fetch_add(1, Ordering::SeqCst));
    let (before, after) = match (state.cut, write) {
        (Cut::Before(limit), Some(number)) => (number >= limit, false),
        (Cut::After(limit), Some(number)) => (number > limit, number == limit),
        (Cut::Request(limit), _) => (number >= limit, false),
        _ => (false, false),
    };
    if before {
        state.broken().await;
    }
    let answer = forward(request, &client).await;
    if after {
        state.broken().await;
    }
    Ok(answer.unwrap_or_else(|error| refusal(&error)))
}

impl State {
    async fn broken(&self) {
        self.reached.notify_one();
        std::future::pending::<()>().await;
    }
}

/// Returns whether a request is a write to count. Events and leases are written at any time, and a question about
/// rights changes nothing, so they are left out.
fn is_write(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    let left_out = ["events.k8s.io", "/events", "coordination.k8s.io", "/selfsubjectaccessreviews"];
    ![Method::GET, Method::HEAD].contains(request.method()) && !left_out.iter().any(|it| path.contains(it))
}

/// Returns the request's key in a tally.
fn kind_of(request: &Request<Incoming>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let is_version =
        |part: &str| part.starts_with('v') && part[1..].starts_with(|it: char| it.is_ascii_digit());
    let mut parts = request.uri().path().split('/').skip_while(|part| !is_version(part)).skip(1);
    let mut resource = parts.next().unwrap_or_default();
    if resource == "namespaces" {
        // The namespace itself, or an object in it.
        parts.next();
        resource = parts.next().unwrap_or(resource);
    }
    let (name, part) = (parts.next(), parts.next());
    let verb = match request.method() {
        &Method::GET if query.contains("watch=true") => "WATCH",
        &Method::GET if name.is_none() => "LIST",
        method => method.as_str(),
    };
    let part = part.map(|part| format!("/{part}")).unwrap_or_default();
    format!("{verb} {resource}{part}")
}

async fn forward(request: Request<Incoming>, client: &Client) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    // The client sets its own headers.
    for header in ["host", "authorization"] {
        parts.headers.remove(header);
    }
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
    parts.uri = path.parse()?;
    let body = body.collect().await?.to_bytes();
    Ok(client.send(Request::from_parts(parts, Body::from(body))).await?)
}

fn refusal(error: &anyhow::Error) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{error:#}").into_bytes()));
    *response.status_mut() = hyper::StatusCode::BAD_GATEWAY;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_write_of_each_part_and_a_few_writes_are_all_taken() {
        assert_eq!((cut_writes(0), cut_writes(3)), (vec![], vec![0, 1, 2]));
        let sample = cut_writes(52);
        let ends = [10, 20, 31, 41, 52];
        let is_of_its_part = |(write, end): (&usize, usize)| *write < end && *write + 11 >= end;
        assert!(sample.len() == 52 || sample.iter().zip(ends).all(is_of_its_part), "{sample:?}");
    }
}
