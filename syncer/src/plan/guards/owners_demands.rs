//! Limits the runs of a peer by the demands of the owner of the destination or folder, and refuses a request for which
//! they would not hold.

use contract::{Demands, FolderAccess, FolderRequest, History, Ownership, RunParams, human::plural};

use crate::{filter::Filter, path::RelPath, session_error::SessionError};

/// The longest name of a run that a peer gives, in characters: that of an object of Kubernetes.
const MAX_RUN_CHARS: usize = 253;

/// Limits the run that a source requests by the demands of the destination's owner, who may forbid deletes.
pub(crate) fn limited(requested: RunParams, demands: &Demands) -> RunParams {
    let mut params = match &demands.asked {
        Some(asked) => as_asked(requested, asked),
        None => requested,
    };
    params.demands = Demands { asked: None, ..demands.clone() };
    // It gets into the log and the report of this end.
    params.run = params.run.chars().take(MAX_RUN_CHARS).collect();
    // The source reports a dry run that it requested itself.
    params.demands.dry_run &= !params.dry_run;
    params.dry_run |= demands.dry_run;
    params.delete &= !demands.no_delete;
    params
}

/// Returns the run that this end asked for. The source adds what concerns itself alone, and may leave out more.
fn as_asked(theirs: RunParams, asked: &RunParams) -> RunParams {
    let mut preserve = asked.preserve;
    // A snapshot that other users could change comes without owners, devices and pipes.
    preserve.specials &= theirs.preserve.specials;
    if theirs.preserve.ownership == Ownership::Never {
        preserve.ownership = Ownership::Never;
    }
    RunParams {
        preserve,
        dry_run: theirs.dry_run,
        exclude: theirs.exclude,
        image: theirs.image,
        bandwidth_limit: theirs.bandwidth_limit,
        source_id: theirs.source_id,
        ..asked.clone()
    }
}

/// Checks a request for the path `below` a folder. All demands count from the root of a run, which is that path.
///
/// # Errors
/// [`SessionError::NotHeld`] with the demand that would not hold.
pub fn check_request(
    demands: &Demands,
    request: &FolderRequest,
    below: &RelPath,
) -> Result<(), SessionError> {
    if request.source_snapshot.is_some() && !demands.exclude.is_empty() {
        return Err(SessionError::NotHeld { what: "a snapshot", demand: "exclude" });
    }
    // A run that writes is judged by the destination, which knows what the source offers.
    let reads_history = request.access == FolderAccess::Read && request.params.history != History::None;
    let demand = whole_tree_demand(demands, request.access);
    if let Some(demand) = demand.filter(|_| reads_history || request.history.is_some()) {
        return Err(SessionError::NotHeld { what: "the history", demand });
    }
    if request.history.is_some() && request.access == FolderAccess::Write && demands.history == History::None
    {
        return Err(SessionError::HistoryNotTaken);
    }
    let held_only_whole = below_demand(demands, request.access);
    let excluded = || -> Result<bool, SessionError> {
        let filter = Filter::default().sparing(&demands.exclude)?;
        Ok(filter.excludes_dir(below) || filter.excludes_path(below))
    };
    let demand = match held_only_whole {
        _ if below.is_root() => return Ok(()),
        Some(demand) => demand,
        None if excluded()? => "exclude",
        None => return Ok(()),
    };
    Err(SessionError::NotHeld { what: "a path below the root", demand })
}

/// Returns a note of the entries of the source that the destination excludes: its owner does, or they are in the place
/// of its backups. Each shard compares all.
pub(super) fn left_out_note(params: &RunParams, left_out: u64) -> Option<String> {
    let is_told = left_out > 0 && params.shard.is_none_or(|shard| shard.index == 0);
    is_told.then(|| {
        let entries = plural(left_out, "entry of the source is", "entries of the source are");
        format!("{entries} left out, with all below, because the destination excludes their names")
    })
}

/// Returns a demand that says something of files, which would not hold for whole snapshots.
fn whole_tree_demand(demands: &Demands, access: FolderAccess) -> Option<&'static str> {
    let writes = access == FolderAccess::Write;
    let asked = [
        (!demands.exclude.is_empty(), "exclude"),
        (demands.image, "image"),
        (writes && demands.dry_run, "dry-run"),
    ];
    asked.into_iter().find(|(is_set, _)| *is_set).map(|(_, demand)| demand)
}

/// Returns a demand that would mean something else for a run below the folder.
fn below_demand(demands: &Demands, access: FolderAccess) -> Option<&'static str> {
    let writes = access == FolderAccess::Write;
    // Other patterns match a name at any depth.
    let counts_from_root = |pattern: &String| pattern.trim_end_matches('/').contains('/');
    let asked = [
        (demands.exclude.iter().any(counts_from_root), "exclude"),
        (writes && demands.snapshot.is_some(), "snapshot"),
        (writes && demands.backup_dir.is_some(), "backup-dir"),
        (writes && demands.expect_volume.is_some(), "expect-volume"),
        (writes && demands.other_source.is_some(), "other-source"),
    ];
    asked.into_iter().find(|(is_set, _)| *is_set).map(|(_, demand)| demand)
}

#[cfg(test)]
mod tests {
    use contract::{CopySelection, HistoryRequest};

    use super::*;

    fn refused(demands: &Demands, access: FolderAccess, below: &str) -> bool {
        let (folder, path, params) = ("photos".into(), below.into(), RunParams::default());
        let request =
            FolderRequest { folder, path, access, params, source_snapshot: None, paths: None, history: None };
        let names = below.split('/').filter(|name| !name.is_empty());
        let below = names.fold(RelPath::root(), |at, name| at.join(name.as_bytes()).unwrap());
        check_request(demands, &request, &below).is_err()
    }

    #[test]
    fn a_peers_name_of_its_run_is_bounded() {
        let requested = RunParams { run: "é".repeat(1 << 20), ..RunParams::default() };
        assert_eq!(limited(requested, &Demands::default()).run, "é".repeat(MAX_RUN_CHARS));
    }

    #[test]
    fn history_is_refused_where_a_demand_says_something_of_files() {
        use FolderAccess::{Read, Write};
        let demands = |exclude: &[&str], dry_run, image| Demands {
            exclude: exclude.iter().map(ToString::to_string).collect(),
            dry_run,
            image,
            history: History::All,
            ..Demands::default()
        };
        for (demands, access, is_refused) in [
            (demands(&["private"], false, false), Read, true),
            (demands(&["private"], false, false), Write, true),
            (demands(&[], true, false), Write, true),
            (demands(&[], true, false), Read, false),
            (demands(&[], false, true), Read, true),
            (Demands { no_delete: true, history: History::Kept, ..Demands::default() }, Write, false),
            (Demands::default(), Write, true),
            (Demands::default(), Read, false),
        ] {
            let history = Some(HistoryRequest { selection: CopySelection::All, wait_seconds: 0 });
            let (folder, params) = ("photos".into(), RunParams::default());
            let (path, source_snapshot, paths) = Default::default();
            let mut request = FolderRequest { folder, path, access, params, source_snapshot, paths, history };
            let is_error = |request: &_| check_request(&demands, request, &RelPath::root()).is_err();
            assert_eq!(is_error(&request), is_refused, "{demands:?} {access:?}");
            request.history = None;
            assert!(!is_error(&request), "{demands:?} {access:?}: a run without history");
            request.params.history = History::Kept;
            assert_eq!(
                is_error(&request),
                access == Read && is_refused,
                "{demands:?} {access:?}: with a run"
            );
        }
    }

    #[test]
    fn a_path_below_a_folder_is_refused_where_a_demand_would_not_hold() {
        use FolderAccess::{Read, Write};
        let excluding = |pattern: &str| Demands { exclude: vec![pattern.into()], ..Demands::default() };
        let backup = Demands { backup_dir: Some(".old".into()), ..Demands::default() };
        let volume = Demands { expect_volume: Some("07".repeat(16).parse().unwrap()), ..Demands::default() };
        for (demands, access, below, is_refused) in [
            (&excluding("private"), Read, "private", true),
            (&excluding("private/"), Write, "a/private/b", true),
            (&excluding("*.key"), Read, "own.key", true),
            (&excluding("private"), Read, "open/private2", false),
            (&excluding("/private"), Read, "open", true),
            (&excluding("a/b"), Write, "a", true),
            (&excluding("/private"), Read, "", false),
            (&backup, Write, ".old", true),
            (&backup, Read, ".old", false),
            (&volume, Write, "a", true),
            (&volume, Write, "", false),
        ] {
            assert_eq!(refused(demands, access, below), is_refused, "{demands:?} {access:?} {below}");
        }
    }
}
