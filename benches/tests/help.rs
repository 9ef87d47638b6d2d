//! The programs of the benches explain themselves; clap checks each command line for that, in a program for tests.

use std::process::Command;

use testkit::process::run;

#[test]
fn each_command_line_is_consistent() {
    for program in [
        env!("CARGO_BIN_EXE_compare"),
        env!("CARGO_BIN_EXE_history"),
        env!("CARGO_BIN_EXE_peers"),
        env!("CARGO_BIN_EXE_profile"),
        env!("CARGO_BIN_EXE_snapshots"),
        env!("CARGO_BIN_EXE_tables"),
    ] {
        run(Command::new(program).arg("--help")).unwrap();
    }
}
