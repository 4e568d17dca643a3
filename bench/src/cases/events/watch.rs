//! The helper process that watches a tree with a collector of ours, alone or with the way to the
//! log, and counts what it is told.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use barograph_event::{
    Collected, Collector, EventKind, FanotifyCollector, FanotifyConfig, FanotifyGroup, FileEvent,
    InotifyCollector, InotifyConfig, TreeConfig,
};
use barograph_stream::SystemClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::changes::ToldFiles;
use super::store::EventStore;
use super::{both_ns, input_ended, memory_mb, monotonic_ns, process_cpu_ns};
use crate::report::Fault;

/// Events of a batch, as in the agent.
const BATCH_EVENTS_MAX: usize = 4_096;
/// Most bytes of a record, whose paths are short here.
const RECORD_BYTES_MAX: u32 = 512;
/// Time without an event after which all have been told.
const QUIET_NS: i64 = 500_000_000;
/// Longest wait for the descriptor of a collector.
const WAIT_NS_MAX: i64 = 5_000_000;

/// Opens a collector of a tree as the agent does, with its snapshot in the directory `state`.
pub(super) fn open(kind: &str, root: &Path, state: &Path) -> Result<Box<dyn Collector>, Fault> {
    let snapshot = state.join("snapshot");
    Ok(match kind {
        "fanotify" => {
            let root = root.canonicalize()?;
            let config = FanotifyConfig {
                tree: Some(TreeConfig::new(&snapshot)),
                ignored_pids: vec![rustix::process::getpid().as_raw_nonzero().get()],
                ..FanotifyConfig::new(&root)
            };
            Box::new(FanotifyCollector::new(
                FanotifyGroup::open(&root)?,
                &config,
            )?)
        }
        "inotify" => {
            let roots = [root.to_owned()];
            Box::new(InotifyCollector::open(
                &roots,
                InotifyConfig::new(&snapshot),
            )?)
        }
        other => return Err(format!("no collector {other}").into()),
    })
}

/// Watches a tree until the input ends: its arguments are the kind of the collector, `alone` or
/// `durable`, the tree, a directory in memory, and one on a disk.
pub(crate) fn watch(arguments: &[String]) -> Result<(), Fault> {
    let [kind, way, root, memory, disk] = arguments else {
        return Err("watch KIND WAY DIR DIR DIR".into());
    };
    let mut collector = open(kind, Path::new(root), Path::new(memory))?;
    let ring = PathBuf::from(memory).join("ring");
    let mut store = match way.as_str() {
        "durable" => Some(EventStore::open(&ring, Path::new(disk), RECORD_BYTES_MAX)?),
        _ => None,
    };
    if let Some(store) = &mut store {
        store.follow(&ring);
    }
    let (clock, mut events) = (SystemClock::new(), Vec::new());
    loop {
        collector.collect(&mut events, BATCH_EVENTS_MAX, both_ns(&clock))?;
        events.clear();
        if !collector.status().is_walking {
            break;
        }
    }
    let ended = input_ended();
    let before_ns = process_cpu_ns();
    println!("ready");
    std::io::stdout().flush()?;
    let (mut told, mut count, mut last_ns) = (ToldFiles::default(), 0u64, monotonic_ns());
    let mut acknowledged = 0;
    loop {
        let collected = collector.collect(&mut events, BATCH_EVENTS_MAX, both_ns(&clock))?;
        let is_over = ended.load(Ordering::Acquire);
        let is_news = !events.is_empty();
        count += events.len() as u64;
        let created = events.iter().filter(|e| e.kind == EventKind::Create);
        created.for_each(|event| told.take(&event.path));
        let durable = pass_on(store.as_mut(), &mut events)?;
        if durable > acknowledged {
            collector.acknowledge(durable)?;
            acknowledged = durable;
        }
        let is_kept = store.as_ref().is_none_or(EventStore::is_settled);
        if is_news || !is_kept {
            last_ns = monotonic_ns();
        } else if is_over && monotonic_ns() - last_ns > QUIET_NS {
            break;
        }
        if collected == Collected::All {
            wait(&*collector);
        }
    }
    let followed = store.map(EventStore::finish).transpose()?;
    if followed.is_some_and(|followed| followed != count) {
        return Err(format!("{followed:?} events of {count} were followed").into());
    }
    let (status, (seen, twice)) = (collector.status(), told.counts());
    println!(
        "{}",
        json!({
            "events": count, "last_ns": last_ns, "cpu_ns": process_cpu_ns() - before_ns, "seen": seen,
            "twice": twice, "gaps": status.gaps, "reconciled": status.reconciled,
            "peak_mb": memory_mb("VmHWM")?,
        })
    );
    Ok(())
}

/// Hands events on; returns the number of the last one that the source may forget.
fn pass_on(store: Option<&mut EventStore>, events: &mut Vec<FileEvent>) -> Result<u64, Fault> {
    let durable = match store {
        Some(store) => store.record(events)?,
        None => events.last().map_or(0, |last| last.index),
    };
    events.clear();
    Ok(durable)
}

fn wait(collector: &dyn Collector) {
    let wait_ns = collector
        .due_ns()
        .saturating_sub(monotonic_ns())
        .clamp(0, WAIT_NS_MAX);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: wait_ns,
    };
    match collector.readable() {
        Some(descriptor) => {
            let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&timeout));
        }
        None => std::thread::sleep(std::time::Duration::from_nanos(wait_ns as u64)),
    }
}
