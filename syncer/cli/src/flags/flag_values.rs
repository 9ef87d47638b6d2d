//! Parsers of values that can be checked separately.

use std::{net::SocketAddr, time::Duration};

use syncer::path::{OWN_DIR, RelPath};

/// The longest time that a flag of seconds takes, 100 years: it can be added to the time of day.
const MAX_SECONDS: u64 = 100 * 365 * 24 * 3600;

/// Parses a folder below another, written as in a SyncJob's `path`: with or without a leading slash.
pub(crate) fn folder_below(s: &str) -> Result<RelPath, String> {
    let path = s.strip_prefix('/').unwrap_or(s);
    if path.is_empty() {
        return Ok(RelPath::root());
    }
    let step = |at: RelPath, name: &str| {
        // Where case is folded, other spellings lead there, too.
        if name.as_bytes().eq_ignore_ascii_case(OWN_DIR) {
            Err(".volferry is Volferry's own folder".to_string())
        } else {
            at.join(name.as_bytes()).map_err(|error| error.to_string())
        }
    };
    let below = path.split('/').try_fold(RelPath::root(), step);
    below.map_err(|problem| format!("{problem}: write a folder below it, such as /data/uploads"))
}

pub(super) fn job_name(s: &str) -> Result<String, String> {
    match s.len() {
        1..=contract::MAX_JOB_BYTES => Ok(s.into()),
        _ => Err(format!("a job's name has 1 to {} bytes", contract::MAX_JOB_BYTES)),
    }
}

pub(crate) fn listen_address(s: &str) -> Result<SocketAddr, String> {
    s.parse()
        .map_err(|_| "write an IP address and a port, such as 0.0.0.0:7400, [::]:7400 or 127.0.0.1:0".into())
}

/// Accepts `host:port` without resolving the host: the engine does that, at each attempt.
pub(super) fn peer_address(s: &str) -> Result<String, String> {
    let split = s.rsplit_once(':').filter(|(host, _)| is_host(host));
    match split.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => Ok(s.into()),
        _ => {
            Err("write a host and a port, such as copy.example.org:7400, 10.0.0.7:7400 or [2001:db8::7]:7400"
                .into())
        }
    }
}

fn is_host(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty() && !host.contains([':', '[', ']', '/']) && !host.contains(char::is_whitespace)
        }
    }
}

pub(crate) fn seconds(s: &str) -> Result<Duration, String> {
    match s.parse() {
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("write a whole number of seconds, 1 or more, and at most {MAX_SECONDS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for good in ["host:1", "10.0.0.7:7400", "[2001:db8::7]:65535", "a-b.example.org:7400"] {
            assert_eq!(peer_address(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "host",
            "host:",
            ":7400",
            "host:0",
            "host:65536",
            "2001:db8::7:7400",
            "[host]:1",
            "http://h:1",
            "a b:1",
        ] {
            assert!(peer_address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_listening_address_is_an_ip_and_a_port() {
        assert_eq!(listen_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["", "localhost:0", "127.0.0.1", ":7400", "::1:0"] {
            assert!(listen_address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_folder_below_never_leads_out() {
        for (text, path) in [("", ""), ("/", ""), ("/a/b", "a/b"), ("a/..b", "a/..b")] {
            assert_eq!(folder_below(text).unwrap().as_bytes(), path.as_bytes(), "{text:?}");
        }
        for bad in
            ["..", "/a/../b", "//a", "/a/", "a//b", ".", "/.volferry", "/.VOLferry", "a/.volferry/x", "a\0"]
        {
            assert!(folder_below(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_timeout_is_at_least_a_second_and_can_be_added_to_a_time() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        let longest = seconds(&MAX_SECONDS.to_string()).unwrap();
        assert!(std::time::Instant::now().checked_add(longest).is_some());
        for bad in ["0", "-1", "1.5", "", "1s", "3153600001", "18446744073709551615"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
