//! Ports for programs that are told where to listen. The system gives none of them to another socket, so that a program
//! may begin to listen later, and again after its end.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    ops::Range,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Below those that Linux chooses (`net.ipv4.ip_local_port_range`), and above those of most services.
const PORTS: Range<u16> = 12_000..32_000;

/// The number of the next port, which begins anywhere, because other test programs take ports, too.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(()) >> 1));

/// Returns an address of this machine at which nothing listens, for UDP and TCP; another one with each call.
pub fn unused() -> SocketAddr {
    loop {
        let port = PORTS.start + (NEXT.fetch_add(1, Relaxed) % u64::from(PORTS.end - PORTS.start)) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
