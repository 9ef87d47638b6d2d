use std::{
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Child, Stdio},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use testkit::{compare::Fidelity, process::wait_within};

use super::{About, Peer, Place, Sample, number_after, version_line};
use crate::scenario::Phase;

/// `tar` at both ends of a plain TCP connection: the cost of moving the bytes without encryption, checks and
/// comparison.
pub(super) struct Tar {
    program: PathBuf,
}

impl Tar {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    fn unpack(&self, place: &Place, from: TcpStream) -> anyhow::Result<Child> {
        let mut command = place.command(&self.program);
        command.args(["-x", "-f", "-", "-C"]).arg(&place.destination).stdin(OwnedFd::from(from));
        command.spawn().context("starting the unpacking tar")
    }

    /// Starts the packing end. The socket is closed in this process on return, so that the other end notices the end of
    /// the stream.
    fn pack(&self, place: &Place, to: TcpStream) -> anyhow::Result<Child> {
        let mut command = place.command(&self.program);
        command.args(["-c", "--totals", "-f", "-", "-C"]).arg(&place.source).arg(".");
        command.stdout(OwnedFd::from(to)).stderr(Stdio::piped());
        command.spawn().context("starting the packing tar")
    }
}

impl Peer for Tar {
    fn about(&self) -> About {
        let leaves_out = "encryption, comparison, deletes, checks, durability";
        About { name: "tar/TCP", fidelity: Fidelity::Seconds, leaves_out, own: &[] }
    }

    fn version(&self) -> String {
        version_line(&self.program, "--version")
    }

    fn takes_part(&self, phase: &Phase) -> bool {
        phase.name == "first"
    }

    fn begin(&mut self, _place: &Place) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self, place: &Place) -> anyhow::Result<Sample> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sending = TcpStream::connect(listener.local_addr()?)?;
        let mut sink = self.unpack(place, listener.accept()?.0)?;
        let start = Instant::now();
        let source = self.pack(place, sending)?;
        let status = wait_within(&mut sink, place.limit)?;
        let elapsed = start.elapsed();
        let source = source.wait_with_output()?;
        ensure!(status.success() && source.status.success(), "tar: {}, {status}", source.status);
        let totals = String::from_utf8_lossy(&source.stderr);
        Ok(Sample { elapsed, wire_bytes: number_after(&totals, "Total bytes written:") })
    }
}
