//! `baro status`: prints whether an agent lives, and its streams.

use barograph_agent::{AGENT_DOCUMENT, AgentDocument};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::Args;

use super::documents::document;
use super::{Target, archive, format, output};

/// Arguments of `baro status`.
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    target: Target,
}

impl Status {
    /// Runs the command; a dead agent is a failure (exit code 1), reported after the status.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        let status = observer.status()?;
        let run_dir = self.target.run_dir();
        let http = http_address(&run_dir);
        let archives = archive::ArchiveDocuments::of(&run_dir);
        if self.target.json {
            let mut json = barograph_client::status_json(&status);
            json["run_dir"] = run_dir.path().display().to_string().into();
            json["http"] = http.into();
            archives.add_to(&mut json);
            output::print_json(&json)?;
        } else {
            let state = if status.alive { "alive" } else { "dead" };
            let beat = format::age(status.heartbeat_age_ns);
            let mut rows = vec![
                ("node", status.node.clone()),
                (
                    "agent",
                    format!("{state}, pid {}, last sign of life {beat} ago", status.pid),
                ),
                (
                    "streams",
                    format!(
                        "{} of {}, {} refused",
                        status.streams, status.streams_max, status.refused
                    ),
                ),
                ("samples", status.samples.to_string()),
                ("page", http.unwrap_or_else(|| "off".into())),
                ("run dir", run_dir.path().display().to_string()),
            ];
            rows.extend(archives.lines(SystemClock::new().now_ns()));
            let text: String = rows
                .iter()
                .map(|(what, value)| format!("{what:<8} {}\n", output::plain(value)))
                .collect();
            output::print(&text)?;
        }
        if !status.alive {
            anyhow::bail!(
                "the agent of {} is dead: its last values are above, start one with `baro up`",
                status.node
            );
        }
        Ok(())
    }
}

/// The HTTP address in the agent's document, if it has one.
pub(super) fn http_address(run_dir: &barograph_client::RunDir) -> Option<String> {
    let read: Option<AgentDocument> = document(run_dir, AGENT_DOCUMENT).ok()?;
    read?.http
}
