//! The sink's end of a run.

use contract::{Demands, Phase, Report, Side};

use crate::{
    apply::Settings,
    locate::locate,
    plan::Step,
    report::{Counters, Failures, Stopwatch},
    root::Place,
    session::{
        plan::{
            compare::compare,
            contents::checker,
            kinds,
            planned::{Compared, Planned},
            policy::{may_move, of_same_root, owners_filter, policy},
            room::Room,
            similar,
            subject::{Named, Subject, scan_tree},
        },
        reading::source_file::Origin,
        run::{
            applying::Applying,
            device_run,
            make_report::{make_report, own_totals, work_of},
        },
        session_error::SessionError,
        sink::{
            context::Context,
            dry_run::{DryDestination, DryRun},
            open::open_destination,
            read_back::Verifier,
            receive::fetch,
            remote_tree::{RemoteHashes, RemoteTree, expect_done, tell_planned},
            shards::ShardRun,
        },
    },
    transport::{Control, Peer, TransportError},
    tree::Tree,
    wire::{Hello, Message, SourceDone, Welcome},
};

/// Runs the sink's end over a connection, as far as `demands` lets the source decide. `run` is set to the run's name once the source has said it, for the report of a run that fails;
/// `bytes_on_wire` is asked when the report is made.
pub(crate) fn run(
    place: &Place,
    peer: &Peer,
    demands: &Demands,
    watch: &mut Stopwatch<'_>,
    run: &mut String,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    watch.enter(Phase::Scan);
    let version = env!("CARGO_PKG_VERSION").into();
    control.send(&Message::Welcome(Welcome { version, dry_run: demands.dry_run }))?;
    let hello = demanded(expect_hello(control)?, demands);
    run.clone_from(&hello.params.run);
    peer.use_connections(hello.params.connections);
    if let Some(len) = hello.device {
        return device_run::receive(place, len, peer, &hello.params, watch, bytes_on_wire);
    }
    let found = kinds::look(place, "--destination-path", demands.image)?;
    if hello.file.is_none() {
        kinds::refuse_tree(place, found, "the source")?;
    }
    let subject = Subject::of_destination(place, hello.file.as_deref())?;
    subject.find_folder(place)?;
    refuse_overlap(&hello, place)?;
    if hello.params.dry_run {
        return rehearse(&subject, peer, &hello, watch, bytes_on_wire);
    }
    let Hello { params, attrs: visible, .. } = hello;
    let failures = Failures::default();
    let mut settings = Settings::resolve(&params.preserve)?;
    // What the source cannot see may be there all the same.
    settings.attrs = settings.attrs.and(visible);
    let (destination, mut notes) = open_destination(&subject.place, &params, settings)?;
    let doubt = destination.doubtful_since();
    let sink =
        scan_tree(&subject, destination.root(), &params, Side::Sink, doubt, &failures, watch.monitor())?;
    if sink.has_attrs() {
        destination.found_attrs();
    }
    let mut source = RemoteTree::new(control);
    let head = source.head()?;
    merge(&failures, &head.source);
    let head = if subject.is_file() { of_same_root(head, &sink) } else { head };
    let mut source = Named::new(source, &subject);

    watch.enter(Phase::Plan);
    let (policy, may_move) = (policy(&params, destination.settings()), may_move(&params));
    let mut compared =
        compare(&mut source, &head, &sink, policy, may_move, &owners_filter(&params)?, watch.monitor())?;
    report_unlinked(&compared, &failures);
    watch.enter(Phase::Delta);
    let checker = checker(Origin::Tree(destination.root()), &failures, watch.monitor());
    checker.check(&mut compared.dirs, &mut RemoteHashes(control), Some(Step::Update))?;
    compared.settle(&sink, policy, watch.monitor())?;
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let context = Context {
        destination: &destination,
        failures: &failures,
        counters: &counters,
        monitor: watch.monitor(),
    };
    let mut done = head.source.clone();
    let shards = ShardRun::new(&destination, watch.monitor(), Some(control));
    let room = Room::of(destination.root(), None);
    let (shards, keeps_root) = (shards.as_ref(), subject.is_file());
    let room = room.as_ref();
    let applying = Applying { context, params: &params, head: &head, plan: &plan, shards, room, keeps_root };
    let applied = applying.apply(watch, &mut |executor| {
        let unlike = executor.unlike_any(&plan.compared.dirs)?;
        executor.make_from(similar::look(destination.root(), &plan.sink, unlike, control, context.monitor)?);
        if fetch::run(context.into(), peer, |fetch| executor.transfer(&plan.compared.dirs, fetch))? {
            done = expect_done(control)?;
            failures.merge(done.failed.saturating_sub(head.source.failed), Vec::new(), 0);
        }
        Ok(())
    });
    let totals = own_totals(&destination, &head);
    watch.did(work_of(&totals, &counters));
    notes.extend(applied?);
    if params.verify {
        watch.enter(Phase::Plan);
        let verifier = Verifier {
            params: &params,
            settings: destination.settings(),
            root: destination.root(),
            subject: &subject,
            failures: &failures,
            monitor: watch.monitor(),
        };
        notes.extend(verifier.verify(&mut source, &mut RemoteHashes(control), &head)?);
    }
    let volume = Some(destination.own().volume());
    let mut report = make_report(&params, watch, &totals, &counters, &failures, volume, notes);
    report.work.bytes_on_wire = bytes_on_wire();
    report.usage = watch.sink_usage(done.usage);
    report.fill_rates();
    destination.close();
    control.send(&Message::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// Refuses a destination that is the source's tree, lies in it or contains it: each run would nest it one level deeper.
fn refuse_overlap(hello: &Hello, place: &Place) -> Result<(), SessionError> {
    let here = locate(place, hello.whereabouts.run());
    match hello.file.is_none() && hello.whereabouts.overlaps(&here) {
        true => Err(SessionError::SameTree(format!(
            "the destination {} is the source, lies in it or contains it, on one machine: choose folders that do not contain one another",
            place.path().display()
        ))),
        false => Ok(()),
    }
}

/// The run that the source asks for, as far as the owner of the destination lets it.
fn demanded(mut hello: Hello, demands: &Demands) -> Hello {
    let params = &mut hello.params;
    params.demands = demands.clone();
    // The source tells of a dry run that it asked for.
    params.demands.dry_run &= !params.dry_run;
    params.dry_run |= demands.dry_run;
    params.delete &= !demands.no_delete;
    hello
}

/// Runs the sink's end of a dry run.
fn rehearse(
    subject: &Subject,
    peer: &Peer,
    Hello { params, attrs: visible, .. }: &Hello,
    watch: &mut Stopwatch<'_>,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    let failures = Failures::default();
    let mut settings = Settings::resolve(&params.preserve)?;
    settings.attrs = settings.attrs.and(*visible);
    let (looked, mut notes) = DryDestination::at(&subject.place, params, settings, None)?;
    let sink = match looked.root() {
        Some(root) => scan_tree(subject, root, params, Side::Sink, None, &failures, watch.monitor())?,
        None => Tree::empty(),
    };
    let mut source = RemoteTree::new(control);
    let head = source.head()?;
    merge(&failures, &head.source);
    let head = if subject.is_file() { of_same_root(head, &sink) } else { head };
    let mut source = Named::new(source, subject);
    watch.enter(Phase::Plan);
    let policy = policy(params, looked.settings);
    let owner = owners_filter(params)?;
    let mut compared = compare(&mut source, &head, &sink, policy, may_move(params), &owner, watch.monitor())?;
    report_unlinked(&compared, &failures);
    watch.enter(Phase::Delta);
    let changed = match looked.root() {
        Some(root) => {
            let checker = checker(Origin::Tree(root), &failures, watch.monitor());
            checker.check(&mut compared.dirs, &mut RemoteHashes(control), Some(Step::Update))?
        }
        None => 0,
    };
    compared.settle(&sink, policy, watch.monitor())?;
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let rehearsal = DryRun {
        params,
        head: &head,
        destination: &looked,
        failures: &failures,
        counters: &counters,
        monitor: watch.monitor(),
    };
    notes.extend(
        rehearsal
            .tell(&plan, changed, &mut |actions| tell_planned(control, params, watch.monitor(), actions))?,
    );
    let totals = rehearsal.totals();
    let mut report = make_report(params, watch, &totals, &counters, &failures, looked.volume, notes);
    report.work.bytes_on_wire = bytes_on_wire();
    report.usage = watch.sink_usage(head.source.usage);
    report.fill_rates();
    control.send(&Message::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// Takes the links of `compared` that cannot be made as failures, as their files are excluded at this end.
fn report_unlinked(compared: &Compared, failures: &Failures) {
    let why = "it is a hard link of a file that is excluded at the destination";
    compared.unlinked.iter().for_each(|path| failures.add(path, "link", &why));
}

/// Takes the failures of the source's scan.
fn merge(failures: &Failures, source: &SourceDone) {
    failures.merge(source.failed, source.failures.clone(), source.failed_paths);
}

fn expect_hello(control: &Control) -> Result<Hello, TransportError> {
    match control.recv()? {
        Message::Hello(hello) => Ok(*hello),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "Hello" }),
    }
}
