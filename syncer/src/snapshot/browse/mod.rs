//! Looks into snapshots: finds them, what they have, how they differ, and what they take.

pub(crate) mod compare_snapshots;
pub(crate) mod compare_with_live;
pub(crate) mod path_versions;
pub(crate) mod select_snapshot;
pub(crate) mod snapshot_tree;
pub(crate) mod store_stats;

pub use compare_snapshots::{Change, diff_nodes};
pub use compare_with_live::live_status;
pub use path_versions::{Version, find_paths, path_versions, pattern};
pub use select_snapshot::{select_forgotten, select_snapshot};
pub use snapshot_tree::{
    Node, What, file_at, files_in_motion, link_counts, linked_node_at, node_at, nodes, root_node,
};
pub use store_stats::store_stats;
