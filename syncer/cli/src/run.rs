//! `volferry send`, `receive` and `sync`: carries out a configuration, and returns its exit code.

use std::{
    io::{self, BufRead as _, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use contract::{
    BusyAnswer, Contact, Event, ExitCode, Identity, IdentityError, PlannedAction, Reason, Report, RunResult,
    Side, chain,
};
use thiserror::Error;

use super::{
    config::{ChangeForm, Job, LinkConfig, NamedJob, Output, ProgressMode, Run},
    flags::LogFormat,
    itemize,
    link_to_service::AskError,
    logging::{self, Reader},
    messages,
    open_offsite::open_offsite,
    output,
    remote::{near_end::StartedLink, why_ssh_failed::RemoteError},
    report_file, run_log,
    screen::Screen,
    show_progress::{Live, Look},
    signals, summary,
};
use syncer::{
    monitor::Monitor,
    session::{self, LinkOptions, Outcome, SessionError},
};

/// The largest number of bytes that is read for a contact, which takes some 150.
const MAX_CONTACT_BYTES: u64 = 4096;

/// Why this end has no peer or no identity.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(
        "identity file {path} is for the {of}, and this is the {end}: use {instead}",
        path = .path.display(), instead = .path.with_file_name(.end.to_string()).display()
    )]
    OtherSide { path: PathBuf, of: Side, end: Side },
}

impl LinkError {
    /// Returns the outcome of a run that could not begin without a peer or an identity. A missing file was mistyped on
    /// the command line; any other refusal of it concerns the identity of the ends.
    fn outcome(self, run: &str, monitor: &Monitor) -> Outcome {
        let (exit, reason) = (self.exit(), self.reason());
        match self {
            Self::Session(error) | Self::Remote(RemoteError::Session(error)) => {
                session::not_begun(run, error, monitor)
            }
            error => refused(run, reason, exit, chain(&error)),
        }
    }

    /// Returns the exit code. A missing file was mistyped on the command line.
    pub(super) fn exit(&self) -> ExitCode {
        match self {
            Self::Identity(IdentityError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                ExitCode::Usage
            }
            _ => self.reason().exit(),
        }
    }

    /// Returns the reason for the report.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Session(_) => Reason::PeerLost,
            Self::Remote(error) => error.reason(),
            Self::Identity(_) | Self::Ask(_) => Reason::IdentityUnusable,
            Self::OtherSide { .. } => Reason::IdentityOfOtherSide,
        }
    }
}

/// Carries out `run`, and reports it in all requested forms.
pub(super) fn run(run: Run) -> ExitCode {
    let Run { jobs, output } = run;
    let any = |is: fn(&Job) -> bool| jobs.iter().any(|it| is(&it.job));
    let (listens, is_far) = (any(Job::listens), any(Job::is_far));
    let serves = any(|job| matches!(job, Job::Receive { once: false, .. } | Job::Send { once: false, .. }));
    let screen = Arc::new(Screen::new(output.progress == ProgressMode::Bar));
    let reader = if !is_far && (listens || serves) { Reader::LooksBack } else { Reader::Waits };
    logging::start(&output, reader, &screen);
    let monitor = Monitor::new(announce(&screen))
        .with_planned(show(&screen, &output))
        .with_waiting(say_busy(&screen, &output));
    let monitor = Arc::new(monitor);
    match watch(&output, listens, &screen, &monitor) {
        Ok(live) => {
            let reports = (jobs.len() > 1).then(String::new);
            let (told, is_unwritten) = (None, false);
            let far_end = None;
            let mut teller =
                Teller { output, screen, live, serves, far_end, is_far, told, is_unwritten, reports };
            let exit = work_all(jobs, &monitor, &mut teller);
            if exit == ExitCode::Done && teller.is_unwritten { ExitCode::Failed } else { exit }
        }
        Err(error) => {
            screen.say(&format!("error: no thread for progress and signals: {error}\n"));
            ExitCode::Failed
        }
    }
}

fn watch(output: &Output, listens: bool, screen: &Arc<Screen>, monitor: &Arc<Monitor>) -> io::Result<Live> {
    signals::pass_on(monitor, screen)?;
    let look = Look { mode: output.progress, color: output.color, listens };
    Live::start(look, screen, monitor)
}

fn announce(screen: &Arc<Screen>) -> impl Fn(std::net::SocketAddr) + Send + Sync + 'static {
    let screen = Arc::clone(screen);
    move |address| {
        if let Err(error) = screen.event(&Event::Listening { address: address.to_string() }) {
            tracing::warn!(%address, %error, "cannot say on standard output where this end listens");
        }
    }
}

/// Returns the function that says that the other end is busy.
fn say_busy(screen: &Arc<Screen>, output: &Output) -> impl Fn(&BusyAnswer) + Send + Sync + 'static {
    let (screen, quiet) = (Arc::clone(screen), output.quiet);
    let (progress, log_format) = (output.progress, output.log_format);
    move |answer| {
        if progress == ProgressMode::Json
            && let Err(error) = screen.event(&Event::Waiting(answer.clone()))
        {
            tracing::debug!(%error, "standard output is gone");
        }
        match log_format {
            LogFormat::Json => tracing::info!(%answer, "the other end is busy"),
            LogFormat::Text if quiet => {}
            LogFormat::Text => screen.say(&format!("the other end is {answer}\n")),
        }
    }
}

/// Returns the function that shows each action as it is planned.
fn show(screen: &Arc<Screen>, output: &Output) -> impl Fn(&PlannedAction) + Send + Sync + 'static {
    let (screen, form, logs) = (Arc::clone(screen), output.changes, output.log_file.is_some());
    move |action| {
        if logs && form != ChangeForm::Log {
            run_log::log_change_to_file(action);
        }
        let shown = match form {
            ChangeForm::Words => screen.line(&action.to_string()),
            ChangeForm::Letters { sends } => screen.line(&itemize::line(action, sends)),
            ChangeForm::Event => screen.event(&Event::Planned(action.clone())),
            ChangeForm::Log => {
                run_log::log_change(action);
                Ok(())
            }
        };
        if let Err(error) = shown {
            output::failed(&error);
        }
    }
}

/// Carries out one run after the other, until one is stopped. Returns the exit code of the first that is not done.
fn work_all(jobs: Vec<NamedJob>, monitor: &Monitor, teller: &mut Teller) -> ExitCode {
    let are_several = jobs.len() > 1;
    let mut exit = ExitCode::Done;
    for NamedJob { name, job } in jobs {
        if are_several && !teller.output.quiet {
            teller.screen.say(&format!("{}:\n", name.to_string_lossy().escape_debug()));
        }
        let ended = work(job, monitor, teller);
        exit = if exit == ExitCode::Done { ended } else { exit };
        if monitor.cancelled() {
            break;
        }
        monitor.reset();
    }
    exit
}

/// Checks that other runs leave the ends of this one free that are on this machine; reports only that they do not.
fn check_free(job: &Job, monitor: &Monitor, teller: &mut Teller) -> ExitCode {
    match job.places().try_for_each(|(side, place)| session::check_free(place, side)) {
        Ok(()) => ExitCode::Done,
        Err(error) => {
            let outcome = session::not_begun(job.run(), error, monitor);
            teller.report(&outcome);
            outcome.exit
        }
    }
}

fn work(job: Job, monitor: &Monitor, teller: &mut Teller) -> ExitCode {
    if teller.output.check_free {
        return check_free(&job, monitor, teller);
    }
    teller.far_end = job.far_end();
    let outcome = match job {
        Job::Sync { source, destination, params } => session::sync(source, destination, &params, monitor),
        Job::Offsite { source, url, key, params } => {
            let mut open = || open_offsite(&url, &key, monitor);
            session::snapshot_offsite(source, &params, &mut open, monitor)
        }
        Job::Send { source, link, params, once } => match open(link, &teller.screen, monitor) {
            Ok(link) => {
                let serve = |told: &mut dyn FnMut(&Outcome)| {
                    session::send_each(source, &link, &params, monitor, once, told)
                };
                return serve_runs(serve, once, teller);
            }
            Err(error) => error.outcome(&params.run, monitor),
        },
        Job::Push { source, far, params } => match far.start(&teller.screen, monitor) {
            Ok(StartedLink { link, ssh }) => {
                let outcome = session::send(source, &link, &params, monitor);
                drop(link);
                ssh.end();
                outcome
            }
            Err(error) => LinkError::from(error).outcome(&params.run, monitor),
        },
        Job::Pull { far, destination, demands } => match far.start(&teller.screen, monitor) {
            Ok(StartedLink { link, ssh }) => {
                let outcome = session::receive(destination, &link, &demands, monitor, true, &mut |_| {});
                drop(link);
                ssh.end();
                outcome
            }
            Err(error) => LinkError::from(error).outcome(&demands.run, monitor),
        },
        Job::Receive { destination, link, once, demands } => match open(link, &teller.screen, monitor) {
            Ok(link) => {
                let serve = |told: &mut dyn FnMut(&Outcome)| {
                    session::receive(destination, &link, &demands, monitor, once, told)
                };
                return serve_runs(serve, once, teller);
            }
            Err(error) => error.outcome(&demands.run, monitor),
        },
    };
    teller.report(&outcome);
    outcome.exit
}

/// Serves runs, reports each of them when it ends, and finally the reason if this end cannot go on serving.
fn serve_runs(
    serve: impl FnOnce(&mut dyn FnMut(&Outcome)) -> Outcome,
    once: bool,
    teller: &mut Teller,
) -> ExitCode {
    let outcome = serve(&mut |outcome| teller.report(outcome));
    let told = teller.told.as_ref() == Some(&outcome.report);
    if !told && (once || outcome.exit != ExitCode::Done) {
        teller.report(&outcome);
    }
    outcome.exit
}

/// Prepares the identity of an end; exchanges contacts with the peer first if another program passes them on.
pub(super) fn open(link: LinkConfig, screen: &Screen, monitor: &Monitor) -> Result<LinkOptions, LinkError> {
    match link {
        LinkConfig::Exchanged(exchange) => {
            Ok(exchange.link(|own| screen.event(&Event::Contact(own)), hear_contact, monitor)?)
        }
        LinkConfig::Started(started) => Ok(started.link(monitor)?),
        LinkConfig::Asks(asks) => Ok(asks.link()?),
        LinkConfig::Known { endpoint, mode, side, identities, connect_timeout } => {
            let read = |path| identity_of(side, path);
            let mut others = identities.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let identity = others.remove(0);
            Ok(LinkOptions { endpoint, mode, identity, others, connect_timeout })
        }
    }
}

/// Reads an identity file of the end on this `side`.
fn identity_of(side: Side, path: PathBuf) -> Result<Identity, LinkError> {
    let identity = Identity::read(&path)?;
    if identity.side() == side {
        Ok(identity)
    } else {
        Err(LinkError::OtherSide { path, of: identity.side(), end: side })
    }
}

/// Reads the peer's contact, one line on standard input.
fn hear_contact() -> io::Result<Contact> {
    let mut line = String::new();
    io::stdin().lock().take(MAX_CONTACT_BYTES).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// Returns the outcome of a run that could not begin without an identity.
fn refused(run: &str, reason: Reason, exit: ExitCode, message: String) -> Outcome {
    let now = contract::timestamp(SystemTime::now());
    let report = Report {
        run: run.into(),
        result: RunResult::Failed,
        reason: Some(reason),
        message,
        start_time: now.clone(),
        completion_time: now,
        ..Report::default()
    };
    Outcome { report, exit, peer: None, is_told_by_peer: false }
}

/// Reports runs that are over: as an event, in the report's file, and to people.
struct Teller {
    output: Output,
    screen: Arc<Screen>,
    live: Live,
    /// Whether this end serves run after run, so that the log has a line for each, with its peer and the time.
    serves: bool,
    /// The name of the other end's machine, if this end has started or asked it.
    far_end: Option<String>,
    /// Whether another machine started this end, and tells of the run.
    is_far: bool,
    told: Option<Report>,
    /// Whether a report could not be written.
    is_unwritten: bool,
    /// The reports of the runs so far, which the report's file gets one after the other, if there are several runs.
    reports: Option<String>,
}

impl Teller {
    fn report(&mut self, outcome: &Outcome) {
        self.told = Some(outcome.report.clone());
        let outcome = &self.naming_far_end(outcome);
        let report = &outcome.report;
        self.write(report);
        self.live.finish(report);
        let Output { log_format, quiet, verbosity, .. } = self.output;
        if self.is_far && report.link.is_some() {
            return;
        }
        if self.serves || log_format == LogFormat::Json {
            run_log::log(outcome);
        } else if self.output.log_file.is_some() {
            run_log::log_to_file(outcome);
        }
        match log_format {
            // Each file that failed at this end was logged then.
            LogFormat::Json if verbosity > 0 => {}
            LogFormat::Json => run_log::log_failures(report),
            LogFormat::Text if quiet || self.serves => {
                self.screen.say(&summary::trouble(&self.shown(report)));
            }
            LogFormat::Text => self.screen.say(&summary::summary(&self.shown(report))),
        }
    }

    /// Returns the report as a person wants to read it: without the notes that were warnings before, and with the name
    /// of the far end in the hint.
    fn shown(&self, report: &Report) -> Report {
        let mut shown = report.clone();
        shown.notes.retain(|note| !self.screen.has_warned(note));
        let has_hint = shown.message.is_empty() || messages::has_hint(&shown.message);
        let far = self.far_end.as_deref().filter(|_| !has_hint);
        if let Some(hint) = far.and_then(|far| messages::hint_at(report.reason.as_ref()?, far)) {
            shown.message += &format!("\nhint: {hint}");
        }
        shown
    }

    /// Returns the outcome with the name of the far end before what that end has told.
    fn naming_far_end(&self, outcome: &Outcome) -> Outcome {
        let mut outcome = outcome.clone();
        if let Some(far) = self.far_end.as_ref().filter(|_| outcome.is_told_by_peer) {
            outcome.report.message = format!("{far}: {}", outcome.report.message);
        }
        outcome
    }

    /// Writes the report to its file. A failure to do so does not change the run; a run that is done then exits with 1.
    fn write(&mut self, report: &Report) {
        let Some(path) = &self.output.report else { return };
        let written =
            report_file::text(report).and_then(|text| match (path == Path::new("-"), &mut self.reports) {
                (true, _) => self.screen.line(text.trim_end()),
                (false, None) => report_file::write(path, &text),
                (false, Some(all)) => {
                    all.push_str(&text);
                    report_file::write(path, all)
                }
            });
        if let Err(error) = written {
            match self.output.log_format {
                LogFormat::Json => {
                    tracing::error!(path = %path.display(), %error, "the report cannot be written");
                }
                LogFormat::Text => {
                    let what = format!("the report cannot be written to {}: {error}", path.display());
                    self.screen.say(&messages::lines("error", &what));
                }
            }
            self.is_unwritten = true;
        }
    }
}
