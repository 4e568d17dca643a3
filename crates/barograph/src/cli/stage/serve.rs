//! `baro stage serve`: a server of blocks, in the foreground, until Ctrl-C or SIGTERM.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use barograph_client::SystemClock;
use barograph_client::publish::Publisher;
use barograph_model::{Clock, NS_PER_S};
use barograph_staging::server::{ServerConfig, TcpReach, UserFilter};
use barograph_staging::{BlockStore, StagingError, StagingServer};
use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::map::MapPart;
use super::publish::Published;
use super::tiers::Tiers;
use super::{Usage, member, output, places};

/// Time between two frames of the server's streams.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Longest time that a stop may be told to take, in seconds: a day.
const STOP_S_MAX: i64 = 86_400;
/// Threads that flush where a tier is on a network, so that one block does not wait for the answer
/// to the one before.
const REMOTE_FLUSH_THREADS: usize = 4;
/// The greatest number of a server of a map.
const NUMBER_MAX: i64 = 1_023;

/// Arguments of `baro stage serve`.
#[derive(Args)]
pub(super) struct Serve {
    #[command(flatten)]
    tiers: Tiers,
    /// The unix socket [default: stage.sock in the run directory, or one named after --map and
    /// --server]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Serve TCP at this address as well; a port of 0 is one of the system's choice
    #[arg(long, value_name = "ADDRESS:PORT", requires = "tokens")]
    tcp: Option<SocketAddr>,
    /// The address of --tcp may be reached from other machines: tokens and blocks are not
    /// encrypted, so nobody else may listen to that network
    #[arg(long, requires = "tcp")]
    network: bool,
    /// Directory with the tokens of TCP: for each user a file named by the uid, of at least 16
    /// bytes, which only its owner may read
    #[arg(long, value_name = "DIR")]
    tokens: Option<PathBuf>,
    /// Users who are served: own, all, or numbers like 1000,1001. No user sees the blocks of
    /// another one
    #[arg(long, value_name = "WHO", default_value = "own", value_parser = users)]
    users: Users,
    /// Be a server of this map of servers, and refuse epochs of it that are over
    #[arg(long, value_name = "NAME", requires = "server")]
    map: Option<String>,
    /// The number of this server in its map, 0 to 1023
    #[arg(long, value_name = "N", requires = "map", value_parser = clap::value_parser!(u32).range(0..=NUMBER_MAX))]
    server: Option<u32>,
    /// Longest time that a stop may take, to copy to a durable tier what is on none yet
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=STOP_S_MAX))]
    stop_time: u32,
    /// Run directory [default: $BAROGRAPH_RUN_DIR, or else this user's]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Stop when this parent of the process is gone
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<i32>,
    /// Print where the server listens as JSON
    #[arg(long)]
    json: bool,
}

/// The users who are served.
#[derive(Clone)]
struct Users(UserFilter);

/// Where a server listens, for programs.
#[derive(Serialize)]
struct ReadyRow<'a> {
    socket: String,
    tcp: Option<SocketAddr>,
    map: Option<&'a str>,
    server: Option<u32>,
    /// The first epoch that is served.
    fence: u64,
    /// Blocks that a former life of the server has left.
    found: u64,
}

impl Serve {
    /// Serves until a signal ends it.
    pub(super) fn run(self) -> anyhow::Result<()> {
        log();
        self.bind_to_parent()?;
        self.check_reach()?;
        let socket = self.place()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = self.tiers.config(&self.users.0, &clock)?;
        let flush_threads = match store.remotes.is_empty() {
            true => 1,
            false => REMOTE_FLUSH_THREADS,
        };
        let store = BlockStore::open(store, clock).map_err(refused)?;
        let publisher = member::publisher(self.run_dir.as_deref());
        let mut part = match (&self.map, self.server) {
            (Some(map), Some(number)) => Some(MapPart::join(&publisher, map, number)?),
            _ => None,
        };
        self.tell_absence(&publisher);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Signals are caught before anybody is told that the server is ready to take them.
        let signals = runtime.block_on(async { Signals::catch() })?;
        let config = ServerConfig {
            unix: Some(socket.clone()),
            tcp: self.tcp,
            reach: match self.network {
                true => TcpReach::Network,
                false => TcpReach::Loopback,
            },
            tokens: self.tokens.clone(),
            users: self.users.0.clone(),
            flush_threads,
            told: part.as_mut().and_then(MapPart::first),
            ..ServerConfig::default()
        };
        let server = StagingServer::start(store, config).map_err(refused)?;
        let published = self.published(&publisher, &server, &socket);
        let server = Arc::new(server);
        let following = part.map(|part| Following::start(part, &server));
        let following = following.transpose()?;
        self.announce(&server, &socket)?;
        let signal = runtime.block_on(signals.wait(&server, published));
        // While the server stops, it still counts as one that serves its epoch.
        let part = following.and_then(Following::stop);
        let stopped = stop(server, self.stop_time);
        drop(part);
        stopped?;
        output::print(&format!("staging stopped ({signal})\n"))
    }

    /// Lets the end of the parent stop this process.
    fn bind_to_parent(&self) -> anyhow::Result<()> {
        let Some(parent) = self.with_parent else {
            return Ok(());
        };
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)?;
        // One that has ended before sends no signal any more.
        let is_there = rustix::process::getppid().is_some_and(|pid| pid.as_raw_pid() == parent);
        anyhow::ensure!(is_there, "the process that has started the server is gone");
        Ok(())
    }

    fn check_reach(&self) -> anyhow::Result<()> {
        let is_remote = |address: &SocketAddr| !address.ip().is_loopback();
        if self.tcp.as_ref().is_some_and(is_remote) && !self.network {
            let text = "--tcp: this is no loopback address: say --network if nobody else can listen to that network";
            return Err(Usage(text.into()).into());
        }
        Ok(())
    }

    /// The socket, in a directory in which nobody else could put one in its place.
    fn place(&self) -> anyhow::Result<PathBuf> {
        let socket = match &self.socket {
            Some(socket) => socket.clone(),
            None => {
                let dir = places::own_dir(self.run_dir.as_deref());
                places::occupy(&dir)?;
                places::socket(&dir, self.map.as_deref().zip(self.server))
            }
        };
        if socket.as_os_str().len() > places::SOCKET_BYTES_MAX {
            let text = format!(
                "{}: a socket has a path of at most {} bytes: give a shorter one by --socket",
                socket.display(),
                places::SOCKET_BYTES_MAX
            );
            return Err(Usage(text).into());
        }
        Ok(socket)
    }

    /// Says what a server goes without that nothing can be published for.
    fn tell_absence(&self, publisher: &Publisher) {
        let (Some(error), Some(map)) = (publisher.error(), &self.map) else {
            return;
        };
        output::tell(&format!(
            "baro: nobody tells of {}, and epoch 0 alone is served: {}\n",
            output::plain(map),
            output::plain(&error.to_string())
        ));
    }

    /// The streams of the server; without an agent, or where it takes no more of them, there are
    /// none.
    fn published(
        &self,
        publisher: &Publisher,
        server: &StagingServer,
        socket: &std::path::Path,
    ) -> Option<Published> {
        let name = match (&self.map, self.server) {
            (Some(map), Some(number)) => format!("{map}/{number}"),
            _ => socket.display().to_string(),
        };
        let published = Published::new(publisher, &name, &server.status());
        let published = published.inspect_err(|error| tracing::warn!(%error, "not published"));
        published.ok().filter(|_| publisher.is_enabled())
    }

    fn announce(&self, server: &StagingServer, socket: &std::path::Path) -> anyhow::Result<()> {
        let status = server.status();
        let tcp = server.tcp_address();
        if self.json {
            return output::print_json(&ReadyRow {
                socket: socket.display().to_string(),
                tcp,
                map: self.map.as_deref(),
                server: self.server,
                fence: status.fence,
                found: status.store.found,
            });
        }
        let mut text = format!("staging ready: {}", socket.display());
        if let Some(tcp) = tcp {
            text += &format!(", {tcp}");
        }
        if let (Some(map), Some(number)) = (&self.map, self.server) {
            let fence = status.fence;
            text += &format!(" (server {number} of {map}, serves epochs from {fence} on)");
        }
        output::print(&format!("{text}\n"))
    }
}

/// Reads the users who are served.
fn users(text: &str) -> Result<Users, String> {
    let numbers = || text.split(',').map(|word| word.trim().parse());
    Ok(Users(match text {
        "own" => UserFilter::Own,
        "all" => UserFilter::All,
        _ => match numbers().collect::<Result<Vec<u32>, _>>() {
            Ok(users) => UserFilter::These(users),
            Err(_) => return Err("it is own, all, or numbers of users like 1000,1001".into()),
        },
    }))
}

/// Complaints go to the standard error.
pub(super) fn log() {
    let filter = EnvFilter::try_from_env("BAROGRAPH_LOG");
    // What FUSE is asked and does not have, such as extended attributes, is no news.
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("warn,fuser=error")))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Configurations that contradict themselves are wrong use.
fn refused(error: StagingError) -> anyhow::Error {
    match error {
        StagingError::Config(text) => Usage(text).into(),
        error => error.into(),
    }
}

/// Stops in order. Blocks of a server without directories end with it.
fn stop(server: Arc<StagingServer>, within_s: u32) -> anyhow::Result<()> {
    let server = Arc::into_inner(server).context("the server is still in use")?;
    server
        .stop(i64::from(within_s) * NS_PER_S)
        .context("not everything was copied to a durable tier (--stop-time)")
}

/// The thread that tells the server what comes of its map.
struct Following {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<MapPart>,
}

impl Following {
    fn start(part: MapPart, server: &Arc<StagingServer>) -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (stop, server) = (Arc::clone(&is_over), Arc::clone(server));
        let thread = std::thread::Builder::new().name("stage-map".into());
        let thread = thread.spawn(move || part.follow(&server, &stop));
        Ok(Self {
            is_over,
            thread: thread.context("no thread for the map")?,
        })
    }

    fn stop(self) -> Option<MapPart> {
        self.is_over.store(true, Ordering::Relaxed);
        // A thread that has panicked has said so.
        self.thread.join().ok()
    }
}

/// The signals that a server takes.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to catch the signals. Called within a runtime.
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal that ends the server, and returns its name. Publishes meanwhile.
    #[expect(
        clippy::disallowed_methods,
        reason = "the main thread waits for signals and publishes"
    )]
    async fn wait(
        mut self,
        server: &StagingServer,
        mut published: Option<Published>,
    ) -> &'static str {
        let mut publish = tokio::time::interval(PUBLISH_EVERY);
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "interrupted",
                _ = self.terminate.recv() => return "terminated",
                _ = publish.tick() => {
                    if let Some(published) = &mut published {
                        published.put(&server.status());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_by_numbers() {
        let check = |text: &str, expect: Option<UserFilter>| {
            assert_eq!(users(text).ok().map(|users| users.0), expect, "{text}");
        };
        check("own", Some(UserFilter::Own));
        check("all", Some(UserFilter::All));
        check("1000, 7", Some(UserFilter::These(vec![1_000, 7])));
        check("ada", None);
        check("", None);
    }
}
