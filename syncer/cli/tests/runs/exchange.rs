//! Ends that make their keys in memory, and meet by messages that the process which started them passes on.

use contract::{Contact, IdentityPair};

use crate::common::prelude::*;

const ANY_PORT: &str = "--listen=127.0.0.1:0";

fn end(pair: &Pair, side: &str, args: &[&str]) -> Running {
    let (command, folder) = match side {
        "source" => ("send", &pair.source),
        _ => ("receive", &pair.destination),
    };
    let once: &[&str] = if side == "sink" { &["--once"] } else { &[] };
    pair.start_listening(&[&[command, text(folder), "--progress=json"], once, args].concat())
}

fn tell(end: &mut Running, contact: &Contact) {
    end.tell(&serde_json::to_string(contact).unwrap());
}

/// Makes a pair with a file at the source, and no identity files.
fn pair() -> Pair {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("file"), b"content");
    fs::remove_dir_all(pair.dir().join("keys")).unwrap();
    pair
}

#[test]
fn ends_that_are_told_of_each_other_sync_whichever_listens_and_is_told_last() {
    for (listens, told_last) in [("sink", "source"), ("sink", "sink"), ("source", "sink")] {
        let pair = pair();
        let listen = |side: &str| {
            if side == listens { vec!["--exchange=job", ANY_PORT] } else { vec!["--exchange=job"] }
        };
        let mut ends = ["source", "sink"].map(|side| end(&pair, side, &listen(side)));
        let contacts = ends.each_mut().map(Running::contact);
        for (contact, side) in contacts.iter().zip(["source", "sink"]) {
            assert_eq!(contact.address.is_some(), side == listens);
        }
        let order = if told_last == "sink" { [0, 1] } else { [1, 0] };
        for at in order {
            tell(&mut ends[at], &contacts[1 - at]);
        }
        for end in ends {
            end.wait().assert_exit(ExitCode::Done);
        }
        assert_eq!(fs::read(pair.destination.join("file")).unwrap(), b"content");
    }
}

#[test]
fn an_end_accepts_no_other_key_than_the_one_it_was_told_and_no_other_job() {
    let stranger = IdentityPair::generate("job").unwrap().sink.peer();
    for (job, fingerprint, reason) in
        [("job", Some(stranger), "IdentityRefused"), ("other", None, "OtherJob")]
    {
        let pair = pair();
        let mut sink = end(&pair, "sink", &["--exchange=job", ANY_PORT]);
        let mut source = end(&pair, "source", &[&format!("--exchange={job}")]);
        let (of_sink, of_source) = (sink.contact(), source.contact());
        tell(&mut sink, &of_source);
        tell(&mut source, &Contact { fingerprint: fingerprint.unwrap_or(of_sink.fingerprint), ..of_sink });
        let source = source.wait();
        source.assert_exit(ExitCode::Identity);
        assert_eq!(source.reason(), reason);
        sink.signal(Signal::TERM);
        assert_eq!(sink.wait().reason(), "Canceled");
        assert!(!pair.destination.join("file").exists());
    }
}

#[test]
fn an_end_that_waits_for_its_peers_contact_can_be_stopped() {
    let pair = pair();
    for side in ["source", "sink"] {
        let mut waiting = end(&pair, side, &["--exchange=job", ANY_PORT]);
        waiting.contact();
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.wait().reason(), "Canceled");
    }
}

#[test]
fn a_contact_that_never_comes_or_cannot_be_read_is_said() {
    let pair = pair();
    let nowhere = r#"{"fingerprint":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
    for (line, said) in
        [("", "EOF"), ("{}", "missing field"), ("x", "expected value"), (nowhere, "no address")]
    {
        let mut waiting = end(&pair, "source", &["--exchange=job"]);
        waiting.contact();
        waiting.tell(line);
        let ended = waiting.wait();
        ended.assert_exit(ExitCode::PeerLost);
        let message = &ended.report().message;
        assert!(message.contains("contact did not come") && message.contains(said), "{message}");
    }
}
