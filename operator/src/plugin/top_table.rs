//! The table of `top`: what all SyncJobs do right now, the runs under way first, then those that wait. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{lines, table::table};
use crate::{
    api::{ActiveRun, RunProgress, Stage, SyncJob, SyncRun},
    human, names,
    status::readiness,
};

/// What a column shows that has no value.
const NONE: &str = "-";
/// The longest words about what a run waits for, in bytes.
const MAX_WORDS_BYTES: usize = 100;

/// What a SyncJob does, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    Running,
    Starting,
    Waiting,
    Resting,
}

/// One SyncJob with the progress of its run under way.
struct JobLine<'a> {
    job: &'a SyncJob,
    run: Option<&'a ActiveRun>,
    progress: Option<&'a RunProgress>,
}

/// Returns a headline with the sums, and a table with a line for each SyncJob.
pub(super) fn lines<'a>(
    jobs: impl Iterator<Item = &'a SyncJob>,
    runs: impl Iterator<Item = &'a SyncRun>,
    with_namespace: bool,
    now: Timestamp,
) -> Vec<String> {
    let progress: BTreeMap<_, _> = runs.filter_map(|run| Some((path(run), progress(run)?))).collect();
    let mut all: Vec<JobLine<'_>> = jobs.map(|job| JobLine::new(job, &progress)).collect();
    all.sort_by_cached_key(|line| (line.doing(), line.since(), line.job.namespace(), line.job.name_any()));
    let mut headings = vec!["SYNCJOB", "DOES", "DONE", "FILES", "BYTES", "RATE", "LEFT", "FOR", "LAG", "WHY"];
    if with_namespace {
        headings.insert(0, "NAMESPACE");
    }
    let mut rows = vec![headings.into_iter().map(String::from).collect::<Vec<_>>()];
    rows.extend(all.iter().map(|line| {
        let namespace = line.job.namespace().filter(|_| with_namespace);
        namespace.into_iter().chain(line.cells(now)).collect()
    }));
    [vec![headline(&all, now)], table(&rows)].concat()
}

fn path(object: &impl kube::Resource) -> (Option<String>, String) {
    (object.namespace(), object.name_any())
}

fn progress(run: &SyncRun) -> Option<&RunProgress> {
    run.status.as_ref()?.progress.as_ref()
}

fn headline(all: &[JobLine<'_>], now: Timestamp) -> String {
    let count = |doing: Doing| all.iter().filter(|line| line.doing() == doing).count();
    let rate = all.iter().filter_map(|line| Some(line.progress?.progress.rate)).fold(0, u64::saturating_add);
    format!(
        "{}  {} running ({}/s), {} starting, {} waiting, {} at rest",
        human::seconds(now),
        count(Doing::Running),
        human::bytes(rate),
        count(Doing::Starting),
        count(Doing::Waiting),
        count(Doing::Resting)
    )
}

impl<'a> JobLine<'a> {
    fn new(job: &'a SyncJob, progress: &BTreeMap<(Option<String>, String), &'a RunProgress>) -> Self {
        let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
        // The progress of an earlier try says nothing of this one.
        let progress = run.and_then(|run| {
            let told = progress.get(&(job.namespace(), run.id.clone())).copied()?;
            (told.run == names::try_id(&run.id, run.past_tries())).then_some(told)
        });
        Self { job, run, progress }
    }

    fn doing(&self) -> Doing {
        match self.run.map(|run| (run.is_started(), run.stage)) {
            None => Doing::Resting,
            Some((false, _)) => Doing::Waiting,
            Some((true, Stage::Running)) => Doing::Running,
            Some((true, _)) => Doing::Starting,
        }
    }

    /// Returns since when a run is under way or waits. Those that began first come first; at rest, the ones whose last
    /// success is the longest ago.
    fn since(&self) -> Option<Timestamp> {
        let of_run = |run: &ActiveRun| run.start_time.as_ref().or(run.queue_time.as_ref()).map(|time| time.0);
        self.run.map_or_else(|| self.last_success(), of_run)
    }

    fn last_success(&self) -> Option<Timestamp> {
        Some(self.job.status.as_ref()?.last_success_time.as_ref()?.0)
    }

    fn cells(&self, now: Timestamp) -> [String; 10] {
        let shown = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
        let ago = |time: Timestamp| {
            human::duration(Duration::try_from(now.duration_since(time)).unwrap_or_default())
        };
        let progress = self.progress.map(|told| told.progress);
        let under_way = self.run.and_then(|_| self.since());
        [
            self.job.name_any(),
            self.does(),
            shown(progress.and_then(|it| percent(it.bytes, it.bytes_total))),
            shown(progress.map(|it| format!("{}/{}", it.files, it.files_total))),
            shown(progress.map(|it| format!("{}/{}", human::bytes(it.bytes), human::bytes(it.bytes_total)))),
            shown(progress.map(|it| format!("{}/s", human::bytes(it.rate)))),
            shown(progress.and_then(|it| left(it.bytes, it.bytes_total, it.rate))),
            shown(under_way.map(ago)),
            shown(self.last_success().map(ago)),
            shown(self.why()),
        ]
    }

    /// Returns the phase of a run whose pods work, the stage of another one, or the state of a job at rest.
    fn does(&self) -> String {
        match (self.run, self.progress) {
            (Some(run), Some(told)) if run.stage == Stage::Running => format!("{:?}", told.progress.phase),
            (Some(run), _) => run.stage.reason().into(),
            (None, _) => lines::state(self.job),
        }
    }

    /// Returns what a run waits for, or why a job at rest does not go on; nothing if all is well.
    fn why(&self) -> Option<String> {
        let status = self.job.status.as_ref()?;
        let told = match self.run {
            Some(run) => run.message.clone(),
            None => readiness::told(status).map(|told| told.message).filter(|_| self.is_in_trouble()),
        };
        told.map(|words| human::clipped(&words, MAX_WORDS_BYTES))
    }

    fn is_in_trouble(&self) -> bool {
        use crate::api::SyncJobPhase as Phase;
        let phase = self.job.status.as_ref().and_then(|status| status.phase);
        matches!(phase, Some(Phase::Failed | Phase::PartiallyFailed | Phase::Stalled))
    }
}

fn percent(done: u64, total: u64) -> Option<String> {
    (total > 0).then(|| format!("{}%", u128::from(done.min(total)) * 100 / u128::from(total)))
}

/// Returns how long the rest takes at the present rate.
fn left(done: u64, total: u64, rate: u64) -> Option<String> {
    let seconds = total.saturating_sub(done).checked_div(rate).filter(|_| total > 0)?;
    Some(human::duration(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, status: &Value) -> SyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        let metadata = json!({"name": name, "namespace": "prod"});
        serde_json::from_value(json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
            "metadata": metadata, "spec": spec, "status": status}))
        .unwrap()
    }

    fn run(name: &str, of: &str) -> SyncRun {
        let progress = json!({"run": of, "phase": "Transfer", "files": 3, "filesTotal": 10,
            "bytes": 1 << 30, "bytesTotal": 4_u64 << 30, "rate": 100 << 20});
        serde_json::from_value(json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun",
            "metadata": {"name": name, "namespace": "prod"}, "spec": {"syncJob": {"name": "web"}},
            "status": {"progress": progress}}))
        .unwrap()
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-11-25T{time}Z").parse().unwrap()
    }

    #[test]
    fn runs_under_way_come_first_with_their_rate_and_what_waits_says_why() {
        let active = |id: &str, more: Value| {
            let mut run = json!({"id": id, "number": 1, "generation": 1});
            run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"activeRun": run, "lastSuccessTime": "2026-11-25T09:00:00Z"})
        };
        let began = "2026-11-25T09:58:30.000000Z";
        let jobs = [
            job("rest", &json!({"phase": "Succeeded", "lastSuccessTime": "2026-11-25T09:59:00Z"})),
            job(
                "queue",
                &active("queue-1", json!({"stage": "Queued", "queueTime": began, "message": "Number 2."})),
            ),
            job("web", &active("web-1", json!({"stage": "Running", "startTime": began}))),
            job("old", &active("old-1", json!({"stage": "Running", "startTime": began, "retries": 1}))),
        ];
        let runs = [run("web-1", "web-1"), run("old-1", "old-1")];
        let told = lines(jobs.iter(), runs.iter(), false, at("10:00:00"));
        assert_eq!(told[0], "2026-11-25T10:00:00Z  2 running (100.0Mi/s), 0 starting, 1 waiting, 1 at rest");
        let row = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(row(&told[2])[..3], ["old", "Running", "-"], "the progress of an earlier try is none");
        assert_eq!(
            row(&told[3]),
            ["web", "Transfer", "25%", "3/10", "1.0Gi/4.0Gi", "100.0Mi/s", "30.0s", "1m30s", "1h00m", "-"]
        );
        assert_eq!(row(&told[4])[..2], ["queue", "Queued"]);
        assert!(told[4].ends_with("1m30s   1h00m   Number 2."), "{}", told[4]);
        assert_eq!(row(&told[5])[..2], ["rest", "Succeeded"]);
        let wide = lines(jobs.iter(), runs.iter(), true, at("10:00:00"));
        assert!(wide[1].starts_with("NAMESPACE   SYNCJOB"), "{}", wide[1]);
    }

    #[test]
    fn what_has_no_total_or_rate_yet_has_no_share_and_no_end() {
        assert_eq!((percent(5, 0), left(0, 0, 9), left(1, 9, 0)), (None, None, None));
        assert_eq!(
            (percent(9, 6).as_deref(), percent(u64::MAX, u64::MAX).as_deref()),
            (Some("100%"), Some("100%"))
        );
    }
}
