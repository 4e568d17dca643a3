//! Pressure triggers of the kernel, which report that tasks have waited for long, so that nobody
//! has to look (`Documentation/accounting/psi.rst`). A threshold is written to a file of
//! `/proc/pressure`, and the file is ready to poll when it is reached. One thread waits for all of
//! them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use barograph_source::PressureTrigger;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use tracing::warn;

/// Most triggers at once. Each is a kernel thread, or a share of one.
const TRIGGERS_MAX: usize = 8;

/// A function that wakes the loop.
pub(crate) type WakeLoop = Arc<dyn Fn() + Send + Sync>;

/// The triggers that policies need.
pub(super) struct PressureTriggers {
    /// Directory of the kernel's files; `None` on a recorded machine.
    dir: Option<PathBuf>,
    wake: WakeLoop,
    states: BTreeMap<PressureTrigger, State>,
    watch: Option<Watch>,
}

/// The state of one trigger: set in the kernel, or refused with a reason.
enum State {
    Set(Arc<Flags>),
    Refused(String),
}

#[derive(Default)]
struct Flags {
    has_fired: AtomicBool,
    /// Whether the kernel has removed the trigger.
    is_gone: AtomicBool,
}

impl PressureTriggers {
    pub(super) fn new(dir: Option<PathBuf>, wake: WakeLoop) -> Self {
        Self {
            dir,
            wake,
            states: BTreeMap::new(),
            watch: None,
        }
    }

    /// Sets exactly these triggers in the kernel. If any differ from before, those that stay are
    /// set again too, which drops events that were not read yet.
    pub(super) fn set(&mut self, wanted: impl Iterator<Item = PressureTrigger>) {
        let wanted: std::collections::BTreeSet<PressureTrigger> = wanted.collect();
        if wanted.iter().eq(self.states.keys()) {
            return;
        }
        self.watch = None;
        let known = std::mem::take(&mut self.states);
        let mut files = Vec::new();
        for (at, trigger) in wanted.into_iter().enumerate() {
            let state = match self.open(at, &trigger) {
                Ok(file) => {
                    let flags = Arc::new(Flags::default());
                    files.push((file, Arc::clone(&flags)));
                    State::Set(flags)
                }
                Err(reason) => {
                    if !matches!(known.get(&trigger), Some(State::Refused(_))) {
                        warn!(trigger = trigger.request(), of = trigger.of.as_str(), %reason, "no call under pressure");
                    }
                    State::Refused(reason)
                }
            };
            self.states.insert(trigger, state);
        }
        if files.is_empty() {
            return;
        }
        match Watch::start(files, Arc::clone(&self.wake)) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                warn!(%error, "no calls under pressure");
                let reason = format!("no thread waits for it: {error}");
                let states = self.states.values_mut();
                states.for_each(|state| *state = State::Refused(reason.clone()));
            }
        }
    }

    /// Returns the reason why a trigger does not work; `None` if it works.
    pub(super) fn reason(&self, trigger: &PressureTrigger) -> Option<&str> {
        match self.states.get(trigger)? {
            State::Refused(reason) => Some(reason),
            State::Set(flags) if flags.is_gone.load(Ordering::Relaxed) => {
                Some("the kernel has taken its trigger back")
            }
            State::Set(_) => None,
        }
    }

    /// Returns the triggers that have fired since the last call.
    pub(super) fn fired(&self) -> impl Iterator<Item = &PressureTrigger> {
        let has_fired = |state: &State| match state {
            State::Set(flags) => flags.has_fired.swap(false, Ordering::Acquire),
            State::Refused(_) => false,
        };
        let states = self.states.iter();
        states.filter_map(move |(trigger, state)| has_fired(state).then_some(trigger))
    }

    #[cfg(test)]
    pub(super) fn fire(&mut self, trigger: PressureTrigger) {
        let flags = Arc::new(Flags::default());
        flags.has_fired.store(true, Ordering::Release);
        self.states.insert(trigger, State::Set(flags));
    }

    fn open(&self, at: usize, trigger: &PressureTrigger) -> Result<File, String> {
        let Some(dir) = &self.dir else {
            return Err("a recorded machine calls nobody".into());
        };
        if at >= TRIGGERS_MAX {
            return Err(format!("at most {TRIGGERS_MAX} pressure triggers at once"));
        }
        let path = dir.join(trigger.of.as_str());
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
                .open(&path)?;
            // The kernel needs the request in one write, with its terminating zero.
            let request = format!("{}\0", trigger.request());
            file.write_all(request.as_bytes())?;
            Ok::<File, std::io::Error>(file)
        };
        open().map_err(|error| {
            let hint = match trigger.window_us % 2_000_000 {
                0 => "",
                _ => " (without privilege, its window must be a multiple of 2s)",
            };
            format!("{}: {error}{hint}", path.display())
        })
    }
}

/// The thread that waits for all triggers.
struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(files: Vec<(File, Arc<Flags>)>, wake: WakeLoop) -> std::io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("baro-pressure".into())
            .spawn(move || wait(files, &theirs, &*wake))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The counter of an eventfd takes eight bytes.
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread that waits for the kernel"
)]
fn wait(mut files: Vec<(File, Arc<Flags>)>, stop: &OwnedFd, wake: &(dyn Fn() + Send + Sync)) {
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(
            files
                .iter()
                .map(|(file, _)| PollFd::new(file, PollFlags::PRI)),
        );
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        let found: Vec<PollFlags> = fds[1..].iter().map(PollFd::revents).collect();
        let lost = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        for ((_, flags), found) in files.iter().zip(&found) {
            if found.contains(PollFlags::PRI) {
                flags.has_fired.store(true, Ordering::Release);
            }
            if found.intersects(lost) {
                flags.is_gone.store(true, Ordering::Relaxed);
            }
        }
        let mut found = found.iter();
        files.retain(|_| found.next().is_some_and(|found| !found.intersects(lost)));
        wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(text: &str) -> PressureTrigger {
        PressureTrigger::parse(text).unwrap()
    }

    #[test]
    fn what_the_kernel_refuses_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let none = PressureTriggers::new(None, Arc::new(|| {}));
        let some = PressureTriggers::new(Some(dir.path().to_owned()), Arc::new(|| {}));
        let (io, odd) = (trigger("io some 150ms 2s"), trigger("io some 150ms 3s"));
        for (mut pressure, expect) in [(none, "recorded"), (some, "io: No such file")] {
            pressure.set([io, odd].into_iter());
            let reason = pressure.reason(&io).unwrap();
            assert!(reason.contains(expect), "{reason}");
            let odd = pressure.reason(&odd).unwrap();
            assert_eq!(
                odd.contains("a multiple of 2s"),
                expect != "recorded",
                "{odd}"
            );
            assert_eq!(pressure.fired().count(), 0);
        }
    }

    #[test]
    fn more_than_there_is_room_for_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cpu"), "").unwrap();
        let mut pressure = PressureTriggers::new(Some(dir.path().to_owned()), Arc::new(|| {}));
        let wanted: Vec<_> = (1..=9)
            .map(|ms| trigger(&format!("cpu some {ms}ms 2s")))
            .collect();
        pressure.set(wanted.iter().copied());
        let refused = wanted.iter().filter_map(|t| pressure.reason(t));
        let refused: Vec<&str> = refused.collect();
        assert_eq!(refused, ["at most 8 pressure triggers at once"]);
        pressure.set(std::iter::empty());
        assert_eq!(pressure.reason(&wanted[8]), None);
    }

    #[test]
    fn the_kernel_takes_a_trigger_or_says_why_not() {
        let mut pressure = PressureTriggers::new(Some("/proc/pressure".into()), Arc::new(|| {}));
        let io = trigger("io some 150ms 2s");
        pressure.set(std::iter::once(io));
        match pressure.reason(&io) {
            // The thread ends when it is dropped.
            None => assert!(pressure.watch.is_some()),
            Some(reason) => assert!(reason.contains("/proc/pressure/io: "), "{reason}"),
        }
    }
}
