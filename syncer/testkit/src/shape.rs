//! Makes trees from seeds. Each is identical wherever it is made, in its bytes and its modification times.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;

use crate::rng::Rng;

/// The first modification time of a fresh tree (2026-01-01), so that every later edit is newer by far more than the
/// coarsest clock of a tool.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

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
    pub fn make(&self, root: &Path) -> anyhow::Result<()> {
        let seed = u64::from(self.files) << 32 | self.large.1;
        let made = Maker::new(root, seed).and_then(|mut maker| maker.shape(self));
        made.with_context(|| format!("making {self:?} in {}", root.display()))
    }

    /// Returns the path of folder number `number`, relative to the root.
    fn folder(&self, number: u32) -> String {
        let above = if self.depth == 0 { 0 } else { number % self.depth + 1 };
        let path: String = (0..above).map(|level| format!("level_{level}/")).collect();
        format!("{path}folder_{number}")
    }
}

/// Writes files below one root, and sets their modification times to consecutive values from [`EPOCH`].
pub struct Maker {
    root: PathBuf,
    rng: Rng,
    files: u32,
    buffer: Vec<u8>,
}

impl Maker {
    /// Creates the folder of a tree, which must not exist.
    pub fn new(root: &Path, seed: u64) -> io::Result<Self> {
        fs::create_dir(root)?;
        Ok(Self { root: root.into(), rng: Rng::new(seed), files: 0, buffer: vec![0; 1 << 20] })
    }

    fn shape(&mut self, shape: &Shape) -> io::Result<()> {
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
        self.finish()
    }

    /// Writes files `dir/stem_0.bin` to `dir/stem_{count - 1}.bin` of random bytes.
    pub fn numbered(
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

    /// Writes a file of random bytes.
    pub fn random(&mut self, path: &str, bytes: u64) -> io::Result<()> {
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

    /// Writes `count` files `service_{number % 10}/log_{number}.txt` of words.
    pub fn logs(&mut self, count: u32, bytes: usize) -> io::Result<()> {
        let words = Words::new(&mut self.rng);
        for number in 0..count {
            let dir = self.root.join(format!("service_{}", number % 10));
            fs::create_dir_all(&dir)?;
            let mut file = File::create_new(dir.join(format!("log_{number:03}.txt")))?;
            file.write_all(&words.lines(&mut self.rng, bytes))?;
            self.stamp(&file)?;
        }
        Ok(())
    }

    /// Sets the times of the folders, after the last file.
    pub fn finish(&self) -> io::Result<()> {
        set_folder_times(&self.root)
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
