//! What ssh would do to reach a host, as its settings say. It does not connect for that.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{Command, Stdio},
};

/// Returns whether the words of a command line start ssh.
pub(super) fn is_ssh(rsh: &[OsString]) -> bool {
    rsh.first().and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "ssh")
}

/// Returns the value of a setting for a host.
pub(super) fn of_host(program: &OsStr, words: &[OsString], host: &OsStr, setting: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(words).arg("-G").arg(host).stdin(Stdio::null()).stderr(Stdio::null());
    let output = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let value = |line: &str| Some(line.strip_prefix(setting)?.strip_prefix(' ')?.to_owned());
    output.lines().find_map(value)
}

/// Returns the name or address that `rsh`, the words of a command line, reaches a host by; one of IPv6 is in brackets.
/// `None` if that is another program than ssh.
pub(crate) fn address(rsh: &[OsString], host: &OsStr) -> Option<String> {
    let (program, words) = rsh.split_first().filter(|_| is_ssh(rsh))?;
    let address = of_host(program, words, host, "hostname")?;
    Some(if address.contains(':') { format!("[{address}]") } else { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_host_is_that_of_the_settings() {
        let address = |words: &[&str]| {
            let rsh: Vec<OsString> = words.iter().map(OsString::from).collect();
            super::address(&rsh, OsStr::new("me@nas"))
        };
        assert_eq!(address(&["ssh", "-F", "none"]).as_deref(), Some("nas"));
        assert_eq!(address(&["ssh", "-F", "none", "-o", "HostName=10.0.0.7"]).as_deref(), Some("10.0.0.7"));
        assert_eq!(
            address(&["ssh", "-F", "none", "-oHostName=2001:db8::7"]).as_deref(),
            Some("[2001:db8::7]")
        );
        assert_eq!(address(&["docker", "exec"]), None);
    }
}
