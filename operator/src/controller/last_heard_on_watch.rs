//! Notes when the API server was last heard on each watch. A watch whose connection is dead without an error brings
//! nothing, just as one of a quiet cluster; but on that one the API server sends a bookmark every minute.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::HttpBody,
    http::{Request, Response, Uri},
};
use futures::{TryFutureExt as _, future::BoxFuture};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use kube::client::Body;
use tower::{Layer, Service};

use crate::telemetry::probes::Health;

/// Has what a client hears on watches be noted.
pub(crate) struct Hearing(pub(super) Arc<Health>);

/// A client's way to the API server that notes when it hears something on a watch.
pub(crate) struct Heard<S> {
    inner: S,
    health: Arc<Health>,
}

impl<S> Layer<S> for Hearing {
    type Service = Heard<S>;

    fn layer(&self, inner: S) -> Heard<S> {
        Heard { inner, health: self.0.clone() }
    }
}

impl<S, B> Service<Request<Body>> for Heard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
    B::Data: Send,
{
    type Response = Response<UnsyncBoxBody<B::Data, B::Error>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (watched, health) = (watched(request.uri()), self.health.clone());
        let answer = self.inner.call(request).map_ok(move |answer| match watched {
            Some(Watch { kind, namespace }) => {
                answer.map(|body| body.inspect_frame(move |_| health.heard(&kind, &namespace)).boxed_unsync())
            }
            None => answer.map(BodyExt::boxed_unsync),
        });
        Box::pin(answer)
    }
}

/// The plural of a kind and the namespace, empty for all, that are watched.
#[derive(Debug, PartialEq)]
struct Watch {
    kind: String,
    namespace: String,
}

/// Returns the watch that a request asks for.
fn watched(uri: &Uri) -> Option<Watch> {
    uri.query()?.split('&').find(|it| *it == "watch=true")?;
    let parts: Vec<&str> = uri.path().split('/').collect();
    let namespace = parts.windows(2).find(|it| it[0] == "namespaces").map_or("", |it| it[1]);
    Some(Watch { kind: (*parts.last()?).into(), namespace: namespace.into() })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, channel::mpsc, future::poll_immediate, stream};
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn each_part_of_a_watch_and_of_no_other_answer_is_noted_with_its_kind_and_namespace() {
        let (sender, parts) = mpsc::unbounded::<Result<_, Infallible>>();
        let mut bodies = vec![StreamBody::new(parts.boxed()), StreamBody::new(stream::empty().boxed())];
        let service = tower::service_fn(move |_: Request<Body>| {
            let body = bodies.remove(0);
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let health = Arc::new(Health::default());
        let mut heard = Hearing(health.clone()).layer(service);
        let get = |uri: &str| Request::builder().uri(uri).body(Body::empty()).unwrap();
        let watch = "/apis/volferry.dev/v1alpha1/namespaces/prod/syncruns?&watch=true&resourceVersion=0";
        let mut body = heard.call(get(watch)).await.unwrap().into_body();
        assert!(poll_immediate(body.frame()).await.is_none());
        let line = "volferry_watch_heard_timestamp_seconds{kind=\"syncruns\",namespace=\"prod\"}";
        assert!(!health.metrics.to_text().contains(line), "nothing was heard yet");
        let bookmark = http_body_util::Full::<axum::body::Bytes>::from("{}").frame().await.unwrap().unwrap();
        sender.unbounded_send(Ok(bookmark)).unwrap();
        body.frame().await.unwrap().unwrap();
        assert!(health.metrics.to_text().contains(line));
        heard.call(get("/api/v1/pods?limit=500")).await.unwrap();
        assert!(!health.metrics.to_text().contains("pods"));
    }

    #[test]
    fn watches_of_all_namespaces_are_told_from_those_of_one() {
        let of = |uri: &str| watched(&uri.parse().unwrap());
        let pods = |namespace: &str| Some(Watch { kind: "pods".into(), namespace: namespace.into() });
        assert_eq!(of("/api/v1/pods?&watch=true"), pods(""));
        assert_eq!(of("/api/v1/namespaces/a/pods?watch=true"), pods("a"));
        assert_eq!(of("/api/v1/namespaces/watch=true?limit=1"), None);
    }
}
