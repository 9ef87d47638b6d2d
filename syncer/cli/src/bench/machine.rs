//! Describes the places of a bench: file systems, and the machine.

use std::{fs, path::Path, thread};

use contract::{BenchMachine, BenchPlace};
use syncer::mounts::MountTable;

use super::bench_error::BenchError;

/// Returns the file system that a folder is on, and this machine.
pub(super) fn place(path: &Path) -> Result<BenchPlace, BenchError> {
    let failed = |source| BenchError::Folder { path: path.into(), source };
    let real = path.canonicalize().map_err(failed)?;
    if !real.is_dir() {
        return Err(BenchError::NoFolder(path.into()));
    }
    let mounts = MountTable::read().map_err(failed)?;
    let path = real.to_string_lossy().into_owned();
    let here = BenchPlace { path, machine: here(), ..BenchPlace::default() };
    Ok(match mounts.of(&real) {
        Some(mount) => BenchPlace {
            file_system: mount.kind(),
            device: mount.source().to_string_lossy().into_owned(),
            mount_options: mount.options(),
            ..here
        },
        None => here,
    })
}

/// Returns the description of this machine. Values that the kernel does not report are 0.
fn here() -> BenchMachine {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    BenchMachine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cores: thread::available_parallelism()
            .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        memory_bytes: kib.unwrap_or(0) * 1024,
    }
}
