//! Makes and changes the tree of a bench on a disk, from its description.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use contract::{BenchFiles, BenchTree, human};
use syncer::monitor::Monitor;

use super::bench_error::BenchError;
use crate::report_file::random_word;

/// The number of bytes that are written to a file at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The size, in bytes, from which parts of a file change; smaller files change as a whole.
const LARGE_BYTES: u64 = 1 << 20;
/// The length of the parts of large files that change.
const PART_BYTES: u64 = 64 << 10;
/// The longest description, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;

/// Returns the tree that `name` names: `small`, `large` or `mixed`, a description in braces, or a file of YAML or JSON.
pub(super) fn named(name: &Path) -> Result<BenchTree, BenchError> {
    match name.to_str() {
        Some(text) if text.starts_with('{') => parsed(Path::new("--tree"), text),
        text => text.and_then(BenchTree::named).map_or_else(|| described(name), Ok),
    }
}

fn described(path: &Path) -> Result<BenchTree, BenchError> {
    let failed = |source| BenchError::Read { path: path.into(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    io::Read::read_to_string(&mut io::Read::take(file, MAX_DESCRIPTION_BYTES + 1), &mut text)
        .map_err(failed)?;
    parsed(path, &text)
}

fn parsed(path: &Path, text: &str) -> Result<BenchTree, BenchError> {
    let refused = |message| BenchError::Parse { path: path.into(), message };
    if text.len() as u64 > MAX_DESCRIPTION_BYTES {
        return Err(refused(format!(
            "it has more than {}: describe fewer folders",
            human::bytes(MAX_DESCRIPTION_BYTES)
        )));
    }
    let tree: BenchTree = serde_saphyr::from_str(text).map_err(|error| refused(error.to_string()))?;
    match tree.fault() {
        Some(fault) => Err(BenchError::Impossible { path: path.into(), fault }),
        None => Ok(tree),
    }
}

/// A file, and its number in its group.
struct MadeFile {
    path: PathBuf,
    group: BenchFiles,
    nth: u64,
}

/// Yields all files.
fn files<'a>(tree: &'a BenchTree, root: &'a Path) -> impl Iterator<Item = MadeFile> + 'a {
    tree.files.iter().enumerate().flat_map(move |(nth, group)| {
        (0..group.count).map(move |file| {
            let folder = format!("g{nth}/d{}", file % group.folders.max(1));
            MadeFile { path: root.join(folder).join(format!("f{file}")), group: *group, nth: file }
        })
    })
}

/// Yields the paths of all files.
pub(super) fn paths<'a>(tree: &'a BenchTree, root: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    files(tree, root).map(|file| file.path)
}

/// Makes all files below `root`.
pub(super) fn make(tree: &BenchTree, root: &Path, monitor: &Monitor) -> Result<(), BenchError> {
    let mut noise = Noise::new();
    for MadeFile { path, group, .. } in files(tree, root) {
        let made = new_file(&path).and_then(|file| noise.write(&file, 0..group.bytes, monitor));
        made.map_err(|source| BenchError::Make { path, source })?;
    }
    Ok(())
}

/// Changes the percentage of the files that the tree describes.
pub(super) fn change(tree: &BenchTree, root: &Path, monitor: &Monitor) -> Result<(), BenchError> {
    let mut noise = Noise::new();
    let percent = u64::from(tree.change_percent);
    let is_chosen = |nth: u64| (nth * percent) % 100 < percent;
    for MadeFile { path, group, nth } in files(tree, root) {
        let ranges: Vec<Range<u64>> = match group.bytes {
            bytes @ 0..LARGE_BYTES => is_chosen(nth).then_some(0..bytes).into_iter().collect(),
            bytes => {
                let parts = (0..bytes / PART_BYTES).filter(|part| is_chosen(*part));
                parts.map(|part| part * PART_BYTES..(part + 1) * PART_BYTES).collect()
            }
        };
        if ranges.is_empty() {
            continue;
        }
        let opened = fs::OpenOptions::new().write(true).open(&path);
        let changed = opened
            .and_then(|file| ranges.into_iter().try_for_each(|range| noise.write(&file, range, monitor)));
        changed.map_err(|source| BenchError::Make { path, source })?;
    }
    Ok(())
}

fn new_file(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::create_new(path)
        }
        opened => opened,
    }
}

/// Makes bytes that cannot be compressed, with no two equal pieces (Steele et al., SplitMix64).
struct Noise {
    state: u64,
    piece: Vec<u8>,
}

impl Noise {
    fn new() -> Self {
        let state = u64::from_str_radix(&random_word(), 16).unwrap_or_default();
        Self { state, piece: vec![0; PIECE_BYTES as usize] }
    }

    fn write(&mut self, file: &File, range: Range<u64>, monitor: &Monitor) -> io::Result<()> {
        let mut at = range.start;
        monitor.check()?;
        while at < range.end {
            monitor.check()?;
            let len = (range.end - at).min(PIECE_BYTES) as usize;
            self.fill(len);
            file.write_all_at(&self.piece[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }

    fn fill(&mut self, len: usize) {
        for word in self.piece[..len].chunks_mut(8) {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..word.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_yaml_or_json_and_its_faults_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree.yaml");
        let described = |text: &str| {
            fs::write(&path, text).unwrap();
            named(&path)
        };
        let yaml = described("files:\n- {count: 3, bytes: 10}\n- count: 2\n  bytes: 5\nchangePercent: 50\n")
            .unwrap();
        assert_eq!((yaml.count(), yaml.bytes(), yaml.change_percent), (5, 40, 50));
        assert_eq!(described(r#"{"files": [{"count": 3, "bytes": 10}]}"#).unwrap().change_percent, 5);
        for (text, says) in [
            ("{", "does not describe a tree"),
            ("files: []\ncolour: 1\n", "colour"),
            ("files: []\n", "describes no possible tree: the number of groups"),
        ] {
            let error = described(text).unwrap_err().to_string();
            assert!(error.starts_with(path.to_str().unwrap()) && error.contains(says), "{error}");
        }
        assert!(matches!(named(&dir.path().join("missing")), Err(BenchError::Read { .. })));
    }

    #[test]
    fn as_much_changes_as_the_tree_says() {
        let group = |count, bytes| BenchFiles { count, bytes, folders: 3.min(count) };
        let tree = BenchTree { files: vec![group(100, 100), group(1, 100 * PART_BYTES)], change_percent: 5 };
        let dir = tempfile::tempdir().unwrap();
        let monitor = Monitor::default();
        make(&tree, dir.path(), &monitor).unwrap();
        let read = || paths(&tree, dir.path()).map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        let before = read();
        change(&tree, dir.path(), &monitor).unwrap();
        let after = read();
        let small = (0..100).filter(|&nth| before[nth] != after[nth]).count();
        let parts = before[100].chunks(PART_BYTES as usize).zip(after[100].chunks(PART_BYTES as usize));
        let large = parts.filter(|(old, new)| old != new).count();
        assert_eq!((small, large, after[100].len()), (5, 5, before[100].len()));
    }
}
