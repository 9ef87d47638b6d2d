//! The ways in which the packets of a run cross the network, and the choice between them.

use std::net::{TcpListener, UdpSocket};

use contract::LinkKind;

use crate::common::ports;
use crate::common::prelude::*;

/// Runs once with flags for either end; the sink listens if `sink_listens`.
fn run(pair: &Pair, sink_listens: bool, listening: &[&str], dialling: &[&str]) -> Run {
    let listening = [&["--listen", ANY_PORT], listening].concat();
    if sink_listens {
        let mut sink = pair.start_receive(&[&["--once"], listening.as_slice()].concat());
        let address = sink.listening().to_string();
        let source = pair.start_send(&[&["--connect", &address], dialling].concat(), &[]).wait();
        return Run::Network { source, sink: sink.wait() };
    }
    let mut source = pair.start_send(&listening, &[]);
    let address = source.listening().to_string();
    let sink = pair.start_receive(&[&["--once", "--connect", &address], dialling].concat()).wait();
    Run::Network { source: source.wait(), sink }
}

fn kind(run: &Run) -> LinkKind {
    run.report().link.expect("the report names no link").kind
}

#[test]
fn a_run_goes_over_tcp_as_over_udp_whichever_end_listens() {
    for sink_listens in [true, false] {
        let pair = Pair::new(Way::SinkListens);
        tree::gallery(&pair.source, Shape::Everything);
        tree::file(&pair.source.join("large"), &vec![7; 9 << 20]);
        let first = run(&pair, sink_listens, &[], &["--link=tcp"]);
        first.assert_exit(ExitCode::Done);
        assert_eq!(kind(&first), LinkKind::Tcp);
        pair.assert_copy("over TCP");
        let again = run(&pair, sink_listens, &["--link=tcp"], &["--link=tcp"]);
        assert_eq!((kind(&again), again.report().work.bytes_changed), (LinkKind::Tcp, 0));
        assert_eq!(kind(&run(&pair, sink_listens, &[], &[])), LinkKind::Udp);
    }
}

#[test]
fn tcp_is_taken_if_nothing_answers_over_udp_and_the_summary_says_so() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("file"), b"content");
    let both = run(&pair, true, &["--link=tcp"], &[]);
    both.assert_exit(ExitCode::Done);
    assert_eq!(kind(&both), LinkKind::Tcp);
    let Run::Network { source, sink } = &both else { panic!("a local run") };
    assert!(source.stderr.contains("link: quic/tcp ") && sink.stderr.contains("link: quic/tcp "));
}

#[test]
fn an_end_that_uses_one_carrier_does_not_meet_one_that_uses_the_other() {
    let pair = Pair::new(Way::SinkListens);
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT, "--link=udp"]);
    let address = sink.listening().to_string();
    let refused = pair.start_send(&["--connect", &address, "--link=tcp", "--connect-timeout=1"], &[]).wait();
    refused.assert_exit(ExitCode::PeerLost);
    assert!(refused.report().message.contains("TCP: Connection refused"), "{}", refused.report().message);
    drop(sink);
}

#[test]
fn another_key_ends_the_wait_over_either_carrier() {
    for link in ["--link=udp", "--link=tcp", "--link=auto"] {
        let (pair, other) = (Pair::new(Way::SinkListens), Pair::new(Way::SinkListens));
        let mut sink = other.start_receive(&["--once", "--listen", ANY_PORT]);
        let address = sink.listening().to_string();
        let refused = pair.start_send(&["--connect", &address, link], &[]).wait();
        refused.assert_exit(ExitCode::Identity);
        drop(sink);
    }
}

/// A listener that takes connections and says nothing does not keep the run from UDP.
#[test]
fn a_stranger_at_the_tcp_port_does_not_keep_a_late_answer_over_udp_out() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("file"), b"content");
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT, "--link=udp"]);
    let target = sink.listening();
    let address = ports::unused();
    let (front, stranger) = (UdpSocket::bind(address).unwrap(), TcpListener::bind(address).unwrap());
    let source = pair.start_send(&["--connect", &address.to_string()], &[]);
    // The stranger has a connection before the first packet passes.
    let (_silent, _) = stranger.accept().unwrap();
    let relayed = std::thread::spawn(move || relay(&front, target));
    source.wait().assert_exit(ExitCode::Done);
    let ended = sink.wait();
    ended.assert_exit(ExitCode::Done);
    assert_eq!(ended.report().link.unwrap().kind, LinkKind::Udp);
    drop(relayed);
}

/// Passes datagrams between the dialling end and the target, until the process ends.
fn relay(front: &UdpSocket, target: std::net::SocketAddr) {
    let back = UdpSocket::bind(ANY_PORT).unwrap();
    let tick = Some(Duration::from_millis(1));
    front.set_read_timeout(tick).unwrap();
    back.set_read_timeout(tick).unwrap();
    let (mut datagram, mut client) = (vec![0; 1 << 16], None);
    loop {
        if let Ok((len, from)) = front.recv_from(&mut datagram) {
            client = Some(from);
            let _ = back.send_to(&datagram[..len], target);
        }
        if let (Ok(len), Some(client)) = (back.recv(&mut datagram), client) {
            let _ = front.send_to(&datagram[..len], client);
        }
    }
}
