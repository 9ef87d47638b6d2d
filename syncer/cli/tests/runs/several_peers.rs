//! An end that listens for several peers, each with a pair of identity files.

use contract::IdentityPair;

use crate::common::prelude::*;

/// Makes the identity files of another pair.
fn other_pair(pair: &Pair, name: &str) -> PathBuf {
    let keys = pair.dir().join(name);
    IdentityPair::generate(name).unwrap().write(&keys).unwrap();
    keys
}

#[test]
fn an_end_that_sends_serves_its_peers_one_after_the_other_until_it_is_stopped() {
    let pair = Pair::new(Way::SourceListens);
    tree::files(&pair.source, &["a", "b/c"], "content");
    let (second, stranger) = (other_pair(&pair, "second"), other_pair(&pair, "stranger"));
    let identity = format!("--identity={}", text(&second.join("source")));
    let mut source = pair.start_source(&["--listen", ANY_PORT, &identity], &["--run=nightly"]);
    let address = source.listening().to_string();
    let receive = |keys: &PathBuf, name: &str| -> (Running, PathBuf) {
        let (copy, key) = (pair.dir().join(name), keys.join("sink"));
        let args = ["receive", text(&copy), "--once", "--progress=json", "--connect", &address];
        (pair.start(&[&args[..], &["--identity", text(&key)]].concat()), copy)
    };
    let first = pair.key("sink").parent().unwrap().to_path_buf();
    for (keys, name) in [(&first, "one"), (&second, "two"), (&first, "three")] {
        let (sink, copy) = receive(keys, name);
        sink.wait().assert_exit(ExitCode::Done);
        assert_eq!(source.finished().run, "nightly");
        oracle::assert_copy(&copy, &pair.source, name);
        receive(&stranger, "of a stranger").0.wait().assert_exit(ExitCode::Identity);
    }
    source.signal(Signal::TERM);
    let ended = source.wait();
    ended.assert_exit(ExitCode::Done);
    let logged = ended.stderr.lines().filter(|line| line.contains("result=Succeeded")).count();
    assert_eq!(logged, 3, "a line for each run: {}", ended.stderr);
}

#[test]
fn an_end_that_receives_takes_each_peer_by_a_file_of_its_own() {
    let pair = Pair::new(Way::SinkListens);
    tree::files(&pair.source, &["a"], "content");
    let (second, stranger) = (other_pair(&pair, "second"), other_pair(&pair, "stranger"));
    let identity = format!("--identity={}", text(&second.join("sink")));
    let mut sink = pair.start_receive(&["--listen", ANY_PORT, &identity]);
    let address = sink.listening().to_string();
    let first = pair.key("source").parent().unwrap().to_path_buf();
    for (keys, exit) in [(&first, ExitCode::Done), (&second, ExitCode::Done), (&stranger, ExitCode::Identity)]
    {
        let key = keys.join("source");
        let args = ["send", text(&pair.source), "--progress=json", "--connect", &address];
        pair.start(&[&args[..], &["--identity", text(&key)]].concat()).wait().assert_exit(exit);
    }
    pair.assert_copy("after both");
    sink.signal(Signal::TERM);
    sink.wait().assert_exit(ExitCode::Done);
}
