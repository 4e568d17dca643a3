//! The server of staging beside an agent: `baro stage serve` as a child of `baro up`, which is
//! started again when it dies.
#![expect(
    clippy::disallowed_methods,
    reason = "a thread that looks after a child waits for it, by the clock of the machine"
)]

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_agent::StagingConfig;
use rustix::process::{Pid, Signal, kill_process};
use tracing::{info, warn};

/// How long `baro up` waits at its start for the server to be ready. One that has much to recover
/// is ready later.
const READY_WAIT: Duration = Duration::from_secs(10);
/// The first time between an end of the server and its next start, and the longest: it doubles
/// while the server dies early.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// A server that has run for so long has not died early.
const RAN_LONG: Duration = Duration::from_secs(60);
/// Time beyond its own for a stop, after which the server is killed.
const STOP_SPARE: Duration = Duration::from_secs(10);
/// The exit status of wrong use: another start would end in the same way.
const WRONG_USE: i32 = 2;

/// A server of staging and the thread that looks after it.
pub(crate) struct Service {
    state: Arc<Mutex<State>>,
    /// Ends a wait for the next start when it is dropped.
    waits: SyncSender<()>,
    thread: JoinHandle<()>,
    stop_within: Duration,
}

#[derive(Default)]
struct State {
    /// The process that runs now; it is not waited for while this is set.
    running: Option<Pid>,
    is_over: bool,
}

/// What came of a first start.
enum First {
    Ready,
    /// It has ended with this status, since its options are wrong.
    Wrong(ExitStatus),
}

impl Service {
    /// Starts the server that is configured, if there is one.
    pub(crate) fn start(config: &StagingConfig, run_dir: &Path) -> anyhow::Result<Option<Self>> {
        if !config.enabled {
            return Ok(None);
        }
        let program = std::env::current_exe().context("cannot find this program")?;
        let state = Arc::new(Mutex::new(State::default()));
        let (waits, wakes) = sync_channel(0);
        let (tell, told) = sync_channel(1);
        let keeper = Keeper {
            program,
            options: options(config, run_dir),
            state: Arc::clone(&state),
            wakes,
            first: Some(tell),
        };
        let thread = std::thread::Builder::new().name("staging".into());
        let thread = thread.spawn(move || keeper.run());
        let service = Self {
            state,
            waits,
            thread: thread.context("no thread for the server of staging")?,
            stop_within: Duration::from_secs(config.stop_seconds.into()) + STOP_SPARE,
        };
        match told.recv_timeout(READY_WAIT) {
            Ok(First::Ready) => {}
            Ok(First::Wrong(status)) => {
                service.stop();
                anyhow::bail!("[staging]: its server says above what is wrong ({status})");
            }
            Err(_) => warn!("the server of staging is not ready yet"),
        }
        Ok(Some(service))
    }

    /// Stops the server in order, and kills it if that takes too long.
    pub(crate) fn stop(self) {
        let kill = |signal| {
            let mut state = lock(&self.state);
            state.is_over = true;
            if let Some(pid) = state.running {
                // It has not been waited for, so the number is still its own.
                let _ = kill_process(pid, signal);
            }
        };
        kill(Signal::TERM);
        drop(self.waits);
        let until = Instant::now() + self.stop_within;
        while !self.thread.is_finished() && Instant::now() < until {
            pause();
        }
        if !self.thread.is_finished() {
            warn!("the server of staging does not stop, and is killed");
            kill(Signal::KILL);
        }
        // A thread that has panicked has said so.
        let _ = self.thread.join();
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

fn options(config: &StagingConfig, run_dir: &Path) -> Vec<OsString> {
    let own = std::process::id().to_string();
    let fixed = [
        "stage",
        "serve",
        "--json",
        "--with-parent",
        &own,
        "--run-dir",
    ];
    let mut options: Vec<OsString> = fixed.iter().map(OsString::from).collect();
    options.push(run_dir.into());
    options.extend(config.options());
    options
}

/// What looks after the server, in a thread of its own.
struct Keeper {
    program: PathBuf,
    options: Vec<OsString>,
    state: Arc<Mutex<State>>,
    wakes: Receiver<()>,
    first: Option<SyncSender<First>>,
}

impl Keeper {
    fn run(mut self) {
        let mut again = AGAIN_FIRST;
        loop {
            let begun = Instant::now();
            let status = self.serve_once();
            if lock(&self.state).is_over {
                return;
            }
            let code = status.as_ref().ok().and_then(ExitStatus::code);
            if let (Ok(status), Some(WRONG_USE), Some(first)) = (&status, code, self.first.take()) {
                let _ = first.send(First::Wrong(*status));
                return;
            }
            if begun.elapsed() >= RAN_LONG {
                again = AGAIN_FIRST;
            }
            let seconds = again.as_secs();
            match status {
                Ok(status) => {
                    warn!(%status, seconds, "the server of staging has ended, and is started again");
                }
                Err(error) => warn!(%error, seconds, "the server of staging cannot be started"),
            }
            if self.wakes.recv_timeout(again) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            again = (again * 2).min(AGAIN_MAX);
        }
    }

    /// Runs the server until it ends.
    fn serve_once(&mut self) -> std::io::Result<ExitStatus> {
        let mut child = {
            // A stop either sees the process, or keeps it from being started.
            let mut state = lock(&self.state);
            if state.is_over {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let child = self.spawn()?;
            state.running = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            child
        };
        if let Some(output) = child.stdout.take() {
            self.hear(output);
        }
        // Its output is closed, so it ends.
        loop {
            let mut state = lock(&self.state);
            match child.try_wait() {
                Ok(None) => {
                    drop(state);
                    pause();
                }
                ended => {
                    // Its number may be that of another process from now on.
                    state.running = None;
                    return Ok(ended?.unwrap_or_default());
                }
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    }

    /// Hears what the server says until it closes its output.
    fn hear(&mut self, output: ChildStdout) {
        let lines = BufReader::new(output).lines();
        for line in lines.map_while(Result::ok) {
            info!(line, "the server of staging");
            if let Some(first) = self.first.take_if(|_| line.starts_with('{')) {
                let _ = first.send(First::Ready);
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
