//! Archives, and runs that bring a history along, that are killed at any moment: what is there is whole, and the
//! command that is run again does the rest.

use std::time::Instant;

use crate::common::{prelude::*, process::program};
use crate::{copy::digests, crash::kill, volume::Volume};

/// The number of commands to kill, each as often. `VOLFERRY_KILLS` sets another number.
const KILLS: usize = 20;

/// A command, and about how long it takes.
struct Killed {
    command: Box<dyn Fn() -> Command>,
    usual: Duration,
    cut_off: usize,
}

impl Killed {
    #[track_caller]
    fn new(command: impl Fn() -> Command + 'static) -> Self {
        let mut killed = Self { command: Box::new(command), usual: Duration::ZERO, cut_off: 0 };
        killed.finish();
        killed
    }

    #[track_caller]
    fn finish(&mut self) {
        let began = Instant::now();
        let output = (self.command)().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.usual = began.elapsed();
    }

    fn kill(&mut self, rng: &mut Rng) {
        let after = self.usual.mul_f64(rng.below(1000) as f64 / 1000.0);
        self.cut_off += usize::from(!kill((self.command)(), after));
    }
}

#[test]
fn archives_and_runs_with_a_history_that_are_killed_at_any_moment_leave_nothing_that_is_not_whole() {
    let kills = std::env::var("VOLFERRY_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let from = Volume::new();
    tree::many(from.path(), 60, 300);
    for nth in 0..3_u8 {
        fs::write(from.path().join("d0000/large"), vec![nth + 1; 3_000_000]).unwrap();
        from.create(&[]);
    }
    let place = scratch::scratch();
    let [archive, out, copy] = ["a.tar", "out.tar", "copy"].map(|name| place.path().join(name));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    from.ok("export", &["latest", "--tar", &text(&archive)]);
    let (whole, expected) = (fs::read(&archive).unwrap(), digests(&from));
    let newest = from.list().last().unwrap()["digest"].as_str().unwrap().to_owned();
    let (imported, source) = (Volume::new(), from.path().to_owned());
    let (import, from_tar) = (imported.path().to_owned(), text(&archive));
    let (dir, tar, target) = (source.clone(), text(&out), copy.clone());
    let command = |args: &[&str]| {
        let mut command = Command::new(program());
        command.args(args);
        command
    };
    let mut all = [
        Killed::new(move || command(&["snapshot", "import", &text(&import), "--tar", &from_tar])),
        Killed::new(move || command(&["snapshot", "export", &text(&dir), "latest", "--tar", &tar])),
        Killed::new(move || command(&["sync", "--history", "all", &text(&source), &text(&target)])),
    ];
    let mut rng = Rng::new(41);
    for round in 0..kills {
        // Each has something to do again.
        fs::remove_file(&out).unwrap();
        fs::remove_dir_all(&copy).unwrap();
        imported.ok("prune", &["--keep-last", "1"]);
        for killed in &mut all {
            killed.kill(&mut rng);
        }
        assert!(fs::read(&out).is_ok_and(|now| now == whole) || !out.exists(), "round {round}");
        assert!(digests(&imported).values().all(|digest| *digest == newest), "round {round}");
        imported.ok("verify", &["--no-heal"]);
        let copied = Volume::at(copy.clone());
        if copied.store("roots").exists() {
            let now = digests(&copied);
            assert!(now.iter().all(|(id, digest)| expected.get(id) == Some(digest)), "round {round}");
            copied.run("verify", &["--no-heal"]).assert_undamaged();
        }
        all.iter_mut().for_each(Killed::finish);
        assert_eq!(fs::read(&out).unwrap(), whole, "round {round}");
        assert_eq!(digests(&copied), expected, "round {round}");
        Snapshot::of(&copy).assert_like(&Snapshot::of(from.path()), COPY, "the copy");
        for volume in [&imported, &copied] {
            assert_eq!(fs::read_dir(volume.store("new")).unwrap().count(), 0, "round {round}");
        }
    }
    for (nth, Killed { cut_off, .. }) in all.iter().enumerate() {
        assert!(*cut_off > kills / 4, "only {cut_off} of {kills} of command {nth} were cut off");
    }
}
