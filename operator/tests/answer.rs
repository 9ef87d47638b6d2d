//! The process in the pod by which a user looks into snapshots.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

use std::process::Stdio;

use operator::user_pods::frames::{self, Piece};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Starts the process with a shell's script as its command.
fn start(script: &str) -> (Child, ChildStdin, ChildStdout) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_volferry-operator"))
        .args(["answer", "--", "/bin/sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, stdin, stdout)
}

#[tokio::test]
async fn output_of_any_bytes_crosses_with_the_exit_status_and_the_process_ends_with_its_user() {
    let script = "printf 'a\\000\\377\\n'; head -c 300000 /dev/zero; exit 3";
    let (child, mut stdin, mut stdout) = start(script);
    stdin.write_all(b"\n").await.unwrap();
    let mut output = Vec::new();
    let status = loop {
        match frames::read(&mut stdout).await.unwrap() {
            Piece::Output(bytes) => output.extend(bytes),
            Piece::End(status) => break status,
        }
    };
    assert_eq!((status, output.len()), (3, 300_004));
    assert_eq!(&output[..4], b"a\0\xff\n");
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test]
async fn a_command_ends_when_its_user_leaves() {
    let (child, mut stdin, mut stdout) = start("echo started; exec sleep 1000");
    stdin.write_all(b"\n").await.unwrap();
    assert_eq!(frames::read(&mut stdout).await.unwrap(), Piece::Output(b"started\n".into()));
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the user has left"), "{ended:?}");
}

#[tokio::test]
async fn nothing_runs_for_a_user_who_does_not_come() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made");
    let (child, stdin, _stdout) = start(&format!("echo > {}", path.display()));
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    assert!(!ended.status.success() && !path.exists(), "{ended:?}");
}
