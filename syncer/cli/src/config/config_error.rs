//! The reasons why a parsed command line cannot be carried out.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::several_sources::SeveralError;
use crate::{
    changed_list::ChangedListError, filter_files::FilterFileError, path_list::PathListError,
    pattern_file::PatternFileError, remote::place::PlaceError,
};

/// The reasons why a parsed command line cannot be carried out; the message says what to write instead.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error(
        "neither --listen nor --connect: give one of them; one end waits with --listen, and the other dials it with --connect"
    )]
    NoEndpoint,
    #[error(
        "no --identity: name this end's file, as `volferry keygen` wrote it: `source` to send, `sink` to receive"
    )]
    NoIdentity,
    #[error(
        "{0} without --end: both volumes are on this machine, so leave it out, or add --end source or --end sink"
    )]
    LinkOfNoEnd(&'static str),
    #[error("--identity more than once with --connect: an end that dials has one peer, so keep one of them")]
    IdentitiesOfDialler,
    #[error("both --listen and --connect: keep one here, and give the other to the other end")]
    TwoEndpoints,
    #[error("--bandwidth-limit 0 would never move anything: leave it out for no limit")]
    NoBandwidth,
    #[error(
        "--connect-timeout with --listen: an end that listens waits until it is told to stop, so leave it out"
    )]
    TimeoutOfListener,
    #[error("--delete-limit without --delete: nothing would be removed, so leave it out")]
    LimitOfNoDelete,
    #[error("--chown with --ownership never: owners would not be kept, so leave one of them out")]
    OwnerNotKept,
    #[error("--existing with --ignore-existing: nothing would be made or changed, so leave one of them out")]
    NothingToDo,
    #[error("--min-size is above --max-size, so no file would be synced: change one of them")]
    NoSize,
    #[error(
        "--shard without --run: give all shards of one run the same name with --run, and each run another"
    )]
    ShardOfNoRun,
    #[error(
        "--snapshot with --shard: a run of several shards cannot take a snapshot, so leave one of them out"
    )]
    ShardedSnapshot,
    #[error(
        "--backup-dir with --shard: a run of several shards cannot keep old versions, so leave one of them out"
    )]
    ShardedBackup,
    #[error(
        "--remove-source-files with --shard: one of several shards cannot know what all have copied, so leave one of them out"
    )]
    ShardedMove,
    #[error("{0} with --source-snapshot: all of the snapshot is copied, so leave {0} out")]
    NotForSnapshots(&'static str),
    #[error(
        "{0} with s3://BUCKET/PREFIX: no run into object storage does that, so leave it out; nothing was done"
    )]
    NotForBucket(String),
    #[error("--key-file without s3://BUCKET/PREFIX: nothing else is encrypted by it, so leave it out")]
    KeyOfNoBucket,
    #[error(transparent)]
    Bucket(#[from] bucket::BucketError),
    #[error("{0} with --history: snapshots are copied as a whole, so leave one of them out")]
    NotForHistory(&'static str),
    #[error(
        "--report {path}: the folder {folder} is not there: make it first, or choose another",
        path = .path.display(), folder = .folder.display()
    )]
    ReportFolder { path: PathBuf, folder: PathBuf },
    #[error(
        "--report {path}: this user may not write to the folder {folder}: choose another",
        path = .path.display(), folder = .folder.display()
    )]
    ReportFolderClosed { path: PathBuf, folder: PathBuf },
    #[error(
        "{} names another machine, and here only folders of this one can be named\nhint: `volferry sync SRC HOST:DST` \
         starts the other end by ssh; write ./ before the name of a folder with a colon", .0.display()
    )]
    OtherMachine(PathBuf),
    #[error(
        "--identity and --service-key are for a folder of a service, such as HOST::FOLDER: leave them out"
    )]
    KeyOfNoService,
    #[error("{0} with a folder of a service: {1}")]
    NotForService(&'static str, &'static str),
    #[error("both SRC and DST are on other machines: run this on one of them")]
    BothRemote,
    #[error("{0} without a place on another machine, such as HOST:PATH: leave it out")]
    RemoteFlagHere(&'static str),
    #[error("{0} with a place on another machine: it is for two folders of one machine, so leave it out")]
    NotForRemote(&'static str),
    #[error("{0} with a source on another machine: run this there, where the device is")]
    NotForRemoteSource(&'static str),
    #[error("--rsh names no command: write one, such as --rsh 'ssh -p 2222', or leave it out")]
    NoShell,
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(
        "--report - with --progress json: the last line on standard output is the report, so leave --report out"
    )]
    ReportTwice,
    #[error(transparent)]
    PatternFile(#[from] PatternFileError),
    #[error(transparent)]
    FilterFile(#[from] FilterFileError),
    #[error(transparent)]
    PathList(#[from] PathListError),
    #[error(transparent)]
    ChangedList(#[from] ChangedListError),
    #[error(transparent)]
    Several(#[from] SeveralError),
    #[error(
        "--log-file {path}: it cannot be written: {source}\nhint: make its folder first, or choose another",
        path = .path.display()
    )]
    LogFile { path: PathBuf, source: io::Error },
    #[error("two lists are to be read from standard input: give one of them a file of its own")]
    InputTwice,
    #[error("--report {path}: it is a folder: name a file", path = .0.display())]
    ReportIsFolder(PathBuf),
}
