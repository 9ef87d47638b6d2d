//! Flags as they are typed for rsync: those whose meaning is ours are taken, and those of another meaning are refused
//! with the name of ours. The table is also that of the book, by `volferry generate --rsync-flags`.

use std::{collections::VecDeque, ffi::OsString};

use thiserror::Error;

use super::bandwidth_rate::bytes_of_rate;

/// How a flag of rsync is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The flag has the same name and meaning here.
    Same,
    /// It asks for what every run does.
    Always,
    /// It is another flag here.
    As(&'static str),
    /// It is another flag here, with its value.
    With(&'static str),
    /// It is `--bandwidth-limit`, with a value in rsync's units.
    Rate,
    /// It is refused, with a hint.
    Refused,
}
use Meaning::{Always, As, Rate, Refused, Same, With};

/// A flag of rsync: its names, whether it has a value, its meaning, and what the book or a hint says of it.
struct RsyncFlag(&'static str, bool, Meaning, &'static str);

#[rustfmt::skip]
const FLAGS: &[RsyncFlag] = &[
    RsyncFlag("-n --dry-run", false, Same, "it prints the changes without `-v`"),
    RsyncFlag("-v --verbose", false, Same, "one line for each change"),
    RsyncFlag("-i --itemize-changes", false, Same, "rsync's letters"),
    RsyncFlag("-q --quiet", false, Same, ""),
    RsyncFlag("-c --checksum", false, Same, ""),
    RsyncFlag("-u --update", false, Same, ""),
    RsyncFlag("-x --one-file-system", false, Same, "at both ends"),
    RsyncFlag("--exclude --exclude-from", true, Same, "gitignore patterns; see below"),
    RsyncFlag("--include --include-from", true, Same, "another meaning; see below"),
    RsyncFlag("-e --rsh", true, Same, "of `sync`"),
    RsyncFlag("--existing --ignore-existing --size-only", false, Same, ""),
    RsyncFlag("-f --filter", true, Same, "`+ - . : !` with the modifiers `! - + e n`; files of `:` are read in SRC"),
    RsyncFlag("--remove-source-files", false, Same, "after DST was read back; not with `--delete`"),
    RsyncFlag("--chmod", true, Same, "each change names u, g, o or a"),
    RsyncFlag("--chown", true, Same, "names are those of the machine on which it is typed"),
    RsyncFlag("-0 --from0", false, Same, ""),
    RsyncFlag("--files-from", true, Same, "folders in the list are taken with everything below"),
    RsyncFlag("--min-size --max-size", true, Same, "`1K` is 1000 bytes and `1Ki` 1024; in rsync `1K` is 1024"),
    RsyncFlag("--backup-dir", true, Same, "of `sync` and `receive`; it needs no `-b`, and there is no `--suffix`"),
    RsyncFlag("--max-delete", true, Same, "a run that would delete more is refused; rsync deletes up to NUM and goes on"),
    RsyncFlag("--delete", false, Same, "after everything else has arrived; the first run onto a folder with files asks for `--adopt`"),
    RsyncFlag("--force", false, Same, "another meaning: it overrides guards. A folder that a file replaces is removed with `--delete`"),
    RsyncFlag("--no-times --no-specials --no-hard-links --no-xattrs --no-acls --no-sparse", false, Same, ""),
    RsyncFlag("-a --archive", false, Always, "and hard links, holes, extended attributes and ACLs too"),
    RsyncFlag("-r --recursive", false, Always, ""),
    RsyncFlag("-l --links", false, Always, "symbolic links are copied as they are"),
    RsyncFlag("-p --perms -E --executability", false, Always, ""),
    RsyncFlag("-t --times", false, Always, "to the nanosecond"),
    RsyncFlag("-g --group -o --owner", false, Always, "if the process may; `--ownership always` fails if it may not"),
    RsyncFlag("-D --devices --specials", false, Always, ""),
    RsyncFlag("-H --hard-links", false, Always, ""),
    RsyncFlag("-A --acls -X --xattrs", false, Always, ""),
    RsyncFlag("-S --sparse", false, Always, ""),
    RsyncFlag("-h --human-readable", false, Always, "beside other flags; `-h` alone prints help"),
    RsyncFlag("-z --compress", false, Always, "where it saves time, over a network; `--compression` sets a level"),
    RsyncFlag("--numeric-ids", false, Always, "owners are kept by number"),
    RsyncFlag("--partial -P", false, Always, "over a network; a local run keeps whole files only"),
    RsyncFlag("--progress", false, Always, "a bar on a terminal; `--progress json` for programs"),
    RsyncFlag("--stats", false, Always, "the summary of each run; `--report FILE` has it as JSON"),
    RsyncFlag("--info", true, Always, ""),
    RsyncFlag("-y --fuzzy --no-whole-file --no-W", false, Always, "renamed, moved and similar files are found everywhere in DST"),
    RsyncFlag("-W --whole-file", false, Always, "a file is sent whole where that takes less time"),
    RsyncFlag("-s --secluded-args --protect-args", false, Always, ""),
    RsyncFlag("--no-motd --blocking-io --msgs2stderr", false, Always, ""),
    RsyncFlag("--skip-compress", true, Always, "data that does not get smaller is sent as it is"),
    RsyncFlag("--max-alloc --outbuf --stderr", true, Always, "memory is bounded; lines are written at once, and messages to standard error"),
    RsyncFlag("--fsync", false, Always, "a run ends when its files are on the disk"),
    RsyncFlag("--inplace", false, As("--write=in-place"), "crash-safe by a journal"),
    RsyncFlag("--del --delete-after --delete-during --delete-delay", false, As("--delete"), "all deletes come after everything else"),
    RsyncFlag("--delete-before", false, As("--delete=before"), ""),
    RsyncFlag("--ignore-non-existing", false, As("--existing"), ""),
    RsyncFlag("--ignore-errors", false, As("--delete-anyway"), ""),
    RsyncFlag("--no-compress --no-z", false, As("--compression=none"), "over a network"),
    RsyncFlag("--no-progress", false, As("--progress=none"), ""),
    RsyncFlag("--no-perms --no-p", false, As("--no-permissions"), ""),
    RsyncFlag("--no-t", false, As("--no-times"), ""),
    RsyncFlag("--no-D --drop-D", false, As("--no-specials"), ""),
    RsyncFlag("--no-H", false, As("--no-hard-links"), ""),
    RsyncFlag("--no-X", false, As("--no-xattrs"), ""),
    RsyncFlag("--no-A", false, As("--no-acls"), ""),
    RsyncFlag("--no-S", false, As("--no-sparse"), ""),
    RsyncFlag("--contimeout", true, With("--connect-timeout"), "over a network"),
    RsyncFlag("--bwlimit", true, Rate, "a bare number is KiB a second, as in rsync; `--bandwidth-limit` counts bytes"),
    RsyncFlag("--no-owner --no-o --no-group --no-g", false, Refused, "`--ownership never` leaves out owner and group, as both flags together do"),
    RsyncFlag("--no-devices", false, Refused, "`--no-specials` leaves out devices and pipes"),
    RsyncFlag("--delete-excluded", false, Refused, "an excluded entry is never deleted: leave the pattern out, or remove such entries yourself"),
    RsyncFlag("--delete-missing-args --ignore-missing-args", false, Refused, "a path that SRC lacks counts as failed"),
    RsyncFlag("-b --backup --suffix", false, Refused, "`--backup-dir DIR` keeps old versions"),
    RsyncFlag("-C --cvs-exclude", false, Refused, "`--filter` takes rsync's rules, and `--exclude` gitignore patterns"),
    RsyncFlag("-F", false, Refused, "`--filter ': .rsync-filter'` reads those files, and `:e` also leaves them out"),
    RsyncFlag("--append --append-verify", false, Refused, "leave it out: of a file that grew only the new bytes are sent, and the whole of it is verified"),
    RsyncFlag("--partial-dir -T --temp-dir", true, Refused, "leave it out: unfinished files are kept in DST/.volferry"),
    RsyncFlag("--block-size -B", true, Refused, "leave it out: blocks are chosen by the content"),
    RsyncFlag("--compress-level --zl --compress-choice --zc --compress-threads --zt", true, Refused, "`--compression none` or a level of zstd, over a network"),
    RsyncFlag("--checksum-choice --cc --checksum-seed", true, Refused, "leave it out: content is compared by BLAKE3"),
    RsyncFlag("-I --ignore-times", false, Refused, "`-c` compares contents"),
    RsyncFlag("-@ --modify-window", true, Refused, "times are compared to the nanosecond; `--size-only` leaves them out"),
    RsyncFlag("-O --omit-dir-times -J --omit-link-times", false, Refused, "`--no-times` leaves out all times"),
    RsyncFlag("-U --atimes -N --crtimes", false, Refused, "only modification times are kept"),
    RsyncFlag("-L --copy-links -k --copy-dirlinks -K --keep-dirlinks --copy-unsafe-links --safe-links --munge-links --insecure-links", false, Refused, "no link is followed, except SRC and DST themselves"),
    RsyncFlag("--no-links --no-l", false, Refused, "symbolic links are copied as they are"),
    RsyncFlag("-R --relative", false, Refused, "`--source-path a/b --destination-path a/b` sync a folder below SRC to its place below DST, and `--files-from` several"),
    RsyncFlag("--no-relative --no-R --no-implied-dirs", false, Refused, "what `--files-from` names keeps its folders, and these their attributes"),
    RsyncFlag("-d --dirs --no-dirs --no-d --old-dirs --old-d --no-recursive --no-r", false, Refused, "a run takes everything below SRC; `--exclude` leaves folders out"),
    RsyncFlag("-m --prune-empty-dirs", false, Refused, "empty folders are copied, too; `--exclude` leaves folders out"),
    RsyncFlag("--mkpath", false, Refused, "make the folders above DST first; the last one is made"),
    RsyncFlag("--usermap --groupmap --copy-as", true, Refused, "`--chown` gives all entries one owner"),
    RsyncFlag("--fake-super --super", false, Refused, "`--ownership always` fails where owners cannot be kept"),
    RsyncFlag("--link-dest --compare-dest --copy-dest", true, Refused, "`--snapshot` keeps earlier states, which share unchanged data"),
    RsyncFlag("--log-file", true, Same, "each run and each failed file, and with `-v` each change"),
    RsyncFlag("--log-file-format --out-format", true, Refused, "`-i` prints rsync's letters, `--progress json` a line of JSON for each change"),
    RsyncFlag("--list-only", false, Refused, "`-n` lists what a run would do"),
    RsyncFlag("--timeout", true, Refused, "leave it out: a peer that is silent for 10 s is lost"),
    RsyncFlag("--password-file --port --address --early-input", true, Refused, "of `send`: `--connect HOST:PORT --identity FILE`"),
    RsyncFlag("--confine-root", true, Refused, "`--source-path` and `--destination-path` lead through no symbolic link"),
    RsyncFlag("-4 --ipv4 -6 --ipv6", false, Refused, "`-e 'ssh -4'` chooses the family"),
    RsyncFlag("-M --remote-option", true, Refused, "the other end gets its flags from this one"),
    RsyncFlag("--protocol", true, Refused, "both ends have to be of one version: `--bootstrap` copies this program"),
    RsyncFlag("--sockopts", true, Refused, "leave it out: buffers follow the speed of the link"),
    RsyncFlag("--daemon", false, Refused, "`volferry serve` serves folders to peers that it knows by their keys"),
    RsyncFlag("--trust-sender --old-args", false, Refused, "leave it out: what the other end says is always checked, and no shell there reads the path"),
    RsyncFlag("--debug", true, Refused, "`-vv` and `-vvv` say more"),
    RsyncFlag("--delay-updates", false, Refused, "each file is replaced as a whole once it has arrived; `volferry snapshot` keeps whole states"),
    RsyncFlag("--preallocate --open-noatime", false, Refused, "leave it out: it changes nothing that is copied"),
    RsyncFlag("-8 --8-bit-output", false, Refused, "leave it out: names are printed as UTF-8, with the rest escaped"),
    RsyncFlag("-V --version", false, Refused, "`volferry --version`"),
    RsyncFlag("--copy-devices --write-devices", false, Refused, "`--image` copies the content of devices and images"),
    RsyncFlag("--write-batch --only-write-batch --read-batch", true, Refused, "a run needs both ends"),
    RsyncFlag("--rsync-path", true, Refused, "`--remote-program` names the program at the other end"),
    RsyncFlag("--iconv", true, Refused, "leave it out: names are copied as bytes"),
    RsyncFlag("--no-i-r --no-inc-recursive --inc-recursive --i-r", false, Always, ""),
    RsyncFlag("--stop-after --stop-at --time-limit", true, Refused, "`timeout 1h volferry …` stops a run; the next one continues"),
];

/// Words behind `--progress` that are no place: its values, and what one may take for them.
const WHENS: [&str; 12] =
    ["auto", "bar", "json", "none", "yes", "no", "true", "false", "on", "off", "always", "never"];

/// Why a command line with flags of rsync cannot be carried out.
#[derive(Debug, Error)]
pub(crate) enum RsyncFlagError {
    #[error("{flag} of rsync is not taken\nhint: {hint}")]
    Refused { flag: String, hint: &'static str },
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("--bwlimit {0} is no rate\nhint: write it as for rsync, such as 10m; or --bandwidth-limit 10MB")]
    Rate(String),
}

/// Translates the arguments behind a command. `has` says which letters are flags here. A flag that is in no table stays
/// as it is.
///
/// # Errors
/// If a flag has no counterpart here, or another meaning.
pub(crate) fn translate(
    args: impl IntoIterator<Item = OsString>,
    has: &dyn Fn(char) -> bool,
) -> Result<Vec<OsString>, RsyncFlagError> {
    let mut args: VecDeque<OsString> = args.into_iter().collect();
    let is_alone = args.len() == 1;
    let mut out = Vec::from_iter(without_owners(&mut args));
    while let Some(arg) = args.pop_front() {
        match arg.to_str() {
            Some("--") => {
                out.push(arg);
                out.extend(args.drain(..));
            }
            Some(text) if text.starts_with("--") => long(text, &mut args, &mut out)?,
            Some(text) if text.len() > 1 && text.starts_with('-') && !is_alone => {
                letters(text, &mut args, has, &mut out)?;
            }
            _ => out.push(arg),
        }
    }
    Ok(delete_once(out))
}

/// Takes the flags that leave out owner and group, if both are there; returns ours for them.
fn without_owners(args: &mut VecDeque<OsString>) -> Option<OsString> {
    const HALVES: [[&str; 2]; 2] = [["--no-owner", "--no-o"], ["--no-group", "--no-g"]];
    let flags = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let is_of = |half: &[&str; 2], arg: &OsString| half.iter().any(|name| arg == name);
    if !HALVES.iter().all(|half| args.iter().take(flags).any(|arg| is_of(half, arg))) {
        return None;
    }
    let mut at = 0..;
    args.retain(|arg| at.next() >= Some(flags) || !HALVES.iter().any(|half| is_of(half, arg)));
    Some("--ownership=never".into())
}

/// Keeps one of several flags to delete, which rsync takes together; `--delete=before` has the most to say.
fn delete_once(mut words: Vec<OsString>) -> Vec<OsString> {
    let flags = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let before = words[..flags].iter().position(|word| word == "--delete=before");
    let kept = before.or_else(|| words[..flags].iter().position(|word| word == "--delete"));
    let mut at = 0..;
    words.retain(|word| {
        let at = at.next();
        at >= Some(flags) || at == kept || (word != "--delete" && word != "--delete=before")
    });
    words
}

fn long(text: &str, args: &mut VecDeque<OsString>, out: &mut Vec<OsString>) -> Result<(), RsyncFlagError> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    // `--progress WHEN` is ours, and rsync's has no value.
    let next = args.front().and_then(|next| next.to_str());
    let is_ours = name == "--progress" && (value.is_some() || next.is_some_and(|next| WHENS.contains(&next)));
    match find(name).filter(|_| !is_ours) {
        Some(flag) => push(flag, name, value, args, out),
        None => {
            out.push(text.into());
            Ok(())
        }
    }
}

/// Takes the letters of an argument one by one. A letter that has a value takes the rest of the argument.
fn letters(
    text: &str,
    args: &mut VecDeque<OsString>,
    has: &dyn Fn(char) -> bool,
    out: &mut Vec<OsString>,
) -> Result<(), RsyncFlagError> {
    for (at, letter) in text.char_indices().skip(1) {
        let name = format!("-{letter}");
        match find(&name) {
            Some(RsyncFlag(_, false, Same, _)) => out.push(name.into()),
            Some(RsyncFlag(_, true, Same, _)) => {
                out.push(format!("-{}", &text[at..]).into());
                return Ok(());
            }
            None if has(letter) => {
                out.push(format!("-{}", &text[at..]).into());
                return Ok(());
            }
            Some(flag) => push(flag, &name, None, args, out)?,
            None => out.push(name.into()),
        }
    }
    Ok(())
}

fn push(
    RsyncFlag(_, takes, meaning, note): &RsyncFlag,
    name: &str,
    value: Option<&str>,
    args: &mut VecDeque<OsString>,
    out: &mut Vec<OsString>,
) -> Result<(), RsyncFlagError> {
    let mut value_of = || match value {
        Some(value) => Ok(OsString::from(value)),
        None => args.pop_front().ok_or_else(|| RsyncFlagError::NoValue(name.into())),
    };
    match meaning {
        Same => out.push(value.map_or_else(|| name.to_string(), |value| format!("{name}={value}")).into()),
        Always if *takes => drop(value_of()?),
        Always => {}
        As(ours) => out.push(ours.into()),
        With(ours) => out.extend([OsString::from(ours), value_of()?]),
        Rate => {
            let text = value_of()?.to_string_lossy().into_owned();
            let rate = bytes_of_rate(&text).ok_or(RsyncFlagError::Rate(text))?;
            out.extend((rate > 0).then(|| format!("--bandwidth-limit={rate}").into()));
        }
        Refused => return Err(RsyncFlagError::Refused { flag: name.into(), hint: note }),
    }
    Ok(())
}

fn find(name: &str) -> Option<&'static RsyncFlag> {
    FLAGS.iter().find(|RsyncFlag(names, ..)| names.split(' ').any(|its| its == name))
}

/// Returns the table as Markdown.
pub(crate) fn table() -> String {
    let code = |names: &str| names.split(' ').map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let row = |RsyncFlag(names, _, meaning, note): &RsyncFlag| {
        let ours = match meaning {
            Same => "the same name".into(),
            Always => "always so".into(),
            As(ours) | With(ours) => format!("`{ours}`"),
            Rate => "taken in rsync's units".into(),
            Refused => "refused".into(),
        };
        let note = if note.is_empty() { String::new() } else { format!(" {note}") };
        format!("| {} | {ours} |{note} |\n", code(names))
    };
    let rows: String = FLAGS.iter().map(row).collect();
    format!("| rsync | volferry | |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, RsyncFlagError> {
        let args = line.split(' ').map(OsString::from);
        let words = translate(args, &|letter| "nviqcux0h".contains(letter))?;
        Ok(words.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn what_every_run_does_is_left_out_and_other_names_become_ours() {
        for (typed, ours) in [
            ("-aHAXS a b", "a b"),
            ("-avzhP --numeric-ids --stats --info=progress2 a b", "-v a b"),
            ("-anc --delete-before --inplace a b", "-n -c --delete=before --write=in-place a b"),
            ("--bwlimit=10000 --max-delete 5 a b", "--bandwidth-limit=10240000 --max-delete 5 a b"),
            ("--bwlimit 1.5m a b", "--bandwidth-limit=1572864 a b"),
            ("--progress a b", "a b"),
            ("-ave ssh a b", "-v -e ssh a b"),
            ("--progress json a b", "--progress json a b"),
            ("a b --progress yes", "a b --progress yes"),
            ("--info progress2 -r a b", "a b"),
            ("--delete --delete-after --del a b", "--delete a b"),
            ("-a --no-o --no-group a b -- --no-g", "--ownership=never a b -- --no-g"),
            ("--delete --delete-before a b -- --delete", "--delete=before a b -- --delete"),
            ("-h", "-h"),
            ("-Z --unknown=1 a -- -a", "-Z --unknown=1 a -- -a"),
        ] {
            assert_eq!(translated(typed).unwrap(), ours, "{typed}");
        }
    }

    #[test]
    fn a_flag_of_another_meaning_is_refused_with_the_name_of_ours() {
        for (typed, named) in [
            ("-aL a b", "-L of rsync"),
            ("--link-dest=x a b", "--snapshot"),
            ("-a4 a b", "-e 'ssh -4'"),
            ("-a --no-o a b", "--ownership never"),
            ("--compress-level 9 a b", "--compression"),
            ("-ab a b", "--backup-dir"),
            ("--bwlimit=ten a b", "--bandwidth-limit"),
            ("--bwlimit", "needs a value"),
        ] {
            let error = translated(typed).unwrap_err().to_string();
            assert!(error.contains(named), "{typed}: {error}");
        }
    }

    #[test]
    fn each_flag_of_rsync_is_in_the_table_once() {
        let mut names: Vec<_> = FLAGS.iter().flat_map(|RsyncFlag(names, ..)| names.split(' ')).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(table().lines().count(), FLAGS.len() + 2);
    }
}
