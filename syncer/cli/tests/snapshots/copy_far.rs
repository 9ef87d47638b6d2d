//! Snapshots that are copied to and from another machine, over a real sshd.

use std::process::Stdio;

use crate::common::prelude::*;
use crate::{
    copy::digests,
    damage::{flip, only_file_below},
    volume::{Said, Volume},
};

/// Two volumes, each of which sees the other by ssh.
struct Far {
    sshd: Sshd,
    here: Volume,
    there: Volume,
}

impl Far {
    fn new() -> Self {
        Self { sshd: Sshd::start(), here: Volume::new(), there: Volume::new() }
    }

    fn command(&self, [from, to]: [&str; 2], args: &[&str]) -> std::process::Command {
        let mut command = self.sshd.command(&program());
        command.args(["snapshot", "copy", from, to]).arg(self.sshd.rsh());
        command.arg(format!("--remote-program={}", program().display())).args(args);
        command
    }

    /// Copies from the volume here to the one there.
    fn push(&self, args: &[&str]) -> Said {
        let [here, there] = self.places();
        self.command([&here, &format!("far:{there}")], args).output().unwrap().into()
    }

    /// Copies from the volume there to the one here.
    fn pull(&self, args: &[&str]) -> Said {
        let [here, there] = self.places();
        self.command([&format!("far:{there}"), &here], args).output().unwrap().into()
    }

    fn places(&self) -> [String; 2] {
        [&self.here, &self.there].map(|volume| volume.path().to_str().unwrap().to_owned())
    }
}

#[test]
fn snapshots_go_to_another_machine_and_come_back() {
    let far = Far::new();
    tree::many(far.here.path(), 30, 300);
    fs::write(far.here.path().join("large"), vec![7; 3_000_000]).unwrap();
    far.here.create(&["--tag", "first", "--note", "a note"]);
    fs::write(far.here.path().join("small"), "content").unwrap();
    let last = far.here.create(&[]);
    let said = far.push(&["--all", "--json"]).exits(0).json();
    assert_eq!(said["copied"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!(digests(&far.there), digests(&far.here));
    far.there.ok("verify", &["--no-heal"]);
    assert_eq!(far.there.list()[0]["note"], "a note");
    assert_eq!(far.there.ok("cat", &[&last, "small"]), "content");
    let said = far.push(&["--all", "--json"]).exits(0).json();
    assert_eq!((said["present"].as_array().unwrap().len(), said["bytes"].as_u64()), (2, Some(0)));
    fs::remove_dir_all(far.here.store("")).unwrap();
    let said = far.pull(&["--since", "first"]);
    assert_eq!((said.code, said.stdout.trim()), (Some(0), &*last), "{said:?}");
    far.pull(&["first", "--json"]).exits(0);
    assert_eq!(digests(&far.there), digests(&far.here));
    far.here.ok("verify", &["--no-heal"]);
}

#[test]
fn of_a_large_file_only_what_differs_crosses() {
    for is_damaged in [false, true] {
        let (far, mut rng) = (Far::new(), Rng::new(3));
        let mut content = rng.bytes(8 << 20);
        fs::write(far.here.path().join("image"), &content).unwrap();
        far.here.create(&[]);
        far.push(&["--all", "--json"]).exits(0);
        if is_damaged {
            flip(&only_file_below(&far.there.store("content")), 3_000_000);
        }
        content[5_000_000] ^= 1;
        fs::write(far.here.path().join("image"), &content).unwrap();
        let last = far.here.create(&[]);
        let wire = far.here.path().with_file_name("wire");
        let count = format!("tee {0} | ", wire.display());
        let script = far.sshd.script("counted", &format!("{count}ssh \"$@\""));
        let [here, there] = far.places();
        let rsh = far.sshd.rsh().replacen("--rsh=ssh", &format!("--rsh={script}"), 1);
        let mut command = far.sshd.command(&program());
        command.args(["snapshot", "copy", &here, &format!("far:{there}"), "--all", &rsh]);
        command.arg(format!("--remote-program={}", program().display()));
        Said::from(command.output().unwrap()).exits(0);
        let crossed = fs::metadata(&wire).unwrap().len();
        assert!(crossed < 300_000, "{crossed} bytes");
        let out = far.there.path().with_file_name("restored");
        far.there.ok("restore", &[&last, "--to", out.to_str().unwrap()]);
        assert!(fs::read(out.join("image")).unwrap() == content, "damaged: {is_damaged}");
    }
}

#[test]
fn a_copy_that_loses_the_other_machine_leaves_whole_snapshots_and_goes_on() {
    let (far, mut rng) = (Far::new(), Rng::new(8));
    for nth in 0..5 {
        fs::write(far.here.path().join(format!("file{nth}")), rng.bytes(2_000_000)).unwrap();
        far.here.create(&[]);
    }
    let expected = digests(&far.here);
    for is_push in [true, false, true, false] {
        let (from, to) = if is_push { (&far.here, &far.there) } else { (&far.there, &far.here) };
        let [here, there] = far.places();
        let places = if is_push { [here, format!("far:{there}")] } else { [format!("far:{there}"), here] };
        let _ = fs::remove_dir_all(to.store(""));
        let mut child = far
            .command([&places[0], &places[1]], &["--all"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while fs::read_dir(to.store("content")).map_or(0, Iterator::count) < 1 + rng.below(4) as usize
            && child.try_wait().unwrap().is_none()
        {}
        child.kill().unwrap();
        child.wait().unwrap();
        if to.store("roots").exists() {
            assert!(digests(to).iter().all(|(id, digest)| expected.get(id) == Some(digest)));
        }
        let args = ["--all", "--json", "--wait-lock", "30s"];
        let said = if is_push { far.push(&args) } else { far.pull(&args) };
        said.exits(0);
        assert_eq!(digests(to), digests(from));
        to.ok("verify", &["--no-heal"]);
    }
}

#[test]
fn what_the_other_machine_refuses_is_told() {
    let far = Far::new();
    let said = far.pull(&["--all"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("cannot be used: ") && said.stderr.contains("has no snapshots"), "{said:?}");
    fs::write(far.here.path().join("file"), "content").unwrap();
    far.here.create(&[]);
    let said = far.push(&["unknown"]);
    assert!(
        said.code == Some(1) && said.stderr.contains("at the other end: there is no snapshot"),
        "{said:?}"
    );
    let mut command = far.sshd.command(&program());
    let [here, there] = far.places();
    command.args(["snapshot", "copy", &here, &format!("far:{there}"), "--all"]).arg(far.sshd.rsh());
    let said = Said::from(command.arg("--remote-program=/no/such/program").output().unwrap());
    assert!(said.code == Some(1) && said.stderr.contains("has no program"), "{said:?}");
    let mut command = far.sshd.command(&program());
    command.args(["snapshot", "copy", "far:a", "far:b", "--all"]);
    let said = Said::from(command.output().unwrap());
    assert!(said.stderr.contains("has to be on this machine"), "{said:?}");
}
