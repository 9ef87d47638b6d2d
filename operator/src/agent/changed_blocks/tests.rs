use std::{future::Ready, pin::Pin, sync::Arc};

use contract::ContentHash;
use futures::{Stream, StreamExt as _, stream};
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::ByteString;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::{
    Response,
    server::{self, ServerStreamingService},
};

use super::*;
use crate::api::ChangeBase;

const LEN: u64 = 10_000;

type Answer = Result<Vec<Result<DeltaResponse, Status>>, Status>;
/// What a service answers to a request for blocks from this offset on.
type Answering = fn(i64) -> Answer;

/// A driver's service.
#[derive(Clone)]
struct Driver {
    answer: Answering,
    asked: Arc<Mutex<Vec<DeltaRequest>>>,
}

impl ServerStreamingService<DeltaRequest> for Driver {
    type Response = DeltaResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<DeltaResponse, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<DeltaRequest>) -> Self::Future {
        let request = request.into_inner();
        let answer = (self.answer)(request.starting_offset);
        self.asked.lock().push(request);
        std::future::ready(answer.map(|parts| Response::new(stream::iter(parts).boxed())))
    }
}

/// Serves one connection, and asks there. Returns the answer, and what was asked.
async fn asked(answer: Answering) -> (Result<ChangedRanges, ListError>, Vec<DeltaRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let driver = Driver { answer, asked: Arc::default() };
    let known = Arc::clone(&driver.asked);
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let serve = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let driver = driver.clone();
            async move {
                assert_eq!(request.uri().path(), METHOD);
                let codec = ProstCodec::<DeltaResponse, DeltaRequest>::default();
                Ok::<_, std::convert::Infallible>(
                    server::Grpc::new(codec).server_streaming(driver, request).await,
                )
            }
        });
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), serve).await;
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let ranges = fetch(&endpoint, &demand(), "prod", "secret", LEN).await;
    serving.abort();
    let asked = known.lock().clone();
    (ranges, asked)
}

fn demand() -> ChangedDemand {
    ChangedDemand {
        address: "driver:443".into(),
        audience: "driver".into(),
        ca_cert: ByteString(Vec::new()),
        target: "new".into(),
        base: ChangeBase {
            snapshot: "old".into(),
            snapshot_uid: "u".into(),
            content_hash: ContentHash([7; 32]),
        },
        base_id: "handle".into(),
        patience_seconds: 60,
    }
}

fn part(blocks: &[(i64, i64)]) -> Result<DeltaResponse, Status> {
    let block = |(byte_offset, size_bytes): &(i64, i64)| BlockMetadata {
        byte_offset: *byte_offset,
        size_bytes: *size_bytes,
    };
    let block_metadata = blocks.iter().map(block).collect();
    Ok(DeltaResponse { volume_capacity_bytes: LEN as i64, block_metadata })
}

#[tokio::test]
async fn blocks_of_all_parts_are_listed_and_the_last_one_ends_with_the_device() {
    let (ranges, asked) =
        asked(|_| Ok(vec![part(&[(0, 10), (10, 5)]), part(&[]), part(&[(9990, 4096)])])).await;
    let ranges = ranges.unwrap();
    assert_eq!(ranges.as_slice(), [0..15, 9990..LEN]);
    let list = text(&demand(), &ranges);
    assert_eq!(list, format!("base {}\n0 15\n9990 10\n", ContentHash([7; 32])));
    let request = DeltaRequest {
        security_token: "secret".into(),
        namespace: "prod".into(),
        base_snapshot: "handle".into(),
        target_snapshot_name: "new".into(),
        starting_offset: 0,
    };
    assert_eq!(asked, [request], "nothing can be behind the end");
    assert!(!format!("{asked:?}").contains("secret"));
}

#[tokio::test]
async fn a_list_of_several_pages_is_asked_for_to_its_end() {
    let (ranges, asked) = asked(|from| {
        // The last page begins with a block that the one before has half of.
        let pages = [(0, (10, 5)), (15, (40, 4)), (44, (42, 60))];
        let page = pages.iter().find(|(begin, _)| *begin == from);
        Ok(page.map(|(_, block)| vec![part(&[*block])]).unwrap_or_default())
    })
    .await;
    assert_eq!(ranges.unwrap().as_slice(), [10..15, 40..102]);
    assert_eq!(asked.iter().map(|it| it.starting_offset).collect::<Vec<_>>(), [0, 15, 44, 102]);
}

#[tokio::test]
async fn an_answer_without_a_part_says_that_nothing_changed() {
    let (ranges, asked) = asked(|_| Ok(Vec::new())).await;
    assert_eq!((ranges.unwrap(), asked.len()), (ChangedRanges::default(), 1));
}

#[tokio::test]
async fn what_is_no_whole_list_is_none() {
    let cases: [(Answering, &str); 10] = [
        (|_| Err(Status::permission_denied("not you")), "not you"),
        (|_| Err(Status::not_found("lost")), "lost"),
        (|_| Ok(vec![part(&[(0, 1)]), Err(Status::aborted("in the middle"))]), "in the middle"),
        (|_| Ok(vec![part(&[(50, 10), (40, 5)])]), "begins before the end"),
        (|_| Ok(vec![part(&[(50, 10)]), part(&[(55, 10)])]), "begins before the end"),
        (|_| Ok(vec![part(&[(50, 10)])]), "at 50 again when it is asked for those from 60 on"),
        (|_| Ok(vec![part(&[(LEN as i64, 1)])]), "which cannot be"),
        (|_| Ok(vec![part(&[(-1, 1)])]), "which cannot be"),
        (|_| Ok(vec![part(&[(0, 0)])]), "which cannot be"),
        (
            |_| {
                Ok(vec![
                    part(&[(0, 1)]),
                    Ok(DeltaResponse { volume_capacity_bytes: 9999, ..Default::default() }),
                ])
            },
            "of a volume of 9999 bytes",
        ),
    ];
    for (answer, told) in cases {
        let error = chain(&asked(answer).await.0.unwrap_err());
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn a_stream_that_only_ends_is_not_whole() {
    let mut trailers = MetadataMap::new();
    assert!(!says_it_is_whole(None) && !says_it_is_whole(Some(&trailers)));
    trailers.insert("grpc-status", "0".parse().unwrap());
    assert!(says_it_is_whole(Some(&trailers)));
}
