//! Prints the state of a namespace in which a test has failed.

use std::path::Path;

use crate::kubectl::Kubectl;

/// Prints the SyncJobs, their children, the events and the pods' logs of a namespace.
pub fn print(kubectl: &Kubectl, namespace: &str) {
    let commands: [&[&str]; 5] = [
        &["get", "syncjobs", "-o", "yaml"],
        &["get", "syncruns,jobs,pods,services,secrets,pvc", "-o", "wide"],
        &["events"],
        &["describe", "pods"],
        &["logs", "--selector", "volferry.dev/syncjob", "--all-containers", "--prefix", "--tail=200"],
    ];
    eprintln!("\n===== namespace {namespace}");
    commands.iter().for_each(|args| print_output(kubectl, args));
}

/// Prints the output of a kubectl command, or its error.
pub fn print_output(kubectl: &Kubectl, args: &[&str]) {
    eprintln!("===== kubectl {}", args.join(" "));
    match kubectl.run(args) {
        Ok(text) => eprintln!("{text}"),
        Err(error) => eprintln!("{error:#}"),
    }
}

/// Prints a log.
pub fn print_file(path: &Path) {
    eprintln!("===== {}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => eprintln!("{text}"),
        Err(error) => eprintln!("{error}"),
    }
}
