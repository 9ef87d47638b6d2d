//! Whether a file that changed is worth comparing, and a change worth a second look: by what it costs, in seconds.
//!
//! Both ways of moving a file hash all of its bytes at the source, read and hash and write them at the sink. They differ
//! in what crosses, and in what it takes to know that it need not cross. How much of a changed file is still the
//! same cannot be known in advance: [`SAME_SHARE`] is an assumption.

use std::time::Duration;

use super::refine::Hole;

/// The share of the bytes of a changed file that are assumed to be found again. A log has nearly all, a file
/// written by a compiler or an archiver nearly none.
pub const SAME_SHARE: f64 = 0.5;
/// A link counts as no faster than 1 Gbit/s, in bytes a second: the bytes that a run sends are also paid for by
/// whoever shares the link. On loopback this buys a transfer of half the bytes with some milliseconds of hashing.
pub const FASTEST_LINK: f64 = 125e6;
/// Hashing in chunks of 4 KiB against hashing in large ones, measured: 1.5 against 4.6 GB/s.
const FINE_SLOWDOWN: f64 = 3.0;
/// After so many blocks in a row that are not at their old offset, the rest of a file in blocks is better taken for one
/// [`Hole`] at once: bytes were inserted or removed, and all blocks that follow will differ.
pub const MOVED_AFTER: usize = 4;
/// Bytes that cross for one fine chunk's name and length, and the bytes that it stands for.
const FINE_LISTED: f64 = 10.0 / 4096.0;
/// Bytes that cross to name a basis: the header of a list, and one chunk.
const LEAST_LIST: f64 = 24.0;

/// What the machine and the link do, in bytes a second for one core, as measured in this run or assumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// BLAKE3 over chunks of the usual size.
    pub hash: f64,
    /// Reading the sink's files.
    pub read: f64,
    /// What the link takes, encryption and compression included.
    pub wire: f64,
    /// From a question to its answer.
    pub round_trip: Duration,
}

impl Rates {
    /// Until something has been measured: a core of 2023, a disk and a link of 1 GB/s, a network within one building.
    pub const ASSUMED: Self =
        Self { hash: 4e9, read: 1e9, wire: 1e9, round_trip: Duration::from_micros(500) };

    fn link(&self) -> f64 {
        self.wire.min(FASTEST_LINK)
    }
}

/// What is known of a file that both ends have in different versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Length at the source, in bytes.
    pub source_len: u64,
    /// Length at the sink, in bytes.
    pub sink_len: u64,
    /// The sink's index has its chunks: it need not read the file to list it.
    pub listed: bool,
    /// The list comes with a message that is sent anyway, and nobody waits for it.
    pub list_at_hand: bool,
}

/// How to move a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All of its bytes.
    Whole,
    /// What the sink does not have.
    Delta,
}

impl Strategy {
    /// The cheaper one.
    #[must_use]
    pub fn choose(pair: &Pair, rates: &Rates) -> Self {
        let (sink, both) = (pair.sink_len as f64, pair.sink_len.min(pair.source_len) as f64);
        let listing = if pair.listed { 0.0 } else { sink / rates.read + sink / rates.hash };
        let waiting = if pair.list_at_hand { 0.0 } else { rates.round_trip.as_secs_f64() };
        let reading = both * SAME_SHARE / rates.read;
        let saved = (both * SAME_SHARE - LEAST_LIST) / rates.link();
        if listing + waiting + reading < saved { Self::Delta } else { Self::Whole }
    }
}

/// Whether a second look at a hole costs less than sending it. The round trip is not counted: the
/// source does not wait for it, but goes on.
#[must_use]
pub fn refining_pays(hole: &Hole, rates: &Rates) -> bool {
    let source = (hole.source.end - hole.source.start) as f64;
    let gap = (hole.gap.end - hole.gap.start) as f64;
    let hashing = source.max(gap) * FINE_SLOWDOWN / rates.hash + gap / rates.read;
    let saved = (source.min(gap) * SAME_SHARE - gap * FINE_LISTED) / rates.link();
    hashing < saved
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: Rates =
        Rates { hash: 5e9, read: 1e10, wire: 1.2e9, round_trip: Duration::from_micros(60) };
    const WAN: Rates = Rates { wire: 5e6, round_trip: Duration::from_millis(50), ..LOOPBACK };
    const SLOW_DISK: Rates = Rates { read: 1e8, ..LOOPBACK };

    fn changed(source_len: u64, sink_len: u64) -> Pair {
        Pair { source_len, sink_len, listed: true, list_at_hand: true }
    }

    #[test]
    fn a_file_whose_list_is_at_hand_is_compared_unless_it_is_tiny() {
        for rates in [LOOPBACK, WAN] {
            assert_eq!(Strategy::choose(&changed(4_150, 4_096), &rates), Strategy::Delta);
            assert_eq!(Strategy::choose(&changed(1 << 30, 1 << 30), &rates), Strategy::Delta);
            assert_eq!(Strategy::choose(&changed(50, 40), &rates), Strategy::Whole);
        }
    }

    #[test]
    fn what_the_other_end_hardly_has_is_sent_whole() {
        assert_eq!(Strategy::choose(&changed(1 << 30, 0), &LOOPBACK), Strategy::Whole);
        assert_eq!(Strategy::choose(&changed(0, 1 << 30), &LOOPBACK), Strategy::Whole);
    }

    #[test]
    fn nobody_waits_a_round_trip_for_the_list_of_a_small_file() {
        let asked = |len| Pair { list_at_hand: false, ..changed(len, len) };
        assert_eq!(Strategy::choose(&asked(100_000), &WAN), Strategy::Whole);
        assert_eq!(Strategy::choose(&asked(10_000_000), &WAN), Strategy::Delta);
    }

    #[test]
    fn a_file_is_not_read_from_a_slow_disk_to_save_a_fast_link() {
        let unlisted = |len| Pair { listed: false, ..changed(len, len) };
        assert_eq!(Strategy::choose(&unlisted(1 << 28), &SLOW_DISK), Strategy::Whole);
        assert_eq!(Strategy::choose(&unlisted(1 << 28), &LOOPBACK), Strategy::Delta);
        assert_eq!(Strategy::choose(&unlisted(1 << 28), &Rates { wire: 1e6, ..SLOW_DISK }), Strategy::Delta);
    }

    #[test]
    fn a_hole_is_looked_at_again_unless_its_sides_are_too_unequal() {
        let hole = |source: u64, gap: u64| Hole { source: 0..source, basis: 0, gap: 0..gap };
        assert!(refining_pays(&hole(400_000, 400_000), &LOOPBACK));
        assert!(refining_pays(&hole(400_000, 400_000), &WAN));
        assert!(!refining_pays(&hole(1_000, 100_000_000), &LOOPBACK));
        assert!(!refining_pays(&hole(100_000_000, 1_000), &LOOPBACK));
        let modem = Rates { wire: 1e5, ..WAN };
        assert!(!refining_pays(&hole(5_000, 1_000_000), &modem), "its list is longer than what it saves");
    }
}
