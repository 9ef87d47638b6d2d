//! A run from one block device, or the image of one, to another: the same messages, feed, delta and workers as for a tree's large files, of
//! which the device's parts are some. There is nothing to scan, to plan or to delete, and nothing is staged.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use contract::{Action, EntryKind, Phase, PlannedAction, Report, RunParams, Usage};

use crate::{
    apply::Device,
    attrs::AttrsBuf,
    device::{self, Found, MAX_BYTES, Opened, Part},
    entry::{Kind, Meta},
    monitor::Monitor,
    path::RelPath,
    plan::{DirPlan, Step},
    report::{Counters, Failures, Stopwatch},
    root::Place,
    session::{
        local::{copy::copy_all, local_tree::LocalHashes},
        plan::{
            contents::{Checker, SourceHashes},
            kinds::{check_params, look, refuse_folder},
            need::{Fetch, Need, NeededDir, OldVersion},
            planned::PlannedDir,
        },
        reading::{hash_files::Expect, source_file::Origin},
        run::make_report::make_report,
        session_error::SessionError,
        sink::{
            receive::fetch,
            remote_tree::{RemoteHashes, expect_done, tell_planned},
            writing::{Store, Writing},
        },
    },
    transport::{Peer, TransportError},
    tree::dir::ROOT,
    wire::{Message, SourceDone},
};

/// Runs the sink's end over a connection, for a source of `len` bytes.
pub(crate) fn receive(
    place: &Place,
    len: u64,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    let images = params.demands.image;
    refuse_folder(place, look(place, "--destination-path", images)?, "the source", images)?;
    check_params(params)?;
    if !(1..=MAX_BYTES).contains(&len) {
        return Err(TransportError::Nonsense("a device has no bytes, or more than one may have").into());
    }
    let mut done = SourceDone::default();
    let mut run = Run { place, len, params, failures: Failures::default(), counters: Counters::default() };
    let mut hashes = RemoteHashes(control);
    let monitor = watch.monitor();
    let notes = match params.dry_run {
        true => run.rehearse(watch, &mut hashes, &mut |action| {
            tell_planned(control, params, monitor, vec![action])
        })?,
        false => run.change(watch, &mut hashes, &mut |writing, device| {
            if fetch::run(writing, peer, |fetch| fetch_all(device, fetch))? {
                done = expect_done(control)?;
            }
            Ok(())
        })?,
    };
    let mut report = run.report(watch, notes);
    report.work.bytes_on_wire = bytes_on_wire();
    report.usage = watch.sink_usage(done.usage);
    report.fill_rates();
    control.send(&Message::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// Syncs the device at `from` onto what is at `to`, in one process.
pub(crate) fn sync(
    from: &Place,
    to: &Place,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    watch.enter(Phase::Scan);
    let found = look(to, "--destination-path", params.image)?;
    refuse_folder(to, found, &format!("the source {}", from.path().display()), params.image)?;
    check_params(params)?;
    let opened = Opened::to_read(from).map_err(SessionError::SourceDevice)?;
    refuse_itself(&opened, from, to, found)?;
    let origin = Origin::Device(&opened);
    let mut hashes = LocalHashes { origin, monitor: watch.monitor() };
    let (len, monitor) = (opened.len(), watch.monitor());
    let mut run =
        Run { place: to, len, params, failures: Failures::default(), counters: Counters::default() };
    let notes = match params.dry_run {
        true => run.rehearse(watch, &mut hashes, &mut |action| {
            monitor.planned(&action);
            Ok(())
        })?,
        false => run.change(watch, &mut hashes, &mut |writing, device| {
            copy_all(writing, origin, |fetch| fetch_all(device, fetch))
        })?,
    };
    let mut report = run.report(watch, notes);
    report.usage = watch.sink_usage(Usage::default());
    report.fill_rates();
    Ok(report)
}

fn refuse_itself(opened: &Opened, from: &Place, to: &Place, found: Found) -> Result<(), SessionError> {
    let is_same = found.is_device() && Opened::look(to).is_ok_and(|there| there.is_same(opened));
    match is_same {
        true => Err(SessionError::SameTree(format!(
            "the destination {} is the source {}: name another destination",
            to.path().display(),
            from.path().display()
        ))),
        false => Ok(()),
    }
}

/// Asks for every part of a device.
fn fetch_all(device: &Device, fetch: &mut dyn Fetch) -> Result<(), SessionError> {
    let dir = Arc::new(NeededDir { source: ROOT, path: RelPath::root(), inode: 0, fill: None });
    for (index, part) in (0..).zip(device::parts(device.len())) {
        fetch.fetch(vec![need(&dir, index, part, !device.is_new())])?;
    }
    fetch.finish(Vec::new())
}

/// `replaces` is whether the destination has anything at the place of the part.
fn need(dir: &Arc<NeededDir>, index: u32, Part { start, len }: Part, replaces: bool) -> Need {
    let name: Box<[u8]> = Part { start, len }.name().into_bytes().into();
    let path = RelPath::root().join(&name).unwrap_or_default();
    let (meta, attrs) = (Meta::default(), AttrsBuf::default());
    let old = replaces.then_some(OldVersion::version(path, len));
    Need { dir: Arc::clone(dir), index, name, meta, size: len, attrs, replaces, old, aside: None }
}

/// What of a device differs, by the part.
#[derive(Debug, Default)]
struct Differences {
    parts: u64,
    bytes: u64,
    /// How many parts were not compared, because they changed at the source meanwhile.
    changed: u64,
}

/// The sink's end of a run.
struct Run<'a> {
    place: &'a Place,
    len: u64,
    params: &'a RunParams,
    failures: Failures,
    counters: Counters,
}

/// Moves the content of a device.
type Transfer<'a> = &'a mut dyn FnMut(Writing<'_>, &Device) -> Result<(), SessionError>;

impl Run<'_> {
    /// Makes the destination the source's copy, durably. Returns what is to be noted in the report.
    fn change(
        &mut self,
        watch: &mut Stopwatch<'_>,
        hashes: &mut dyn SourceHashes,
        transfer: Transfer<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let device = Device::take(self.place, self.len, self.params.preserve.sparse)?;
        device.grow()?;
        let monitor = watch.monitor();
        watch.enter(Phase::Transfer);
        monitor.set_totals(1, self.len);
        let store = Store::Device(&device);
        let writing = Writing { store, failures: &self.failures, counters: &self.counters, monitor };
        transfer(writing, &device)?;
        monitor.add_files(1);
        watch.enter(Phase::Commit);
        device.commit().map_err(SessionError::Commit)?;
        if device.is_new() || device.has_changed() {
            self.counters.count(!device.is_new());
        }
        if !self.params.verify {
            return Ok(Vec::new());
        }
        watch.enter(Phase::Plan);
        self.verify(device.opened(), hashes, Expect::OnVolume, None, monitor).map(|(notes, _)| notes)
    }

    /// Tells what a run would do, without doing it; with `--verify`, takes what differs as failures.
    fn rehearse(
        &mut self,
        watch: &mut Stopwatch<'_>,
        hashes: &mut dyn SourceHashes,
        tell: &mut dyn FnMut(PlannedAction) -> Result<(), TransportError>,
    ) -> Result<Vec<String>, SessionError> {
        let found = Found::at(self.place, true);
        let (mut notes, mut differences) =
            (Vec::new(), Differences { parts: 1, bytes: self.len, changed: 0 });
        if found.is_device() {
            let mut opened = Opened::look(self.place)?;
            if opened.is_block() {
                opened.holds(self.len, &self.place.path())?;
            }
            opened.limit(self.len);
            watch.enter(Phase::Delta);
            let update = Some(Step::Update);
            (notes, differences) = self.verify(&opened, hashes, Expect::SameSize, update, watch.monitor())?;
        }
        if differences.parts > 0 {
            let action = if found.is_device() { Action::Update } else { Action::Create };
            let kind = if found == Found::Device { EntryKind::Device } else { EntryKind::File };
            let path = self.place.path().display().to_string();
            self.counters.count(found.is_device());
            self.counters.bytes_changed.fetch_add(differences.bytes, Relaxed);
            tell(PlannedAction { action, kind, path, from: None, bytes: differences.bytes })?;
        }
        Ok(if self.params.verify { notes } else { Vec::new() })
    }

    /// Compares all of a device with the source, by hashes. Where that is asked for, what differs is a failure. Returns notes.
    fn verify(
        &self,
        opened: &Opened,
        hashes: &mut dyn SourceHashes,
        expect: Expect,
        changed: Option<Step>,
        monitor: &Monitor,
    ) -> Result<(Vec<String>, Differences), SessionError> {
        let checker = Checker { origin: Origin::Device(opened), failures: &self.failures, monitor, expect };
        let mut dirs = [all_parts(self.len)];
        let changed = checker.check(&mut dirs, hashes, changed)?;
        let mut differences = Differences { changed, ..Differences::default() };
        for (name, size) in differing(&dirs[0]) {
            differences.parts += 1;
            differences.bytes += size;
            if self.params.verify {
                self.failures.add(&name, "verify", &"its content differs");
            }
        }
        Ok((notes(self.len, &differences), differences))
    }

    fn report(&self, watch: &Stopwatch<'_>, notes: Vec<String>) -> Report {
        let totals = device::totals(self.len);
        let mut report =
            make_report(self.params, watch, &totals, &self.counters, &self.failures, None, notes);
        // However many of its parts failed, it is one file.
        report.work.files_failed = report.work.files_failed.min(1);
        report
    }
}

/// A device's parts, all of which are to be compared.
fn all_parts(len: u64) -> PlannedDir {
    let listing = device::tree(len).dirs.swap_remove(0).listing;
    let plan = DirPlan { checks: (0..listing.len() as u32).collect(), ..DirPlan::default() };
    PlannedDir { source: ROOT, sink: Some(ROOT), path: RelPath::root(), meta: Meta::default(), listing, plan }
}

/// The parts that something is to be done with, and their lengths.
fn differing(dir: &PlannedDir) -> Vec<(RelPath, u64)> {
    let mut steps = dir.plan.steps.iter().map(|(index, _)| *index).peekable();
    let listing = (0..).zip(&dir.listing).filter(|(index, _)| steps.next_if_eq(index).is_some());
    let parts = listing.map(|(_, entry)| {
        let size = if let Kind::File { size } = entry.kind { size } else { 0 };
        (RelPath::root().join(entry.name).unwrap_or_default(), size)
    });
    parts.collect()
}

fn notes(len: u64, Differences { parts, changed, .. }: &Differences) -> Vec<String> {
    let mut notes = vec![format!(
        "verified: {len} bytes were read back and compared with the source, {parts} parts of them differ"
    )];
    if *changed > 0 {
        notes.push(format!("{changed} parts changed at the source meanwhile and were not verified"));
    }
    notes
}
