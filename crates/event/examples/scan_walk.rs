//! How long the first walk of a tree takes: `scan_walk DIRECTORY THREADS…`, one walk for each
//! number of threads. On a file system whose answers take long (`e2e/slow_fs.py`), more threads
//! pay. The caches of the kernel have to be empty before each walk: mount the file system anew.
#![expect(
    clippy::disallowed_methods,
    reason = "an example measures by the clock of the machine"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use barograph_event::{Collector as _, CollectorFault, ScanCollector, TreeConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = PathBuf::from(words.next().ok_or("scan_walk DIRECTORY THREADS…")?);
    for threads in words {
        let threads: usize = threads.parse()?;
        let kept = tempfile::tempdir()?;
        let config = TreeConfig {
            threads,
            ..TreeConfig::new(kept.path().join("snapshot"))
        };
        let mut collector = ScanCollector::open(std::slice::from_ref(&path), config)?;
        let began = Instant::now();
        walk(&mut collector, began)?;
        let seconds = began.elapsed().as_secs_f64();
        let directories = collector.status().directories;
        println!("{threads:3} threads: {seconds:8.3} s, {directories} directories");
    }
    Ok(())
}

/// Collects until the first walk has ended.
fn walk(collector: &mut ScanCollector, began: Instant) -> Result<(), CollectorFault> {
    let mut events = Vec::new();
    loop {
        let ns = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        collector.collect(&mut events, 4_096, (ns, ns))?;
        events.clear();
        if !collector.status().is_walking {
            return Ok(());
        }
        if collector.due_ns() > ns {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
