//! A program whose clock is off.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::programs;

/// Makes a program in that folder, which is `volferry` with a clock that is that many seconds off, and returns it.
pub fn volferry_off_by(seconds: i64, folder: &Path) -> Result<PathBuf> {
    let made = folder.join(format!("volferry{seconds:+}"));
    let mut cc = Command::new("cc");
    cc.arg("-O1").arg(format!("-DSECONDS={seconds}L"));
    cc.arg(format!("-DPROGRAM=\"{}\"", programs::of_workspace("volferry")?.display()));
    cc.arg("-o").arg(&made).arg(programs::repository().join("e2e/src/clock.c"));
    let said = cc.output().context("cannot run cc")?;
    ensure!(said.status.success(), "cc: {}", String::from_utf8_lossy(&said.stderr));
    Ok(made)
}
