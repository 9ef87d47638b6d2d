//! Takes all peers that dial at once, with what each asks for. The caller decides when it is the turn of each.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contract::{BusyAnswer, Fingerprint, FolderAccess, FolderRequest, OwnKey, Side};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    measure::monitor::Monitor,
    transport::{
        TransportError,
        accepted_peers::Guests,
        quic::{
            busy_queue::{attend_to, closed},
            closing::close_and_tell,
            handshakes::{EndedHandshake, Handshakes, TurnedAway},
            link::Link,
            link_errors::identity_error,
            listener::Listener,
            port::{End, Port, server_config},
            proven_peer::Proven,
            pump::LinkOrigin,
            sockets::Sockets,
        },
        tls::{self, Hosts, LinkUse},
    },
    wire::code,
};

/// The most peers that have or await a session.
pub(crate) const MAX_VISITS: usize = 256;

/// The longest request, most of which can be a list of paths.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// How long a peer that has shown its key may take to say what it wants, and how many peers may do so at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
const MAX_HEARD: usize = 32;

/// How many of them may have one key, so that one peer does not keep out the others.
const MAX_HEARD_OF_PEER: usize = 4;

/// A visit of a peer, with what it asks for.
pub struct Asked<V> {
    /// The visit.
    pub visit: V,
    /// The request, which is not checked.
    pub request: FolderRequest,
}

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
            let configs = [config.clone(), config];
            let door = Listener::new(Some(sockets), None, hosts, configs, Side::Source, MAX_VISITS)?;
            let (handshakes, turned_away, hearing) = Default::default();
            Ok(Self { door, handshakes, turned_away, hearing, port: port.of_connection() })
        };
        listen().map_err(|error: io::Error| TransportError::Address { address, error: error.to_string() })
    }

    /// Waits for the next peer that has shown its key and said what it wants.
    pub(crate) fn next(&mut self, monitor: &Monitor) -> Result<Asked<Visitor>, TransportError> {
        let Self { door, handshakes, turned_away, hearing, port } = self;
        let heard = port.runtime.block_on(async {
            loop {
                tokio::select! {
                    () = monitor.until_cancelled() => return Err(TransportError::Canceled),
                    arrival = door.next() => handshakes.begin(arrival.ok_or_else(closed)?, door),
                    Some(EndedHandshake { from, shaken }) = handshakes.next() => match shaken {
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
        let visit = Visitor { met, peer, access, answers: None, port: port.of_connection() };
        Ok(Asked { visit, request })
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
        serde_json::from_slice(&request).ok().filter(FolderRequest::is_bounded)
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
    pub(crate) fn send_answer(&mut self, answer: BusyAnswer) {
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use contract::{Identity, service_job};
    use quinn::{ConnectionError, Endpoint, crypto::rustls::QuicClientConfig};
    use tokio::{runtime::Runtime, sync::oneshot};

    use super::*;
    use crate::transport::{
        quic::{
            LinkMode,
            open_endpoints::{over_udp, udp_socket},
        },
        tls::SERVER_NAME,
    };

    /// A service with two guests, and the runtime of the peers that dial it.
    struct Visited {
        port: ServicePort,
        address: SocketAddr,
        service: Fingerprint,
        guests: [OwnKey; 2],
        runtime: Arc<Runtime>,
    }

    impl Visited {
        fn new() -> Self {
            let [key, one, other] = [(); 3].map(|()| OwnKey::generate().unwrap());
            let (service, guests) = (key.fingerprint(), Guests::default());
            guests.replace([one.fingerprint(), other.fingerprint()]);
            let sockets = Sockets::bind(([127, 0, 0, 1], 0).into(), LinkMode::Udp).unwrap();
            let address = sockets.address();
            let port = ServicePort::listen(sockets, &[key], &guests).unwrap();
            let Port { runtime, .. } = Port::to_dial().unwrap();
            Self { port, address, service, guests: [one, other], runtime }
        }
    }

    /// A connection of a peer, which has said nothing.
    struct Dialled {
        connection: quinn::Connection,
        /// Drives the connection until it is dropped.
        _endpoint: Endpoint,
    }

    impl Dialled {
        async fn to((address, service): (SocketAddr, Fingerprint), key: &OwnKey) -> Self {
            let identity =
                Identity::of_key(key.clone(), Side::Source, &service_job(service), service).unwrap();
            let crypto = QuicClientConfig::try_from(tls::client(&identity).unwrap()).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let endpoint = over_udp(udp_socket(socket).unwrap(), None).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(crypto));
            let connecting = endpoint.connect_with(config, address, SERVER_NAME).unwrap();
            Self { connection: connecting.await.unwrap(), _endpoint: endpoint }
        }

        async fn ask(&self, request: &FolderRequest) {
            let mut words = self.connection.open_uni().await.unwrap();
            words.write_all(&serde_json::to_vec(request).unwrap()).await.unwrap();
            words.finish().unwrap();
        }

        /// Waits until the service closes the connection; returns the reason that it gives.
        async fn reason(&self) -> String {
            match self.connection.closed().await {
                ConnectionError::ApplicationClosed(close) => String::from_utf8_lossy(&close.reason).into(),
                other => panic!("{other}"),
            }
        }
    }

    fn request(paths: usize) -> FolderRequest {
        let (folder, path, access) = ("photos".into(), String::new(), FolderAccess::Read);
        let (params, paths) = (Default::default(), Some(vec![b"a".to_vec(); paths]));
        FolderRequest { folder, path, access, params, source_snapshot: None, paths, history: None }
    }

    #[test]
    fn a_peer_that_says_nothing_on_many_connections_is_cut_off_and_keeps_out_no_other() {
        let Visited { mut port, address, service, guests: [silent, other], runtime } = Visited::new();
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let (over, is_over) = oneshot::channel::<()>();
            let next = scope.spawn(|| {
                let _over = over;
                port.next(&monitor).map(|asked| asked.visit.peer)
            });
            runtime.block_on(async {
                let mut held = Vec::new();
                for _ in 0..MAX_HEARD_OF_PEER {
                    held.push(Dialled::to((address, service), &silent).await);
                }
                let one_more = Dialled::to((address, service), &silent).await;
                assert_eq!(one_more.reason().await, "too many peers at once");
                assert!(held.iter().all(|held| held.connection.close_reason().is_none()));
                let heard = Dialled::to((address, service), &other).await;
                heard.ask(&request(1)).await;
                // The thread drops its half at its end.
                let _ = is_over.await;
            });
            assert_eq!(next.join().unwrap().ok(), Some(other.fingerprint()));
        });
    }

    #[test]
    fn a_list_of_too_many_paths_is_no_request() {
        let Visited { mut port, address, service, guests: [peer, _], runtime } = Visited::new();
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let (over, is_over) = oneshot::channel::<()>();
            let next = scope.spawn(|| {
                let _over = over;
                port.next(&monitor).map(|asked| asked.request)
            });
            runtime.block_on(async {
                let refused = Dialled::to((address, service), &peer).await;
                refused.ask(&request(FolderRequest::MAX_PATHS + 1)).await;
                assert_eq!(refused.reason().await, "no request");
                let heard = Dialled::to((address, service), &peer).await;
                heard.ask(&request(FolderRequest::MAX_PATHS)).await;
                // The thread drops its half at its end.
                let _ = is_over.await;
            });
            assert_eq!(next.join().unwrap().ok(), Some(request(FolderRequest::MAX_PATHS)));
        });
    }
}
