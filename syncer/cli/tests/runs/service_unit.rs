//! A `volferry serve` as systemd starts it: with its sockets, and with a socket for its state.

use std::{
    net::{TcpListener, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
};

use rustix::io::{FdFlags, fcntl_setfd};

use super::service::{PHOTOS, made};
use crate::common::prelude::*;
use crate::common::{ports, service::Served};

/// Returns a launcher of the program that passes sockets on, as systemd does, from the descriptors that it has.
fn launcher(sockets: &[&OwnedFd]) -> Command {
    use std::os::fd::AsRawFd as _;
    let moves: String =
        sockets.iter().enumerate().map(|(at, fd)| format!(" {}<&{}", at + 3, fd.as_raw_fd())).collect();
    // Above those that it becomes, so that no move takes another one's place.
    assert!(sockets.iter().all(|fd| fd.as_raw_fd() > 2 + sockets.len() as i32));
    let script = format!("exec{moves}; export LISTEN_PID=$$ LISTEN_FDS={}; exec \"$@\"", sockets.len());
    let mut command = Command::new("bash");
    command.args(["-c", &script, "launcher"]).arg(program());
    command
}

/// Takes a socket that a process which is started inherits, at a number that no move needs.
fn inherited(socket: impl Into<OwnedFd>) -> OwnedFd {
    let high = rustix::io::fcntl_dupfd_cloexec(socket.into(), 100).unwrap();
    fcntl_setfd(&high, FdFlags::empty()).unwrap();
    high
}

#[test]
fn a_service_takes_the_sockets_that_systemd_holds_for_it() {
    let address = ports::unused();
    let (tcp, udp) = (TcpListener::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
    let (tcp, udp) = (inherited(tcp), inherited(udp));
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    for way in ["udp", "tcp"] {
        // The address of the configuration is another one, and free, and does not count.
        served.address = "127.0.0.1:0".into();
        served.start_by(launcher(&[&tcp, &udp]));
        assert_eq!(served.address, address.to_string());
        let link = format!("--link={way}");
        let place = served.place(&format!("photos/{way}"));
        served.sync(&user, [text(&source), &place], &[&link]).assert_exit(ExitCode::Done);
        oracle::assert_copy(&served.path(&format!("photos/{way}")), &source, way);
        served.stop().assert_exit(ExitCode::Done);
    }
}

#[test]
fn a_peer_that_dials_during_a_restart_waits_at_the_socket_of_systemd() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let tcp = inherited(tcp);
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    served.address = address.to_string();
    let place = served.place("photos");
    let mut run = served.start_sync(&user, [text(&source), &place], &["--link=tcp"]);
    served.start_by(launcher(&[&tcp]));
    assert_eq!(run.finished().result, contract::RunResult::Succeeded);
    oracle::assert_copy(&served.path("photos"), &source, "after the service has started");
}

#[test]
fn systemd_is_told_when_the_service_is_ready_reloads_and_stops() {
    let mut served = Served::prepare(PHOTOS);
    let path = served.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = || {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let mut command = Command::new(program());
    command.env("NOTIFY_SOCKET", &path);
    served.start_by(command);
    assert_eq!(said().trim(), "READY=1");
    served.signal(Signal::HUP);
    let reloading = said();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(said().trim(), "READY=1");
    served.stop().assert_exit(ExitCode::Done);
    assert_eq!(said().trim(), "STOPPING=1");
}
