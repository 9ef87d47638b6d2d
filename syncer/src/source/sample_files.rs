//! Computes features from samples of files: the source of those that the sink asks about, the sink of its own.

use std::{
    io,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::{
    delta::features::{SPAN_BYTES, Sampling, add_features},
    measure::monitor::Monitor,
    source::{
        hash_files::HashRequest,
        source_file::{LastDir, Origin, SourceFile},
    },
    sys::{cores::cores, find_holes::DataMap},
    transport::TransportError,
    wire::MAX_SPANS,
};

/// The number of spans that a thread takes at once, of one file or of several.
const SPANS_PER_JOB: usize = 64;

/// A span: the index of its file, and its offset in bytes.
type SampleSpan = (usize, u64);

/// Returns the features of each file, computed on all cores. Files that cannot be read have none.
///
/// # Errors
/// When the run was told to stop, or when the samples have more spans than [`MAX_SPANS`].
pub(crate) fn sample_files(
    origin: Origin<'_>,
    files: &[HashRequest],
    sampling: Sampling,
    monitor: &Monitor,
) -> Result<Vec<Vec<u64>>, TransportError> {
    let spans = spans(files, sampling)?;
    let found: Vec<_> = files.iter().map(|_| Mutex::new(Vec::new())).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reader =
            SampleReader { origin, files, monitor, dir: LastDir::default(), open: None, buffer: Vec::new() };
        while let Some(job) = spans.chunks(SPANS_PER_JOB).nth(next.fetch_add(1, Relaxed))
            && !monitor.cancelled()
        {
            for &(nth, offset) in job {
                let mut features = found[nth].lock();
                if let Err(error) = reader.read(nth, offset, &mut features) {
                    tracing::debug!(name = %files[nth].name.escape_ascii(), %error, "nothing is known of a file");
                }
            }
        }
    };
    let threads = cores();
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    if monitor.cancelled() {
        Err(TransportError::Canceled)
    } else {
        Ok(found.into_iter().map(once_each).collect())
    }
}

fn spans(files: &[HashRequest], sampling: Sampling) -> Result<Vec<SampleSpan>, TransportError> {
    let total = files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    if sampling.spans(total) > MAX_SPANS {
        return Err(TransportError::Nonsense("more of files was to be looked at than may be"));
    }
    let of_file =
        |(nth, file): (usize, &HashRequest)| sampling.starts(file.size).map(move |start| (nth, start));
    Ok(files.iter().enumerate().flat_map(of_file).collect())
}

fn once_each(features: Mutex<Vec<u64>>) -> Vec<u64> {
    let mut features = features.into_inner();
    features.sort_unstable();
    features.dedup();
    features
}

/// The state of one thread that reads samples.
struct SampleReader<'a> {
    origin: Origin<'a>,
    files: &'a [HashRequest],
    monitor: &'a Monitor,
    dir: LastDir,
    /// The file that was read last.
    open: Option<(usize, SourceFile)>,
    buffer: Vec<u8>,
}

impl SampleReader<'_> {
    fn read(&mut self, nth: usize, offset: u64, features: &mut Vec<u64>) -> io::Result<()> {
        let file = match self.open.take().filter(|(open, _)| *open == nth) {
            Some((_, file)) => file,
            None => {
                let HashRequest { id, dir, name, .. } = &self.files[nth];
                self.origin.file_in(&mut self.dir, *id, dir, name, self.monitor)?
            }
        };
        let len = SPAN_BYTES.min(file.len().saturating_sub(offset));
        if !is_hole(&file, offset..offset + len) {
            self.buffer.resize(len as usize, 0);
            let read = file.content().read_at(&mut self.buffer, offset)?;
            add_features(&self.buffer[..read], features);
        }
        self.open = Some((nth, file));
        Ok(())
    }
}

/// Returns whether a span is a hole, which has no features and need not be read.
fn is_hole(file: &SourceFile, span: Range<u64>) -> bool {
    let data = |file: &SourceFile| DataMap::new(file.len()).next(file.content(), span.start);
    file.has_holes() && data(file).is_none_or(|data| data.start >= span.end)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        delta::testing::noise,
        entry::Time,
        path::RelPath,
        sys::root::{Root, TreeLocation},
    };

    fn listed(name: &str, size: usize) -> HashRequest {
        let name = name.as_bytes().into();
        HashRequest { id: 0, dir: RelPath::root(), name, size: size as u64, mtime: Time::default() }
    }

    #[test]
    fn files_that_share_bytes_share_features_and_what_is_gone_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let content = noise(5, 3 << 20);
        fs::write(dir.path().join("a"), &content).unwrap();
        fs::write(dir.path().join("b"), &content[1 << 20..]).unwrap();
        let files = [listed("a", 3 << 20), listed("gone", 1 << 20), listed("b", 2 << 20), listed("none", 0)];
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let all = Sampling::within(1 << 30, 6 << 20);
        let found = sample_files(Origin::Tree(&root), &files, all, &Monitor::default()).unwrap();
        assert!(found[1].is_empty() && found[3].is_empty());
        let common = found[0].iter().filter(|feature| found[2].contains(feature)).count();
        assert!(common > 100 && common <= found[2].len(), "{common} of {}", found[2].len());
        let few = Sampling::within(1 << 20, 6 << 20);
        let fewer = sample_files(Origin::Tree(&root), &files, few, &Monitor::default()).unwrap();
        assert!(
            (1..found[0].len() / 2).contains(&fewer[0].len()),
            "{} of {}",
            fewer[0].len(),
            found[0].len()
        );
    }

    #[test]
    fn holes_are_not_read_and_what_is_between_them_is() {
        use std::os::unix::fs::FileExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (content, len) = (noise(5, 3 << 20), 1 << 40);
        fs::write(dir.path().join("dense"), &content).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(len).unwrap();
        sparse.write_all_at(&content, 512 << 20).unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let sampled = |name, len: u64, sampling| {
            let found = sample_files(
                Origin::Tree(&root),
                &[listed(name, len as usize)],
                sampling,
                &Monitor::default(),
            );
            found.unwrap().remove(0)
        };
        let all = Sampling::within(1 << 30, 1 << 30);
        assert_eq!(sampled("sparse", 1 << 30, all), sampled("dense", 3 << 20, all));
        assert_eq!(sampled("sparse", len, Sampling::within(4 << 30, len)), [0; 0]);
    }

    #[test]
    fn more_than_may_be_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let files = [listed("a", 1 << 50)];
        let sampled = |total| {
            sample_files(Origin::Tree(&root), &files, Sampling::within(1 << 30, total), &Monitor::default())
        };
        assert!(matches!(sampled(1 << 40), Err(TransportError::Nonsense(_))));
        assert_eq!(sampled(1 << 50).unwrap(), [vec![0; 0]]);
    }

    #[test]
    fn who_is_told_to_stop_stops() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
        let monitor = Monitor::default();
        monitor.cancel();
        let stopped = sample_files(Origin::Tree(&root), &[listed("a", 9)], Sampling::within(9, 9), &monitor);
        assert!(matches!(stopped, Err(TransportError::Canceled)));
    }
}
