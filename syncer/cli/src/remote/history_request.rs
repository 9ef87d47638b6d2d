//! What one end of `volferry snapshot copy` asks of the one that it starts on another machine.

use contract::CopySelection;

/// The words of a request for history, before its arguments.
pub(crate) const OFFER: &str = "offer-history";
pub(crate) const TAKE: &str = "take-history";

/// Returns the arguments that ask another machine to copy these snapshots, and to wait so many seconds for the lock.
pub(crate) fn take_args(selection: &CopySelection, wait: u64) -> Vec<String> {
    let (word, texts) = match selection {
        CopySelection::All => ("all", vec![]),
        CopySelection::Since(text) => ("since", vec![text.clone()]),
        CopySelection::Named(texts) => ("named", texts.clone()),
    };
    [TAKE.into(), wait.to_string(), word.into()].into_iter().chain(texts).collect()
}

/// What [`take_args`] asks for.
#[derive(Debug, PartialEq)]
pub(super) struct TakeRequest {
    pub(super) selection: CopySelection,
    pub(super) wait: u64,
}

/// Reads what [`take_args`] has written.
pub(super) fn read_take_args(args: &[String]) -> Option<TakeRequest> {
    let (wait, rest) = args.split_first()?;
    let selection = match rest.split_first()? {
        (word, []) if word == "all" => CopySelection::All,
        (word, [text]) if word == "since" => CopySelection::Since(text.clone()),
        (word, texts) if word == "named" => CopySelection::Named(texts.to_vec()),
        _ => return None,
    };
    Some(TakeRequest { selection, wait: wait.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_reads_what_is_asked() {
        for selection in [
            CopySelection::All,
            CopySelection::Since("latest".into()),
            CopySelection::Named(vec!["--all".into(), "as-of:2 h ago".into()]),
        ] {
            let args = take_args(&selection, 7);
            assert_eq!(read_take_args(&args[1..]), Some(TakeRequest { selection, wait: 7 }));
        }
        for args in [&[][..], &["7"], &["x", "all"], &["7", "since"], &["7", "all", "more"]] {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            assert_eq!(read_take_args(&args), None, "{args:?}");
        }
    }
}
