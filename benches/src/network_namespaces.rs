//! The machines of both ends of a run: this one, or two network namespaces whose only way to each other is a long link.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
};

use anyhow::Context as _;
use tempfile::TempDir;
use testkit::{
    link::LinkConfig,
    ports,
    process::{Daemon, run},
    relay::Relay,
};

/// The addresses of the near and the far namespace.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];

/// The places where the ends of a run are started; by default, this machine.
#[derive(Debug, Clone, Default)]
pub struct Ends(Option<Rc<Tunnel>>);

/// Two namespaces, each with a device whose packets socat carries as datagrams through the relay. So TCP loses and
/// repeats packets as it does over a real link.
#[derive(Debug)]
struct Tunnel {
    namespaces: [Daemon; 2],
    _carriers: [Daemon; 2],
    _relay: Relay,
    _logs: TempDir,
}

impl Ends {
    /// Makes two namespaces that are joined by a link. Only root can.
    pub fn joined_by(link: LinkConfig) -> anyhow::Result<Self> {
        let logs = tempfile::tempdir()?;
        let port = ports::unused().port();
        let local = |port| ([127, 0, 0, 1], port).into();
        let relay = Relay::start(link, local(0), local(port))?;
        // A burst waits in the buffers, so that only the link loses packets.
        let buffers = "rcvbuf=4194304,sndbuf=4194304";
        let ways = [
            format!("UDP:{},{buffers}", relay.address()),
            format!("UDP-LISTEN:{port},bind=127.0.0.1,{buffers}"),
        ];
        let namespaces = [namespace(&logs)?, namespace(&logs)?];
        let mtu = link.mtu.unwrap_or(1472);
        let carry = |end: usize| carry(&namespaces[end], &ways[end], ADDRESSES[end], mtu, &logs);
        // The far end waits for the first packet of the near one.
        let far = carry(1)?;
        let carriers = [carry(0)?, far];
        Ok(Self(Some(Rc::new(Tunnel { namespaces, _carriers: carriers, _relay: relay, _logs: logs }))))
    }

    /// Returns the address at which the far end is reached.
    pub fn far_ip(&self) -> IpAddr {
        match self.0 {
            Some(_) => ADDRESSES[1].into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Returns the words before a command of the near end.
    pub fn near(&self) -> Vec<String> {
        self.at(0)
    }

    /// Returns the words before a command of the far end.
    pub fn far(&self) -> Vec<String> {
        self.at(1)
    }

    fn at(&self, end: usize) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |tunnel| inside(&tunnel.namespaces[end]))
    }
}

fn inside(namespace: &Daemon) -> Vec<String> {
    vec!["nsenter".into(), format!("--net={}", of_process(namespace.id()).display()), "--".into()]
}

fn of_process(id: u32) -> PathBuf {
    format!("/proc/{id}/ns/net").into()
}

fn namespace(logs: &TempDir) -> anyhow::Result<Daemon> {
    let mut holder = Daemon::start(Path::new("unshare"), &["--net", "sleep", "infinity"], logs.path())?;
    let (own, its) = (of_process(std::process::id()), of_process(holder.id()));
    holder.until(|| fs::read_link(&its).ok() != fs::read_link(&own).ok())?;
    Ok(holder)
}

/// Starts a carrier of packets, and moves its device into the namespace.
fn carry(
    namespace: &Daemon,
    way: &str,
    address: Ipv4Addr,
    mtu: usize,
    logs: &TempDir,
) -> anyhow::Result<Daemon> {
    let name = format!("vf{}", namespace.id());
    let device = format!("TUN,iff-no-pi,tun-name={name}");
    let mut carrier = Daemon::start(Path::new("socat"), &["-b", "65536", &device, way], logs.path())?;
    let made = Path::new("/sys/class/net").join(&name);
    carrier.until(|| made.exists()).context("waiting for the device of socat")?;
    let id = namespace.id().to_string();
    run(Command::new("ip").args(["link", "set", &name, "netns", &id]))?;
    let words = inside(namespace);
    let ip = |args: &[&str]| run(Command::new(&words[0]).args(&words[1..]).arg("ip").args(args)).map(drop);
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{address}/24"), "dev", &name])?;
    ip(&["link", "set", &name, "mtu", &mtu.to_string(), "txqueuelen", "10000", "up"])?;
    Ok(carrier)
}
