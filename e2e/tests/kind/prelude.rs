//! What nearly every test of this program uses.

use std::process::{Command, Output};

pub(crate) use contract::Work;
pub(crate) use e2e::{
    cluster::{PATIENCE, Sandbox},
    programs, syncjob,
    tree::{self, assert_same},
    volume::Volume,
    wait,
};
pub(crate) use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
pub(crate) use serde_json::{Value, json};

/// Runs `kubectl volferry` in the sandbox's namespace.
pub(crate) fn plugin(sandbox: &Sandbox, args: &[&str]) -> Output {
    let program = programs::of_workspace("kubectl-volferry").unwrap();
    Command::new(program).args(args).args(["-n", &sandbox.namespace]).output().unwrap()
}

/// Returns what a command has printed, which has succeeded.
#[track_caller]
pub(crate) fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
