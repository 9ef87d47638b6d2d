//! A tree of many small files that change a little, for the benches of snapshots.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use testkit::rng::Rng;

const PER_FOLDER: u64 = 100;

/// Waits until a snapshot trusts the times of files that were just written: it reads younger ones again. Nothing but
/// waiting achieves that.
pub fn let_files_age() {
    thread::sleep(Duration::from_millis(200));
}

/// Returns milliseconds with two digits behind the point.
pub fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

/// Makes so many files of `len` random bytes, a hundred in a folder.
pub fn fill(root: &Path, files: u64, len: usize) -> anyhow::Result<()> {
    for file in 0..files {
        let path = root.join(path_of(file));
        if file % PER_FOLDER == 0 {
            fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        }
        File::create_new(path)?.write_all(&Rng::new(file).bytes(len))?;
    }
    Ok(())
}

fn path_of(file: u64) -> String {
    format!("{:03}/{:05}/file-{file:08}", file / PER_FOLDER / 100, file / PER_FOLDER)
}

/// Appends to `changed` of the files, spread over the tree; each round changes other files.
pub fn change(root: &Path, files: u64, changed: u64, round: u64) -> anyhow::Result<()> {
    for nth in 0..changed.min(files) {
        let file = (nth * (files / changed.min(files)) + round * 7) % files;
        let mut file = OpenOptions::new().append(true).open(root.join(path_of(file)))?;
        writeln!(file, "round {round}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_change_as_were_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 1000, 33).unwrap();
        change(dir.path(), 1000, 10, 3).unwrap();
        let is_longer = |file: &u64| fs::metadata(dir.path().join(path_of(*file))).unwrap().len() > 33;
        assert_eq!((0..1000).filter(is_longer).count(), 10);
    }
}
