//! Reads, compares and accepts the figures of the regression tests: `benches/regression/figures.json`, with their
//! toolchain and a tolerance for each kind.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use testkit::process::run;

/// The kind of a figure. None is a time, so that other load on the machine does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// User-space instructions of both ends.
    Instructions,
    /// Calls of the C library's allocator by both ends.
    Allocations,
    /// System calls of both ends, without those that depend on timing.
    SystemCalls,
    /// UDP payload in both directions.
    WireBytes,
    /// Peak resident memory of both ends together, in bytes.
    PeakMemory,
}

impl Kind {
    /// Returns whether the figure of the same source depends on the compiler, C library or valgrind.
    fn depends_on_toolchain(self) -> bool {
        self != Self::WireBytes
    }

    /// Returns the deviation that is accepted for any figure: threads wake each other by some tens of writes, more or
    /// fewer.
    fn slack(self) -> f64 {
        if self == Self::SystemCalls { 32.0 } else { 0.0 }
    }
}

/// The figures of one bench.
pub type Counts = BTreeMap<Kind, u64>;

/// All accepted figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The toolchain that built and counted; figures that depend on it are judged only with the same one.
    pub toolchain: String,
    /// The accepted increase of each kind, in percent.
    pub tolerance_percent: BTreeMap<Kind, f64>,
    /// The figures, by the bench's name: `mode/suite/parameter`.
    pub benches: BTreeMap<String, Counts>,
}

/// The result of comparing a figure with the accepted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Within the tolerance.
    Within,
    /// Less by more than the tolerance: should be accepted.
    Less,
    /// More by more than the tolerance.
    More,
    /// No figure has been accepted yet.
    New,
    /// The accepted figure belongs to another toolchain.
    NotJudged,
}

/// A figure compared with the accepted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The result.
    pub state: State,
    /// A line for the output.
    pub line: String,
}

impl Finding {
    fn new(kind: Kind, state: State, counted: u64, accepted: Option<u64>, tolerance_percent: f64) -> Self {
        let remark = match state {
            State::Within => "",
            State::New => "; none was accepted yet",
            State::Less => "; less: make accept-figures keeps it so",
            State::More => "; MORE",
            State::NotJudged => "; not judged, as the accepted figure is of another toolchain",
        };
        let accepted = accepted.unwrap_or_default();
        let percent = (counted as f64 / accepted as f64 - 1.0) * 100.0;
        let line = format!(
            "{kind:?}: {counted}, accepted {accepted}: {percent:+.2} % of {tolerance_percent} %{remark}"
        );
        Self { state, line }
    }

    /// Returns whether this finding must fail the test.
    pub fn is_failure(&self) -> bool {
        matches!(self.state, State::More | State::New)
    }
}

impl Figures {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Compares the figures of `bench`, counted with `toolchain`, with the accepted ones.
    pub fn judge(&self, bench: &str, counts: &Counts, toolchain: &str) -> Vec<Finding> {
        let accepted = self.benches.get(bench);
        let judge = |(kind, counted): (&Kind, &u64)| {
            let accepted = accepted.and_then(|counts| counts.get(kind)).copied();
            let tolerance_percent = self.tolerance_percent.get(kind).copied().unwrap_or(0.0);
            let is_other = kind.depends_on_toolchain() && self.toolchain != toolchain;
            let state = match accepted {
                _ if is_other => State::NotJudged,
                None => State::New,
                Some(accepted) => compare(*kind, *counted, accepted, tolerance_percent),
            };
            Finding::new(*kind, state, *counted, accepted, tolerance_percent)
        };
        counts.iter().map(judge).collect()
    }

    /// Accepts the figures of `bench` into the file at `path`. Figures of another toolchain are dropped, figures of
    /// other benches are kept.
    pub fn accept(path: &Path, bench: &str, counts: &Counts, toolchain: &str) -> anyhow::Result<()> {
        let lock = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        lock.lock()?;
        let mut figures = Self::read(path)?;
        if figures.toolchain != toolchain {
            figures.benches.clear();
            figures.toolchain = toolchain.into();
        }
        figures.benches.insert(bench.into(), counts.clone());
        crate::write_json(Some(path), &figures)
    }
}

fn compare(kind: Kind, counted: u64, accepted: u64, tolerance_percent: f64) -> State {
    let (counted, accepted) = (counted as f64, accepted as f64);
    let room = (accepted * tolerance_percent / 100.0).max(kind.slack());
    match counted - accepted {
        more if more > room => State::More,
        less if less < -room => State::Less,
        _ => State::Within,
    }
}

/// Returns a description of the toolchain: compiler, target, C library, valgrind, and whether the processor has AVX2,
/// by which code is chosen at run time.
pub fn toolchain() -> anyhow::Result<String> {
    let rustc = run(Command::new("rustc").arg("-vV"))?;
    let field = |name: &str| rustc.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (release, host) = (field("release:").unwrap_or_default(), field("host:").unwrap_or_default());
    ensure!(!release.is_empty() && !host.is_empty(), "rustc -vV said {rustc}");
    let libc = run(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let valgrind = run(Command::new("valgrind").arg("--version"))?;
    let has_avx2 = fs::read_to_string("/proc/cpuinfo")?.split_whitespace().any(|word| word == "avx2");
    let avx2 = if has_avx2 { "AVX2" } else { "no AVX2" };
    Ok(format!("rustc {release} {host}, {}, {}, {avx2}", libc.trim(), valgrind.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let counts = Counts::from([(Kind::Instructions, 1000), (Kind::WireBytes, 1000)]);
        Figures {
            toolchain: "one".into(),
            tolerance_percent: BTreeMap::from([(Kind::Instructions, 2.0), (Kind::WireBytes, 1.0)]),
            benches: BTreeMap::from([("local/a/1".into(), counts)]),
        }
    }

    fn states(bench: &str, counted: u64, toolchain: &str) -> Vec<State> {
        let counts = Counts::from([(Kind::Instructions, counted), (Kind::WireBytes, counted)]);
        figures().judge(bench, &counts, toolchain).iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn more_than_the_tolerance_fails_and_less_does_not() {
        assert_eq!(states("local/a/1", 1010, "one"), [State::Within, State::Within]);
        assert_eq!(states("local/a/1", 1015, "one"), [State::Within, State::More]);
        assert_eq!(states("local/a/1", 900, "one"), [State::Less, State::Less]);
        assert_eq!(states("local/b/1", 900, "one"), [State::New, State::New]);
    }

    #[test]
    fn some_writes_that_wake_threads_are_no_failure() {
        assert_eq!(compare(Kind::SystemCalls, 832, 800, 2.0), State::Within);
        assert_eq!(compare(Kind::SystemCalls, 833, 800, 2.0), State::More);
        assert_eq!(compare(Kind::Allocations, 832, 800, 2.0), State::More);
    }

    #[test]
    fn another_toolchain_is_judged_by_what_does_not_depend_on_it() {
        assert_eq!(states("local/a/1", 1100, "two"), [State::NotJudged, State::More]);
    }

    #[test]
    fn accepted_figures_are_the_next_ones_and_those_of_another_toolchain_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figures.json");
        fs::write(&path, serde_json::to_string(&figures()).unwrap()).unwrap();
        let counts = Counts::from([(Kind::Allocations, 7)]);
        Figures::accept(&path, "local/b/1", &counts, "one").unwrap();
        let both = Figures::read(&path).unwrap();
        assert_eq!((both.benches.len(), &both.benches["local/b/1"]), (2, &counts));
        Figures::accept(&path, "local/c/1", &counts, "two").unwrap();
        let one = Figures::read(&path).unwrap();
        assert_eq!((one.toolchain.as_str(), one.benches.len()), ("two", 1));
    }
}
