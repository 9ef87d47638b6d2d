//! Paths that begin with a dash, behind `--`.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path};

use crate::remote::place::{Place, PlaceError};

/// Writes `./` before each path behind `--` that begins with a dash, because the parser would take one that follows
/// several sources for a flag.
///
/// # Errors
/// If one names a host that begins with a dash.
pub(crate) fn spell_out(args: &[OsString]) -> Result<Vec<OsString>, PlaceError> {
    let flags = args.iter().position(|arg| arg == "--").map_or(args.len(), |at| at + 1);
    let (flags, paths) = args.split_at(flags);
    let spelled = |path: &OsString| {
        if path.as_bytes().starts_with(b"-") {
            Place::read(path.into()).map(|_| Path::new(".").join(path).into())
        } else {
            Ok(path.clone())
        }
    };
    flags.iter().cloned().map(Ok).chain(paths.iter().map(spelled)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> Result<Vec<OsString>, PlaceError> {
        spell_out(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_paths_behind_two_dashes_are_spelled_out() {
        for (typed, expected) in [
            ("-a -x src dst", "-a -x src dst"),
            ("-a -- src -x", "-a -- src ./-x"),
            ("-- -a -b", "-- ./-a ./-b"),
            ("-- a --", "-- a ./--"),
            ("a b", "a b"),
        ] {
            let words: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(spelled(typed), Ok(words), "{typed}");
        }
        assert_eq!(spelled("-- -oProxyCommand=x:/y b"), Err(PlaceError::Flag("-oProxyCommand=x:/y".into())));
        assert_eq!(spelled("-- a -h::photos"), Err(PlaceError::Flag("-h::photos".into())));
    }
}
