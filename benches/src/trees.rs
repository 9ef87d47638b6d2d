//! Creates the reference trees. Each is identical wherever it is created, in its bytes and its modification times.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use clap::ValueEnum;

use crate::rng::Rng;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The first modification time of a fresh tree (2026-01-01), so that every later edit is newer by far more than the
/// coarsest clock of a tool.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// A reference tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tree {
    /// 1,008 files, 20.9 MB: what sparsync's own benchmark uses
    Net1k,
    /// 50,000 files of 0.2 to 2 KB in 2,500 folders
    Many50k,
    /// One random file of 1 GiB
    Large1g,
    /// One random file of 256 MiB
    Shift256m,
    /// 200 logs, 170 MB of words
    Text,
    /// A folder of 40 files of 8 MiB
    Rename320m,
    /// Four files of 64 MiB
    Parts256m,
    /// 1,000 files of 1 to 10 KB
    Local1k,
    /// One random file of 100 MiB
    Local100m,
    /// One random file of 1 GiB, for file systems that can clone
    Clone1g,
    // At the end, because the number of a tree is the seed of its content.
    /// 100 files of 100 KB
    Local10m,
}

impl Tree {
    /// Returns the name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Net1k => "net1k",
            Self::Many50k => "many50k",
            Self::Large1g => "large1g",
            Self::Shift256m => "shift256m",
            Self::Text => "text",
            Self::Rename320m => "rename320m",
            Self::Parts256m => "parts256m",
            Self::Local1k => "local1k",
            Self::Local10m => "local10m",
            Self::Local100m => "local100m",
            Self::Clone1g => "clone1g",
        }
    }

    /// Returns a description for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Net1k => "1,008 files, 21 MB",
            Self::Many50k => "50,000 files of 0.2 to 2 KB",
            Self::Large1g | Self::Clone1g => "one file of 1 GiB",
            Self::Shift256m => "one file of 256 MiB",
            Self::Text => "200 logs, 170 MB",
            Self::Rename320m => "40 files of 8 MiB",
            Self::Parts256m => "four files of 64 MiB",
            Self::Local1k => "1,000 files of 1 to 10 KB",
            Self::Local10m => "100 files of 100 KB",
            Self::Local100m => "one file of 100 MiB",
        }
    }

    /// Returns the approximate total size of the files in bytes, for choosing the size of a loop device.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Net1k => 21 * MIB,
            // In blocks of 4 KiB, including the folders.
            Self::Many50k => 210 * MIB,
            Self::Large1g | Self::Clone1g => 1024 * MIB,
            Self::Shift256m => 257 * MIB,
            Self::Text => 173 * MIB,
            Self::Rename320m => 320 * MIB,
            // Including the file that is added.
            Self::Parts256m => 480 * MIB,
            Self::Local1k => 8 * MIB,
            Self::Local10m => 11 * MIB,
            Self::Local100m => 100 * MIB,
        }
    }

    /// Creates the tree in `root`, which must not exist.
    pub fn make(self, root: &Path) -> anyhow::Result<()> {
        let mut maker = Maker::new(root, self as u64 + 1);
        maker.fill(self).with_context(|| format!("making the tree {} in {}", self.name(), root.display()))
    }
}

/// A tree of the suites, defined by counts and sizes. Its content is random, and identical wherever it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The number of files, distributed over the folders in turn.
    pub files: u32,
    /// The size of each file in bytes, drawn from `bytes.0` to `bytes.1`.
    pub bytes: (u64, u64),
    /// The number of folders that hold the files; 0 puts them into the root.
    pub folders: u32,
    /// The nesting depth: `n % depth` folders inside one another above folder number `n`, as in sy's benchmark; 0 for
    /// none.
    pub depth: u32,
    /// The number of additional files in the root, and the size of each in bytes.
    pub large: (u32, u64),
    /// The extensions of the files' names, used in turn.
    pub endings: &'static [&'static str],
}

impl Shape {
    /// Returns a tree of `files` files of exactly `bytes` bytes in the root.
    pub const fn flat(files: u32, bytes: u64) -> Self {
        Self { files, bytes: (bytes, bytes), folders: 0, depth: 0, large: (0, 0), endings: &["bin"] }
    }

    /// Returns a tree of one file of `bytes` bytes.
    pub const fn large(bytes: u64) -> Self {
        Self { large: (1, bytes), ..Self::flat(0, 0) }
    }

    /// Returns the maximum memory of the tree in bytes, with its files in blocks of 4 KiB.
    pub fn bytes(&self) -> u64 {
        const BLOCK: u64 = 4 << 10;
        let small = u64::from(self.files) * self.bytes.1.next_multiple_of(BLOCK);
        small + u64::from(self.large.0) * self.large.1 + u64::from(self.folders) * BLOCK
    }

    /// Creates the tree in `root`, which must not exist.
    ///
    /// # Errors
    /// If a folder or a file cannot be created; the error names the root.
    pub fn make(&self, root: &Path) -> anyhow::Result<()> {
        let mut maker = Maker::new(root, u64::from(self.files) << 32 | self.large.1);
        maker.shape(self).with_context(|| format!("making {self:?} in {}", root.display()))
    }

    /// Returns the path of folder number `number`, relative to the root.
    fn folder(&self, number: u32) -> String {
        let above = if self.depth == 0 { 0 } else { number % self.depth + 1 };
        let path: String = (0..above).map(|level| format!("level_{level}/")).collect();
        format!("{path}folder_{number}")
    }
}

/// Writes files below one root, and sets their modification times to consecutive values from [`EPOCH`].
struct Maker {
    root: PathBuf,
    rng: Rng,
    files: u32,
    buffer: Vec<u8>,
}

impl Maker {
    fn new(root: &Path, seed: u64) -> Self {
        Self { root: root.into(), rng: Rng::new(seed), files: 0, buffer: vec![0; MIB as usize] }
    }

    fn fill(&mut self, tree: Tree) -> io::Result<()> {
        fs::create_dir(&self.root)?;
        match tree {
            Tree::Net1k => self.net1k(),
            Tree::Many50k => self.many50k(),
            Tree::Large1g | Tree::Clone1g => self.random("disk.img", 1024 * MIB),
            Tree::Shift256m => self.random("archive.tar", 256 * MIB),
            Tree::Text => self.text(),
            Tree::Rename320m => self.numbered("photos", "photo", 40, |_| 8 * MIB),
            Tree::Parts256m => self.numbered("disks", "disk", 4, |_| 64 * MIB),
            Tree::Local1k => self.numbered("files", "file", 1000, |rng| rng.between(1000, 10_000)),
            Tree::Local10m => self.numbered("files", "file", 100, |_| 100_000),
            Tree::Local100m => self.random("disk.img", 100 * MIB),
        }?;
        set_folder_times(&self.root)
    }

    fn shape(&mut self, shape: &Shape) -> io::Result<()> {
        fs::create_dir(&self.root)?;
        let folders: Vec<String> = (0..shape.folders).map(|number| shape.folder(number) + "/").collect();
        folders.iter().try_for_each(|folder| fs::create_dir_all(self.root.join(folder)))?;
        for number in 0..shape.files {
            let at = number as usize;
            let folder = folders.get(at % folders.len().max(1)).map_or("", String::as_str);
            let ending = shape.endings[at % shape.endings.len()];
            let bytes = self.rng.between(shape.bytes.0, shape.bytes.1);
            self.random(&format!("{folder}file_{number}.{ending}"), bytes)?;
        }
        (0..shape.large.0)
            .try_for_each(|number| self.random(&format!("large_{number}.bin"), shape.large.1))?;
        set_folder_times(&self.root)
    }

    fn net1k(&mut self) -> io::Result<()> {
        for dir in 0..10 {
            self.numbered(&format!("small/dir_{dir}"), "file", 100, |_| 4 * KIB)?;
        }
        self.numbered("large", "chunk", 8, |_| 2 * MIB)
    }

    fn many50k(&mut self) -> io::Result<()> {
        for outer in 0..50 {
            for inner in 0..50 {
                let dir = format!("group_{outer:02}/part_{inner:02}");
                self.numbered(&dir, "item", 20, |rng| rng.between(200, 2000))?;
            }
        }
        Ok(())
    }

    /// Writes files `dir/stem_0.bin` to `dir/stem_{count - 1}.bin` of random bytes.
    fn numbered(
        &mut self,
        dir: &str,
        stem: &str,
        count: u32,
        size: impl Fn(&mut Rng) -> u64,
    ) -> io::Result<()> {
        fs::create_dir_all(self.root.join(dir))?;
        for number in 0..count {
            let bytes = size(&mut self.rng);
            self.random(&format!("{dir}/{stem}_{number}.bin"), bytes)?;
        }
        Ok(())
    }

    fn random(&mut self, path: &str, bytes: u64) -> io::Result<()> {
        let mut file = File::create_new(self.root.join(path))?;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(self.buffer.len() as u64) as usize;
            self.rng.fill(&mut self.buffer[..part]);
            file.write_all(&self.buffer[..part])?;
            left -= part as u64;
        }
        self.stamp(&file)
    }

    fn text(&mut self) -> io::Result<()> {
        let words = Words::new(&mut self.rng);
        for number in 0..200 {
            let dir = self.root.join(format!("service_{}", number % 10));
            fs::create_dir_all(&dir)?;
            let mut file = File::create_new(dir.join(format!("log_{number:03}.txt")))?;
            file.write_all(&words.lines(&mut self.rng, 850_000))?;
            self.stamp(&file)?;
        }
        Ok(())
    }

    fn stamp(&mut self, file: &File) -> io::Result<()> {
        self.files += 1;
        let time = SystemTime::UNIX_EPOCH + EPOCH + self.files * Duration::new(1, 1_000_003);
        file.set_modified(time)
    }
}

/// A vocabulary for lines like those of a log.
#[derive(Debug)]
pub struct Words(Vec<String>);

impl Words {
    /// Creates 4,096 words of two to five syllables.
    pub fn new(rng: &mut Rng) -> Self {
        Self((0..4096).map(|_| word(rng)).collect())
    }

    /// Returns exactly `bytes` bytes of lines. Word frequencies are as uneven as in a language: the product of two
    /// uniform choices.
    pub fn lines(&self, rng: &mut Rng, bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes + 200);
        while out.len() < bytes {
            let millisecond = rng.below(86_400_000);
            out.extend_from_slice(format!("2026-01-01T{millisecond:08} INFO").as_bytes());
            for _ in 0..rng.between(6, 18) {
                out.push(b' ');
                out.extend_from_slice(self.pick(rng).as_bytes());
            }
            out.push(b'\n');
        }
        out.truncate(bytes);
        out
    }

    fn pick(&self, rng: &mut Rng) -> &str {
        let below = rng.below(self.0.len() as u64) + 1;
        &self.0[rng.below(below) as usize]
    }
}

fn word(rng: &mut Rng) -> String {
    const CONSONANTS: &[u8] = b"bcdfghklmnprstvw";
    const VOWELS: &[u8] = b"aeiou";
    let syllables = rng.between(2, 5);
    let mut letter = |from: &[u8]| char::from(from[rng.below(from.len() as u64) as usize]);
    let mut word = String::new();
    for _ in 0..syllables {
        word.push(letter(CONSONANTS));
        word.push(letter(VOWELS));
    }
    word
}

/// Sets the time of every folder to [`EPOCH`]. Setting an inner folder's time does not change the outer one's.
fn set_folder_times(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_folder_times(&entry.path())?;
        }
    }
    File::open(dir)?.set_modified(SystemTime::UNIX_EPOCH + EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Fidelity, compare};

    #[test]
    fn a_tree_is_the_same_each_time_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        Tree::Net1k.make(&first).unwrap();
        Tree::Net1k.make(&second).unwrap();
        compare(&first, &second, Fidelity::Full, &[]).unwrap();
    }

    #[test]
    fn net1k_is_the_tree_that_the_figures_are_of() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        Tree::Net1k.make(&root).unwrap();
        let files = crate::edits::files_below(&root).unwrap();
        let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!((files.len(), bytes), (1008, 20_873_216));
    }

    #[test]
    fn a_shape_has_the_files_folders_and_endings_that_it_tells() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        let shape = Shape {
            folders: 4,
            depth: 3,
            large: (1, 9000),
            endings: &["bin", "tmp"],
            ..Shape::flat(10, 100)
        };
        shape.make(&root).unwrap();
        let files = crate::edits::files_below(&root).unwrap();
        let named = |ending| files.iter().filter(|path| path.extension() == Some(ending)).count();
        assert_eq!((files.len(), named("bin".as_ref()), named("tmp".as_ref())), (11, 6, 5));
        assert!(root.join("level_0/level_1/level_2/folder_2").is_dir());
        assert_eq!(fs::metadata(root.join("large_0.bin")).unwrap().len(), 9000);
    }

    #[test]
    fn lines_have_the_length_asked_for_and_shrink_like_text() {
        let mut rng = Rng::new(1);
        let words = Words::new(&mut rng);
        let lines = words.lines(&mut rng, 10_000);
        assert_eq!(lines.len(), 10_000);
        assert!(lines.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n')));
    }
}
