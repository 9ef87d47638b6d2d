//! The `kubectl` of the cluster's cache: tests use it as users do, and read its messages.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::programs;

/// kubectl with a kubeconfig and a namespace.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Kubectl {
    /// Makes a kubectl for a cluster and a namespace.
    pub fn new(kubeconfig: &Path, namespace: &str) -> Result<Self> {
        let program = programs::of_cluster("kubectl")?;
        Ok(Self { program, kubeconfig: kubeconfig.into(), namespace: namespace.into() })
    }

    /// Runs kubectl and returns its standard output; an error has its standard error.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        text(args, &self.command(args).output().context("cannot run kubectl")?)
    }

    /// Runs kubectl as [`Kubectl::run`] does, without blocking the thread.
    pub async fn run_async(&self, args: &[&str]) -> Result<String> {
        let mut command = tokio::process::Command::from(self.command(args));
        text(args, &command.kill_on_drop(true).output().await.context("cannot run kubectl")?)
    }

    /// Runs kubectl with `input` on its standard input.
    pub fn pipe(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
        stdin.write_all(input.as_bytes()).context("kubectl does not read its input")?;
        drop(stdin);
        text(args, &child.wait_with_output().context("cannot wait for kubectl")?)
    }

    /// Runs `kubectl apply` with a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.pipe(&["apply", "-f", "-"], manifest)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]).args(args);
        command
    }
}

fn text(args: &[&str], output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
