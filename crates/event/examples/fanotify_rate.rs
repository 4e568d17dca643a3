//! The rate of events by fanotify: `fanotify_rate [DIRECTORY...]`, for a directory on each file
//! system in question. A process of its own makes 20,000 files in 100 directories (64 bytes each),
//! appends to them, renames each into another directory, and deletes them.
//!
//! `fanotify_rate --walk DIRECTORY` measures the walk that learns the directories instead. Both
//! need CAP_SYS_ADMIN.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it measures real time, and ends where it cannot go on"
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use barograph_event::{
    Collected, Collector, EventKind, FanotifyCollector, FanotifyConfig, FanotifyGroup,
};

const FILES: usize = 20_000;
const DIRECTORIES: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word, directory] if word == "--generate" => generate(Path::new(directory)),
        [word, directory] if word == "--walk" => walk(Path::new(directory)),
        [] => ["/dev/shm", "/tmp"]
            .iter()
            .for_each(|base| measure(Path::new(base))),
        bases => bases.iter().for_each(|base| measure(Path::new(base))),
    }
}

fn file(base: &Path, at: usize, shift: usize) -> PathBuf {
    let directory = (at + shift) % DIRECTORIES;
    base.join(format!("d{directory}/f{at}"))
}

fn generate(base: &Path) {
    for at in 0..FILES {
        fs::write(file(base, at, 0), [7; 64]).unwrap();
    }
    for at in 0..FILES {
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).open(file(base, at, 0)).unwrap();
        file.write_all(&[8; 64]).unwrap();
    }
    for at in 0..FILES {
        fs::rename(file(base, at, 0), file(base, at, 1)).unwrap();
    }
    for at in 0..FILES {
        fs::remove_file(file(base, at, 1)).unwrap();
    }
}

fn measure(base: &Path) {
    let base = base.join(format!("fanotify_rate.{}", std::process::id()));
    fs::create_dir(&base).unwrap();
    for directory in 0..DIRECTORIES {
        fs::create_dir(base.join(format!("d{directory}"))).unwrap();
    }
    let group = FanotifyGroup::open(&base).unwrap();
    let mut collector = FanotifyCollector::new(group, &FanotifyConfig::new(&base)).unwrap();
    let (start, mut events) = (Instant::now(), Vec::new());
    let mut collect = |events: &mut Vec<_>| {
        let now = start.elapsed().as_nanos() as i64;
        collector.collect(events, 10_000, (now, now)).unwrap()
    };
    while collect(&mut events) == Collected::More {}
    let program = std::env::current_exe().unwrap();
    let (cpu, began) = (cpu_ns(), Instant::now());
    let mut child = Command::new(program)
        .arg("--generate")
        .arg(&base)
        .spawn()
        .unwrap();
    let (mut count, mut creates, mut generated) = (0, 0, None);
    loop {
        let collected = collect(&mut events);
        count += events.len();
        creates += events
            .iter()
            .filter(|event| event.kind == EventKind::Create)
            .count();
        let is_idle = events.is_empty() && collected == Collected::All;
        events.clear();
        if is_idle && generated.is_some() {
            break;
        }
        if generated.is_none() && child.try_wait().unwrap().is_some() {
            generated = Some(began.elapsed());
        } else if is_idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let (took, cpu) = (began.elapsed(), cpu_ns() - cpu);
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    let generated = generated.unwrap_or_default().as_secs_f64();
    println!(
        "{}: {count} events in {:.2} s, {:.0} events/s; {:.2} us of CPU for each; {creates} of {FILES} \
         creates; {:.0} operations/s were generated; gaps {}, load {}",
        base.display(),
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64(),
        cpu as f64 / 1e3 / count as f64,
        4.0 * FILES as f64 / generated,
        collector.status().gaps,
        load.split(' ').next().unwrap_or_default(),
    );
    fs::remove_dir_all(&base).unwrap();
}

fn walk(base: &Path) {
    let start = Instant::now();
    let group = FanotifyGroup::open(base).unwrap();
    let mut collector = FanotifyCollector::new(group, &FanotifyConfig::new(base)).unwrap();
    let opened = start.elapsed();
    while collector.status().is_walking {
        let now = start.elapsed().as_nanos() as i64;
        collector
            .collect(&mut Vec::new(), 10_000, (now, now))
            .unwrap();
    }
    println!(
        "{}: opened in {opened:.2?}, {} directories learnt in {:.2?}",
        base.display(),
        collector.status().directories,
        start.elapsed(),
    );
}

/// Time of the processor that this process has used, in ns.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
