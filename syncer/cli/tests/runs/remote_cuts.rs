//! `volferry sync` with another machine whose connection is cut, or one of whose ends is stopped.

use rustix::process::Signal;

use super::remote::{
    Direction::{self, Pull, Push},
    Far,
};
use crate::common::prelude::*;

/// Runs once with success, as soon as the far end of a run that was cut has left the destination: it may learn of the
/// cut after this end.
#[track_caller]
fn sync_after_cut(far: &Far, direction: Direction, flags: &[&str]) {
    let mut ended = far.run(direction, flags);
    while ended.exit == Some(ExitCode::Failed) && ended.reason() == "DestinationBusy" {
        ended = far.run(direction, flags);
    }
    ended.assert_exit(ExitCode::Done);
}

/// Cuts what this end sends after so many bytes: inside of each word of the greeting, of the handshake, and of the run.
#[test]
fn a_connection_that_is_cut_anywhere_ends_the_run_and_the_next_one_succeeds() {
    for direction in [Push, Pull] {
        let far = Far::new();
        tree::gallery(&far.pair.source, Shape::Everything);
        tree::file(&far.pair.source.join("large"), &vec![7; 3 << 20]);
        for bytes in [0, 7, 100, 350, 500, 1_500, 2_000] {
            let cut = far.sshd.script("cut", &format!("dd bs=1 status=none count={bytes} | ssh \"$@\""));
            let rsh = far.sshd.rsh().replace("--rsh=ssh", &format!("--rsh={cut}"));
            let remote = format!("--remote-program={}", program().display());
            let ended = far.start_bare(direction, &[&rsh, &remote, "--link=ssh"]).wait();
            ended.assert_exit(ExitCode::PeerLost);
        }
        sync_after_cut(&far, direction, &["--link=ssh"]);
        far.pair.assert_copy("after all cuts");
    }
}

/// Cuts the direction in which the content goes.
#[test]
fn a_run_that_is_cut_in_any_part_of_its_content_ends_and_the_next_one_goes_on() {
    for direction in [Push, Pull] {
        let far = Far::new();
        tree::gallery(&far.pair.source, Shape::Everything);
        (0..40).for_each(|nth| {
            tree::file(&far.pair.source.join(format!("file {nth}")), &Rng::new(nth).bytes(64 << 10));
        });
        // How much is compressed depends on how fast the link is.
        let flags = ["--link=ssh", "--compression=none"];
        let whole = far.sync(direction, &flags).work.bytes_on_wire;
        for tenths in [1, 3, 5, 7, 9] {
            fs::remove_dir_all(&far.pair.destination).unwrap();
            let bytes = whole * tenths / 10;
            let cut = match direction {
                Push => format!("dd bs=64K iflag=count_bytes status=none count={bytes} | ssh \"$@\""),
                Pull => format!("ssh \"$@\" | dd bs=64K iflag=count_bytes status=none count={bytes}"),
            };
            let cut = far.sshd.script("cut", &cut);
            let rsh = far.sshd.rsh().replace("--rsh=ssh", &format!("--rsh={cut}"));
            let remote = format!("--remote-program={}", program().display());
            let ended = far.start_bare(direction, &[&[&rsh[..], &remote], &flags[..]].concat()).wait();
            ended.assert_exit(ExitCode::PeerLost);
            assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
            sync_after_cut(&far, direction, &flags);
            far.pair.assert_copy(&format!("{direction:?} {tenths}"));
        }
    }
}

#[test]
fn a_connection_that_is_cut_during_the_transfer_leaves_what_had_arrived_for_the_next_run() {
    for direction in [Push, Pull] {
        let far = Far::new();
        (0..40).for_each(|nth| {
            tree::file(&far.pair.source.join(format!("file {nth}")), &Rng::new(nth).bytes(256 << 10));
        });
        let pid = far.sshd.script("pid", "echo $$ > \"$0.is\"; exec ssh \"$@\"");
        let rsh = far.sshd.rsh().replace("--rsh=ssh", &format!("--rsh={pid}"));
        let remote = format!("--remote-program={}", program().display());
        let slow = [rsh.as_str(), &remote, "--link=ssh", "--bandwidth-limit=1MB"];
        let mut running = far.start_bare(direction, &slow);
        running.moved();
        let ssh: i32 = fs::read_to_string(format!("{pid}.is")).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(ssh).unwrap(), Signal::KILL).unwrap();
        running.wait().assert_exit(ExitCode::PeerLost);
        sync_after_cut(&far, direction, &["--link=ssh"]);
        far.pair.assert_copy("after the cut");
    }
}

#[test]
fn a_stop_at_either_end_ends_both_in_order() {
    for link in ["--link=ssh", "--link=udp"] {
        for direction in [Push, Pull] {
            for at_near_end in [true, false] {
                let far = Far::new();
                (0..40).for_each(|nth| {
                    tree::file(&far.pair.source.join(format!("file {nth}")), &Rng::new(nth).bytes(256 << 10));
                });
                let noted = far
                    .sshd
                    .script("noted", &format!("echo $$ > \"$0.is\"; exec {} \"$@\"", program().display()));
                let flags = [far.sshd.rsh(), format!("--remote-program={noted}"), link.into()];
                let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                flags.push("--bandwidth-limit=1MB");
                let mut running = far.start_bare(direction, &flags);
                running.moved();
                if at_near_end {
                    running.signal(Signal::INT);
                } else {
                    let pid = fs::read_to_string(format!("{noted}.is")).unwrap().trim().parse().unwrap();
                    let pid = rustix::process::Pid::from_raw(pid).unwrap();
                    rustix::process::kill_process(pid, Signal::TERM).unwrap();
                }
                let ended = running.wait();
                ended.assert_exit(ExitCode::Failed);
                assert_eq!(
                    ended.reason(),
                    "Canceled",
                    "{link} {direction:?} {at_near_end}: {}",
                    ended.stderr
                );
                sync_after_cut(&far, direction, &[link]);
            }
        }
    }
}
