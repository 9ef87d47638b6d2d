//! Notes about patterns that have another effect than their author may expect.

use contract::RunParams;

use crate::filter::PatternUse;

/// The most patterns that a note names.
const MAX_NAMED: usize = 3;

/// Returns notes about patterns that matched nothing at either end, and about those that rsync would have matched with
/// more. A shard sees only its part of the trees, and an older source does not tell what its patterns matched.
pub(super) fn pattern_notes(
    params: &RunParams,
    source: Option<&PatternUse>,
    sink: Option<&PatternUse>,
) -> Vec<String> {
    let (true, Some(source)) = (params.shard.is_none_or(|shard| shard.count == 1), source) else {
        return Vec::new();
    };
    let lines: Vec<&String> = params.include.iter().chain(&params.exclude).collect();
    let line = |place: u32| lines.get(place as usize).map(|line| format!("`{line}`"));
    let is_idle = |place: &&u32| sink.is_none_or(|sink| sink.idle.contains(place));
    let idle: Vec<String> = source.idle.iter().filter(is_idle).filter_map(|place| line(*place)).collect();
    let ends = [Some(source), sink];
    let mut deeper: Vec<&(u32, String)> = ends.into_iter().flatten().flat_map(|end| &end.deeper).collect();
    deeper.sort_by_key(|(place, _)| *place);
    deeper.dedup_by_key(|(place, _)| *place);
    let deeper = deeper.into_iter().take(MAX_NAMED).filter_map(|(place, path)| {
        let pattern = lines.get(*place as usize)?;
        Some(format!(
            "the pattern `{pattern}` counts from the top, so it does not match {path}, as it would in rsync: write \
             `**/{pattern}` if it shall match, or `/{pattern}` if not"
        ))
    });
    idle_note(&idle).into_iter().chain(deeper).collect()
}

fn idle_note(idle: &[String]) -> Option<String> {
    let more = match idle.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = idle[..idle.len().min(MAX_NAMED)].join(", ");
    match idle.len() {
        0 => None,
        1 => Some(format!("the pattern {named} matched nothing")),
        _ => Some(format!("the patterns {named}{more} matched nothing")),
    }
}

#[cfg(test)]
mod tests {
    use contract::Shard;

    use super::*;

    fn used(idle: &[u32], deeper: &[(u32, &str)]) -> PatternUse {
        let deeper = deeper.iter().map(|(place, path)| (*place, path.to_string())).collect();
        PatternUse { idle: idle.to_vec(), deeper }
    }

    fn params(include: &[&str], exclude: &[&str]) -> RunParams {
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        RunParams { include: strings(include), exclude: strings(exclude), ..RunParams::default() }
    }

    #[test]
    fn a_pattern_is_named_if_it_matched_at_neither_end() {
        let params = params(&["a"], &["b", "c", "d", "e"]);
        let [source, sink] = [used(&[0, 1, 2], &[]), used(&[2, 3], &[])];
        assert_eq!(pattern_notes(&params, Some(&source), Some(&sink)), ["the pattern `c` matched nothing"]);
        let named = "the patterns `a`, `b`, `c` matched nothing";
        assert_eq!(pattern_notes(&params, Some(&source), None), [named]);
        let all = used(&[0, 1, 2, 3, 4], &[]);
        let named = "the patterns `a`, `b`, `c` and 2 more matched nothing";
        assert_eq!(pattern_notes(&params, Some(&all), Some(&all)), [named]);
        assert!(pattern_notes(&params, None, Some(&sink)).is_empty());
        let shard = Some(Shard { index: 0, count: 2 });
        assert!(pattern_notes(&RunParams { shard, ..params }, Some(&all), None).is_empty());
    }

    #[test]
    fn a_place_that_no_pattern_has_is_passed_over() {
        let wild = used(&[7, u32::MAX], &[(9, "x")]);
        assert!(pattern_notes(&params(&[], &["a"]), Some(&wild), None).is_empty());
    }

    #[test]
    fn a_pattern_that_rsync_would_match_deeper_is_named_once_with_the_one_to_write() {
        let [source, sink] = [used(&[], &[(0, "q/a/b")]), used(&[], &[(0, "r/a/b")])];
        let notes = pattern_notes(&params(&[], &["a/b"]), Some(&source), Some(&sink));
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(note.contains("does not match q/a/b") && note.contains("`**/a/b`"), "{note}");
    }
}
