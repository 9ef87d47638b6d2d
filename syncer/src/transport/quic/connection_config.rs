//! Sets up connections: windows, timers, packet sizes.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use contract::Side;
use quinn::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use rustix::net::sockopt;

use crate::{
    sys::cores::cores,
    transport::{
        congestion,
        quic::{
            silent_peer::{IDLE_TIMEOUT, KEEP_ALIVE},
            udp_socket::CALL_BYTES,
        },
    },
    wire::packets::MAX_PACKET_BYTES,
};

/// The most data streams. The sink holds up to a frame of each.
const MAX_DATA_STREAMS: usize = 8;

/// Unread data that one stream may hold.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// Unread data of all streams of a connection, on a near path and on a far one. Larger windows cost CPU on a near path;
/// 2 MiB carry 1 GB/s over 2 ms.
const NEAR_WINDOW_BYTES: u32 = 2 << 20;
const FAR_WINDOW_BYTES: u32 = 24 << 20;

/// Bytes that the kernel is asked to buffer for the socket; it may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

const IPV4_UDP_HEADERS: u32 = 28;
const IPV6_UDP_HEADERS: u32 = 48;

/// The largest payload that is probed for: the kernel takes four such packets in one call. Larger ones save no more CPU
/// (`syncer/doc/design.md`).
pub(super) const MAX_PAYLOAD: u16 = (CALL_BYTES / 4) as u16;

/// The payload that every path takes (RFC 9000, section 14).
const INITIAL_PAYLOAD: u16 = 1_200;

/// Returns the largest UDP payload of the interface towards `peer`.
fn link_payload(local: IpAddr, peer: SocketAddr) -> u16 {
    let route = || {
        let probe = UdpSocket::bind((local, 0)).ok()?;
        probe.connect(peer).ok()?;
        match peer {
            SocketAddr::V4(_) => sockopt::ip_mtu(&probe).ok()?.checked_sub(IPV4_UDP_HEADERS),
            SocketAddr::V6(_) => sockopt::ipv6_mtu(&probe).ok()?.checked_sub(IPV6_UDP_HEADERS),
        }
    };
    route().map_or(MAX_PAYLOAD, |payload| payload.min(MAX_PAYLOAD.into()) as u16)
}

/// Configures the end on this `side` of a connection from the address `local` to `peer`.
pub(super) fn transport_config(local: IpAddr, peer: SocketAddr, side: Side) -> Arc<TransportConfig> {
    let mut config = any_config();
    let payload = link_payload(local, peer);
    let mut mtu = MtuDiscoveryConfig::default();
    // Each probe costs a packet of its size in each direction, so there are only two: half and all.
    mtu.upper_bound(payload)
        .minimum_change((payload.saturating_sub(INITIAL_PAYLOAD) / 2).saturating_sub(1).max(20));
    config
        // A sink has little to send.
        .mtu_discovery_config((side == Side::Source).then_some(mtu))
        .congestion_controller_factory(Arc::new(congestion::Factory));
    Arc::new(config)
}

/// Configures an end of a connection over a stream of bytes, which takes packets of any size and loses none.
pub(super) fn stream_config() -> Arc<TransportConfig> {
    let mut config = any_config();
    config
        .initial_mtu(MAX_PACKET_BYTES as u16)
        .mtu_discovery_config(None)
        .congestion_controller_factory(Arc::new(congestion::OfStream));
    Arc::new(config)
}

fn any_config() -> TransportConfig {
    let mut config = TransportConfig::default();
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(16));
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_DATA_STREAMS as u32))
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(NEAR_WINDOW_BYTES))
        .send_window(u64::from(FAR_WINDOW_BYTES))
        .initial_rtt(Duration::from_millis(50))
        .ack_frequency_config(Some(acks))
        .datagram_receive_buffer_size(None);
    config
}

/// Enlarges the window of a connection over a far path.
pub(super) fn widen(connection: &quinn::Connection) {
    if connection.rtt() >= congestion::NEAR {
        connection.set_receive_window(VarInt::from_u32(FAR_WINDOW_BYTES));
    }
}

/// Returns the number of data streams: one for each core that can fill it.
pub(super) fn data_streams() -> usize {
    cores().min(MAX_DATA_STREAMS)
}

pub(super) fn enlarge_buffers(socket: &UdpSocket) {
    // The forced form ignores the system's limit if the process may do that; the other one respects it.
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER_BYTES);
}
