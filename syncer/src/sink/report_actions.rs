//! Reports the actions of a plan, to the user of a dry run or of a run that shows its changes.

use std::{collections::HashSet, iter::Peekable, sync::atomic::Ordering::Relaxed};

use contract::{Action, DeleteTiming, EntryKind, PlannedAction, RunParams};

use crate::{
    compare_entries::{Policy, Step, differences},
    destination::Settings,
    entry::{Entry, Kind},
    listing::Entries,
    measure::failures::Failures,
    path::{self, RelPath},
    plan::{
        compare_params::{policy, same_meta},
        planned::{Compared, MovedDir, Planned, PlannedDir, entries_below, path_in},
    },
    report::Counters,
    session_error::SessionError,
    transport::TransportError,
    tree::{Tree, dir::DirId, seek::seek},
    wire::TreeHead,
};

/// Actions are sent in batches of this many, so that a plan of any size takes little memory.
const BATCH: usize = 256;

/// The path of the root in an action.
const ROOT: &str = ".";

/// Receives actions.
pub(crate) type ReportActions<'a> = dyn FnMut(Vec<PlannedAction>) -> Result<(), TransportError> + 'a;

/// The conditions on which it depends which actions of a plan are carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    /// Whether the destination does not exist yet.
    pub is_new: bool,
    /// Whether failures keep deletes back.
    pub keeps_back: bool,
    /// Whether deletes are reported.
    pub deletes: bool,
}

impl Judged {
    /// Judges a plan by the failures so far, and by those that are certain.
    pub(crate) fn of(plan: &Planned, params: &RunParams, failures: &Failures, is_new: bool) -> Self {
        let has_failed = failures.count() > 0;
        let fails = has_failed || plan.blocked_by_folders(params.delete).next().is_some();
        let keeps_back = fails && !params.deletes_anyway();
        // Later failures do not keep back deletes that come first.
        let deletes_first = params.delete_timing == DeleteTiming::Before && !has_failed;
        Self { is_new, keeps_back, deletes: !keeps_back || deletes_first }
    }
}

/// Reports the actions that a run is about to take, before it takes any. Later failures are named by the report.
pub(crate) fn report_changes(
    plan: &Planned,
    params: &RunParams,
    settings: Settings,
    failures: &Failures,
    report: &mut ReportActions<'_>,
) -> Result<(), SessionError> {
    let judged = Judged::of(plan, params, failures, false);
    // The run counts its actions when it carries them out.
    Ok(report_plan(plan, judged, params, settings, &Counters::default(), report)?)
}

/// Reports every action of `plan`, and counts it as if it were carried out.
pub(crate) fn report_plan(
    plan: &Planned,
    judged: Judged,
    params: &RunParams,
    settings: Settings,
    counters: &Counters,
    report: &mut ReportActions<'_>,
) -> Result<(), TransportError> {
    let Planned { compared, sink, .. } = plan;
    let policy = policy(params, settings);
    let mut reporter = ActionReporter { settings, policy, counters, reported: Vec::new(), report };
    reporter.root(judged.is_new, plan)?;
    let mut staying = entries_that_stay(plan, judged.keeps_back, params.delete);
    staying.extend(names_of_staying(plan, judged, params.delete).into_iter().map(|(path, _)| path));
    for dir in &compared.dirs {
        // What is brought for a folder that does not get its place is dropped.
        let is_dropped = staying.contains(&dir.path);
        let below = dir.listing.iter().filter(|entry| is_dropped && entry.kind == Kind::Dir);
        staying.extend(below.map(|entry| path_in(&dir.path, entry.name)));
        if !is_dropped {
            reporter.steps(dir, compared, sink, &staying)?;
        }
    }
    for dir in compared.dirs.iter().filter(|_| judged.deletes) {
        reporter.deletes(dir, compared, sink, params.delete && !judged.keeps_back, &staying)?;
    }
    reporter.flush()
}

/// Returns the paths of entries that stay, although the plan replaces them, because deletes are kept back or may not
/// take all that is in a folder.
fn entries_that_stay(plan: &Planned, keeps_back: bool, delete: bool) -> HashSet<RelPath> {
    let Planned { compared, sink, .. } = plan;
    let mut staying: HashSet<RelPath> = plan.blocked_by_folders(delete).collect();
    for dir in compared.dirs.iter().filter(|_| keeps_back) {
        let full = |id| entries_below(sink, id, &compared.kept) > 0;
        let folders = dir.replaced_in(sink).filter(|(_, id)| full(*id)).map(|(name, _)| name);
        let by_folders = |(step, entry): &(Step, Entry<'_>)| {
            matches!(step, Step::Replace { .. }) && entry.kind == Kind::Dir
        };
        let others = dir.steps().filter(by_folders).map(|(_, entry)| entry.name);
        staying.extend(folders.chain(others).map(|name| path_in(&dir.path, name)));
    }
    staying
}

/// Returns the further names of entries whose first one does not get its place, because a folder stays there: each with
/// the first.
pub(crate) fn names_of_staying(plan: &Planned, judged: Judged, delete: bool) -> Vec<(RelPath, RelPath)> {
    let staying = entries_that_stay(plan, judged.keeps_back, delete);
    let dirs = plan.compared.dirs.iter().filter(|_| !staying.is_empty());
    let names = dirs.flat_map(|dir| dir.steps().map(move |(_, entry)| (&dir.path, entry)));
    let firsts = names.filter_map(|(dir, entry)| {
        let Kind::HardLink { to } = entry.kind else { return None };
        Some((path_in(dir, entry.name), RelPath::parse(to).ok()?))
    });
    firsts.filter(|(_, first)| staying.contains(first)).collect()
}

struct ActionReporter<'a> {
    settings: Settings,
    policy: Policy,
    counters: &'a Counters,
    reported: Vec<PlannedAction>,
    report: &'a mut ReportActions<'a>,
}

impl ActionReporter<'_> {
    /// Reports the action on the root itself, which is in no listing.
    fn root(&mut self, is_new: bool, Planned { head, sink, .. }: &Planned) -> Result<(), TransportError> {
        if is_new {
            return self.push(planned(Action::Create, EntryKind::Folder, &RelPath::root()));
        }
        if same_root(head, sink, self.settings) {
            return Ok(());
        }
        let entry = |meta, attrs| Entry { name: b"", kind: Kind::Dir, meta, attrs };
        let source = entry(head.root_meta, head.root_attrs.as_attrs());
        let there = entry(sink.root_meta, sink.root_attrs.as_attrs());
        let differs = differences(&source, &there, Step::Meta, self.policy);
        let action = planned(Action::SetMetadata, EntryKind::Folder, &RelPath::root());
        self.push(PlannedAction { differs, ..action })
    }

    fn push(&mut self, planned: PlannedAction) -> Result<(), TransportError> {
        let counter = match planned.action {
            Action::Create => &self.counters.created,
            Action::Update | Action::Replace | Action::SetMetadata => &self.counters.updated,
            Action::Delete | Action::Move => &self.counters.deleted,
        };
        counter.fetch_add(u64::from(planned.path != ROOT), Relaxed);
        self.counters.bytes_changed.fetch_add(planned.bytes, Relaxed);
        self.hand_on(planned)
    }

    /// Reports the move of a folder with all its entries.
    fn push_move(&mut self, moved: &MovedDir, to: &RelPath) -> Result<(), TransportError> {
        moved.count(self.counters);
        self.counters.created.fetch_add(1, Relaxed);
        let from = Some(moved.from.to_string());
        self.hand_on(PlannedAction { from, ..planned(Action::Move, EntryKind::Folder, to) })
    }

    fn hand_on(&mut self, action: PlannedAction) -> Result<(), TransportError> {
        self.reported.push(action);
        if self.reported.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        if self.reported.is_empty() { Ok(()) } else { (self.report)(std::mem::take(&mut self.reported)) }
    }

    /// Reports the steps of a directory, except for those that would replace `staying` ones.
    fn steps(
        &mut self,
        dir: &PlannedDir,
        compared: &Compared,
        sink: &Tree,
        staying: &HashSet<RelPath>,
    ) -> Result<(), TransportError> {
        let mut there = dir.sink.map(|id| sink.dirs[id as usize].listing.iter().peekable());
        for (step, entry) in dir.steps() {
            let path = path_in(&dir.path, entry.name);
            if staying.contains(&path) {
                continue;
            }
            let action = match step {
                Step::Create => Action::Create,
                Step::Replace { .. } => Action::Replace,
                Step::Update => Action::Update,
                Step::Meta => Action::SetMetadata,
            };
            let bytes = match entry.kind {
                Kind::File { size } if step != Step::Meta => size,
                _ => 0,
            };
            match compared.moves.get(&path).filter(|_| entry.kind == Kind::Dir) {
                Some(moved) => self.push_move(moved, &path)?,
                None => {
                    let old = there.as_mut().and_then(|there| entry_in(there, entry.name));
                    let old = old.filter(|old| old.kind.same_kind(&entry.kind));
                    let differs = old.map(|old| differences(&entry, &old, step, self.policy));
                    let (differs, target) = (differs.unwrap_or_default(), target_of(&entry));
                    let action = planned(action, kind_of(&entry), &path);
                    self.push(PlannedAction { target, bytes, differs, ..action })?;
                }
            }
        }
        Ok(())
    }

    /// Reports the deletes: entries that the source does not have, and entries below a directory that is replaced.
    fn deletes(
        &mut self,
        dir: &PlannedDir,
        compared: &Compared,
        sink: &Tree,
        delete: bool,
        staying: &HashSet<RelPath>,
    ) -> Result<(), TransportError> {
        let Some(id) = dir.sink else { return Ok(()) };
        let replaced = if delete { dir.replaced_dirs() } else { Default::default() };
        let mut deletes = dir.plan.deletes.iter().peekable();
        let mut child = sink.dirs[id as usize].first_child;
        for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
            let is_dir = entry.kind == Kind::Dir;
            let goes = deletes.next_if(|&&at| at == index).is_some();
            let path = path_in(&dir.path, entry.name);
            let mut empties = true;
            if is_dir && (goes || replaced.contains(entry.name) && !staying.contains(&path)) {
                empties = self.deletes_below(child, &path, compared, sink)?;
            }
            if goes && empties {
                self.push(planned(Action::Delete, kind_of(&entry), &path))?;
            }
            child += u32::from(is_dir);
        }
        Ok(())
    }

    /// Reports the deletes below a directory. Returns whether the directory would be empty. The lengths of paths, and
    /// so the depth, are limited.
    fn deletes_below(
        &mut self,
        id: DirId,
        path: &RelPath,
        compared: &Compared,
        sink: &Tree,
    ) -> Result<bool, TransportError> {
        let dir = &sink.dirs[id as usize];
        let mut empties = !dir.leaves_out && dir.listing.is_complete();
        let mut child = dir.first_child;
        for (index, entry) in (0..).zip(&dir.listing) {
            let is_dir = entry.kind == Kind::Dir;
            let path = path_in(path, entry.name);
            let goes = !compared.kept.contains(&(id, index))
                && (!is_dir || self.deletes_below(child, &path, compared, sink)?);
            if goes {
                self.push(planned(Action::Delete, kind_of(&entry), &path))?;
            }
            empties &= goes;
            child += u32::from(is_dir);
        }
        Ok(empties)
    }
}

/// Returns whether the root itself has the wanted metadata and attributes.
fn same_root(head: &TreeHead, sink: &Tree, settings: Settings) -> bool {
    let same_attrs = head.root_attrs.as_attrs().same(&sink.root_attrs.as_attrs(), settings.attrs);
    same_meta(&head.root_meta, &sink.root_meta, settings) && same_attrs
}

/// Creates an action on an entry, without details.
fn planned(action: Action, kind: EntryKind, path: &RelPath) -> PlannedAction {
    let (from, target, bytes, differs) = (None, None, 0, Vec::new());
    PlannedAction { action, kind, path: path.to_string(), from, target, bytes, differs }
}

/// Finds the entry of this name in a listing that is read once, in order.
fn entry_in<'t>(there: &mut Peekable<Entries<'t>>, name: &[u8]) -> Option<Entry<'t>> {
    seek(there, name, |entry| entry.name)
}

/// Returns the target of a link as text.
fn target_of(entry: &Entry<'_>) -> Option<String> {
    match entry.kind {
        Kind::Symlink { target } => Some(path::display(target)),
        Kind::HardLink { to } => Some(path::display(to)),
        _ => None,
    }
}

fn kind_of(entry: &Entry<'_>) -> EntryKind {
    match entry.kind {
        Kind::File { .. } => EntryKind::File,
        Kind::Dir => EntryKind::Folder,
        Kind::Symlink { .. } => EntryKind::Link,
        Kind::Fifo => EntryKind::Fifo,
        Kind::CharDevice { .. } | Kind::BlockDevice { .. } => EntryKind::Device,
        Kind::Socket => EntryKind::Socket,
        Kind::HardLink { .. } => EntryKind::HardLink,
    }
}
