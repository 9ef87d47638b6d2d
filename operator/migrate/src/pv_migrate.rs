//! Converts a command line of pv-migrate to a SyncJob.

use api::{ClaimReference, CompressionMode, Placement, SyncJobSpec};
use clap::Parser;
use contract::Ownership;

use super::{draft::Draft, migrate_error::MigrateError};

/// The strategies in which one pod mounts both claims.
const ONE_POD: [&str; 2] = ["mount", "mnt2"];
/// The strategies in which two pods connect.
const NETWORK: [&str; 5] = ["svc", "clusterip", "nodeport", "lbsvc", "loadbalancer"];
/// The strategy in which all passes through the user's machine.
const LOCAL: &str = "local";
/// What a person puts in the place of the name of a cluster's context, and of an endpoint's host.
const CONTEXT_TO_FILL_IN: &str = "CONTEXT";
const HOST_TO_FILL_IN: &str = "STATUS.ADDRESS";

/// What pv-migrate takes.
#[derive(Debug, Parser)]
#[command(name = "pv-migrate", no_binary_name = true, disable_version_flag = true)]
struct PvMigrate {
    /// `migrate` and the two claims, as older versions have it.
    positional: Vec<String>,
    #[arg(long)]
    source: Option<String>,
    #[arg(long)]
    dest: Option<String>,
    #[arg(short = 'n', long)]
    source_namespace: Option<String>,
    #[arg(short = 'N', long)]
    dest_namespace: Option<String>,
    #[arg(short = 'p', long)]
    source_path: Option<String>,
    #[arg(short = 'P', long)]
    dest_path: Option<String>,
    #[arg(short = 'k', long)]
    source_kubeconfig: Option<String>,
    #[arg(short = 'K', long)]
    dest_kubeconfig: Option<String>,
    #[arg(short = 'c', long)]
    source_context: Option<String>,
    #[arg(short = 'C', long)]
    dest_context: Option<String>,
    #[arg(short = 'd', long, num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "true")]
    dest_delete_extraneous_files: bool,
    #[arg(short = 'o', long, num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "true")]
    no_chown: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    compress: bool,
    #[arg(short = 's', long, value_delimiter = ',')]
    strategies: Vec<String>,
    #[command(flatten)]
    not_needed: NotNeeded,
}

/// Flags that change nothing of a SyncJob.
#[derive(Debug, clap::Args)]
struct NotNeeded {
    #[arg(short = 'i', long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ignore_mounted: Option<bool>,
    #[arg(short = 'x', long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_cleanup: Option<bool>,
    #[arg(short = 'b', long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_progress_bar: Option<bool>,
    #[arg(short = 'R', long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    source_mount_read_only: Option<bool>,
    #[arg(short = 'a', long)]
    ssh_key_algorithm: Option<String>,
    #[arg(short = 'H', long)]
    dest_host_override: Option<String>,
    #[arg(long)]
    lbsvc_timeout: Option<String>,
    #[arg(short = 't', long)]
    helm_timeout: Option<String>,
    #[arg(short = 'f', long)]
    helm_values: Vec<String>,
    #[arg(long)]
    helm_set: Vec<String>,
    #[arg(long)]
    helm_set_string: Vec<String>,
    #[arg(long)]
    helm_set_file: Vec<String>,
    #[arg(long)]
    log_level: Option<String>,
    #[arg(long)]
    log_format: Option<String>,
}

/// Returns the SyncJob that does the same as pv-migrate with these arguments.
pub(super) fn draft(args: &[String]) -> Result<Draft, MigrateError> {
    let said = |error: clap::Error| MigrateError::PvMigrate(first_line(&error.to_string()));
    let flags = PvMigrate::try_parse_from(args).map_err(said)?;
    let [source, dest] = flags.claims()?;
    let mut draft = Draft {
        origin: format!("pv-migrate {}", args.join(" ")),
        name: format!("{source}-to-{dest}"),
        namespace: flags.source_namespace.clone(),
        spec: SyncJobSpec::default(),
        endpoint: None,
        notes: vec![
            "pv-migrate copies once. This SyncJob runs once, and again when it is changed: delete it afterwards. The claims \
             stay."
                .into(),
            "pv-migrate reads and writes as root. For that, annotate the namespace with volferry.dev/privileged-syncers=true."
                .into(),
        ],
    };
    flags.add_files(&mut draft, &source, &dest);
    flags.add_transfer(&mut draft);
    draft.notes.extend(flags.copy(&source, &dest));
    Ok(draft)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").into()
}

impl PvMigrate {
    /// Returns the names of both claims, the source first.
    fn claims(&self) -> Result<[String; 2], MigrateError> {
        let positional: Vec<_> = self.positional.iter().map(String::as_str).collect();
        match (positional.as_slice(), &self.source, &self.dest) {
            (["migrate" | "m", source, dest], None, None) => Ok([(*source).into(), (*dest).into()]),
            ([], Some(source), Some(dest)) => Ok([source.clone(), dest.clone()]),
            _ => Err(MigrateError::PvMigrate("it has to name two claims, by --source and --dest".into())),
        }
    }

    fn add_files(&self, draft: &mut Draft, source: &str, dest: &str) {
        let namespace = self.dest_namespace.clone();
        let namespace = namespace.filter(|it| Some(it) != self.source_namespace.as_ref() && !self.is_far());
        draft.notes.extend(namespace.as_deref().map(super::needs_grant));
        let claim = |name: &str, namespace| ClaimReference { claim_name: name.into(), namespace };
        let spec = &mut draft.spec;
        spec.source.persistent_volume_claim = Some(claim(source, None));
        spec.destination.persistent_volume_claim = Some(claim(dest, namespace));
        spec.source.path = self.source_path.clone().unwrap_or_else(|| "/".into());
        spec.destination.path = self.dest_path.clone().unwrap_or_else(|| "/".into());
        spec.files.delete = self.dest_delete_extraneous_files;
        spec.files.exclude = vec!["/lost+found/".into()];
        if self.no_chown {
            spec.files.preserve.ownership = Ownership::Never;
        }
        if self.is_far() {
            draft.send_to_endpoint(HOST_TO_FILL_IN, dest);
            draft.notes.push(format!(
                "The claims are in two clusters: make a SyncEndpoint {dest} of the claim there, with access: Write. Fill in the \
                 address, before the path if there is one, and the publicKey of its status, and list this SyncJob's \
                 status.identity.publicKey among its peers. `kubectl volferry pair` makes both."
            ));
        }
    }

    fn add_transfer(&self, draft: &mut Draft) {
        if !self.compress {
            draft.spec.transfer.compression = CompressionMode::None;
        }
        let all_of = |known: &[&str]| {
            !self.strategies.is_empty() && self.strategies.iter().all(|it| known.contains(&it.as_str()))
        };
        let is_one_namespace = draft.spec.claims().all(|(_, claim)| claim.namespace.is_none());
        draft.spec.transfer.placement = match () {
            () if all_of(&ONE_POD) && is_one_namespace && !self.is_far() => Placement::Local,
            () if all_of(&NETWORK) => Placement::Network,
            () => Placement::Auto,
        };
    }

    /// Returns whether the claims are in two clusters.
    fn is_far(&self) -> bool {
        self.source_context != self.dest_context || self.source_kubeconfig != self.dest_kubeconfig
    }

    /// Returns a note with the command that goes through this machine, if pv-migrate would or might.
    fn copy(&self, source: &str, dest: &str) -> Option<String> {
        if !self.is_far() && !self.strategies.iter().any(|it| it == LOCAL) {
            return None;
        }
        let files = [&self.source_kubeconfig, &self.dest_kubeconfig];
        let are_two = files[0] != files[1];
        // Of two files that are merged, the current context is the first one's, and so is one that both have.
        let is_unclear = are_two && self.source_context == self.dest_context;
        let place = |context: &Option<String>, namespace: &Option<String>, claim: &str| {
            let context =
                context.as_deref().filter(|_| !is_unclear).or(are_two.then_some(CONTEXT_TO_FILL_IN));
            let namespace = namespace.as_deref().or(context.is_some().then_some("NAMESPACE"));
            let parts = [context, namespace, Some(claim)];
            parts.into_iter().flatten().collect::<Vec<_>>().join("/")
        };
        let from = place(&self.source_context, &self.source_namespace, source);
        let to = place(&self.dest_context, &self.dest_namespace, dest);
        let files = files.map(|file| file.as_deref().unwrap_or("$HOME/.kube/config"));
        let kubeconfig = match (are_two, &self.source_kubeconfig) {
            (true, _) => format!("KUBECONFIG={} ", files.join(":")),
            (false, Some(file)) => format!("KUBECONFIG={file} "),
            (false, None) => String::new(),
        };
        let context = if [&from, &to].iter().any(|place| place.starts_with(CONTEXT_TO_FILL_IN)) {
            ". CONTEXT is the context of that cluster in its file, and has to have another name in the other file"
        } else {
            ""
        };
        let delete = if self.dest_delete_extraneous_files { " -- --delete" } else { "" };
        let what = if self.is_far() { "To copy once" } else { "To copy once as the strategy local does" };
        Some(format!(
            "{what}, through this machine: {kubeconfig}kubectl volferry copy {from} {to}{delete}{context}"
        ))
    }
}
