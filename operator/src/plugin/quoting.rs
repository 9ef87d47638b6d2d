//! Quotes words of command lines. Pure.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// Quotes a word so that a shell, and `--rsh` of `volferry sync`, take it as it is. One that needs no quotes gets none.
pub(super) fn quoted(word: &OsStr) -> OsString {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return word.into();
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    // Between quotes of one kind, neither reader has a way to write that quote.
    let quoted = [b"'".as_slice(), &parts.join(b"'\"'\"'".as_slice()), b"'"].concat();
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_blanks_or_quotes_stays_one() {
        for (word, expected) in [
            ("--context=arn:aws:eks:x:1:cluster/a", "--context=arn:aws:eks:x:1:cluster/a"),
            ("/a b/c", "'/a b/c'"),
            ("it's \"so\"", r#"'it'"'"'s "so"'"#),
            ("$(x)", "'$(x)'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), expected);
        }
    }
}
