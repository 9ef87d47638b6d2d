//! The places of `volferry sync`: a path of this machine, `[USER@]HOST:PATH`, or a folder of a service,
//! `HOST[:PORT]::FOLDER[/PATH]`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use contract::is_name;
use thiserror::Error;

/// A place, as it is typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Here(PathBuf),
    There(RemotePlace),
    Service(ServicePlace),
}

/// The port of a service, unless another one is named.
pub(crate) const SERVICE_PORT: u16 = 7400;

/// A folder of a service, or a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePlace {
    /// A name or an address; an IPv6 address is in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) folder: String,
    /// The path below the folder; empty for all of it.
    pub(crate) path: String,
}

impl ServicePlace {
    /// Returns `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the machine as it is typed: without the port that services usually have.
    pub(crate) fn typed_host(&self) -> String {
        if self.port == SERVICE_PORT { self.host.clone() } else { self.address() }
    }

    /// Returns the error of a path in the folder that cannot be used.
    pub(crate) fn wrong_path(&self, path: &str, why: &str) -> PlaceError {
        // The hint has the rest.
        let why = why.split(": write ").next().unwrap_or_default().into();
        PlaceError::BelowService { place: format!("{}::{}/{path}", self.address(), self.folder), why }
    }

    /// Reads `HOST[:PORT]` and `FOLDER[/PATH]`.
    fn read(host: &str, folder: &str) -> Result<Self, PlaceError> {
        let wrong = || PlaceError::Service(format!("{host}::{folder}"));
        let (name, port) =
            match host.rsplit_once(':').filter(|(name, _)| !host.ends_with(']') && !name.is_empty()) {
                Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?),
                None => (host, SERVICE_PORT),
            };
        if name.contains('@') {
            return Err(PlaceError::UserOfService(host.into()));
        }
        let (folder, path) = folder.split_once('/').unwrap_or((folder, ""));
        if is_name(folder) {
            Ok(Self { host: name.into(), port, folder: folder.into(), path: path.into() })
        } else {
            Err(wrong())
        }
    }
}

/// A path of another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemotePlace {
    /// `HOST` or `USER@HOST`, as ssh takes it.
    pub(crate) host: OsString,
    /// The path; a relative one begins in the home folder.
    pub(crate) path: PathBuf,
}

/// A machine with a service, as `volferry enroll` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnrollPlace {
    /// `HOST` or `USER@HOST`, as ssh takes it.
    pub(crate) reached: OsString,
    pub(crate) host: String,
    /// The service's port, if it is named.
    pub(crate) port: Option<u16>,
    pub(crate) folder: Option<String>,
}

impl EnrollPlace {
    /// Reads `[USER@]HOST[:PORT][::FOLDER]`.
    pub(crate) fn parse(typed: &str) -> Result<Self, PlaceError> {
        let user = typed.find('@').map_or(0, |at| at + 1);
        let rest = &typed[user..];
        let from = if rest.starts_with('[') { rest.find(']').unwrap_or_default() } else { 0 };
        let (host, folder) = match rest[from..].find("::") {
            Some(at) => (&rest[..from + at], Some(&rest[from + at + 2..])),
            None => (rest, None),
        };
        let place = ServicePlace::read(host, folder.unwrap_or("any"))?;
        if typed.starts_with('-') {
            return Err(PlaceError::Flag(typed.into()));
        }
        let port = Some(place.port).filter(|_| host.len() > place.host.len());
        if place.host.is_empty() || place.host.contains('/') || !place.path.is_empty() {
            Err(PlaceError::Service(typed.into()))
        } else {
            Ok(Self {
                reached: format!("{}{}", &typed[..user], place.host).into(),
                folder: folder.map(|_| place.folder),
                host: place.host,
                port,
            })
        }
    }
}

/// A place on another machine where only one of this machine can be named.
#[derive(Debug, Error)]
#[error(
    "it is on another machine, {0}\nhint: run this command there, as by ssh; write ./ before the name of a folder with a colon"
)]
pub(crate) struct NotHere(String);

/// Returns the path of a folder of this machine, for commands that go to no other.
pub(crate) fn here(typed: PathBuf) -> Result<PathBuf, NotHere> {
    match Place::read(typed.clone()) {
        Ok(Place::There(there)) if !typed.exists() => Err(NotHere(there.host.to_string_lossy().into_owned())),
        Ok(Place::Service(service)) if !typed.exists() => Err(NotHere(service.host)),
        // The command says what else is wrong with it.
        _ => Ok(typed),
    }
}

/// Why a place cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PlaceError {
    #[error(
        "{} begins with a dash, which ssh would take for a flag\nhint: write ./ before a path of this machine", .0.display()
    )]
    Flag(PathBuf),
    #[error(
        "{0} names no folder of a service\nhint: write HOST::FOLDER or HOST:PORT::FOLDER, or ./ before a path of this machine"
    )]
    Service(String),
    #[error(
        "{place} names nothing in the folder: {why}\nhint: write a path below the folder, such as HOST::FOLDER/2026/march"
    )]
    BelowService { place: String, why: String },
    #[error("{} is not UTF-8, and all names of a service are\nhint: rename it, or name the folder above it", .0.display())]
    NotUtf8(PathBuf),
    #[error("{0}: a service knows its users by their keys\nhint: leave the name before the @ out")]
    UserOfService(String),
    /// Such as that of a variable that is not set.
    #[error("{} has no host before it\nhint: write HOST::FOLDER, or ./ before a path of this machine", .0.display())]
    NoHost(PathBuf),
    #[error("{} is a URL\nhint: {hint}", .0.display(), hint = in_place_of(.0))]
    Url(PathBuf),
}

/// Returns what to write in the place of a URL.
fn in_place_of(url: &Path) -> String {
    let url = url.to_string_lossy();
    match url.split_once("://") {
        Some(("s3", _)) => format!(
            "`volferry snapshot copy {url} DIR latest` brings a snapshot from there, and `volferry snapshot restore DIR \
             latest --to DST` its files"
        ),
        Some(("rsync", rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, "FOLDER"));
            format!("a folder of `volferry serve` is written {host}::{path}; no daemon of rsync is spoken to")
        }
        Some(("file", path)) if path.starts_with('/') => format!("write the path, {path}"),
        _ => "write HOST:PATH, which goes there by ssh".into(),
    }
}

impl Place {
    /// Reads a place. A path that is there on this machine, or whose folder is, is one of this machine, whatever it is
    /// called; so is one with a slash before the first colon.
    pub(crate) fn read(typed: PathBuf) -> Result<Self, PlaceError> {
        let is_here = typed.exists() || typed.parent().is_some_and(Path::exists);
        if !is_here && typed.as_os_str().as_bytes().starts_with(b"::") {
            return Err(PlaceError::NoHost(typed));
        }
        let Some((host, path)) = split(typed.as_os_str().as_bytes()).filter(|_| !is_here) else {
            return Ok(Self::Here(typed));
        };
        if host.starts_with(b"-") {
            return Err(PlaceError::Flag(typed));
        }
        if path.starts_with(b"//") {
            return Err(PlaceError::Url(typed));
        }
        if let Some((host, folder)) = of_service(typed.as_os_str().as_bytes(), host.len()) {
            let [Ok(host), Ok(folder)] = [host, folder].map(std::str::from_utf8) else {
                return Err(PlaceError::NotUtf8(typed));
            };
            return ServicePlace::read(host, folder).map(Self::Service);
        }
        let (host, path) = (OsStr::from_bytes(host).to_owned(), in_home(path));
        Ok(Self::There(RemotePlace { host, path }))
    }
}

/// Splits `HOST:PATH` at the colon after the host, which may be an IPv6 address in brackets.
fn split(typed: &[u8]) -> Option<(&[u8], &[u8])> {
    let user = typed.iter().position(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let bracket = typed.get(user) == Some(&b'[');
    let from = if bracket { typed.iter().position(|byte| *byte == b']')? } else { 0 };
    let colon = from + typed[from..].iter().position(|byte| *byte == b':')?;
    let (host, path) = (&typed[..colon], &typed[colon + 1..]);
    (!host.is_empty() && host.len() > user && !host.contains(&b'/')).then_some((host, path))
}

/// Splits `HOST::FOLDER` and `HOST:PORT::FOLDER` at the two colons, of a text whose host has this many bytes.
fn of_service(typed: &[u8], host: usize) -> Option<(&[u8], &[u8])> {
    let digits = typed[host + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let colons = if digits == 0 { host } else { host + 1 + digits };
    typed[colons..].starts_with(b"::").then(|| (&typed[..colons], &typed[colons + 2..]))
}

/// Returns a path that the far end takes as typed: `~/` leads to the home folder, in which ssh starts commands.
fn in_home(path: &[u8]) -> PathBuf {
    let path = match path {
        b"~" | b"" => b".",
        _ => path.strip_prefix(b"~/").unwrap_or(path),
    };
    let path = if path.starts_with(b"/") { path.to_vec() } else { [b"./", path].concat() };
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(typed: &str) -> (String, String) {
        match Place::read(typed.into()) {
            Ok(Place::There(RemotePlace { host, path })) => {
                (host.into_string().unwrap(), path.to_string_lossy().into_owned())
            }
            other => panic!("{typed}: {other:?}"),
        }
    }

    fn pair(host: &str, path: &str) -> (String, String) {
        (host.into(), path.into())
    }

    #[test]
    fn a_host_and_a_path_are_read_as_rsync_and_scp_write_them() {
        assert_eq!(there("nas:/srv/a:b"), pair("nas", "/srv/a:b"));
        assert_eq!(there("me@nas:docs"), pair("me@nas", "./docs"));
        assert_eq!(there("me@[2001:db8::7]:/x"), pair("me@[2001:db8::7]", "/x"));
        assert_eq!(there("nas:"), pair("nas", "./."));
        assert_eq!(there("nas:~/docs/"), pair("nas", "./docs/"));
    }

    #[test]
    fn a_path_of_this_machine_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let with_colon = dir.path().join("a:b");
        for here in ["/srv/a:b".into(), "./a:b".into(), ":b".into(), "plain".into(), with_colon] {
            assert_eq!(Place::read(PathBuf::clone(&here)), Ok(Place::Here(here)));
        }
    }

    #[test]
    fn a_folder_of_a_service_without_a_host_is_no_folder_of_this_machine() {
        assert!(matches!(Place::read("::photos".into()), Err(PlaceError::NoHost(_))));
        assert_eq!(Place::read("./::photos".into()), Ok(Place::Here("./::photos".into())));
    }

    #[test]
    fn a_host_that_ssh_would_take_for_a_flag_is_refused() {
        let refused = Place::read("-oProxyCommand=x:/y".into());
        assert!(matches!(refused, Err(PlaceError::Flag(_))), "{refused:?}");
    }

    #[test]
    fn a_url_says_what_to_write_in_its_place() {
        for (url, words) in [
            ("rsync://nas/data/x", "nas::data/x"),
            ("s3://backups/web", "snapshot copy s3://backups/web DIR latest"),
            ("file:///srv/data", "write the path, /srv/data"),
            ("https://nas/data", "HOST:PATH"),
        ] {
            let error = Place::read(url.into()).unwrap_err();
            assert!(matches!(error, PlaceError::Url(_)) && error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_machine_to_enroll_at_is_reached_by_ssh_and_its_service_by_its_host() {
        let read = |typed: &str| {
            let EnrollPlace { reached, host, port, folder } = EnrollPlace::parse(typed).unwrap();
            (reached.into_string().unwrap(), host, port, folder)
        };
        let of = |reached: &str, host: &str, port, folder: Option<&str>| {
            (reached.into(), host.into(), port, folder.map(str::to_owned))
        };
        assert_eq!(read("nas"), of("nas", "nas", None, None));
        assert_eq!(read("me@nas::photos"), of("me@nas", "nas", None, Some("photos")));
        assert_eq!(read("me@nas:7401::photos"), of("me@nas", "nas", Some(7401), Some("photos")));
        assert_eq!(read("[::1]::docs"), of("[::1]", "[::1]", None, Some("docs")));
        for wrong in ["", "-oProxyCommand=x", "me@", "nas::a/b", "nas:x", "a/b"] {
            assert!(EnrollPlace::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_colons_lead_to_a_folder_of_a_service() {
        let service = |typed: &str| match Place::read(typed.into()) {
            Ok(Place::Service(place)) => (place.address(), place.folder, place.path),
            other => panic!("{typed}: {other:?}"),
        };
        let place = |address: &str, folder: &str, path: &str| (address.into(), folder.into(), path.into());
        assert_eq!(service("nas::photos"), place("nas:7400", "photos", ""));
        assert_eq!(service("nas:7401::photos/2026/a"), place("nas:7401", "photos", "2026/a"));
        assert_eq!(service("[2001:db8::7]::photos"), place("[2001:db8::7]:7400", "photos", ""));
        assert_eq!(service("[::1]:9::photos"), place("[::1]:9", "photos", ""));
        assert!(matches!(Place::read("me@nas::photos".into()), Err(PlaceError::UserOfService(_))));
        let latin = OsString::from_vec(b"nas::photos/\xfc".to_vec());
        assert!(matches!(Place::read(latin.into()), Err(PlaceError::NotUtf8(_))));
        for wrong in ["nas::", "nas::../x", "nas:0::photos", "nas:99999::photos"] {
            assert!(matches!(Place::read(wrong.into()), Err(PlaceError::Service(_))), "{wrong}");
        }
    }
}
