//! The log of commands on snapshots, such as create, restore, forget and collect: the file `audit`, which only grows.
//!
//! Each line is a hash of the line before and of its own text, a space, and the text, which is JSON. To change or
//! remove a line unseen, one has to rewrite all lines after it. The list counts its changes, and each line has that
//! count: so last lines are missed, too.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, RenameFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    snapshot_id::SnapshotId,
    store_files::{AUDIT, read_regular},
};
use crate::{
    destination::{open_own_with_stat, write_all},
    sys::file_part::Slice,
};

/// The longest log that is read, and the longest line that is looked for at its end, in bytes.
const MAX_AUDIT_BYTES: u64 = 1 << 30;
const MAX_LINE_BYTES: u64 = 64 << 20;

/// The number of bytes at the end of the file that nearly always contain the last line.
const FEW_BYTES: u64 = 1 << 10;

/// The number of hexadecimal digits of a hash.
const HASH_DIGITS: usize = 32;

/// The hash that stands for the line before the first one.
const NO_HASH: &str = "00000000000000000000000000000000";

/// The action of a collection, and of a line that takes one back.
pub(crate) const COLLECT: &str = "collect";
pub(crate) const UNCOLLECT: &str = "uncollect";

/// One change of a volume's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time, as in RFC 3339.
    pub time: String,
    /// `create`, `restore`, `tag`, `pin`, `forget`, `collect`, `uncollect` and so on.
    pub action: String,
    /// The user of the command, or the run.
    pub by: String,
    /// The affected snapshots.
    pub snapshots: Vec<String>,
    /// What else is to be known; empty for most.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The number of changes that the list had seen before; `None` in lines of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<u64>,
}

/// The content of a log, and whether all of it can be trusted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The lines that continue the chain, the oldest first.
    pub events: Vec<Event>,
    /// The first line that does not continue the chain or is missing, counted from 1.
    pub broken: Option<u64>,
}

/// When a line becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Before the call returns.
    Now,
    /// With all else that the caller makes durable.
    Later,
}

/// Appends a line in place of a torn one that a crash left. The cost does not depend on the log's length. If the last
/// line says that snapshots were collected that the list has, that was not carried out, and a line says so first.
pub(crate) fn append(
    dir: BorrowedFd<'_>,
    event: &Event,
    is_listed: &dyn Fn(SnapshotId) -> bool,
    durable: Durable,
) -> io::Result<()> {
    let (file, stat) = open_own_with_stat(dir, AUDIT, OFlags::RDWR | OFlags::CREATE)?;
    let len = stat.st_size as u64;
    let LastLine { end, mut hash, event: last } = last_line(&file, len)?;
    let mut lines = String::new();
    for event in undone(last, is_listed, event).iter().chain([event]) {
        let text = serde_json::to_string(event)?;
        hash = hash_of(&hash, &text);
        lines += &format!("{hash} {text}\n");
    }
    write_all(file.as_fd(), lines.as_bytes(), end)?;
    let end = end + lines.len() as u64;
    if end < len {
        rustix::fs::ftruncate(&file, end)?;
    }
    match durable {
        Durable::Now => Ok(rustix::fs::fdatasync(&file)?),
        Durable::Later => Ok(()),
    }
}

/// Returns the line that takes back what the `last` one says of snapshots that the list still has.
fn undone(last: Option<Event>, is_listed: &dyn Fn(SnapshotId) -> bool, next: &Event) -> Option<Event> {
    let mut last = last.filter(|last| last.action == COLLECT)?;
    last.snapshots.retain(|id| id.parse().is_ok_and(is_listed));
    let note = "the collection before was not carried out".into();
    let undone =
        Event { action: UNCOLLECT.into(), time: next.time.clone(), by: next.by.clone(), note, ..last };
    (!undone.snapshots.is_empty()).then_some(undone)
}

/// Puts a log aside under the first free name, which is returned, so that the next line begins a new chain.
pub(crate) fn put_aside(dir: BorrowedFd<'_>) -> io::Result<String> {
    let mut nth = 1;
    loop {
        let name = format!("{AUDIT}.{nth}");
        match rustix::fs::renameat_with(dir, AUDIT, dir, &name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => nth += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The last complete line of a log: its end, in bytes from the start of the file, its hash and what it says.
struct LastLine {
    end: u64,
    hash: String,
    event: Option<Event>,
}

/// Finds the last complete line; `len` is the file's length. Reads backwards from the end of the file, only as far as
/// that line needs.
fn last_line(file: &OwnedFd, len: u64) -> io::Result<LastLine> {
    let mut start = len.saturating_sub(FEW_BYTES);
    loop {
        if len - start > MAX_LINE_BYTES {
            return Err(io::Error::other("its last line is longer than any line"));
        }
        let mut end = vec![0; (len - start) as usize];
        Slice::all_of(file.as_fd()).read_exact_at(&mut end, start)?;
        let newline = end.iter().rposition(|byte| *byte == b'\n');
        let lines = &end[..newline.unwrap_or(0)];
        let before = lines.iter().rposition(|byte| *byte == b'\n');
        match (newline, before) {
            (Some(newline), Some(before)) => return Ok(found(start, newline, &lines[before + 1..])),
            (Some(newline), None) if start == 0 => return Ok(found(start, newline, lines)),
            (None, _) if start == 0 => return Ok(LastLine { end: 0, hash: NO_HASH.into(), event: None }),
            _ => start = start.saturating_sub(len - start),
        }
    }
}

fn found(start: u64, newline: usize, line: &[u8]) -> LastLine {
    let hash = String::from_utf8_lossy(line.get(..HASH_DIGITS).unwrap_or_default()).into_owned();
    let event = serde_json::from_slice(line.get(HASH_DIGITS..).unwrap_or_default()).ok();
    LastLine { end: start + newline as u64 + 1, hash, event }
}

fn hash_of(before: &str, text: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-22 a line of the audit log v1");
    hasher.update(before.as_bytes()).update(text.as_bytes());
    hasher.finalize().to_hex()[..HASH_DIGITS].to_owned()
}

/// Reads a log, and checks its chain and that it has the last of the `changes` of the list. The first change, which
/// makes the list, has no line.
pub(crate) fn read(dir: BorrowedFd<'_>, changes: u64) -> io::Result<Log> {
    let mut log = Log::decode(&read_regular(dir, AUDIT, MAX_AUDIT_BYTES)?);
    let told = log.events.last().map_or(Some(0), |last| last.changes);
    if log.broken.is_none() && told.is_some_and(|told| changes.saturating_sub(1) > told) {
        log.broken = Some(log.events.len() as u64 + 1);
    }
    Ok(log)
}

impl Log {
    /// Returns the snapshots that were forgotten or collected, and not brought back since.
    pub(crate) fn gone(&self) -> BTreeSet<SnapshotId> {
        let mut gone = BTreeSet::new();
        for event in &self.events {
            let ids = event.snapshots.iter().filter_map(|id| id.parse().ok());
            match event.action.as_str() {
                "forget" | COLLECT => gone.extend(ids),
                "create" | "copy" | "repair" | "unforget" | UNCOLLECT => gone = &gone - &ids.collect(),
                _ => {}
            }
        }
        gone
    }

    /// Decodes the lines of a log up to the first that does not continue the chain. Ignores a torn last line.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut log = Self::default();
        let mut before = NO_HASH.to_owned();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for (number, line) in (1..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
            let Some(event) = check(&mut before, line) else {
                log.broken = Some(number);
                return log;
            };
            log.events.push(event);
        }
        log
    }
}

fn check(before: &mut String, line: &[u8]) -> Option<Event> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (hash, text) = line.split_once(' ')?;
    if hash != hash_of(before, text) {
        return None;
    }
    hash.clone_into(before);
    serde_json::from_str(text).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, os::fd::AsFd as _};

    use rustix::fs::Mode;

    use super::*;

    pub(crate) fn event(nth: usize) -> Event {
        let snapshots = vec![format!("{nth:016x}")];
        Event {
            time: "2026-11-22T18:00:00Z".into(),
            action: "create".into(),
            by: "uid 0".into(),
            snapshots,
            note: String::new(),
            changes: None,
        }
    }

    /// Appends a line to the log of a store without snapshots.
    fn append(dir: BorrowedFd<'_>, event: &Event, durable: Durable) -> io::Result<()> {
        super::append(dir, event, &|_| false, durable)
    }

    fn with_lines(count: usize) -> (tempfile::TempDir, fs::File) {
        let dir = tempfile::tempdir().unwrap();
        let fd = fs::File::open(dir.path()).unwrap();
        (0..count).for_each(|nth| append(fd.as_fd(), &event(nth), Durable::Now).unwrap());
        (dir, fd)
    }

    #[test]
    fn lines_are_appended_and_a_torn_one_is_cut_off() {
        let (dir, fd) = with_lines(3);
        let path = dir.path().join(AUDIT);
        let whole = fs::read(&path).unwrap();
        for torn in [&b"0123"[..], &whole[..whole.len() / 3 - 1]] {
            fs::write(&path, [&whole, torn].concat()).unwrap();
            assert_eq!(read(fd.as_fd(), 0).unwrap().events.len(), 3);
            append(fd.as_fd(), &event(3), Durable::Now).unwrap();
            let log = read(fd.as_fd(), 0).unwrap();
            assert_eq!((log.events, log.broken), ((0..4).map(event).collect(), None));
        }
    }

    #[test]
    fn lines_of_any_length_continue_the_chain() {
        let (_dir, fd) = with_lines(1);
        for count in [1, 100, 3000, 1] {
            let snapshots = (0..count).map(|nth| format!("{nth:016x}")).collect();
            append(fd.as_fd(), &Event { snapshots, ..event(0) }, Durable::Now).unwrap();
        }
        let log = read(fd.as_fd(), 0).unwrap();
        assert_eq!((log.events.len(), log.broken), (5, None));
    }

    #[test]
    fn a_collection_whose_snapshots_are_still_listed_is_taken_back() {
        let (_dir, fd) = with_lines(3);
        let collect = Event {
            action: COLLECT.into(),
            snapshots: [event(0), event(1)].map(|it| it.snapshots[0].clone()).into(),
            ..event(0)
        };
        super::append(fd.as_fd(), &collect, &|_| true, Durable::Now).unwrap();
        let first = |id: SnapshotId| id.0 == 0;
        super::append(fd.as_fd(), &event(3), &first, Durable::Now).unwrap();
        super::append(fd.as_fd(), &event(4), &first, Durable::Now).unwrap();
        let log = read(fd.as_fd(), 0).unwrap();
        let said: Vec<_> = log.events.iter().map(|it| (it.action.as_str(), it.snapshots.len())).collect();
        assert_eq!(said[3..], [(COLLECT, 2), (UNCOLLECT, 1), ("create", 1), ("create", 1)]);
        assert_eq!((log.broken, log.gone()), (None, [SnapshotId(1)].into()));
    }

    #[test]
    fn a_changed_or_missing_line_breaks_the_chain() {
        let (dir, fd) = with_lines(4);
        let path = dir.path().join(AUDIT);
        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        fs::write(&path, whole.replace("0000000000000001", "0000000000000009")).unwrap();
        assert_eq!(read(fd.as_fd(), 0).unwrap().broken, Some(2));
        fs::write(&path, [lines[0], lines[2], lines[3]].concat()).unwrap();
        assert_eq!(read(fd.as_fd(), 0).unwrap().broken, Some(2));
    }

    #[test]
    fn last_lines_that_are_missing_are_missed() {
        let (dir, fd) = with_lines(0);
        let changed = |changes| Event { changes: Some(changes), ..event(changes as usize) };
        // A line without a change follows each with one, as a restore writes it.
        for event in (1..4).flat_map(|changes| [changed(changes), changed(changes)]) {
            append(fd.as_fd(), &event, Durable::Now).unwrap();
        }
        assert_eq!(
            (4..6).map(|changes| read(fd.as_fd(), changes).unwrap().broken).collect::<Vec<_>>(),
            [None, Some(7)]
        );
        let path = dir.path().join(AUDIT);
        let whole = fs::read_to_string(&path).unwrap();
        let broken = |lines: usize| {
            fs::write(&path, whole.split_inclusive('\n').take(lines).collect::<String>()).unwrap();
            read(fd.as_fd(), 4).unwrap().broken
        };
        assert_eq!([6, 5, 4, 3, 0].map(broken), [None, None, Some(5), Some(4), Some(1)]);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(fd.as_fd(), 4).unwrap().broken, Some(1));
    }

    #[test]
    fn what_has_no_end_is_no_log() {
        use std::os::unix::fs::symlink;

        let (dir, fd) = with_lines(0);
        let path = dir.path().join(AUDIT);
        symlink("/dev/zero", &path).unwrap();
        assert!(read(fd.as_fd(), 0).is_err() && append(fd.as_fd(), &event(0), Durable::Now).is_err());
        fs::remove_file(&path).unwrap();
        // Names of devices need a capability, and a pipe behaves like one.
        let flags = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&fd, AUDIT, flags, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(read(fd.as_fd(), 0).is_err() && append(fd.as_fd(), &event(0), Durable::Now).is_err());
        fs::remove_file(&path).unwrap();
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(fd.as_fd(), 0).is_err() && append(fd.as_fd(), &event(0), Durable::Now).is_err());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (_dir, fd) = with_lines(2);
        let bytes = read_regular(fd.as_fd(), AUDIT, MAX_AUDIT_BYTES).unwrap();
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Log::decode(&damaged).broken.is_some(), "byte {at}");
        }
    }
}
