//! Which trees go through which changes, and how fast each step is meant to become.

use clap::ValueEnum;

use crate::{edits::Edit, trees::Tree};

/// How the two trees can reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Two processes and a socket between them
    Network,
    /// Both trees mounted in one place
    Local,
}

impl Set {
    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Local => "local",
        }
    }
}

/// One step: the source is changed, then every tool syncs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Its name in tables.
    pub name: &'static str,
    /// What happens to the source before it.
    pub edit: Edit,
    /// The time that the project wants to reach, in milliseconds; `None` where the step only prepares the next one and
    /// is not shown.
    pub reach_ms: Option<f64>,
    /// The ratio to the best peer up to which the step counts as good enough; below 1 it is ahead.
    pub allowance: f64,
}

/// A tree and its steps, the first of them into an empty destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The tree.
    pub tree: Tree,
    /// The steps in their order.
    pub phases: Vec<Phase>,
    /// Whether the figures only mean something on a file system that shares blocks between files.
    pub needs_clone: bool,
}

/// The scenarios of a set, in the order of the tables.
pub fn scenarios(set: Set) -> Vec<Scenario> {
    match set {
        Set::Network => network(),
        Set::Local => local(),
    }
}

fn network() -> Vec<Scenario> {
    vec![
        scenario(Tree::Net1k, vec![first(60.0), same(8.0), append_100(16.0)]),
        scenario(Tree::Many50k, vec![first(600.0), same(120.0), append_500(150.0)]),
        scenario(
            Tree::Large1g,
            vec![
                // The one cell where an unencrypted peer may stay ahead: two cores do all of both ends' work.
                Phase { allowance: 1.3, ..first(900.0) },
                same(8.0),
                phase("16 edits of 64 KiB", Edit::Overwrite { count: 16, bytes: 64 << 10 }, 400.0),
            ],
        ),
        scenario(
            Tree::Shift256m,
            vec![first(260.0), phase("1 MiB inserted", Edit::Insert { bytes: 1 << 20 }, 130.0)],
        ),
        scenario(
            Tree::Text,
            vec![first(200.0), phase("20 files grow", Edit::Grow { count: 20, bytes: 14_000 }, 30.0)],
        ),
        scenario(
            Tree::Rename320m,
            vec![
                Phase { reach_ms: None, ..first(0.0) },
                phase("renamed", Edit::Rename { from: "photos", to: "pictures" }, 15.0),
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
        scenario(Tree::Local1k, vec![first(18.0), same(5.0)]),
        scenario(Tree::Local100m, vec![first(35.0), same(3.0), phase("1 MiB changed", one_piece, 25.0)]),
        scenario(Tree::Net1k, vec![first(22.0), same(5.0), append_100(9.0)]),
        scenario(Tree::Many50k, vec![first(550.0), same(100.0), append_500(110.0)]),
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
