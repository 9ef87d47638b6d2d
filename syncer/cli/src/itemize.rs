//! Changes in the form of rsync's `--itemize-changes`.

use contract::{Action, Difference, EntryKind, PlannedAction, printable};

/// The letters of the differences, in rsync's order. The seventh place is for the access time, which is not kept.
const LETTERS: [(Option<Difference>, char); 9] = [
    (Some(Difference::Content), 'c'),
    (Some(Difference::Size), 's'),
    (Some(Difference::Time), 't'),
    (Some(Difference::Mode), 'p'),
    (Some(Difference::Owner), 'o'),
    (Some(Difference::Group), 'g'),
    (None, 'u'),
    (Some(Difference::Acl), 'a'),
    (Some(Difference::Xattr), 'x'),
];

/// Returns one line without its newline. `sends` is whether this end sends the files.
pub(super) fn line(planned: &PlannedAction, sends: bool) -> String {
    let path = name(&planned.path, planned.kind);
    if planned.action == Action::Delete {
        return format!("*deleting   {path}");
    }
    let what = format!("{}{}{}", update(planned, sends), kind(planned.kind), letters(planned));
    let from = planned.from.as_deref().map(|from| format!(" (moved from {})", name(from, planned.kind)));
    let arrow = if planned.kind == EntryKind::HardLink { "=>" } else { "->" };
    let target = planned.target.as_deref().map(|target| format!(" {arrow} {}", printable(target)));
    format!("{what} {path}{}{}", from.unwrap_or_default(), target.unwrap_or_default())
}

fn name(path: &str, kind: EntryKind) -> String {
    format!("{}{}", printable(path), if kind == EntryKind::Folder { "/" } else { "" })
}

fn update(planned: &PlannedAction, sends: bool) -> char {
    match (planned.action, planned.kind) {
        (Action::SetMetadata, _) => '.',
        (_, EntryKind::File) => {
            if sends {
                '<'
            } else {
                '>'
            }
        }
        (_, EntryKind::HardLink) => 'h',
        _ => 'c',
    }
}

fn kind(kind: EntryKind) -> char {
    match kind {
        EntryKind::File | EntryKind::HardLink => 'f',
        EntryKind::Folder => 'd',
        EntryKind::Link => 'L',
        EntryKind::Device => 'D',
        EntryKind::Fifo | EntryKind::Socket => 'S',
    }
}

/// Returns nine places: all `+` for a new entry, or one that replaces an entry of another kind.
fn letters(planned: &PlannedAction) -> String {
    let is_new = match planned.action {
        Action::Create | Action::Move => true,
        Action::Replace => planned.differs.is_empty(),
        Action::Update | Action::SetMetadata | Action::Delete => false,
    };
    let differs =
        |difference: &Option<Difference>| difference.is_some_and(|it| planned.differs.contains(&it));
    let letter = |(difference, letter): &(_, char)| if differs(difference) { *letter } else { '.' };
    if is_new { "+".repeat(LETTERS.len()) } else { LETTERS.iter().map(letter).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_as_rsync_writes_it() {
        let planned = |action, kind, differs: &[Difference]| PlannedAction {
            action,
            kind,
            path: "a\nb".into(),
            from: None,
            target: None,
            bytes: 0,
            differs: differs.to_vec(),
        };
        let file = planned(Action::Update, EntryKind::File, &[Difference::Size, Difference::Time]);
        assert_eq!(line(&file, false), ">f.st...... a\\nb");
        assert_eq!(line(&file, true), "<f.st...... a\\nb");
        let all =
            [Difference::Mode, Difference::Owner, Difference::Group, Difference::Acl, Difference::Xattr];
        assert_eq!(line(&planned(Action::SetMetadata, EntryKind::Folder, &all), true), ".d...pog.ax a\\nb/");
        assert_eq!(line(&planned(Action::Delete, EntryKind::Folder, &[]), true), "*deleting   a\\nb/");
        let link = PlannedAction {
            target: Some("c\x1b".into()),
            ..planned(Action::Replace, EntryKind::Link, &[Difference::Content])
        };
        assert_eq!(line(&link, true), "cLc........ a\\nb -> c\\u{1b}");
        let moved =
            PlannedAction { from: Some("old".into()), ..planned(Action::Move, EntryKind::Folder, &[]) };
        assert_eq!(line(&moved, true), "cd+++++++++ a\\nb/ (moved from old/)");
    }
}
