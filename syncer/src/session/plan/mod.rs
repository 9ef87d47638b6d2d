//! Plans the changes of a run from both trees, and checks whether it may make them.

pub(crate) mod adoption;
pub(crate) mod backup_place;
pub(crate) mod basis_search;
pub(crate) mod changed_dirs;
pub(crate) mod compare;
pub(crate) mod contents;
pub(crate) mod first_snapshot;
pub(crate) mod folder_fill;
pub(crate) mod guard;
pub(crate) mod hard_links;
pub(crate) mod kinds;
pub(crate) mod moves;
pub(crate) mod need;
pub(crate) mod owners_demands;
mod pattern_notes;
pub(crate) mod plan_id;
pub(crate) mod planned;
pub(crate) mod policy;
pub(crate) mod room;
pub(crate) mod scan_tree;
pub(crate) mod similar;
pub(crate) mod source_tree;
pub(crate) mod subject;
