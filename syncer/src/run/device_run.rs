//! A run onto a device or an image, which is written to in parts, or only compared by a dry run. It has no listing,
//! deletes or staging.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use contract::{Action, DeviceContent, EntryKind, Phase, PlannedAction, Report, human};

use crate::{
    attrs::AttrsBuf,
    compare_entries::{DirPlan, Step},
    destination::Device,
    entry::{Kind, Meta},
    measure::report::Stopwatch,
    path::RelPath,
    plan::{
        compare_contents::Checker,
        compare_params::work_of,
        needed_files::{Fetch, Need, NeededDir, OldVersion},
        planned::PlannedDir,
        run_state::Run,
    },
    run::{
        find_device_base,
        make_report::{add_usage, make_report},
    },
    session_error::SessionError,
    sink::{
        source_end::ContentEnd,
        writing::{WriteTarget, Writing},
    },
    source::{hash_files::Expect, source_file::Origin},
    sys::{
        block_device::{self, DevicePart, Opened, PathKind},
        root::TreeLocation,
    },
    tree::dir::ROOT,
    wire::Forecast,
};

/// Runs from `source`, a device of `len` bytes, onto the device or image at `place`, or compares both in a dry run.
pub(crate) fn run(
    mut source: impl ContentEnd,
    place: &TreeLocation,
    len: u64,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let done = if run.params.dry_run {
        let there = found(place, len)?;
        begin(watch);
        compare(&mut source, place, len, there.as_ref(), run)
    } else {
        let mut device = Device::take(place, len, run.params.preserve.sparse)?;
        if let Some(changed) = &run.params.changed_blocks {
            device.list_changed(&changed.ranges)?;
        }
        begin(watch);
        write(&mut source, &device, run, watch)
    };
    let totals = block_device::totals(len);
    watch.did(work_of(&totals, &run.counters));
    let Done { notes, content } = done?;
    run.note(notes);
    let mut report = Report { content, ..make_report(run, watch, &totals) };
    // All failed parts are one failed file.
    report.work.files_failed = report.work.files_failed.min(1);
    add_usage(&mut report, &source, run, watch);
    source.send_report(&report)?;
    Ok(report)
}

/// Enters the phases before the transfer: there is nothing to scan, and granules find the differences later.
fn begin(watch: &mut Stopwatch<'_>) {
    watch.enter(Phase::Scan);
    watch.inspect_limits();
    watch.enter(Phase::Plan);
    watch.enter(Phase::Delta);
}

/// Writes to the device.
fn write(
    source: &mut impl ContentEnd,
    device: &Device,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Done, SessionError> {
    device.grow()?;
    let base = find_device_base::prove(device, run)?;
    let parts: Vec<_> = match base {
        Some(_) => device.opened().changed_parts().collect(),
        None => (0..).zip(block_device::parts(device.len())).collect(),
    };
    watch.enter(Phase::Transfer);
    let bytes: u64 = parts.iter().map(|(_, part)| part.len).sum();
    run.monitor.set_totals(1, bytes);
    source.announce(Forecast { files: parts.len().min(1) as u64, bytes })?;
    let writing = Writing { store: WriteTarget::Device(device), run, written: None };
    source.transfer(writing, &mut |fetch| fetch_all(device, &parts, fetch))?;
    run.monitor.add_files(1);
    watch.enter(Phase::Apply);
    watch.enter(Phase::Commit);
    device.commit().map_err(SessionError::Commit)?;
    if device.is_new() || device.has_changed() {
        run.counters.count(!device.is_new());
    }
    let content = find_device_base::content_of(device, base, run)?;
    if !run.params.verify {
        return Ok(Done { notes: Vec::new(), content });
    }
    watch.enter(Phase::Plan);
    let mut dirs = [all_parts(device.len())];
    let checked = checker(device.opened(), Expect::OnVolume, run).check(&mut dirs, source, None)?;
    let differences = Differences::of(&dirs[0], checked.changed, run);
    let content = content.filter(|_| differences.parts == 0);
    Ok(Done { notes: differences.notes(device.len()), content })
}

/// Notes for the report, and the content that is at the destination then.
struct Done {
    notes: Vec<String>,
    content: Option<DeviceContent>,
}

/// Opens the destination of a dry run, which need not exist.
fn found(place: &TreeLocation, len: u64) -> Result<Option<Opened>, SessionError> {
    if !PathKind::at(place, true).is_device() {
        return Ok(None);
    }
    let mut opened = Opened::to_inspect(place)?;
    if opened.is_block() {
        opened.holds(len, &place.path())?;
    }
    opened.limit(len);
    Ok(Some(opened))
}

/// Shows what a run would do to the device at `place`, which is open as `there`.
fn compare(
    source: &mut impl ContentEnd,
    place: &TreeLocation,
    len: u64,
    there: Option<&Opened>,
    run: &Run<'_>,
) -> Result<Done, SessionError> {
    let differences = match there {
        Some(opened) => {
            let mut dirs = [all_parts(len)];
            let checked =
                checker(opened, Expect::SameSize, run).check(&mut dirs, source, Some(Step::Update))?;
            Differences::of(&dirs[0], checked.changed, run)
        }
        None => Differences { parts: 1, bytes: len, changed: 0 },
    };
    let is_there = there.is_some();
    if differences.parts > 0 {
        let action = if is_there { Action::Update } else { Action::Create };
        let kind = match PathKind::at(place, true) {
            PathKind::Device => EntryKind::Device,
            _ => EntryKind::File,
        };
        let (path, bytes) = (place.path().display().to_string(), differences.bytes);
        run.counters.count(is_there);
        run.counters.bytes_changed.fetch_add(bytes, Relaxed);
        let (from, target, differs) = (None, None, Vec::new());
        let action = PlannedAction { action, kind, path, from, target, bytes, differs };
        source.report_actions(run, vec![action])?;
    }
    let mut notes = if run.params.verify && is_there { differences.notes(len) } else { Vec::new() };
    if run.params.changed_blocks.is_some() {
        notes.push("a dry run compares everything, not only the changed blocks".into());
    }
    Ok(Done { notes, content: None })
}

fn checker<'a>(opened: &'a Opened, expect: Expect, run: &'a Run<'_>) -> Checker<'a> {
    Checker { origin: Origin::Device(opened), failures: &run.failures, monitor: run.monitor, expect }
}

/// The parts of a device that differ.
#[derive(Debug)]
struct Differences {
    parts: u64,
    bytes: u64,
    /// The number of parts that were not compared, because they changed at the source meanwhile.
    changed: u64,
}

impl Differences {
    /// Adds up the parts that differ. If the run is to verify, records a failure for each.
    fn of(parts: &PlannedDir, changed: u64, run: &Run<'_>) -> Self {
        let mut differences = Self { parts: 0, bytes: 0, changed };
        for (_, entry) in parts.steps() {
            differences.parts += 1;
            differences.bytes += if let Kind::File { size } = entry.kind { size } else { 0 };
            if run.params.verify {
                let path = RelPath::root().join(entry.name).unwrap_or_default();
                run.failures.add(&path, "verify", &"its content differs");
            }
        }
        differences
    }

    fn notes(&self, len: u64) -> Vec<String> {
        let Self { parts, changed, .. } = self;
        let mut notes = vec![format!(
            "verified: {} were read back and compared with the source, {}",
            human::bytes(len),
            human::plural(*parts, "part of them differs", "parts of them differ")
        )];
        if *changed > 0 {
            let (one, many) = (
                "part changed at the source meanwhile and was",
                "parts changed at the source meanwhile and were",
            );
            notes.push(format!("{} not verified", human::plural(*changed, one, many)));
        }
        notes
    }
}

/// Requests these parts of a device, each with its number among all.
fn fetch_all(
    device: &Device,
    parts: &[(u32, DevicePart)],
    fetch: &mut dyn Fetch,
) -> Result<(), SessionError> {
    let dir = Arc::new(NeededDir { source: ROOT, path: RelPath::root(), inode: 0, fill: None });
    for (index, part) in parts {
        fetch.fetch(vec![need(&dir, *index, *part, !device.is_new())])?;
    }
    fetch.finish(Vec::new())
}

/// Returns the request for a part. `replaces` says that the destination has content there already.
fn need(dir: &Arc<NeededDir>, index: u32, part: DevicePart, replaces: bool) -> Need {
    let (name, len): (Box<[u8]>, _) = (part.name().into_bytes().into(), part.len);
    let path = RelPath::root().join(&name).unwrap_or_default();
    let (meta, attrs) = (Meta::default(), AttrsBuf::default());
    let old = replaces.then_some(OldVersion::version(path, len));
    Need { dir: Arc::clone(dir), index, name, meta, size: len, attrs, replaces, old, aside: None }
}

/// Returns a plan that compares all parts of a device.
fn all_parts(len: u64) -> PlannedDir {
    let listing = block_device::tree(len).dirs.swap_remove(0).listing;
    let plan = DirPlan { checks: (0..listing.len() as u32).collect(), ..DirPlan::default() };
    PlannedDir { source: ROOT, sink: Some(ROOT), path: RelPath::root(), meta: Meta::default(), listing, plan }
}
