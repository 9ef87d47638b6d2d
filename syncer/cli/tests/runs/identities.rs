//! Only the pinned peer gets any byte of a tree.

use std::{fs::Permissions, net::UdpSocket};

use contract::IdentityPair;

use crate::common::prelude::*;

/// Makes a pair in step whose source then changes, and a folder with another pair of identities.
fn with_strangers(way: Way) -> (Pair, String) {
    let pair = Pair::new(way);
    tree::file(&pair.source.join("file"), b"content");
    pair.sync("before");
    tree::file(&pair.source.join("file"), b"changed");
    let strangers = pair.dir().join("strangers");
    IdentityPair::generate("job").unwrap().write(&strangers).unwrap();
    let strangers = text(&strangers).to_owned();
    (pair, strangers)
}

fn send(pair: &Pair, identity: &str, link: [&str; 2]) -> Running {
    let end = ["send", text(&pair.source), "--progress=json", "--delete", "--identity", identity];
    let once: &[&str] = if link[0] == "--listen" { &["--once"] } else { &[] };
    pair.start(&[&end[..], &link, once].concat())
}

fn receive(pair: &Pair, identity: &str, link: [&str; 2]) -> Running {
    let end = ["receive", text(&pair.destination), "--once", "--progress=json", "--identity", identity];
    pair.start(&[&end[..], &link].concat())
}

#[test]
fn a_wrong_key_at_either_end_is_refused_and_the_listener_waits_on() {
    for (way, wrong) in [
        (Way::SinkListens, "source"),
        (Way::SinkListens, "sink"),
        (Way::SourceListens, "source"),
        (Way::SourceListens, "sink"),
    ] {
        let (pair, strangers) = with_strangers(way);
        let before = Snapshot::of(&pair.destination);
        let key = |side: &str| {
            if side == wrong { format!("{strangers}/{side}") } else { text(&pair.key(side)).to_owned() }
        };
        let (listener, dialler) = match way {
            Way::SinkListens => {
                let mut sink = receive(&pair, &key("sink"), ["--listen", ANY_PORT]);
                let address = sink.listening().to_string();
                (sink, send(&pair, &key("source"), ["--connect", &address]))
            }
            _ => {
                let mut source = send(&pair, &key("source"), ["--listen", ANY_PORT]);
                let address = source.listening().to_string();
                (source, receive(&pair, &key("sink"), ["--connect", &address]))
            }
        };
        let dialler = dialler.wait();
        dialler.assert_exit(ExitCode::Identity);
        assert_eq!(dialler.reason(), "IdentityRefused", "{way:?}, wrong at the {wrong}");
        listener.signal(Signal::TERM);
        assert_eq!(listener.wait().reason(), "Canceled", "{way:?}, wrong at the {wrong}: it did not wait on");
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "after a stranger");
    }
}

#[test]
fn an_end_of_another_job_is_refused_although_it_has_the_right_key() {
    for way in Way::NETWORK {
        let (pair, _) = with_strangers(way);
        let before = Snapshot::of(&pair.destination);
        let other = pair.dir().join("other-job");
        let text_of_own = fs::read_to_string(pair.key("source")).unwrap();
        fs::write(&other, text_of_own.replace(r#""job":"job""#, r#""job":"other""#)).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        let (source, sink) = (text(&other), text(&pair.key("sink")).to_owned());
        let (listener, dialler) = match way {
            Way::SinkListens => {
                let mut listener = receive(&pair, &sink, ["--listen", ANY_PORT]);
                let address = listener.listening().to_string();
                (listener, send(&pair, source, ["--connect", &address]))
            }
            _ => {
                let mut listener = send(&pair, source, ["--listen", ANY_PORT]);
                let address = listener.listening().to_string();
                (listener, receive(&pair, &sink, ["--connect", &address]))
            }
        };
        let dialler = dialler.wait();
        dialler.assert_exit(ExitCode::Identity);
        assert_eq!(dialler.reason(), "OtherJob", "{way:?}");
        listener.until_said("of another job");
        listener.signal(Signal::TERM);
        let listener = listener.wait();
        assert_eq!(listener.reason(), "Canceled", "{way:?}: it did not wait on");
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "after another job");
    }
}

#[test]
fn a_listener_serves_its_peer_after_strangers_and_noise() {
    for way in Way::NETWORK {
        let (pair, strangers) = with_strangers(way);
        let (own, other) = match way {
            Way::SinkListens => ("sink", "source"),
            _ => ("source", "sink"),
        };
        let start = |identity: &str, side: &str, link| match side {
            "sink" => receive(&pair, identity, link),
            _ => send(&pair, identity, link),
        };
        let mut listener = start(text(&pair.key(own)), own, ["--listen", ANY_PORT]);
        let address = listener.listening().to_string();
        let noise = UdpSocket::bind(ANY_PORT).unwrap();
        for len in [0, 1, 20, 1200, 1500] {
            noise.send_to(&vec![0xc5; len], &address).unwrap();
        }
        let stranger = start(&format!("{strangers}/{other}"), other, ["--connect", &address]).wait();
        stranger.assert_exit(ExitCode::Identity);
        let peer = start(text(&pair.key(other)), other, ["--connect", &address]).wait();
        peer.assert_exit(ExitCode::Done);
        listener.wait().assert_exit(ExitCode::Done);
        pair.assert_copy("after strangers and noise");
    }
}

#[test]
fn the_file_of_one_end_does_not_serve_at_the_other() {
    let (pair, _) = with_strangers(Way::SinkListens);
    let before = Snapshot::of(&pair.destination);
    let ends = [
        send(&pair, text(&pair.key("sink")), ["--listen", ANY_PORT]),
        receive(&pair, text(&pair.key("source")), ["--listen", ANY_PORT]),
    ];
    for end in ends {
        let end = end.wait();
        end.assert_exit(ExitCode::Identity);
        assert_eq!(end.reason(), "IdentityOfOtherSide");
        assert_eq!(end.events.len(), 1, "it never listened: {:?}", end.events);
    }
    Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "after the wrong file");
}
