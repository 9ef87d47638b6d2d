//! Chooses the congestion controller of a path by its round trip.
//!
//! Within a machine or a building, a loss means a full buffer, and Cubic fills the link at once. On longer paths losses
//! are often random, and BBR is faster: `syncer/doc/design.md` has figures. Both are kept up to date, and the shortest
//! round trip seen decides.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn::congestion::{BbrConfig, Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

/// Paths with shorter round trips are near.
pub(super) const NEAR: Duration = Duration::from_millis(2);

/// Bytes that may be sent on a near path before the first acknowledgement: a socket's buffer.
const NEAR_WINDOW_BYTES: u64 = 1 << 20;

/// Makes a [`ByRoundTrip`] for each path.
#[derive(Debug, Default)]
pub(super) struct Factory;

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(NEAR_WINDOW_BYTES);
        Box::new(ByRoundTrip {
            near: Arc::new(cubic).build(now, current_mtu),
            far: past_first_probe(Arc::new(BbrConfig::default()).build(now, current_mtu), now),
            shortest: Duration::MAX,
            losses: Losses::default(),
        })
    }
}

/// Moves a new BBR past its first probe for the shortest round trip, which would otherwise take six round trips of
/// every run over 50 ms. quinn's BBR probes every ten seconds, with almost no data in flight, and for the first time
/// when there is data to send.
fn past_first_probe(mut bbr: Box<dyn Controller>, now: Instant) -> Box<dyn Controller> {
    for ago in [2, 1] {
        if let Some(then) = now.checked_sub(Duration::from_secs(ago)) {
            bbr.on_end_acks(then, 0, false, None);
        }
    }
    bbr
}

/// Makes the controller of a path over a stream, on which no packet is lost and the stream itself slows this end down.
#[derive(Debug, Default)]
pub(super) struct OfStream;

impl ControllerFactory for OfStream {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Unlimited)
    }
}

/// Limits nothing.
struct Unlimited;

impl Unlimited {
    /// More than any peer lets be in flight. quinn spaces out no packets of windows above 4 GiB.
    const WINDOW_BYTES: u64 = 1 << 40;
}

impl Controller for Unlimited {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        Self::WINDOW_BYTES
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self)
    }

    fn initial_window(&self) -> u64 {
        Self::WINDOW_BYTES
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Runs two controllers, of which one is in charge. Both see the same events, except for random losses.
struct ByRoundTrip {
    near: Box<dyn Controller>,
    far: Box<dyn Controller>,
    /// The shortest round trip so far.
    shortest: Duration,
    losses: Losses,
}

impl ByRoundTrip {
    fn chosen(&self) -> &dyn Controller {
        if self.shortest < NEAR { &*self.near } else { &*self.far }
    }

    fn both(&mut self) -> [&mut dyn Controller; 2] {
        [&mut *self.near, &mut *self.far]
    }
}

/// Decides which losses on a far path mean congestion: more than 2 % of recent data, as in BBR version 3
/// (draft-ietf-ccwg-bbr, `BBR.LossThresh`). In quinn's BBR, any loss ends the start-up, which then takes tens of round
/// trips to find a fast link.
#[derive(Debug, Clone, Copy)]
struct Losses {
    /// Recent bytes that arrived, and that were lost.
    acked: u64,
    lost: u64,
}

impl Default for Losses {
    /// Starts as if the first window had arrived, so that the first lost packet is not a large share.
    fn default() -> Self {
        Self { acked: Self::OF_LATE / 4, lost: 0 }
    }
}

impl Losses {
    /// Bytes that count as recent.
    const OF_LATE: u64 = 1 << 20;
    const TOLERATED_PERCENT: u64 = 2;

    fn acked(&mut self, bytes: u64) {
        self.acked += bytes;
        if self.acked > Self::OF_LATE {
            (self.acked, self.lost) = (self.acked / 2, self.lost / 2);
        }
    }

    fn mean_congestion(&mut self, lost: u64) -> bool {
        self.lost += lost;
        self.lost * 100 > (self.acked + self.lost) * Self::TOLERATED_PERCENT
    }
}

impl Controller for ByRoundTrip {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.both().into_iter().for_each(|one| one.on_sent(now, bytes, last_packet_number));
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.shortest = self.shortest.min(now.saturating_duration_since(sent));
        self.losses.acked(bytes);
        self.both().into_iter().for_each(|one| one.on_ack(now, sent, bytes, app_limited, rtt));
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let tell = |one: &mut dyn Controller| {
            one.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        };
        self.both().into_iter().for_each(tell);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.near.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        if self.losses.mean_congestion(lost_bytes) || is_persistent_congestion {
            self.far.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.both().into_iter().for_each(|one| one.on_mtu_update(new_mtu));
    }

    fn window(&self) -> u64 {
        self.chosen().window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { near: self.near.clone_box(), far: self.far.clone_box(), ..*self })
    }

    fn initial_window(&self) -> u64 {
        self.chosen().initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether any of this many packets of 1,200 bytes means congestion, if one in `one_in` is lost.
    fn congested(packets: u64, one_in: u64) -> bool {
        let mut losses = Losses::default();
        (1..=packets).any(|packet| match packet % one_in {
            0 => losses.mean_congestion(1200),
            _ => {
                losses.acked(1200);
                false
            }
        })
    }

    #[test]
    fn losses_mean_congestion_where_they_are_more_than_a_few() {
        assert!(!congested(100_000, 100));
        assert!(congested(2_000, 33));
        let mut burst = Losses::default();
        assert!(!burst.mean_congestion(1200) && burst.mean_congestion(10 * 1200));
    }

    #[test]
    fn losses_of_long_ago_are_forgotten() {
        let mut losses = Losses::default();
        assert!(losses.mean_congestion(1 << 20));
        (0..20_000).for_each(|_| losses.acked(1200));
        assert!(!losses.mean_congestion(1200));
    }
}
