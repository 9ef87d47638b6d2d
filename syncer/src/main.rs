//! `volferry`: moves one tree onto another, on one machine or over QUIC.

fn main() -> std::process::ExitCode {
    syncer::cli::main().into()
}
