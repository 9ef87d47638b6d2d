//! A UDP relay that behaves like a link with delay, loss and reordering, for machines whose kernel has no netem. It can
//! hold all datagrams back after a number of bytes: a moment in the middle of a run, at any speed of the machine.
//!
//! Clients send to its front address; it forwards to one target, from a separate socket for each client, and returns
//! the answers. One thread does all the work, with the kernel's offloads (many datagrams per call), so that the relay
//! does not limit a measurement.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
    thread::JoinHandle,
    time::Instant,
};

use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use quinn_udp::EcnCodepoint;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::PipeFlags,
};

use crate::{
    link::{Link, LinkConfig, LinkStats},
    process::PATIENCE,
    socket::{Received, Socket},
};

/// The maximum payload of UDP over IPv4 in bytes; segments that are sent together must not exceed it.
const MAX_BURST_BYTES: usize = 65_507;

/// The number of datagrams that a direction holds at most; a sender whose peer is silent soon stops sending.
const MAX_HELD: usize = 20_000;

/// The traffic through a relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RelayStats {
    /// From clients to the target.
    pub up: LinkStats,
    /// From the target to clients.
    pub down: LinkStats,
}

/// A running relay; it stops when this value is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Wakes the thread by a byte, and ends it when closed.
    control: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    holds: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stats: RelayStats,
    /// The bytes that may still pass, in both directions together; `None` for any number.
    left: Option<u64>,
    holds: bool,
}

impl Relay {
    /// Starts a relay from `listen` (port 0 chooses a free one) to `target`.
    pub fn start(config: LinkConfig, listen: SocketAddr, target: SocketAddr) -> anyhow::Result<Self> {
        Self::start_with(config, listen, target, None)
    }

    /// Starts a relay to `target` that carries about `bytes` at once, then holds all datagrams.
    pub fn holding(target: SocketAddr, bytes: u64) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::start_with(LinkConfig::CLEAN, listen, target, Some(bytes)).unwrap()
    }

    fn start_with(
        config: LinkConfig,
        listen: SocketAddr,
        target: SocketAddr,
        left: Option<u64>,
    ) -> anyhow::Result<Self> {
        let front = Socket::bind(listen).with_context(|| format!("binding {listen}"))?;
        let address = front.socket.local_addr()?;
        let (commands, control) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let shared = Arc::<Shared>::default();
        shared.state.lock().left = left;
        let mut worker = Worker::new(config, front, target, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || {
            if let Err(error) = worker.serve(&commands) {
                eprintln!("the relay at {address} failed: {error:#}");
            }
        })?;
        Ok(Self { address, shared, control: Some(control), thread: Some(thread) })
    }

    /// Returns the address that clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the traffic so far.
    pub fn stats(&self) -> RelayStats {
        self.shared.state.lock().stats
    }

    /// Returns the number of bytes that have passed so far, in both directions together.
    pub fn crossed(&self) -> u64 {
        let RelayStats { up, down } = self.stats();
        up.offered_bytes + down.offered_bytes
    }

    /// Waits until the relay holds datagrams.
    #[track_caller]
    pub fn wait_holding(&self) {
        let mut state = self.shared.state.lock();
        let waited = self.shared.holds.wait_while_for(&mut state, |state| !state.holds, PATIENCE);
        assert!(!waited.timed_out(), "fewer bytes crossed than the link carries");
    }

    /// Lets all datagrams pass, beginning with the held ones in their order.
    pub fn release(&self) {
        self.shared.state.lock().left = None;
        rustix::io::write(self.control.as_ref().unwrap(), b"!").unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The worker notices the closed pipe.
        self.control = None;
        if let Some(thread) = self.thread.take() {
            // It has logged its error; a panic has been printed.
            let _ = thread.join();
        }
    }
}

struct Worker {
    front: Socket,
    target: SocketAddr,
    flows: Vec<Flow>,
    flow_of: HashMap<SocketAddr, usize>,
    up: Direction,
    down: Direction,
    received: Received,
    burst: Vec<u8>,
    shared: Arc<Shared>,
}

/// One direction of the link, and the datagrams that are held before it.
struct Direction {
    link: Link<Datagram>,
    held: Vec<Datagram>,
    shared: Arc<Shared>,
}

/// A client, and the socket that represents it at the target.
struct Flow {
    client: SocketAddr,
    back: Socket,
}

struct Datagram {
    flow: usize,
    ecn: Option<EcnCodepoint>,
    bytes: Box<[u8]>,
}

impl Worker {
    fn new(config: LinkConfig, front: Socket, target: SocketAddr, shared: Arc<Shared>) -> Self {
        let direction = |number| {
            let link = Link::new(config, number);
            Direction { link, held: Vec::new(), shared: Arc::clone(&shared) }
        };
        Self {
            front,
            target,
            flows: Vec::new(),
            flow_of: HashMap::new(),
            up: direction(0),
            down: direction(1),
            received: Received::new(),
            burst: Vec::with_capacity(MAX_BURST_BYTES),
            shared,
        }
    }

    fn serve(&mut self, commands: &OwnedFd) -> anyhow::Result<()> {
        while self.wait(commands)? {
            [&mut self.up, &mut self.down].into_iter().for_each(Direction::release);
            self.read_front()?;
            (0..self.flows.len()).try_for_each(|flow| self.read_back(flow))?;
            // Updated before datagrams are delivered, so that a receiver finds each of them counted.
            let stats = RelayStats { up: self.up.link.stats(), down: self.down.link.stats() };
            self.shared.state.lock().stats = stats;
            self.forward()?;
        }
        Ok(())
    }

    /// Waits until a datagram arrives, is due or is released; returns false when the relay has to stop.
    fn wait(&self, commands: &OwnedFd) -> anyhow::Result<bool> {
        let mut fds = vec![PollFd::new(commands, PollFlags::IN)];
        fds.push(PollFd::new(&self.front.socket, PollFlags::IN));
        fds.extend(self.flows.iter().map(|flow| PollFd::new(&flow.back.socket, PollFlags::IN)));
        let due = [&self.up, &self.down].into_iter().filter_map(|way| way.link.next_due()).min();
        let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(Timespec::try_from).transpose()?;
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => other?,
        };
        let is_told = !fds[0].revents().is_empty();
        // Nothing can be read once the other end is closed.
        Ok(!is_told || rustix::io::read(commands, &mut [0; 1])? > 0)
    }

    fn read_front(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.received.read(&self.front)?;
        for (meta, bytes) in self.received.datagrams() {
            let flow = match self.flow_of.get(&meta.addr) {
                Some(flow) => *flow,
                None => {
                    let back = Socket::bind(unspecified(self.target))?;
                    self.flows.push(Flow { client: meta.addr, back });
                    self.flow_of.insert(meta.addr, self.flows.len() - 1);
                    self.flows.len() - 1
                }
            };
            self.up.offer(now, Datagram { flow, ecn: meta.ecn, bytes: bytes.into() });
        }
        Ok(())
    }

    fn read_back(&mut self, flow: usize) -> io::Result<()> {
        let now = Instant::now();
        self.received.read(&self.flows[flow].back)?;
        for (meta, bytes) in self.received.datagrams().filter(|(meta, _)| meta.addr == self.target) {
            self.down.offer(now, Datagram { flow, ecn: meta.ecn, bytes: bytes.into() });
        }
        Ok(())
    }

    fn forward(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let (flows, target, front) = (&self.flows, self.target, &self.front);
        send_due(&mut self.up.link, now, &mut self.burst, |flow| Route {
            from: &flows[flow].back,
            to: target,
        })?;
        send_due(&mut self.down.link, now, &mut self.burst, |flow| Route {
            from: front,
            to: flows[flow].client,
        })
    }
}

impl Direction {
    /// Sends a datagram into the link, or holds it if it is beyond the bytes that may pass.
    fn offer(&mut self, now: Instant, datagram: Datagram) {
        let len = datagram.bytes.len();
        if self.shared.admits(len as u64) {
            self.link.offer(now, len, datagram);
        } else if self.held.len() < MAX_HELD {
            self.held.push(datagram);
        }
    }

    /// Sends the held datagrams into the link, if they may pass now.
    fn release(&mut self) {
        if !self.held.is_empty() && self.shared.state.lock().left.is_none() {
            let now = Instant::now();
            std::mem::take(&mut self.held).into_iter().for_each(|datagram| self.offer(now, datagram));
        }
    }
}

impl Shared {
    fn admits(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let Some(left) = state.left else { return true };
        // Once a datagram was too large, smaller ones do not pass either.
        state.left = Some(left.saturating_sub(bytes));
        if left < bytes {
            state.holds = true;
            self.holds.notify_all();
        }
        left >= bytes
    }
}

/// The way of a datagram behind the link.
struct Route<'a> {
    from: &'a Socket,
    to: SocketAddr,
}

/// Sends all datagrams that have reached the end of the link. Consecutive datagrams of one flow and of equal size (the
/// last may be shorter) are sent in one call.
fn send_due<'a>(
    link: &mut Link<Datagram>,
    now: Instant,
    burst: &mut Vec<u8>,
    route: impl Fn(usize) -> Route<'a>,
) -> io::Result<()> {
    let mut next = link.take(now);
    while let Some(first) = next.take() {
        let Route { from, to } = route(first.flow);
        let size = first.bytes.len();
        let most = (MAX_BURST_BYTES / size.max(1)).clamp(1, from.state.max_gso_segments());
        burst.clear();
        burst.extend_from_slice(&first.bytes);
        let mut count = 1;
        while burst.len() == count * size && count < most {
            next = link.take(now);
            match &next {
                Some(more)
                    if more.flow == first.flow
                        && more.ecn == first.ecn
                        && (1..=size).contains(&more.bytes.len()) =>
                {
                    burst.extend_from_slice(&more.bytes);
                    next = None;
                    count += 1;
                }
                _ => break,
            }
        }
        from.send(to, first.ecn, burst, (count > 1).then_some(size))?;
        next = next.or_else(|| link.take(now));
    }
    Ok(())
}

fn unspecified(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, time::Duration};

    use super::*;
    use crate::socket::enlarge;

    const CLEAN: LinkConfig = LinkConfig::CLEAN;

    /// Returns a client, the server's socket, and a relay between them.
    fn connect(config: LinkConfig) -> (UdpSocket, UdpSocket, Relay) {
        let local: SocketAddr = ([127, 0, 0, 1], 0).into();
        let server = UdpSocket::bind(local).unwrap();
        let relay = Relay::start(config, local, server.local_addr().unwrap()).unwrap();
        let client = UdpSocket::bind(local).unwrap();
        client.connect(relay.address()).unwrap();
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            enlarge(socket).unwrap();
        }
        (client, server, relay)
    }

    #[test]
    fn a_question_and_its_answer_take_a_round_trip() {
        let (client, server, _relay) = connect(LinkConfig { rtt: Duration::from_millis(40), ..CLEAN });
        let mut buffer = [0; 100];
        let start = Instant::now();
        client.send(b"question").unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"question");
        server.send_to(b"answer", from).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"answer");
        // No upper bound: the relay cannot guarantee how soon a busy machine wakes it.
        assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    }

    #[test]
    fn each_client_gets_its_own_answers() {
        let (first, server, relay) = connect(CLEAN);
        let second = UdpSocket::bind("127.0.0.1:0").unwrap();
        second.connect(relay.address()).unwrap();
        second.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        first.send(b"1").unwrap();
        second.send(b"2").unwrap();
        let mut buffer = [0; 10];
        for _ in 0..2 {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..length], from).unwrap();
        }
        for (client, expected) in [(&first, b"1"), (&second, b"2")] {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected);
        }
    }

    #[test]
    fn sizes_and_bytes_survive_what_the_kernel_joins() {
        let (client, server, relay) = connect(CLEAN);
        let sizes: Vec<usize> = (0..200).map(|number| [1200, 1200, 700, 1, 1452][number % 5]).collect();
        for (number, size) in sizes.iter().enumerate() {
            client.send(&vec![number as u8; *size]).unwrap();
        }
        let mut buffer = [0; 2000];
        for (number, size) in sizes.iter().enumerate() {
            let (length, _) = server.recv_from(&mut buffer).unwrap();
            assert_eq!((length, buffer[0], buffer[length - 1]), (*size, number as u8, number as u8));
        }
        assert_eq!(relay.stats().up.offered, 200);
    }

    #[test]
    fn what_the_link_loses_does_not_arrive() {
        let (client, server, relay) = connect(LinkConfig { loss: 0.2, ..CLEAN });
        let mut buffer = [0; 10];
        for _ in 0..1000 {
            client.send(b"x").unwrap();
        }
        let mut arrived = 0;
        while relay.stats().up.offered < 1000 || arrived < 1000 - relay.stats().up.lost {
            server.recv_from(&mut buffer).unwrap();
            arrived += 1;
        }
        server.set_nonblocking(true).unwrap();
        assert!(server.recv_from(&mut buffer).is_err());
        assert!((150..250).contains(&relay.stats().up.lost), "{:?}", relay.stats().up);
    }
}
