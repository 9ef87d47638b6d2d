//! SyncJobs with a schedule, with a simulated kubelet.

use jiff::Timestamp;

use crate::prelude::*;

fn runs(job: &DynamicObject) -> i64 {
    syncjob::status(job, "/lastRun/number").as_i64().unwrap_or(0)
}

fn is_idle_after(run: i64) -> impl Fn(&DynamicObject) -> bool {
    move |job| runs(job) >= run && syncjob::status(job, "/activeRun").is_null() && next_run(job).is_some()
}

fn next_run(job: &DynamicObject) -> Option<Timestamp> {
    syncjob::text(job, "/nextRunTime").parse().ok()
}

fn start(job: &DynamicObject) -> Timestamp {
    syncjob::text(job, "/lastRun/startTime").parse().expect("a run has a start")
}

#[tokio::test]
async fn an_interval_runs_again_and_again_but_not_while_suspended() {
    let (stage, _controller) = Stage::with_controller("interval").await.unwrap();
    stage.sync("web", json!({"schedule": {"interval": "5s"}})).await.unwrap();
    let playing = stage.kubelet.play("web", Play::Succeeds);
    let script = async {
        let first =
            stage.until("web", "the first run is over, and the next has a time", is_idle_after(1)).await?;
        assert!(
            next_run(&first).unwrap() <= start(&first) + jiff::SignedDuration::from_secs(5),
            "{first:#?}"
        );
        let second = stage.until("web", "the second run is over", is_idle_after(runs(&first) + 1)).await?;
        assert!(start(&second) >= next_run(&first).unwrap(), "{first:#?} {second:#?}");

        stage.patch("web", json!({"spec": {"suspend": true}})).await?;
        let suspended = stage.until_reason("web", "Ready", "Suspended").await?;
        assert!(syncjob::is(&suspended, "Ready") && next_run(&suspended).is_none(), "{suspended:#?}");
        let before = runs(&suspended);

        let resumed_at = Timestamp::now();
        stage.patch("web", json!({"spec": {"suspend": false}})).await?;
        let resumed = stage.until("web", "the next run has a time", |job| next_run(job).is_some()).await?;
        assert!(next_run(&resumed) > Some(resumed_at), "{resumed:#?}");
        stage.until("web", "it runs again", is_idle_after(before + 1)).await
    };
    tokio::select! {
        done = script => drop(done.unwrap()),
        error = playing => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_cron_job_waits_and_after_a_refusal_waits_for_its_next_time() {
    let (stage, _controller) = Stage::with_controller("cron").await.unwrap();
    // The 29th of February is years away on most days on which this test runs.
    let schedule = json!({"cron": "0 3 29 2 *", "timeZone": "Europe/Berlin", "jitter": "10m"});
    stage.sync("web", json!({"schedule": schedule, "limits": {"retries": 0}})).await.unwrap();
    let waiting = stage.until_is("web", "Ready").await.unwrap();
    assert!(syncjob::has_reason(&waiting, "Ready", "Scheduled"), "{waiting:#?}");
    assert!(syncjob::has_reason(&waiting, "Synced", "NoCopyYet"), "{waiting:#?}");
    let next = next_run(&waiting).unwrap();
    assert_eq!(stage.children("web").unwrap(), [""; 0]);

    stage.patch("web", json!({"spec": {"trigger": "now"}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let refused = serde_json::to_string(&bad_report("web-1", "DeleteLimitExceeded", "no way")).unwrap();
    stage.kubelet.end(&source, 4, &refused).await.unwrap();
    stage.kubelet.end(&sink, 4, &refused).await.unwrap();
    let failed = stage.until("web", "its run failed", is_idle_after(1)).await.unwrap();
    assert!(
        syncjob::is(&failed, "Stalled") && !syncjob::is(&failed, "Synced"),
        "a person has to act: {failed:#?}"
    );
    assert!(
        syncjob::message(&failed, "Ready").contains(&format!("The next run starts at {next}")),
        "{failed:#?}"
    );
    assert_eq!(next_run(&failed), Some(next));
}

#[tokio::test]
async fn what_does_not_matter_to_a_run_asks_for_none() {
    let (stage, _controller) = Stage::with_controller("change").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let playing = stage.kubelet.play("web", Play::Succeeds);
    let script = async {
        stage.until_is("web", "Ready").await?;
        let spec = json!({"pods": {"labels": {"team": "x"}}, "historyLimit": {"succeeded": 3}});
        let changed = stage.patch("web", json!({"spec": spec})).await?;
        // The job was observed, and no run was begun.
        let observed = move |job: &DynamicObject| {
            syncjob::status(job, "/observedGeneration").as_i64() == changed.metadata.generation
        };
        let same = stage.until("web", "the change is observed", observed).await?;
        assert!(syncjob::is(&same, "Ready") && syncjob::status(&same, "/activeRun").is_null(), "{same:#?}");
        stage.patch("web", json!({"spec": {"files": {"exclude": ["*.tmp"]}}})).await?;
        let over = stage.until("web", "the second run is over", |job| runs(job) == 2).await?;
        assert_eq!(syncjob::text(&over, "/lastRun/id"), "web-2");
        anyhow::Ok(())
    };
    tokio::select! {
        done = script => done.unwrap(),
        error = playing => panic!("{error:?}"),
    }
}
