//! `baro up`: the agent, in the foreground, until Ctrl-C or SIGTERM.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use barograph_agent::{
    Agent, AgentError, BlockTraceMode, Config, SOURCES_DOCUMENT, SourcesRow, World,
};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, warn};
use tracing_subscriber::EnvFilter;

use super::documents::{DocumentRow, document};
use super::stage::Service;
use super::{doctor, output};
use crate::heap;

/// Time after which freed memory is given back to the system again.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(15);
/// Time after which code that has not run lately may be unmapped again.
const UNMAP_EVERY: Duration = Duration::from_secs(60);

/// The filter of the log, unless `BAROGRAPH_LOG` has another one. Zenoh's session reports each
/// message that comes before its key is known, while many nodes connect; the fabric counts it as a
/// hole and asks again.
const LOG_DEFAULT: &str = "warn,zenoh=error,zenoh::api::session=off";

/// Arguments of `baro up`.
#[derive(Args, Clone)]
pub(super) struct Up {
    /// Configuration file (see docs/reference/configuration.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this node [default: the host name]
    #[arg(long)]
    node: Option<String>,
    /// Loopback address of HTTP and the page, or "off" [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http: Option<String>,
    /// Directory of the segment and the sockets [default: /dev/shm/barograph-<uid>]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Directory of the data that survives a restart [default: $XDG_STATE_HOME/barograph or
    /// /var/lib/barograph]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Directory of the history [default: "archive" in the state directory]
    #[arg(long, value_name = "DIR")]
    archive_dir: Option<PathBuf>,
    /// Keep no history
    #[arg(long, conflicts_with = "archive_dir")]
    no_archive: bool,
    /// Trace the requests of disks one by one, for quantiles of their durations: alternating and
    /// within a budget, or always, or not [default: as configured, or else off]
    #[arg(long, value_name = "WHEN", value_enum)]
    block_trace: Option<BlockTrace>,
    /// Name of the cluster that this node takes part in
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Address at which other nodes of the cluster reach this one, like 10.0.0.1:7447; may be given
    /// several times
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_of_node, requires = "cluster")]
    listen: Vec<String>,
    /// Address of another node of the cluster, or of a zenoh router; may be given several times
    #[arg(long, alias = "router", value_name = "ADDRESS:PORT", value_parser = address_of_node, requires = "cluster")]
    peer: Vec<String>,
    /// Nodes whose insights of the cluster are taken and computed here, as a pattern like 'login*';
    /// may be given several times
    #[arg(long, value_name = "PATTERN", requires = "cluster")]
    insights_from: Vec<String>,
    /// Tree to read instead of /
    #[arg(long, value_name = "DIR")]
    sys_root: Option<PathBuf>,
    /// Print the report on sources as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The times at which the requests of disks are traced.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum BlockTrace {
    Auto,
    Always,
    Off,
}

impl Up {
    /// Runs the agent until a signal ends it.
    pub(super) fn run(self) -> anyhow::Result<()> {
        tracing_subscriber::fmt()
            .with_env_filter(
                EnvFilter::try_from_env("BAROGRAPH_LOG")
                    .unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT)),
            )
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
        let json = self.json;
        let agent = Agent::start_with(move || self.config(), World::real())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Signals are caught before anybody is told that the agent is ready to take them.
        let signals = runtime.block_on(async { Signals::catch() })?;
        let staging = Service::start(agent.staging(), agent.run_dir().path())?;
        announce(&agent, json)?;
        let signal = runtime.block_on(signals.wait(&agent));
        // The agent still tells the server of its map while it stops.
        if let Some(staging) = staging {
            staging.stop();
        }
        agent.stop();
        match signal {
            Some(signal) => output::print(&format!("barograph stopped ({signal})\n")),
            None => anyhow::bail!("the sampling thread has ended: see the log above"),
        }
    }

    /// The configuration file, with the options of the command line over it.
    fn config(&self) -> Result<Config, AgentError> {
        let given = self.clone();
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        config.node = given.node.unwrap_or(config.node);
        config.http = given.http.unwrap_or(config.http);
        config.run_dir = given.run_dir.unwrap_or(config.run_dir);
        config.state_dir = given.state_dir.unwrap_or(config.state_dir);
        config.archive.dir = given.archive_dir.unwrap_or(config.archive.dir);
        config.archive.enabled &= !self.no_archive;
        if let Some(when) = self.block_trace {
            when.apply(&mut config);
        }
        let cluster = &mut config.cluster;
        cluster.name = given.cluster.unwrap_or_else(|| cluster.name.clone());
        for (given, configured) in [
            (given.listen, &mut cluster.listen),
            (given.peer, &mut cluster.peers),
        ] {
            if !given.is_empty() {
                *configured = given;
            }
        }
        if !given.insights_from.is_empty() {
            cluster.insights_from = Some(given.insights_from);
        }
        config.sources.sys_root = given.sys_root.unwrap_or(config.sources.sys_root);
        Ok(config)
    }
}

impl BlockTrace {
    fn apply(self, config: &mut Config) {
        let sources = &mut config.sources;
        let poll = sources.poll.entry("block_trace".to_owned()).or_default();
        poll.enabled = Some(!matches!(self, Self::Off));
        sources.block_trace.mode = match self {
            Self::Auto => BlockTraceMode::Auto,
            Self::Always => BlockTraceMode::Always,
            Self::Off => return,
        };
    }
}

/// Refuses an invalid address early, as wrong use.
fn address(text: &str) -> Result<String, String> {
    match text.parse::<std::net::SocketAddr>() {
        Err(_) if text != "off" => {
            Err("it must be ADDRESS:PORT, like 127.0.0.1:7070, or off".into())
        }
        _ => Ok(text.into()),
    }
}

/// Refuses an invalid address of a node early, as wrong use.
fn address_of_node(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(text.into()),
        _ => Err("it must be ADDRESS:PORT, like login1:7447 or 127.0.0.1:7447".into()),
    }
}

fn announce(agent: &Agent, json: bool) -> anyhow::Result<()> {
    let reports = document(agent.run_dir(), SOURCES_DOCUMENT)?;
    let reports: Vec<DocumentRow<SourcesRow>> = reports.unwrap_or_default();
    if json {
        output::print_json(&reports)?;
    } else {
        output::print(&doctor::table(&reports))?;
        let missing: usize = reports
            .iter()
            .filter(|report| !doctor::is_off(report))
            .map(|report| report.missing.len())
            .sum();
        if missing > 0 {
            output::print(&format!(
                "\n{missing} things cannot be seen here: `baro doctor` says why and what would help\n"
            ))?;
        }
    }
    let token = agent.run_dir().control_token();
    if agent.http_addr().is_some() && !json {
        output::print(&format!(
            "control from the page: token in {}\n",
            token.display()
        ))?;
    }
    let place = agent.http_addr().map_or_else(
        || agent.run_dir().read_socket().display().to_string(),
        |address| format!("http://{address}"),
    );
    output::print(&format!(
        "barograph ready: {place} (node {})\n",
        agent.node()
    ))
}

/// Reads the configuration again, and logs the result, since nobody waits for the answer.
fn reload(agent: &Agent) {
    match agent.reload() {
        Ok(answer) => {
            for fault in answer["left_out"].as_array().into_iter().flatten() {
                warn!(%fault, "left out of the reload");
            }
        }
        Err(error) => error!(error, "the configuration stays as it was"),
    }
}

/// The signals that an agent takes.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to catch the signals. Called within a runtime.
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the agent, and returns its name; `None` if the agent has ended
    /// by itself. Gives memory back meanwhile.
    #[expect(
        clippy::disallowed_methods,
        reason = "the main thread waits for signals and gives memory back"
    )]
    async fn wait(mut self, agent: &Agent) -> Option<&'static str> {
        let mut ended = std::pin::pin!(agent.ended());
        let first = tokio::time::Instant::now() + GIVE_BACK_EVERY;
        let mut give_back = tokio::time::interval_at(first, GIVE_BACK_EVERY);
        // First what only the start needed.
        let mut unmap = tokio::time::interval_at(first, UNMAP_EVERY);
        let mut code = heap::MappedCode::default();
        loop {
            tokio::select! {
                // An agent that has ended by itself is told before a signal.
                biased;
                () = &mut ended => return None,
                _ = self.interrupt.recv() => return Some("interrupted"),
                _ = self.terminate.recv() => return Some("terminated"),
                _ = self.hangup.recv() => reload(agent),
                _ = give_back.tick() => heap::give_back(),
                _ = unmap.tick() => code.look(agent.request_counts()),
            }
        }
    }
}
