//! Cuts a basis into chunks and hashes them on several threads.
//!
//! A cut depends on the one before, so each thread begins its piece as if there were a cut, although there usually is
//! none. But two sequences of cuts that have one cut in common have all later ones in common, and a few chunks after
//! its start a piece agrees with the chunks cut up to there.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use blake3::Hash;
use parking_lot::Mutex;

use crate::{
    delta::{chunk_sizes::ChunkSizes, cut_chunks::Chunker, window::Window},
    fetch::concatenated_files::ConcatFiles,
    measure::monitor::Monitor,
    sys::cores::cores,
};

/// The number of bytes that a thread takes at a time: of hundreds of chunks, a few are cut twice.
const PIECE: u64 = 32 << 20;

/// The number of bytes that are read ahead for each thread. The system's own read-ahead does not work here: it takes
/// several sequential readers of one file for random access.
const AHEAD: u64 = 4 << 20;

/// The largest number of threads for one file; other files have their own.
const MAX_THREADS: usize = 8;

/// A chunk of a file.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub hash: Hash,
    /// Its length in bytes.
    pub len: u32,
}

/// Cuts `basis` into chunks, and returns them in order.
///
/// # Errors
/// If a file cannot be read, or the monitor is told to stop.
pub(crate) fn cut(basis: &ConcatFiles, sizes: ChunkSizes, monitor: &Monitor) -> io::Result<Vec<Cut>> {
    cut_in_pieces(&CutBasis { files: basis, sizes, monitor }, PIECE)
}

/// The files to cut, with their parameters.
#[derive(Clone, Copy)]
struct CutBasis<'a> {
    files: &'a ConcatFiles,
    sizes: ChunkSizes,
    monitor: &'a Monitor,
}

fn cut_in_pieces(basis: &CutBasis<'_>, piece: u64) -> io::Result<Vec<Cut>> {
    let starts: Vec<u64> = (0..basis.files.len()).step_by(piece as usize).collect();
    let mut joining = Joining { basis, chunks: Vec::new(), at: 0 };
    for (start, chunks) in starts.iter().zip(cut_all(basis, &starts, piece)?) {
        joining.add(*start, &chunks)?;
    }
    joining.finish()
}

/// Cuts each piece up to the first cut at or behind its end.
fn cut_all(basis: &CutBasis<'_>, starts: &[u64], piece: u64) -> io::Result<Vec<Vec<Cut>>> {
    let cut: Vec<Mutex<io::Result<Vec<Cut>>>> = starts.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((start, cut)) =
            Some(next.fetch_add(1, Relaxed)).and_then(|nth| starts.get(nth).zip(cut.get(nth)))
        {
            *cut.lock() = cut_piece(basis, *start, start + piece);
        }
    };
    let threads = cores().min(MAX_THREADS).min(starts.len());
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    cut.into_iter().map(Mutex::into_inner).collect()
}

fn cut_piece(basis: &CutBasis<'_>, start: u64, end: u64) -> io::Result<Vec<Cut>> {
    let (mut cutter, mut at, mut chunks) = (Cutter::new(basis, start), start, Vec::new());
    while at < end
        && let Some(chunk) = cutter.next()?
    {
        at += u64::from(chunk.len);
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// Joins the chunks of pieces.
struct Joining<'a> {
    basis: &'a CutBasis<'a>,
    chunks: Vec<Cut>,
    /// The offset of the last cut.
    at: u64,
}

impl Joining<'_> {
    fn push(&mut self, chunk: Cut) {
        self.at += u64::from(chunk.len);
        self.chunks.push(chunk);
    }

    /// Adds a piece from its first common cut on. Up to there, continues to cut after the chunks that were joined.
    fn add(&mut self, start: u64, chunks: &[Cut]) -> io::Result<()> {
        let (mut cut, mut chunks) = (start, chunks.iter());
        let mut cutter = Cutter::new(self.basis, self.at);
        while cut != self.at {
            if cut < self.at {
                let Some(chunk) = chunks.next() else { return Ok(()) };
                cut += u64::from(chunk.len);
            } else {
                let chunk = cutter.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
                self.push(chunk);
            }
        }
        chunks.for_each(|chunk| self.push(*chunk));
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<Cut>> {
        let mut cutter = Cutter::new(self.basis, self.at);
        while let Some(chunk) = cutter.next()? {
            self.push(chunk);
        }
        Ok(self.chunks)
    }
}

/// Cuts one chunk after another.
struct Cutter<'a> {
    basis: &'a CutBasis<'a>,
    chunker: Chunker,
    window: Option<Window>,
    read: u64,
    /// The offset up to which the system was told to read ahead.
    asked: u64,
}

impl<'a> Cutter<'a> {
    fn new(basis: &'a CutBasis<'a>, start: u64) -> Self {
        Self { basis, chunker: Chunker::new(basis.sizes), window: None, read: start, asked: start }
    }

    fn next(&mut self) -> io::Result<Option<Cut>> {
        let (sizes, len) = (self.chunker.sizes(), self.basis.files.len());
        let rest = len - self.read;
        let window = self.window.get_or_insert_with(|| Window::new(sizes, rest));
        loop {
            if let Some(cut) = self.chunker.next_cut(window.bytes(), self.read == len) {
                let hash = blake3::hash(&window.bytes()[..cut]);
                window.consume(cut);
                return Ok(Some(Cut { hash, len: cut as u32 }));
            }
            if self.read == len {
                return Ok(None);
            }
            self.basis.monitor.check()?;
            let spare = window.spare();
            let most = usize::try_from(len - self.read).map_or(spare.len(), |rest| rest.min(spare.len()));
            if self.asked < self.read + AHEAD / 2 {
                self.asked = self.asked.max(self.read);
                self.basis.files.will_need(self.asked, AHEAD);
                self.asked += AHEAD;
            }
            self.basis.files.read_exact_at(&mut spare[..most], self.read)?;
            window.filled(most);
            self.read += most as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{
        delta::{
            list::{ListBuilder, list},
            testing::{noise, text},
        },
        measure::monitor::MAX_UNCHECKED_BYTES,
        sys::file_part::SizedFile,
    };

    fn joined(contents: &[&[u8]]) -> ConcatFiles {
        let files = contents.iter().map(|content| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content).unwrap();
            SizedFile { file: file.into(), len: content.len() as u64 }
        });
        ConcatFiles::new(files.collect())
    }

    #[test]
    fn in_pieces_a_file_has_the_chunks_that_it_has_as_a_whole() {
        let sizes = ChunkSizes::FINE;
        let zeros = vec![0; 700_000];
        let mixed = [&noise(1, 300_000)[..], &zeros, &text(2, 400_000)].concat();
        for content in [&noise(3, 1_000_000)[..], &text(4, 1_000_000), &zeros, &mixed, &noise(5, 100), &[]] {
            let expected = list(content, sizes);
            for piece in [5_000, 20_000, 99_999, 500_000, 10_000_000] {
                let halves = content.split_at(content.len() / 3);
                for files in [joined(&[content]), joined(&[halves.0, halves.1])] {
                    let mut found = ListBuilder::new(sizes);
                    let basis = CutBasis { files: &files, sizes, monitor: &Monitor::default() };
                    let chunks = cut_in_pieces(&basis, piece).unwrap();
                    chunks.iter().for_each(|chunk| found.push(&chunk.hash, chunk.len));
                    assert!(found.finish() == expected, "{} bytes in pieces of {piece}", content.len());
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let mut short = tempfile::tempfile().unwrap();
        short.write_all(&noise(6, 100_000)).unwrap();
        let files = ConcatFiles::new(vec![SizedFile { file: short.into(), len: 200_000 }]);
        let basis = CutBasis { files: &files, sizes: ChunkSizes::FINE, monitor: &Monitor::default() };
        assert!(cut_in_pieces(&basis, 30_000).is_err());
    }

    #[test]
    fn a_thread_that_is_told_to_stop_reads_no_further_window() {
        let files = joined(&[&noise(7, 20_000_000)]);
        let cut_with = |monitor: &Monitor| cut(&files, ChunkSizes::FINE, monitor);
        let whole = Monitor::default();
        cut_with(&whole).unwrap();
        assert!(whole.checks() >= 20_000_000 / MAX_UNCHECKED_BYTES);
        let stopped = Monitor::canceled_at(2);
        assert!(cut_with(&stopped).is_err());
        assert!(stopped.checks() <= 2 + cores() as u64, "{}", stopped.checks());
    }
}
