//! The shards of one run, which write to one destination as separate processes: which of them have joined, how far each
//! is, and which have died. `syncer/doc/format.md` describes the files.
//!
//! They share nothing but the volume. They write to one file, the board, under a lock that each holds for microseconds,
//! because a network file system writes and reads afresh when a lock is taken or released. Each process also holds a
//! lock of its own for as long as it lives.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use contract::Shard;
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};

use crate::{
    destination::{
        copy_bytes,
        remove_old_versions::EntryAt,
        state::{lock_still_held::Stamp, own_file::open_own, private_dir::Private},
    },
    hash::digest,
};

const BOARD: &[u8] = b"board";
const DEAL: &[u8] = b"deal";

/// How long to try for the board's lock before the destination counts as busy.
const BOARD_PATIENCE: Duration = Duration::from_secs(10);

/// Stamp of the epoch, digest of the run's name, number of shards.
const HEAD_BYTES: usize = 16 + 16 + 4;
/// A stage, the digest of the paths that had failed when the trees were compared, and the number of failures.
const SEAT_BYTES: usize = 1 + 8 + 8;
/// A digest of a directory's path, and its shard.
const DEALT_BYTES: usize = 8 + 4;

/// The stage that a shard has reached. Each stage includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// It has not joined yet.
    #[default]
    Absent,
    /// It has joined, and is scanning.
    Joined,
    /// It has compared the trees, and no guard has refused.
    Planned,
    /// It has made and assigned the directories; first shard only.
    Dealt,
    /// It has received the content of all its files.
    Moved,
    /// It has made its links, and counted its failures.
    Linked,
    /// It has moved the folders that replace other entries to their places; first shard only.
    Placed,
    /// It has done its deletes, and all its changes are durable; of the first shard: it has done its deletes.
    Applied,
    /// It has set the metadata of the directories, and all its changes are durable; first shard only.
    Committed,
}

const STAGES: [Stage; 9] = [
    Stage::Absent,
    Stage::Joined,
    Stage::Planned,
    Stage::Dealt,
    Stage::Moved,
    Stage::Linked,
    Stage::Placed,
    Stage::Applied,
    Stage::Committed,
];

/// The state of one shard on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardState {
    /// The stage that it has reached.
    pub stage: Stage,
    /// A digest of the paths that had failed when it had compared the trees; 0 if none had.
    pub failures: u64,
    /// The number of entries that had failed by then; from [`Stage::Linked`] on, by the time its links were made.
    pub failed: u64,
}

/// The state of the other shards, as one shard sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum OtherShards {
    /// All awaited shards have reached the stage.
    All(Vec<ShardState>),
    /// The process of this shard has died before it was done.
    Gone(u32),
    /// Some have not reached it yet.
    Waiting {
        /// The first shard that has not joined, counted from 0.
        absent: Option<u32>,
        /// The first awaited shard that has not reached the stage; `None` while another process reads the board.
        behind: Option<u32>,
    },
}

/// One shard's access to the board of its run.
#[derive(Debug)]
pub struct ShardBoard {
    table: BoardDir,
    stamp: Stamp,
    shard: Shard,
    /// Its lock shows the other processes that this one lives.
    _alive: OwnedFd,
}

/// The open `.volferry/shards/`.
#[derive(Debug)]
pub(crate) struct BoardDir {
    dir: Private,
    board: OwnedFd,
}

/// The board, locked.
pub(crate) struct Meeting<'a>(&'a BoardDir);

impl Drop for Meeting<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0.board, FlockOperation::Unlock);
    }
}

/// The content of the board.
#[derive(Debug, PartialEq, Eq)]
struct Board {
    stamp: Stamp,
    run: [u8; 16],
    seats: Vec<ShardState>,
}

impl BoardDir {
    /// Opens the board in the folder `dir`, and makes it if it is missing.
    pub(crate) fn open(dir: Private) -> io::Result<Self> {
        let board = open_file(&dir, BOARD)?;
        Ok(Self { dir, board })
    }

    /// Takes the board's lock. Polls for it, because a thread that waits in `flock(2)` can neither give up nor be
    /// stopped.
    ///
    /// # Errors
    /// `WOULDBLOCK` when other processes hold it longer than [`BOARD_PATIENCE`].
    pub(crate) fn meet(&self) -> io::Result<Meeting<'_>> {
        let start = Instant::now();
        loop {
            match self.try_meet()? {
                Some(meeting) => return Ok(meeting),
                None if start.elapsed() > BOARD_PATIENCE => return Err(Errno::WOULDBLOCK.into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn try_meet(&self) -> io::Result<Option<Meeting<'_>>> {
        match rustix::fs::flock(&self.board, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Meeting(self))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Meeting<'_> {
    /// Clears the board for a new run, of which this process is the first shard.
    pub(crate) fn begin(&self, stamp: Stamp, run: &str, count: u32) -> io::Result<()> {
        let seats = vec![ShardState::default(); count as usize];
        self.write(&Board { stamp, run: digest(&[run.as_bytes()]), seats })
    }

    /// Joins the run on the board as `shard`.
    ///
    /// # Errors
    /// `WOULDBLOCK` when the board is another run's, or the shard has joined already.
    pub(crate) fn join(&self, stamp: Stamp, run: &str, shard: Shard) -> io::Result<OwnedFd> {
        let busy = || io::Error::from(Errno::WOULDBLOCK);
        let mut board = self.read()?.ok_or_else(busy)?;
        let is_ours = board.stamp == stamp
            && board.run == digest(&[run.as_bytes()])
            && board.seats.len() == shard.count as usize;
        let seat = board.seats.get_mut(shard.index as usize).filter(|_| is_ours).ok_or_else(busy)?;
        if seat.stage != Stage::Absent {
            return Err(busy());
        }
        seat.stage = Stage::Joined;
        let alive = open_file(&self.0.dir, seat_name(shard.index).as_bytes())?;
        rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        self.write(&board)?;
        Ok(alive)
    }

    /// Reads the board; `None` if its content is not valid.
    fn read(&self) -> io::Result<Option<Board>> {
        let mut head = [0; HEAD_BYTES];
        if read_at(&self.0.board, &mut head, 0)? < HEAD_BYTES {
            return Ok(None);
        }
        let (stamp, rest) = head.split_at(16);
        let (run, count) = rest.split_at(16);
        let (Ok(stamp), Ok(run), Ok(count)) = (stamp.try_into(), run.try_into(), count.try_into()) else {
            return Ok(None);
        };
        let count = u32::from_le_bytes(count);
        if count > Shard::MAX_COUNT {
            return Ok(None);
        }
        let mut bytes = vec![0; count as usize * SEAT_BYTES];
        if read_at(&self.0.board, &mut bytes, HEAD_BYTES as u64)? < bytes.len() {
            return Ok(None);
        }
        let seats: Option<Vec<ShardState>> = bytes.chunks_exact(SEAT_BYTES).map(read_seat).collect();
        Ok(seats.map(|seats| Board { stamp, run, seats }))
    }

    fn write(&self, board: &Board) -> io::Result<()> {
        let mut bytes = [&board.stamp[..], &board.run].concat();
        bytes.extend((board.seats.len() as u32).to_le_bytes());
        for seat in &board.seats {
            bytes.push(seat.stage as u8);
            bytes.extend(seat.failures.to_le_bytes());
            bytes.extend(seat.failed.to_le_bytes());
        }
        copy_bytes::write_all(self.0.board.as_fd(), &bytes, 0)
    }
}

impl ShardBoard {
    pub(crate) fn new(table: BoardDir, stamp: Stamp, shard: Shard, alive: OwnedFd) -> Self {
        Self { table, stamp, shard, _alive: alive }
    }

    /// Returns the shard of this process.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Tells the other shards that this one has compared the trees, with a digest of the paths that have failed, and
    /// their number.
    pub fn has_planned(&self, failures: u64, failed: u64) -> io::Result<()> {
        self.update(|seat| *seat = ShardState { stage: Stage::Planned, failures, failed })
    }

    /// Tells the other shards that this one has reached `stage`, and the number of entries that have failed.
    pub fn counts(&self, stage: Stage, failed: u64) -> io::Result<()> {
        self.update(|seat| *seat = ShardState { stage, failed, ..*seat })
    }

    /// Tells the other shards that this one has reached `stage`. The failures that it told before stay on the board.
    pub fn reach(&self, stage: Stage) -> io::Result<()> {
        self.update(|seat| seat.stage = stage)
    }

    fn update(&self, change: impl FnOnce(&mut ShardState)) -> io::Result<()> {
        let meeting = self.table.meet()?;
        let mut board = self.board(&meeting)?;
        change(&mut board.seats[self.shard.index as usize]);
        meeting.write(&board)
    }

    /// Checks whether shard 0, or `all` of them, have reached `stage`, and if not, whether one has died before it was
    /// done.
    ///
    /// # Errors
    /// When the board is another run's, which has taken the destination over, or cannot be read.
    pub fn inspect(&self, stage: Stage, all: bool) -> io::Result<OtherShards> {
        let Some(meeting) = self.table.try_meet()? else {
            return Ok(OtherShards::Waiting { absent: None, behind: None });
        };
        let seats = self.board(&meeting)?.seats;
        let awaited = if all { seats.len() } else { 1 };
        if seats.iter().take(awaited).all(|seat| seat.stage >= stage) {
            return Ok(OtherShards::All(seats));
        }
        for (index, seat) in (0..).zip(&seats) {
            // A shard that is done may end, unless a later stage of it is awaited.
            let done = if (index as usize) < awaited { stage.max(Stage::Applied) } else { Stage::Applied };
            let is_in = (Stage::Joined..done).contains(&seat.stage);
            if is_in && index != self.shard.index && !self.is_alive(index)? {
                return Ok(OtherShards::Gone(index));
            }
        }
        let first = |seats: &[ShardState], stage| {
            let found = seats.iter().position(|seat| seat.stage < stage);
            found.map(|index| index as u32)
        };
        let (absent, behind) = (first(&seats, Stage::Joined), first(&seats[..awaited], stage));
        Ok(OtherShards::Waiting { absent, behind })
    }

    /// Writes the assignment of directories to shards: digests of their paths, and shards.
    pub fn deal(&self, dealt: impl Iterator<Item = (u64, u32)>) -> io::Result<()> {
        let mut bytes = self.stamp.to_vec();
        for (path, shard) in dealt {
            bytes.extend(path.to_le_bytes());
            bytes.extend(shard.to_le_bytes());
        }
        // A new file: another process may hold the old one open from a time when others could write to the folder.
        EntryAt::staged(self.table.dir.as_fd(), DEAL).unlink()?;
        let file = open_file(&self.table.dir, DEAL)?;
        copy_bytes::write_all(file.as_fd(), &bytes, 0)
    }

    /// Reads the assignment that [`ShardBoard::deal`] wrote, and calls `each` for every directory.
    pub fn dealt(&self, mut each: impl FnMut(u64, u32)) -> io::Result<()> {
        let mut file = io::BufReader::new(File::from(open_file(&self.table.dir, DEAL)?));
        let mut stamp = Stamp::default();
        file.read_exact(&mut stamp)?;
        if stamp != self.stamp {
            return Err(io::Error::other("the deal is another run's"));
        }
        let mut dealt = [0; DEALT_BYTES];
        loop {
            match file.read_exact(&mut dealt) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let [p0, p1, p2, p3, p4, p5, p6, p7, shard @ ..] = dealt;
            each(u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]), u32::from_le_bytes(shard));
        }
    }

    fn board(&self, meeting: &Meeting<'_>) -> io::Result<Board> {
        let board = meeting.read()?.filter(|board| board.stamp == self.stamp);
        let board = board.filter(|board| board.seats.len() == self.shard.count as usize);
        board.ok_or_else(|| io::Error::other("another run has taken the destination over"))
    }

    /// Returns whether the process of another shard lives. The caller holds the board's lock, so that no process joins
    /// meanwhile.
    fn is_alive(&self, index: u32) -> io::Result<bool> {
        let seat = open_file(&self.table.dir, seat_name(index).as_bytes())?;
        match rustix::fs::flock(&seat, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

fn seat_name(index: u32) -> String {
    format!("seat-{index}")
}

fn open_file(dir: &Private, name: &[u8]) -> io::Result<OwnedFd> {
    open_own(dir.as_fd(), name, OFlags::RDWR | OFlags::CREATE)
}

/// Reads from `offset` up to the end of the file or of `buffer`. Returns the number of bytes read.
fn read_at(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, buffer, offset)?)
}

fn read_seat(bytes: &[u8]) -> Option<ShardState> {
    let (stage, words) = bytes.split_first()?;
    let (failures, failed) = words.split_first_chunk()?;
    let stage = *STAGES.get(usize::from(*stage))?;
    let failed = u64::from_le_bytes(failed.try_into().ok()?);
    Some(ShardState { stage, failures: u64::from_le_bytes(*failures), failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(state: &OwnedFd) -> Private {
        let dir = Private::open(state.as_fd(), "destination".as_ref()).unwrap().dir;
        dir.folder(b"shards").unwrap()
    }

    fn state() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap().into();
        (dir, fd)
    }

    fn sit(state: &OwnedFd, index: u32, run: &str) -> io::Result<ShardBoard> {
        let table = BoardDir::open(folder(state))?;
        let shard = Shard { index, count: 2 };
        let alive = table.meet()?.join([7; 16], run, shard)?;
        Ok(ShardBoard::new(table, [7; 16], shard, alive))
    }

    fn begun() -> (tempfile::TempDir, OwnedFd) {
        let (dir, state) = state();
        BoardDir::open(folder(&state)).unwrap().meet().unwrap().begin([7; 16], "run", 2).unwrap();
        (dir, state)
    }

    #[test]
    fn only_the_shards_of_one_run_sit_down_and_each_once() {
        let (_dir, state) = begun();
        let _first = sit(&state, 0, "run").unwrap();
        assert!(sit(&state, 0, "run").is_err());
        assert!(sit(&state, 1, "another").is_err());
        let _second = sit(&state, 1, "run").unwrap();
    }

    #[test]
    fn one_that_died_is_seen_and_one_that_was_done_is_not_missed() {
        let (_dir, state) = begun();
        let first = sit(&state, 0, "run").unwrap();
        assert_eq!(
            first.inspect(Stage::Planned, true).unwrap(),
            OtherShards::Waiting { absent: Some(1), behind: Some(0) }
        );
        let second = sit(&state, 1, "run").unwrap();
        first.has_planned(0, 0).unwrap();
        let behind = |index| OtherShards::Waiting { absent: None, behind: Some(index) };
        assert_eq!(first.inspect(Stage::Planned, true).unwrap(), behind(1));
        second.has_planned(3, 1).unwrap();
        let OtherShards::All(seats) = first.inspect(Stage::Planned, true).unwrap() else { panic!("not all") };
        assert_eq!(seats[1], ShardState { stage: Stage::Planned, failures: 3, failed: 1 });
        second.reach(Stage::Moved).unwrap();
        drop(second);
        let OtherShards::All(seats) = first.inspect(Stage::Planned, true).unwrap() else { panic!("not all") };
        assert_eq!(seats[1].failures, 3, "a shard that looks late sees it as well");
        assert_eq!(first.inspect(Stage::Applied, true).unwrap(), OtherShards::Gone(1));
    }

    #[test]
    fn the_last_that_the_first_does_is_waited_for_but_not_beyond_its_end() {
        let (_dir, state) = begun();
        let (first, second) = (sit(&state, 0, "run").unwrap(), sit(&state, 1, "run").unwrap());
        [&first, &second].into_iter().for_each(|team| team.reach(Stage::Applied).unwrap());
        let waiting = OtherShards::Waiting { absent: None, behind: Some(0) };
        assert_eq!(second.inspect(Stage::Committed, false).unwrap(), waiting);
        first.reach(Stage::Committed).unwrap();
        drop(first);
        assert!(matches!(second.inspect(Stage::Committed, false).unwrap(), OtherShards::All(_)));
        let (_dir, state) = begun();
        let (first, second) = (sit(&state, 0, "run").unwrap(), sit(&state, 1, "run").unwrap());
        [&first, &second].into_iter().for_each(|team| team.reach(Stage::Applied).unwrap());
        drop(first);
        assert_eq!(second.inspect(Stage::Committed, false).unwrap(), OtherShards::Gone(0));
    }

    #[test]
    fn a_deal_is_read_as_it_was_written_and_another_runs_is_refused() {
        let (_dir, state) = begun();
        let (first, second) = (sit(&state, 0, "run").unwrap(), sit(&state, 1, "run").unwrap());
        first.deal([(1, 0), (u64::MAX, 1)].into_iter()).unwrap();
        let mut dealt = Vec::new();
        second.dealt(|path, shard| dealt.push((path, shard))).unwrap();
        assert_eq!(dealt, [(1, 0), (u64::MAX, 1)]);
        assert!(ShardBoard { stamp: [8; 16], ..second }.dealt(|_, _| {}).is_err());
    }

    #[test]
    fn a_board_that_cannot_be_read_is_nobodys() {
        let (dir, state) = begun();
        for bytes in [&b""[..], &[7; 20], &[0xff; 36], &[7; 400]] {
            std::fs::write(dir.path().join(".volferry/shards/board"), bytes).unwrap();
            assert!(sit(&state, 0, "run").is_err());
        }
    }
}
