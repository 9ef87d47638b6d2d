//! The flags of `volferry enroll` and `volferry peers`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use contract::{PublicKey, is_name};

use super::flag_values::seconds;
use crate::remote::place::EnrollPlace;

/// The configuration of a service that is installed as the systemd unit expects it.
const CONFIG: &str = "/etc/volferry/serve.toml";

/// The service that is to know this user.
#[derive(Debug, Args)]
pub(crate) struct EnrollFlags {
    /// The machine as ssh takes it, and a folder of its service that this user gets a right to
    #[arg(value_name = "[USER@]HOST[:PORT][::FOLDER]", value_parser = EnrollPlace::parse)]
    pub(crate) place: EnrollPlace,

    /// What this user may do with FOLDER
    #[arg(long, value_name = "RIGHT", value_enum, default_value_t)]
    pub(crate) access: EnrollAccess,

    /// This user's name at the service [default: the user's name and this machine's]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,

    /// Put a new key in the place of the one that the service knows, with the same rights
    #[arg(long, conflicts_with_all = ["name", "service_key"])]
    pub(crate) renew: bool,

    /// How long HOST may take to answer over ssh [default: 180], and the service to accept a renewed key [default: 10]
    #[arg(long, value_name = "SECONDS", conflicts_with = "service_key", value_parser = seconds)]
    pub(crate) connect_timeout: Option<Duration>,

    /// Without ssh: note this public key of the service, and print the line for its file of authorized keys
    #[arg(long, value_name = "KEY")]
    pub(crate) service_key: Option<PublicKey>,

    /// The configuration of the service, at HOST
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: String,

    /// Reach HOST by this command, to which the host and a command are added [default: ssh -T]
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub(crate) rsh: Option<OsString>,

    /// Run this program at HOST, as its shell reads it, such as 'sudo volferry' [default: volferry]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) remote_program: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum EnrollAccess {
    /// Send files into it (default)
    #[default]
    Write,
    /// Get its files
    Read,
    /// Both
    Both,
}

/// The subcommand of `volferry peers`.
#[derive(Debug, Args)]
pub(crate) struct PeersFlags {
    #[command(subcommand)]
    pub(crate) command: PeersCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeersCommand {
    /// Show the keys that the service accepts, with their peers' names
    List(ListPeersFlags),
    /// Accept a key
    Add(AddPeerFlags),
    /// Stop accepting a peer's keys, or one key; a run of it that goes on ends within two seconds
    Revoke(RevokePeerFlags),
}

#[derive(Debug, Args)]
pub(crate) struct ListPeersFlags {
    /// The configuration of the service
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddPeerFlags {
    /// The public key, as `volferry enroll --service-key` prints it
    #[arg(value_name = "KEY")]
    pub(crate) key: PublicKey,
    /// The peer's name
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// A folder that the peer may read; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub(crate) read: Vec<String>,
    /// A folder that the peer may write to; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Vec<String>,
    /// Give the key the name and the folders of this key
    #[arg(long, value_name = "KEY")]
    pub(crate) like: Option<PublicKey>,
    /// The configuration of the service
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
    /// Print the service's own key and port as JSON. For programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokePeerFlags {
    /// The peer's name, or one of its keys
    #[arg(value_name = "PEER")]
    pub(crate) peer: String,
    /// The configuration of the service
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
}

fn name(text: &str) -> Result<String, &'static str> {
    if is_name(text) {
        Ok(text.into())
    } else {
        Err("a name has 1 to 64 letters, digits and characters of `._@-`")
    }
}
