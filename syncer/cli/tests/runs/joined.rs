//! `volferry sync --rsh -`: two ends whose standard input and output another program joins.

use std::{
    io,
    process::{Child, Output, Stdio},
};

use crate::common::prelude::*;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.args(args).env("VOLFERRY_CONFIG", "none");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Joins `volferry sync` with these arguments to a `volferry remote`, and returns how both ended.
fn join(args: &[&str]) -> [Output; 2] {
    let flags = ["sync", "--rsh=-", "--link=ssh", "-v"];
    let (mut near, mut far) = (start(&[&flags, args].concat()), start(&["remote"]));
    let mut up = (near.stdout.take().unwrap(), far.stdin.take().unwrap());
    let mut down = (far.stdout.take().unwrap(), near.stdin.take().unwrap());
    // An end that has ended reads no more.
    thread::spawn(move || drop(io::copy(&mut up.0, &mut up.1)));
    thread::spawn(move || drop(io::copy(&mut down.0, &mut down.1)));
    let near = near.wait_with_output().unwrap();
    [near, far.wait_with_output().unwrap()]
}

#[test]
fn a_program_that_joins_both_ends_takes_the_place_of_ssh() {
    for pushes in [true, false] {
        let pair = Pair::new(Way::Local);
        tree::gallery(&pair.source, Shape::Everything);
        let (source, destination) = (text(&pair.source), text(&pair.destination));
        let ends = if pushes {
            [source.to_owned(), format!("far:{destination}")]
        } else {
            [format!("far:{source}"), destination.to_owned()]
        };
        let [near, far] = join(&ends.each_ref().map(String::as_str));
        assert!(near.status.success() && far.status.success(), "{near:?} {far:?}");
        pair.assert_copy("joined");
        // What would have been among the packets.
        let said = String::from_utf8_lossy(&near.stderr);
        assert!(!pushes || said.contains("create "), "{said}");
    }
}

#[test]
fn an_end_that_is_joined_to_nothing_says_so() {
    let pair = Pair::new(Way::Local);
    let mut command = Command::new(program());
    command.args(["sync", "--rsh=-", "--link=ssh", text(&pair.source), "far:/nowhere"]).stdin(Stdio::null());
    let ended = command.env("VOLFERRY_CONFIG", "none").output().unwrap();
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("far ended before it answered"), "{said}");
}
