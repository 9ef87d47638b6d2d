//! Stores that lie when snapshots are copied from them: nothing that is wrong becomes visible, and nothing is left.

use std::{fs, path::Path};

use contract::{CopySelection, SnapshotEngine};
use tempfile::TempDir;

use super::{
    copy_snapshots::{CopiedHistory, copy_history},
    copy_source::{
        ContentPiece, HistorySource, OfferedHistory, ReceiveFolder, ReceivePiece, RequestedContent,
        StoredHistory,
    },
    stream_client::StreamedHistory,
    stream_server::serve_history,
};
use crate::{
    failures::Failures,
    monitor::Monitor,
    root::{Root, TreeLocation},
    snapshot::{
        check::{ReadPace, StoreShare, Turn, verify},
        create::{create_snapshot, lock_volume},
        store::{ContentRef, Folder, FolderRef, Labels, Roots, SnapshotError, Store, Writer},
    },
};

/// How a store lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    OtherFolder,
    FewerFolders,
    MoreFolders,
    FlippedByte,
    ShortContent,
    LongContent,
    HugeHole,
    SameAsNothing,
    ContentTwice,
    OtherNumber,
    NoContents,
    Tags,
    /// Each content is one hole, which has its length and not its hash.
    AllHole,
}

use Lie::*;

/// A store that lies.
pub(super) struct Lying<'a> {
    pub store: StoredHistory<'a>,
    pub lie: Option<Lie>,
}

impl HistorySource for Lying<'_> {
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError> {
        let mut offer = self.store.offer()?;
        for snapshot in &mut offer.snapshots {
            // Nothing of this is believed, so it is no lie that a copy is refused for.
            (snapshot.entries, snapshot.bytes, snapshot.added_bytes) = (u64::MAX, u64::MAX, u64::MAX);
            snapshot.tree.digest.entries = [9; 16];
            if self.lie == Some(Tags) {
                snapshot.tags = ["a\u{1b}[2J".into()].into();
            }
        }
        Ok(offer)
    }

    fn folders(
        &mut self,
        wanted: &[FolderRef],
        receive: &mut ReceiveFolder<'_>,
    ) -> Result<(), SnapshotError> {
        let wanted = if self.lie == Some(FewerFolders) { &wanted[1..] } else { wanted };
        self.store.folders(wanted, &mut |nth, folder| match self.lie {
            Some(OtherFolder) => receive(nth, Folder::default()),
            Some(MoreFolders) => receive(nth, folder.clone()).and_then(|()| receive(nth + 1, folder)),
            _ => receive(nth, folder),
        })
    }

    fn allocated(&mut self, _wanted: &[ContentRef]) -> Result<Vec<u64>, SnapshotError> {
        Ok(vec![if self.lie == Some(AllHole) { 0 } else { u64::MAX }; 1])
    }

    fn wants_bases(&self) -> bool {
        true
    }

    fn contents(
        &mut self,
        wanted: &[RequestedContent],
        receive: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError> {
        if self.lie == Some(NoContents) {
            return Ok(());
        }
        if self.lie == Some(AllHole) {
            return receive(0, ContentPiece::Hole(wanted[0].len));
        }
        let lie = self.lie;
        self.store.contents(wanted, &mut |nth, piece| match (lie, piece) {
            (Some(FlippedByte), ContentPiece::Data(bytes)) => {
                let mut bytes = bytes.to_vec();
                bytes[0] ^= 1;
                receive(nth, ContentPiece::Data(&bytes))
            }
            (Some(ShortContent), ContentPiece::Data(bytes)) => receive(nth, ContentPiece::Data(&bytes[1..])),
            (Some(LongContent), ContentPiece::End) => {
                receive(nth, ContentPiece::Data(b"more"))?;
                receive(nth, piece)
            }
            (Some(HugeHole), ContentPiece::Data(_)) => receive(nth, ContentPiece::Hole(u64::MAX)),
            (Some(SameAsNothing), ContentPiece::Data(bytes)) => {
                receive(nth, ContentPiece::Same(bytes.len() as u64))
            }
            (Some(ContentTwice), ContentPiece::Data(_)) => {
                receive(nth, piece)?;
                receive(nth, piece)
            }
            (Some(OtherNumber), _) => receive(nth + 1, piece),
            _ => receive(nth, piece),
        })
    }
}

pub(super) fn volume() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("above/dir")).unwrap();
    fs::write(dir.path().join("above/dir/small"), "small content").unwrap();
    fs::write(dir.path().join("above/large"), vec![3; 300_000]).unwrap();
    create_snapshot(&dir.path().into(), Labels::default(), SnapshotEngine::Copy, &[], &Failures::default())
        .unwrap();
    dir
}

pub(super) fn store(dir: &Path) -> Store {
    let root = Root::enter(&TreeLocation::from(dir)).unwrap();
    Store::open(&root, dir).unwrap().unwrap()
}

/// Copies all snapshots of a store that lies to another volume.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    lie: Option<Lie>,
    monitor: &Monitor,
) -> Result<CopiedHistory, SnapshotError> {
    let there = store(from);
    let roots = there.roots().unwrap();
    let mut source = Lying { store: StoredHistory { store: &there, roots: &roots, volume: None }, lie };
    let destination = lock_volume(&TreeLocation::from(to)).unwrap();
    let mut writer = Writer::open(destination.state(), destination.root(), to, &Monitor::default()).unwrap();
    copy_history(&mut writer, &mut source, &CopySelection::All, "test", monitor)
}

#[test]
fn what_a_store_says_of_counts_and_digests_is_not_believed() {
    let (from, to) = (volume(), TempDir::new().unwrap());
    let done = copy(from.path(), to.path(), None, &Monitor::default());
    assert_eq!(done.unwrap().failed, []);
    let (there, here) = (store(from.path()).roots().unwrap(), store(to.path()).roots().unwrap());
    let (there, here) = (&there.snapshots[0], &here.snapshots[0]);
    assert_eq!((here.id, here.tree.id, here.tree.digest), (there.id, there.tree.id, there.tree.digest));
    assert_eq!((here.entries, here.bytes), (there.entries, there.bytes));
    assert!(here.added_bytes < 400_000, "{}", here.added_bytes);
}

#[test]
fn no_lie_makes_a_snapshot_visible_or_leaves_anything_behind() {
    for lie in [
        OtherFolder,
        FewerFolders,
        MoreFolders,
        FlippedByte,
        ShortContent,
        LongContent,
        HugeHole,
        SameAsNothing,
        ContentTwice,
        OtherNumber,
        NoContents,
        Tags,
        AllHole,
    ] {
        let (from, to) = (volume(), TempDir::new().unwrap());
        let done = copy(from.path(), to.path(), Some(lie), &Monitor::default());
        let done = done.unwrap_or_else(|error| panic!("{lie:?}: {error}"));
        assert_eq!((done.copied.len(), done.failed.len()), (0, 1), "{lie:?}");
        let store = store(to.path());
        let roots = store.roots().unwrap();
        assert_eq!(roots.snapshots, [], "{lie:?}");
        let (turn, monitor) = (Turn::of(&store, StoreShare::default()).unwrap(), Monitor::default());
        assert!(!verify(&store, &roots, &turn, &ReadPace::new(None, &monitor)).unwrap().is_damaged());
        for folder in ["new", "packs", "content"] {
            let left = fs::read_dir(store.path().join(folder)).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            // Large content that has its hash stays for the next try.
            assert!(left.is_empty() || folder == "content", "{lie:?}: {folder} has {left:?}");
        }
    }
}

#[test]
fn an_id_that_another_snapshot_has_here_is_refused() {
    let (from, to) = (volume(), volume());
    let (there, monitor) = (store(from.path()), Monitor::default());
    let own = store(to.path()).roots().unwrap().snapshots[0].clone();
    let mut offered = there.roots().unwrap();
    offered.snapshots[0].id = own.id;
    offered.snapshots[0].tree.id.0[0] ^= 1;
    let mut source = StoredHistory { store: &there, roots: &offered, volume: None };
    let destination = lock_volume(&TreeLocation::from(to.path())).unwrap();
    let mut writer = Writer::open(destination.state(), destination.root(), to.path(), &monitor).unwrap();
    let done = copy_history(&mut writer, &mut source, &CopySelection::All, "test", &monitor).unwrap();
    assert_eq!(done.failed.len(), 1);
    assert_eq!(writer.roots.snapshots, [own]);
}

/// A stream that ends where `bytes` do, and takes all that is written.
fn answer(bytes: &[u8]) -> StreamedHistory<&[u8], Vec<u8>> {
    StreamedHistory::new(bytes, Vec::new())
}

/// Returns the frames that a store sends for one request of each kind.
fn frames_of(store: &Store, roots: &Roots) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let tree = roots.snapshots[0].tree;
    let content = store.folder(&store.folder(&tree).unwrap().children[0]).unwrap().contents[0];
    let asked = RequestedContent { content, len: 300_000, granules: Vec::new() };
    for nth in 0..3 {
        let mut sent = Vec::new();
        let mut asking = StreamedHistory::new(&b""[..], &mut sent);
        match nth {
            0 => drop(asking.offer()),
            1 => drop(asking.folders(&[tree], &mut |_, _| Ok(()))),
            _ => drop(asking.contents(std::slice::from_ref(&asked), &mut |_, _| Ok(()))),
        }
        drop(asking);
        requests.push(sent);
    }
    let answer = |request: &Vec<u8>| {
        let (mut out, mut history) = (Vec::new(), StoredHistory { store, roots, volume: None });
        serve_history(&mut history, &request[..], &mut out).unwrap_err();
        out
    };
    requests.iter().map(answer).collect()
}

#[test]
fn no_answer_and_no_request_of_the_other_end_makes_this_one_panic_or_take_what_is_wrong() {
    let from = volume();
    let there = store(from.path());
    let roots = there.roots().unwrap();
    let tree = roots.snapshots[0].tree;
    let [offer, folders, contents] = <[Vec<u8>; 3]>::try_from(frames_of(&there, &roots)).unwrap();
    assert_eq!(answer(&offer).offer().unwrap().snapshots, roots.snapshots);
    for at in 0..offer.len() {
        let mut bad = offer.clone();
        bad[at] ^= 0x41;
        // A record with a wrong checksum is left out, as in a damaged list.
        let offered = answer(&bad).offer().map(|offer| offer.snapshots);
        assert!(offered.is_err() || offered.is_ok_and(|it| it.is_empty() || it == roots.snapshots), "{at}");
        assert!(answer(&offer[..at]).offer().is_err_and(|error| error.is_lost()));
    }
    for at in 0..folders.len() {
        let mut bad = folders.clone();
        bad[at] ^= 0x41;
        let mut same = true;
        let taken = answer(&bad).folders(&[tree], &mut |_, folder| {
            same = folder.id() == tree.id;
            Ok(())
        });
        assert!(taken.is_err() || !same || at >= folders.len() - 200, "byte {at}");
    }
    let mut requests = vec![vec![2, 255, 255, 255, 255], vec![4, 5, 0, 0, 0, 255, 255, 255, 255, 15]];
    requests.extend((0..12).map(|kind| vec![kind, 3, 0, 0, 0, 1, 2, 3]));
    for request in requests {
        let mut history = StoredHistory { store: &there, roots: &roots, volume: None };
        let served = serve_history(&mut history, &request[..], Vec::new());
        assert!(served.is_err_and(|error| error.is_lost()) || request[0] == 6, "{request:?}");
    }
    assert!(contents.len() > 300_000, "{}", contents.len());
}
