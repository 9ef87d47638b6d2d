//! Takes the sockets that systemd passes on, and tells it the state of the service.

use std::io;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use syncer::session::Sockets;

/// Returns the sockets that systemd passes on, if it does.
pub(super) fn passed_sockets() -> io::Result<Option<Sockets>> {
    let mut given = ListenFd::from_env();
    if given.len() == 0 {
        return Ok(None);
    }
    let (mut udp, mut tcp) = (None, None);
    for at in 0..given.len() {
        match given.take_udp_socket(at) {
            Ok(socket) => udp = udp.or(socket),
            Err(_) => tcp = tcp.or(given.take_tcp_listener(at)?),
        }
    }
    Sockets::of_bound(udp, tcp).map(Some)
}

/// Tells systemd the state of the service, if it has started it.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}
