//! The names that Volferry gives to objects: valid wherever they are used, and unique whatever a SyncJob is called.
//!
//! A SyncJob's name is a DNS subdomain of up to 253 characters. The names of Services are the most restricted: at most
//! 63 characters, lower case, no dots, a letter first (RFC 1035). So every derived name begins with `vf-`, contains as
//! much of the job's name as fits, and ends with a hash that makes it unique. The hash covers the job's UID, so that a
//! job that is recreated under an old name never meets objects of its predecessor.

use contract::Side;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;

/// The field manager of all objects that the operator applies.
pub const FIELD_MANAGER: &str = "volferry-operator";
/// The Lease in each watched namespace that says which release of the operator works there.
pub const NAMESPACE_LEASE: &str = "volferry.dev";
/// Label of every child: the job's name, shortened to a label's length.
pub const LABEL_SYNCJOB: &str = "volferry.dev/syncjob";
/// Label of every child of a run: the run's name.
pub const LABEL_RUN: &str = "volferry.dev/run";
/// Label of the VolumeSnapshot of a destination: the name of the run that it was taken after.
pub const LABEL_IMAGE_OF: &str = "volferry.dev/image-of";
/// Label of every child of a try, and of no other object: [`TryNames::label`].
pub const LABEL_TRY: &str = "volferry.dev/try";
/// Label of Jobs and pods: `source` or `sink`.
pub const LABEL_SIDE: &str = "volferry.dev/side";
/// Label of every child of a SyncEndpoint: the endpoint's name.
pub const LABEL_SYNCENDPOINT: &str = "volferry.dev/syncendpoint";
/// Value of [`claim_label`].
pub const CLAIM_USED: &str = "true";
/// Label of the Jobs and pods by which users look into the snapshots of a SyncJob: its name, shortened.
pub const LABEL_BROWSE: &str = "volferry.dev/browse";
/// Label of the Jobs and pods of `kubectl volferry push`, `pull` and `copy`: their claim's name, shortened.
pub const LABEL_ONE_OFF: &str = "volferry.dev/one-off";
/// Label of every child: the value is [`FIELD_MANAGER`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of every SyncJob of a SyncJobSet: the set's name, shortened to a label's length. Owner references decide.
pub const LABEL_SYNCJOBSET: &str = "volferry.dev/syncjobset";
/// Annotation of every SyncJob of a SyncJobSet: the claim that it is for.
pub const ANNOTATION_CLAIM: &str = "volferry.dev/claim";
/// Annotation of every SyncJob of a SyncJobSet: the hash of what was last applied.
pub const ANNOTATION_TEMPLATE: &str = "volferry.dev/template";
/// Annotation of every child: the job's whole name, which a label cannot hold.
pub const ANNOTATION_SYNCJOB: &str = "volferry.dev/syncjob-name";
/// Annotation of every child in another namespace than its job's: that namespace.
pub const ANNOTATION_NAMESPACE: &str = "volferry.dev/syncjob-namespace";
/// Annotation of every child in another namespace than its job's: the job's UID, since owners are of one namespace.
pub const ANNOTATION_UID: &str = "volferry.dev/syncjob-uid";
/// Annotation of the VolumeSnapshot that a run reads: the UID of its SyncRun, since it may have another owner.
pub const ANNOTATION_RUN_UID: &str = "volferry.dev/run-uid";
/// Annotation of Jobs: the job's generation that they were made from.
pub const ANNOTATION_GENERATION: &str = "volferry.dev/generation";
/// Annotation of a syncer's Job: the image that the operator gave it, which an admission policy may have rewritten in
/// its pods.
pub const ANNOTATION_BUILT_WITH: &str = "volferry.dev/built-with";
/// Annotation of Jobs: the node that they are tied to.
pub const ANNOTATION_NODE: &str = "volferry.dev/node";
/// Annotation and label that Kubernetes sets on a pod of an Indexed Job: the pod's index.
pub const ANNOTATION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation of a namespace whose owner allows syncers to run as root there, with the value `true`.
pub const ANNOTATION_PRIVILEGED: &str = "volferry.dev/privileged-syncers";
/// The annotation by which OpenShift gives a namespace the users that its pods run as; its admission fills them in.
pub const ANNOTATION_USER_RANGE: &str = "openshift.io/sa.scc.uid-range";
/// Annotation of a SyncJob by which a person ends the hold of a restore in place: the UID of that restore's SyncRun.
pub const ANNOTATION_RESUME: &str = "volferry.dev/resume-after";
/// Annotation of a SyncJob by which a person accepts another volume as its destination: that volume's id.
pub const ANNOTATION_ACCEPT_VOLUME: &str = "volferry.dev/accept-volume";
/// Annotation of a SyncJob by which a person accepts a claim that was made anew as its source: that claim's UID.
pub const ANNOTATION_ACCEPT_SOURCE: &str = "volferry.dev/accept-source";
/// Annotation of a claim that came up filled, and of its temporary claim: the run or VolumeSnapshot that filled it.
pub const ANNOTATION_POPULATED: &str = "volferry.dev/populated";
/// Annotation of a claim: the UID that it had when it was filled. One that is made anew from its manifest has another.
pub const ANNOTATION_POPULATED_CLAIM: &str = "volferry.dev/populated-claim";
/// Value of [`ANNOTATION_POPULATED`] of a claim that came up empty because it says that it may.
pub const POPULATED_EMPTY: &str = "empty";
/// Annotation by which the scheduler names the node of a claim that waits for its first consumer.
pub const ANNOTATION_SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a namespace by which its administrator allows priorities above 0: the highest one that counts.
pub const ANNOTATION_MAX_PRIORITY: &str = "volferry.dev/max-priority";
/// Annotation in the operator's store, and never in the cluster: why a SyncRun cannot be read.
pub const ANNOTATION_UNREADABLE: &str = "volferry.dev/unreadable";
/// Annotation of a SyncJob by which a person cancels a run, queued or under way: the UID of its SyncRun.
pub const ANNOTATION_CANCEL: &str = "volferry.dev/cancel";

/// Environment variable of the pods that listen: their address.
pub const ENV_POD_IP: &str = "POD_IP";
/// Environment variable of an endpoint's pod: its addresses, separated by commas.
pub const ENV_POD_IPS: &str = "POD_IPS";

/// The name of the syncer's container in its pod.
pub const CONTAINER: &str = "syncer";

/// The maximum length of a label value, and of a Service's name.
const MAX_LABEL: usize = 63;
/// The maximum length of the readable part of a child's name. With the rest, and with the suffix that Kubernetes
/// appends to a Job's name for its pod, the name stays below [`MAX_LABEL`].
const MAX_SLUG: usize = 32;
/// The greatest number of earlier tries of a run: more than it makes in a month of waiting for a volume.
pub const MAX_PAST_TRIES: i32 = 10_000;
const HASH_DIGITS: usize = 10;

/// The names of the objects of one try of one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TryNames {
    base: String,
}

impl TryNames {
    /// Builds the names for the try that follows `past` earlier ones, in the `number`th run of the job with that name
    /// and UID.
    pub fn new(job: &str, uid: &str, number: i64, past: i32) -> Self {
        let number = number.to_string();
        let slug = shorten(&job.replace('.', "-"), MAX_SLUG - 1 - number.len());
        let hash = hash(&[uid, &number, &past.to_string()]);
        Self { base: format!("vf-{slug}-{number}-{hash}") }
    }

    /// Returns the name of the Job that runs one end.
    pub fn job(&self, side: Side) -> String {
        format!("{}-{side}", self.base)
    }

    /// Returns the names that belong to a value of [`LABEL_TRY`].
    pub fn from_label(label: &str) -> Self {
        Self { base: label.into() }
    }

    /// Returns whether these are the names of a try of the job with that name and UID, according to the hash in them.
    pub fn is_of(&self, job: &str, uid: &str) -> bool {
        let number = self.base.rsplit('-').nth(1).and_then(|number| number.parse().ok());
        number
            .is_some_and(|number| (0..=MAX_PAST_TRIES).any(|past| Self::new(job, uid, number, past) == *self))
    }

    /// Returns the name of the temporary claim and the VolumeSnapshot that capture the source before this try.
    pub fn capture(&self) -> String {
        format!("{}-capture", self.base)
    }

    /// Returns the name of the VolumeSnapshot of the destination after this try.
    pub fn image(&self) -> String {
        format!("{}-image", self.base)
    }

    /// Returns the value of [`LABEL_TRY`].
    pub fn label(&self) -> String {
        self.base.clone()
    }
}

/// Returns what a claim was filled from; `None` for one that was not, and for another claim that its annotations were
/// copied to.
pub fn populated_from(claim: &PersistentVolumeClaim) -> Option<&String> {
    let filled = claim.annotations().get(ANNOTATION_POPULATED_CLAIM);
    claim
        .annotations()
        .get(ANNOTATION_POPULATED)
        .filter(|_| filled.is_none_or(|uid| claim.uid().as_ref() == Some(uid)))
}

/// Returns whether a name is [`TryNames::capture`] of a try of the job with that name and UID.
pub fn is_capture_of(name: &str, job: &str, uid: &str) -> bool {
    name.strip_suffix("-capture").is_some_and(|label| TryNames::from_label(label).is_of(job, uid))
}

/// Returns whether a name is [`TryNames::image`] of a try of the job with that name and UID.
pub fn is_image_of(name: &str, job: &str, uid: &str) -> bool {
    name.strip_suffix("-image").is_some_and(|label| TryNames::from_label(label).is_of(job, uid))
}

/// Returns the name of the ServiceAccount, Role and RoleBinding with that number, which the pods of a job's runs use.
pub fn access(job: &str, uid: &str, account: u32) -> String {
    beside_key(job, uid, &format!("a{account}"))
}

/// Returns a name of which only `kind` differs between a job's accounts and the Secret with its key: the admission
/// policy `endpoint-keys` derives one from the other.
fn beside_key(job: &str, uid: &str, kind: &str) -> String {
    format!("vf-{}-{kind}-{}", shorten(&job.replace('.', "-"), MAX_SLUG - 1), hash(&[uid, "key"]))
}

/// Returns the name of the VolumeGroupSnapshot of a SyncJobSet of that name, from which these captures are made.
pub fn group(set: &str, captures: &[String]) -> String {
    let parts: Vec<&str> = captures.iter().map(String::as_str).collect();
    format!("vf-{}-g-{}", shorten(&set.replace('.', "-"), MAX_SLUG), hash(&parts))
}

/// Returns the name of the objects of the SyncEndpoint with that name and UID: its Deployment, Service, account and
/// rights.
pub fn endpoint(name: &str, uid: &str) -> String {
    let slug = shorten(&name.replace('.', "-"), MAX_SLUG);
    format!("vf-{slug}-e-{}", hash(&[uid, "endpoint"]))
}

/// Returns the name of the Secret in which the pod of that SyncEndpoint keeps its key of that number.
pub fn endpoint_key(name: &str, uid: &str, version: i32) -> String {
    let number = if version > 1 { format!("-{version}") } else { String::new() };
    format!("{}-key{number}", endpoint(name, uid))
}

/// Returns the name of the Secret in which the pods of the SyncJob with that name and UID keep its key.
pub fn job_key(job: &str, uid: &str) -> String {
    beside_key(job, uid, "key")
}

/// Returns a run's name, `<job>-<number>`, which is a valid label value.
pub fn run_id(job: &str, number: i64) -> String {
    let number = number.to_string();
    format!("{}-{number}", shorten(job, MAX_LABEL - 1 - number.len()))
}

/// Returns the id of one try in its report: the run's name, from the second try on with the number of earlier tries.
pub fn try_id(run: &str, past: i32) -> String {
    match past {
        0 => run.to_string(),
        _ => format!("{run}.retry{past}"),
    }
}

/// Returns the key of the label of pods that use the claim of that name, if all its users have to be on one node.
pub fn claim_label(claim: &str) -> String {
    format!("volferry.dev/claim-{}", hash(&[claim]))
}

/// Returns whether a label is one that [`claim_label`] makes.
pub fn is_claim_label(label: &str) -> bool {
    label.starts_with("volferry.dev/claim-")
}

/// Returns the value of [`LABEL_SYNCJOB`] for a job of that name.
pub fn label_value(job: &str) -> String {
    shorten(job, MAX_LABEL)
}

/// Returns `name` if it has at most `max` characters, else its beginning and a hash of the whole.
pub fn shorten(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_string();
    }
    let kept: String = name.chars().take(max.saturating_sub(HASH_DIGITS + 1)).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), hash(&[name]))
}

/// Returns the hash of a text, by which it is told from others.
pub fn fingerprint(text: &str) -> String {
    hash(&[text])
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..HASH_DIGITS].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0e2c…";

    fn all(job: &str, number: i64, retries: i32) -> Vec<String> {
        let names = TryNames::new(job, UID, number, retries);
        vec![
            names.job(Side::Source),
            names.job(Side::Sink),
            names.label(),
            access(job, UID, u32::MAX),
            endpoint(job, UID),
            job_key(job, UID),
        ]
    }

    fn is_dns_1035(name: &str) -> bool {
        name.len() <= 63
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    }

    #[test]
    fn every_name_is_legal_for_any_kind_and_leaves_room_for_a_pods_suffix() {
        let long = "a.b-".repeat(63) + "z";
        for job in ["web", "0.numbers.first", "dots.and-dashes", long.as_str()] {
            for name in all(job, i64::MAX, i32::MAX) {
                assert!(is_dns_1035(&name), "{name}");
                assert!(name.len() <= 63 - 6, "{name}");
            }
        }
    }

    #[test]
    fn label_values_are_legal_for_the_longest_names() {
        let long = format!("{}.tail", "x".repeat(248));
        for value in [run_id(&long, i64::MAX), label_value(&long)] {
            assert!(value.len() <= 63, "{value}");
            assert!(value.ends_with(|c: char| c.is_ascii_alphanumeric()), "{value}");
        }
    }

    #[test]
    fn long_names_that_differ_at_the_end_stay_apart() {
        let (a, b) = ("x".repeat(250) + "-a", "x".repeat(250) + "-b");
        assert_ne!(label_value(&a), label_value(&b));
        assert_ne!(run_id(&a, 1), run_id(&b, 1));
    }

    #[test]
    fn runs_tries_and_reborn_jobs_have_names_of_their_own() {
        let mut seen = std::collections::BTreeSet::new();
        for (uid, number, retries) in [("u", 1, 0), ("u", 1, 1), ("u", 2, 0), ("v", 1, 0)] {
            let names = TryNames::new("web", uid, number, retries);
            assert!([Side::Source, Side::Sink].iter().all(|side| seen.insert(names.job(*side))));
            assert!(seen.insert(names.label()));
        }
    }

    #[test]
    fn claims_of_any_name_have_a_label_of_their_own() {
        let (a, b) = (claim_label(&"x".repeat(253)), claim_label("data"));
        assert_ne!(a, b);
        assert!([a, b].iter().all(|key| key.strip_prefix("volferry.dev/").unwrap().len() <= MAX_LABEL));
    }

    #[test]
    fn names_of_a_try_prove_whose_they_are() {
        for (number, past) in [(1, 0), (12, 3), (7, 9_999)] {
            let label = TryNames::new("web.assets", UID, number, past).label();
            assert!(TryNames::from_label(&label).is_of("web.assets", UID), "{label}");
            assert!(!TryNames::from_label(&label).is_of("web.assets", "another"), "{label}");
            assert!(!TryNames::from_label(&label).is_of("other", UID), "{label}");
        }
        for label in ["database-credentials", "vf-web-1", ""] {
            assert!(!TryNames::from_label(label).is_of("web", UID), "{label}");
        }
    }

    #[test]
    fn dots_that_become_dashes_do_not_make_two_jobs_one() {
        assert_ne!(access("a.b", "uid-1", 0), access("a-b", "uid-2", 0));
        assert_ne!(access("a", "uid", 0), access("a", "uid", 1));
    }

    #[test]
    fn a_short_job_keeps_its_name_readable() {
        assert_eq!(run_id("web-assets", 7), "web-assets-7");
        assert_eq!(try_id("web-assets-7", 0), "web-assets-7");
        assert_eq!(try_id("web-assets-7", 2), "web-assets-7.retry2");
        assert!(TryNames::new("web-assets", UID, 7, 0).label().starts_with("vf-web-assets-7-"));
    }
}
