//! Brings this program to a far end that has none: one ssh connection looks for a copy in the far end's cache, takes
//! one if it is missing, checks its hash, and runs it.

use std::{
    env::consts::ARCH,
    ffi::OsString,
    fs, io,
    io::{Read, Write},
};

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

use super::greeting::{self, GreetingError, noise_allowed};

/// The lines of the script begin with this, so that nothing else that a shell prints is taken for one.
const MARK: &str = "volferry-copy ";

/// Runs at the far end, in any shell that POSIX describes. Removes copies that were not used for a month.
const SCRIPT: &str = r#"umask 077
hash=$1 size=$2
say() { echo "volferry-copy $*"; }
dir=${XDG_CACHE_HOME:-$HOME/.cache}/volferry
file=$dir/volferry-$hash
has() { test "$(sha256sum "$1" 2>/dev/null | cut -c 1-64)" = "$hash"; }
say system "$(uname -s)" "$(uname -m)"
mkdir -p "$dir" || exit 1
own=$(find "$dir" -prune -type d -user "$(id -u)")
open=$(find "$dir" -prune -perm -020 -o -prune -perm -002)
test -n "$own" && test -z "$open" || { say foreign "$dir"; exit 1; }
if has "$file"; then
  touch "$file"
else
  find "$dir" -name "volferry-*" -mtime +30 -exec rm -f {} +
  say send
  head -c "$size" > "$file.$$" || exit 1
  has "$file.$$" || { rm -f "$file.$$"; say damaged; exit 1; }
  chmod 700 "$file.$$" && mv "$file.$$" "$file" || exit 1
fi
"$file" --version > /dev/null || { say unusable; exit 1; }
say ready
exec "$file" remote"#;

/// Why a copy of this program cannot be used.
#[derive(Debug, Error)]
pub(crate) enum CopyError {
    #[error("cannot read this program to copy it")]
    ThisProgram(#[source] io::Error),
    #[error("it is {there}, and this program is for Linux {ARCH}")]
    OtherSystem { there: String },
    #[error("the copy there does not have this program's hash, or `sha256sum` is missing there")]
    Damaged,
    #[error(
        "the folder {folder} there is a link, is another user's or others may write to it, so that they could change the \
         program: remove it, or close it to them"
    )]
    Foreign { folder: String },
    #[error("the copy of this program does not run there")]
    Unusable,
    #[error(transparent)]
    Greeting(#[from] GreetingError),
}

/// This program, to be copied.
pub(crate) struct ProgramCopy {
    bytes: Vec<u8>,
    hash: String,
}

impl ProgramCopy {
    /// Reads this program.
    pub(crate) fn of_this_program() -> Result<Self, CopyError> {
        let bytes = fs::read("/proc/self/exe").map_err(CopyError::ThisProgram)?;
        let hash = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, hash })
    }

    /// Returns the command for the far end's shell.
    pub(crate) fn command(&self) -> OsString {
        format!("exec sh -c '{SCRIPT}' sh {} {}", self.hash, self.bytes.len()).into()
    }

    /// Answers the far end's script until the copy runs.
    pub(crate) fn send(&self, from: &mut impl Read, to: &mut impl Write) -> Result<(), CopyError> {
        let mut left = noise_allowed();
        loop {
            let line = greeting::line(from, &mut left)?;
            let Some(said) = line.strip_prefix(MARK) else { continue };
            match said.split_once(' ') {
                Some(("system", there)) if !is_like_here(there) => {
                    return Err(CopyError::OtherSystem { there: there.into() });
                }
                Some(("foreign", folder)) => return Err(CopyError::Foreign { folder: folder.into() }),
                _ => {}
            }
            match said {
                "send" => to.write_all(&self.bytes).and_then(|()| to.flush()).map_err(GreetingError::from)?,
                "damaged" => return Err(CopyError::Damaged),
                "unusable" => return Err(CopyError::Unusable),
                "ready" => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Returns whether a system, as `uname -sm` names it, runs programs of this one.
fn is_like_here(there: &str) -> bool {
    there == format!("Linux {ARCH}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn copy() -> ProgramCopy {
        ProgramCopy { bytes: b"program".to_vec(), hash: "h".into() }
    }

    fn talk(far: &str) -> (Result<(), CopyError>, Vec<u8>) {
        let mut sent = Vec::new();
        (copy().send(&mut far.as_bytes(), &mut sent), sent)
    }

    #[test]
    fn the_program_is_sent_only_where_it_is_missing_and_could_run() {
        let system = format!("noise\nvolferry-copy system Linux {ARCH}\n");
        let (there, sent) = talk(&format!("{system}volferry-copy ready\n"));
        assert!(there.is_ok() && sent.is_empty());
        let (missing, sent) = talk(&format!("{system}volferry-copy send\nvolferry-copy ready\n"));
        assert!(missing.is_ok() && sent == b"program");
        let (other, sent) = talk("volferry-copy system Darwin arm64\nvolferry-copy send\n");
        assert!(matches!(other, Err(CopyError::OtherSystem { there }) if there == "Darwin arm64"));
        assert!(sent.is_empty());
    }

    #[test]
    fn a_copy_that_is_damaged_or_does_not_run_is_refused() {
        let (damaged, _) = talk("volferry-copy send\nvolferry-copy damaged\n");
        assert!(matches!(damaged, Err(CopyError::Damaged)));
        let (unusable, _) = talk("volferry-copy unusable\n");
        assert!(matches!(unusable, Err(CopyError::Unusable)));
        assert!(matches!(talk("").0, Err(CopyError::Greeting(_))));
    }

    #[test]
    fn no_program_is_run_from_a_folder_that_others_can_change() {
        let (cache, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = cache.path().join("volferry");
        let said = || {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", SCRIPT, "sh", "h", "7"]).env("XDG_CACHE_HOME", cache.path());
            let output = shell.stdin(std::process::Stdio::null()).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let refused = format!("volferry-copy foreign {}\n", dir.display());
        assert!(said().ends_with("volferry-copy send\nvolferry-copy damaged\n"), "it makes the folder");
        for mode in [0o777, 0o720, 0o702] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            assert!(said().ends_with(&refused), "{mode:o}");
        }
        fs::remove_dir(&dir).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &dir).unwrap();
        assert!(said().ends_with(&refused), "a link");
        let refusal = talk(&refused).0;
        assert!(matches!(refusal, Err(CopyError::Foreign { folder }) if folder == dir.to_str().unwrap()));
    }

    #[test]
    fn the_command_is_one_that_a_shell_reads_whole() {
        assert!(!SCRIPT.contains('\''), "it is put between single quotes");
        assert!(!SCRIPT.contains('!'), "csh replaces these");
    }
}
