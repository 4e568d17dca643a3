//! `baro cluster run`: a cluster on this machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use barograph_client::RunDir;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Usage, output};

/// Most agents of one cluster on this machine.
const AGENTS_MAX: u16 = 64;
/// Ports of the first agent: for other nodes, and of HTTP. Each further agent has the next one for
/// HTTP, and any free one for other nodes.
const PORT: u16 = 7447;
const HTTP_PORT: u16 = 7070;
/// Time after which an agent that does not stop is killed.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Arguments of `baro cluster run`.
#[derive(Args)]
pub(super) struct Run {
    /// Number of agents
    #[arg(default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=i64::from(AGENTS_MAX)))]
    agents: u16,
    /// Run directory of the first agent; the others' have -2, -3 … after it
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Configuration file of all agents; what is said here has precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the cluster
    #[arg(long, default_value = "local")]
    name: String,
    /// Port at which the first agent is reached by the others
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Port of the first agent's page
    #[arg(long, default_value_t = HTTP_PORT)]
    http_port: u16,
}

impl Run {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        if self.http_port.checked_add(self.agents - 1).is_none() {
            return Err(Usage("there are not so many ports after the first".into()).into());
        }
        let states = std::env::temp_dir().join(format!("barograph-cluster-{}", std::process::id()));
        let ended = runtime.block_on(self.agents(&states));
        let removed = std::fs::remove_dir_all(&states);
        ended?;
        removed.with_context(|| format!("cannot delete {}", states.display()))
    }

    async fn agents(&self, states: &Path) -> anyhow::Result<()> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut agents = Vec::new();
        let mut outcome = Ok(());
        for number in 1..=self.agents {
            match self.start(number, states) {
                Ok(agent) => agents.push(agent),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if outcome.is_ok() {
            output::print("Ctrl-C stops them all; `baro node list` shows the cluster\n")?;
            outcome = tokio::select! {
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
                ended = any_ended(&mut agents) => ended,
            };
        }
        while let Some(agent) = agents.pop() {
            stop(agent).await?;
        }
        outcome
    }

    fn run_dir(&self, number: u16) -> PathBuf {
        let first = self.run_dir.clone().unwrap_or_else(RunDir::default_path);
        match number {
            1 => first,
            number => {
                let mut name = first.into_os_string();
                name.push(format!("-{number}"));
                name.into()
            }
        }
    }

    fn start(&self, number: u16, states: &Path) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let node = format!("node{number}");
        let run_dir = self.run_dir(number);
        let http = format!("127.0.0.1:{}", self.http_port + number - 1);
        let first = format!("127.0.0.1:{}", self.port);
        let listen = if number == 1 { &first } else { "127.0.0.1:0" };
        let mut command = Command::new(program);
        command
            .args([
                "up",
                "--node",
                &node,
                "--http",
                &http,
                "--cluster",
                &self.name,
            ])
            // Whoever may start these agents runs all of them.
            .args(["--listen", listen, "--insights-from", "*"])
            .arg("--run-dir")
            .arg(&run_dir)
            .arg("--state-dir")
            .arg(states.join(&node))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C reaches this program alone, which stops them in order.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if number > 1 {
            command.args(["--peer", &first]);
        }
        output::print(&format!(
            "{node}: http://{http}, run directory {}\n",
            run_dir.display()
        ))?;
        command
            .spawn()
            .with_context(|| format!("cannot start {node}"))
    }
}

/// Waits until an agent ends by itself, which is an error.
async fn any_ended(agents: &mut [Child]) -> anyhow::Result<()> {
    loop {
        for (number, agent) in (1..).zip(agents.iter_mut()) {
            if let Some(status) = agent.try_wait()? {
                anyhow::bail!("node{number} has ended by itself ({status}): see above");
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn stop(mut agent: Child) -> anyhow::Result<()> {
    let pid = agent.id().and_then(|id| Pid::from_raw(id as i32));
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(STOP_MAX, agent.wait()).await.is_err() {
        agent.kill().await?;
    }
    Ok(())
}
