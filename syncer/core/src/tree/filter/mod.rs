//! Which entries of a tree take part in a run: by patterns, rules, files of a tree that have them, and size.

mod ignore_file_rules;
mod include_exclude;
mod pattern_use;
mod rsync_filter_rules;
mod size_limits;

pub use contract::gitignore_pattern::{Pattern, PatternError, Patterns, escape, read_pattern};
pub use ignore_file_rules::{IGNORE_FILES, InUse, MAX_RULES_BYTES, Rules, RulesError, put_merge_file};
pub use include_exclude::{Filter, FilterError, MAX_PATTERNS};
pub use pattern_use::PatternUse;
pub use rsync_filter_rules::{FilterRules, MergeFile, RuleError, RuleLine};
pub use size_limits::SizeLimits;
