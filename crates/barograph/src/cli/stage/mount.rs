//! `baro stage mount`: files made of blocks, for programs that know files alone, until Ctrl-C or
//! SIGTERM.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_model::NS_PER_MS;
use barograph_stagefs::{Mount, MountConfig, MountError, clean};
use barograph_staging::StagingError;
use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::servers::{Servers, Session, failure};
use super::{Usage, output, serve, tiers};

/// The time between two looks whether somebody has unmounted it.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time that a put may be told to wait for room, in seconds: a day.
const WAIT_S_MAX: f64 = 86_400.0;

/// Arguments of `baro stage mount`.
#[derive(Args)]
pub(super) struct MountCommand {
    /// The directory; what is in it is not seen while it is mounted
    directory: PathBuf,
    /// The name of the file system among those of this user on these servers
    #[arg(long, value_name = "NAME", default_value = "files")]
    name: String,
    /// Memory of the mount: half for what is written and is not on a server yet, half for what was
    /// read of late
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    buffer: String,
    /// Bytes of a block of new files
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    block_size: String,
    /// Nothing may be written
    #[arg(long)]
    read_only: bool,
    /// Wait at close and fsync until the file is on a durable tier of its servers
    #[arg(long)]
    durable: bool,
    /// How many servers have to have each block: with fewer a write fails
    #[arg(long, value_name = "N", default_value_t = 1)]
    acks: u16,
    /// Longest wait for room on a server
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    wait: f64,
    /// Use what a server has after a kill although it may be older than what was written last
    #[arg(long)]
    accept_unconfirmed: bool,
    /// Before, remove blocks that no file has: those of mounts that were killed. No other mount of
    /// this file system may write meanwhile
    #[arg(long, conflicts_with = "read_only")]
    clean: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Where a file system is, for programs.
#[derive(Serialize)]
struct ReadyRow<'a> {
    directory: String,
    name: &'a str,
    /// Blocks that --clean has removed.
    removed: Option<u64>,
}

impl MountCommand {
    /// Mounts, and waits until a signal ends it or somebody unmounts it.
    pub(super) fn run(self) -> anyhow::Result<()> {
        serve::log();
        let config = self.config()?;
        let servers: Arc<Session> = Arc::new(self.servers.session()?);
        let clock = Arc::new(SystemClock::new());
        let removed = match self.clean {
            true => Some(clean(&config, servers.clone(), clock.clone()).map_err(refused)?),
            false => None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Signals are caught before anybody is told that it is mounted.
        let signals = runtime.block_on(async { Signals::catch() })?;
        let mount = Mount::new(&config, servers, clock, &self.directory).map_err(refused)?;
        self.announce(&mount, removed)?;
        let why = runtime.block_on(signals.wait(&mount));
        let stopped = mount.stop()?;
        if stopped.was_busy {
            output::tell("baro: programs still used it: they get errors from now on\n");
        }
        let failed = stopped.files_failed;
        anyhow::ensure!(
            failed == 0,
            "the last writes to {failed} open files are lost: the servers have not taken them"
        );
        output::print(&format!("unmounted ({why})\n"))
    }

    fn config(&self) -> anyhow::Result<MountConfig> {
        if !(0.0..=WAIT_S_MAX).contains(&self.wait) {
            return Err(Usage("--wait: it is 0 to 86400 seconds".into()).into());
        }
        let replicas = self.servers.replicas();
        if !(1..=replicas).contains(&self.acks) {
            let text = format!("--acks: it is 1 to {replicas}, the number of replicas");
            return Err(Usage(text).into());
        }
        Ok(MountConfig {
            block_bytes: tiers::size("--block-size", &self.block_size)?,
            buffer_bytes: tiers::size("--buffer", &self.buffer)?,
            is_read_only: self.read_only,
            is_durable: self.durable,
            acks: self.acks.into(),
            accept_unconfirmed: self.accept_unconfirmed,
            wait_ns: (self.wait * 1_000.0) as i64 * NS_PER_MS,
            ..MountConfig::new(&*self.name)
        })
    }

    fn announce(&self, mount: &Mount, removed: Option<u64>) -> anyhow::Result<()> {
        let directory = mount.place().display().to_string();
        if self.servers.json() {
            return output::print_json(&ReadyRow {
                directory,
                name: &self.name,
                removed,
            });
        }
        let directory = output::plain(&directory);
        let removed = removed.map_or_else(String::new, |removed| {
            format!(" ({removed} blocks that no file has were removed)")
        });
        output::print(&format!("mounted: {directory}{removed}\n"))
    }
}

impl barograph_stagefs::Servers for Session {
    fn act(
        &self,
        act: &mut dyn FnMut(&barograph_staging::StagingClient) -> Result<(), StagingError>,
    ) -> Result<(), StagingError> {
        let done = self.in_map(act);
        done.unwrap_or_else(|error| Err(StagingError::Config(format!("{error:#}"))))
    }
}

fn refused(error: MountError) -> anyhow::Error {
    match error {
        MountError::Config(text) => Usage(text).into(),
        MountError::Servers(error) => failure(error),
        error => error.into(),
    }
}

/// The signals that end a mount.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to catch the signals. Called within a runtime.
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the end of a mount, and says what has ended it.
    async fn wait(mut self, mount: &Mount) -> &'static str {
        while !mount.is_over() {
            let signal = async {
                tokio::select! {
                    _ = self.interrupt.recv() => "interrupted",
                    _ = self.terminate.recv() => "terminated",
                }
            };
            if let Ok(name) = tokio::time::timeout(LOOK, signal).await {
                return name;
            }
        }
        "by umount"
    }
}
