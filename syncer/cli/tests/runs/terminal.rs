//! Runs at a real terminal: what Ctrl-C says, and that it stops no more than it should.

use std::{
    io::{Read as _, Write as _},
    process::{ChildStdin, Stdio},
    sync::mpsc,
};

use testkit::process::KilledOnDrop;

use crate::common::prelude::*;

/// The key that makes a terminal interrupt what runs in it.
const CTRL_C: &[u8] = b"\x03";

/// What a run says when it is interrupted.
const STOPPING: &str =
    "Stopping in order, and the next run continues; press Ctrl-C again to stop at once.\r\n";

/// A command at a terminal of its own, in whose foreground it runs. `script` is of Debian's package bsdutils.
struct Terminal {
    script: KilledOnDrop,
    keys: Option<ChildStdin>,
    output: mpsc::Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    /// Starts the program with these words, of which none has a quote.
    fn start(words: &[&str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!("exec {} {}", program().display(), words.join(" "));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("VOLFERRY_CONFIG", "none");
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut pipe) = (script.stdin.take(), script.stdout.take().unwrap());
        let (tell, output) = mpsc::channel();
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut part) {
                let _ = tell.send(part[..len].to_vec());
            }
        });
        Self { script: KilledOnDrop(script), keys, output, shown: String::new() }
    }

    /// Waits until this was shown.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let part = self.output.recv_timeout(PATIENCE);
            let part = part.unwrap_or_else(|error| panic!("{error}, no `{text}` in {:?}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&part));
        }
    }

    fn press(&mut self, keys: &[u8]) {
        let open = self.keys.as_mut().unwrap();
        open.write_all(keys).and_then(|()| open.flush()).unwrap();
    }

    /// Waits for the end of the command; returns all that was shown, and its status.
    #[track_caller]
    fn end(mut self) -> (String, Option<i32>) {
        loop {
            match self.output.recv_timeout(PATIENCE) {
                Ok(part) => self.shown.push_str(&String::from_utf8_lossy(&part)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("{error}: {:?}", self.shown),
            }
        }
        (self.shown, self.script.0.wait().unwrap().code())
    }
}

/// Interrupts a slow run once its bar shows that content arrives, and checks what it says.
fn interrupt(words: &[&str]) {
    let mut terminal = Terminal::start(words);
    terminal.wait_for("Transferring");
    terminal.press(CTRL_C);
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(1), "{shown:?}");
    let (_, after) = shown.split_once(STOPPING).unwrap_or_else(|| panic!("{shown:?}"));
    assert!(after.contains("canceled: "), "{shown:?}");
    assert!(after.ends_with("hint: the next run continues where this one stopped\r\n"), "{shown:?}");
    assert!(!shown.contains("press Ctrl-C again to stop at once.\r\nStopping"), "{shown:?}");
    // Each line begins where the bar was.
    for line in ["Stopping in order", "canceled: "] {
        let at = shown.find(line).unwrap();
        assert!(shown[..at].ends_with("\r\x1b[2K") || shown[..at].ends_with('\n'), "{shown:?}");
    }
}

#[test]
fn ctrl_c_stops_a_run_in_order_and_says_that_the_next_one_continues() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("large"), &Rng::new(1).bytes(4_000_000));
    interrupt(&["sync", "--bandwidth-limit=400k", text(&pair.source), text(&pair.destination)]);
    assert!(!pair.destination.join("large").exists());
    pair.sync("after a run that was interrupted at a terminal");
}

#[test]
fn ctrl_c_reaches_the_run_and_not_its_ssh() {
    let (pair, sshd) = (Pair::new(Way::Local), Sshd::start());
    tree::file(&pair.source.join("large"), &Rng::new(2).bytes(4_000_000));
    let remote = format!("--remote-program={}", program().display());
    for link in ["--link=udp", "--link=ssh"] {
        let far = format!("far:{}", pair.destination.display());
        let flags = ["sync", "--bandwidth-limit=400k", link, &sshd.rsh(), &remote];
        interrupt(&[&flags[..], &[text(&pair.source), &far]].concat());
    }
    pair.sync("after runs that were interrupted at a terminal");
}
