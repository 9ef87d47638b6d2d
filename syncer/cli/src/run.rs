//! `volferry send`, `receive` and `sync`: carries out a configuration, and returns its exit code.

use std::{
    io::{self, BufRead as _, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use contract::{
    Contact, Demands, Event, ExitCode, Identity, IdentityError, PlannedAction, Report, RunResult, Side,
};
use thiserror::Error;

use trend::human::chain;

use super::{
    config::{ChangeForm, Job, LinkConfig, Output, ProgressMode, Run},
    flags::LogFormat,
    itemize,
    live::{Live, Look},
    logging, report_file, run_log,
    screen::Screen,
    signals, summary,
};
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
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
        let (exit, reason) = self.refusal();
        match self {
            Self::Session(error) => session::not_begun(run, error, monitor),
            error => refused(run, reason, exit, chain(&error)),
        }
    }

    /// Returns the exit code for the error, and its word for programs.
    pub(super) fn refusal(&self) -> (ExitCode, &'static str) {
        match self {
            Self::Session(_) => (ExitCode::PeerLost, "PeerLost"),
            Self::Identity(IdentityError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                (ExitCode::Usage, "IdentityUnusable")
            }
            Self::Identity(_) => (ExitCode::Identity, "IdentityUnusable"),
            Self::OtherSide { .. } => (ExitCode::Identity, "IdentityOfOtherSide"),
        }
    }
}

/// Carries out `run`, and reports it in all requested forms.
pub(super) fn run(run: Run) -> ExitCode {
    let Run { job, output } = run;
    let listens = job.listens();
    let screen = Arc::new(Screen::new(output.progress == ProgressMode::Bar));
    logging::start(&output, &screen);
    let monitor = Monitor::new(announce(&screen)).with_planned(show(&screen, output.changes));
    let monitor = Arc::new(monitor);
    match watch(&output, listens, &screen, &monitor) {
        Ok(live) => {
            let serves = matches!(job, Job::Receive { once: false, .. });
            work(job, &monitor, &mut Teller { output, screen, live, serves, told: None })
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

/// Returns the function that shows each action as it is planned.
fn show(screen: &Arc<Screen>, form: ChangeForm) -> impl Fn(&PlannedAction) + Send + Sync + 'static {
    let screen = Arc::clone(screen);
    move |action| {
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
            tracing::debug!(%error, "standard output is gone");
        }
    }
}

fn work(job: Job, monitor: &Monitor, teller: &mut Teller) -> ExitCode {
    let outcome = match job {
        Job::Sync { source, destination, params } => session::sync(source, destination, &params, monitor),
        Job::Send { source, link, params } => match open(link, &teller.screen, monitor) {
            Ok(link) => session::send(source, &link, &params, monitor),
            Err(error) => error.outcome(&params.run, monitor),
        },
        Job::Receive { destination, link, once, demands } => match open(link, &teller.screen, monitor) {
            Ok(link) => return receive(destination, &link, &demands, monitor, once, teller),
            Err(error) => error.outcome(&demands.run, monitor),
        },
    };
    teller.tell(&outcome);
    outcome.exit
}

/// Serves runs, reports each of them when it ends, and finally the reason if this end cannot go on serving.
fn receive(
    destination: TreeLocation,
    link: &LinkOptions,
    demands: &Demands,
    monitor: &Monitor,
    once: bool,
    teller: &mut Teller,
) -> ExitCode {
    let outcome =
        session::receive(destination, link, demands, monitor, once, &mut |outcome| teller.tell(outcome));
    let told = teller.told.as_ref() == Some(&outcome.report);
    if !told && (once || outcome.exit != ExitCode::Done) {
        teller.tell(&outcome);
    }
    outcome.exit
}

/// Prepares the identity of an end; exchanges contacts with the peer first if another program passes them on.
pub(super) fn open(link: LinkConfig, screen: &Screen, monitor: &Monitor) -> Result<LinkOptions, LinkError> {
    match link {
        LinkConfig::Exchanged(exchange) => {
            Ok(exchange.link(|own| screen.event(&Event::Contact(own)), hear_contact, monitor)?)
        }
        LinkConfig::Known { endpoint, side, identity: path, connect_timeout } => {
            let identity = Identity::read(&path)?;
            if identity.side() != side {
                return Err(LinkError::OtherSide { path, of: identity.side(), end: side });
            }
            Ok(LinkOptions { endpoint, identity, connect_timeout })
        }
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
fn refused(run: &str, reason: &str, exit: ExitCode, message: String) -> Outcome {
    let now = contract::timestamp(SystemTime::now());
    let report = Report {
        run: run.into(),
        result: RunResult::Failed,
        reason: Some(reason.into()),
        message,
        start_time: now.clone(),
        completion_time: now,
        ..Report::default()
    };
    Outcome { report, exit, peer: None }
}

/// Reports runs that are over: as an event, in the report's file, and to people.
struct Teller {
    output: Output,
    screen: Arc<Screen>,
    live: Live,
    /// Whether this end serves run after run, so that the log has a line for each, with its peer and the time.
    serves: bool,
    told: Option<Report>,
}

impl Teller {
    fn tell(&mut self, outcome: &Outcome) {
        let report = &outcome.report;
        self.write(report);
        self.live.finish(report);
        let Output { log_format, quiet, verbosity, .. } = self.output;
        if self.serves || log_format == LogFormat::Json {
            run_log::log(outcome);
        }
        match log_format {
            // With `-v`, each failed file was logged when it failed.
            LogFormat::Json if verbosity > 0 => {}
            LogFormat::Json => run_log::log_failures(report),
            LogFormat::Text if quiet || self.serves => self.screen.say(&summary::trouble(report)),
            LogFormat::Text => self.screen.say(&summary::summary(report)),
        }
        self.told = Some(report.clone());
    }

    /// Writes the report to its file. A failure to do so changes neither the run nor its exit code.
    fn write(&self, report: &Report) {
        let Some(path) = &self.output.report else { return };
        let written = report_file::text(report).and_then(|text| match path == Path::new("-") {
            true => self.screen.line(text.trim_end()),
            false => report_file::write(path, &text),
        });
        if let Err(error) = written {
            tracing::error!(path = %path.display(), %error, "the report cannot be written");
        }
    }
}
