//! Models a one-way link: decides what happens to each datagram, and when. It needs no socket and no clock.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use crate::rng::Rng;

/// The properties of a link, which apply to both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkConfig {
    /// The round-trip time; each direction delays by half of it.
    pub rtt: Duration,
    /// The share of datagrams that are lost, each independently.
    pub loss: f64,
    /// The share of datagrams that are delayed by [`LinkConfig::held_back`], so that later ones overtake them.
    pub reorder: f64,
    /// The bandwidth in bytes per second in each direction; `None` is unlimited.
    pub bandwidth: Option<u64>,
    /// The largest datagram that passes, in bytes of UDP payload.
    pub mtu: Option<usize>,
    /// The seed for choosing the lost and delayed datagrams.
    pub seed: u64,
}

impl LinkConfig {
    /// A link with 50 ms round-trip time, 1 % loss, 0.1 % reordering, and the datagram size of Ethernet.
    pub const WAN: Self = Self {
        rtt: Duration::from_millis(50),
        loss: 0.01,
        reorder: 0.001,
        bandwidth: None,
        mtu: Some(1472),
        seed: 1,
    };

    /// A link without delay, loss or limits.
    pub const CLEAN: Self = Self { rtt: Duration::ZERO, loss: 0.0, reorder: 0.0, mtu: None, ..Self::WAN };

    /// Returns the same link with another choice of lost datagrams.
    pub fn with_round(self, round: u64) -> Self {
        Self { seed: self.seed.wrapping_add(round), ..self }
    }

    /// Returns the additional delay of a datagram that is overtaken.
    fn held_back(&self) -> Duration {
        self.rtt / 8 + Duration::from_micros(200)
    }
}

/// The numbers of datagrams by their fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStats {
    /// Datagrams sent into the link.
    pub offered: u64,
    /// Bytes sent into the link.
    pub offered_bytes: u64,
    /// Datagrams lost by chance.
    pub lost: u64,
    /// Datagrams lost because the queue of the limited link was full.
    pub overflowed: u64,
    /// Datagrams lost because they exceed the link's maximum size.
    pub too_large: u64,
    /// Datagrams delayed so that others overtook them.
    pub held_back: u64,
}

/// One direction of a link, with the datagrams on their way.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    rng: Rng,
    /// The time at which the sender of the limited link is free again.
    free_at: Option<Instant>,
    flying: BinaryHeap<Reverse<Flying<T>>>,
    stats: LinkStats,
}

#[derive(Debug)]
struct Flying<T> {
    due: Instant,
    number: u64,
    load: T,
}

impl<T> Link<T> {
    /// Creates an idle link. `direction` distinguishes the random choices of a link's two directions.
    pub fn new(config: LinkConfig, direction: u64) -> Self {
        let rng = Rng::new(config.seed.wrapping_mul(2).wrapping_add(direction));
        Self { config, rng, free_at: None, flying: BinaryHeap::new(), stats: LinkStats::default() }
    }

    /// Sends a datagram of `bytes` bytes into the link.
    pub fn offer(&mut self, now: Instant, bytes: usize, load: T) {
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes as u64;
        if let Some(due) = self.fate(now, bytes) {
            self.flying.push(Reverse(Flying { due, number: self.stats.offered, load }));
        }
    }

    /// Returns the next datagram that has arrived by `now`, in order of arrival.
    pub fn take(&mut self, now: Instant) -> Option<T> {
        let Reverse(next) = self.flying.peek()?;
        if next.due > now {
            return None;
        }
        self.flying.pop().map(|Reverse(arrived)| arrived.load)
    }

    /// Returns when the next datagram arrives.
    pub fn next_due(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse(next)| next.due)
    }

    /// Returns the numbers so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Returns when the datagram arrives; `None` if it is lost.
    fn fate(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        // Both random numbers are drawn for every datagram, so that its fate does not depend on the limits.
        let (lost, held_back) = (self.rng.chance(self.config.loss), self.rng.chance(self.config.reorder));
        if self.config.mtu.is_some_and(|mtu| bytes > mtu) {
            self.stats.too_large += 1;
            return None;
        }
        if lost {
            self.stats.lost += 1;
            return None;
        }
        let sent = self.transmit(now, bytes)?;
        let extra = if held_back { self.config.held_back() } else { Duration::ZERO };
        self.stats.held_back += u64::from(held_back);
        Some(sent + self.config.rtt / 2 + extra)
    }

    /// Returns when the last byte is sent; `None` if the queue is full. The queue holds one round trip's worth, and at
    /// least 20 ms, like those of routers.
    fn transmit(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(bandwidth) = self.config.bandwidth else { return Some(now) };
        let start = self.free_at.map_or(now, |free| free.max(now));
        if start - now > self.config.rtt.max(Duration::from_millis(20)) {
            self.stats.overflowed += 1;
            return None;
        }
        let sent = start + Duration::from_secs_f64(bytes as f64 / bandwidth.max(1) as f64);
        self.free_at = Some(sent);
        Some(sent)
    }
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Flying<T> {}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Flying<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: LinkConfig = LinkConfig { rtt: LinkConfig::WAN.rtt, ..LinkConfig::CLEAN };

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns the numbers of the datagrams that arrive when `count` are sent at once, in order of arrival.
    fn arrivals(config: LinkConfig, count: u32) -> Vec<u32> {
        let (mut link, now) = (Link::new(config, 0), Instant::now());
        (0..count).for_each(|number| link.offer(now, 1200, number));
        std::iter::from_fn(|| link.take(now + ms(10_000))).collect()
    }

    #[test]
    fn a_datagram_takes_half_a_round_trip() {
        let (mut link, now) = (Link::new(CLEAN, 0), Instant::now());
        link.offer(now, 100, 'a');
        assert_eq!(link.next_due(), Some(now + ms(25)));
        assert_eq!(link.take(now + ms(24)), None);
        assert_eq!(link.take(now + ms(25)), Some('a'));
    }

    #[test]
    fn a_clean_link_keeps_all_and_their_order() {
        assert_eq!(arrivals(CLEAN, 1000), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn one_in_a_hundred_is_lost_and_the_seed_says_which() {
        let lossy = LinkConfig { loss: 0.01, ..CLEAN };
        let first = arrivals(lossy, 100_000);
        assert!((98_800..99_200).contains(&first.len()), "{} arrived", first.len());
        assert_eq!(first, arrivals(lossy, 100_000));
        assert_ne!(first, arrivals(lossy.with_round(1), 100_000));
    }

    #[test]
    fn reordering_loses_nothing() {
        let mut arrived = arrivals(LinkConfig { reorder: 0.1, ..CLEAN }, 1000);
        assert!(!arrived.is_sorted());
        arrived.sort_unstable();
        assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_limited_link_takes_the_time_of_the_bytes() {
        let config = LinkConfig { bandwidth: Some(1_000_000), ..CLEAN };
        let (mut link, now) = (Link::new(config, 0), Instant::now());
        (0..10).for_each(|number| link.offer(now, 1000, number));
        assert_eq!(link.take(now + ms(26)), Some(0));
        let last = std::iter::from_fn(|| link.take(now + ms(35) + Duration::from_micros(1))).last();
        assert_eq!(last, Some(9));
    }

    #[test]
    fn a_full_queue_drops_the_newest() {
        let config = LinkConfig { bandwidth: Some(1_000_000), ..CLEAN };
        let (mut link, now) = (Link::new(config, 0), Instant::now());
        (0..200).for_each(|number| link.offer(now, 1000, number));
        // At most 50 ms of bytes wait, plus the datagram that starts then.
        assert_eq!(link.stats().overflowed, 200 - 51);
    }

    #[test]
    fn what_is_larger_than_the_link_carries_is_lost() {
        let (mut link, now) = (Link::new(LinkConfig { mtu: Some(1472), ..CLEAN }, 0), Instant::now());
        link.offer(now, 1472, 'a');
        link.offer(now, 1473, 'b');
        assert_eq!((link.take(now + ms(25)), link.take(now + ms(25))), (Some('a'), None));
        assert_eq!(link.stats().too_large, 1);
    }
}
