//! The link between the two ends of a run.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What carries QUIC's packets between the ends of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// UDP.
    Udp,
    /// One TCP connection.
    Tcp,
    /// Standard input and output of the command that started the other end, such as ssh.
    Ssh,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "quic/udp",
            Self::Tcp => "quic/tcp",
            Self::Ssh => "quic/ssh",
        })
    }
}

/// The link of a run, as the end that has the destination knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunLink {
    /// What carries the packets.
    pub kind: LinkKind,
    /// The round trip when the ends met, in microseconds.
    pub rtt_us: u64,
}

impl fmt::Display for RunLink {
    /// Writes `quic/udp 12 ms`, and below 10 ms one digit more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = Duration::from_micros(self.rtt_us).as_secs_f64() * 1000.0;
        let digits = usize::from(ms < 10.0);
        write!(f, "{} {ms:.digits$} ms", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_with_its_round_trip() {
        let link = |kind, rtt_us| RunLink { kind, rtt_us }.to_string();
        assert_eq!(link(LinkKind::Udp, 12_340), "quic/udp 12 ms");
        assert_eq!(link(LinkKind::Tcp, 380), "quic/tcp 0.4 ms");
        assert_eq!(link(LinkKind::Ssh, 1_040), "quic/ssh 1.0 ms");
    }
}
