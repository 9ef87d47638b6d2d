//! The CEL rules of the CRDs, which validate a manifest without access to other objects.
//!
//! A malformed value is rejected by a rule instead of the schema's `pattern`, whose message would be the pattern
//! itself. A rule's message says what was written and what to write instead. Expressions contain single quotes only
//! around their strings, and every string and list that they access is bounded, as the API server's cost budget
//! demands.

mod endpoint;
mod rule;
mod schedule;

use schemars::Schema;
use serde_json::Value;

use self::rule::each;
pub(super) use self::rule::quoting;
pub(super) use self::rule::{Rule, rule};
pub use self::schedule::{IS_NOT_CRON, cron_form};
pub(super) use self::{
    endpoint::{endpoint_service, host_name, key_version, peer_name, public_key, sync_endpoint},
    schedule::{cron, time_zone},
};

/// Limits a SELinux label to what the baseline PodSecurity standard allows.
pub(super) fn se_linux() -> [Rule; 1] {
    [rule(
        "!has(self.user) && !has(self.role) && (!has(self.type) || self.type in \
         ['container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t'])",
        "PodSecurity allows no user or role of SELinux, and only the types container_t, container_init_t, \
         container_kvm_t and container_engine_t",
    )]
}

/// Requires that a source is either a claim or an endpoint.
fn one_source() -> Rule {
    rule(
        "has(self.persistentVolumeClaim) != has(self.endpoint)",
        "source has exactly one of persistentVolumeClaim and endpoint",
    )
}

/// Requires that a destination is a claim, an endpoint or object storage.
fn one_destination() -> Rule {
    rule(
        "[has(self.persistentVolumeClaim), has(self.endpoint), has(self.objectStore)].exists_one(it, it)",
        "destination has exactly one of persistentVolumeClaim, endpoint and objectStore",
    )
}

/// Limits the fields of a source that are about its snapshot.
pub(super) fn source() -> [Rule; 4] {
    let has_history = "has(self.history) && self.history != 'None'";
    [
        one_source(),
        rule(
            format!("!({has_history}) || !has(self.pointInTime)"),
            "source.history copies the snapshots that the volume has now, and pointInTime reads it as it was: remove one \
             of the two",
        ),
        rule(
            format!("!({has_history}) || !has(self.snapshot)"),
            "source.history goes with the files of the volume, and snapshot reads one of its snapshots: remove one of the \
             two",
        ),
        rule(
            "has(self.snapshot) || !(has(self.trustStore) && self.trustStore) && !(has(self.keepGoing) && self.keepGoing)",
            "trustStore and keepGoing go with snapshot: remove them, or name a snapshot",
        ),
    ]
}

/// Limits which fields can be combined in a schedule.
pub(super) fn schedule() -> [Rule; 2] {
    [
        rule(
            "has(self.cron) != has(self.interval)",
            "a schedule has exactly one of cron, for runs at times of the clock, and interval, for the time from run to run",
        ),
        rule(
            "has(self.cron) || !has(self.timeZone)",
            "timeZone goes with cron: remove it, or write a cron schedule in place of interval",
        ),
    ]
}

/// Returns the pattern of a number of bytes, so that the rules accept what `contract::parse_bytes` parses. The number
/// of digits is limited for each suffix, so that the value stays below 2^64.
pub(crate) fn bytes_form() -> String {
    let mut forms = vec!["[0-9]{1,18}".to_string()];
    for thousands in 1..=4 {
        let units = contract::BYTE_UNITS.iter().filter(|(_, unit)| unit.ilog10() / 3 == thousands);
        let names = units.map(|(name, _)| *name).collect::<Vec<_>>().join("|");
        forms.push(format!("[0-9]{{1,{}}}({names})B?", 18 - 3 * thousands));
    }
    format!("^({})$", forms.join("|"))
}

/// Requires a bandwidth in bytes per second. Kubernetes quantities have fewer spellings, so that others are converted.
pub(super) fn bandwidth() -> [Rule; 1] {
    const QUANTITY: &str = "quantity(self.replace('B', '').replace('K', 'k').replace('ki', 'Ki'))";
    quoting(
        format!("self.matches(r'{}') && {QUANTITY}.compareTo(quantity('64Ki')) >= 0", bytes_form()),
        "is not a bandwidth of 64Ki or more: write whole bytes per second with a suffix such as 500k, 100Mi or 1Gi",
    )
}

/// Requires the size of a file.
pub(super) fn file_size() -> [Rule; 1] {
    quoting(
        format!("self.matches(r'{}')", bytes_form()),
        "is not a size: write whole bytes, or with a suffix such as 500k, 100Mi or 1Gi",
    )
}

/// Requires the size of a volume.
pub(super) fn volume_size() -> [Rule; 1] {
    quoting(
        "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))".into(),
        "is not a size: write a number of bytes with a suffix such as 500Mi, 10Gi or 1Ti",
    )
}

/// Requires the factor of the baseline that a run may take.
pub(super) fn threshold() -> [Rule; 1] {
    quoting(
        r"self.matches(r'^[1-9][0-9]{0,2}(\.[0-9]{1,3})?$') && double(self) > 1.0".into(),
        "is not a factor above 1: write a decimal number in quotes such as \"1.5\" for half as long again",
    )
}

/// Requires a folder inside a volume, in the only form in which paths can be compared.
pub(super) fn folder() -> [Rule; 1] {
    quoting(
        r"self.matches(r'^/$|^(/[^/\x00]+)+$') && !self.matches(r'/(\.|\.\.|\.volferry)(/|$)')".into(),
        "is not a folder inside the volume: write / for all of it, or a path such as /data/uploads that begins with /, \
         does not end with it, and has no part that is empty, ., .. or .volferry",
    )
}

/// Requires the same of each path that is restored, which may not be the whole volume.
pub(super) fn restored_paths() -> [Rule; 1] {
    each(
        r"it.matches(r'^(/[^/\x00]+)+$') && !it.matches(r'/(\.|\.\.|\.volferry)(/|$)')",
        "is not a file or folder inside the volume: write a path such as /data/uploads that begins with /, does not end \
         with it, and has no part that is empty, ., .. or .volferry",
    )
}

const OBJECT_NAME: &str = r"matches(r'^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')";
pub(super) const IS_NOT_OBJECT_NAME: &str =
    "is not the name of an object: write lower-case letters, digits, - and . only";

/// Returns whether a name fulfills [`object_name`], for a name on which no CRD rule can be set.
pub(super) fn is_object_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        let part = part.as_bytes();
        part.iter().all(|&c| inner(c) || c == b'-')
            && part.first().is_some_and(|&c| inner(c))
            && part.last().is_some_and(|&c| inner(c))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Requires the name of an object, as most kinds have it.
pub(super) fn object_name() -> [Rule; 1] {
    quoting(format!("self.{OBJECT_NAME}"), IS_NOT_OBJECT_NAME)
}

/// Returns the schema of an object whose fields another kind's schema checks.
pub(super) fn opaque(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "maxProperties": 64, "x-kubernetes-preserve-unknown-fields": true})
}

/// Requires a selector that names a label.
pub(super) fn claim_selector() -> [Rule; 1] {
    let names = |field: &str| format!("has(self.{field}) && self.{field}.size() > 0");
    [rule(
        format!("{} || {}", names("matchLabels"), names("matchExpressions")),
        "name a label that the claims have: an empty selector would match every claim of the namespace",
    )]
}

/// Requires a list of gitignore patterns.
pub(super) fn each_glob() -> [Rule; 1] {
    each(
        r"it.matches(r'\S') && !it.matches(r'[\n\r\x00]')",
        "is not a gitignore pattern: write one pattern an entry, such as *.tmp or /cache/",
    )
}

/// Requires the name of a snapshot, or a time with its zone.
pub(super) fn snapshot() -> [Rule; 1] {
    quoting(
        r"!self.startsWith('as-of:') || self.matches(r'^as-of:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$')"
            .into(),
        "is not a time: write as-of: and a time with its zone, such as as-of:2026-11-22T18:00:00Z",
    )
}

/// Limits which fields of the destination can change.
pub(super) fn destination() -> [Rule; 4] {
    let same = |field: &str| {
        let (new, old) = (format!("self.create.{field}"), format!("oldSelf.create.{field}"));
        format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
    };
    let (class, modes, size) = (same("storageClassName"), same("accessModes"), same("size"));
    let grows = "(has(self.create.grow) && self.create.grow)";
    [
        one_destination(),
        rule(
            "has(self.persistentVolumeClaim) == has(oldSelf.persistentVolumeClaim) && (!has(self.persistentVolumeClaim) || \
             self.persistentVolumeClaim == oldSelf.persistentVolumeClaim)",
            "the destination's claim cannot change, since what was written there would be left behind: create another \
             SyncJob in place of this one",
        ),
        rule(
            "self.path == oldSelf.path",
            "destination.path cannot change, since what was written there would be left behind: create another SyncJob \
             in place of this one",
        ),
        rule(
            format!(
                "!has(self.create) || !has(oldSelf.create) || ({class} && {modes} && ({grows} || {size}))"
            ),
            "destination.create cannot change but for grow, and for size with grow: true, since it is read only when the \
             claim is made: change the claim itself, or create another SyncJob",
        ),
    ]
}

/// The field `namespace` in an expression, where that is a word of the language.
const NAMESPACE: &str = "__namespace__";

/// Limits the combinations of source, destination and deletion policy.
pub(super) fn spec() -> Vec<Rule> {
    let claim = |side: &str| format!("self.{side}.persistentVolumeClaim.claimName");
    let (from, to) = ("self.source.persistentVolumeClaim", "self.destination.persistentVolumeClaim");
    let (has_from, has_to) = (format!("has({from})"), format!("has({to})"));
    let are_claims = format!("{has_from} && {has_to}");
    let is_one_namespace = format!(
        "has({from}.{NAMESPACE}) ? has({to}.{NAMESPACE}) && {from}.{NAMESPACE} == {to}.{NAMESPACE} : !has({to}.{NAMESPACE})"
    );
    let below = |a: &str, b: &str| format!("({a} == '/' || {b} == {a} || {b}.startsWith({a} + '/'))");
    let (source, destination) = ("self.source.path", "self.destination.path");
    let claims = [
        rule(
            format!(
                "!({are_claims}) || {} != {} || !({is_one_namespace}) || !({} || {})",
                claim("source"),
                claim("destination"),
                below(source, destination),
                below(destination, source),
            ),
            "source and destination overlap: name another claim, or folders of which neither holds the other",
        ),
        rule(
            "self.deletionPolicy == 'Retain' || has(self.destination.create)",
            "deletionPolicy: Delete is of the claim that destination.create makes: set that, or remove deletionPolicy",
        ),
        rule(
            "self.deletionPolicy == oldSelf.deletionPolicy",
            "deletionPolicy cannot change, since it is read only when the claim is made: create another SyncJob in place \
             of this one",
        ),
        rule(
            format!("!has(self.destination.create) || !{has_to} || !has({to}.{NAMESPACE})"),
            "destination.create is for a claim of the SyncJob's own namespace: remove it, and create the claim where it \
             shall be",
        ),
        rule(
            format!("!has(self.source.pointInTime) || !{has_from} || !has({from}.{NAMESPACE})"),
            "source.pointInTime is for a claim of the SyncJob's own namespace: remove one of the two",
        ),
        rule(
            format!("!has(self.destination.volumeSnapshots) || !{has_to} || !has({to}.{NAMESPACE})"),
            "destination.volumeSnapshots is for a claim of the SyncJob's own namespace: remove one of the two",
        ),
        rule(
            format!("self.transfer.placement != 'Local' || !({are_claims}) || ({is_one_namespace})"),
            "transfer.placement: Local is one pod with both claims, which have to be of one namespace: write Auto",
        ),
    ];
    claims.into_iter().chain(history()).collect()
}

/// Requires the place of a folder that somebody serves.
pub(super) fn remote_address() -> [Rule; 1] {
    quoting(
        [
            r"self.matches(r'^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])",
            r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?",
            r"::[A-Za-z0-9_][A-Za-z0-9._@-]*(/[^/\x00]+)*$') && !self.matches(r'/(\.|\.\.|\.volferry)(/|$)')",
        ]
        .concat(),
        "is no address of an endpoint: write HOST::FOLDER, HOST:PORT::FOLDER or HOST:PORT::FOLDER/PATH, as status.address \
         of a SyncEndpoint has it",
    )
}

/// Requires a place in object storage.
pub(super) fn bucket_url() -> [Rule; 1] {
    quoting(
        r"self.matches(r'^s3://[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?$') && !self.matches(r'/[.]+(/|$)')"
            .into(),
        "is no place in object storage: write s3://BUCKET/PREFIX, of letters, digits, dots, dashes, underscores and slashes",
    )
}

/// Limits what goes with the history of the source.
fn history() -> [Rule; 2] {
    let history = "(has(self.source.history) ? self.source.history : 'None')";
    [
        rule(
            format!("!({history} == 'Kept') || has(self.snapshots)"),
            "source.history: Kept keeps what snapshots.retain keeps: set that, or write All",
        ),
        rule(
            format!(
                "!({history} != 'None') || self.parallelism == 1 && size(self.files.include) == 0 && \
                 size(self.files.exclude) == 0 && !self.files.ignoreFiles && !has(self.files.minSize) && \
                 !has(self.files.maxSize)"
            ),
            "source.history copies snapshots as a whole, by one run: remove files.include, exclude, ignoreFiles, minSize \
             and maxSize, and set parallelism back to 1, or remove source.history",
        ),
    ]
}

/// Requires exactly one of two fields.
pub(super) fn one_of(a: &str, b: &str) -> [Rule; 1] {
    let has = |field: &str| format!("has(self.{})", if field == "namespace" { NAMESPACE } else { field });
    [rule(format!("{} != {}", has(a), has(b)), format!("write exactly one of {a} and {b}"))]
}

/// Forbids changes of the contacts of a run's ends, so that a pod cannot replace the key or address of another.
pub(super) fn contacts() -> [Rule; 1] {
    let is_same = "oldSelf.all(end, !(end in self) || self[end] == oldSelf[end])";
    [rule(is_same, "the contact of an end is written once in a try, and cannot be changed")]
}

/// Forbids changes of the status of an ended run, so that nothing depends on when its pods lose their permissions.
pub(super) fn run_status() -> [Rule; 1] {
    [rule(
        "!has(oldSelf.stage) || oldSelf.stage != 'Done' || self == oldSelf",
        "the status of a SyncRun that is Done cannot change",
    )]
}

/// Forbids changes of a SyncRun's spec, except that the operator completes one that a person created, once.
pub(super) fn run() -> [Rule; 4] {
    [
        rule(
            "has(oldSelf.number) ? self == oldSelf : self.syncJob.name == oldSelf.syncJob.name",
            "the spec of a SyncRun cannot change: create another SyncRun to run again",
        ),
        rule(
            "has(self.number) || !(has(self.cause) || has(self.job) || has(self.source) || has(self.destination) || \
             has(self.local))",
            "write only syncJob, force, restore and benchmark: the operator fills in the other fields",
        ),
        rule(
            "!has(self.restore) || !has(self.benchmark)",
            "a SyncRun has restore or benchmark: remove one of the two, and create another SyncRun for it",
        ),
        rule(
            "!has(self.force) || !self.force || !has(self.restore) && !has(self.benchmark)",
            "force is for runs from the source: remove it, or restore and benchmark",
        ),
    ]
}

/// Requires at most one tree in a benchmark.
pub(super) fn benchmark() -> [Rule; 1] {
    [rule(
        "!has(self.tree) || !has(self.files)",
        "benchmark.tree names a tree, and benchmark.files describes one: remove one of the two",
    )]
}

/// Limits the combinations of fields of the files.
pub(super) fn files() -> [Rule; 2] {
    [
        rule(
            "self.delete || !self.deleteAnyway",
            "files.deleteAnyway goes with delete: true; remove it, or set that",
        ),
        rule(
            "self.delete || self.deleteTiming == 'After'",
            "files.deleteTiming: Before goes with delete: true; remove it, or set that",
        ),
    ]
}

/// Limits the combinations of fields of the transfer.
pub(super) fn transfer() -> [Rule; 2] {
    [
        rule(
            "self.compression == 'Zstd' || !has(self.compressionLevel)",
            "transfer.compressionLevel goes with compression: Zstd; remove it, or set that",
        ),
        rule(
            "self.placement != 'Local' || !has(self.bandwidthLimit)",
            "transfer.bandwidthLimit limits the network, and placement: Local uses none; remove one of the two",
        ),
    ]
}

/// Requires that at least one snapshot is kept.
pub(super) fn retain() -> [Rule; 1] {
    [rule(
        "self.last + self.hourly + self.daily + self.weekly + self.monthly + self.yearly > 0 || has(self.within) \
         || has(self.maxBytes) || (has(self.tags) && size(self.tags) > 0)",
        "snapshots.retain would keep no snapshot: set one of last, hourly, daily, weekly, monthly and yearly above 0, \
         or within, tags or maxBytes, or remove snapshots",
    )]
}

/// Forbids tags that the engine refuses: the words that select a snapshot in another way.
pub(super) fn tags() -> [Rule; 1] {
    [rule(
        "self.all(tag, tag.matches(r'^\\S+$') && tag != 'latest' && !tag.startsWith('as-of:'))",
        "a tag is one word without spaces, is not latest, and does not begin with as-of:",
    )]
}

/// Requires at least one hook.
pub(super) fn hooks() -> [Rule; 1] {
    [rule("has(self.before) || has(self.after)", "hooks needs before, after or both")]
}

/// Adds the pattern of a quantity to requests and limits, the same that controller-gen writes. Only these values use a
/// pattern: neither their length nor the number of their keys is bounded, which exceeds the budget of rules.
pub(super) fn quantities(schema: &mut Schema) {
    const QUANTITY: &str = concat!(
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    );
    for field in ["requests", "limits"] {
        let amounts = schema.pointer_mut(&format!("/properties/{field}/additionalProperties"));
        if let Some(Value::Object(amount)) = amounts {
            amount.insert("pattern".into(), QUANTITY.into());
        }
    }
}

/// Forbids labels with the operator's own prefixes.
pub(super) fn labels() -> [Rule; 1] {
    [rule(
        "self.all(key, !key.startsWith('volferry.dev/') && !key.startsWith('app.kubernetes.io/'))",
        "labels that begin with volferry.dev/ or app.kubernetes.io/ are set by the operator: choose another prefix",
    )]
}

/// Forbids annotations with the operator's own prefix.
pub(super) fn annotations() -> [Rule; 1] {
    [rule(
        "self.all(key, !key.startsWith('volferry.dev/'))",
        "annotations that begin with volferry.dev/ are set by the operator: choose another prefix",
    )]
}

#[cfg(test)]
mod tests;
