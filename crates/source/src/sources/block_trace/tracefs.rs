//! The kernel's tracing, and a tracing instance of our own
//! (<https://docs.kernel.org/trace/ftrace.html>, "Instances"; events.rst of the same folder).
//!
//! Nothing but our own instance is ever written to. It is removed at the end. The instance of a
//! killed agent goes on tracing until the next agent starts, whether or not this source is enabled
//! there, or until a user removes it (`rmdir`). The kernel itself refuses to remove an instance
//! whose `trace_pipe` is open.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::MissingPart;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{lines, number, unescape_octal, words};

/// Prefix of the names of our instances, followed by the process, its start time and a number.
const PREFIX: &str = "barograph-";
/// Most names of instances that are searched for abandoned ones.
const INSTANCES_MAX: usize = 4096;
/// The events, below a tracefs or one of its instances.
const EVENTS: [&str; 2] = [
    "events/block/block_rq_issue",
    "events/block/block_rq_complete",
];
/// Smallest buffer of one processor, in KiB.
const PROCESSOR_KB_MIN: u64 = 256;
/// Largest buffer of one processor, in KiB: the kernel takes more, but takes that memory from all
/// other users.
const PROCESSOR_KB_MAX: u64 = 64 << 10;

/// Number of instances that this process has created, so that each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// An instance that traces the requests of all disks.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) path: PathBuf,
    /// The open pipe; it is closed before the instance can be removed.
    pipe: Option<OwnedFd>,
}

impl Instance {
    /// Starts tracing. `buffer_bytes` is the size for all processors.
    pub(super) fn start(root: &SysRoot, buffer_bytes: u64) -> Result<Self, MissingPart> {
        let mut instance = Self::make(root)?;
        instance.set_up(buffer_bytes)?;
        Ok(instance)
    }

    /// Finds tracefs, removes abandoned instances, and creates one that traces nothing: a user who
    /// can create an instance may trace.
    pub(super) fn make(root: &SysRoot) -> Result<Self, MissingPart> {
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

    fn set_up(&mut self, buffer_bytes: u64) -> Result<(), MissingPart> {
        let processors = names_in(&self.path.join("per_cpu"), 0).map_or(1, |(_, all)| all.max(1));
        let kb =
            (buffer_bytes / 1024 / processors as u64).clamp(PROCESSOR_KB_MIN, PROCESSOR_KB_MAX);
        self.write("buffer_size_kb", &kb.to_string())?;
        // One clock for all processors, since the default clock may differ between them. Flags that
        // are not used cost time. A kernel without these names goes on without them.
        let _ = self.write("trace_clock", "mono");
        let _ = self.write("options/irq-info", "0");
        // Records the process of each thread.
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

    /// The pipe from which events are read; its reads do not wait.
    pub(super) fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    fn write(&self, file: &str, text: &str) -> Result<(), MissingPart> {
        let path = self.path.join(file);
        let written = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|fd| rustix::io::write(&fd, text.as_bytes()));
        written.map(drop).map_err(|errno| refused(&path, errno))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If another process has a file of the instance open, it cannot be removed, but must cost
        // nothing.
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
fn find(root: &SysRoot) -> Result<PathBuf, MissingPart> {
    let usual = ["sys/kernel/tracing", "sys/kernel/debug/tracing"].map(|path| root.path(path));
    let mut without = None;
    for path in usual.into_iter().chain(mounted(root)) {
        match rustix::fs::stat(path.join(EVENTS[0])) {
            Ok(_) => return Ok(path),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Err(refused(&path, errno)),
            // This is a tracefs of a kernel that has no such events.
            Err(_) if path.join("events").is_dir() => without = Some(path),
            Err(_) => {}
        }
    }
    Err(match without {
        Some(path) => MissingPart::new(
            WHAT,
            format!("{} has no events/block", path.display()),
            "boot a kernel with CONFIG_BLK_DEV_IO_TRACE, or with CONFIG_BLOCK and CONFIG_EVENT_TRACING",
        ),
        None if knows_tracefs(root) => MissingPart::new(
            WHAT,
            "tracefs is not mounted",
            "mount it: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        None => MissingPart::new(
            WHAT,
            "this kernel has no tracefs",
            "boot a kernel with CONFIG_BLK_DEV_IO_TRACE, which brings CONFIG_EVENT_TRACING with it",
        ),
    })
}

/// The name in the report of what is missing.
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
    // If the list cannot be read, the advice to mount is better than the advice to boot another
    // kernel.
    read.is_err() || lines(&bytes).any(|line| words(line).last() == Some(b"tracefs"))
}

/// Removes our instances whose process has ended, when the source that creates them is off.
pub(crate) fn remove_leftovers(root: &SysRoot) {
    if let (true, Ok(tracefs)) = (root.is_real(), find(root)) {
        clean_up(&tracefs);
    }
}

/// Removes our instances whose process has ended.
fn clean_up(tracefs: &Path) {
    let instances = tracefs.join("instances");
    let Ok((names, _)) = names_in(&instances, INSTANCES_MAX) else {
        return;
    };
    for name in names {
        if let Some(name) = std::str::from_utf8(&name).ok().filter(|name| is_left(name)) {
            // An instance of a process in another process namespace has its pipe open: the kernel
            // refuses.
            let removed = rustix::fs::rmdir(instances.join(name));
            tracing::info!(
                name,
                ?removed,
                "an instance of tracing was left by an agent that is gone"
            );
        }
    }
}

/// Whether this is the name of one of our instances whose process has ended.
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

/// Time at which a living process started, in ticks since the boot. Together with the number of the
/// process it is unique (`/proc/PID/stat`, fields 3 and 22; proc_pid_stat(5)).
fn started(pid: u32) -> Option<u64> {
    let mut bytes = Vec::new();
    let mut stat = HeldFile::until_end(PathBuf::from(format!("/proc/{pid}/stat")));
    stat.read_and_close(&mut bytes).ok()?;
    // The name of the program is in parentheses, and may contain parentheses itself.
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let mut fields = words(&bytes[close + 1..]);
    let state = fields.next()?;
    // A dead process remains listed until its parent waits for it, which may never happen.
    (!matches!(state, b"Z" | b"X" | b"x")).then(|| number(fields.nth(18)?))?
}

fn refused(path: &Path, errno: Errno) -> MissingPart {
    let why = format!("{}: {}", path.display(), std::io::Error::from(errno));
    let remedy = match errno {
        // Membership of a group that may write to tracefs is not enough: the files of an instance
        // belong to its owner.
        Errno::ACCESS => {
            "run the agent as root, or with CAP_DAC_OVERRIDE (AmbientCapabilities= of its unit)"
        }
        Errno::PERM => {
            "run the agent as root; under kernel lockdown (confidentiality) tracing is forbidden to everyone"
        }
        Errno::NOMEM => "make sources.block_trace.buffer_bytes smaller",
        _ => "run the agent as root on a kernel with CONFIG_TRACING and instances (3.10 or newer)",
    };
    MissingPart::new(WHAT, why, remedy)
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
        // The number has since been given to another process.
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

    /// Tests a real instance, where that is allowed.
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
        barograph_testing::wait_until("its end", || started(child.id()).is_none());
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
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
