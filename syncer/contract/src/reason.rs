//! The reasons of runs and conditions, with what a person has to know of each: the pages of the runbook are made of
//! them.

/// A word by which programs tell why a run or a SyncJob is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The word, as in a report or a condition.
    pub name: &'static str,
    /// What has happened.
    pub meaning: &'static str,
    /// What to do; empty if nothing has to be done.
    pub next: &'static str,
}

const fn reason(name: &'static str, meaning: &'static str, next: &'static str) -> Reason {
    Reason { name, meaning, next }
}

/// Returns the reason of that name.
pub fn find(name: &str) -> Option<&'static Reason> {
    REASONS.binary_search_by_key(&name, |reason| reason.name).ok().map(|at| &REASONS[at])
}

/// The reason of a run whose peer does not know this end's key.
pub const KEY_NOT_ACCEPTED: &str = "KeyNotAccepted";

/// The reason of a run that too many others wait in front of, at a service.
pub const QUEUE_FULL: &str = "QueueFull";

/// All reasons, by their names. Kubernetes' own reasons, which messages quote, are not among them.
pub const REASONS: &[Reason] = &[
    reason(
        "AddressPending",
        "The Service of a SyncEndpoint has no address yet, most often because its load balancer is still being made, or because the cluster has none.",
        "Wait. If it lasts, write `service.type: NodePort`, or `service.hostName` with the name by which peers reach it.",
    ),
    reason(
        "AddressUnusable",
        "The address to listen on or to dial cannot be used.",
        "Check the address and the port, and that no other program listens there.",
    ),
    reason("AsUsual", "Runs take as long as usual again.", ""),
    reason(
        "BackupDirUnusable",
        "The folder for replaced and deleted files cannot be used: it belongs to another user, is a link, or overlaps the source or the destination.",
        "Name a new folder, or one of the run's own user that is apart from both trees.",
    ),
    reason(
        "BenchFailed",
        "A benchmark could not be completed.",
        "Its message names the step. The folders that it made are removed by the next one.",
    ),
    reason(
        "BenchmarkRefused",
        "The volumes of the SyncJob cannot be measured, for example because they are devices or a claim is missing.",
        "Correct what the message names, and start the benchmark again.",
    ),
    reason(
        "BlockVolume",
        "The kinds of the two volumes and the fields of the spec do not go together, for example a device and `files.exclude`.",
        "Remove the fields that the message names, or use a claim of the other kind.",
    ),
    reason(
        "Canceled",
        "The run was stopped on request: by a person, a deleted SyncRun, a drained node or a changed spec.",
        "Nothing is lost. The next run continues with what has arrived.",
    ),
    reason(
        "CaptureFailed",
        "The storage cannot capture the source at one instant (`source.pointInTime`), or did not in time.",
        "Follow the message: install the snapshot controller, name another class, or raise `source.pointInTime.timeout`.",
    ),
    reason(
        "Capturing",
        "The storage captures the source at one instant, before the pods of the run start.",
        "",
    ),
    reason(
        "ChildRefused",
        "The API server refused an object of the run, such as a Job: most often a quota, an admission policy or PodSecurity.",
        "Change the policy, the quota or `spec.pods` as the message says. The run goes on by itself.",
    ),
    reason(
        "ClaimGrows",
        "The destination's claim is being expanded.",
        "Wait. If it takes long, look at the events of the claim and at the storage's resizer.",
    ),
    reason(
        "ClaimLost",
        "The volume of a claim is gone, with what was on it.",
        "Bring the volume back, or delete the claim and create a new one. A destination is then copied anew.",
    ),
    reason(
        "ClaimNotBound",
        "A claim has no volume, so no pod can mount it.",
        "`kubectl describe pvc` names the cause, for example a storage class that does not exist.",
    ),
    reason(
        "ClaimNotFound",
        "A claim of the spec does not exist.",
        "Create it, correct its name in the spec, or let `destination.create` make the destination's.",
    ),
    reason(
        "ClaimNotShareable",
        "A claim of the access mode ReadWriteOncePod cannot be used as the spec says, for example by several shards.",
        "Use another access mode, or set `parallelism` to 1.",
    ),
    reason(
        "ClaimTerminating",
        "A claim is being deleted.",
        "Create a new one when it is gone. The run then begins by itself.",
    ),
    reason(
        "ClaimTooSmall",
        "The destination's claim is smaller than the spec asks for, and its storage class cannot expand it.",
        "Expand it by hand, name a class that expands, or lower `destination.create.size`.",
    ),
    reason(
        "CommitFailed",
        "Files arrived, and the destination's file system failed to write them to the disk.",
        "Check the disk and its driver. The next run compares by content what is in doubt.",
    ),
    reason(
        "CopyGone",
        "The destination's claim is gone or is another one than the last run wrote to.",
        "The next run makes a new copy. If the claim was replaced by mistake, suspend the SyncJob first.",
    ),
    reason(
        "DeleteLimitExceeded",
        "The run would delete more entries than the limit allows, so it changed nothing.",
        "Check that the source is complete. If the deletes are meant, raise `files.deleteLimit`, or `--delete-limit` on the command line.",
    ),
    reason(
        "DestinationBusy",
        "Another run or program writes to the destination.",
        "Wait for it. On the command line, start again when it is over.",
    ),
    reason(
        "DestinationMissing",
        "The folder of the destination does not exist.",
        "Make it, or correct its path. Of a path on the command line only the last name is made.",
    ),
    reason(
        "DestinationTakenOver",
        "Another run took the destination over while this one was writing, so this one stopped.",
        "Let only one job write to the destination. The next run repairs what is left.",
    ),
    reason(
        "DestinationTooSmall",
        "The destination's device is smaller than the source.",
        "Use a larger claim.",
    ),
    reason(
        "DestinationUnusable",
        "The destination cannot be opened or written to.",
        "Its message names the path and the error: permissions, a read-only mount, or a full or failing file system.",
    ),
    reason(
        "DeviceUnreadable",
        "The source's device cannot be opened or read.",
        "The pod's user needs access to the device: see the page on block volumes in `operator/doc/api.md`.",
    ),
    reason(
        "Failed",
        "The run failed, and its report names no other reason.",
        "Read the message, and the log by `kubectl volferry logs`.",
    ),
    reason(
        "FilesLeftOut",
        "The copy lacks files that could not be read, listed, written or deleted.",
        "The message names the first. Make them readable, or exclude them by `files.exclude`.",
    ),
    reason(
        "GuardRefused",
        "A guard refused the run before anything changed, and its report was lost.",
        "Read the log of the sink's pod by `kubectl volferry logs --end sink`.",
    ),
    reason(
        "HistoryFailed",
        "The files arrived, and the snapshots of the source could not be copied, or no more of them.",
        "Its message says why. What was copied stays, and the next run goes on. \
         Missing room is the most frequent cause: with `Kept`, fewer snapshots are copied.",
    ),
    reason(
        "HistoryNotWhole",
        "The files arrived, and some snapshots of the source could not be copied, most often because they are damaged there.",
        "`volferry snapshot verify` at the source names what is damaged, and heals what has a good copy.",
    ),
    reason(
        "HookFailed",
        "A command of `spec.hooks` failed or took too long.",
        "The message has the end of what it printed. Correct the command, or set `onFailure: Continue`.",
    ),
    reason(
        "HostKeyRefused",
        "ssh does not know the far end's host key, or it has another one than the last time.",
        "Compare the key with that of the machine. `ssh HOST` once by hand records a new one.",
    ),
    reason(
        "IdentityOfOtherSide",
        "The identity file is that of the other end.",
        "Use the file that `volferry keygen` wrote for this end.",
    ),
    reason(
        "IdentityRefused",
        "The peer showed another key than the one that this end accepts, so nothing was read.",
        "Make a new pair of identity files for both ends. \
         With an endpoint, correct `endpoint.publicKey`: the other side has it in `status.publicKey`. Between two pods, look for one that takes the place of an end.",
    ),
    reason(
        "IdentityUnusable",
        "The identity file is missing, damaged, or readable for others.",
        "`volferry keygen --out DIR` makes the files of both ends. Give each mode 0600.",
    ),
    reason(
        "ImagePullFailed",
        "A node cannot pull the syncer's image.",
        "Check the image's name in the chart, the registry, and `pods.imagePullSecrets`.",
    ),
    reason(
        "InvalidAnnotation",
        "An annotation of the namespace or SyncJob has a value that means nothing.",
        "Write one of the values that the message names.",
    ),
    reason(
        "InvalidPath",
        "A path of `--files-from` is not one below the source.",
        "Write paths relative to the source, without `..`.",
    ),
    reason(
        "InvalidPattern",
        "A pattern of an include or exclude cannot be read or can match nothing.",
        "Correct it as the message says.",
    ),
    reason(
        "InvalidSpec",
        "The spec cannot be run, or this operator cannot read it.",
        "The message names the field. Correct it, or upgrade the operator if a newer one wrote it.",
    ),
    reason(
        "InvalidTemplate",
        "The template or the selector of a SyncJobSet cannot be used, for all claims or for the one that the message names.",
        "The message names the field, and what to write instead. What the set has made before stays as it is.",
    ),
    reason(
        "JobDeleted",
        "Somebody deleted a Job of the run while it ran.",
        "Nothing is lost. The run is tried again.",
    ),
    reason(
        "JobNotFound",
        "The SyncRun names a SyncJob that does not exist.",
        "Create the SyncJob, or delete the SyncRun.",
    ),
    reason(
        "JobStalled",
        "A SyncJob of the SyncJobSet cannot go on until a person acts.",
        "`status.worst` names the one to look at first, and its message says what to do.",
    ),
    reason("JobsNotReady", "SyncJobs of the SyncJobSet have runs that are due or under way.", "Wait."),
    reason("JobsReady", "Each claim that matches has its SyncJob, and all of these are ready.", ""),
    reason(
        "JournalUnusable",
        "An update in place was interrupted, and its journal cannot be used.",
        "The message names the file and the entry. Remove both, and the next run makes the file anew.",
    ),
    reason(
        KEY_NOT_ACCEPTED,
        "The other end has the right key and does not accept the one of this end, so nothing was read or written.",
        "Have the owner of the other end list this end's public key: \
         in `peers` of a SyncEndpoint, or by `volferry enroll`. A SyncJob has it in `status.identity.publicKey`, and goes on by itself once the key is listed.",
    ),
    reason(
        "KeyNotStored",
        "The pod of a SyncJob with an endpoint could not keep the key that it made, or the Secret with the key is gone.",
        "The next try makes a new key, whose public half the other side has to list. \
         If it repeats, a quota or an admission policy keeps the pod from creating a Secret.",
    ),
    reason(
        "KindMismatch",
        "One end is a folder and the other a device or a single file.",
        "Name two of a kind.",
    ),
    reason(
        "NameTaken",
        "A SyncJob that the SyncJobSet would make is there already, and is not its own. It is left as it is.",
        "Delete that SyncJob, or write another name in `spec.template.metadata.name`.",
    ),
    reason(
        "NamespaceNotWatched",
        "A claim of the SyncJob is of a namespace that the operator does not watch.",
        "Add the namespace to the chart's `watchNamespaces`, or let one operator watch all namespaces.",
    ),
    reason(
        "NoClaimMatches",
        "No claim of the namespace has the labels that the SyncJobSet selects.",
        "If claims should match, compare their labels with `spec.claimSelector`: `kubectl get pvc --show-labels`.",
    ),
    reason("NoCopyYet", "No run has made a copy yet.", "Wait for the first run."),
    reason(
        "NoRemoteProgram",
        "The far end has no `volferry` in its path.",
        "Install it there, name it by `--remote-program`, or let `--bootstrap` copy this one.",
    ),
    reason(
        "NotAdopted",
        "No run has written to the destination yet, and this one would delete what is in it.",
        "Name another folder, or leave `--delete` out. `--adopt` deletes what the message names.",
    ),
    reason(
        "NotAllowed",
        "A peer asked a service for a folder that it may not use in this way, or that the service does not have.",
        "Give the peer the right in the configuration of the service, or in its line of the file of authorized keys.",
    ),
    reason(
        "NotEnoughSpace",
        "The run needs more room than the destination has, so it changed nothing.",
        "Make room, expand the claim, or let deletes come first (`files.deleteTiming: Before`).",
    ),
    reason(
        "NotFilled",
        "A claim that names a SyncJob as its source was bound before the populator filled it, so its volume may be empty.",
        "Make it anew with the storage class of a CSI driver, or restore into it with a SyncJob.",
    ),
    reason("NotForDevices", "A flag or field is for files and does not go with a device.", "Remove it."),
    reason("NotForFiles", "A flag or field is for folders and does not go with a single file.", "Remove it."),
    reason(
        "NotGranted",
        "A claim of the SyncJob is of another namespace, which does not consent to its use, or does not any more.",
        "Ask whoever may create SyncGrants there: the message has the manifest. The run goes on by itself.",
    ),
    reason(
        "NothingIncluded",
        "An exclude of everything leaves the includes no way to match.",
        "Include the folders above as well, or leave that exclude out.",
    ),
    reason(
        "OtherDestination",
        "The destination is another volume than the last run wrote to, so nothing was changed.",
        "If it is meant, accept it as the message says. If not, mount the right volume.",
    ),
    reason(
        "OtherFile",
        "The destination holds a file of another name, which the run would replace.",
        "Name a folder as the destination, or force it.",
    ),
    reason(
        "OtherJob",
        "The peer is an end of another job.",
        "Give both ends the identity files of one pair.",
    ),
    reason(
        "OtherJobsDestination",
        "The run would delete a folder that is another job's destination.",
        "Exclude that folder.",
    ),
    reason(
        "OtherOwners",
        "The copy has other owners than the source, because the syncer may not set them.",
        "To keep owners, let syncers of the namespace run as root: annotate it with `volferry.dev/privileged-syncers: \"true\"`.",
    ),
    reason(
        "OtherProtocol",
        "The two ends are of versions that do not understand each other.",
        "Install the same version at both ends.",
    ),
    reason(
        "OtherSource",
        "The source's claim or volume is another one than the one that the copy is of, so nothing was copied over the only copy.",
        "If its content is meant, accept it by the annotation that the message names. If not, restore the source from the copy.",
    ),
    reason(
        "OutOfMemory",
        "A syncer used more memory than its limit.",
        "Raise `pods.resources.limits.memory`. Memory follows the number of files: see `syncer/doc/design.md`.",
    ),
    reason(
        "OwnershipNotPermitted",
        "Owners have to be kept, and the process may not set them.",
        "Run as root, or set `preserve.ownership` to Auto.",
    ),
    reason(
        "PartiallyFailed",
        "Some files could not be synced, and the report with their names was lost.",
        "Read the log by `kubectl volferry logs`.",
    ),
    reason(
        "PeerLost",
        "The other end did not answer, or the link was cut.",
        "The run is tried again and continues with what has arrived. If it repeats, look at the other end's pod, and at network policies for UDP.",
    ),
    reason(
        "PeerNotMet",
        "The other end's pod never showed its contact.",
        "Look at that pod. The run is tried again.",
    ),
    reason("PerformanceRecovered", "Runs take as long as usual again.", ""),
    reason(
        "PerformanceRegressed",
        "Runs take longer than usual by more than `spec.regression` allows.",
        "The message names the phase that has grown most, and the bottleneck.",
    ),
    reason(
        "PodDeleted",
        "A syncer's pod was deleted before it had ended.",
        "Nothing is lost. The run is tried again.",
    ),
    reason(
        "PodDisrupted",
        "A syncer's pod was removed from its node by a drain, a preemption or a taint.",
        "Nothing is lost. The run is tried again.",
    ),
    reason(
        "PodFailed",
        "A syncer's pod failed before it reported.",
        "The message has what the kubelet said. See `kubectl volferry logs`.",
    ),
    reason("PodLost", "A syncer's pod is gone, and nobody saw how it ended.", "The run is tried again."),
    reason(
        "PodPending",
        "A syncer's pod cannot start.",
        "The message has the scheduler's or the kubelet's reason: a claim on another node, resources, taints, or a volume that cannot be mounted.",
    ),
    reason(
        "Populated",
        "A claim came up filled with the copy of the SyncJob that it names as its source.",
        "",
    ),
    reason("Preparing", "The run is being prepared.", ""),
    reason(
        "ProtocolViolation",
        "The other end sent what no end may send, so the link was closed.",
        "Use one version at both ends. If it repeats between them, treat the other end as hostile.",
    ),
    reason(
        QUEUE_FULL,
        "Too many peers wait for a folder of a service.",
        "Try again later, or raise the folder's `queue`.",
    ),
    reason(
        "Queued",
        "The run waits for its turn: limits on runs, or another run, are ahead of it.",
        "Wait, or raise `queue.maxRuns` of the chart.",
    ),
    reason(
        "ReadFailed",
        "A file could not be read.",
        "The message names it. Check permissions and the disk.",
    ),
    reason(
        "RemoteCopyFailed",
        "This program could not be copied to the far end.",
        "The message has what ssh said: most often room or permissions in the far end's cache folder.",
    ),
    reason(
        "RemoteCopyUnusable",
        "The copy of this program does not run at the far end, whose system or architecture differs.",
        "Install the right build there and name it by `--remote-program`.",
    ),
    reason(
        "RemoteEnded",
        "The program at the far end ended before the run did.",
        "What it wrote is above the error. Run it by hand over ssh to see more.",
    ),
    reason(
        "RemoteShellFailed",
        "The command that takes the place of ssh did not get through to the other machine or pod.",
        "Its own words are in the message. It has to lead there as `ssh HOST COMMAND` does.",
    ),
    reason(
        "RemoteShellMissing",
        "The remote shell cannot be started.",
        "Install ssh, or name another one by `--rsh`.",
    ),
    reason(
        "Replaced",
        "The run was stopped, because a newer one took its place (`concurrencyPolicy: Replace`).",
        "",
    ),
    reason(
        "RestoredInPlace",
        "A restore brought the destination back to a snapshot, and holds back all runs that no person asks for.",
        "`kubectl volferry resume` lets the schedule go on.",
    ),
    reason(
        "RetentionFailed",
        "The snapshot was taken, and old ones could not be dropped.",
        "The message names the cause. The next run tries again.",
    ),
    reason(
        "Retrying",
        "A try failed, and another follows.",
        "Wait. The message has the cause of the failure.",
    ),
    reason(
        "RootNotAllowed",
        "The spec needs syncers that run as root, and the namespace does not allow it.",
        "Annotate the namespace with `volferry.dev/privileged-syncers: \"true\"`, or change the field that the message names.",
    ),
    reason(
        "RsyncPattern",
        "A pattern is in rsync's form, which means something else here.",
        "Leave the first two characters out, and write it under `--include` or `--exclude`.",
    ),
    reason("RunDeleted", "The SyncRun was deleted, so its run was stopped.", ""),
    reason(
        "RunNotWhole",
        "No snapshot was taken, because the run left files out.",
        "See why files were left out.",
    ),
    reason("Running", "The run is under way.", ""),
    reason("SameTree", "Source and destination contain one another.", "Name two trees that are apart."),
    reason("Scheduled", "The next run waits for its time.", ""),
    reason("Serving", "The pod of a SyncEndpoint serves the peers that its spec names.", ""),
    reason(
        "ShardLost",
        "Another shard of the run ended early, so this one stopped.",
        "See the other shard's reason. The run is tried again.",
    ),
    reason("ShardedBackup", "A backup folder does not go with shards.", "Remove one of them."),
    reason(
        "ShardedSnapshot",
        "Snapshots do not go with shards.",
        "Set `parallelism` to 1, or leave `snapshots` out.",
    ),
    reason("Slower", "Runs take longer than usual.", "The message names the phase that has grown most."),
    reason(
        "SnapshotFailed",
        "The files are synced, and the snapshot failed.",
        "The message names the cause, most often room. The run is tried again.",
    ),
    reason(
        "SnapshotInMotion",
        "The snapshot was taken, and some of its files were being written all the while, so each has the last whole read.",
        "The message names the first. Quiesce the application by `spec.hooks`, or copy from a source that stands still.",
    ),
    reason(
        "SnapshotNotFound",
        "There is no such snapshot on the volume.",
        "`kubectl volferry snapshots` and `volferry snapshot list` show those that there are.",
    ),
    reason("SnapshotNotWhole", "The snapshot lacks files.", "The message names the first."),
    reason(
        "SnapshotUnusable",
        "The store of snapshots cannot be used.",
        "The message names the file. `volferry snapshot verify` looks at all of it.",
    ),
    reason(
        "SnapshotsDamaged",
        "A check found damage in the snapshots that has no good copy.",
        "Bring a good copy of the named files to the destination, or forget the snapshots that need them.",
    ),
    reason(
        "SnapshotsGone",
        "Snapshots of the SyncJob that no rule has dropped are not on the destination any more.",
        "Bring `.volferry/snapshots` back from a backup of the volume, if there is one, and find out who may write there. Any \
         change of the spec ends the condition.",
    ),
    reason(
        "SomeFilesFailed",
        "Some files could not be synced; all others are as at the source.",
        "The message and `failures` name the first. Make them readable, or exclude them.",
    ),
    reason(
        "SourceBusy",
        "Another run writes to the source, which is itself a destination.",
        "Wait for it. The run is tried again.",
    ),
    reason(
        "SourceEmpty",
        "The source has no entry at all, so nothing was deleted.",
        "Check that the right volume is mounted. If the source is meant to be empty, set `files.deleteLimit` to 100 and force it once.",
    ),
    reason(
        "SshFailed",
        "ssh could not connect or sign in.",
        "Its own words are above the error. `ssh HOST true` has to work without a question.",
    ),
    reason("Succeeded", "The last run succeeded.", ""),
    reason(
        "Suspended",
        "`spec.suspend` holds back all runs.",
        "Set it to false, or use `kubectl volferry resume`.",
    ),
    reason("SyncerFailed", "A syncer failed without a report.", "Read its log by `kubectl volferry logs`."),
    reason(
        "SyncerKilled",
        "A syncer was killed by a signal.",
        "Look at the node: memory, a drain, or a person.",
    ),
    reason(
        "SyncerUsage",
        "A syncer did not accept its command line.",
        "Operator and syncer image are of different versions, most likely: use one.",
    ),
    reason(
        "TimedOut",
        "The run took longer than `limits.timeout`.",
        "Raise it, or find out what the run waits for: the message names the phase or the pod.",
    ),
    reason(
        "TreeUnreadable",
        "The tree cannot be opened or listed.",
        "The message names the folder and the error.",
    ),
    reason(
        "VerifyFailed",
        "The check of the snapshots could not be completed.",
        "The message names the cause. The next run checks the same part.",
    ),
    reason(
        "VolumeSnapshotFailed",
        "The files are in step, but the storage took no VolumeSnapshot of the copy (`destination.volumeSnapshots`).",
        "Follow the message: install the snapshot controller, name another class, or raise `destination.volumeSnapshots.timeout`.",
    ),
    reason(
        "WaitingForEndpoint",
        "The endpoint serves other runs first.",
        "Wait. The message has the place among those that wait.",
    ),
    reason("WaitingForRun", "Another run uses a claim of this one.", "Wait. The message names it."),
    reason(
        "WrongDirection",
        "The source is an older copy of newer files at the destination, so nothing was changed.",
        "Check which end is the source. If it is meant, force it.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_by_their_names_and_each_is_found() {
        assert!(REASONS.is_sorted_by_key(|reason| reason.name));
        assert!(REASONS.iter().all(|reason| find(reason.name) == Some(reason)));
        assert_eq!(find("NoSuchReason"), None);
    }

    #[test]
    fn every_reason_says_what_has_happened_in_sentences() {
        for Reason { name, meaning, next } in REASONS {
            assert!(meaning.len() > 20 && meaning.ends_with('.'), "{name}");
            assert!(next.is_empty() || next.ends_with('.'), "{name}");
        }
    }
}
