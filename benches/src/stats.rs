//! Evaluates series of measurements: medians, spreads, and whether one series is slower than another.
//!
//! Two programs run in turn, so each round gives one ratio, and disturbances of the whole round cancel out. The median
//! ratio is judged by its distribution-free confidence interval, which makes no assumption about the noise (J.-Y. Le
//! Boudec, Performance Evaluation of Computer and Communication Systems, EPFL Press 2010, theorem 2.1), together with
//! the smallest change that counts (T. Kalibera and R. Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013: an
//! effect's size and interval, never a test alone).

use serde::Serialize;

/// The probability that an interval contains the true median.
const CONFIDENCE: f64 = 0.99;

/// The minimum number of rounds for an interval of that confidence.
pub const MIN_ROUNDS: usize = 8;

/// The result of comparing two series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The interval lies above 1, and the ratio exceeds the smallest change that counts.
    Slower,
    /// The interval lies below 1, and the ratio falls below 1 by at least the smallest change that counts.
    Faster,
    /// The whole interval is closer to 1 than the smallest change that counts.
    Same,
    /// The rounds are too few, or too noisy, to tell.
    Unclear,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unclear => "unclear",
        })
    }
}

/// The summary of the ratios of paired rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The confidence interval of that median; `None` for fewer than [`MIN_ROUNDS`] rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Calculates the ratios of the second series to the first, round by round; `None` without rounds.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let mut ratios: Vec<f64> = first.iter().zip(second).map(|(first, second)| second / first).collect();
        ratios.sort_by(f64::total_cmp);
        let interval =
            interval_rank(ratios.len()).map(|rank| (ratios[rank], ratios[ratios.len() - 1 - rank]));
        Some(Self { median: median(&ratios)?, interval })
    }

    /// Judges a ratio of times. `threshold` is the smallest change that counts, 0.03 for 3 %.
    pub fn judge(&self, threshold: f64) -> Change {
        let (most, least) = (1.0 + threshold, 1.0 / (1.0 + threshold));
        match self.interval {
            Some((low, _)) if low > 1.0 && self.median > most => Change::Slower,
            Some((_, high)) if high < 1.0 && self.median < least => Change::Faster,
            Some((low, high)) if low >= least && high <= most => Change::Same,
            _ => Change::Unclear,
        }
    }
}

/// Returns how many of `count` sorted values to leave out at either end, so that the rest contains the median with
/// [`CONFIDENCE`]: the acceptance region of the sign test, from the binomial distribution.
fn interval_rank(count: usize) -> Option<usize> {
    let mut outside = 0.0;
    // In powers of two, because the chance that all of a thousand values lie on one side is below the least `f64`.
    let mut chance = -(count as f64);
    let mut rank = None;
    for below in 0..count / 2 {
        outside += 2.0 * chance.exp2();
        if outside > 1.0 - CONFIDENCE {
            break;
        }
        rank = Some(below);
        chance += ((count - below) as f64 / (below + 1) as f64).log2();
    }
    rank
}

/// Returns the middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the interquartile range as a share of the median: 0.1 if the middle half of the values spans 10 % of it.
pub fn spread(values: &[f64]) -> Option<f64> {
    Some((quantile(values, 0.75)? - quantile(values, 0.25)?) / median(values)?)
}

/// Returns the quantile of the values at `share`, interpolated linearly.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = share * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    /// Returns times of a program on a machine whose speed varies and that stalls now and then.
    fn series(rng: &mut Rng, factor: f64, rounds: usize) -> Vec<f64> {
        let mut time = || {
            let unit = rng.below(1 << 30) as f64 / (1u64 << 30) as f64;
            let stall = if rng.chance(0.05) { 1.0 } else { 0.0 };
            100.0 * factor * (1.0 + 0.04 * unit + stall)
        };
        (0..rounds).map(|_| time()).collect()
    }

    fn judged(factor: f64) -> Vec<Change> {
        let mut rng = Rng::new(11);
        let mut judge = || {
            let (first, second) = (series(&mut rng, 1.0, 12), series(&mut rng, factor, 12));
            Ratio::of(&first, &second).unwrap().judge(0.03)
        };
        (0..1000).map(|_| judge()).collect()
    }

    #[test]
    fn noise_alone_is_as_rarely_slower_or_faster_as_the_interval_promises() {
        let wrong =
            judged(1.0).iter().filter(|change| matches!(change, Change::Slower | Change::Faster)).count();
        assert!(wrong <= 10, "{wrong} of 1000 comparisons of a program with itself");
    }

    #[test]
    fn a_tenth_is_found() {
        let found = judged(1.1).iter().filter(|change| **change == Change::Slower).count();
        assert!(found > 850, "{found} of 1000 were found");
        let found = judged(1.0 / 1.1).iter().filter(|change| **change == Change::Faster).count();
        assert!(found > 850, "{found} of 1000 were found");
    }

    #[test]
    fn equal_series_are_the_same_and_few_rounds_say_nothing() {
        let even = [5.0; 12];
        assert_eq!(Ratio::of(&even, &even).unwrap().judge(0.03), Change::Same);
        let twice = [10.0; 12];
        assert_eq!(Ratio::of(&even[..7], &twice[..7]).unwrap().judge(0.03), Change::Unclear);
        assert_eq!(Ratio::of(&even[..8], &twice[..8]).unwrap().judge(0.03), Change::Slower);
        assert_eq!(Ratio::of(&[], &[]), None);
    }

    /// The ranks in tables of the sign test, counted from 1: n = 8: 1, n = 12: 2, n = 20: 4, n = 50: 16.
    #[test]
    fn intervals_are_those_of_the_tables() {
        let ranks = [0, 0, 1, 3, 15, 941].map(Some);
        assert_eq!([8, 11, 12, 20, 50, 2000].map(interval_rank), ranks);
        assert_eq!(interval_rank(7), None);
        assert_eq!(MIN_ROUNDS, 8);
    }

    #[test]
    fn medians_and_spreads_are_of_sorted_values() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[100.0, 90.0, 110.0, 80.0, 120.0]), Some(0.2));
    }
}
