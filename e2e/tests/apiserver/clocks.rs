//! Ends whose clocks are a day apart, or two.

use e2e::clock;
use jiff::{SignedDuration, Timestamp};

use crate::{
    endpoints_stage::{Serving, content},
    prelude::*,
    remote_more::{own_key, run_until_taken},
    remote_stage::{Remote, fill},
};

const DAY: i64 = 86_400;

#[tokio::test]
async fn runs_and_snapshots_are_as_usual_while_the_clocks_of_both_ends_are_off() {
    for (test, off) in [("clock-ahead", DAY), ("clock-behind", -DAY)] {
        let (mut serving, controller) = Serving::new(test).await;
        serving.volferry = clock::volferry_off_by(off, serving.dir.path()).unwrap();
        let kept = json!({"snapshots": {"retain": {"last": 5, "within": "1h"}}});
        let mut remote = Remote::of(serving, controller, Side::Source, kept).await;
        remote.list(&[&own_key(&remote)]).await;
        let mine = json!({"identity": {"secretName": "mine"}});
        remote.sync(mine, json!({"schedule": {"cron": "@yearly"}, "trigger": "1"})).await;
        let mut pods = Vec::new();
        for (number, content_of_run) in [(1, "first"), (2, "second")] {
            fill(&remote.volume(), content_of_run);
            if number == 2 {
                remote.own.volferry = clock::volferry_off_by(-off, remote.dir.path()).unwrap();
                remote.stage.patch("copy", json!({"spec": {"trigger": "2"}})).await.unwrap();
            }
            pods = run_until_taken(&remote, pods).await;
            let run = format!("copy-{number}");
            let done = remote.until(&run, |job| syncjob::text(job, "/lastRun/id") == run).await;
            assert_eq!(syncjob::text(&done, "/lastRun/result"), "Succeeded", "{done:#?}");
            assert_eq!(content(&remote.serving.volume()).as_deref(), Some(content_of_run));
            let total = syncjob::status(&done, "/lastRun/timings/total").as_u64().unwrap();
            assert!(total < 3_600_000, "{done:#?}");
            let at: Timestamp = syncjob::text(&done, "/lastSuccessTime").parse().unwrap();
            let age = Timestamp::now().duration_since(at);
            assert!(age.abs() < SignedDuration::from_hours(1), "{done:#?}");
            let has = |it: &DynamicObject| syncjob::status(it, "/snapshots/count") == number;
            remote.serving.until("its snapshot is told", has).await;
        }
    }
}
