//! File events: collectors beside watchdog and inotifywait, ChangeLogs from a stand-in, memory,
//! rules, and the tables of the paper on Ripple's monitor for Lustre.
//! `make events-evaluation` writes their page.

mod changelog;
mod changes;
mod memory;
mod rate;
mod ripple;
mod rules;
mod store;
mod watch;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use barograph_model::{Clock as _, Descriptor, Kind, Labels, Name, Unit, ValueType};
use barograph_stream::SystemClock;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value as Json;

use crate::report::Fault;

pub(super) use changelog::run as changelog;
pub(super) use changes::make;
pub(super) use memory::{known, run as memory};
pub(super) use rate::run as rate;
pub(super) use ripple::{consumer, monitor, run as ripple};
pub(super) use rules::run as rules;
pub(super) use watch::watch;

/// A helper process that says when it is ready, works until its input ends, and then prints what it
/// has seen as one line of JSON.
struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts this program in a role, and waits until it is ready.
    fn of_role(role: &str, arguments: &[&str]) -> Result<Self, Fault> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(format!("--role={role}")).args(arguments);
        Self::start(&mut command)
    }

    /// Starts a program, and waits until it is ready.
    fn start(command: &mut Command) -> Result<Self, Fault> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("a helper has no output")?;
        let mut helper = Self {
            child,
            output: BufReader::new(output),
        };
        let mut line = String::new();
        helper.output.read_line(&mut line)?;
        match line.trim() {
            "ready" => Ok(helper),
            other => Err(format!("a helper says '{other}' and not that it is ready").into()),
        }
    }

    /// Ends the input, and returns what the helper has seen.
    fn finish(mut self) -> Result<Json, Fault> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(serde_json::from_str(&text)?),
            false => Err(format!("a helper has ended with {status}").into()),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a flag that is set when the input of this process ends.
fn input_ended() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let set = std::sync::Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        set.store(true, std::sync::atomic::Ordering::Release);
    });
    ended
}

/// Returns the time of the machine's monotonic clock in ns, which is that of other processes too.
fn monotonic_ns() -> i64 {
    ns_of(ClockId::Monotonic)
}

/// Returns the processor time of all threads of this process, in ns.
fn process_cpu_ns() -> i64 {
    ns_of(ClockId::ProcessCPUTime)
}

fn ns_of(clock: ClockId) -> i64 {
    let t = clock_gettime(clock);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Returns the present time of the wall clock and of the monotonic clock, in ns.
fn both_ns(clock: &SystemClock) -> (i64, i64) {
    (clock.now_ns(), monotonic_ns())
}

/// Returns a figure of `/proc/self/status` in MB.
fn memory_mb(key: &str) -> Result<f64, Fault> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kb = line.and_then(|l| l.trim_matches([':', ' ', '\t']).strip_suffix(" kB"));
    Ok(kb.ok_or("no such figure of memory")?.parse::<f64>()? * 1_024.0 / 1e6)
}

fn number(row: &Json, key: &str) -> Result<f64, Fault> {
    let number = row[key].as_f64();
    number.ok_or_else(|| format!("a helper has not told {key}").into())
}

/// Returns the descriptor of the stream of events.
fn descriptor() -> Descriptor {
    Descriptor {
        name: Name::new(barograph_event::EVENT_STREAM).expect("a literal"),
        labels: Labels::new([(barograph_event::SOURCE_LABEL, "bench")]).expect("a short label"),
        value_type: ValueType::Bytes,
        unit: Unit::new("").expect("a literal"),
        kind: Kind::Gauge,
        help: String::new(),
    }
}
