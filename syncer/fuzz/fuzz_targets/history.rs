//! The frames of a copy of snapshots over a stream. The input's first byte chooses the end that gets the rest: the one
//! that serves a history, or the one that asks for it.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use syncer::internals::hash::ContentId;
use syncer::snapshot::{
    copy::{FarCopy, HistorySource, NoHistory, RequestedContent, StreamedHistory, serve_history},
    store::{ContentRef, FolderRef, Home},
};

fuzz_target!(|data: &[u8]| {
    let Some((end, stream)) = data.split_first() else { return };
    if end % 2 == 0 {
        if let Ok(FarCopy::Done(done)) = serve_history(&mut NoHistory, stream, io::sink()) {
            let mut sent = Vec::new();
            let told = StreamedHistory::new(io::empty(), &mut sent).finish(&Ok(done));
            told.expect("memory takes all");
            let again = serve_history(&mut NoHistory, &sent[..], io::sink());
            assert!(matches!(again, Ok(FarCopy::Done(_))), "what was written can be read");
        }
        return;
    }
    let mut history = StreamedHistory::new(stream, io::sink());
    let Ok(offer) = history.offer() else { return };
    let trees: Vec<FolderRef> = offer.snapshots.iter().map(|snapshot| snapshot.tree).collect();
    let _ = history.folders(&trees, &mut |nth, _| {
        assert!(nth < trees.len());
        Ok(())
    });
    let content = ContentRef { id: ContentId([7; 32]), home: Home::Own };
    let _ = history.allocated(&[content]);
    let asked = [RequestedContent { content, len: 100, granules: Vec::new() }];
    let _ = history.contents(&asked, &mut |nth, _| {
        assert_eq!(nth, 0);
        Ok(())
    });
});
