//! Makes a run directory with known streams and keeps it alive until its standard input closes:
//! `cargo run -p barograph-query --example demo_segment -- DIR`. A line on standard input adds the
//! stream `late.arrival.count` while it runs. With a second directory it keeps an archive there,
//! which contains a stream that has ended: `old.job.count`.
#![expect(clippy::unwrap_used, reason = "the streams are the tests' own")]

#[path = "../tests/it/demo.rs"]
mod demo;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_archive::{ArchiveConfig, DeclaredStream, DiskStorage, JournalEntry, Keeper};
use barograph_model::{Clock as _, Kind, Sample, StreamKey, ValueType};
use barograph_stream::{RunDir, SystemClock};

fn main() {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: demo_segment DIR [ARCHIVE]");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let mut demo = demo::Demo::known(&dir);
    let keeper = std::env::args_os()
        .nth(2)
        .map(|root| keep(&dir, &PathBuf::from(root)));
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    if lines.next().is_some() {
        let late = demo::descriptor("late.arrival.count", &[], ValueType::Int, Kind::Counter);
        demo.add(&late, [(9, 1.into())]);
        println!("late");
    }
    lines.for_each(drop);
    drop(keeper);
}

/// Makes an archive of two sealed samples and one in the log.
fn keep(dir: &Path, root: &Path) -> Keeper {
    let clock = SystemClock::new();
    let now_ns = clock.now_ns();
    let config = ArchiveConfig::new(root, "Node-1");
    let keeper = Keeper::start(config, Arc::new(DiskStorage), Arc::new(clock)).expect("an archive");
    let labels = [("job", "7")];
    let declared = DeclaredStream {
        descriptor: Arc::new(demo::descriptor(
            "old.job.count",
            &labels,
            ValueType::Int,
            Kind::Gauge,
        )),
        life: now_ns,
        depth: 8,
    };
    let sample = |number: i64| {
        let sample = Sample::measured(now_ns + number, 10 * number);
        JournalEntry::Sample(StreamKey(0), number as u64, sample)
    };
    let declare = JournalEntry::Declare(StreamKey(0), declared);
    let journal = keeper.journal();
    journal.submit(&mut vec![declare, sample(1), sample(2)]);
    keeper.seal().expect("sealed");
    journal.submit(&mut vec![sample(3), JournalEntry::Retire(StreamKey(0))]);
    let document = format!("{{\"archive\": {:?}}}", root.display().to_string());
    let published = RunDir::new(dir).publish("agent.json", document.as_bytes(), 0o644);
    published.expect("the run directory is there");
    keeper
}
