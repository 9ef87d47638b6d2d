//! What is printed about a move: the plan, what is left of it, and how it ended. Pure.

use super::{
    super::{error::PluginError, move_args::WorkloadKind},
    new_volume,
    record::{MoveRecord, MovedClaim, Stage},
};

/// Returns the plan of a move that has not begun.
pub(super) fn plan(record: &MoveRecord, verify: bool) -> Vec<String> {
    let MoveRecord { workload, class, replicas, claims, .. } = record;
    let mut lines = vec![format!("{workload} moves to storage class {class}:")];
    for claim in claims {
        let from = claim.field("/spec/storageClassName").as_str().unwrap_or("no class");
        let size = claim.field("/spec/resources/requests/storage").as_str().unwrap_or_default();
        lines.push(format!("  claim {}, {size} of {from}, volume {}", claim.name, claim.old_volume));
    }
    let stops_first = claims.iter().any(|claim| claim.has_mode("ReadWriteOncePod"));
    let copied = if stops_first {
        "stop the workload, whose claims only one pod may use, and copy each claim to a new one"
    } else {
        "copy each claim to a new one, while the workload runs"
    };
    let compared = if verify { ", and compare all content by checksums until nothing differs" } else { "" };
    lines.extend(numbered(&[
        copied.to_string(),
        format!("scale from {replicas} to 0: from here on it is down"),
        format!("copy what has changed since{compared}"),
        "give each claim's name to the new volume; both volumes are retained".into(),
        match workload.kind {
            WorkloadKind::StatefulSet => {
                format!("make the StatefulSet anew with class {class} in its templates")
            }
            WorkloadKind::Deployment => {
                "leave the Deployment as it is: the claims have their old names".into()
            }
        },
        format!("scale to {replicas} again, and wait until it is ready"),
    ]));
    lines.push("The old volumes stay for the way back (--back), until --forget.".into());
    lines
}

/// Returns what is left of a move that has begun. `flags` lead to its namespace.
pub(super) fn rest(record: &MoveRecord, is_forgotten: bool, flags: &str) -> Vec<String> {
    let MoveRecord { workload, class, stage, is_back, claims, .. } = record;
    if is_forgotten {
        let kept = claims.iter().filter_map(|claim| kept_volume(record, claim).ok()).collect::<Vec<_>>();
        return vec![format!(
            "{workload}: the storage deletes these volumes if their class says so: {}",
            kept.join(", ")
        )];
    }
    if *stage == Stage::Moved {
        return end(record, flags);
    }
    if !*is_back {
        return vec![format!("The move of {workload} to storage class {class} goes on: {}.", doing(record))];
    }
    if *stage == Stage::Start && !super::was_swapped(record) {
        return vec![format!("{workload} starts as it was. The copies are deleted.")];
    }
    let mut lines = vec![format!("{workload} goes back to its old volumes:")];
    lines.extend(claims.iter().map(|claim| format!("  claim {} on volume {}", claim.name, claim.old_volume)));
    lines.push("What was written since the move stays on the new volumes, which are kept.".into());
    lines
}

/// Returns what happens in the present stage.
pub(super) fn doing(record: &MoveRecord) -> String {
    let verb = if record.is_back { "go back" } else { "go on" };
    match record.stage {
        Stage::Copy => "the claims are copied while the workload runs".into(),
        Stage::Stop => "the workload is stopped".into(),
        Stage::Verify => "the rest is copied and compared".into(),
        Stage::Swap => "the claims get their other volumes".into(),
        Stage::Template => "the templates get the other class".into(),
        Stage::Start => format!("the workload is scaled to {}", record.replicas),
        Stage::Moved => format!("there is nothing to {verb} with"),
    }
}

/// Returns how a move ended.
pub(super) fn end(record: &MoveRecord, flags: &str) -> Vec<String> {
    let MoveRecord { workload, class, is_back, claims, .. } = record;
    let mut lines = vec![if *is_back {
        format!("{workload} is on its old volumes again.")
    } else {
        format!("{workload} is on storage class {class}.")
    }];
    for claim in claims {
        if let Ok(volume) = kept_volume(record, claim) {
            lines.push(format!("  volume {volume} of claim {} is kept", claim.name));
        }
    }
    let back = if *is_back { "" } else { "`--back` goes back to them; " };
    lines.push(format!("{back}`kubectl volferry move{flags} {workload} --forget --apply` lets go of them."));
    lines
}

/// Returns the volume that a claim does not have, once all is done.
pub(super) fn kept_volume<'a>(record: &MoveRecord, claim: &'a MovedClaim) -> Result<&'a str, PluginError> {
    if record.is_back { new_volume(claim) } else { Ok(&claim.old_volume) }
}

fn numbered(steps: &[String]) -> Vec<String> {
    steps.iter().enumerate().map(|(at, step)| format!("  {}. {step}", at + 1)).collect()
}
