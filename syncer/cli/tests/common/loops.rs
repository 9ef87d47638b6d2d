//! Loop devices on files of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{disk::run, scratch};

/// A loop device. Detached when dropped.
#[derive(Debug)]
pub struct Loop {
    pub device: PathBuf,
    pub image: PathBuf,
}

impl Loop {
    /// Makes a device of `bytes` zeros, a multiple of 512, on a new file in `dir`. Returns `None` and prints the reason
    /// where this process cannot have one.
    pub fn new(dir: &Path, name: &str, bytes: u64) -> Option<Self> {
        scratch::needs_root()?;
        let image = dir.join(name);
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().unwrap();
        if !attached.status.success() {
            eprintln!("skipped: no loop device: {}", String::from_utf8_lossy(&attached.stderr));
            return None;
        }
        let device = String::from_utf8(attached.stdout).unwrap().trim().into();
        Some(Self { device, image })
    }

    /// Returns the number of the device's sectors that were written since the machine began, as the kernel counts them,
    /// after it has synced the device.
    pub fn sectors_written(&self) -> u64 {
        fs::File::open(&self.device).unwrap().sync_all().unwrap();
        let name = self.device.file_name().unwrap().to_str().unwrap();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let count = |nth: usize| -> u64 { stat.split_whitespace().nth(nth).unwrap().parse().unwrap() };
        count(6) + count(13)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}
