//! Starts the two ends of a run: builds the command lines of `volferry`, and handles the processes.
//!
//! In a cluster, the processes are children of `volferry-operator agent`, one in each syncer pod
//! ([`crate::pods::job`]); for `volferry-operator run`, they are children of the operator itself
//! ([`crate::local_run`]). The command lines are the same.

pub mod bench_args;
pub mod process;

use std::net::SocketAddr;

use contract::{DeleteLimit, Demands, PublicKey, RunParams, Side};

/// A folder of a volume, as a process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// The path of the volume. The path is trusted, unlike the contents of the volume.
    pub volume: String,
    /// The folder on the volume; `/` is the whole volume.
    pub path: String,
}

/// What an end is told besides the run's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndArgs {
    /// The folder with the end's files.
    pub folder: Folder,
    /// The job that both ends must belong to, for the keys that they create in memory.
    pub job: String,
    /// The path of the report.
    pub report: String,
}

/// Returns the arguments of the end that sends the files. It dials the address that it is told, for `timeout_s`
/// seconds.
pub fn source_args(end: &EndArgs, timeout_s: u64, params: &RunParams) -> Vec<String> {
    end_args("send", "--source-path", end, vec![format!("--connect-timeout={timeout_s}")], asked(params))
}

/// Returns the arguments of the end that receives the files, without the address to listen on ([`listen_arg`]). It
/// demands what the job says, so that a hostile source cannot ask for more.
pub fn sink_args(end: &EndArgs, params: &RunParams) -> Vec<String> {
    end_args("receive", "--destination-path", end, vec!["--once".into()], Demands::of(params).to_args())
}

/// Returns the argument that makes an end listen on an address; port 0 chooses a free port.
pub fn listen_arg(address: SocketAddr) -> String {
    format!("--listen={address}")
}

/// Returns the arguments of the one process for both ends, without flags for the network and for keys.
pub fn local_args(source: &Folder, destination: &Folder, report: &str, params: &RunParams) -> Vec<String> {
    let mut args = vec!["sync".to_string(), source.volume.clone(), destination.volume.clone()];
    for (flag, folder) in [("--source-path", source), ("--destination-path", destination)] {
        if folder.path != "/" {
            args.push(format!("{flag}={}", folder.path));
        }
    }
    args.push(format!("--report={report}"));
    args.push("--progress=json".into());
    let RunParams { compression, bandwidth_limit, .. } = RunParams::default();
    args.extend(asked(&RunParams { compression, bandwidth_limit, ..params.clone() }));
    let Demands { snapshot, other_source, .. } = params.demands.clone();
    args.extend(Demands { snapshot, other_source, ..Demands::default() }.to_args());
    args
}

/// A folder that a service has, as a process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePlace {
    /// `HOST:PORT::FOLDER`, with a path below that folder.
    pub address: String,
    /// The key that the service has to show.
    pub public_key: PublicKey,
    /// The file of the key to show there.
    pub identity: String,
}

/// Returns the arguments of the one process for a run with a folder of a service, which is the end `remote`. It dials
/// for `timeout_s` seconds.
pub fn remote_args(
    side: Side,
    remote: &RemotePlace,
    own: &Folder,
    timeout_s: u64,
    report: &str,
    params: &RunParams,
) -> Vec<String> {
    let (ends, path) = match side {
        Side::Source => ([&remote.address, &own.volume], "--destination-path"),
        Side::Sink => ([&own.volume, &remote.address], "--source-path"),
    };
    let mut args = vec!["sync".to_string(), ends[0].clone(), ends[1].clone()];
    if own.path != "/" {
        args.push(format!("{path}={}", own.path));
    }
    args.push(format!("--identity={}", remote.identity));
    args.push(format!("--service-key={}", remote.public_key));
    args.push(format!("--connect-timeout={timeout_s}"));
    args.push(format!("--report={report}"));
    args.push("--progress=json".into());
    args.extend(asked(params));
    // What the owner of the destination demands is said there.
    if side == Side::Source {
        let Demands { snapshot, other_source, .. } = params.demands.clone();
        args.extend(Demands { snapshot, other_source, ..Demands::default() }.to_args());
    }
    args
}

/// Returns the arguments of the one process for a run that takes a snapshot into object storage.
pub fn bucket_args(url: &str, key: &str, own: &Folder, report: &str, params: &RunParams) -> Vec<String> {
    let mut args = vec!["sync".to_string(), own.volume.clone(), url.into()];
    if own.path != "/" {
        args.push(format!("--source-path={}", own.path));
    }
    args.push(format!("--key-file={key}"));
    args.push(format!("--report={report}"));
    args.push("--progress=json".into());
    args.extend(asked(params));
    let snapshot = params.demands.snapshot.clone();
    args.extend(Demands { snapshot, ..Demands::default() }.to_args());
    args
}

/// Returns the flags of a run. The delete limit is left out if the run deletes nothing, because `volferry` rejects
/// flags without effect.
fn asked(params: &RunParams) -> Vec<String> {
    let delete_limit = if params.delete { params.delete_limit } else { DeleteLimit::default() };
    RunParams { delete_limit, ..params.clone() }.to_args()
}

fn end_args(command: &str, path: &str, end: &EndArgs, own: Vec<String>, asked: Vec<String>) -> Vec<String> {
    let Folder { volume, path: below } = &end.folder;
    let mut args = vec![command.to_string(), volume.clone()];
    // Never joined with the volume: `volferry` follows no symbolic link on the way to this folder. Such a link, placed
    // by anybody with write access to the volume, could lead into the rest of the pod.
    if below != "/" {
        args.push(format!("{path}={below}"));
    }
    args.extend(own);
    args.push(format!("--exchange={}", end.job));
    args.push(format!("--report={}", end.report));
    args.push("--progress=json".into());
    args.extend(asked);
    args
}

#[cfg(test)]
mod tests {
    use contract::SnapshotParams;

    use super::*;

    fn end() -> EndArgs {
        EndArgs { folder: folder("/"), job: "j".into(), report: "/r".into() }
    }

    fn folder(path: &str) -> Folder {
        Folder { volume: "/volume".into(), path: path.into() }
    }

    #[test]
    fn a_folder_is_told_apart_from_its_volume() {
        let end = EndArgs { folder: folder("/a b"), ..end() };
        let source = source_args(&end, 1, &RunParams::default());
        assert_eq!(source[..3], ["send", "/volume", "--source-path=/a b"]);
        let sink = sink_args(&end, &RunParams::default());
        assert_eq!(sink[..3], ["receive", "/volume", "--destination-path=/a b"]);
    }

    #[test]
    fn a_process_that_is_both_ends_is_told_nothing_of_a_network() {
        let params = RunParams {
            run: "web-1".into(),
            delete: true,
            compression: contract::Compression::Level(9),
            ..RunParams::default()
        };
        assert_eq!(
            local_args(&folder("/"), &folder("/b"), "/r", &params).join(" "),
            "sync /volume /volume --destination-path=/b --report=/r --progress=json --run=web-1 --delete"
        );
    }

    #[test]
    fn only_the_end_at_the_destination_is_asked_for_a_snapshot() {
        let snapshot = Some(SnapshotParams { job: "web".into(), ..SnapshotParams::default() });
        let params =
            RunParams { demands: Demands { snapshot, ..Demands::default() }, ..RunParams::default() };
        let flag = |args: Vec<String>| args.iter().any(|arg| arg == "--snapshot");
        assert!(!flag(source_args(&end(), 1, &params)));
        assert!(flag(sink_args(&end(), &params)));
        assert!(flag(local_args(&folder("/"), &folder("/b"), "/r", &params)));
    }

    #[test]
    fn both_ends_make_their_keys_and_are_told_of_each_other() {
        let params = RunParams { run: "web-1".into(), delete: true, ..RunParams::default() };
        assert_eq!(
            source_args(&end(), 60, &params).join(" "),
            "send /volume --connect-timeout=60 --exchange=j --report=/r --progress=json --run=web-1 --delete"
        );
        assert_eq!(
            sink_args(&end(), &params).join(" "),
            "receive /volume --once --exchange=j --report=/r --progress=json --run=web-1 --delete-limit=50"
        );
        assert_eq!(listen_arg(([127, 0, 0, 1], 0).into()), "--listen=127.0.0.1:0");
    }
}
