//! A private key is in its identity file only: neither where other users of the machine may look, nor in logs, reports
//! or messages.

use contract::Identity;

use crate::common::prelude::*;

/// Returns the private key of an identity file, in its text form and as bytes.
fn secrets(pair: &Pair, side: &str) -> [Vec<u8>; 2] {
    let text = fs::read_to_string(pair.key(side)).unwrap();
    let key = text.split("\"privateKey\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(key.len() > 60, "{key}");
    // The first 16 bytes of the PKCS #8 form are the same for all keys; the next 32 are the key.
    let seed = text.parse::<Identity>().unwrap().pkcs8()[16..48].to_vec();
    [key[24..60].into(), seed]
}

/// Returns the data of a process that every user may read.
fn process(end: &Running) -> Vec<u8> {
    ["cmdline", "environ"].map(|name| fs::read(format!("/proc/{}/{name}", end.pid())).unwrap()).concat()
}

fn said(end: &Ended) -> Vec<u8> {
    format!("{}{}", end.stderr, serde_json::to_string(&end.events).unwrap()).into()
}

#[test]
fn no_key_is_in_arguments_environment_logs_events_reports_or_at_the_destination() {
    let pair = Pair::new(Way::SinkListens);
    tree::gallery(&pair.source, tree::Shape::Unprivileged);
    let report = |side: &str| pair.dir().join(format!("{side}.json"));
    let flags = |side: &str| [format!("--report={}", text(&report(side))), "-vvv".into()];
    let [sink_report, loud] = flags("sink");
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT, &sink_report, &loud]);
    let address = sink.listening().to_string();
    let mut seen = vec![process(&sink)];
    let [source_report, loud] = flags("source");
    let source = pair.start_send(&["--connect", &address], &[&source_report, &loud]);
    for end in [source.wait(), sink.wait()] {
        end.assert_exit(ExitCode::Done);
        assert!(end.stderr.contains("DEBUG"), "it was to log all it can: {}", end.stderr);
        seen.push(said(&end));
    }
    seen.extend(["source", "sink"].map(|side| fs::read(report(side)).unwrap()));
    for name in ["lock", "volume", "epoch"] {
        seen.push(fs::read(pair.destination.join(".volferry").join(name)).unwrap());
    }
    for secret in ["source", "sink"].iter().flat_map(|side| secrets(&pair, side)) {
        for place in &seen {
            let found = place.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "a key is in {}", String::from_utf8_lossy(place));
        }
    }
}

#[test]
fn an_identity_that_others_may_read_is_refused_with_what_to_do() {
    let pair = Pair::new(Way::SinkListens);
    // The group is one that the tests' user is not in.
    if scratch::is_root() {
        std::os::unix::fs::chown(pair.key("sink"), None, Some(scratch::NOBODY)).unwrap();
    }
    for mode in [0o604, 0o644, 0o602, 0o640, 0o620] {
        tree::set_mode(&pair.key("sink"), mode);
        let end = pair.start_receive(&["--once", "--listen", ANY_PORT]).wait();
        end.assert_exit(ExitCode::Identity);
        let message = &end.report().message;
        assert!(message.contains("chmod 600") && message.contains(&format!("{mode:o}")), "{message}");
    }
    tree::set_mode(&pair.key("sink"), 0o600);
    tree::file(&pair.source.join("file"), b"content");
    pair.sync("with a file of its owner's own");
}

#[test]
fn an_identity_as_a_secret_is_mounted_is_taken() {
    let Some(()) = scratch::needs_root() else { return };
    // As in a pod without root: the file is root's and has the pod's group.
    let pair = Pair::unprivileged(Way::SinkListens);
    // As in a pod with root, whose group is root's.
    let roots = Pair::new(Way::SinkListens);
    for (pair, group) in [(&pair, scratch::NOBODY), (&roots, 0)] {
        for side in ["source", "sink"] {
            std::os::unix::fs::chown(pair.key(side), Some(0), Some(group)).unwrap();
            tree::set_mode(&pair.key(side), 0o440);
        }
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source.join("file"));
        pair.sync("with a mounted secret");
    }
}
