//! Manifests of pages of `docs/`, as their readers apply them.

use crate::prelude::*;

/// Returns the manifest of this `kind` on a page of `docs/src`.
pub(super) fn manifest(page: &str, kind: &str) -> Value {
    let path = programs::repository().join(format!("docs/src/{page}.md"));
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0));
    let mut manifests = blocks.map(|block| serde_saphyr::from_str::<Value>(block).unwrap());
    manifests.find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("{page} has no {kind}"))
}
