//! A link between two ends that holds all datagrams back after a number of bytes: a moment in the middle of a run that
//! does not depend on the machine's speed.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;

use super::process::PATIENCE;

/// The largest payload of a UDP datagram.
const DATAGRAM_BYTES: usize = 65_536;

/// The number of datagrams that are held at most; a sender whose peer is silent soon stops sending.
const MAX_HELD: usize = 20_000;

/// Carries datagrams between the client, which dials [`Relay::address`], and the target.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    holds: mpsc::Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    front: UdpSocket,
    back: UdpSocket,
    target: SocketAddr,
    state: Mutex<State>,
    stop: AtomicBool,
    tell: mpsc::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// The client that sent a datagram last.
    client: Option<SocketAddr>,
    /// The bytes that may still pass, in both directions together.
    left: u64,
    /// The bytes that have passed.
    crossed: u64,
    held: Vec<(Towards, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy)]
enum Towards {
    Target,
    Client,
}

impl Relay {
    /// Starts a relay to `target` that carries about `bytes`, then holds all datagrams.
    pub fn start(target: SocketAddr, bytes: u64) -> Self {
        let (tell, holds) = mpsc::channel();
        let shared = Arc::new(Shared {
            front: UdpSocket::bind("127.0.0.1:0").unwrap(),
            back: UdpSocket::bind("127.0.0.1:0").unwrap(),
            target,
            state: Mutex::new(State { client: None, left: bytes, crossed: 0, held: Vec::new() }),
            stop: AtomicBool::new(false),
            tell,
        });
        let start = |towards| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.carry(towards))
        };
        let threads = vec![start(Towards::Target), start(Towards::Client)];
        Self { shared, holds, threads }
    }

    /// Returns the address that the client dials.
    pub fn address(&self) -> SocketAddr {
        self.shared.front.local_addr().unwrap()
    }

    /// Waits until the relay holds datagrams.
    #[track_caller]
    pub fn wait_holding(&self) {
        self.holds.recv_timeout(PATIENCE).expect("fewer bytes crossed than the link carries");
    }

    /// Returns the number of bytes that have passed so far, in both directions together.
    pub fn crossed(&self) -> u64 {
        self.shared.state.lock().crossed
    }

    /// Lets all datagrams pass, beginning with the held ones in their order.
    pub fn release(&self) {
        let mut state = self.shared.state.lock();
        state.left = u64::MAX;
        let held = std::mem::take(&mut state.held);
        state.crossed += held.iter().map(|(_, datagram)| datagram.len() as u64).sum::<u64>();
        held.iter().for_each(|(towards, datagram)| self.shared.send(*towards, &state, datagram));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        let wake = UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&self.shared.front, &self.shared.back] {
            let _ = wake.send_to(&[], socket.local_addr().unwrap());
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn carry(&self, towards: Towards) {
        let socket = match towards {
            Towards::Target => &self.front,
            Towards::Client => &self.back,
        };
        let mut buffer = vec![0; DATAGRAM_BYTES];
        // The kernel reports an error while no socket is open at the other side.
        while !self.stop.load(SeqCst) {
            if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                self.pass(towards, from, &buffer[..len]);
            }
        }
    }

    fn pass(&self, towards: Towards, from: SocketAddr, datagram: &[u8]) {
        let mut state = self.state.lock();
        if let Towards::Target = towards {
            state.client = Some(from);
        }
        let len = datagram.len() as u64;
        let passes = state.left >= len;
        // Once a datagram was too large, smaller ones do not pass either.
        state.left = state.left.saturating_sub(len);
        if passes {
            state.crossed += len;
            self.send(towards, &state, datagram);
            return;
        }
        if state.held.len() < MAX_HELD {
            state.held.push((towards, datagram.to_vec()));
        }
        let _ = self.tell.send(());
    }

    fn send(&self, towards: Towards, state: &State, datagram: &[u8]) {
        let _ = match (towards, state.client) {
            (Towards::Target, _) => self.back.send_to(datagram, self.target),
            (Towards::Client, Some(client)) => self.front.send_to(datagram, client),
            (Towards::Client, None) => Ok(0),
        };
    }
}
