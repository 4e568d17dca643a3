//! `baro stage rm`: a block is removed from all its replicas.

use clap::Args;
use serde_json::json;

use super::block::{Block, name};
use super::output;
use super::servers::Servers;

/// Arguments of `baro stage rm`.
#[derive(Args)]
pub(super) struct Rm {
    #[command(flatten)]
    block: Block,
    /// Leave the block if its version is above this one [default: any version]
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    version_max: u64,
    #[command(flatten)]
    servers: Servers,
}

impl Rm {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let key = self.block.key()?;
        let session = self.servers.session()?;
        let was_there = session.run(|client| client.delete(&key, self.version_max))?;
        anyhow::ensure!(was_there, "{key}: no such block");
        if self.servers.json() {
            return output::print_json(&json!({ "removed": true }));
        }
        output::print(&format!(
            "{} {} is removed\n",
            output::plain(key.dataset()),
            output::plain(&name(&key))
        ))
    }
}
