//! Finds the entries that cannot be made, because an excluded entry of another kind has their name: the rules exclude a
//! directory but not the file of its name, or the reverse. The listings do not have what is excluded.

use std::{collections::HashSet, os::fd::AsFd as _};

use rustix::fs::{AtFlags, statat};

use super::planned::{Compared, PlannedDir, path_in};
use crate::{
    compare_entries::Step,
    entry::Kind,
    path::RelPath,
    sys::{
        listed_name::{Holder, holder},
        root::Root,
    },
    tree::Tree,
};

/// Removes the steps of such entries, and the directories below them, from a plan. Where the destination cannot be
/// looked into, the steps stay, and fail.
pub(crate) fn leave_out_clashes(compared: &mut Compared, sink: &Tree, root: &Root) {
    let mut clashes = Vec::new();
    for planned in &mut compared.dirs {
        let leaves_out = planned.sink.is_some_and(|dir| sink.dirs[dir as usize].leaves_out);
        if !leaves_out || !planned.plan.steps.iter().any(|(_, step)| *step == Step::Create) {
            continue;
        }
        for index in occupied(planned, root) {
            let Some(entry) = planned.listing.iter().nth(index as usize) else { continue };
            let path = path_in(&planned.path, entry.name);
            if !compared.moves.contains_key(&path) {
                planned.plan.set_step(index, None);
                clashes.push(path);
            }
        }
    }
    if !clashes.is_empty() {
        compared.dirs.retain(|dir| !clashes.iter().any(|clash| dir.path.starts_with(clash)));
        compared.clashes.append(&mut clashes);
    }
}

/// Removes the steps of further names of files that are left out, which would become names of what the destination has
/// in their places, and records them. Call it once links are settled.
pub(crate) fn leave_out_links(compared: &mut Compared) {
    let Compared { dirs, clashes, unlinked, .. } = compared;
    if clashes.is_empty() && unlinked.is_empty() {
        return;
    }
    let clashes: HashSet<&RelPath> = clashes.iter().collect();
    let mut left_out: HashSet<RelPath> = unlinked.drain(..).collect();
    for planned in dirs {
        let mut links = Vec::new();
        for (index, entry) in (0..).zip(&planned.listing) {
            if let (Kind::HardLink { to }, Some(_)) = (entry.kind, planned.plan.step(index)) {
                let path = path_in(&planned.path, entry.name);
                if left_out.contains(&path) || RelPath::parse(to).is_ok_and(|to| is_below(to, &clashes)) {
                    links.push(index);
                    left_out.insert(path);
                }
            }
        }
        links.into_iter().for_each(|index| planned.plan.set_step(index, None));
    }
    unlinked.extend(left_out);
    unlinked.sort_unstable();
}

/// Returns whether a path is one of these, or below one.
fn is_below(mut path: RelPath, those: &HashSet<&RelPath>) -> bool {
    loop {
        match path.split_last() {
            _ if those.contains(&path) => return true,
            Some((dir, _)) => path = dir,
            None => return false,
        }
    }
}

/// Returns the indices of entries that are to be made, and whose names the directory has.
fn occupied(planned: &PlannedDir, root: &Root) -> Vec<u32> {
    let Ok(dir) = root.dir(&planned.path) else { return Vec::new() };
    let mut steps = planned.plan.steps.iter().filter(|(_, step)| *step == Step::Create).peekable();
    let entries = (0..).zip(&planned.listing);
    let created = entries.filter(|(index, _)| steps.next_if(|(at, _)| at == index).is_some());
    // A name that only differs in case from an excluded one, or from one that is deleted first, is no clash.
    let is_itself = |name| holder(dir.as_fd(), name).is_ok_and(|holder| holder == Holder::Itself);
    let is_there = |name| statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok() && is_itself(name);
    created.filter(|(_, entry)| is_there(entry.name)).map(|(index, _)| index).collect()
}
