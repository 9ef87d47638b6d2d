//! Tests `volferry-operator run` with a shell script in the role of `volferry`: what it passes on, and what it returns.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

const JOB: &str = "
apiVersion: volferry.dev/v1alpha1
kind: SyncJob
metadata: {name: web}
spec:
  source: {persistentVolumeClaim: {claimName: a}, path: /in}
  destination: {persistentVolumeClaim: {claimName: b}}
  files: {delete: true}
";

/// The script's beginning: both ends record their command lines and what they are told of each other. `$finish` ends an
/// end with a report.
const PRELUDE: &str = r#"#!/bin/sh
echo "$@" >> "$NOTES"
finish() {
  echo "{\"event\":\"finished\",\"run\":\"web-1\",\"result\":\"$1\",\"reason\":\"$2\",\"message\":\"$3\",\"work\":{\"filesScanned\":7}$VOLUME}"
  exit "$4"
}
meet() {
  [ "$1" = receive ] && ADDRESS=',"address":"127.0.0.1:4711"'
  echo "{\"event\":\"contact\",\"fingerprint\":\"$(printf %064d $$)\"$ADDRESS}"
  read -r peer && echo "$1 heard $peer" >> "$NOTES"
}
"#;

struct Stage {
    dir: TempDir,
}

impl Stage {
    fn new(script: &str) -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(stage.path("volferry"), format!("{PRELUDE}{script}")).unwrap();
        fs::set_permissions(stage.path("volferry"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(stage.path("job.yaml"), JOB).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self) -> Output {
        self.run_with(&[])
    }

    fn run_with(&self, flags: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry-operator"));
        command.arg("run").arg(self.path("job.yaml")).args(["--volume", "a=/srv/a", "--volume", "b=/srv/b"]);
        command.args(flags).arg("--volferry").arg(self.path("volferry"));
        command.env("NOTES", self.path("notes")).env("TMPDIR", self.dir.path()).output().unwrap()
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.path("notes")).unwrap()
    }
}

fn status(output: &Output) -> Value {
    let shown: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout.clone()).unwrap()).unwrap();
    shown["status"].clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn one_process_is_both_ends_where_the_spec_says_so() {
    let stage = Stage::new(r#"finish Succeeded "" "from $1" 0"#);
    let local = format!("{JOB}  transfer: {{placement: Local, compression: None}}\n");
    fs::write(stage.path("job.yaml"), local).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(status(&output)["lastRun"]["message"], "from sync");
    let notes = stage.notes();
    assert!(notes.starts_with("sync /srv/a /srv/b --source-path=/in --report="), "{notes}");
    assert!(
        notes.trim().ends_with("--progress=json --run=web-1 --delete --adopt --quiet")
            && notes.lines().count() == 1,
        "{notes}"
    );
}

#[test]
fn one_process_that_fails_fails_the_run() {
    let stage = Stage::new(r#"finish Failed NoSpace "the disk is full" 1"#);
    fs::write(stage.path("job.yaml"), format!("{JOB}  transfer: {{placement: Local}}\n")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(status(&output)["lastRun"]["reason"], "NoSpace");
}

#[test]
fn the_source_dials_where_the_sink_listens_and_the_sinks_report_becomes_the_status() {
    let stage = Stage::new(r#"meet "$1"; finish Succeeded "" "from $1" 0"#);
    let output = stage.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let notes = stage.notes();
    assert!(notes.contains("receive /srv/b --once --exchange=web-1"), "{notes}");
    assert!(notes.contains("send /srv/a --source-path=/in --connect-timeout=30 --exchange=web-1"), "{notes}");
    let heard = |end: &str| {
        let line = notes.lines().find_map(|line| line.strip_prefix(&format!("{end} heard "))).unwrap();
        serde_json::from_str::<Value>(line).unwrap()
    };
    assert_eq!(
        (&heard("send")["address"], &heard("receive")["address"]),
        (&"127.0.0.1:4711".into(), &Value::Null)
    );
    assert_ne!(heard("send")["fingerprint"], heard("receive")["fingerprint"]);
    assert_eq!(notes.matches("--run=web-1 --delete --adopt").count(), 1, "{notes}");
    assert!(notes.contains("--run=web-1 --delete-limit=50"), "{notes}");
    let status = status(&output);
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["lastRun"]["message"], "from receive");
    assert!(stderr(&output).contains("web: Succeeded  7 entries"), "{}", stderr(&output));
}

#[test]
fn the_destination_of_a_success_is_remembered_and_expected_where_the_manifest_has_the_status() {
    let volume = "07".repeat(16);
    let script = format!(r#"meet "$1"; VOLUME=',"volume":"{volume}"' finish Succeeded "" "" 0"#);
    let stage = Stage::new(&script);
    let first = stage.run();
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    assert!(!stage.notes().contains("--expect-volume"), "{}", stage.notes());
    let known = &status(&first)["destination"];
    assert_eq!(*known, serde_json::json!({"claimName": "b", "path": "/", "volume": volume}));

    fs::write(stage.path("job.yaml"), format!("{JOB}status: {{destination: {known}}}\n")).unwrap();
    let second = stage.run();
    assert_eq!(second.status.code(), Some(0), "{}", stderr(&second));
    let expected = format!("--expect-volume={volume}");
    assert_eq!(stage.notes().matches(&expected).count(), 2, "both ends of the second run: {}", stage.notes());
    assert_eq!(status(&second)["destination"], *known);

    for elsewhere in
        [known.to_string().replace("\"/\"", "\"/other\""), known.to_string().replace(":\"b\"", ":\"c\"")]
    {
        fs::write(stage.path("job.yaml"), format!("{JOB}status: {{destination: {elsewhere}}}\n")).unwrap();
        assert_eq!(stage.run().status.code(), Some(0));
        assert_eq!(stage.notes().matches(&expected).count(), 2, "{elsewhere} is another: {}", stage.notes());
    }
}

#[test]
fn another_destination_than_the_known_one_is_refused_with_what_to_do() {
    let stage = Stage::new(r#"meet "$1"; finish Failed OtherDestination "not the expected one" 4"#);
    let output = stage.run();
    assert_eq!(output.status.code(), Some(4));
    let message = status(&output)["lastRun"]["message"].clone();
    assert!(message.as_str().unwrap().contains("volferry.dev/accept-volume=ID"), "{message}");
}

#[test]
fn a_status_that_cannot_be_read_is_not_passed_over() {
    let stage = Stage::new("exit 0");
    fs::write(stage.path("job.yaml"), format!("{JOB}status: {{destination: {{volume: x}}}}\n")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("document 1: status.destination cannot be read"), "{}", stderr(&output));
}

#[test]
fn a_dry_run_prints_what_the_source_says_and_no_status() {
    let planned =
        r#"planned() { echo '{"event":"planned","action":"create","kind":"file","path":"a/b","bytes":7}'; }"#;
    let stage =
        Stage::new(&format!(r#"{planned}; meet "$1"; [ "$1" = send ] && planned; finish Succeeded "" "" 0"#));
    for (flag, line) in [
        ("--dry-run", "web: create file a/b (7 B)\n"),
        (
            "--dry-run=json",
            "{\"job\":\"web\",\"action\":\"create\",\"kind\":\"file\",\"path\":\"a/b\",\"bytes\":7}\n",
        ),
    ] {
        let output = stage.run_with(&[flag]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), line);
        assert!(
            stderr(&output).contains("web: dry run, nothing was changed: Succeeded"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(stage.notes().matches("--dry-run").count(), 4, "{}", stage.notes());
}

#[test]
fn shards_are_pairs_of_processes_and_their_reports_add_up() {
    let stage = Stage::new(r#"meet "$1"; finish Succeeded "" "" 0"#);
    fs::write(stage.path("job.yaml"), format!("{JOB}  parallelism: 3\n")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for shard in ["--shard=0/3", "--shard=1/3", "--shard=2/3"] {
        assert_eq!(stage.notes().matches(shard).count(), 1, "{shard} in {}", stage.notes());
    }
    assert_eq!(stage.notes().matches("--run=web-1").count(), 6, "{}", stage.notes());
    assert!(stderr(&output).contains("web: Succeeded  21 entries"), "{}", stderr(&output));
}

#[test]
fn a_failed_shard_fails_the_run_and_is_named() {
    let stage = Stage::new(
        r#"meet "$1"
           case "$*" in *--shard=1/3*) finish Failed NoSpace "no space left" 1 ;; esac
           finish Failed ShardLost "shard 1/3 ended" 5"#,
    );
    fs::write(stage.path("job.yaml"), format!("{JOB}  parallelism: 3\n")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(1));
    let run = &status(&output)["lastRun"];
    assert_eq!((&run["reason"], &run["message"]), (&"NoSpace".into(), &"Shard 1 of 3: no space left".into()));
}

#[test]
fn a_dry_run_of_shards_is_one_of_the_whole() {
    let stage = Stage::new(r#"meet "$1"; finish Succeeded "" "" 0"#);
    fs::write(stage.path("job.yaml"), format!("{JOB}  parallelism: 3\n")).unwrap();
    assert_eq!(stage.run_with(&["--dry-run"]).status.code(), Some(0));
    let notes = stage.notes();
    assert!(
        notes.lines().filter(|line| !line.contains(" heard ")).count() == 2 && !notes.contains("--shard"),
        "{notes}"
    );
}

#[test]
fn nothing_is_left_in_the_folder_for_temporary_files() {
    let stage = Stage::new(r#"meet "$1"; finish Succeeded "" "" 0"#);
    stage.run();
    let mut names: Vec<_> =
        fs::read_dir(stage.dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["job.yaml", "notes", "volferry"]);
}

#[test]
fn a_guards_refusal_is_the_exit_status_and_the_reason() {
    let stage = Stage::new(r#"meet "$1"; finish Failed SourceEmpty "The source is empty." 4"#);
    let output = stage.run();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(status(&output)["lastRun"]["reason"], "SourceEmpty");
    assert!(stderr(&output).contains("web: Failed (SourceEmpty)"), "{}", stderr(&output));
}

#[test]
fn a_sink_that_never_listens_ends_the_run_with_its_last_words() {
    let stage = Stage::new(
        r#"[ "$1" = receive ] && { echo no space left >&2; exit 1; }; read -r peer || finish Failed PeerLost "no peer" 5"#,
    );
    let output = stage.run();
    assert_eq!(output.status.code(), Some(1));
    let message = status(&output)["lastRun"]["message"].clone();
    assert!(message.as_str().unwrap().contains("no space left"), "{message}");
}

#[test]
fn a_run_is_ended_at_its_timeout_and_the_programs_with_it() {
    let stage = Stage::new(r#"echo $$ >> "$NOTES"; meet "$1"; exec sleep 600"#);
    fs::write(stage.path("job.yaml"), format!("{JOB}  limits: {{timeout: 1s}}\n")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(status(&output)["lastRun"]["reason"], "TimedOut");
    for pid in stage.notes().lines().filter_map(|line| line.parse::<u32>().ok()) {
        assert!(!PathBuf::from(format!("/proc/{pid}/exe")).exists(), "process {pid} is still there");
    }
}

#[test]
fn several_jobs_run_one_after_another_and_the_worst_exit_status_counts() {
    let stage = Stage::new(
        r#"meet "$1"; case "$*" in *bad-1*) finish Failed x y 3 ;; *) finish Succeeded "" "" 0 ;; esac"#,
    );
    let bad = JOB.replace("name: web", "name: bad");
    fs::write(stage.path("job.yaml"), format!("{bad}---{JOB}")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(3));
    let shown: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let phases: Vec<&Value> = shown.iter().map(|it| &it["status"]["phase"]).collect();
    assert_eq!(phases, ["PartiallyFailed", "Succeeded"]);
}

#[test]
fn a_suspended_job_is_skipped_and_named() {
    let stage = Stage::new(r#"meet "$1"; finish Succeeded "" "" 0"#);
    let suspended = JOB.replace("name: web", "name: idle").replace("spec:", "spec:\n  suspend: true");
    fs::write(stage.path("job.yaml"), format!("{suspended}---{JOB}")).unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("idle: skipped"), "{}", stderr(&output));
    assert!(!stage.notes().contains("idle"), "{}", stage.notes());
    assert_eq!(status(&output)["phase"], "Succeeded", "one status, and no separator before it");
}

#[test]
fn folders_that_contain_one_another_are_refused_before_anything_runs() {
    let stage = Stage::new("exit 0");
    fs::create_dir(stage.path("in")).unwrap();
    std::os::unix::fs::symlink(".", stage.path("link")).unwrap();
    let dir = |name: &str| stage.path(name).to_string_lossy().into_owned();
    let whole = JOB.replace(", path: /in", "");
    for (job, source, destination) in [
        (&whole, dir("in"), dir("in")),
        (&whole, dir(""), dir("link/in/new")),
        (&JOB.to_string(), dir(""), dir("in")),
    ] {
        fs::write(stage.path("job.yaml"), job).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry-operator"));
        command.arg("run").arg(stage.path("job.yaml")).arg("--volferry").arg(stage.path("volferry"));
        command.args(["--volume", &format!("a={source}"), "--volume", &format!("b={destination}")]);
        let output = command.env("NOTES", stage.path("notes")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{source} {destination}");
        assert!(stderr(&output).contains("contain one another"), "{}", stderr(&output));
        assert!(!stage.path("notes").exists());
    }
}

#[test]
fn a_folder_for_a_claim_that_no_job_has_is_refused() {
    let stage = Stage::new("exit 0");
    fs::write(stage.path("job.yaml"), JOB.replace("claimName: b", "claimName: backup")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_volferry-operator"));
    command.arg("run").arg(stage.path("job.yaml"));
    command.args(["--volume", "a=/srv/a", "--volume", "backup=/srv/b", "--volume", "bakcup=/srv/b"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no job of the manifest has the claim bakcup"), "{}", stderr(&output));
}

#[test]
fn nothing_runs_if_one_of_the_documents_is_wrong() {
    let stage = Stage::new("exit 0");
    fs::write(stage.path("job.yaml"), format!("{JOB}---{}", JOB.replace("delete: true", "delete: maybe")))
        .unwrap();
    let output = stage.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(!stage.path("notes").exists() && output.stdout.is_empty());
    assert!(
        stderr(&output).contains("document 2") && stderr(&output).contains("spec.files.delete"),
        "{}",
        stderr(&output)
    );
}
