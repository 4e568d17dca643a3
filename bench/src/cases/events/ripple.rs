//! `ripple.table2`, `ripple.reported`, `ripple.table3`: the tables of the paper on Ripple's monitor
//! for Lustre (PDSW-DISCS '17), rebuilt on the stand-in: a process writes records as a metadata
//! target would, a second one is collector and aggregator, and a third one the consumer.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barograph_event::changelog::standin::{StandInDevice, StandInLog, StandInPaths};
use barograph_event::changelog::{
    ChangelogCollector, ChangelogMerge, ChangelogOptions, ChangelogRecord, Fid, MergeOptions,
    RecordType, ResolverOptions, record_time,
};
use barograph_event::{Collected, Collector};
use barograph_model::Clock as _;
use barograph_stream::SystemClock;
use serde_json::{Value as Json, json};

use super::store::{EventStore, follow};
use super::{Helper, both_ns, input_ended, memory_mb, monotonic_ns, number, process_cpu_ns};
use crate::cases::{DiskScratch, Scratch};
use crate::report::{Fault, Report};

/// Files of Table 2, as in the paper.
const FILES: usize = 10_000;
const DIRECTORIES: usize = 100;
/// Files of the runs that are monitored: three events each.
const MONITORED_FILES: usize = 100_000;
/// Events a second and seconds of Table 3: what Iota could generate.
const IOTA_EVENTS_S: f64 = 9_593.0;
const TABLE3_SECONDS: f64 = 20.0;
/// Most bytes of a record, whose paths are short here.
const RECORD_BYTES_MAX: u32 = 512;
/// Events that are written at once where the rate is fixed.
const PIECE: usize = 100;
/// Pause of the monitor between two looks at the log, at most.
const PAUSE: Duration = Duration::from_millis(20);
/// Time without an event after which all were reported.
const QUIET_NS: i64 = 1_500_000_000;

/// Measures the tables.
pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    table2(report)?;
    let whole = monitored(MONITORED_FILES, None)?;
    let reported = whole.events / whole.reported_s;
    let peers = json!({"ripple paper, Iota": 8_162, "ripple paper, AWS": 1_053});
    let more = json!({
        "peers": peers, "generated_s": whole.events / whole.generated_s,
        "share": 100.0 * (whole.generated_s / whole.reported_s).min(1.0), "events": whole.events,
    });
    let case = "events reported, generated as fast as the stand-in takes them";
    report.row_with("ripple.reported", case, reported, "events/s", more);
    let files = (IOTA_EVENTS_S * TABLE3_SECONDS / 3.0) as usize;
    let paced = monitored(files, Some(IOTA_EVENTS_S))?;
    let memory = |told: &Json| number(told, "peak_mb");
    let cpu = |told: &Json| Ok::<_, Fault>(number(told, "cpu_ns")? / 1e7 / paced.generated_s);
    let rate = paced.events / paced.generated_s;
    let paper = |of: &[(&str, f64)]| -> Json {
        let named = |(name, figure): &(&str, f64)| (format!("ripple paper, {name}"), *figure);
        json!({"peers": of.iter().map(named).collect::<Json>(), "rate": rate})
    };
    let ours = "collector and aggregator";
    let id = "ripple.table3";
    let theirs = paper(&[("collector", 6.667), ("aggregator", 0.059)]);
    let case = format!("{ours}, processor");
    report.row_with(id, &case, cpu(&paced.monitor)?, "% of core", theirs);
    let theirs = paper(&[("collector", 281.6), ("aggregator", 217.6)]);
    let case = format!("{ours}, most memory");
    report.row_with(id, &case, memory(&paced.monitor)?, "MB", theirs);
    let theirs = paper(&[("consumer", 0.02)]);
    report.row_with(
        id,
        "consumer, processor",
        cpu(&paced.consumer)?,
        "% of core",
        theirs,
    );
    let theirs = paper(&[("consumer", 12.8)]);
    report.row_with(
        id,
        "consumer, most memory",
        memory(&paced.consumer)?,
        "MB",
        theirs,
    );
    Ok(())
}

/// Events a second that the stand-in takes: each record is written alone, as a change of a file is.
fn table2(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("table2")?;
    let mut target = Target::open(&scratch.0.join("log"), FILES)?;
    let kinds = [
        (RecordType::Create, "created", [352, 1_389]),
        (RecordType::Close, "modified", [534, 2_538]),
        (RecordType::Unlink, "deleted", [832, 3_442]),
    ];
    for (of, what, [aws, iota]) in kinds {
        let begin = monotonic_ns();
        for file in 0..FILES {
            target.change(of, file);
            target.log.flush()?;
        }
        let rate = FILES as f64 / ((monotonic_ns() - begin) as f64 / 1e9);
        let peers = json!({"ripple paper, AWS": aws, "ripple paper, Iota": iota});
        let more = json!({"peers": peers});
        report.row_with(
            "ripple.table2",
            &format!("files {what}"),
            rate,
            "events/s",
            more,
        );
    }
    let begin = monotonic_ns();
    for file in 0..FILES {
        for (of, ..) in kinds {
            target.change(of, file);
            target.log.flush()?;
        }
    }
    let rate = (3 * FILES) as f64 / ((monotonic_ns() - begin) as f64 / 1e9);
    let peers = json!({"ripple paper, AWS": 1_366, "ripple paper, Iota": 9_593});
    report.row_with(
        "ripple.table2",
        "all events",
        rate,
        "events/s",
        json!({"peers": peers}),
    );
    Ok(())
}

/// A metadata target that writes a log.
struct Target {
    log: StandInLog,
    clock: SystemClock,
    names: Vec<String>,
}

impl Target {
    /// Makes the log with the directories of the files.
    fn open(log: &Path, files: usize) -> Result<Self, Fault> {
        let mut target = Self {
            log: StandInLog::open(log)?,
            clock: SystemClock::new(),
            names: (0..files).map(|file| format!("data{file}.txt")).collect(),
        };
        for at in 0..DIRECTORIES {
            let name = format!("directory{at}");
            let time = record_time(target.clock.now_ns());
            target.log.append(&ChangelogRecord {
                type_number: RecordType::Mkdir as u32,
                time,
                target: directory(at),
                parent: Fid::ROOT,
                name: name.as_bytes(),
                ..ChangelogRecord::default()
            });
        }
        target.log.flush()?;
        Ok(target)
    }

    fn change(&mut self, of: RecordType, file: usize) {
        let has_name = of != RecordType::Close;
        let time = record_time(self.clock.now_ns());
        self.log.append(&ChangelogRecord {
            type_number: of as u32,
            flags: u16::from(of == RecordType::Unlink),
            time,
            target: Fid::new(0x2_0000_0401, file as u32 + 1, 0),
            parent: if has_name {
                directory(file % DIRECTORIES)
            } else {
                Fid::NONE
            },
            job: b"ripple.1",
            user: Some((500, 100)),
            name: if has_name {
                self.names[file].as_bytes()
            } else {
                b""
            },
            ..ChangelogRecord::default()
        });
    }
}

fn directory(at: usize) -> Fid {
    Fid::new(0x2_0000_0400, at as u32 + 1, 0)
}

/// What a monitored run has shown.
struct Monitored {
    events: f64,
    generated_s: f64,
    /// Seconds from the first record until the consumer had the last event.
    reported_s: f64,
    monitor: Json,
    consumer: Json,
}

/// Makes, changes and removes files at a rate, or at full speed, beside a monitor and a consumer.
fn monitored(files: usize, events_s: Option<f64>) -> Result<Monitored, Fault> {
    let (memory, disk) = (Scratch::new("ripple")?, DiskScratch::new("ripple")?);
    let (log, ring) = (memory.0.join("log"), memory.0.join("ring"));
    let mut target = Target::open(&log, files)?;
    let text = |path: &Path| path.display().to_string();
    let monitor = Helper::of_role("monitor", &[&text(&log), &text(&ring), &text(&disk.0)])?;
    let consumer = Helper::of_role("consumer", &[&text(&ring)])?;
    let begin = monotonic_ns();
    let mut written = 0;
    for file in 0..files {
        for of in [RecordType::Create, RecordType::Close, RecordType::Unlink] {
            target.change(of, file);
            written += 1;
            match events_s {
                None => target.log.flush()?,
                Some(rate) if written % PIECE == 0 => {
                    target.log.flush()?;
                    let due_ns = begin + (written as f64 / rate * 1e9) as i64;
                    let wait_ns = (due_ns - monotonic_ns()).max(0);
                    std::thread::sleep(Duration::from_nanos(wait_ns as u64));
                }
                Some(_) => {}
            }
        }
    }
    target.log.flush()?;
    let generated_s = (monotonic_ns() - begin) as f64 / 1e9;
    // The consumer ends after the monitor, whose input tells that no more is written.
    let monitor = monitor.finish()?;
    let consumer = consumer.finish()?;
    let events = (written + DIRECTORIES) as f64;
    for (who, told) in [("monitor", &monitor), ("consumer", &consumer)] {
        let seen = number(told, "events")?;
        if seen != events {
            return Err(format!("the {who} has {seen} events of {events}").into());
        }
    }
    Ok(Monitored {
        events: written as f64,
        generated_s,
        reported_s: (number(&consumer, "last_ns")? - begin as f64) / 1e9,
        monitor,
        consumer,
    })
}

/// The helper process that is collector and aggregator: its arguments are the log, the ring, and
/// the directory of the archive.
pub(crate) fn monitor(arguments: &[String]) -> Result<(), Fault> {
    let [log, ring, kept] = arguments else {
        return Err("monitor LOG RING DIR".into());
    };
    let mut store = EventStore::open(Path::new(ring), Path::new(kept), RECORD_BYTES_MAX)?;
    let (options, resolver) = (MergeOptions::default(), ResolverOptions::default());
    let merge = ChangelogMerge::new(options, resolver, Box::<StandInPaths>::default());
    let device = Box::new(StandInDevice::new(log.as_str()));
    let mut collector = ChangelogCollector::new(&merge, device, ChangelogOptions::default());
    let (ended, clock) = (input_ended(), SystemClock::new());
    let (mut events, mut count, before_ns) = (Vec::new(), 0, process_cpu_ns());
    let mut last_ns = monotonic_ns();
    println!("ready");
    std::io::stdout().flush()?;
    loop {
        let collected = collector.collect(&mut events, 1_024, both_ns(&clock))?;
        let is_news = !events.is_empty();
        count += events.len();
        store.record(&mut events)?;
        if is_news {
            last_ns = monotonic_ns();
        } else if ended.load(Ordering::Acquire) && monotonic_ns() - last_ns > QUIET_NS {
            break;
        }
        if collected == Collected::All {
            std::thread::sleep(PAUSE);
        }
    }
    let told = told(count as u64, last_ns, before_ns)?;
    // The ring stays until the consumer has read it, which knows by its own input.
    store.finish()?;
    println!("{told}");
    Ok(())
}

/// The helper process that reads and decodes all events: its argument is the ring.
pub(crate) fn consumer(arguments: &[String]) -> Result<(), Fault> {
    let [ring] = arguments else {
        return Err("consumer RING".into());
    };
    let (ring, ended, read) = (PathBuf::from(ring), input_ended(), AtomicU64::new(0));
    let before_ns = process_cpu_ns();
    println!("ready");
    std::io::stdout().flush()?;
    let followed = follow(&ring, &read, &ended)?;
    if followed.lost > 0 {
        return Err(format!("the consumer was overtaken by {} events", followed.lost).into());
    }
    println!("{}", told(followed.events, followed.last_ns, before_ns)?);
    Ok(())
}

fn told(events: u64, last_ns: i64, before_ns: i64) -> Result<Json, Fault> {
    Ok(json!({
        "events": events, "last_ns": last_ns, "cpu_ns": process_cpu_ns() - before_ns,
        "peak_mb": memory_mb("VmHWM")?,
    }))
}
