//! Takes all peers that dial at once, with what each asks for. The caller decides when it is the turn of each.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contract::{BusyAnswer, Fingerprint, FolderAccess, FolderRequest, OwnKey, Side};
use tokio::{sync::watch, task::JoinSet};

use super::{
    closing::close_and_tell,
    errors::identity_error,
    handshakes::{Handshakes, TurnedAway},
    link::Link,
    listener::Listener,
    port::{End, Port, server_config},
    proven::Proven,
    pump::LinkOrigin,
    queue::{attend_to, closed},
    sockets::Sockets,
};
use crate::{
    monitor::Monitor,
    transport::{
        TransportError,
        guests::Guests,
        tls::{self, Hosts, LinkUse},
    },
    wire::code,
};

/// The most peers that have or await a session.
pub(crate) const MAX_VISITS: usize = 256;

/// The longest request, most of which can be a list of paths.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The most paths of a request, whose list takes more memory than its bytes.
const MAX_PATHS: usize = 1 << 17;

/// How long a peer that has shown its key may take to say what it wants, and how many peers may do so at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
const MAX_HEARD: usize = 32;

/// How many of them may have one key, so that one peer does not keep out the others.
const MAX_HEARD_OF_PEER: usize = 4;

/// The port of a service.
pub(crate) struct ServicePort {
    door: Arc<Listener>,
    handshakes: Handshakes,
    turned_away: TurnedAway,
    /// Peers that say what they want.
    hearing: Hearing,
    /// Last, because the tasks above end with the runtime.
    port: Port,
}

/// The peers that say what they want, with the key of each.
#[derive(Default)]
struct Hearing {
    tasks: JoinSet<(Fingerprint, Option<Heard>)>,
    keys: Vec<Fingerprint>,
}

impl Hearing {
    /// Listens to a peer, unless there are too many.
    fn add(&mut self, met: Proven) {
        let Some(peer) = tls::peer_of(&met.connection) else { return };
        let of_peer = self.keys.iter().filter(|key| **key == peer).count();
        if self.keys.len() >= MAX_HEARD || of_peer >= MAX_HEARD_OF_PEER {
            return met.connection.close(code::FAILED.into(), b"too many peers at once");
        }
        self.keys.push(peer);
        self.tasks.spawn(async move { (peer, hear(met, peer).await) });
    }

    /// Returns the next peer that has said what it wants; `None` if nobody is left.
    async fn next(&mut self) -> Option<Heard> {
        while let Some(ended) = self.tasks.join_next().await {
            let Ok((peer, heard)) = ended else { continue };
            if let Some(at) = self.keys.iter().position(|key| *key == peer) {
                self.keys.swap_remove(at);
            }
            if heard.is_some() {
                return heard;
            }
        }
        None
    }
}

struct Heard {
    met: Proven,
    peer: Fingerprint,
    request: FolderRequest,
}

impl ServicePort {
    /// Listens with these keys for these guests.
    pub(crate) fn listen(sockets: Sockets, keys: &[OwnKey], guests: &Guests) -> Result<Self, TransportError> {
        let hosts = Hosts::of_service(keys, guests).map_err(|error| identity_error(&error))?;
        let config = server_config(&hosts, LinkUse::Queue)?;
        let address = sockets.address().to_string();
        let listen = || {
            let port = Port::to_dial()?;
            let _inside = port.runtime.enter();
            // A run that reads sends large packets.
            let keys = (hosts, [config.clone(), config]);
            let door = Listener::new(Some(sockets), None, keys, Side::Source, MAX_VISITS)?;
            let (handshakes, turned_away, hearing) = Default::default();
            Ok(Self { door, handshakes, turned_away, hearing, port: port.of_connection() })
        };
        listen().map_err(|error: io::Error| TransportError::Address { address, error: error.to_string() })
    }

    /// Waits for the next peer that has shown its key and said what it wants.
    pub(crate) fn next(&mut self, monitor: &Monitor) -> Result<(Visitor, FolderRequest), TransportError> {
        let Self { door, handshakes, turned_away, hearing, port } = self;
        let heard = port.runtime.block_on(async {
            loop {
                tokio::select! {
                    () = monitor.until_cancelled() => return Err(TransportError::Canceled),
                    arrival = door.next() => handshakes.begin(arrival.ok_or_else(closed)?, door),
                    Some((from, shaken)) = handshakes.next() => match shaken {
                        Ok(met) => hearing.add(met),
                        Err(Some(error)) => turned_away.add(from, &error),
                        Err(None) => {}
                    },
                    Some(heard) = hearing.next() => return Ok(heard),
                }
            }
        })?;
        let Heard { met, peer, request } = heard;
        let access = request.access;
        Ok((Visitor { met, peer, access, answers: None, port: port.of_connection() }, request))
    }
}

/// Reads what a peer wants. An empty request only asks whether its key is accepted.
async fn hear(met: Proven, peer: Fingerprint) -> Option<Heard> {
    let request = async {
        let mut words = met.connection.accept_uni().await.ok()?;
        let request = words.read_to_end(MAX_REQUEST_BYTES).await.ok()?;
        if request.is_empty() {
            met.connection.open_uni().await.ok()?.finish().ok()?;
            met.connection.closed().await;
        }
        serde_json::from_slice(&request).ok().filter(is_bounded)
    };
    let request = tokio::time::timeout(REQUEST_PATIENCE, request).await.ok().flatten();
    match request {
        Some(request) => Some(Heard { met, peer, request }),
        None => {
            met.connection.close(code::PROTOCOL.into(), b"no request");
            None
        }
    }
}

/// Returns whether a request takes no more memory than an honest one.
fn is_bounded(request: &FolderRequest) -> bool {
    request.paths.as_ref().is_none_or(|paths| paths.len() <= MAX_PATHS)
}

/// A peer of a service, before its turn. Dropping it sends it away.
pub(crate) struct Visitor {
    met: Proven,
    pub(crate) peer: Fingerprint,
    /// What the peer wants to do with a folder.
    pub(crate) access: FolderAccess,
    /// Tells the peer its place in the queue, once it has one.
    answers: Option<watch::Sender<Option<BusyAnswer>>>,
    port: Port,
}

impl Visitor {
    /// Returns the peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.met.connection.remote_address()
    }

    /// Returns whether the peer has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.met.connection.close_reason().is_some()
    }

    /// Tells the peer that it has to wait.
    pub(crate) fn tell(&mut self, answer: BusyAnswer) {
        self.answer(Some(answer));
    }

    /// Begins the peer's session.
    pub(crate) fn begin(mut self, end: End) -> Link {
        if self.answers.is_some() {
            self.met.began = Instant::now();
        }
        self.answer(None);
        let Self { met, port, .. } = self;
        Link::start(port, met, end, LinkOrigin::Accepted, None)
    }

    /// Sends the peer away, as a service that ends does. It dials again.
    pub(crate) fn send_away(self) {
        close_and_tell(&self.met.connection, code::DONE);
    }

    fn answer(&mut self, answer: Option<BusyAnswer>) {
        let Some(answers) = &self.answers else {
            let answers = watch::Sender::new(answer);
            let attend = attend_to(self.met.connection.clone(), answers.subscribe());
            self.port.runtime.spawn(attend);
            self.answers = Some(answers);
            return;
        };
        answers.send_if_modified(|told| {
            let is_new = *told != answer;
            *told = answer;
            is_new
        });
    }
}
