//! `fs.rate`: what collectors see of a busy tree, on a file system in memory and on a disk, beside
//! watchdog and inotifywait in the same run.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use super::changes::{ToldFiles, Workload};
use super::{Helper, monotonic_ns, number};
use crate::cases::{DiskScratch, Scratch};
use crate::measure::median;
use crate::peers::inotifywait::{self, Inotifywait};
use crate::peers::watchdog;
use crate::report::{Fault, Report};

/// Runs of each watcher in memory, and on the disk, where the file system bounds all. Other
/// programs run on the machine, so that all watchers take turns.
const ROUNDS: usize = 3;
const ROUNDS_ON_DISK: usize = 1;

/// What watches a tree.
#[derive(Clone)]
enum Watcher {
    /// A collector of ours, alone or with the way to the log.
    Ours(&'static str, &'static str),
    Inotifywait(String),
    Watchdog(PathBuf),
}

impl Watcher {
    fn name(&self) -> String {
        match self {
            Self::Ours(kind, "durable") => format!("{kind}, durable and followed"),
            Self::Ours(kind, _) => format!("{kind}, collector alone"),
            Self::Inotifywait(_) => "inotifywait".to_owned(),
            Self::Watchdog(_) => "watchdog".to_owned(),
        }
    }
}

/// What a watcher was told in one run.
struct WatchedRun {
    per_second: f64,
    cpu_us: f64,
    /// Files made for each second of making all changes.
    made_s: f64,
    /// The numbers of the helper.
    told: Json,
}

/// Measures all watchers with all workloads on both file systems.
pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    let mut watchers = Vec::new();
    for kind in ["fanotify", "inotify"] {
        watchers.extend(["durable", "alone"].map(|way| Watcher::Ours(kind, way)));
    }
    let mut versions = Vec::new();
    if let Some((path, version)) = inotifywait::program(report) {
        watchers.push(Watcher::Inotifywait(path));
        versions.push(version);
    }
    watchers.extend(watchdog::python(report).map(Watcher::Watchdog));
    for (file_system, is_disk) in [("tmpfs", false), ("disk", true)] {
        for workload in Workload::ALL {
            let mut runs: Vec<Vec<WatchedRun>> = watchers.iter().map(|_| Vec::new()).collect();
            for round in 0..if is_disk { ROUNDS_ON_DISK } else { ROUNDS } {
                for (at, watcher) in watchers.iter().enumerate() {
                    eprintln!(
                        "fs.rate {file_system}, {}, {} ({round}) …",
                        workload.text(),
                        watcher.name()
                    );
                    runs[at].push(one_run(watcher, workload, is_disk)?);
                }
            }
            for (watcher, runs) in watchers.iter().zip(&runs) {
                tell(report, file_system, workload, watcher, runs)?;
                for run in runs {
                    if let Some(version) = run.told["version"].as_str() {
                        versions.push(format!("watchdog {version}"));
                    }
                }
            }
        }
    }
    versions.dedup();
    report.versions("fs.rate", &versions);
    Ok(())
}

fn one_run(watcher: &Watcher, workload: Workload, is_disk: bool) -> Result<WatchedRun, Fault> {
    let (memory, disk) = (Scratch::new("watched")?, DiskScratch::new("watched")?);
    let base = if is_disk { &disk.0 } else { &memory.0 };
    let (tree, state, kept) = (
        base.join("tree"),
        memory.0.join("state"),
        disk.0.join("kept"),
    );
    for path in [&tree, &state, &kept] {
        std::fs::create_dir(path)?;
    }
    let text = |path: &Path| path.display().to_string();
    let ((begin_ns, made_s), told) = match watcher {
        Watcher::Ours(kind, way) => {
            let arguments = [*kind, *way, &text(&tree), &text(&state), &text(&kept)];
            let helper = Helper::of_role("watch", &arguments)?;
            let changed = changed(helper.child.id(), workload, &tree)?;
            (changed, helper.finish()?)
        }
        Watcher::Watchdog(python) => {
            let helper = Helper::start(&mut watchdog::watching(python, &tree))?;
            let changed = changed(helper.child.id(), workload, &tree)?;
            (changed, helper.finish()?)
        }
        Watcher::Inotifywait(program) => {
            let watching = Inotifywait::start(program, &tree, &state.join("lines"))?;
            let changed = changed(watching.pid(), workload, &tree)?;
            let printed = watching.finish(monotonic_ns)?;
            (changed, of_lines(&printed))
        }
    };
    let events = number(&told, "events")?;
    let seconds = (number(&told, "last_ns")? - begin_ns as f64) / 1e9;
    Ok(WatchedRun {
        per_second: events / seconds,
        cpu_us: number(&told, "cpu_ns")? / 1e3 / events.max(1.0),
        made_s,
        told,
    })
}

/// Has a process make the changes of a workload; returns the time at which events began to be
/// taken, and the files for each second in which changes were made. The watcher of a burst is
/// stopped meanwhile, so that its queue runs over for certain.
fn changed(pid: u32, workload: Workload, tree: &Path) -> Result<(i64, f64), Fault> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or("a process has a number")?;
    let is_burst = workload == Workload::Burst;
    if is_burst {
        kill_process(pid, Signal::STOP)?;
    }
    let mut begin_ns = monotonic_ns();
    let made = Command::new(std::env::current_exe()?)
        .args(["--role=make", workload.word()])
        .arg(tree)
        .status()?;
    let made_s = workload.files() as f64 / ((monotonic_ns() - begin_ns) as f64 / 1e9);
    if is_burst {
        begin_ns = monotonic_ns();
        kill_process(pid, Signal::CONT)?;
    }
    match made.success() {
        true => Ok((begin_ns, made_s)),
        false => Err("the changes were not made".into()),
    }
}

fn of_lines(printed: &inotifywait::PrintedLines) -> Json {
    let (mut told, mut events) = (ToldFiles::default(), 0);
    for line in printed.text.split(|byte| *byte == b'\n') {
        let Some(blank) = line.iter().position(|byte| *byte == b' ') else {
            continue;
        };
        events += 1;
        if line[..blank] == *b"CREATE" {
            told.take(&line[blank + 1..]);
        }
    }
    let (seen, twice) = told.counts();
    json!({
        "events": events, "last_ns": printed.last_ns, "cpu_ns": printed.cpu_ns, "seen": seen,
        "twice": twice,
    })
}

/// Reports the medians of the runs of one watcher, and the least number of files that were seen.
fn tell(
    report: &mut Report,
    file_system: &str,
    workload: Workload,
    watcher: &Watcher,
    runs: &[WatchedRun],
) -> Result<(), Fault> {
    let mut rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
    let mut made: Vec<f64> = runs.iter().map(|run| run.made_s).collect();
    let mut costs: Vec<f64> = runs.iter().map(|run| run.cpu_us).collect();
    let each = |key: &str| -> Vec<f64> {
        let numbers = runs.iter().filter_map(|run| run.told[key].as_f64());
        numbers.collect()
    };
    let (rate, cost) = (median(&mut rates), median(&mut costs));
    let least = |key: &str| each(key).into_iter().fold(f64::INFINITY, f64::min);
    let most = |key: &str| each(key).into_iter().fold(0.0, f64::max);
    let case = format!("{file_system}, {}, {}", workload.text(), watcher.name());
    let more = json!({
        "file_system": file_system, "workload": workload.text(), "watcher": watcher.name(),
        "events": median(&mut each("events")), "rate_least": rates[0],
        "rate_most": rates[rates.len() - 1], "cpu_us": cost, "files": workload.files(),
        "seen_least": least("seen"), "seen_most": most("seen"), "twice": most("twice"),
        "gaps": most("gaps"), "reconciled": most("reconciled"), "overflows": most("overflows"),
        "made_s": median(&mut made), "peak_mb": most("peak_mb"),
    });
    report.row_with("fs.rate", &case, rate, "events/s", more);
    Ok(())
}
