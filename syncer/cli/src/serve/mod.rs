//! `volferry serve`: folders for many peers at one port.

mod folder_queue;
mod folders_apart;
mod http;
mod log_refused_peers;
mod peers;
mod readers_params;
mod reload;
mod revoked_sessions;
mod rules;
pub(crate) mod service_config;
mod service_metrics;
mod service_state;
mod systemd;
mod trusted_file;
mod visit;
mod visits_per_key;

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, Scope},
};

use contract::{Event, ExitCode, IdentityError, chain};
use sd_notify::NotifyState;
use syncer::{
    monitor::Monitor,
    session::{Asked, Service, SessionError, Sockets},
};
use thiserror::Error;

use crate::{
    config::{ChangeForm, Output, ProgressMode, Surroundings},
    flags::ServeFlags,
    logging::{self, Reader},
    messages,
    run_log::RUNS,
    screen::Screen,
    users_service_keys::read_or_make,
};
use reload::{listen_for_signals, obey};
use rules::{Rules, RulesError};
use service_state::ServiceState;
use systemd::{notify, passed_sockets};
use visits_per_key::Visits;

/// Why a service cannot start, or ends.
#[derive(Debug, Error)]
enum ServeError {
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Key(#[from] IdentityError),
    #[error("the sockets that this process was given cannot be used")]
    GivenSockets(#[source] io::Error),
    #[error("cannot listen for metrics on {address}")]
    Metrics { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("no thread for signals or peers")]
    Thread(#[source] io::Error),
}

impl ServeError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Rules(_) => ExitCode::Usage,
            Self::Key(_) => ExitCode::Identity,
            _ => ExitCode::Failed,
        }
    }
}

/// Serves folders until the process is told to stop.
pub(super) fn run(flags: &ServeFlags, surroundings: Surroundings) -> ExitCode {
    let screen = Arc::new(Screen::new(false));
    logging::start(&output(flags, surroundings), Reader::LooksBack, &screen);
    let served = if flags.check { check(&flags.config, &screen) } else { serve(flags, &screen) };
    match served {
        Ok(()) => ExitCode::Done,
        Err(error) => {
            let hint = match &error {
                ServeError::Rules(RulesError::Config(error)) => error.hint_of_service(),
                _ => None,
            };
            screen.say(&format!("error: {}\n{}", chain(&error), hint.unwrap_or_default()));
            error.exit()
        }
    }
}

/// Reads all files of the service, and warns of paths that are not there.
fn check(config: &Path, screen: &Screen) -> Result<(), ServeError> {
    let rules = Rules::read(config)?;
    for missing in rules.config.missing() {
        screen.say(&messages::lines("warning", &missing));
    }
    Ok(())
}

fn output(flags: &ServeFlags, surroundings: Surroundings) -> Output {
    Output {
        check_free: false,
        report: None,
        progress: ProgressMode::None,
        quiet: false,
        color: surroundings.terminal && surroundings.cursor && surroundings.color,
        verbosity: flags.verbose,
        changes: ChangeForm::Log,
        log_format: flags.log_format,
        log_file: None,
    }
}

fn serve(flags: &ServeFlags, screen: &Arc<Screen>) -> Result<(), ServeError> {
    let path = &flags.config;
    let (asks, asked) = mpsc::channel();
    listen_for_signals(asks).map_err(ServeError::Thread)?;
    let rules = Rules::read(path)?;
    let config = rules.config.clone();
    let state = Arc::new(ServiceState::new(path, rules, flags.events.then(|| Arc::clone(screen))));
    let keys = config.keys.iter().map(|path| read_or_make(path)).collect::<Result<Vec<_>, _>>()?;
    let sockets = match passed_sockets().map_err(ServeError::GivenSockets)? {
        Some(given) => given,
        None => Sockets::bind(config.listen, config.mode).map_err(SessionError::from)?,
    };
    let address = sockets.address();
    let service = Service::listen(sockets, &keys, state.guests())?;
    if let Some(address) = config.metrics {
        let started = http::start(address, Arc::clone(&state));
        let address = started.map_err(|source| ServeError::Metrics { address, source })?;
        tracing::info!(target: RUNS, %address, "metrics are at /metrics");
    }
    let key = keys.first().map(|key| key.public().to_string()).unwrap_or_default();
    tracing::info!(target: RUNS, %address, key, folders = config.folders.len(), "the service listens");
    if let Err(error) = screen.event(&Event::Listening { address: address.to_string() }) {
        tracing::warn!(%error, "cannot say on standard output where the service listens");
    }
    notify(&[NotifyState::Ready]);
    thread::scope(|scope| {
        let stop = Arc::new(Monitor::default());
        let (accepting, shared) = (Arc::clone(&stop), &*state);
        let accept = scope.spawn(move || accept(scope, service, shared, &accepting));
        obey(&state, &asked, || accept.is_finished());
        notify(&[NotifyState::Stopping]);
        stop.cancel();
        let ended = accept.join().unwrap_or(Ok(()));
        state.stop();
        ended
    })
}

/// Takes peers, each on a thread of its own, until told to stop.
fn accept<'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut service: Service,
    state: &'scope ServiceState,
    stop: &Monitor,
) -> Result<(), ServeError> {
    let visits = Visits::default();
    let numbers = AtomicU64::new(0);
    loop {
        let Asked { visit, request } = match service.next(stop) {
            Ok(asked) => asked,
            Err(_) if stop.cancelled() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (key, address) = (visit.peer(), visit.address());
        // A peer that is dropped dials again.
        if !visits.begin(key) {
            state.refused.add(Some(address), "too many peers at once, or with one key");
            continue;
        }
        let (number, counted) = (numbers.fetch_add(1, Relaxed), visits.clone());
        let serve = move || {
            visit::serve(state, number, visit, request);
            counted.end(key);
        };
        if let Err(error) = thread::Builder::new().name("visit".into()).spawn_scoped(scope, serve) {
            visits.end(key);
            state.refused.add(Some(address), &format!("no thread for it: {error}"));
        }
    }
}
