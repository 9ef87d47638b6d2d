//! Tests of the plan of one directory.

use super::*;
use crate::tree::{
    attrs::{Attrs, put_attr},
    entry::{Owner, Time},
    filter::{Filter, InUse, Rules, SizeLimits},
    kept_times::KeptTimes,
    listing::ListingBuilder,
    path::RelPath,
};

const DELETE: Policy = Policy {
    delete: true,
    one_file_system: false,
    spares_foreign: false,
    cross_mounts: false,
    owners: true,
    user: Owner { uid: 9, gid: 9 },
    permissions: true,
    times: true,
    kept_times: KeptTimes::ALL,
    attrs: Classes::ALL,
    sizes: SizeLimits { min: 0, max: u64::MAX },
    update: false,
    existing: false,
    ignore_existing: false,
    content: Content::Trusted,
};

fn plan_dir(source: &Listing, sink: &Listing, policy: Policy) -> DirPlan {
    plan_with(source, sink, policy, None)
}

fn plan_with(source: &Listing, sink: &Listing, policy: Policy, rules: Option<&Rules>) -> DirPlan {
    let dir = RelPath::root();
    let owner = &Filter::default();
    let spared = Spared { dir: &dir, rules, sizes: policy.sizes, owner };
    super::plan_dir(source, sink, policy, spared, || Ok::<_, ()>(())).unwrap()
}

fn meta(seconds: i64) -> Meta {
    Meta { mode: 0o644, mtime: Time { seconds, nanos: 5 }, owner: Owner { uid: 1, gid: 1 } }
}

fn file(name: &str, size: u64, seconds: i64) -> Entry<'_> {
    Entry { name: name.as_bytes(), kind: Kind::File { size }, meta: meta(seconds), attrs: Attrs::default() }
}

fn dir(name: &str) -> Entry<'_> {
    Entry { name: name.as_bytes(), kind: Kind::Dir, meta: meta(0), attrs: Attrs::default() }
}

fn listing(entries: &[Entry<'_>]) -> Listing {
    let mut builder = ListingBuilder::default();
    entries.iter().for_each(|entry| builder.push(entry));
    builder.finish()
}

#[test]
fn a_newer_file_of_the_sink_stays_also_where_its_time_is_in_doubt() {
    let policy = Policy { update: true, ..DELETE };
    let at = |seconds| Meta { mtime: Time { seconds, nanos: 0 }, ..Meta::default() };
    let file = |size, meta| Entry { name: b"a", kind: Kind::File { size }, meta, attrs: Attrs::default() };
    let source = file(1, at(100));
    for (seconds, expected) in [(99, Some(Step::Update)), (100, Some(Step::Update)), (101, None)] {
        // A time before 1970 is as good as any.
        for since in [0, 1000] {
            let there = at(seconds - since);
            let doubtful = Meta { mtime: there.mtime.in_doubt(), ..there };
            let source = file(1, at(100 - since));
            for there in [there, doubtful] {
                assert_eq!(step(&source, &file(2, there), policy), expected, "{there:?}");
            }
        }
    }
    let link = Entry { kind: Kind::Symlink { target: b"x" }, ..file(2, at(101)) };
    assert_eq!(step(&source, &link, policy), Some(Step::Replace { was_dir: false }));
}

#[test]
fn a_file_whose_content_is_to_be_compared_is_updated_only_if_other_metadata_differs() {
    let noted = |size| {
        let entry = file("a", size, 1);
        Entry { meta: Meta { mtime: entry.meta.mtime.to_compare(), ..entry.meta }, ..entry }
    };
    let source = listing(&[file("a", 1, 1)]);
    let plan = plan_dir(&source, &listing(&[noted(1)]), DELETE);
    assert_eq!((plan.steps, plan.checks), (vec![], vec![0]));
    let plan = plan_dir(&source, &listing(&[noted(2)]), DELETE);
    assert_eq!((plan.steps, plan.checks), (vec![(0, Step::Update)], vec![]));
    let told = differences(&file("a", 1, 1), &noted(1), Step::Update, DELETE);
    assert_eq!(told, [Difference::Content]);
}

#[test]
fn equal_listings_need_nothing_but_a_look_into_directories() {
    let both = listing(&[file("a", 1, 1), dir("d"), file("e", 2, 2)]);
    let plan = plan_dir(&both, &both, DELETE);
    assert_eq!(plan.steps, []);
    assert!(plan.deletes.is_empty());
    assert_eq!(plan.pairs, [DirPair { source: 0, sink: Some(0), index: 1 }]);
    assert!(!plan.changes_entries());
}

#[test]
fn every_difference_has_its_step() {
    let source = listing(&[
        file("content", 5, 9),
        file("created", 1, 1),
        file("kind", 1, 1),
        Entry { meta: Meta { mode: 0o600, ..meta(1) }, ..file("mode", 1, 1) },
        file("time", 3, 2),
    ]);
    let sink = listing(&[
        file("content", 6, 9),
        file("gone", 1, 1),
        dir("kind"),
        file("mode", 1, 1),
        file("time", 3, 1),
    ]);
    let plan = plan_dir(&source, &sink, DELETE);
    let replace = Step::Replace { was_dir: true };
    let expected = [(0, Step::Update), (1, Step::Create), (2, replace), (3, Step::Meta), (4, Step::Update)];
    assert_eq!(plan.steps, expected);
    assert_eq!(plan.deletes, [1]);
}

#[test]
fn without_delete_nothing_is_deleted() {
    let plan = plan_dir(&listing(&[]), &listing(&[file("a", 1, 1)]), Policy::default());
    assert_eq!(plan, DirPlan::default());
}

#[test]
fn what_an_incomplete_source_does_not_list_stays() {
    let mut source = ListingBuilder::default();
    source.mark_incomplete();
    let plan = plan_dir(&source.finish(), &listing(&[file("a", 1, 1)]), DELETE);
    assert_eq!(plan, DirPlan::default());
}

#[test]
fn owners_matter_only_where_they_can_be_set() {
    let other = Entry { meta: Meta { owner: Owner { uid: 9, gid: 9 }, ..meta(1) }, ..file("a", 1, 1) };
    let (source, sink) = (listing(&[other]), listing(&[file("a", 1, 1)]));
    let own = Policy { user: meta(1).owner, ..DELETE };
    assert_eq!(plan_dir(&source, &sink, own).steps, [(0, Step::Meta)]);
    assert_eq!(plan_dir(&source, &sink, Policy { owners: false, ..DELETE }).steps, []);
}

#[test]
fn what_another_user_can_write_to_gets_no_owner_or_set_id_bits_without_new_content() {
    let with = |uid, mode| Entry {
        meta: Meta { mode, owner: Owner { uid, gid: uid }, ..meta(1) },
        ..file("a", 1, 1)
    };
    let root = Policy { user: Owner::default(), ..DELETE };
    for (source, sink, expected) in [
        (with(1000, 0o644), with(0, 0o644), Step::Meta),
        (with(0, 0o644), with(1000, 0o644), Step::Update),
        (with(1000, 0o644), with(0, 0o664), Step::Update),
        (with(0, 0o4755), with(0, 0o755), Step::Meta),
        (with(0, 0o4755), with(0, 0o757), Step::Update),
        (with(1000, 0o4755), with(1000, 0o755), Step::Update),
        (with(1000, 0o600), with(1000, 0o4755), Step::Meta),
    ] {
        let plan = plan_dir(&listing(&[source]), &listing(&[sink]), root);
        assert_eq!(plan.steps, [(0, expected)], "{:?} {:?}", source.meta, sink.meta);
    }
}

#[test]
fn set_id_bits_are_dropped_with_the_owner_and_are_no_difference_then() {
    let with = |mode| Entry { meta: Meta { mode, ..meta(1) }, ..file("a", 1, 1) };
    let policy = Policy { owners: false, ..DELETE };
    let steps = |source, sink| plan_dir(&listing(&[with(source)]), &listing(&[with(sink)]), policy).steps;
    assert_eq!(steps(0o4755, 0o755), []);
    assert_eq!(steps(0o4755, 0o4755), [], "the copy has the owner");
    let anothers = Entry { meta: Meta { owner: Owner { uid: 7, gid: 7 }, ..meta(1) }, ..with(0o4755) };
    let anothers = Entry { meta: Meta { mode: 0o4755, ..anothers.meta }, ..anothers };
    let both = [listing(&[with(0o4755)]), listing(&[anothers])];
    assert_eq!(plan_dir(&both[0], &both[1], policy).steps, [(0, Step::Meta)]);
    let own = Policy { user: meta(1).owner, ..policy };
    let both = [listing(&[with(0o4755)]), listing(&[with(0o755)])];
    assert_eq!(plan_dir(&both[0], &both[1], own).steps, [(0, Step::Meta)], "the owner is the same");
}

#[test]
fn attributes_matter_only_where_they_can_be_set() {
    let mut attrs = Vec::new();
    put_attr(&mut attrs, b"trusted.t", b"value");
    let source = listing(&[Entry { attrs: Attrs::trusted(&attrs), ..file("a", 1, 1) }, file("b", 1, 1)]);
    let sink = listing(&[file("a", 1, 1), Entry { attrs: Attrs::trusted(&attrs), ..file("b", 1, 1) }]);
    assert_eq!(plan_dir(&source, &sink, DELETE).steps, [(0, Step::Meta), (1, Step::Meta)]);
    let may_not = Policy { attrs: Classes::ALL.without(Classes::TRUSTED), ..DELETE };
    assert_eq!(plan_dir(&source, &sink, may_not).steps, []);
}

#[test]
fn times_that_are_not_kept_matter_to_content_only() {
    let source = listing(&[dir("d"), file("f", 1, 1)]);
    let sink = listing(&[Entry { meta: Meta { mode: 0o644, ..meta(9) }, ..dir("d") }, file("f", 1, 9)]);
    assert_eq!(plan_dir(&source, &sink, DELETE).steps, [(0, Step::Meta), (1, Step::Update)]);
    assert_eq!(plan_dir(&source, &sink, Policy { times: false, ..DELETE }).steps, [(1, Step::Update)]);
}

#[test]
fn directories_are_paired_by_their_count_among_directories() {
    let source = listing(&[file("a", 1, 1), dir("m"), dir("n")]);
    let sink = listing(&[dir("b"), dir("n")]);
    let plan = plan_dir(&source, &sink, DELETE);
    let expected =
        [DirPair { source: 0, sink: None, index: 1 }, DirPair { source: 1, sink: Some(1), index: 2 }];
    assert_eq!(plan.pairs, expected);
}

#[test]
fn files_outside_of_the_size_limits_are_left_alone_at_both_ends() {
    let sizes = SizeLimits { min: 10, max: 20 };
    let source =
        listing(&[file("grew", 21, 1), file("in", 10, 1), file("new", 9, 1), file("took part", 15, 1)]);
    let sink = listing(&[
        file("grew", 15, 2),
        file("theirs", 9, 1),
        file("theirs too", 20, 1),
        file("took part", 5, 1),
    ]);
    let plan = plan_dir(&source, &sink, Policy { sizes, ..DELETE });
    assert_eq!(plan.steps, [(1, Step::Create), (3, Step::Update)]);
    assert_eq!(plan.deletes, [2], "only what is within the limits goes");
}

#[test]
fn what_the_rules_match_at_the_sink_stays() {
    let rules = Rules::new(None, &RelPath::root(), b"*.o\nbuild/\n", &InUse::default()).unwrap();
    let source = listing(&[file("build", 1, 1), file("made.o", 1, 1)]);
    let sink = listing(&[file("a.o", 1, 1), dir("build"), file("gone", 1, 1), dir("x.o")]);
    let plan = plan_with(&source, &sink, DELETE, Some(&rules));
    assert_eq!((&plan.steps[..], &plan.clashes[..]), (&[(1, Step::Create)][..], &[0][..]));
    assert_eq!(plan.deletes, [2]);
}

#[test]
fn content_that_is_compared_is_not_judged_by_time() {
    let source = listing(&[file("same", 1, 1), file("size", 1, 1), file("time", 1, 1)]);
    let sink = listing(&[file("same", 1, 1), file("size", 2, 1), file("time", 1, 2)]);
    let plan = |content| plan_dir(&source, &sink, Policy { content, ..DELETE });
    assert_eq!(plan(Content::Trusted).steps, [(1, Step::Update), (2, Step::Update)]);
    assert!(plan(Content::Trusted).checks.is_empty());
    for (content, checks) in [(Content::Compared, &[0, 2][..]), (Content::Verified, &[0, 1, 2])] {
        let plan = plan(content);
        assert_eq!(plan.steps, [(1, Step::Update), (2, Step::Meta)]);
        assert_eq!(plan.checks, checks);
    }
}

#[test]
fn a_step_is_set_in_its_place() {
    let mut plan = DirPlan { steps: vec![(1, Step::Meta), (5, Step::Create)], ..DirPlan::default() };
    for (index, step) in [(3, Some(Step::Update)), (1, Some(Step::Update)), (5, None), (9, None)] {
        plan.set_step(index, step);
    }
    assert_eq!(plan.steps, [(1, Step::Update), (3, Step::Update)]);
}
