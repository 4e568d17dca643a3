//! `baro stage`: blocks of data in the memory of nodes and in faster tiers below it: a data server,
//! and what is done with the blocks of servers.

mod block;
mod get;
mod list;
mod locate;
mod map;
mod member;
mod mount;
mod places;
mod publish;
mod put;
mod remove;
mod serve;
mod servers;
mod service;
mod stat;
mod status;
mod tiers;

use clap::{Args, Subcommand};

pub(super) use service::Service;

use super::{Target, TryAgain, Usage, format, output, progress, room};

/// Arguments of `baro stage`.
#[derive(Args)]
pub(super) struct Stage {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve blocks from memory, directories and stores of objects until Ctrl-C: baro stage serve
    /// --memory 4GiB --tier /nvme/stage=100GB --tier s3://bucket/stage=1TB
    ///
    /// Blocks go to memory first, and are copied to the tiers below in the background. A stop in
    /// order copies what is in memory alone; after a kill, what the server still has counts as old
    /// until a replica confirms it. Serves only this user unless --users names others.
    Serve(serve::Serve),
    /// Put a block on its servers, from a file or the standard input
    ///
    /// The block is put when all of its replicas have it. A block has a version, which is the time
    /// in nanoseconds unless another one is given, and one of an older version is refused. The name
    /// of a dataset has at most 255 bytes, that of a block at most 4096, a block at most 1 GiB.
    #[command(disable_version_flag = true)]
    Put(put::Put),
    /// Read a block to a file or the standard output
    ///
    /// It comes from the first replica that has it for certain, and its checksum is checked.
    /// Replicas that have no good copy, or none, are sent one.
    Get(get::Get),
    /// List blocks
    #[command(visible_alias = "list")]
    Ls(list::Ls),
    /// Show where blocks are: servers, tiers, and how long a read is expected to take
    ///
    /// All blocks are asked for at once. The expected time is by what reads of that tier have cost
    /// so far, over sockets like the one of this command; it is unknown before the first.
    Locate(locate::Locate),
    /// Remove a block from all its replicas
    Rm(remove::Rm),
    /// Show what is known of a block: version, size, checksum
    Stat(stat::Stat),
    /// Mount blocks as files at a directory until Ctrl-C: baro stage mount /tmp/stage
    ///
    /// Programs that know files alone read and write blocks of the servers: cp, tar, grep. A file
    /// is on its servers when it is closed, and is replaced whole. Only this user sees it
    /// (docs/guide/staging-mount.md).
    Mount(mount::MountCommand),
    /// Show what servers hold in each tier, and what they have done
    ///
    /// A server answers its own user and root.
    Status(status::Status),
}

impl Stage {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Serve(serve) => serve.run(),
            Verb::Put(put) => put.run(),
            Verb::Get(get) => get.run(),
            Verb::Ls(ls) => ls.run(),
            Verb::Locate(locate) => locate.run(),
            Verb::Rm(rm) => rm.run(),
            Verb::Stat(stat) => stat.run(),
            Verb::Mount(mount) => mount.run(),
            Verb::Status(status) => status.run(),
        }
    }
}
