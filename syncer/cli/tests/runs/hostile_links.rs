//! Folders of the destination that another process replaces by links during a run: the run writes nothing to the links'
//! targets.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use syncer::internals::hash::TransferHash;

use super::{
    hostile_content::{block, end, pack},
    hostile_source::{Act, Sink},
};
use crate::common::hostile::{dir, file, listed, put, tree};
use crate::common::prelude::*;

#[test]
fn a_folder_that_becomes_a_link_in_mid_run_leads_nowhere() {
    let cases: [(u64, Act); 2] = [
        (5, |peer| {
            peer.data(&pack(0, b"hello"));
        }),
        (200_000, |peer| {
            let content = [1; 200_000];
            peer.data(&[block(0, 200_000, 0, &content), end(200_000, TransferHash::of(&content))].concat());
        }),
    ];
    for (size, send) in cases {
        let (sink, mut peer) = Sink::start();
        peer.hello();
        peer.say(&listed(0, 1, &[dir("d")]));
        peer.say(&listed(1, 2, &[file("planted", size)]));
        peer.say(&tree());
        assert_eq!(peer.need().indices, [0]);
        let (folder, aside) = (sink.pair.destination.join("d"), sink.pair.dir().join("aside"));
        fs::rename(&folder, &aside).unwrap();
        symlink(&sink.outside, &folder).unwrap();
        send(&mut peer);
        peer.done();
        let Sink { running, outside, before, .. } = sink;
        let ended = running.wait();
        ended.assert_exit(ExitCode::Partial);
        assert!(
            ended.report().failures.iter().any(|failure| failure.path == "d/planted"),
            "{:?}",
            ended.report()
        );
        Snapshot::of(&outside).assert_like(&before, UNTOUCHED, "what the link leads to");
        assert!(!aside.join("planted").exists());
    }
}

#[test]
fn a_folder_and_a_link_that_change_places_all_the_time_lead_nowhere() {
    let pair = Pair::new(Way::SinkListens);
    for i in 0..40 {
        put(&pair.source.join(format!("d/e/{i}")), b"content");
    }
    let outside = pair.dir().join("outside");
    put(&outside.join("e/theirs"), b"theirs");
    let (folder, link) = (pair.destination.join("d"), pair.dir().join("link"));
    fs::create_dir_all(folder.join("e")).unwrap();
    symlink(&outside, &link).unwrap();
    let before = Snapshot::of(&outside);
    let stop = AtomicBool::new(false);
    // The exchange fails while a run replaces either of them.
    let swap = || renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).is_ok();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                swap();
            }
        });
        for i in 0..20 {
            put(&pair.source.join(format!("d/e/{}", i % 7)), format!("content {i}").as_bytes());
            for end in pair.run(&["--delete", "--force"]).ends() {
                assert!(
                    matches!(end.exit, Some(ExitCode::Done | ExitCode::Partial | ExitCode::Failed)),
                    "{end:?}"
                );
            }
            Snapshot::of(&outside).assert_like(&before, UNTOUCHED, "what the link leads to");
        }
        stop.store(true, Relaxed);
    });
}
