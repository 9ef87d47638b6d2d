//! Defines the scenarios: the trees, their changes, and the target time of each step.

use clap::ValueEnum;
use testkit::edits::Edit;

use crate::trees::Tree;

/// How the two trees are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Two processes and a socket between them
    Network,
    /// Ends that ssh starts, over each kind of link
    Ssh,
    /// Both trees mounted in one place
    Local,
}

/// One step: the source is changed, then every tool syncs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// The name in tables.
    pub name: &'static str,
    /// The change of the source before the step.
    pub edit: Edit,
    /// The target time in milliseconds; `None` if the step only prepares the next one and is not shown.
    pub reach_ms: Option<f64>,
    /// The highest ratio to the best peer that counts as good enough; below 1 Volferry is ahead.
    pub allowance: f64,
}

/// A tree and its steps, the first of which starts with an empty destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The tree.
    pub tree: Tree,
    /// The steps in order.
    pub phases: Vec<Phase>,
    /// Whether the figures are meaningful only on a file system that shares blocks between files.
    pub needs_clone: bool,
}

/// Returns the scenarios of a set, in the order of the tables.
pub fn scenarios(set: Set) -> Vec<Scenario> {
    match set {
        Set::Network => network(),
        Set::Ssh => network().into_iter().take(3).collect(),
        Set::Local => local(),
    }
}

fn network() -> Vec<Scenario> {
    vec![
        scenario(Tree::Net1k, vec![first(30.0), same(6.0), append_100(10.0)]),
        scenario(Tree::Many50k, vec![first(330.0), same(60.0), append_500(70.0)]),
        scenario(
            Tree::Large1g,
            vec![
                // An unencrypted peer may stay ahead only here: two cores do the work of both ends.
                Phase { allowance: 1.3, ..first(800.0) },
                same(6.0),
                phase("16 edits of 64 KiB", Edit::Overwrite { count: 16, bytes: 64 << 10 }, 300.0),
            ],
        ),
        scenario(
            Tree::Shift256m,
            vec![first(200.0), phase("1 MiB inserted", Edit::Insert { bytes: 1 << 20 }, 110.0)],
        ),
        scenario(
            Tree::Text,
            vec![first(150.0), phase("20 files grow", Edit::Grow { count: 20, bytes: 14_000 }, 20.0)],
        ),
        scenario(
            Tree::Rename320m,
            vec![
                Phase { reach_ms: None, ..first(0.0) },
                phase("renamed", Edit::Rename { from: "photos", to: "pictures" }, 6.0),
            ],
        ),
        scenario(
            Tree::Parts256m,
            vec![
                Phase { reach_ms: None, ..first(0.0) },
                phase("put together from three", Edit::Assemble { count: 3, bytes: 32 << 20 }, 120.0),
                phase("a new one twice", Edit::AddTwice { bytes: 64 << 20 }, 150.0),
            ],
        ),
    ]
}

fn local() -> Vec<Scenario> {
    let one_piece = Edit::Overwrite { count: 1, bytes: 1 << 20 };
    vec![
        scenario(Tree::Local1k, vec![first(9.0), same(4.0)]),
        scenario(Tree::Local10m, vec![first(5.0), same(2.5)]),
        scenario(Tree::Local100m, vec![first(40.0), same(2.0), phase("1 MiB changed", one_piece, 15.0)]),
        scenario(Tree::Net1k, vec![first(10.0), same(3.5), append_100(4.5)]),
        scenario(Tree::Many50k, vec![first(190.0), same(60.0), append_500(65.0)]),
        Scenario {
            needs_clone: true,
            ..scenario(Tree::Clone1g, vec![first(5.0), phase("1 MiB changed", one_piece, 300.0)])
        },
    ]
}

fn scenario(tree: Tree, phases: Vec<Phase>) -> Scenario {
    Scenario { tree, phases, needs_clone: false }
}

fn phase(name: &'static str, edit: Edit, reach_ms: f64) -> Phase {
    Phase { name, edit, reach_ms: Some(reach_ms), allowance: 1.0 }
}

fn first(reach_ms: f64) -> Phase {
    phase("first", Edit::None, reach_ms)
}

fn same(reach_ms: f64) -> Phase {
    phase("no change", Edit::None, reach_ms)
}

fn append_100(reach_ms: f64) -> Phase {
    phase("100 files appended", Edit::AppendFirst { below: "small", count: 100 }, reach_ms)
}

fn append_500(reach_ms: f64) -> Phase {
    phase("500 files appended", Edit::AppendSpread { count: 500 }, reach_ms)
}
