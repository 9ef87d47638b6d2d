//! The commands of the page on two machines, run as it has them. Only its hosts, folders and port are those of a test.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{
    pair::text,
    ports,
    process::program,
    tree::{self, Shape},
};
use crate::remote::Far;

/// Returns the commands of the page, in order.
fn commands() -> Vec<String> {
    let page =
        Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../docs/src/two-machines.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|after| after.split_once("```").unwrap().0);
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_page_on_two_machines_do_what_it_says() {
    let far = Far::new();
    tree::gallery(&far.pair.source, Shape::Everything);
    let (source, copy) = (&far.pair.source, &far.pair.destination);
    // Every host is the test's own, and `ssh` knows the way.
    let config = fs::read_to_string(far.sshd.config()).unwrap();
    let (_, settings) = config.split_once('\n').unwrap();
    fs::write(far.sshd.config(), format!("Host *\n{settings}")).unwrap();
    let ssh = far.sshd.script("ssh", &format!("exec /usr/bin/ssh -F {} \"$@\"", far.sshd.config().display()));
    fs::create_dir(far.sshd.programs()).unwrap();
    symlink(program(), far.sshd.programs().join("volferry")).unwrap();
    let path = [Path::new(&ssh).parent().unwrap(), &far.sshd.programs()].map(text).join(":");
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let port = ports::unused().port().to_string();
    let folder = far.pair.dir().join("page");
    fs::create_dir(&folder).unwrap();
    let bash = |line: &str| {
        let line = line
            .replace("/srv/data", text(source))
            .replace("/srv/copy", text(copy))
            .replace("backup@", "")
            .replace("copy.example.org", "127.0.0.1")
            .replace("0.0.0.0", "127.0.0.1")
            .replace("7400", &port);
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec {line}")]).env("PATH", &path).env("VOLFERRY_CONFIG", "none");
        command.current_dir(&folder).stderr(Stdio::piped());
        command
    };
    let run = |line: &str| {
        let done = bash(line).output().unwrap();
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };

    let commands = commands();
    let [push, back, bring_along, keygen, receive, send] = &commands[..] else {
        panic!("the page has other commands: {commands:#?}")
    };
    run(push);
    far.pair.assert_copy(push);
    fs::remove_dir_all(source).unwrap();
    run(back);
    far.pair.assert_copy(back);
    fs::remove_file(far.sshd.programs().join("volferry")).unwrap();
    fs::remove_dir_all(copy).unwrap();
    run(&bring_along.replacen("volferry", text(&program()), 1));
    far.pair.assert_copy(bring_along);
    assert_eq!(fs::read_dir(far.sshd.cache()).unwrap().count(), 1, "the program was brought along");

    symlink(program(), far.sshd.programs().join("volferry")).unwrap();
    run(keygen);
    fs::rename(folder.join("keys/sink"), folder.join("sink")).unwrap();
    fs::remove_dir_all(copy).unwrap();
    assert_sends(bash(receive), bash(send));
    far.pair.assert_copy(send);
}

/// Asserts that one command sends to the other.
fn assert_sends(mut receive: Command, mut send: Command) {
    let mut listener = receive.spawn().unwrap();
    let sent = send.output().unwrap();
    listener.kill().unwrap();
    let listened = listener.wait_with_output().unwrap();
    let said = [&sent.stderr, &listened.stderr].map(|it| String::from_utf8_lossy(it)).concat();
    assert!(sent.status.success(), "{said}");
}
