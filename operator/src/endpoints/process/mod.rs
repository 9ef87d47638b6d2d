//! `volferry-operator endpoint`: PID 1 of the pod of a SyncEndpoint.
//!
//! It makes the endpoint's key or finds it, writes the files of `volferry serve` from the spec, starts it, has it read
//! the files again whenever the spec changes, and writes to the status who came. It follows the SyncEndpoint itself, so
//! that a key that is taken out is refused within moments, and no ConfigMap is in between.

mod args;
mod follow_spec;
mod service_error;
mod visitors;

use std::{ffi::OsString, time::Duration};

use contract::{Event, ExitCode, PublicKey, chain};
use futures::{Stream, StreamExt as _, stream::BoxStream};
use kube::{
    Api, Client, Config, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{sync::watch, time::timeout};

pub use self::args::ServiceArgs;
use self::{
    follow_spec::{Files, Running},
    service_error::ServiceError,
    visitors::{Ledger, Recorder},
};
use super::endpoint_objects::{FORMER_KEY, KEY_ENTRY, labels};
use crate::{
    agent::own_key::{self, KeyPlace, KeySecret},
    api::SyncEndpoint,
    engine::process::Syncer,
    pods::owner,
    signals::Stops,
};

/// How long to wait until the endpoint's key is stored.
const KEY_PATIENCE: Duration = Duration::from_secs(300);

/// How long the last write of the status may take.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Serves an endpoint until a signal asks to stop, and returns the exit status for this process.
pub async fn run(args: &ServiceArgs) -> i32 {
    match serve(args).await {
        Ok(status) => status,
        Err(error) => {
            tracing::error!("{}", chain(&error));
            ExitCode::Failed as i32
        }
    }
}

/// What the watch of the endpoint has brought.
#[derive(Debug)]
enum EndpointChange {
    Is(Box<SyncEndpoint>),
    Gone,
}

async fn serve(args: &ServiceArgs) -> Result<i32, ServiceError> {
    let mut stops = Stops::new().map_err(ServiceError::Signals)?;
    let config = Config::infer().await.map_err(kube::Error::InferConfig).map_err(ServiceError::Client)?;
    let client = Client::try_from(config).map_err(ServiceError::Client)?;
    let mut changes = changes(args, &client).boxed();
    let endpoint = tokio::select! {
        first = changes.next() => match first {
            Some(EndpointChange::Is(endpoint)) => endpoint,
            Some(EndpointChange::Gone) | None => return Ok(0),
        },
        () = stops.next() => return Ok(0),
    };
    let recorder = Recorder::new(args, &client);
    let place = key_place(args);
    // Without a key in the status, the operator grants the right to store one.
    let key = tokio::select! {
        ensured = own_key::ensure(&place, Some(&client), async || recorder.forget_key().await) => ensured?,
        () = stops.next() => return Ok(0),
    };
    let former = args.state.join(FORMER_KEY);
    let has_former = own_key::take_mounted(&args.former_key, &former)?;
    // Peers are shown the key that they know. The first one is the one that the service calls its own.
    let files = Files { args, keys: [place.copy].into_iter().chain(has_former.then_some(former)).collect() };
    files.write(&endpoint)?;
    let (program, rest) =
        args.command.split_first().map_or((OsString::new(), &[][..]), |(p, rest)| (p.clone(), rest));
    let rest = rest.iter().cloned().chain(["--events".into(), files.config().into()]);
    let syncer = Syncer::start(program.into(), rest)?;
    let running = Running { syncer, is_up: false, is_stale: false };
    let service = Service { key: key.public(), files, recorder, running };
    service.attend(&endpoint, changes, stops).await
}

fn key_place(args: &ServiceArgs) -> KeyPlace {
    KeyPlace {
        mounted: args.key.clone(),
        copy: args.state.join(KEY_ENTRY),
        secret: Some(KeySecret {
            namespace: args.namespace.clone(),
            name: args.key_secret.clone(),
            entry: KEY_ENTRY,
            labels: labels(&args.name),
            owner: owner::<SyncEndpoint>(&args.name, &args.uid),
        }),
        patience: KEY_PATIENCE,
        patience_for_right: KEY_PATIENCE,
    }
}

/// A service that runs.
struct Service<'a> {
    key: PublicKey,
    files: Files<'a>,
    recorder: Recorder,
    running: Running,
}

impl Service<'_> {
    /// Has the service follow the endpoint, and writes to the status what it says, until it ends.
    async fn attend(
        mut self,
        endpoint: &SyncEndpoint,
        mut changes: BoxStream<'static, EndpointChange>,
        mut stops: Stops,
    ) -> Result<i32, ServiceError> {
        let (ledger, latest) = watch::channel(Ledger::of(endpoint.status.as_ref()));
        let mut keeping = Box::pin(self.recorder.keep(self.key, latest));
        loop {
            tokio::select! {
                event = self.running.syncer.next_event() => match event {
                    Some(Event::Served(run)) => ledger.send_modify(|ledger| ledger.add(*run)),
                    Some(Event::Listening { address }) => {
                        tracing::info!(address, key = %self.key, "serving");
                        self.running.listens();
                    }
                    Some(_) => {}
                    None => break,
                },
                () = &mut keeping => {}
                change = changes.next() => match change {
                    Some(EndpointChange::Is(endpoint)) => {
                        self.running.follow(&self.files, &endpoint);
                        if !says(&endpoint, self.key) {
                            ledger.send_modify(|_| ());
                        }
                    }
                    Some(EndpointChange::Gone) | None => self.running.syncer.terminate(),
                },
                () = stops.next() => self.running.syncer.terminate(),
            }
        }
        let exit = self.running.syncer.wait().await?;
        drop(keeping);
        let last = ledger.borrow().clone();
        let _ = timeout(LAST_WRITE, self.recorder.close(self.key, &last)).await;
        Ok(exit.code())
    }
}

/// Returns whether the status has the endpoint's key.
fn says(endpoint: &SyncEndpoint, key: PublicKey) -> bool {
    endpoint.status.as_ref().and_then(|status| status.public_key.as_ref()) == Some(&key.to_string())
}

/// Follows the endpoint. Another one of its name is as good as none.
fn changes(args: &ServiceArgs, client: &Client) -> impl Stream<Item = EndpointChange> + use<> {
    let api = Api::<SyncEndpoint>::namespaced(client.clone(), &args.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", args.name));
    let uid = args.uid.clone();
    let is_own =
        move |it: &SyncEndpoint| it.uid().as_ref() == Some(&uid) && it.metadata.deletion_timestamp.is_none();
    // A list without the endpoint says that it is gone.
    let mut listed = false;
    let events = watcher(api, config).default_backoff();
    events.filter_map(move |event| {
        let change = match event {
            Ok(watcher::Event::Init) => {
                listed = false;
                None
            }
            Ok(watcher::Event::InitApply(it) | watcher::Event::Apply(it)) if is_own(&it) => {
                listed = true;
                Some(EndpointChange::Is(Box::new(it)))
            }
            Ok(watcher::Event::Delete(_) | watcher::Event::Apply(_)) => Some(EndpointChange::Gone),
            Ok(watcher::Event::InitDone) => (!listed).then_some(EndpointChange::Gone),
            Ok(_) => None,
            Err(error) => {
                tracing::info!(error = chain(&error), "the SyncEndpoint cannot be followed at present");
                None
            }
        };
        std::future::ready(change)
    })
}
