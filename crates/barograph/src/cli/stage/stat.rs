//! `baro stage stat`: what is known of a block.

use clap::Args;

use super::block::{self, Block, BlockRow};
use super::servers::Servers;
use super::{format, output};

/// Arguments of `baro stage stat`.
#[derive(Args)]
pub(super) struct Stat {
    #[command(flatten)]
    block: Block,
    #[command(flatten)]
    servers: Servers,
}

impl Stat {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let key = self.block.key()?;
        let session = self.servers.session()?;
        let info = session.run(|client| client.stat(&key))?;
        if self.servers.json() {
            return output::print_json(&BlockRow::new(&key, &info));
        }
        output::print(&format!(
            "{} {}\n  size      {} ({} bytes)\n  version   {}\n  checksum  {:08x} (CRC-32)\n  epoch     {}\n  tier      {}\n  state     {}\n",
            output::plain(key.dataset()),
            output::plain(&block::name(&key)),
            format::number(info.bytes as f64, "bytes"),
            info.bytes,
            info.version,
            info.checksum,
            info.epoch,
            block::tier(&info, None),
            block::state(&info),
        ))
    }
}
