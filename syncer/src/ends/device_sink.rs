//! A device or image as a destination: written to in parts, or only compared by a dry run. It has no listing, deletes
//! or staging.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use contract::{Action, EntryKind, PlannedAction, Report, human_bytes::bytes as human_bytes, plural};

use crate::{
    attrs::AttrsBuf,
    compare_entries::{DirPlan, Step},
    destination::Device,
    entry::{Kind, Meta},
    path::RelPath,
    plan::{
        compare_contents::{Checker, SourceHashes},
        needed_files::{Fetch, Need, NeededDir, OldVersion},
        planned::{Checked, Compared, Planned, PlannedDir},
        source_tree::SourceTree,
    },
    session_error::SessionError,
    sink::{
        traits::{Changes, NoChanges, Run, SinkEnd, SourceEnd},
        writing::{WriteTarget, Writing},
    },
    source::{hash_files::Expect, source_file::Origin},
    sys::{
        block_device::{self, DevicePart, Opened, PathKind},
        root::{Root, TreeLocation},
    },
    tree::{
        Tree,
        dir::{ROOT, Totals},
    },
    wire::{Forecast, TreeHead},
};

/// A device that is written to.
pub(crate) struct DeviceSink(Device);

impl DeviceSink {
    pub(crate) fn take(place: &TreeLocation, len: u64, run: &Run<'_>) -> Result<Self, SessionError> {
        Ok(Self(Device::take(place, len, run.params.preserve.sparse)?))
    }
}

impl SinkEnd for DeviceSink {
    type Changes<'a> = DeviceChanges<'a>;

    fn scan(&self, _: &Run<'_>) -> Result<Tree, SessionError> {
        Ok(Tree::empty())
    }

    /// Plans nothing: granules find the differences during the transfer.
    fn compare(
        &self,
        _: &mut impl SourceTree,
        _: &TreeHead,
        _: &Tree,
        _: &Run<'_>,
    ) -> Result<Compared, SessionError> {
        Ok(Compared::default())
    }

    fn compare_contents(
        &self,
        _: &mut Compared,
        _: &Tree,
        _: &mut dyn SourceHashes,
        _: &Run<'_>,
    ) -> Result<Checked, SessionError> {
        Ok(Checked::default())
    }

    fn root(&self) -> Option<&Root> {
        None
    }

    fn guard(&self, _: &Planned, _: &mut impl SourceEnd, _: &Run<'_>) -> Result<Vec<String>, SessionError> {
        Ok(Vec::new())
    }

    fn begin<'a>(
        &'a self,
        _: &'a Planned,
        run: &'a Run<'_>,
    ) -> Result<Option<DeviceChanges<'a>>, SessionError> {
        self.0.grow()?;
        Ok(Some(DeviceChanges { device: &self.0, run }))
    }

    /// Does nothing, because writes to a device need no cleaning up.
    fn give_up(&self, _: &Run<'_>) {}

    fn verify(
        &self,
        source: &mut impl SourceEnd,
        _: &Planned,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let mut dirs = [all_parts(self.0.len())];
        let checked = checker(self.0.opened(), Expect::OnVolume, run).check(&mut dirs, source, None)?;
        Ok(Differences::of(&dirs[0], checked.changed, run).notes(self.0.len()))
    }

    fn totals(&self, _: &TreeHead) -> Totals {
        block_device::totals(self.0.len())
    }

    fn complete(&self, report: &mut Report) {
        count_once(report);
    }

    fn close(self) {}
}

/// A device that is being written to.
pub(crate) struct DeviceChanges<'a> {
    device: &'a Device,
    run: &'a Run<'a>,
}

impl Changes for DeviceChanges<'_> {
    fn transfer(&mut self, source: &mut impl SourceEnd) -> Result<(), SessionError> {
        let (device, run) = (self.device, self.run);
        run.monitor.set_totals(1, device.len());
        source.announce(Forecast { files: 1, bytes: device.len() })?;
        let (failures, counters, monitor) = (&run.failures, &run.counters, run.monitor);
        let store = WriteTarget::Device(device);
        let writing = Writing { store, failures, counters, monitor, written: None };
        source.transfer(writing, &mut |fetch| fetch_all(device, fetch))?;
        monitor.add_files(1);
        Ok(())
    }

    fn apply(&mut self) -> Result<(), SessionError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SessionError> {
        let device = self.device;
        device.commit().map_err(SessionError::Commit)?;
        if device.is_new() || device.has_changed() {
            self.run.counters.count(!device.is_new());
        }
        Ok(())
    }
}

/// A device that a dry run compares, and that need not exist.
pub(crate) struct DryDevice<'a> {
    place: &'a TreeLocation,
    len: u64,
    found: PathKind,
    opened: Option<Opened>,
}

impl<'a> DryDevice<'a> {
    pub(crate) fn look(place: &'a TreeLocation, len: u64) -> Result<Self, SessionError> {
        let found = PathKind::at(place, true);
        let opened = match found.is_device() {
            true => Some(looked_at(place, len)?),
            false => None,
        };
        Ok(Self { place, len, found, opened })
    }
}

fn looked_at(place: &TreeLocation, len: u64) -> Result<Opened, SessionError> {
    let mut opened = Opened::look(place)?;
    if opened.is_block() {
        opened.holds(len, &place.path())?;
    }
    opened.limit(len);
    Ok(opened)
}

impl SinkEnd for DryDevice<'_> {
    type Changes<'c>
        = NoChanges
    where
        Self: 'c;

    fn scan(&self, _: &Run<'_>) -> Result<Tree, SessionError> {
        Ok(Tree::empty())
    }

    fn compare(
        &self,
        _: &mut impl SourceTree,
        _: &TreeHead,
        _: &Tree,
        _: &Run<'_>,
    ) -> Result<Compared, SessionError> {
        let dirs = self.opened.iter().map(|_| all_parts(self.len)).collect();
        Ok(Compared { dirs, ..Compared::default() })
    }

    fn compare_contents(
        &self,
        compared: &mut Compared,
        _: &Tree,
        source: &mut dyn SourceHashes,
        run: &Run<'_>,
    ) -> Result<Checked, SessionError> {
        let Some(opened) = &self.opened else { return Ok(Checked::default()) };
        checker(opened, Expect::SameSize, run).check(&mut compared.dirs, source, Some(Step::Update))
    }

    fn root(&self) -> Option<&Root> {
        None
    }

    fn guard(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let differences = match plan.compared.dirs.first() {
            Some(parts) => Differences::of(parts, plan.checked.changed, run),
            None => Differences { parts: 1, bytes: self.len, changed: 0 },
        };
        let is_there = self.opened.is_some();
        if differences.parts > 0 {
            let action = if is_there { Action::Update } else { Action::Create };
            let kind = if self.found == PathKind::Device { EntryKind::Device } else { EntryKind::File };
            let (path, bytes) = (self.place.path().display().to_string(), differences.bytes);
            run.counters.count(is_there);
            run.counters.bytes_changed.fetch_add(bytes, Relaxed);
            let (from, target, differs) = (None, None, Vec::new());
            source.tell(run, vec![PlannedAction { action, kind, path, from, target, bytes, differs }])?;
        }
        Ok(if run.params.verify && is_there { differences.notes(self.len) } else { Vec::new() })
    }

    fn begin<'a>(&'a self, _: &'a Planned, _: &'a Run<'_>) -> Result<Option<NoChanges>, SessionError> {
        Ok(None)
    }

    fn give_up(&self, _: &Run<'_>) {}

    /// Returns no notes: nothing was changed, and the guard has compared all of it.
    fn verify(&self, _: &mut impl SourceEnd, _: &Planned, _: &Run<'_>) -> Result<Vec<String>, SessionError> {
        Ok(Vec::new())
    }

    fn totals(&self, _: &TreeHead) -> Totals {
        block_device::totals(self.len)
    }

    fn complete(&self, report: &mut Report) {
        count_once(report);
    }

    fn close(self) {}
}

/// Counts all failed parts of a device as one failed file.
fn count_once(report: &mut Report) {
    report.work.files_failed = report.work.files_failed.min(1);
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
            human_bytes(len),
            plural(*parts, "part of them differs", "parts of them differ")
        )];
        if *changed > 0 {
            let (one, many) = (
                "part changed at the source meanwhile and was",
                "parts changed at the source meanwhile and were",
            );
            notes.push(format!("{} not verified", plural(*changed, one, many)));
        }
        notes
    }
}

/// Requests every part of a device.
fn fetch_all(device: &Device, fetch: &mut dyn Fetch) -> Result<(), SessionError> {
    let dir = Arc::new(NeededDir { source: ROOT, path: RelPath::root(), inode: 0, fill: None });
    for (index, part) in (0..).zip(block_device::parts(device.len())) {
        fetch.fetch(vec![need(&dir, index, part, !device.is_new())])?;
    }
    fetch.finish(Vec::new())
}

/// Returns the request for a part. `replaces` says that the destination has content there already.
fn need(dir: &Arc<NeededDir>, index: u32, DevicePart { start, len }: DevicePart, replaces: bool) -> Need {
    let name: Box<[u8]> = DevicePart { start, len }.name().into_bytes().into();
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
