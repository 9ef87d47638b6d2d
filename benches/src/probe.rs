//! Counts the work of a program, in figures that do not depend on the machine's load: instructions and allocations by
//! callgrind. Other programs that watch it are started here, too.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use testkit::process::find_program;

/// The program under which a measured program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Nothing.
    None,
    /// valgrind's callgrind, which counts user-space instructions and calls, and is about fifty times slower.
    Callgrind,
    /// strace, which counts system calls.
    Strace,
    /// `perf record` with the kernel's clock, which works even in a virtual machine without performance counters.
    Perf,
}

/// The functions of the C library that allocate memory; Rust's allocator calls them, too.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc"];

impl Probe {
    /// Returns the command line before the program's name, with `FILE` where the counts are written to.
    ///
    /// In that of callgrind, strace makes `prctl` fail, so that rustix reads `/proc/self/auxv`, which valgrind
    /// emulates. The kernel's own answer points to a vDSO that valgrind has unmapped, at which a static program would
    /// crash.
    fn line(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Callgrind => {
                "strace -f --seccomp-bpf -qq -o /dev/null -e trace=prctl -e inject=prctl:error=EINVAL \
                 valgrind --quiet --tool=callgrind --fair-sched=yes --callgrind-out-file=FILE"
            }
            Self::Strace => "strace -f -c -qq -o FILE",
            Self::Perf => "perf record --quiet -e cpu-clock -F 1999 -g -o FILE --",
        }
    }

    /// Returns the words of a command line before the program's name. The counts are written to a file in `scratch`
    /// that is named after the `end`.
    pub fn words(self, scratch: &Path, end: &str) -> Vec<String> {
        let file = self.file(scratch, end).display().to_string();
        self.line().split_whitespace().map(|word| word.replace("FILE", &file)).collect()
    }

    /// Checks that the counting programs are installed.
    pub fn require(self) -> anyhow::Result<()> {
        let is_named = |program: &&str| self.line().split_whitespace().any(|word| word == *program);
        for program in ["strace", "valgrind", "perf"].iter().filter(|program| is_named(program)) {
            ensure!(find_program(program).is_some(), "{program} is missing\nhint: .ci/tools bench profile");
        }
        Ok(())
    }

    /// Returns the file with the counts of the run's `end`.
    pub fn file(self, scratch: &Path, end: &str) -> PathBuf {
        scratch.join(format!("{self:?}.{end}"))
    }

    /// Returns what `parse` reads in the files of a run's ends.
    pub(crate) fn read<T>(
        self,
        scratch: &Path,
        ends: &[&str],
        parse: fn(&str) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let read = |end: &&str| {
            let path = self.file(scratch, end);
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            parse(&text).with_context(|| path.display().to_string())
        };
        ends.iter().map(read).collect()
    }
}

/// Restricts this thread, and all that it starts from now on, to one core, so that programs start only one worker on
/// any machine.
pub fn pin_to_one_core() -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).context("no core to run on")?;
    let mut one = CpuSet::new();
    one.set(core);
    Ok(sched_setaffinity(None, &one)?)
}

/// The counts of callgrind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Profile {
    /// User-space instructions of all threads.
    pub instructions: u64,
    /// Calls of the C library's allocation functions.
    pub allocations: u64,
}

impl Profile {
    /// Adds up the counts that the ends of a run wrote to `scratch`.
    pub fn read(scratch: &Path, ends: &[&str]) -> anyhow::Result<Self> {
        let ends = Probe::Callgrind.read(scratch, ends, Self::parse)?;
        let sum = |count: fn(&Self) -> u64| ends.iter().map(count).sum();
        Ok(Self { instructions: sum(|end| end.instructions), allocations: sum(|end| end.allocations) })
    }

    /// Parses callgrind's format: `cfn=(7) malloc` names a function once, `cfn=(7)` refers to it later, and the line
    /// `calls=3 …` after it counts calls.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut profile = Self::default();
        let mut allocators = HashSet::new();
        let mut called = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
                let (id, name) = name.split_once(' ').unwrap_or((name, ""));
                if ALLOCATORS.contains(&name) {
                    allocators.insert(id);
                }
                called = id;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let count = calls.split(' ').next().unwrap_or_default();
                if allocators.contains(called) {
                    profile.allocations += count.parse::<u64>().context("a line of calls")?;
                }
            } else if let Some(total) = line.strip_prefix("totals: ") {
                profile.instructions = total.trim().parse().context("the line of totals")?;
            }
        }
        ensure!(profile.instructions > 0, "it has no totals");
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_names_a_function_once_and_counts_it_everywhere() {
        let text = "events: Ir\nfn=(1) main\n16 4\ncfn=(2) malloc\ncalls=3 0\n16 90\ncfn=(3) free\ncalls=9 0\n1 1\n\
                    fn=(2)\n0 60\ncfn=(4) _int_malloc\ncalls=1 0\n0 30\nfn=(5) work\n3 1\ncfn=(2)\ncalls=4 0\n3 120\n\
                    totals: 1234\n";
        assert_eq!(Profile::parse(text).unwrap(), Profile { instructions: 1234, allocations: 7 });
        assert!(Profile::parse("events: Ir\n").is_err());
    }
}
