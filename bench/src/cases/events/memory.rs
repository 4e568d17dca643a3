//! `event.memory`: the memory of a process that knows a million directories, by a ChangeLog and by
//! each collector of trees.

use std::path::Path;

use barograph_event::Collector;
use barograph_event::changelog::standin::{StandInDevice, StandInLog, StandInPaths};
use barograph_event::changelog::{
    ChangelogCollector, ChangelogMerge, ChangelogOptions, ChangelogRecord, Fid, MergeOptions,
    RecordType, ResolverOptions, record_time,
};
use barograph_stream::SystemClock;
use serde_json::json;

use super::{Helper, both_ns, memory_mb, number, watch};
use crate::cases::Scratch;
use crate::report::{Fault, Report};

const DIRECTORIES: usize = 1_000_000;
/// Directories in each directory.
const FAN_OUT: usize = 32;
const START_NS: i64 = 1_700_000_000_000_000_000;
/// Records that are written to a log at once.
const FLUSH: usize = 10_000;

/// Measures a log of a million new directories, and a tree of them in memory.
pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("known")?;
    let (log, tree, state) = (
        scratch.0.join("log"),
        scratch.0.join("tree"),
        scratch.0.join("state"),
    );
    make_log(&log)?;
    tell(report, "changelog", &log, &state)?;
    make_tree(&tree)?;
    for kind in ["fanotify", "inotify"] {
        tell(report, kind, &tree, &state)?;
    }
    Ok(())
}

fn tell(report: &mut Report, kind: &str, of: &Path, state: &Path) -> Result<(), Fault> {
    let text = |path: &Path| path.display().to_string();
    // Each has a snapshot of its own.
    let state = state.join(kind);
    std::fs::create_dir_all(&state)?;
    let told = Helper::of_role("known", &[kind, &text(of), &text(&state)])?.finish()?;
    let directories = number(&told, "directories")?;
    if directories < DIRECTORIES as f64 {
        return Err(format!("{kind} knows {directories} directories").into());
    }
    let watches = number(&told, "watches")?;
    let watched = match watches {
        0.0 => String::new(),
        watches => format!(", {watches} watches of the kernel"),
    };
    let case = format!("{kind}: {directories} directories known{watched}, resident memory");
    let more = json!({
        "kind": kind, "grown_mb": number(&told, "grown_mb")?, "peak_mb": number(&told, "peak_mb")?,
        "watches": watches,
    });
    report.row_with(
        "event.memory",
        &case,
        number(&told, "resident_mb")?,
        "MB",
        more,
    );
    Ok(())
}

/// The helper process that learns the directories: its arguments are the kind of the collector, the
/// log or tree, and a directory for the snapshot.
pub(crate) fn known(arguments: &[String]) -> Result<(), Fault> {
    let [kind, of, state] = arguments else {
        return Err("known KIND DIR DIR".into());
    };
    let (of, clock) = (Path::new(of), SystemClock::new());
    let before_mb = memory_mb("VmRSS")?;
    let mut collector: Box<dyn Collector> = match kind.as_str() {
        "changelog" => {
            let (options, resolver) = (MergeOptions::default(), ResolverOptions::default());
            let merge = ChangelogMerge::new(options, resolver, Box::<StandInPaths>::default());
            let device = Box::new(StandInDevice::new(of));
            let options = ChangelogOptions::default();
            Box::new(ChangelogCollector::new(&merge, device, options))
        }
        kind => watch::open(kind, of, Path::new(state))?,
    };
    let mut events = Vec::new();
    loop {
        collector.collect(&mut events, 4_096, both_ns(&clock))?;
        events.clear();
        let status = collector.status();
        let is_known = kind != "changelog" || status.directories >= DIRECTORIES as u64;
        if !status.is_walking && is_known {
            break;
        }
    }
    let status = collector.status();
    let resident_mb = memory_mb("VmRSS")?;
    println!(
        "ready\n{}",
        json!({
            "directories": status.directories, "watches": status.watches,
            "resident_mb": resident_mb, "grown_mb": resident_mb - before_mb,
            "peak_mb": memory_mb("VmHWM")?,
        })
    );
    Ok(())
}

fn make_log(log: &Path) -> Result<(), Fault> {
    let mut log = StandInLog::open(log)?;
    let fid = |at: usize| match at {
        0 => Fid::ROOT,
        at => Fid::new(0x2_0000_0400, at as u32, 0),
    };
    for at in 1..=DIRECTORIES {
        let name = format!("directory{at}");
        log.append(&ChangelogRecord {
            type_number: RecordType::Mkdir as u32,
            time: record_time(START_NS + at as i64),
            target: fid(at),
            parent: fid((at - 1) / FAN_OUT),
            name: name.as_bytes(),
            ..ChangelogRecord::default()
        });
        if at.is_multiple_of(FLUSH) {
            log.flush()?;
        }
    }
    log.flush()?;
    Ok(())
}

fn make_tree(tree: &Path) -> Result<(), Fault> {
    std::fs::create_dir(tree)?;
    let mut paths = vec![tree.to_owned()];
    for at in 1..=DIRECTORIES {
        let path = paths[(at - 1) / FAN_OUT].join(format!("directory{at}"));
        std::fs::create_dir(&path)?;
        // Only those that get directories are kept.
        if at <= DIRECTORIES / FAN_OUT {
            paths.push(path);
        }
    }
    Ok(())
}
