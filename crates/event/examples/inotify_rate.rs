//! How many events of inotify are taken per second, and at what cost.
//!
//! Another process makes 20,000 files in 100 directories on a file system in memory, appends to
//! each, renames it to another directory and removes it. The directories are there before, or the
//! other process makes them too.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement takes the time, and ends if it cannot go on"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barograph_event::{Collected, Collector, EventKind, InotifyCollector, InotifyConfig};

const FILES: usize = 20_000;
const DIRECTORIES: usize = 100;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if let Some(root) = arguments.next() {
        return generate(Path::new(&root));
    }
    for is_new in [false, true] {
        measure(is_new);
    }
}

fn measure(is_new: bool) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    for at in 0..if is_new { 0 } else { DIRECTORIES } {
        std::fs::create_dir(root.join(at.to_string())).unwrap();
    }
    let config = InotifyConfig::new(dir.path().join("snapshot"));
    let mut collector = InotifyCollector::open(std::slice::from_ref(&root), config).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    let collect = |collector: &mut InotifyCollector, events: &mut Vec<_>| {
        let now_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64;
        let now = (now_ns, start.elapsed().as_nanos() as i64);
        let collected = collector.collect(events, 10_000, now).unwrap();
        if let Some(last) = events.last() {
            collector
                .acknowledge(barograph_event::FileEvent::clone(last).index)
                .unwrap();
        }
        collected
    };
    while collector.status().is_walking {
        collect(&mut collector, &mut events);
    }
    let program = std::env::current_exe().unwrap();
    let mut generator = std::process::Command::new(program)
        .arg(&root)
        .spawn()
        .unwrap();
    let (begin, cpu) = (Instant::now(), cpu_time());
    let (mut last, mut is_over) = (begin, false);
    let (mut total, mut creates) = (0, 0);
    while !is_over || last.elapsed() < Duration::from_millis(200) {
        events.clear();
        let collected = collect(&mut collector, &mut events);
        total += events.len();
        creates += events
            .iter()
            .filter(|event| event.kind == EventKind::Create)
            .count();
        if !events.is_empty() {
            last = Instant::now();
        } else if collected == Collected::All {
            std::thread::sleep(Duration::from_micros(200));
        }
        is_over = is_over || generator.try_wait().unwrap().is_some();
    }
    generator.wait().unwrap();
    let (seconds, cpu) = ((last - begin).as_secs_f64(), cpu_time() - cpu);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let rate = total as f64 / seconds;
    let cost = cpu.as_secs_f64() * 1e6 / total as f64;
    let which = if is_new { "new" } else { "known" };
    println!(
        "{which} directories: {total} events in {seconds:.2} s: {rate:.0}/s, {cost:.2} us of CPU time each"
    );
    println!(
        "creates seen: {creates} of {FILES}; {:?}",
        collector.status()
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("load: {}; {}", load.trim(), memory.unwrap_or_default());
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap())
}

fn generate(root: &Path) {
    let path = |dir: usize, file: usize| -> PathBuf {
        root.join((dir % DIRECTORIES).to_string())
            .join(format!("file{file}"))
    };
    for file in 0..FILES {
        let path = path(file, file);
        if file < DIRECTORIES && !path.parent().is_some_and(Path::exists) {
            std::fs::create_dir(root.join(file.to_string())).unwrap();
        }
        std::fs::write(path, [7; 64]).unwrap();
    }
    for file in 0..FILES {
        let mut options = std::fs::OpenOptions::new();
        let mut open = options.append(true).open(path(file, file)).unwrap();
        open.write_all(&[8; 64]).unwrap();
    }
    for file in 0..FILES {
        std::fs::rename(path(file, file), path(file + 1, file)).unwrap();
    }
    for file in 0..FILES {
        std::fs::remove_file(path(file + 1, file)).unwrap();
    }
}
