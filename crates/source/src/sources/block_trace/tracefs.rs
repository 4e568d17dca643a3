//! The kernel's tracing, and an instance of it that is the agent's own
//! (<https://docs.kernel.org/trace/ftrace.html>, "Instances"; events.rst of the same folder).
//!
//! Nothing but our own instance is ever written to. It is removed at the end; one that a killed
//! agent has left behind goes on tracing until an agent with this source switched on removes it, or
//! somebody by hand (`rmdir`): an agent that was not asked to trace leaves tracefs alone. The
//! kernel itself refuses to remove one whose `trace_pipe` somebody holds open.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Missing;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{lines, number, unescape_octal, words};

/// What our instances are called: this, the process, when it started, and a number.
const PREFIX: &str = "barograph-";
/// Most names of instances that are looked through for what was left behind.
const INSTANCES_MAX: usize = 4096;
/// The events, below a tracefs or one of its instances.
const EVENTS: [&str; 2] = [
    "events/block/block_rq_issue",
    "events/block/block_rq_complete",
];
/// The least that a processor's buffer gets.
const PROCESSOR_KB_MIN: u64 = 256;
/// The most: the kernel takes more, but has it taken from all others.
const PROCESSOR_KB_MAX: u64 = 64 << 10;

/// Instances that this process has made, so that each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// An instance that traces the requests of all disks.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) path: PathBuf,
    /// Closed before the instance can be removed.
    pipe: Option<OwnedFd>,
}

impl Instance {
    /// Begins to trace. `buffer_bytes` is for all processors.
    pub(super) fn start(root: &SysRoot, buffer_bytes: u64) -> Result<Self, Missing> {
        let mut instance = Self::make(root)?;
        instance.set_up(buffer_bytes)?;
        Ok(instance)
    }

    /// Finds tracefs, cleans up, and makes an instance that traces nothing: whoever can make one may trace.
    pub(super) fn make(root: &SysRoot) -> Result<Self, Missing> {
        let tracefs = find(root)?;
        clean_up(&tracefs);
        let name = format!(
            "{PREFIX}{}-{}-{}",
            std::process::id(),
            started(std::process::id()).unwrap_or(0),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let path = tracefs.join("instances").join(name);
        rustix::fs::mkdir(&path, Mode::RWXU).map_err(|errno| refused(&path, errno))?;
        Ok(Self { path, pipe: None })
    }

    fn set_up(&mut self, buffer_bytes: u64) -> Result<(), Missing> {
        let processors = names_in(&self.path.join("per_cpu"), 0).map_or(1, |(_, all)| all.max(1));
        let kb =
            (buffer_bytes / 1024 / processors as u64).clamp(PROCESSOR_KB_MIN, PROCESSOR_KB_MAX);
        self.write("buffer_size_kb", &kb.to_string())?;
        // One clock for all processors, where the usual one may differ between them; flags that
        // nobody reads cost time. A kernel without these names goes on without them.
        let _ = self.write("trace_clock", "mono");
        let _ = self.write("options/irq-info", "0");
        // Of threads, the process.
        let _ = self.write("options/record-tgid", "1");
        let path = self.path.join("trace_pipe");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = rustix::fs::open(&path, flags, Mode::empty());
        self.pipe = Some(pipe.map_err(|errno| refused(&path, errno))?);
        for event in EVENTS {
            self.write(&format!("{event}/enable"), "1")?;
        }
        Ok(())
    }

    /// Where the events come from; reads do not wait.
    pub(super) fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Missing> {
        let path = self.path.join(file);
        let written = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|fd| rustix::io::write(&fd, text.as_bytes()));
        written.map(drop).map_err(|errno| refused(&path, errno))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Should somebody else have a file of it open, it cannot be removed, but cost nothing.
        for event in EVENTS {
            let _ = self.write(&format!("{event}/enable"), "0");
        }
        self.pipe = None;
        if let Err(errno) = rustix::fs::rmdir(&self.path) {
            tracing::warn!(path = %self.path.display(), %errno, "the trace's instance stays: remove it with rmdir");
        }
    }
}

/// A tracefs that has the events: at its usual places, else wherever it is mounted.
fn find(root: &SysRoot) -> Result<PathBuf, Missing> {
    let usual = ["sys/kernel/tracing", "sys/kernel/debug/tracing"].map(|path| root.path(path));
    let mut without = None;
    for path in usual.into_iter().chain(mounted(root)) {
        match rustix::fs::stat(path.join(EVENTS[0])) {
            Ok(_) => return Ok(path),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Err(refused(&path, errno)),
            // A tracefs, of a kernel that has no such events.
            Err(_) if path.join("events").is_dir() => without = Some(path),
            Err(_) => {}
        }
    }
    Err(match without {
        Some(path) => Missing::new(
            WHAT,
            format!("{} has no events/block", path.display()),
            "boot a kernel with CONFIG_BLK_DEV_IO_TRACE, or with CONFIG_BLOCK and CONFIG_EVENT_TRACING",
        ),
        None if knows_tracefs(root) => Missing::new(
            WHAT,
            "tracefs is not mounted",
            "mount it: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        None => Missing::new(
            WHAT,
            "this kernel has no tracefs",
            "boot a kernel with CONFIG_BLK_DEV_IO_TRACE, which brings CONFIG_EVENT_TRACING with it",
        ),
    })
}

/// What the report calls that which is not there.
pub(super) const WHAT: &str = "requests of disks, one by one";

fn mounted(root: &SysRoot) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    if root
        .until_end("proc/self/mountinfo")
        .read(&mut bytes)
        .is_err()
    {
        return Vec::new();
    }
    let point = |line| {
        let mut words = words(line);
        let point = words.nth(4)?;
        words.find(|word| *word == b"-")?;
        (words.next()? == b"tracefs").then(|| unescape_octal(point))
    };
    let points = lines(&bytes).filter_map(point);
    points
        .map(|point| PathBuf::from(std::ffi::OsString::from_vec(point)))
        .collect()
}

fn knows_tracefs(root: &SysRoot) -> bool {
    let mut bytes = Vec::new();
    let read = root.short_records("proc/filesystems").read(&mut bytes);
    // Who cannot read the list is better told to mount than to boot.
    read.is_err() || lines(&bytes).any(|line| words(line).last() == Some(b"tracefs"))
}

/// Removes instances of ours whose process is gone, where the source that makes them is off.
pub(crate) fn remove_leftovers(root: &SysRoot) {
    if let (true, Ok(tracefs)) = (root.is_real(), find(root)) {
        clean_up(&tracefs);
    }
}

/// Removes instances of ours whose process is gone.
fn clean_up(tracefs: &Path) {
    let instances = tracefs.join("instances");
    let Ok((names, _)) = names_in(&instances, INSTANCES_MAX) else {
        return;
    };
    for name in names {
        if let Some(name) = std::str::from_utf8(&name).ok().filter(|name| is_left(name)) {
            // One that lives in another process namespace holds its pipe open: the kernel refuses.
            let removed = rustix::fs::rmdir(instances.join(name));
            tracing::info!(
                name,
                ?removed,
                "an instance of tracing was left by an agent that is gone"
            );
        }
    }
}

/// Whether this is the name of an instance of ours whose process is gone.
fn is_left(name: &str) -> bool {
    let parse = || {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let mut next = || number(parts.next()?.as_bytes());
        let (pid, start, _) = (next()?, next()?, next()?);
        parts
            .next()
            .is_none()
            .then_some((u32::try_from(pid).ok()?, start))
    };
    parse().is_some_and(|(pid, start)| started(pid) != Some(start))
}

/// When a living process started, in ticks since the boot: with its number, a name that is never
/// given twice (`/proc/PID/stat`, fields 3 and 22; proc_pid_stat(5)).
fn started(pid: u32) -> Option<u64> {
    let mut bytes = Vec::new();
    let mut stat = HeldFile::until_end(PathBuf::from(format!("/proc/{pid}/stat")));
    stat.read_and_close(&mut bytes).ok()?;
    // The name of the program is in parentheses, and may hold some itself.
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let mut fields = words(&bytes[close + 1..]);
    let state = fields.next()?;
    // One that is dead stays listed until its parent asks for it, which may be never.
    (!matches!(state, b"Z" | b"X" | b"x")).then(|| number(fields.nth(18)?))?
}

fn refused(path: &Path, errno: Errno) -> Missing {
    let why = format!("{}: {}", path.display(), std::io::Error::from(errno));
    let remedy = match errno {
        // A group that may write to tracefs is not enough: an instance's files are their owner's.
        Errno::ACCESS => {
            "run the agent as root, or with CAP_DAC_OVERRIDE (AmbientCapabilities= of its unit)"
        }
        Errno::PERM => {
            "run the agent as root; under kernel lockdown (confidentiality) tracing is forbidden to everyone"
        }
        Errno::NOMEM => "make sources.block_trace.buffer_bytes smaller",
        _ => "run the agent as root on a kernel with CONFIG_TRACING and instances (3.10 or newer)",
    };
    Missing::new(WHAT, why, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_dead_are_left() {
        let own = std::process::id();
        let start = started(own).unwrap();
        let check = |name: String, expect| assert_eq!(is_left(&name), expect, "{name}");
        check(format!("barograph-{own}-{start}-0"), false);
        // The number was given to another process since.
        check(format!("barograph-{own}-{}-0", start + 1), true);
        check("barograph-4294967295-1-0".to_owned(), true);
        for name in [
            "barograph",
            "barograph-",
            "barograph-1-2",
            "barograph-1-2-3-4",
            "barograph-a-1-1",
            "x-1-1-1",
            "barograph-99999999999-1-1",
        ] {
            check(name.to_owned(), false);
        }
    }

    /// Here and now, where that is allowed.
    #[test]
    fn one_that_was_only_made_traces_nothing_and_leaves_nothing() {
        match Instance::make(&SysRoot::new(Path::new("/"))) {
            Err(missing) => assert!(!missing.why.is_empty() && !missing.remedy.is_empty()),
            Ok(instance) => {
                let path = instance.path.clone();
                let enabled = std::fs::read_to_string(path.join("events/enable")).unwrap();
                assert_eq!(enabled.trim(), "0");
                drop(instance);
                assert!(!path.exists());
            }
        }
    }

    #[test]
    fn a_dead_process_that_nobody_asked_for_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(started(child.id()).is_some());
        child.kill().unwrap();
        let patience = (0..1000).find(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            started(child.id()).is_none()
        });
        assert!(patience.is_some() && Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
    }

    #[test]
    fn where_tracing_is_and_why_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::new(dir.path());
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        let why = || find(&root).unwrap_err().why;
        assert_eq!(why(), "tracefs is not mounted");
        make("proc");
        std::fs::write(
            dir.path().join("proc/filesystems"),
            "nodev\tsysfs\n\text4\n",
        )
        .unwrap();
        assert_eq!(why(), "this kernel has no tracefs");
        std::fs::write(dir.path().join("proc/filesystems"), "nodev\ttracefs\n").unwrap();
        make("sys/kernel/tracing");
        assert_eq!(why(), "tracefs is not mounted");
        make("sys/kernel/tracing/events");
        assert!(why().ends_with("sys/kernel/tracing has no events/block"));
        let event = "events/block/block_rq_issue";
        make(&format!("else where/{event}"));
        let point = dir.path().join("else where");
        let escaped = point.to_str().unwrap().replace(' ', "\\040");
        let line = format!(
            "22 27 0:21 / /proc rw - proc proc rw\n42 27 0:13 / {escaped} rw - tracefs tracefs rw\n"
        );
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("proc/self/mountinfo"), line).unwrap();
        assert_eq!(find(&root).unwrap(), point);
        make(&format!("sys/kernel/debug/tracing/{event}"));
        assert_eq!(
            find(&root).unwrap(),
            dir.path().join("sys/kernel/debug/tracing")
        );
        make(&format!("sys/kernel/tracing/{event}"));
        assert_eq!(find(&root).unwrap(), dir.path().join("sys/kernel/tracing"));
    }
}
