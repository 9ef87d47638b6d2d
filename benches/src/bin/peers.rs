//! Runs Volferry and its peers side by side, and prints how they compare.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use benches::{
    comparison_table::{Results, Table, Verdict},
    machine::Machine,
    peers::{self, Missing, Named, Peer, Programs},
    runner::{Row, Settings, run_scenario},
    scenario::{Scenario, Set, scenarios},
    trees::Tree,
    workdir::{FileSystem, WorkDir, enter_namespace},
};
use clap::{Parser, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use testkit::link::LinkConfig;

/// Measures Volferry side by side with rsync, sparsync, tar, cp and sy, on trees that are the same everywhere.
///
/// Every result is compared with its source; a tool that left a wrong one has no figure. The status is 1 when Volferry
/// failed anywhere, or with --strict also when it is not ahead somewhere.
#[derive(Debug, Parser)]
struct Args {
    /// Only the scenarios of one set
    #[arg(long, value_enum)]
    set: Option<Set>,
    /// Only these trees
    #[arg(long, value_enum, num_args = 1..)]
    tree: Vec<Tree>,
    /// Only the tree net1k
    #[arg(long, conflicts_with = "tree")]
    quick: bool,
    /// Only these tools, by their names in the table
    #[arg(long, num_args = 1.., value_name = "NAME")]
    only: Vec<String>,
    /// What lies between the ends. Over `wan` (50 ms round trip, 1 % loss) the network set has only tools that speak
    /// UDP, and --set ssh needs root. Without --tree, only net1k is measured there
    #[arg(long, value_enum, default_value = "loopback")]
    link: Link,
    /// Bytes per second of the `wan` link, such as 100Mi; unlimited if absent
    #[arg(long, value_parser = contract::parse_bytes)]
    bandwidth: Option<u64>,
    /// Rounds; figures are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Folder to work in; some gigabytes are needed
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// What the trees are kept on; a file system of its own is made in a file in --dir, mounted for the time of the
    /// bench
    #[arg(long, value_enum, default_value = "dir")]
    fs: FileSystem,
    /// Stop each tool's clock when its copy is durable (`syncfs`), as Volferry's always is
    #[arg(long)]
    durable: bool,
    /// Write all figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What a reader of the figures has to know besides
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    volferry: Option<PathBuf>,
    /// Where the peers that are crates are installed
    #[arg(long, value_name = "DIR")]
    peers_root: Option<PathBuf>,
    /// Install the peers that are missing, from Debian and crates.io, before anything else
    #[arg(long)]
    install: bool,
    /// A run that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Fail when Volferry is not ahead in every step
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Link {
    Loopback,
    Wan,
}

fn main() -> ExitCode {
    benches::exit_code(bench(&Args::parse()))
}

/// Runs the benches; returns false if Volferry's figures are not good enough.
fn bench(args: &Args) -> anyhow::Result<bool> {
    enter_namespace(args.fs)?;
    let programs = Programs { root: peers_root(args)?, volferry: args.volferry.clone() };
    if args.install {
        peers::install(&programs)?;
    }
    let results = measure(args, &programs)?;
    print(&results);
    benches::write_json(args.json.as_deref(), &results)?;
    Ok(good_enough(&results, args.strict))
}

fn measure(args: &Args, programs: &Programs) -> anyhow::Result<Results> {
    let settings = Settings {
        rounds: args.rounds,
        limit: Duration::from_secs(args.limit),
        durable: args.durable,
        interrupted: Arc::default(),
    };
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&settings.interrupted))?;
    }
    let plans = plans(args, programs)?;
    let largest = plans.iter().flat_map(|plan| &plan.scenarios).map(|scenario| scenario.tree.bytes()).max();
    let work = WorkDir::make(&args.dir, args.fs, image_bytes(largest.unwrap_or(0)))?;
    let machine = Machine::describe(work.trees());
    eprintln!("{machine}");
    if machine.load > 0.5 {
        eprintln!("the machine is busy with something else; these figures will not be worth keeping");
    }
    let mut tables = Vec::new();
    let mut missing = Vec::new();
    for plan in plans {
        missing.extend(plan.missing.clone());
        tables.push(plan.run(&work, &settings)?);
    }
    missing.dedup();
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let (rounds, durable, note) = (args.rounds, args.durable, args.note.clone());
    Ok(Results { date, machine, rounds, durable, tables, missing, note })
}

/// The plan of one table.
struct Plan {
    title: String,
    scenarios: Vec<Scenario>,
    peers: Vec<Box<dyn Peer>>,
    missing: Vec<Missing>,
    rtt_ms: Option<f64>,
}

impl Plan {
    fn run(mut self, work: &WorkDir, settings: &Settings) -> anyhow::Result<Table> {
        let tools: Vec<Named> = self.peers.iter().map(|peer| Named::of(peer.as_ref())).collect();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        eprintln!("{}: milliseconds of {}", self.title, names.join(", "));
        let mut rows: Vec<Row> = Vec::new();
        for scenario in &self.scenarios {
            rows.extend(run_scenario(scenario, &mut self.peers, work, settings)?);
        }
        Ok(Table::new(self.title, tools, &rows, self.rtt_ms))
    }
}

fn plans(args: &Args, programs: &Programs) -> anyhow::Result<Vec<Plan>> {
    let sets = match (args.link, args.set) {
        (Link::Wan, set) if set != Some(Set::Ssh) => &[Set::Network],
        (_, Some(set)) => &[set][..],
        (_, None) => Set::value_variants(),
    };
    let mut plans = Vec::new();
    for set in sets {
        let plan = plan(args, programs, *set)?;
        ensure!(args.only.is_empty() || !plan.peers.is_empty(), "--only names no tool that is there");
        if !plan.scenarios.is_empty() {
            plans.push(plan);
        }
    }
    ensure!(
        !plans.is_empty(),
        "no scenario is left: --tree names trees of another --set, or --fs cannot clone"
    );
    Ok(plans)
}

fn plan(args: &Args, programs: &Programs, set: Set) -> anyhow::Result<Plan> {
    let link = LinkConfig { bandwidth: args.bandwidth, ..LinkConfig::WAN };
    let link = (args.link == Link::Wan).then_some(link);
    let peers::Found { mut peers, missing } = peers::of_set(set, link, args.fs, programs)?;
    peers.retain(|peer| args.only.is_empty() || args.only.iter().any(|name| name == peer.about().name));
    let only_net1k = args.quick || (args.link == Link::Wan && args.tree.is_empty());
    let wanted = |tree: Tree| {
        if only_net1k { tree == Tree::Net1k } else { args.tree.is_empty() || args.tree.contains(&tree) }
    };
    let mut scenarios = scenarios(set);
    scenarios.retain(|scenario| wanted(scenario.tree) && (!scenario.needs_clone || args.fs.can_clone()));
    let set = set.to_possible_value().context("a set has a name")?;
    let (title, rtt_ms) = match args.link {
        Link::Loopback => (set.get_name().to_string(), None),
        Link::Wan => (format!("{}, over 50 ms round trip and 1 % loss", set.get_name()), Some(50.0)),
    };
    Ok(Plan { title, scenarios, peers, missing, rtt_ms })
}

/// Returns the image size in bytes: for the source, a copy by each of five tools, their own files, and the file
/// system's own data.
fn image_bytes(largest_tree: u64) -> u64 {
    largest_tree * 8 + (2 << 30)
}

fn peers_root(args: &Args) -> anyhow::Result<PathBuf> {
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/volferry/peers"));
    args.peers_root.clone().or_else(usual).context("HOME is not set: use --peers-root")
}

fn print(results: &Results) {
    let until = if results.durable { ", until each copy is durable" } else { "" };
    println!("{}; medians of {} rounds{until}\n", results.machine, results.rounds);
    for table in &results.tables {
        println!("{}", table.to_markdown());
    }
    for missing in &results.missing {
        println!("not measured: {} is not on this machine ({})", missing.name, missing.remedy);
    }
}

fn good_enough(results: &Results, strict: bool) -> bool {
    results.tables.iter().flat_map(|table| &table.rows).all(|line| match line.verdict {
        Verdict::Fails => false,
        Verdict::Behind | Verdict::None => !strict,
        Verdict::Ahead | Verdict::Allowed => true,
    })
}
