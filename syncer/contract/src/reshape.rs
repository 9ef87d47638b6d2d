//! Changes of permissions and owners that a run makes on the way.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    parse_error::{ParseParamError, bad},
    text_form::serde_by_text,
};

const EXPECTED: &str = "a list of changes such as u+w,go-w, D755,F644 or go=rX, each for u, g, o or a";

/// The twelve permission bits.
const ALL: u16 = 0o7777;

/// A change of permission bits: those to keep, and those to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BitChange {
    keep: u16,
    set: u16,
}

impl BitChange {
    const NONE: Self = Self { keep: ALL, set: 0 };

    fn then(self, next: Self) -> Self {
        Self { keep: self.keep & next.keep, set: self.set & next.keep | next.set }
    }
}

/// A change of the permission bits of files and folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeChange {
    folder: BitChange,
    /// Files that a user may execute.
    program: BitChange,
    file: BitChange,
}

impl ModeChange {
    /// Returns the permission bits that an entry of these bits gets.
    pub fn apply(self, mode: u16, is_folder: bool) -> u16 {
        let change = match (is_folder, mode & 0o111) {
            (true, _) => self.folder,
            (false, 0) => self.file,
            (false, _) => self.program,
        };
        mode & change.keep | change.set
    }
}

/// Changes of permission bits as `chmod` and rsync write them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Chmod {
    text: String,
    change: ModeChange,
}

impl Chmod {
    /// Returns what they change.
    pub fn change(&self) -> ModeChange {
        self.change
    }
}

impl FromStr for Chmod {
    type Err = ParseParamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let none = ModeChange { folder: BitChange::NONE, program: BitChange::NONE, file: BitChange::NONE };
        let change = text.split(',').try_fold(none, then).ok_or_else(|| bad(text, EXPECTED))?;
        Ok(Self { text: text.into(), change })
    }
}

impl fmt::Display for Chmod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_by_text!(Chmod);

/// Adds one change of a list, such as `Dgo=rX`.
fn then(change: ModeChange, text: &str) -> Option<ModeChange> {
    let (for_folders, for_files, rest) = match text.split_at_checked(1)? {
        ("D", rest) => (true, false, rest),
        ("F", rest) => (false, true, rest),
        _ => (true, true, text),
    };
    let next = if rest.bytes().all(|byte| byte.is_ascii_digit()) { octal(rest)? } else { symbolic(rest)? };
    let ModeChange { folder, program, file } = change;
    Some(ModeChange {
        folder: if for_folders { folder.then(next.folder) } else { folder },
        program: if for_files { program.then(next.program) } else { program },
        file: if for_files { file.then(next.file) } else { file },
    })
}

fn octal(digits: &str) -> Option<ModeChange> {
    let set = u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= ALL)?;
    let change = BitChange { keep: 0, set };
    Some(ModeChange { folder: change, program: change, file: change })
}

/// Reads a change such as `go=rX`.
fn symbolic(text: &str) -> Option<ModeChange> {
    let at = text.find(['+', '-', '='])?;
    let (mut units, mut set_ids) = (0, 0);
    for user in text[..at].bytes() {
        let (unit, set_id) = match user {
            b'u' => (0o100, 0o4000),
            b'g' => (0o010, 0o2000),
            b'o' => (0o001, 0),
            b'a' => (0o111, 0o6000),
            _ => return None,
        };
        (units, set_ids) = (units | unit, set_ids | set_id);
    }
    let (mut bits, mut special, mut keeps_x) = (0, 0, false);
    for what in text[at + 1..].bytes() {
        match what {
            b'r' => bits |= 4,
            b'w' => bits |= 2,
            b'x' => bits |= 1,
            b'X' => (bits, keeps_x) = (bits | 1, true),
            b's' => special |= set_ids,
            b't' => special |= 0o1000,
            _ => return None,
        }
    }
    let named = (units * bits) | special;
    let change = match text.as_bytes()[at] {
        b'+' => BitChange { keep: ALL, set: named },
        b'-' => BitChange { keep: ALL & !named, set: 0 },
        _ => BitChange { keep: ALL & !(units * 7) & !special, set: named },
    };
    let file = BitChange { set: if keeps_x { change.set & !0o111 } else { change.set }, ..change };
    (units != 0).then_some(ModeChange { folder: change, program: change, file })
}

/// The owner that all entries get, by numbers; a part that is not named stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chown {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl fmt::Display for Chown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uid.map_or(Ok(()), |uid| write!(f, "{uid}"))?;
        self.gid.map_or(Ok(()), |gid| write!(f, ":{gid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_apply_one_after_the_other_to_the_kinds_that_they_name() {
        for (text, is_folder, before, after) in [
            ("D755,F644", true, 0o700, 0o755),
            ("D755,F644", false, 0o4700, 0o644),
            ("go=rX", false, 0o600, 0o644),
            ("go=rX", false, 0o700, 0o755),
            ("go=rX", true, 0o600, 0o655),
            ("u+w,a-x", false, 0o555, 0o644),
            ("Dg+s,o=", true, 0o755, 0o2750),
            ("Dg+s", false, 0o755, 0o755),
            ("a=,u+rw", false, 0o777, 0o600),
            ("u+s", false, 0o755, 0o4755),
            ("a-s", false, 0o6755, 0o755),
            ("o+t", true, 0o777, 0o1777),
        ] {
            let chmod: Chmod = text.parse().unwrap();
            assert_eq!(chmod.change().apply(before, is_folder), after, "{text} of {before:o}");
            assert_eq!(chmod.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_change_of_permissions_is_refused() {
        for bad in ["", ",", "+x", "u", "u+q", "u?x", "9", "77777", "D", "Fx", "u+x,", "u+x g+x"] {
            assert!(bad.parse::<Chmod>().is_err(), "{bad:?}");
        }
    }
}
