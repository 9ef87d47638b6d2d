//! `volferry bench` measures two volumes and leaves them as they were, however it ends.

use std::process::Output;

use contract::{BenchResult, BenchStepName, RunKind};
use tempfile::TempDir;

use crate::common::prelude::*;
use crate::common::{
    scratch::{dir, scratch},
    watch::{FirstEntry, until_written},
};

/// Two volumes for a bench, and the description of its tree.
struct Volumes {
    source: PathBuf,
    destination: PathBuf,
    tree: PathBuf,
    before: [Snapshot; 2],
    place: TempDir,
}

impl Volumes {
    /// Makes two folders with unrelated files, and the description of a tree.
    fn new() -> Self {
        let place = scratch();
        let [source, destination] = ["source", "destination"].map(|name| dir(place.path(), name));
        for (nth, volume) in [&source, &destination].into_iter().enumerate() {
            tree::gallery(volume, tree::Shape::Everything);
            tree::set_mtime(volume, 1_000_000_000, 7 + nth as i64);
        }
        Self::between(place, source, destination)
    }

    fn between(place: TempDir, source: PathBuf, destination: PathBuf) -> Self {
        let tree = place.path().join("tree.yaml");
        let groups = "- {count: 100, bytes: 500, folders: 3}\n- {count: 1, bytes: 2000000}\n";
        fs::write(&tree, format!("files:\n{groups}changePercent: 10\n")).unwrap();
        let before = [&source, &destination].map(|volume| Snapshot::of(volume));
        Self { source, destination, tree, before, place }
    }

    fn args(&self) -> [&str; 5] {
        ["bench", text(&self.source), text(&self.destination), "--tree", text(&self.tree)]
    }

    fn bench(&self, flags: &[&str]) -> Output {
        Command::new(program()).args(self.args()).args(flags).output().unwrap()
    }

    /// Checks that both volumes, and the times of their roots, are as they were.
    #[track_caller]
    fn assert_as_before(&self) {
        for (volume, before) in [&self.source, &self.destination].into_iter().zip(&self.before) {
            let after = Snapshot::of(volume);
            after.assert_like(before, COPY, text(volume));
            assert_eq!(untouched(&after), untouched(before), "{}", volume.display());
        }
    }
}

/// Returns the entries below the root to which nothing has been written.
fn untouched(tree: &Snapshot) -> Vec<String> {
    let below = tree.entries().filter(|(path, _)| !path.is_empty());
    below.map(|(path, node)| format!("{path:?} {:?}", node.touched)).collect()
}

fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_bench_tells_each_step_and_leaves_the_volumes_as_they_were() {
    let volumes = Volumes::new();
    let report = volumes.place.path().join("bench.json");
    let run = volumes.bench(&["--rounds", "2", "--report", text(&report)]);
    assert!(run.status.success(), "{run:?}");
    volumes.assert_as_before();
    let table = String::from_utf8(run.stdout).unwrap();
    for step in ["first ", "unchanged ", "changed "] {
        assert_eq!(table.lines().filter(|line| line.starts_with(step)).count(), 1, "{table}");
    }

    let result: BenchResult = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let figures = &result.figures;
    for place in [&figures.source, &figures.destination].map(|place| place.as_ref().unwrap()) {
        let told = [&place.file_system, &place.device, &place.mount_options];
        assert!(told.iter().all(|word| !word.is_empty()), "{place:?}");
        let machine = &place.machine;
        assert_eq!(machine.kernel, rustix::system::uname().release().to_str().unwrap());
        assert!(machine.cores > 0 && machine.memory_bytes > 0, "{machine:?}");
    }
    assert_eq!(figures.notes, [] as [String; 0]);
    let steps: Vec<_> = figures.steps.iter().map(|step| (step.step, step.rounds)).collect();
    assert_eq!(steps, BenchStepName::ALL.map(|step| (step, 2)));
    let kinds: Vec<_> = result.runs.iter().map(|run| RunKind::of(&run.work)).collect();
    assert_eq!(kinds, [RunKind::First, RunKind::Unchanged, RunKind::Changed].repeat(2));
    assert_eq!(result.runs[2].work.files_updated, 11, "ten small files and the large one");
}

/// Starts an end of a bench; this test relays the messages by which the ends meet.
fn start_end(volumes: &Volumes, side: &str, flags: &[&str]) -> Running {
    let volume = if side == "source" { &volumes.source } else { &volumes.destination };
    let mut command = Command::new(program());
    let tree = ["bench", text(volume), "--end", side, "--exchange=job", "--tree", text(&volumes.tree)];
    command.args(tree).args(["--rounds", "2", "--run=run-1"]).args(flags);
    Running::start_listening(command)
}

#[test]
fn the_ends_of_a_bench_over_the_network_report_as_a_run_does_and_leave_the_volumes_as_they_were() {
    let volumes = Volumes::new();
    let reports = ["source", "sink"].map(|side| volumes.place.path().join(format!("{side}.json")));
    let [of_source, of_sink] = reports.each_ref().map(|path| format!("--report={}", path.display()));
    let mut source = start_end(&volumes, "source", &[&of_source]);
    let mut sink = start_end(&volumes, "sink", &[&of_sink, "--listen=127.0.0.1:0"]);
    let contacts = [source.contact(), sink.contact()].map(|it| serde_json::to_string(&it).unwrap());
    source.tell(&contacts[1]);
    sink.tell(&contacts[0]);
    for end in [source, sink] {
        end.wait().assert_exit(ExitCode::Done);
    }
    volumes.assert_as_before();

    let [source, sink] =
        reports.map(|path| serde_json::from_slice::<Report>(&fs::read(path).unwrap()).unwrap());
    assert_eq!((source.run.as_str(), sink.run.as_str()), ("run-1", "run-1"));
    assert_eq!((sink.work.files_created, sink.work.files_updated), (2 * 107, 2 * 11), "of two rounds");
    let [source, sink] = [source, sink].map(|report| report.benchmark.unwrap());
    assert!(source.source.is_some() && source.destination.is_none());
    assert!(sink.source.is_none() && sink.destination.is_some());
    let steps: Vec<_> = sink.steps.iter().map(|step| (step.step, step.rounds)).collect();
    assert_eq!(steps, BenchStepName::ALL.map(|step| (step, 2)));
}

#[test]
fn an_end_of_a_bench_that_fails_leaves_the_report_of_a_run() {
    let volumes = Volumes::new();
    fs::write(&volumes.tree, "files: [{count: 1, bytes: 1000000000000}]").unwrap();
    let path = volumes.place.path().join("report.json");
    let end = start_end(&volumes, "source", &[&format!("--report={}", path.display())]);
    end.wait().assert_exit(ExitCode::Failed);
    let report: Report = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((report.run.as_str(), report.reason.as_deref()), ("run-1", Some("NoRoom")));
    assert!(report.message.contains(" has room for "), "{}", report.message);
    let flags = ["--connect=localhost:1", "--identity=x"];
    let refused = volumes.bench(&flags);
    assert_eq!(refused.status.code(), Some(ExitCode::Usage as i32), "{refused:?}");
}

#[test]
fn a_tree_may_be_described_on_the_command_line() {
    let volumes = Volumes::new();
    let tree = r#"{"files": [{"count": 3, "bytes": 10}], "changePercent": 100}"#;
    let mut command = Command::new(program());
    command.args(["bench", text(&volumes.source), text(&volumes.destination), "--rounds=1", "--json"]);
    let run = command.args(["--tree", tree]).output().unwrap();
    let result: BenchResult = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((result.figures.bench.count(), result.runs[2].work.files_updated), (3, 3));
}

#[test]
fn what_a_bench_found_is_a_report() {
    let volumes = Volumes::new();
    let [report, page] = ["bench.json", "page.html"].map(|name| volumes.place.path().join(name));
    let run = volumes.bench(&["--rounds", "1", "--json"]);
    fs::write(&report, run.stdout).unwrap();
    let told = |form: &[&str]| {
        let told = Command::new(program()).args(["report", text(&report)]).args(form).output().unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&told(&["--json"])).unwrap();
    assert_eq!([0, 1, 2].map(|run| json["runs"][run]["kind"].clone()), ["first", "unchanged", "changed"]);
    told(&["--html", text(&page)]);
    assert!(fs::read_to_string(&page).unwrap().contains("bench unchanged 1"));
}

#[test]
fn the_schema_describes_what_a_bench_prints() {
    let schema = Command::new(program()).args(["bench", "--schema"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    let run = Volumes::new().bench(&["--rounds", "1", "--json"]);
    let printed: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    for key in printed.as_object().unwrap().keys() {
        assert!(schema["properties"][key].is_object(), "{key}: {schema}");
    }
}

/// Starts a bench that takes long, and returns once it copies.
fn start_long(volumes: &Volumes) -> Running {
    let description = "files:\n- {count: 3000, bytes: 4096, folders: 30}\n";
    fs::write(&volumes.tree, description).unwrap();
    let appears = FirstEntry::of(&volumes.destination);
    let mut command = Command::new(program());
    command.args(volumes.args()).args(["--rounds", "100"]);
    let running = Running::start(command);
    appears.wait();
    let own = leftovers(&volumes.destination).remove(0);
    let work = own.join("work");
    until_written(&own, || work.exists());
    until_written(&work, || work.join("copy").exists());
    running
}

fn leftovers(volume: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("/.volferry-bench-")).collect()
}

#[test]
fn a_bench_that_is_told_to_stop_leaves_the_volumes_as_they_were() {
    for signal in [Signal::TERM, Signal::INT] {
        let volumes = Volumes::new();
        let running = start_long(&volumes);
        running.signal(signal);
        let ended = running.wait();
        ended.assert_exit(ExitCode::Failed);
        assert!(ended.stderr.contains("error: the bench was stopped"), "{}", ended.stderr);
        volumes.assert_as_before();
    }
}

#[test]
fn what_a_killed_bench_left_is_removed_by_the_next() {
    let volumes = Volumes::new();
    let running = start_long(&volumes);
    running.kill();
    assert_eq!(running.wait().exit, None);
    assert_eq!([&volumes.source, &volumes.destination].map(|volume| leftovers(volume).len()), [1, 1]);
    fs::write(&volumes.tree, "files: [{count: 3, bytes: 10}]").unwrap();
    let run = volumes.bench(&["--rounds", "1"]);
    assert!(run.status.success(), "{run:?}");
    assert_eq!([&volumes.source, &volumes.destination].map(|volume| leftovers(volume).len()), [0, 0]);
}

#[test]
fn a_bench_that_cannot_write_on_leaves_the_volumes_as_they_were() {
    let volumes = Volumes::new();
    // No file may be larger than 512 KiB, so the tree's last one cannot be made.
    let limited = "trap '' XFSZ && ulimit -f 1024 && exec \"$0\" \"$@\"";
    let run = Command::new("sh").args(["-c", limited]).arg(program()).args(volumes.args()).output().unwrap();
    let error = error_of(&run);
    assert!(error.contains("cannot make ") && error.contains("File too large"), "{error}");
    volumes.assert_as_before();
}

#[test]
fn a_volume_without_room_is_refused_and_a_full_one_stays_as_it_was() {
    let Some(disk) = Disk::new("ext4", 32 << 20, "") else { return };
    let [source, copy] = ["source", "copy"].map(|name| dir(&disk.path(), name));
    let volumes = Volumes::between(scratch(), source.clone(), copy.clone());
    fs::write(&volumes.tree, "files: [{count: 1, bytes: 20000000}]").unwrap();
    let error = error_of(&volumes.bench(&[]));
    assert!(error.contains(" has room for ") && error.contains("\nhint: make room"), "{error}");
    volumes.assert_as_before();

    let full = disk.path().join("full");
    let filled =
        Command::new("dd").args(["if=/dev/zero", "bs=64k"]).arg(format!("of={}", text(&full))).output();
    assert!(!filled.unwrap().status.success());
    let volumes = Volumes::between(scratch(), source, copy);
    error_of(&volumes.bench(&[]));
    volumes.assert_as_before();
}

#[test]
fn a_destination_of_a_sync_keeps_all_that_belongs_to_it() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("file"), &Rng::new(5).bytes(3000));
    pair.sync("before the bench");
    let volumes = Volumes::between(scratch(), pair.source.clone(), pair.destination.clone());
    assert!(pair.destination.join(".volferry").is_dir());
    let run = volumes.bench(&["--rounds", "1"]);
    assert!(run.status.success(), "{run:?}");
    volumes.assert_as_before();
    pair.sync_unchanged("after the bench");
}

#[test]
fn what_is_no_folder_or_no_tree_is_named() {
    let volumes = Volumes::new();
    fs::write(&volumes.tree, "files: [{count: 0, bytes: 10}]").unwrap();
    let error = error_of(&volumes.bench(&[]));
    assert!(error.contains("tree.yaml describes no possible tree: files[0].count is 0"), "{error}");
    let missing = volumes.place.path().join("missing");
    let run =
        Command::new(program()).args(["bench", text(&volumes.source), text(&missing)]).output().unwrap();
    assert!(error_of(&run).contains(&format!("cannot use {}", missing.display())));
    let run =
        Command::new(program()).args(["bench", text(&volumes.source), text(&volumes.tree)]).output().unwrap();
    assert!(error_of(&run).contains("is not a folder\nhint: "));
    volumes.assert_as_before();
}
