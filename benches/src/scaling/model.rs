//! Models time and memory of a run as functions of its work, and derives the constants from measurements.

use serde::{Deserialize, Serialize};

use crate::stats::median;

/// The work of a run, and the link and processors that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// The number of files in the tree.
    pub files: f64,
    /// The number of files that are created.
    pub created: f64,
    /// The number of files that are updated.
    pub updated: f64,
    /// The number of folders that have updated files.
    pub folders: f64,
    /// The size of their content in bytes.
    pub bytes: f64,
    /// The round-trip time in seconds.
    pub round_trip: f64,
    /// The bandwidth of the link in bytes per second; `None` if it is not the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    /// The number of cores of both ends together.
    pub cores: f64,
}

impl Load {
    /// A run of an empty tree on two cores, without a limit of the link.
    pub const EMPTY: Self = Self {
        files: 0.0,
        created: 0.0,
        updated: 0.0,
        folders: 0.0,
        bytes: 0.0,
        round_trip: 0.0,
        bandwidth: None,
        cores: CORES,
    };
}

/// The measurements of one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The work of the run.
    pub load: Load,
    /// The median time of the run, in seconds.
    pub seconds: f64,
    /// The median of the bytes that crossed the link in both directions.
    pub wire_bytes: f64,
    /// The highest peak memory of the source, in bytes.
    pub source_memory: f64,
    /// The highest peak memory of the sink, in bytes.
    pub sink_memory: f64,
}

/// A sum of costs, each a factor of a count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// The cost of every run.
    pub run: f64,
    /// The cost of each file in the tree.
    pub file: f64,
    /// The cost of each created file.
    pub created: f64,
    /// The cost of each updated file.
    pub updated: f64,
    /// The cost of each folder that has updated files.
    pub folder: f64,
    /// The cost of each byte of content.
    pub byte: f64,
}

impl Costs {
    fn of(&self, load: &Load) -> f64 {
        let factors = [self.run, self.file, self.created, self.updated, self.folder, self.byte];
        counts(load).iter().zip(factors).map(|(count, factor)| count * factor).sum()
    }

    /// Fits the costs to the values of loads, minimizing relative errors.
    fn fit(values: &[(Load, f64)]) -> Self {
        let rows: Vec<[f64; 6]> =
            values.iter().map(|(load, value)| counts(load).map(|count| count / value)).collect();
        let [run, file, created, updated, folder, byte] = least_squares(&rows);
        Self { run, file, created, updated, folder, byte }
    }
}

/// Returns the counts that [`Costs`] are the factors of, in the order of its fields.
fn counts(load: &Load) -> [f64; 6] {
    [1.0, load.files, load.created, load.updated, load.folders, load.bytes]
}

/// Calculates a run's time and memory from its load.
///
/// `seconds = max(work × share(cores), wire bytes / bandwidth) + opening bytes / bandwidth + round trips × round trip`,
/// where `work` is the time on two cores without a limit of the link, and `share` is Amdahl's law (G. Amdahl, Validity
/// of the single processor approach, AFIPS 1967) relative to two cores. The maximum is right because the phases of a
/// run overlap: the link carries content while both ends work. The opening, the bytes of every run, has no work beside
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Seconds of work on two cores.
    pub work: Costs,
    /// Bytes on the wire.
    pub wire: Costs,
    /// The share of the work that is parallel.
    pub parallel: f64,
    /// The number of round trips of every run.
    pub round_trips: f64,
    /// The number of further round trips for each doubling of the bytes on the wire, while the congestion window grows.
    pub round_trips_per_doubling: f64,
    /// The number of further round trips of a run that updates files, because the ends compare these before it sends
    /// them.
    pub round_trips_of_updates: f64,
    /// The memory of the source in bytes: for the run, and for each file.
    pub source_memory: Costs,
    /// The memory of the sink in bytes.
    pub sink_memory: Costs,
}

/// The number of cores to which [`Model::work`] refers.
const CORES: f64 = 2.0;

/// The bytes that a new connection sends before the first answer (design.md, congestion).
const INITIAL_WINDOW: f64 = 1_048_576.0;

/// The minimum number of files of trees from which the memory for each file is fitted: below it, buffers dominate.
const MIN_FILES_FOR_MEMORY: f64 = 50_000.0;

impl Model {
    /// Fits the model to measurements: the costs to those on two cores without a limited link, the rest to the effect
    /// of one core, a round-trip time and a limited link. Constants without a measurement are 0.
    pub fn fit(measured: &[Measured]) -> Self {
        let plain: Vec<&Measured> = measured.iter().filter(|one| is_plain(&one.load)).collect();
        let costs = |value: fn(&Measured) -> f64, of: &[&Measured]| {
            Costs::fit(&of.iter().map(|one| (one.load, value(one))).collect::<Vec<_>>())
        };
        let large: Vec<&Measured> =
            plain.iter().filter(|one| one.load.files >= MIN_FILES_FOR_MEMORY).copied().collect();
        let mut model = Self {
            work: costs(|one| one.seconds, &plain),
            wire: costs(|one| one.wire_bytes, &plain),
            parallel: 0.0,
            round_trips: 0.0,
            round_trips_per_doubling: 0.0,
            round_trips_of_updates: 0.0,
            source_memory: costs(|one| one.source_memory, &large),
            sink_memory: costs(|one| one.sink_memory, &large),
        };
        model.parallel = model.fit_parallel(measured);
        [model.round_trips, model.round_trips_per_doubling, model.round_trips_of_updates] =
            model.fit_round_trips(measured);
        model
    }

    /// Returns the time of a run, in seconds.
    pub fn seconds(&self, load: &Load) -> f64 {
        let work = self.work.of(load) * self.share(load.cores);
        let over_link = |bytes: f64| load.bandwidth.map_or(0.0, |bandwidth| bytes / bandwidth);
        let factors = [self.round_trips, self.round_trips_per_doubling, self.round_trips_of_updates];
        let trips: f64 =
            self.trip_counts(load).iter().zip(factors).map(|(count, factor)| count * factor).sum();
        work.max(over_link(self.wire.of(load))) + over_link(self.wire.run) + trips * load.round_trip
    }

    /// Returns the memory of the source and of the sink, in bytes.
    pub fn memory(&self, load: &Load) -> [f64; 2] {
        [self.source_memory.of(load), self.sink_memory.of(load)]
    }

    /// Returns the bytes that cross the link.
    pub fn wire_bytes(&self, load: &Load) -> f64 {
        self.wire.of(load)
    }

    /// Returns the time on `cores` cores, relative to that on two.
    fn share(&self, cores: f64) -> f64 {
        let time = |cores: f64| 1.0 - self.parallel + self.parallel / cores;
        time(cores) / time(CORES)
    }

    /// Returns the counts that round trips are proportional to: the run, the doublings of its bytes on the wire, and
    /// whether it updates files.
    fn trip_counts(&self, load: &Load) -> [f64; 3] {
        let doublings = (1.0 + self.wire.of(load) / INITIAL_WINDOW).log2();
        [1.0, doublings, if load.updated > 0.0 { 1.0 } else { 0.0 }]
    }

    /// Returns the parallel share that explains the measured ratio between one core and two.
    fn fit_parallel(&self, measured: &[Measured]) -> f64 {
        let on_one = measured.iter().filter(|one| one.load.cores == 1.0 && one.load.round_trip == 0.0);
        let ratios: Vec<f64> = on_one.map(|one| one.seconds / self.work.of(&one.load)).collect();
        // Solved for p from 1 / (1 - p / 2) = ratio.
        median(&ratios).map_or(0.0, |ratio| (2.0 - 2.0 / ratio).clamp(0.0, 1.0))
    }

    fn fit_round_trips(&self, measured: &[Measured]) -> [f64; 3] {
        let far = measured.iter().filter(|one| one.load.round_trip > 0.0 && one.load.bandwidth.is_none());
        let rows: Vec<[f64; 3]> = far
            .filter_map(|one| {
                let trips = (one.seconds - self.work.of(&one.load)) / one.load.round_trip;
                (trips > 0.0).then(|| self.trip_counts(&one.load).map(|count| count / trips))
            })
            .collect();
        least_squares(&rows)
    }
}

/// Returns whether a load was measured under the conditions of [`Model::work`].
fn is_plain(load: &Load) -> bool {
    load.cores == CORES && load.round_trip == 0.0 && load.bandwidth.is_none()
}

/// Returns the non-negative factors for which the sum of each row's products is closest to 1, by least squares. One
/// factor at a time is set to its best value until none changes (V. Franc, V. Hlaváč, M. Navara, Sequential
/// coordinate-wise algorithm for the non-negative least squares problem, CAIP 2005).
fn least_squares<const N: usize>(rows: &[[f64; N]]) -> [f64; N] {
    const ROUNDS: usize = 1_000_000;
    let mut factors = [0.0; N];
    let squares: [f64; N] = std::array::from_fn(|column| rows.iter().map(|row| row[column].powi(2)).sum());
    let mut rests = vec![1.0; rows.len()];
    for _ in 0..ROUNDS {
        let mut moved = 0.0f64;
        for column in (0..N).filter(|column| squares[*column] > 0.0) {
            let slope: f64 = rows.iter().zip(&rests).map(|(row, rest)| row[column] * rest).sum();
            let step = (slope / squares[column]).max(-factors[column]);
            factors[column] += step;
            rows.iter().zip(&mut rests).for_each(|(row, rest)| *rest -= row[column] * step);
            moved = moved.max(step.powi(2) * squares[column]);
        }
        if moved < 1e-18 {
            break;
        }
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Load = Load::EMPTY;
    const NONE: Costs = Costs { run: 0.0, file: 0.0, created: 0.0, updated: 0.0, folder: 0.0, byte: 0.0 };

    const TRUTH: Model = Model {
        work: Costs { run: 0.008, file: 2e-6, created: 6e-6, updated: 2e-5, folder: 8e-5, byte: 1e-9 },
        wire: Costs { run: 9000.0, file: 0.2, created: 60.0, updated: 80.0, folder: 50.0, byte: 1.01 },
        parallel: 0.6,
        round_trips: 3.0,
        round_trips_per_doubling: 0.5,
        round_trips_of_updates: 2.0,
        source_memory: Costs { run: 3e7, file: 30.0, ..NONE },
        sink_memory: Costs { run: 4e7, file: 35.0, ..NONE },
    };

    fn measured(load: Load) -> Measured {
        let [source_memory, sink_memory] = TRUTH.memory(&load);
        let (seconds, wire_bytes) = (TRUTH.seconds(&load), TRUTH.wire_bytes(&load));
        Measured { load, seconds, wire_bytes, source_memory, sink_memory }
    }

    fn loads() -> Vec<Load> {
        let sizes = [(1e3, 2e4), (1e4, 1e3), (1e5, 1e3), (4e5, 100.0), (500.0, 1e6)];
        let of = |(files, size): (f64, f64)| {
            let created = Load { files, created: files, bytes: files * size, ..PLAIN };
            let updated = [0.0, 0.01, 0.2].map(|part| {
                let updated = files * part;
                let folders = updated.min(files / 100.0);
                Load { files, updated, folders, bytes: updated * size, ..PLAIN }
            });
            [&updated[..], &[created]].concat()
        };
        let plain: Vec<Load> = sizes.into_iter().flat_map(of).collect();
        let on_one = plain[..8].iter().map(|load| Load { cores: 1.0, ..*load });
        let far = plain[..8].iter().map(|load| Load { round_trip: 0.05, ..*load });
        plain.iter().copied().chain(on_one).chain(far).collect()
    }

    #[test]
    fn a_fit_finds_the_constants_that_measurements_were_made_with() {
        let model = Model::fit(&loads().into_iter().map(measured).collect::<Vec<_>>());
        let others = [
            Load { files: 1e6, updated: 1e4, folders: 5e3, bytes: 1e8, ..PLAIN },
            Load { files: 5e4, created: 5e4, bytes: 5e7, cores: 1.0, ..PLAIN },
            Load { files: 2e4, updated: 200.0, folders: 150.0, bytes: 1e6, round_trip: 0.2, ..PLAIN },
            Load { files: 2e4, created: 2e4, bytes: 1e8, bandwidth: Some(1e7), ..PLAIN },
        ];
        for load in others {
            let ratio = model.seconds(&load) / TRUTH.seconds(&load);
            assert!((ratio - 1.0).abs() < 0.001, "{load:?}: {ratio}");
            let [source, sink] = [0, 1].map(|end| model.memory(&load)[end] / TRUTH.memory(&load)[end]);
            assert!((source - 1.0).abs() < 0.001 && (sink - 1.0).abs() < 0.001, "{source} {sink}");
        }
    }

    #[test]
    fn no_factor_is_below_zero() {
        // Without the bound, the second factor would be -1.
        assert_eq!(least_squares(&[[1.0, 0.0], [2.0, 1.0]]).map(|factor| factor >= 0.0), [true, true]);
        assert_eq!(least_squares::<2>(&[]), [0.0, 0.0]);
    }

    #[test]
    fn a_limited_link_takes_the_time_of_its_bytes_and_a_fast_one_none() {
        let load = Load { files: 1e3, created: 1e3, bytes: 1e8, ..PLAIN };
        let slow = TRUTH.seconds(&Load { bandwidth: Some(1e6), ..load });
        assert!((slow - (TRUTH.wire_bytes(&load) + TRUTH.wire.run) / 1e6).abs() < 1e-9);
        let fast = TRUTH.seconds(&Load { bandwidth: Some(1e15), ..load });
        assert!((fast - TRUTH.seconds(&load)).abs() < 1e-9);
    }
}
