//! `volferry-operator agent`: PID 1 of a syncer pod.
//!
//! It starts `volferry`, and writes its progress and report to the SyncRun's status. It also writes the report to the
//! termination message, so that a run loses nothing while the API server is unreachable. Every wait for the API server
//! is bounded; the process's exit status is that of `volferry`.

mod args;
mod changed_blocks;
mod contacts;
mod error;
mod hook_gate;
mod job_key;
mod missing_report;
pub mod own_key;
mod publish;
mod selinux_label;
mod shorten_report;

use std::{
    ffi::OsString,
    fs,
    time::{Duration, SystemTime},
};

use contract::{Event, ExitCode, Phase, Report};
use tokio::sync::watch;

pub use self::{args::AgentArgs, error::AgentError};
use self::{
    contacts::Meeting,
    publish::{Moment, Publisher},
};
use crate::{
    engine::process::{Exit, Syncer},
    signals::Stops,
    telemetry::traces::{self, Traces},
};

/// How long a pod waits until its spans are sent.
const TRACE_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs one end of a run until it ends, and returns the exit status for this process.
pub async fn run(args: &AgentArgs) -> i32 {
    let (began, traces) = (SystemTime::now(), Traces::from_env("volferry-syncer"));
    let publisher = Publisher::connect(args).await;
    let (exit, report) = match supervise(args, &publisher).await {
        Ok(ended) => {
            (ended.status, ended.report.clone().unwrap_or_else(|| missing_report::made_up(args, &ended)))
        }
        Err(error) => {
            let report = missing_report::failed(args, contract::chain(&error));
            let reason = error.reason().or(report.reason);
            (ExitCode::Failed as i32, Report { reason, ..report })
        }
    };
    let report =
        selinux_label::explained(report, fs::read_to_string(selinux_label::OWN_LABEL).ok().as_deref());
    // Write the termination message first, since it always arrives; the API server may take time.
    shorten_report::write(&args.termination_log, &report);
    publisher.report(&report).await;
    traces.send(|| traces::of_end(&args.uid, &args.run, args.side, &report, [began, SystemTime::now()]));
    traces.finish(TRACE_TIMEOUT).await;
    exit
}

/// How an end ended.
struct Ended {
    /// The exit status; for a killed process 128 plus the signal's number.
    status: i32,
    /// The last lines that the process wrote to standard error.
    tail: Vec<String>,
    /// The report that it left, if any.
    report: Option<Report>,
}

async fn supervise(args: &AgentArgs, publisher: &Publisher) -> Result<Ended, AgentError> {
    let mut stops = Stops::new().map_err(AgentError::Signals)?;
    tokio::select! {
        ensured = job_key::ensure(args, publisher) => ensured?,
        () = stops.next() => return Ok(hook_gate::stopped(args)),
    }
    let authorities = job_key::take_store_key(args)?;
    let (program, rest) =
        args.command.split_first().map_or((OsString::new(), &[][..]), |(p, rest)| (p.clone(), rest));
    let listed = tokio::select! {
        listed = changed_blocks::list(args) => listed,
        () = stops.next() => return Ok(hook_gate::stopped(args)),
    };
    let rest: Vec<OsString> = rest.iter().cloned().chain(listed.arg).chain(args.own_args()?).collect();
    if let Some(policy) = args.await_hook
        && let Some(ended) =
            hook_gate::wait(args, policy, publisher, &mut stops, program.clone().into(), &rest).await?
    {
        return Ok(ended);
    }
    let mut syncer = Syncer::start_with(program.into(), rest, authorities)?;
    let (progress, latest) = watch::channel(Moment::default());
    let mut report = None;
    let publishing = publisher.progress(latest);
    tokio::pin!(publishing);
    let mut meeting = Meeting::default();
    loop {
        tokio::select! {
            event = syncer.next_event() => match event {
                Some(Event::Progress(now)) => {
                    if now.phase != Phase::Connect {
                        meeting.end();
                    }
                    // Until the first news of the run, the other end's answer counts.
                    progress.send_modify(|moment| {
                        moment.progress = now;
                        moment.waiting.take_if(|_| now.phase != Phase::Connect);
                    });
                }
                Some(Event::Contact(own)) => meeting = Meeting::begin(publisher, own),
                // Only dry runs plan, and only services serve; no pod of a run does either.
                Some(Event::Planned(_) | Event::Served(_)) => {}
                Some(Event::Finished(it)) => report = Some(*it),
                Some(Event::Listening { address }) => tracing::info!(address, "listening"),
                Some(Event::Waiting(answer)) => {
                    tracing::info!(%answer, "the other end is busy");
                    progress.send_modify(|moment| moment.waiting = Some(answer.to_string()));
                }
                None => break,
            },
            () = &mut publishing => {}
            met = meeting.next() => syncer.introduce(&met?).await,
            () = stops.next() => syncer.terminate(),
        }
    }
    let exit = wait(syncer, &mut stops).await?;
    let mut report = report.or_else(|| read_report(args));
    report.iter_mut().for_each(|report| report.notes.extend(listed.note.clone()));
    Ok(Ended { status: exit.code(), tail: exit.tail, report })
}

/// Waits for a process that has closed its output, while passing signals on to it.
async fn wait(mut syncer: Syncer, stops: &mut Stops) -> Result<Exit, AgentError> {
    loop {
        tokio::select! {
            exit = syncer.wait() => return Ok(exit?),
            () = stops.next() => syncer.terminate(),
        }
    }
}

/// Reads the report from the file of the process; `None` if it is missing, or of another run.
fn read_report(args: &AgentArgs) -> Option<Report> {
    let report: Report = serde_json::from_slice(&fs::read(&args.report).ok()?).ok()?;
    (report.run == args.run).then_some(report)
}

#[cfg(test)]
mod tests {
    use contract::{RunResult, Side};

    use super::*;

    fn args(dir: &std::path::Path, script: &str) -> AgentArgs {
        AgentArgs {
            namespace: "prod".into(),
            name: "web".into(),
            uid: "u".into(),
            run: "web-1".into(),
            number: 1,
            side: Side::Sink,
            shards: 1,
            index: 0,
            await_hook: None,
            listen_port: None,
            pod_ip: None,
            key: None,
            store_key: None,
            key_copy: None,
            changed_blocks: None,
            key_secret: None,
            syncjob: None,
            syncjob_uid: None,
            report: dir.join("report.json"),
            termination_log: dir.join("termination-log"),
            command: ["/bin/sh", "-c", script].map(OsString::from).into(),
        }
    }

    async fn ended(args: &AgentArgs) -> (i32, Report) {
        let ended = supervise(args, &Publisher::offline()).await.unwrap();
        (ended.status, ended.report.clone().unwrap_or_else(|| missing_report::made_up(args, &ended)))
    }

    #[tokio::test]
    async fn the_finished_event_is_the_report() {
        let dir = tempfile::tempdir().unwrap();
        let report = Report { run: "web-1".into(), message: "hello".into(), ..Report::default() };
        let line = serde_json::to_string(&Event::Finished(Box::new(report.clone()))).unwrap();
        assert_eq!(ended(&args(dir.path(), &format!("echo '{line}'"))).await, (0, report));
    }

    #[tokio::test]
    async fn the_report_file_is_read_where_no_event_came_and_only_if_it_is_of_this_run() {
        let dir = tempfile::tempdir().unwrap();
        let args = args(dir.path(), "exit 3");
        for (run, expected) in [("web-1", "of this run"), ("web-0", "left no report")] {
            let report = Report { run: run.into(), message: "of this run".into(), ..Report::default() };
            fs::write(&args.report, serde_json::to_vec(&report).unwrap()).unwrap();
            let (exit, report) = ended(&args).await;
            assert_eq!(exit, 3);
            assert!(report.message.contains(expected), "{}", report.message);
        }
    }

    #[tokio::test]
    async fn a_process_that_dies_without_a_report_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let (exit, report) = ended(&args(dir.path(), "echo oh no >&2; kill -6 $$")).await;
        assert_eq!((exit, report.result), (134, RunResult::Failed));
        assert_eq!(report.message, "The sink ended with status 134 and left no report: oh no");
    }

    #[tokio::test]
    async fn a_process_that_was_killed_names_the_limit_to_raise() {
        let dir = tempfile::tempdir().unwrap();
        let (exit, report) = ended(&args(dir.path(), "kill -9 $$")).await;
        assert_eq!((exit, report.reason.as_deref()), (137, Some("SyncerKilled")));
        assert!(report.message.contains("spec.pods.resources.limits.memory"), "{}", report.message);
    }

    #[test]
    fn a_pod_is_told_where_it_listens_and_which_shard_it_has() {
        let mut args = args(std::path::Path::new("/"), "");
        let own = |args: &AgentArgs| args.own_args().map(|own| own.join(&OsString::from(" ")));
        args.command = ["volferry", "send"].map(OsString::from).into();
        assert_eq!(own(&args).unwrap(), "");
        (args.shards, args.index) = (3, 2);
        assert_eq!(own(&args).unwrap(), "--shard=2/3");
        args.command = ["volferry", "receive"].map(OsString::from).into();
        for (ip, listen) in [("10.1.2.3", "--listen=10.1.2.3:8900"), ("fd00::7", "--listen=[fd00::7]:8900")] {
            (args.listen_port, args.pod_ip) = (Some(8900), Some(ip.parse().unwrap()));
            assert_eq!(own(&args).unwrap(), listen);
        }
        args.index = 3;
        assert!(args.own_args().is_err());
    }

    #[tokio::test]
    async fn an_end_that_cannot_meet_its_peer_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let contact = contract::Contact { fingerprint: contract::Fingerprint::of(b"key"), address: None };
        let line = serde_json::to_string(&Event::Contact(contact)).unwrap();
        let args = args(dir.path(), &format!("echo '{line}'; read peer"));
        let error = supervise(&args, &Publisher::offline()).await.err().unwrap();
        assert!(contract::chain(&error).contains("no API server to learn of the peer from"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_leaves_a_report_in_the_termination_message() {
        let dir = tempfile::tempdir().unwrap();
        let mut args = args(dir.path(), "");
        args.command = vec!["/no/such/volferry".into()];
        assert_eq!(run(&args).await, 1);
        let report: Report = serde_json::from_slice(&fs::read(&args.termination_log).unwrap()).unwrap();
        assert!(report.message.contains("cannot start /no/such/volferry"), "{}", report.message);
    }
}
