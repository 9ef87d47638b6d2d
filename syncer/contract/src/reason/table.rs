//! The table of all reasons.

use crate::exit::ExitCode;

/// What the programs and a person have to know of a reason.
pub(super) struct About {
    pub(super) word: &'static str,
    pub(super) meaning: &'static str,
    pub(super) exit: ExitCode,
    pub(super) is_final: bool,
    pub(super) next: &'static str,
    pub(super) hint: &'static str,
}

/// Makes the type of reasons of a table. A row has the meaning, the word, the exit code if it is not `Failed`, `once`
/// if another try would end the same, what to do `next` for the runbook, and a `hint` for the command line.
macro_rules! reasons {
    ($(
        $(#[doc = $meaning:literal])+
        $word:ident $(($exit:ident $(, $once:ident)?))? $(next $next:literal)? $(hint $hint:literal)?;
    )+) => {
        /// A word by which programs say why a run or a SyncJob is as it is. Kubernetes' own words, which messages
        /// quote, are not among them.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $word,)+
            /// A word that this program does not know, such as that of a newer peer.
            Other(String),
        }

        impl Reason {
            /// All reasons that this program knows, by their words.
            pub const ALL: &[Self] = &[$(Self::$word),+];

            pub(super) fn about(&self) -> Option<&'static About> {
                Some(match self {
                    $(Self::$word => const { &About {
                        word: stringify!($word),
                        meaning: concat!($($meaning),+).trim_ascii_start(),
                        exit: [$(ExitCode::$exit,)? ExitCode::Failed][0],
                        is_final: !concat!("" $($(, stringify!($once))?)?).is_empty(),
                        next: concat!("" $(, $next)?),
                        hint: concat!("" $(, $hint)?),
                    } },)+
                    Self::Other(_) => return None,
                })
            }
        }
    };
}

reasons! {
    /// The Service of a SyncEndpoint has no address yet, most often because its load balancer is still being made, or
    /// because the cluster has none.
    AddressPending
        next "Wait. If it lasts, write `service.type: NodePort`, or `service.hostName` with the name by which peers \
              reach it.";
    /// The address to listen on or to dial cannot be used.
    AddressUnusable
        next "Check the address and the port, and that no other program listens there."
        hint "see that host and port are right, and that no other program listens at this one";
    /// Runs take as long as usual again.
    AsUsual;
    /// The folder for replaced and deleted files cannot be used: it belongs to another user, is a link, or overlaps the
    /// source or the destination.
    BackupDirUnusable
        next "Name a new folder, or one of the run's own user that is apart from both trees."
        hint "name a new folder, or one of this user; a relative one is made below DST";
    /// A benchmark could not be completed.
    BenchFailed next "Its message names the step. The folders that it made are removed by the next one.";
    /// The volumes of the SyncJob cannot be measured, for example because they are devices or a claim is missing.
    BenchmarkRefused next "Correct what the message names, and start the benchmark again.";
    /// The kinds of the two volumes and the fields of the spec do not go together, for example a device and
    /// `files.exclude`.
    BlockVolume next "Remove the fields that the message names, or use a claim of the other kind.";
    /// The run was stopped on request: by a person, a deleted SyncRun, a drained node or a changed spec.
    Canceled
        next "Nothing is lost. The next run continues with what has arrived."
        hint "the next run continues where this one stopped";
    /// The storage cannot capture the source at one instant (`source.pointInTime`), or did not in time.
    CaptureFailed
        next "Follow the message: install the snapshot controller, name another class, or raise \
              `source.pointInTime.timeout`.";
    /// The storage captures the source at one instant, before the pods of the run start.
    Capturing;
    /// The API server refused an object of the run, such as a Job: most often a quota, an admission policy or
    /// PodSecurity.
    ChildRefused(Failed, once)
        next "Change the policy, the quota or `spec.pods` as the message says. The run goes on by itself.";
    /// The destination's claim is being expanded.
    ClaimGrows next "Wait. If it takes long, look at the events of the claim and at the storage's resizer.";
    /// The volume of a claim is gone, with what was on it.
    ClaimLost
        next "Bring the volume back, or delete the claim and create a new one. A destination is then copied anew.";
    /// A claim has no volume, so no pod can mount it.
    ClaimNotBound next "`kubectl describe pvc` names the cause, for example a storage class that does not exist.";
    /// A claim of the spec does not exist.
    ClaimNotFound next "Create it, correct its name in the spec, or let `destination.create` make the destination's.";
    /// A claim of the access mode ReadWriteOncePod cannot be used as the spec says, for example by several shards.
    ClaimNotShareable next "Use another access mode, or set `parallelism` to 1.";
    /// A claim is being deleted.
    ClaimTerminating next "Create a new one when it is gone. The run then begins by itself.";
    /// The destination's claim is smaller than the spec asks for, and its storage class cannot expand it.
    ClaimTooSmall next "Expand it by hand, name a class that expands, or lower `destination.create.size`.";
    /// Files arrived, and the destination's file system failed to write them to the disk.
    CommitFailed next "Check the disk and its driver. The next run compares by content what is in doubt.";
    /// The destination's claim is gone or is another one than the last run wrote to.
    CopyGone next "The next run makes a new copy. If the claim was replaced by mistake, suspend the SyncJob first.";
    /// The run would delete more entries than the limit allows, so it changed nothing.
    DeleteLimitExceeded(Guard)
        next "Check that the source is complete. If the deletes are meant, raise `files.deleteLimit`, or \
              `--delete-limit` on the command line."
        hint "raise --delete-limit or --max-delete at the end that sets it; --force overrides the limit of the \
              source's end";
    /// Another run or program writes to the destination.
    DestinationBusy
        next "Wait for it. On the command line, start again when it is over."
        hint "wait until the other run is over, and run again";
    /// The folder of the destination does not exist.
    DestinationMissing
        next "Make it, or correct its path. Of a path on the command line only the last name is made."
        hint "make it first, or name another folder: only the last name of DST is made";
    /// Another run took the destination over while this one was writing, so this one stopped.
    DestinationTakenOver next "Let only one job write to the destination. The next run repairs what is left.";
    /// The destination's device is smaller than the source.
    DestinationTooSmall next "Use a larger claim.";
    /// The destination cannot be opened or written to.
    DestinationUnusable
        next "Its message names the path and the error: permissions, a read-only mount, or a full or failing file \
              system."
        hint "see that DST is mounted and that this user may write to it; `volferry doctor SRC DST` looks for more";
    /// The source's device cannot be opened or read.
    DeviceUnreadable
        next "The pod's user needs access to the device: see the page on block volumes in `operator/doc/api.md`."
        hint "see that the device is attached, and that this user may read it";
    /// The run failed, and its report names no other reason.
    Failed next "Read the message, and the log by `kubectl volferry logs`.";
    /// The copy lacks files that could not be read, listed, written or deleted.
    FilesLeftOut next "The message names the first. Make them readable, or exclude them by `files.exclude`.";
    /// A guard refused the run before anything changed, and its report was lost.
    GuardRefused(Guard) next "Read the log of the sink's pod by `kubectl volferry logs --end sink`.";
    /// The files arrived, and the snapshots of the source could not be copied, or no more of them.
    HistoryFailed(Partial, once)
        next "Its message says why. What was copied stays, and the next run goes on. Missing room is the most \
              frequent cause: with `Kept`, fewer snapshots are copied.";
    /// The files arrived, and some snapshots of the source could not be copied, most often because they are damaged
    /// there.
    HistoryNotWhole(Partial, once)
        next "`volferry snapshot verify` at the source names what is damaged, and heals what has a good copy.";
    /// A command of `spec.hooks` failed or took too long.
    HookFailed next "The message has the end of what it printed. Correct the command, or set `onFailure: Continue`.";
    /// ssh does not know the far end's host key, or it has another one than the last time.
    HostKeyRefused(Identity)
        next "Compare the key with that of the machine. `ssh HOST` once by hand records a new one."
        hint "`ssh HOST` once by hand shows and records the key of a machine that is new here; `ssh-keygen -R HOST` forgets \
              one that has changed";
    /// The identity file is that of the other end.
    IdentityOfOtherSide(Identity) next "Use the file that `volferry keygen` wrote for this end.";
    /// The peer showed another key than the one that this end accepts, so nothing was read.
    IdentityRefused(Identity)
        next "Make a new pair of identity files for both ends. With an endpoint, correct `endpoint.publicKey`: the \
              other side has it in `status.publicKey`. Between two pods, look for one that takes the place of an end."
        hint "both ends need files of one `volferry keygen`; `volferry enroll HOST` notes the new key of a service";
    /// The identity file is missing, damaged, or readable for others.
    IdentityUnusable(Identity)
        next "`volferry keygen --out DIR` makes the files of both ends. Give each mode 0600."
        hint "`volferry keygen --out DIR` makes the files of both ends";
    /// A node cannot pull the syncer's image.
    ImagePullFailed next "Check the image's name in the chart, the registry, and `pods.imagePullSecrets`.";
    /// An annotation of the namespace or SyncJob has a value that means nothing.
    InvalidAnnotation next "Write one of the values that the message names.";
    /// A path of `--files-from` is not one below the source.
    InvalidPath(Usage)
        next "Write paths relative to the source, without `..`."
        hint "paths of the list are relative to SRC, without `..`";
    /// A pattern of an include or exclude cannot be read or can match nothing.
    InvalidPattern(Usage)
        next "Correct it as the message says."
        hint "patterns are those of .gitignore, below SRC: `sub/` or `/sub/`, and `\\[` for a bracket";
    /// The spec cannot be run, or this operator cannot read it.
    InvalidSpec next "The message names the field. Correct it, or upgrade the operator if a newer one wrote it.";
    /// The template or the selector of a SyncJobSet cannot be used, for all claims or for the one that the message
    /// names.
    InvalidTemplate
        next "The message names the field, and what to write instead. What the set has made before stays as it is.";
    /// Somebody deleted a Job of the run while it ran.
    JobDeleted next "Nothing is lost. The run is tried again.";
    /// The SyncRun names a SyncJob that does not exist.
    JobNotFound next "Create the SyncJob, or delete the SyncRun.";
    /// A SyncJob of the SyncJobSet cannot go on until a person acts.
    JobStalled next "`status.worst` names the one to look at first, and its message says what to do.";
    /// SyncJobs of the SyncJobSet have runs that are due or under way.
    JobsNotReady next "Wait.";
    /// Each claim that matches has its SyncJob, and all of these are ready.
    JobsReady;
    /// An update in place was interrupted, and its journal cannot be used.
    JournalUnusable
        next "The message names the file and the entry. Remove both, and the next run makes the file anew.";
    /// The other end has the right key and does not accept the one of this end, so nothing was read or written.
    KeyNotAccepted(Identity)
        next "Have the owner of the other end list this end's public key: in `peers` of a SyncEndpoint, or by \
              `volferry enroll`. A SyncJob has it in `status.identity.publicKey`, and goes on by itself once the key \
              is listed."
        hint "`volferry enroll HOST` makes this user known to a service; both ends of a pair need files of one \
              `volferry keygen`";
    /// The pod of a SyncJob with an endpoint could not keep the key that it made, or the Secret with the key is gone.
    KeyNotStored
        next "The next try makes a new key, whose public half the other side has to list. If it repeats, a quota or \
              an admission policy keeps the pod from creating a Secret.";
    /// One end is a folder and the other a device or a single file.
    KindMismatch(Usage) next "Name two of a kind.";
    /// A SyncJob that the SyncJobSet would make is there already, and is not its own. It is left as it is.
    NameTaken next "Delete that SyncJob, or write another name in `spec.template.metadata.name`.";
    /// A claim of the SyncJob is of a namespace that the operator does not watch.
    NamespaceNotWatched
        next "Add the namespace to the chart's `watchNamespaces`, or let one operator watch all namespaces.";
    /// No claim of the namespace has the labels that the SyncJobSet selects.
    NoClaimMatches
        next "If claims should match, compare their labels with `spec.claimSelector`: `kubectl get pvc --show-labels`.";
    /// No run has made a copy yet.
    NoCopyYet next "Wait for the first run.";
    /// The far end has no `volferry` in its path.
    NoRemoteProgram
        next "Install it there, name it by `--remote-program`, or let `--bootstrap` copy this one."
        hint "install volferry there, name it with --remote-program, or let --bootstrap copy this program";
    /// The two folders of a bench have no room for the tree that it makes and copies.
    NoRoom next "Make room, or choose a smaller `--tree`.";
    /// No run has written to the destination yet, and this one would delete what is in it.
    NotAdopted(Guard)
        next "Name another folder, or leave `--delete` out. `--adopt` deletes what the message names, together with \
              `--delete-limit` where that is more than half of the folder."
        hint "see that DST is the folder itself: its entries become those of SRC";
    /// A peer asked a service for a folder that it may not use in this way, or that the service does not have.
    NotAllowed(Identity)
        next "Give the peer the right in the configuration of the service, or in its line of the file of authorized \
              keys."
        hint "the owner of the service gives such a right in its configuration, or in the file of authorized keys";
    /// The run needs more room than the destination has, so it changed nothing.
    NotEnoughSpace(Guard)
        next "Make room, expand the claim, or let deletes come first (`files.deleteTiming: Before`)."
        hint "a run makes room first with --delete=before, and tries all the same with --force; a restore in place \
              does neither";
    /// A claim that names a SyncJob as its source was bound before the populator filled it, so its volume may be empty.
    NotFilled next "Make it anew with the storage class of a CSI driver, or restore into it with a SyncJob.";
    /// A flag or field is for files and does not go with a device.
    NotForDevices(Usage) next "Remove it.";
    /// A flag or field is for folders and does not go with a single file.
    NotForFiles(Usage) next "Remove it.";
    /// A claim of the SyncJob is of another namespace, which does not consent to its use, or does not any more.
    NotGranted
        next "Ask whoever may create SyncGrants there: the message has the manifest. The run goes on by itself.";
    /// An exclude of everything leaves the includes no way to match.
    NothingIncluded(Usage)
        next "Include the folders above as well, or leave that exclude out."
        hint "with --include, only its matches are synced, so leave that --exclude out, and `*/`, which matches whole \
              folders; --filter takes rsync's rules: '+ */', '+ *.jpg', '- *'";
    /// The object storage does not answer, or not in time.
    ObjectStoreLost(PeerLost)
        next "Nothing is lost, and the run is tried again: what has arrived is not sent again. If it lasts, look at the \
              network between the node and the store.";
    /// The object storage refuses the run: there is no such bucket, the credentials or the key are wrong or missing, or
    /// its place has objects of something else.
    ObjectStoreUnusable(Failed, once)
        next "Correct what the message names: the entries of the Secret, or `destination.objectStore.url`. Then ask for \
              a run by `spec.trigger`.";
    /// The destination is another volume than the last run wrote to, so nothing was changed.
    OtherDestination(Guard)
        next "If it is meant, accept it as the message says. If not, mount the right volume."
        hint "give --expect-volume the id of this destination, or leave it out";
    /// The destination holds a file of another name, which the run would replace.
    OtherFile(Guard)
        next "Name a folder as the destination. If it is meant, let one run pass the guards: `kubectl volferry run-now JOB \
              --force`, or `--force` on the command line."
        hint "a folder as DST keeps the name; --force replaces the file all the same";
    /// The peer is an end of another job.
    OtherJob(Identity) next "Give both ends the identity files of one pair.";
    /// The run would delete a folder that is another job's destination, or replace the snapshots of another volume.
    OtherJobsDestination(Guard)
        next "Exclude that folder."
        hint "leave the folder out with --exclude; --force overrides this guard";
    /// The copy has other owners than the source, because the syncer may not set them.
    OtherOwners
        next "To keep owners, let syncers of the namespace run as root: annotate it with \
              `volferry.dev/privileged-syncers: \"true\"`.";
    /// The two ends are of versions that do not understand each other.
    OtherProtocol
        next "Install the same version at both ends."
        hint "run the same version at both ends; `volferry sync --bootstrap` copies this one to the other machine";
    /// The source's claim or volume is another one than the one that the copy is of, so nothing was copied over the
    /// only copy.
    OtherSource(Guard)
        next "If its content is meant, accept it by the annotation that the message names. If not, restore the source \
              from the copy.";
    /// A syncer used more memory than its limit.
    OutOfMemory
        next "Raise `pods.resources.limits.memory`. Memory follows the number of files: see `syncer/doc/design.md`.";
    /// Owners have to be kept, and the process may not set them.
    OwnershipNotPermitted next "Run as root, or set `preserve.ownership` to Auto.";
    /// Some files could not be synced, and the report with their names was lost.
    PartiallyFailed next "Read the log by `kubectl volferry logs`.";
    /// The other end did not answer, or the link was cut.
    PeerLost(PeerLost)
        next "The run is tried again and continues with what has arrived. If it repeats, look at the other end's pod, \
              and at network policies for UDP."
        hint "the next run continues with what has arrived; if none gets through, see that UDP or TCP is open, and \
              leave --link out";
    /// The two ends do not meet: the other one's pod never showed its contact, or cannot be reached.
    PeerNotMet next "Look at that pod, and whether a NetworkPolicy keeps the two from each other (UDP and TCP 8900), or from \
              the API server. A run whose pods still run goes on once they meet; one that has ended is tried again.";
    /// Runs take as long as usual again.
    PerformanceRecovered;
    /// Runs take longer than usual by more than `spec.regression` allows.
    PerformanceRegressed next "The message names the phase that has grown most, and the bottleneck.";
    /// A syncer's pod was deleted before it had ended.
    PodDeleted next "Nothing is lost. The run is tried again.";
    /// A syncer's pod was removed from its node by a drain, a preemption or a taint.
    PodDisrupted next "Nothing is lost. The run is tried again.";
    /// A syncer's pod failed before it reported.
    PodFailed next "The message has what the kubelet said. See `kubectl volferry logs`.";
    /// A syncer's pod is gone, and nobody saw how it ended.
    PodLost next "The run is tried again.";
    /// A syncer's pod cannot start.
    PodPending
        next "The message has the scheduler's or the kubelet's reason: a claim on another node, resources, taints, or \
              a volume that cannot be mounted. While others wait for their turn, the run gives its place up after 10 \
              minutes, and takes one again later.";
    /// A claim came up filled with the copy of the SyncJob that it names as its source.
    Populated;
    /// The run is being prepared.
    Preparing;
    /// The other end sent what no end may send, so the link was closed.
    ProtocolViolation(PeerLost)
        next "Use one version at both ends. If it repeats between them, treat the other end as hostile."
        hint "run the same version at both ends";
    /// Too many peers wait for a folder of a service.
    QueueFull next "Try again later, or raise the folder's `queue`.";
    /// The run waits for its turn: limits on runs, or another run, are ahead of it.
    Queued next "Wait, or raise `queue.maxRuns` of the chart.";
    /// This program could not be copied to the far end.
    RemoteCopyFailed
        next "The message has what ssh said: most often room or permissions in the far end's cache folder."
        hint "install volferry there, and name it with --remote-program";
    /// The copy of this program does not run at the far end, whose system or architecture differs.
    RemoteCopyUnusable
        next "Install the right build there and name it by `--remote-program`."
        hint "a static program of `make dist` runs on any Linux; see that HOME is not mounted noexec";
    /// The program at the far end ended before the run did.
    RemoteEnded(PeerLost)
        next "What it wrote is above the error. Run it by hand over ssh to see more."
        hint "`ssh HOST true` has to work; -e gives ssh flags, such as -e 'ssh -p 2222'";
    /// The command that takes the place of ssh did not get through to the other machine or pod.
    RemoteShellFailed(PeerLost)
        next "Its own words are in the message. It has to run a command there, as `ssh HOST COMMAND` does."
        hint "see what it said; it has to run a command at HOST, as ssh does";
    /// The remote shell cannot be started.
    RemoteShellMissing
        next "Install ssh, or name another one by `--rsh`."
        hint "install ssh, or name another command with --rsh";
    /// The run was stopped, because a newer one took its place (`concurrencyPolicy: Replace`).
    Replaced;
    /// A restore brought the destination back to a snapshot, and holds back all runs that no person asks for.
    RestoredInPlace next "`kubectl volferry resume` lets the schedule go on.";
    /// The snapshot was taken, and old ones could not be dropped.
    RetentionFailed(Partial) next "The message names the cause. The next run tries again.";
    /// A try failed, and another follows.
    Retrying next "Wait. The message has the cause of the failure.";
    /// The spec needs syncers that run as root, and the namespace does not allow it.
    RootNotAllowed
        next "Annotate the namespace with `volferry.dev/privileged-syncers: \"true\"`, or change the field that the \
              message names.";
    /// A pattern is in rsync's form, which means something else here.
    RsyncPattern(Usage)
        next "Leave the first two characters out, and write it under `--include` or `--exclude`."
        hint "--exclude and --include say which: leave the first two characters out";
    /// The SyncRun was deleted, so its run was stopped.
    RunDeleted;
    /// No snapshot was taken, because the run left files out.
    RunNotWhole next "See why files were left out.";
    /// The run is under way.
    Running;
    /// Source and destination contain one another.
    SameTree next "Name two trees that are apart.";
    /// The next run waits for its time.
    Scheduled;
    /// The pod of a SyncEndpoint serves the peers that its spec names.
    Serving;
    /// Another shard of the run ended early, so this one stopped.
    ShardLost(PeerLost) next "See the other shard's reason. The run is tried again.";
    /// A backup folder does not go with shards.
    ShardedBackup(Usage) next "Remove one of them.";
    /// Snapshots do not go with shards.
    ShardedSnapshot(Usage) next "Set `parallelism` to 1, or leave `snapshots` out.";
    /// Runs take longer than usual.
    Slower next "The message names the phase that has grown most.";
    /// The files are synced, and the snapshot failed.
    SnapshotFailed(Partial) next "The message names the cause, most often room. The run is tried again.";
    /// The snapshot was taken, and some of its files were being written all the while, so each has the last whole read.
    SnapshotInMotion(Partial)
        next "The message names the first. Quiesce the application by `spec.hooks`, or copy from a source that stands \
              still.";
    /// There is no such snapshot on the volume.
    SnapshotNotFound(Failed, once)
        next "`kubectl volferry snapshots` and `volferry snapshot list` show those that there are."
        hint "`volferry snapshot list DIR` shows those that there are";
    /// The snapshot lacks files.
    SnapshotNotWhole(Partial) next "The message names the first.";
    /// The store of snapshots cannot be used.
    SnapshotUnusable
        next "The message names the file. `volferry snapshot verify` looks at all of it."
        hint "`volferry snapshot verify` names what is damaged; --keep-going takes all that is whole, and `snapshot \
              restore` has --path for a part";
    /// A check found damage in the snapshots that has no good copy.
    SnapshotsDamaged(Partial, once)
        next "Bring a good copy of the named files to the destination, or forget the snapshots that need them. In \
              object storage, the next run replaces what the source still has.";
    /// Snapshots of the SyncJob that no rule has dropped are not on the destination any more.
    SnapshotsGone
        next "Bring `.volferry/snapshots` back from a backup of the volume, if there is one, and find out who may \
              write there. Any change of the spec ends the condition.";
    /// Some files could not be synced; all others are as at the source.
    SomeFilesFailed(Partial) next "The message and `failures` name the first. Make them readable, or exclude them.";
    /// Another run writes to the source, which is itself a destination.
    SourceBusy
        next "Wait for it. The run is tried again."
        hint "wait until the other run is over, and run again";
    /// The source has no entry at all, so nothing was deleted.
    SourceEmpty(Guard)
        next "Check that the right volume is mounted. If the source is meant to be empty, let one run \
              pass the guards: `kubectl volferry run-now JOB --force`, or `--force` on the command line."
        hint "see what is mounted at SRC and DST; --force overrides this guard";
    /// The source is the destination of a run that was cut off in the middle of a file that it writes in place.
    SourceHalfWritten
        next "Run the job that writes to the source: it completes the file. This run is tried again."
        hint "run the command that writes to SRC once more: it completes the file";
    /// ssh could not connect or sign in.
    SshFailed(PeerLost)
        next "Its own words are above the error. `ssh HOST true` has to work without a question."
        hint "`ssh HOST true` has to work; -e gives ssh flags, such as -e 'ssh -p 2222'";
    /// The last run succeeded.
    Succeeded;
    /// `spec.suspend` holds back all runs.
    Suspended next "Set it to false, or use `kubectl volferry resume`.";
    /// A syncer failed without a report.
    SyncerFailed next "Read its log by `kubectl volferry logs`.";
    /// A syncer was killed by a signal.
    SyncerKilled next "Look at the node: memory, a drain, or a person.";
    /// A syncer did not accept its command line.
    SyncerUsage(Usage) next "Operator and syncer image are of different versions, most likely: use one.";
    /// The run took longer than `limits.timeout`.
    TimedOut next "Raise it, or find out what the run waits for: the message names the phase or the pod.";
    /// The tree cannot be opened or listed.
    TreeUnreadable
        next "The message names the folder and the error."
        hint "see that SRC is there and mounted, and that this user may read it";
    /// The check of the snapshots could not be completed.
    VerifyFailed(Partial) next "The message names the cause. The next run checks the same part.";
    /// The files are in step, but the storage took no VolumeSnapshot of the copy (`destination.volumeSnapshots`).
    VolumeSnapshotFailed
        next "Follow the message: install the snapshot controller, name another class, or raise \
              `destination.volumeSnapshots.timeout`.";
    /// The endpoint serves other runs first.
    WaitingForEndpoint next "Wait. The message has the place among those that wait.";
    /// Another run uses a claim of this one.
    WaitingForRun next "Wait. The message names it.";
    /// The source is an older copy of newer files at the destination, so nothing was changed.
    WrongDirection(Guard)
        next "Check which end is the source. If it is meant, let one run pass the guards: `kubectl volferry run-now JOB \
              --force`, or `--force` on the command line."
        hint "see what is mounted at SRC and DST; --force overrides this guard";
}
