//! Plans the changes of a run from both trees, and checks whether it may make them.

pub(crate) mod basis_by_content;
pub(crate) mod basis_by_name;
pub(crate) mod changed_dirs;
pub(crate) mod clashes;
pub(crate) mod compare_contents;
pub(crate) mod compare_params;
pub(crate) mod compare_trees;
pub(crate) mod fill_out_of_sight;
pub(crate) mod guards;
pub(crate) mod moved_dirs;
pub(crate) mod needed_files;
pub(crate) mod plan_id;
pub(crate) mod planned;
pub(crate) mod relink_names;
pub(crate) mod run_state;
pub(crate) mod scan_params;
pub(crate) mod single_file;
pub(crate) mod source_tree;
