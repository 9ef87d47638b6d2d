//! A UDP relay that behaves like a long, lossy link.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use benches::{link::LinkConfig, relay::Relay};
use clap::Parser;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

/// Forwards UDP datagrams to one target and answers back to whoever sent, with the delay, loss and reordering of a long
/// link.
///
/// Prints one line of JSON with its address once it listens. Ends on SIGINT or SIGTERM, and then prints what went
/// through.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where to forward to
    #[arg(long)]
    to: SocketAddr,
    /// Round trip time in milliseconds; each direction takes half
    #[arg(long, default_value_t = 50.0)]
    rtt_ms: f64,
    /// Datagrams lost, in percent, each direction
    #[arg(long, default_value_t = 1.0)]
    loss_percent: f64,
    /// Datagrams held back so that others overtake them, in percent
    #[arg(long, default_value_t = 0.1)]
    reorder_percent: f64,
    /// Bytes per second in each direction, such as 100Mi; unlimited if absent
    #[arg(long, value_parser = contract::parse_bytes)]
    bandwidth: Option<u64>,
    /// The largest datagram that passes, in bytes of payload; 0 for any
    #[arg(long, default_value_t = 1472)]
    mtu: usize,
    /// Decides which datagrams are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    fn config(&self) -> anyhow::Result<LinkConfig> {
        for percent in [self.loss_percent, self.reorder_percent] {
            ensure!((0.0..=100.0).contains(&percent), "{percent} is not a percentage from 0 to 100");
        }
        Ok(LinkConfig {
            rtt: Duration::try_from_secs_f64(self.rtt_ms / 1000.0)?,
            loss: self.loss_percent / 100.0,
            reorder: self.reorder_percent / 100.0,
            bandwidth: self.bandwidth,
            mtu: (self.mtu > 0).then_some(self.mtu),
            seed: self.seed,
        })
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let relay = Relay::start(args.config()?, args.listen, args.to)?;
    println!("{}", serde_json::json!({"event": "listening", "address": relay.address()}));
    signals.forever().next();
    println!("{}", serde_json::json!({"event": "finished", "stats": relay.stats()}));
    Ok(())
}
