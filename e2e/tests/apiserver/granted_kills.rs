//! A run with an end in another namespace whose controller is killed before each of its writes. Another one takes over,
//! with the same run and the same pods.

use crate::{pair::Pair, prelude::*};

/// The number of scenarios that run concurrently.
const AT_ONCE: usize = 4;
/// The grant's user, the record, the children in two namespaces, that it runs, the report.
const WRITES: usize = 9;

#[tokio::test]
async fn a_run_between_namespaces_is_the_same_run_wherever_its_controller_is_killed() {
    let writes = lived(Cut::Never).await;
    assert!(writes >= WRITES, "more than {writes} writes");
    cut::each(cuts_before(writes), AT_ONCE, async |cut| Ok(lived(cut).await)).await.unwrap();
}

/// Takes a SyncJob to the end of its run with a controller that is killed at the cut, and another one after it. Returns
/// the number of writes of the first.
async fn lived(cut: Cut) -> usize {
    let pair = Pair::new("granted-kills").await;
    pair.grant("lent", json!({})).await;
    let first = pair.controller_cut(cut).await;
    pair.read_from_there(json!({})).await;
    let lived = async {
        first.until_cut_or(pair.here.until_done("web")).await.unwrap();
        let writes = first.writes();
        drop(first);
        let second = pair.controller().await;
        pair.here.until_done("web").await.unwrap();
        (writes, second)
    };
    let played = async {
        let [source, sink] = pair.start(&[]).await;
        pair.succeed(&source, &sink).await;
        let released = tokio::join!(pair.here.kubelet.release("web"), pair.there.kubelet.release("web"));
        panic!("{released:?}");
    };
    let (writes, _second) = tokio::select! {
        lived = lived => lived,
        () = played => unreachable!(),
    };
    let done = pair.here.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), "web-1", "{cut:?}");
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0, "{cut:?}: {done:#?}");
    assert_eq!(syncjob::status(&done, "/history").as_array().map(Vec::len), Some(1), "{cut:?}: {done:#?}");
    let made = pair.made();
    let count = |kind: &str| made.iter().filter(|it| it.starts_with(kind)).count();
    assert_eq!(
        (count("job.batch/"), count("pod/"), count("serviceaccount/"), made.len()),
        (1, 1, 1, 3),
        "{cut:?}: {made:?}"
    );
    let grant = pair.grants.get("lent").await.unwrap();
    let users = syncjob::status(&grant, "/namespaces").as_array();
    assert_eq!(users.map(Vec::len), Some(1), "{cut:?}: {grant:#?}");
    pair.here.jobs.delete("web", &DeleteParams::default()).await.unwrap();
    pair.until_nothing_is_left().await;
    writes
}
