//! The commands, one file each, and their shared parts: exit codes 0 (done), 1 (failed) and 2
//! (wrong use).

mod action;
mod archive;
mod call;
mod cluster;
mod control;
mod data;
mod doctor;
mod documents;
mod event;
mod forecast;
mod format;
mod generate;
mod http;
mod insight;
mod interference;
mod io;
mod knob;
mod lab;
mod latest;
mod node;
mod output;
mod policy;
mod probe;
mod progress;
mod reload;
mod room;
mod rule;
mod sql;
mod stage;
mod statement;
mod status;
mod streams;
mod top;
mod transfer;
mod trigger;
mod up;
mod watch;
mod weights;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use barograph_client::{DemandError, HeldDemand, Observer, RunDir};
use barograph_model::Selector;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// Real-time observer of the storage of this node
///
/// Every stream is memory that any process may read: the commands below read it themselves and work
/// while the agent is busy. Start the agent with `baro up`.
#[derive(Parser)]
#[command(
    name = "baro",
    version,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the agent of this node and serve until Ctrl-C
    Up(up::Up),
    /// Show whether an agent lives, and its streams
    Status(status::Status),
    /// List streams
    Streams(streams::Streams),
    /// Show the newest value of streams
    ///
    /// If nothing that is named is mirrored of another node (--node), it is mirrored while the
    /// command runs.
    Latest(latest::Latest),
    /// Follow streams as they change
    ///
    /// The streams of another node (--node) are mirrored while the command runs, also if
    /// cluster.mirror does not name them.
    Watch(watch::Watch),
    /// Run an SQL statement
    Sql(sql::Sql),
    /// Show predicted values of streams with their errors, and explain the predictors
    Forecast(forecast::Forecast),
    /// Show the bandwidth that a reader will get from a disk to which others write, and when they
    /// write next
    Interference(interference::Interference),
    /// Replay recorded traces through forecasts and interval policies
    Lab(lab::Lab),
    /// Make, drop, list and explain insights
    Insight(insight::Insight),
    /// Set the error within which streams are known between looks, so that they are read seldom
    Policy(policy::Policy),
    /// Call handlers of running programs, and list handlers and calls
    Call(call::Call),
    /// Make, drop, list, explain and try rules: conditions that call programs, and file events that
    /// run them
    Rule(rule::Rule),
    /// What happened to files: watched trees, past events, and new ones as they come
    Event(event::Event),
    /// What rules on file events have done: list actions, show, retry and drop them
    Action(action::Action),
    /// Copy, move and delete single files, as rules do, also in stores (S3, WebDAV, SFTP)
    Transfer(transfer::Transfer),
    /// Arrays as files that are read as precisely as is needed: pack, unpack and inspect them
    Data(data::Data),
    /// Blocks of data in the memory of nodes and in faster tiers: serve them, put, get, list and
    /// remove them
    Stage(stage::Stage),
    /// Decisions of controllers: how much readers of arrays were told to read, with which I/O
    /// weight, and why
    Control(control::Control),
    /// I/O weights of control groups: let an agent set them, see which have an effect, restore them
    Weights(weights::Weights),
    /// The older words for `baro call` and `baro rule`
    #[command(hide = true)]
    Trigger(trigger::Trigger),
    /// Set knobs of running programs, and list them
    Knob(knob::Knob),
    /// Manage history: list it, check that it is intact, seal, compact and export it
    Archive(archive::ArchiveCommand),
    /// List the nodes of the cluster
    Node(node::Node),
    /// Show this node's part in its cluster, or start a cluster on this machine
    Cluster(cluster::Cluster),
    /// Have the agent read its configuration file again
    ///
    /// Insights and policies of the file are made, replaced and dropped so that they are those of
    /// the file, while the rest goes on; SIGHUP does the same. Other keys need a new start, and the
    /// answer names those that changed.
    Reload(reload::Reload),
    /// Show what every source reads, what is missing, and the remedy
    Doctor(doctor::Doctor),
    /// Measure what a disk can do, gently and only by reading
    ///
    /// Reads 1 MiB at a time at places spread over the device, then 4 KiB at random ones; never
    /// writes. It bypasses the page cache, runs at idle I/O priority where the kernel and the
    /// device's scheduler support it, and stops when others use the device. The result is kept for
    /// the agent, which publishes it as disk.bandwidth.max.bytes_per_second within seconds.
    Probe(probe::Probe),
    /// Run a command and publish its I/O as app.io
    ///
    /// Counts and times the command's calls to the C library: reads, writes, opens, closes and
    /// syncs of files. The command does not need to be changed; frames('io') in SQL has a row every
    /// 100 ms.
    Io(io::Io),
    /// Watch the node on a terminal screen
    Top(top::Top),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print generated reference pages
    #[command(hide = true)]
    Generate(generate::Generate),
}

/// The agent that a command reads.
#[derive(Args)]
pub(crate) struct Target {
    /// Run directory of the agent [default: $BAROGRAPH_RUN_DIR, or else this user's agent's, or
    /// else the node's]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Target {
    fn run_dir(&self) -> RunDir {
        self.run_dir.as_ref().map_or_else(RunDir::find, RunDir::new)
    }

    fn observer(&self) -> anyhow::Result<Observer> {
        Ok(Observer::open(
            self.run_dir(),
            Arc::new(barograph_client::SystemClock::new()),
        )?)
    }
}

/// Time between two looks whether a node is mirrored.
const MIRROR_LOOK: Duration = Duration::from_millis(100);
/// Most looks whether a node is mirrored.
const MIRROR_LOOKS_MAX: usize = 50;

/// The node whose streams a command reads: that of its agent, or one that is mirrored there.
#[derive(Args)]
struct NodeTarget {
    /// Another node of the cluster, as it is mirrored in memory of this one (`baro node list`)
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl NodeTarget {
    fn observer(&self) -> anyhow::Result<Observer> {
        let observer = self.target.observer()?;
        Ok(match &self.node {
            Some(node) => observer.of_node(node)?,
            None => observer,
        })
    }

    /// Has streams of another node mirrored until the result is dropped. Says so if they are not,
    /// and gives none then, or if this node is meant.
    fn demand(&self, observer: &Observer, selector: &Selector) -> Option<HeldDemand> {
        let node = self.node.as_deref().filter(|_| observer.is_mirror())?;
        let demand = observer.demand(node, selector);
        demand.inspect_err(tell_no_demand).ok()
    }

    /// The observer of the node, and the demand that has streams of another one mirrored until it
    /// is dropped. If nothing of that node is mirrored yet, this waits for its mirror.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command waits until another node is mirrored, for a bounded time"
    )]
    fn followed(&self, selector: &Selector) -> anyhow::Result<(Observer, Option<HeldDemand>)> {
        let home = self.target.observer()?;
        let own = home.node();
        let Some(node) = self.node.as_deref().filter(|node| *node != own) else {
            return Ok((home, None));
        };
        let demand = home.demand(node, selector);
        let mut looks = 0..MIRROR_LOOKS_MAX;
        let is_mirrored = || home.nodes().iter().any(|name| name == node);
        while demand.is_ok() && !is_mirrored() && looks.next().is_some() {
            std::thread::sleep(MIRROR_LOOK);
        }
        let observer = home.of_node(node)?;
        Ok((observer, demand.inspect_err(tell_no_demand).ok()))
    }
}

/// Says that a command shows only what is mirrored anyway.
fn tell_no_demand(error: &DemandError) {
    output::tell(&format!(
        "baro: only what is mirrored anyway is shown: {error}\n"
    ));
}

/// The exit code of what may work at another time (`sysexits.h`).
const EX_TEMPFAIL: u8 = 75;

/// An error that may pass by itself.
#[derive(Debug)]
struct TryAgain(String);

impl std::fmt::Display for TryAgain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TryAgain {}

/// A wrong use that is found after the arguments were parsed: exit code 2.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn selector(name: &str, labels: &[String]) -> anyhow::Result<Selector> {
    // Labels alone match any name, as in SQL.
    let any = name.starts_with('{').then(|| format!("*{name}"));
    let name = any.as_deref().unwrap_or(name);
    let mut selector = Selector::parse(name).map_err(|e| Usage(e.to_string()))?;
    for label in labels {
        let Some((label, value)) = label.split_once('=') else {
            return Err(Usage(format!("{label:?} is not LABEL=VALUE (like device=vda)")).into());
        };
        selector = selector.with_label(label, value);
    }
    Ok(selector)
}

/// Parses, runs, and turns the outcome into an exit code.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(&format!("baro: {}\n", message(&error)));
            ExitCode::from(match &error {
                error if error.is::<Usage>() => 2,
                error if error.is::<TryAgain>() => EX_TEMPFAIL,
                _ => 1,
            })
        }
    }
}

/// An error and its causes, without those that the text before them contains already.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(up) => up.run(),
        Command::Status(status) => status.run(),
        Command::Streams(streams) => streams.run(),
        Command::Latest(latest) => latest.run(),
        Command::Watch(watch) => watch.run(),
        Command::Sql(sql) => sql.run(),
        Command::Forecast(forecast) => forecast.run(),
        Command::Interference(interference) => interference.run(),
        Command::Lab(lab) => lab.run(),
        Command::Insight(insight) => insight.run(),
        Command::Policy(policy) => policy.run(),
        Command::Call(call) => call.run(),
        Command::Rule(rule) => rule.run(),
        Command::Event(event) => event.run(),
        Command::Action(action) => action.run(),
        Command::Transfer(transfer) => transfer.run(),
        Command::Data(data) => data.run(),
        Command::Stage(stage) => stage.run(),
        Command::Control(control) => control.run(),
        Command::Weights(weights) => weights.run(),
        Command::Trigger(trigger) => trigger.run(),
        Command::Knob(knob) => knob.run(),
        Command::Archive(archive) => archive.run(),
        Command::Node(node) => node.run(),
        Command::Cluster(cluster) => cluster.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Probe(probe) => probe.run(),
        Command::Reload(reload) => reload.run(),
        Command::Io(io) => io.run(),
        Command::Top(top) => top.run(),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "baro", &mut script);
            output::print_own(&String::from_utf8_lossy(&script))
        }
        Command::Generate(generate) => generate.run(),
    }
}
