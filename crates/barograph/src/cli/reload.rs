//! `baro reload`: the agent reads its configuration file again. The command needs the right to
//! control the agent.

use barograph_client::AgentSocket;
use clap::Args;
use serde_json::{Value as Json, json};

use super::{Target, http, output};

/// Arguments of `baro reload`.
#[derive(Args)]
pub(super) struct Reload {
    #[command(flatten)]
    target: Target,
}

impl Reload {
    /// Runs the command. It fails if the agent cannot read the file, or if an insight of it could
    /// not be made.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = http::post(
            &self.target.run_dir(),
            AgentSocket::Control,
            "/api/v1/reload",
            &json!({}),
            http::ANSWER_WAIT,
        )?;
        let texts = |key: &str| -> Vec<String> {
            let all = answer[key].as_array().into_iter().flatten();
            all.filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let (left_out, restart) = (texts("left_out"), texts("needs_restart"));
        if self.target.json {
            output::print_json(&answer)?;
        }
        if !left_out.is_empty() {
            let left_out = left_out.join("; ");
            anyhow::bail!("reloaded, but for what stays as it was: {left_out}");
        }
        if !self.target.json {
            output::print("reloaded insights and policies\n")?;
            if !restart.is_empty() {
                let restart = restart.join(", ");
                output::print(&format!(
                    "changed, and in force after a new start: {restart}\n"
                ))?;
            }
        }
        Ok(())
    }
}
