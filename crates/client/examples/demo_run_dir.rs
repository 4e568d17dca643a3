//! Makes a run directory with living streams, to try the client and the Python package without an
//! agent: `demo_run_dir DIR [NODE]`, where NODE is the name of the node. Commands on standard
//! input: `restart` (another incarnation of the agent), `unplug`, `plug` (the device vdb), `seal`
//! (log segments become Parquet files), `close` (the agent closes its segment); the program ends
//! with its input. The archive is `DIR/archive`.
//!
//! | stream | value |
//! | --- | --- |
//! | `demo.ticks.count` | int64, one more every 50 ms |
//! | `disk.read.bytes{device=vda}`, `{device=vdb}` | int64, 4,096 and 8,192 times the ticks |
//! | `disk.busy.ratio{device=vda}` | float64 0.25, derived, error 0.5 |
//! | `disk.scheduler.name{device=vda}` | string `none` |
//! | `disk.rotational.flag{device=vda}` | bool false |
//! | `demo.nan.ratio` | float64 NaN |
//! | `demo.empty.bytes` | int64, no sample ever |

#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own, with its own clock"
)]

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use barograph_archive::{ArchiveConfig, DeclaredStream, DiskStorage, JournalEntry, Keeper};
use barograph_model::{
    Descriptor, Kind, Labels, Name, Quality, Sample, StreamKey, Unit, Value, ValueType,
};
use barograph_stream::{Segment, SegmentConfig, StreamWriter, SystemClock};

const TICK: Duration = Duration::from_millis(50);

type Fault = Box<dyn Error>;

fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args_os().skip(1);
    let dir = arguments.next().ok_or("usage: demo_run_dir DIR [NODE]")?;
    let dir = PathBuf::from(dir);
    let node = arguments.next().unwrap_or_else(|| "demo".into());
    let node = node.to_string_lossy();
    std::fs::create_dir_all(&dir)?;
    let (sender, commands) = sync_channel::<String>(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut demo = Demo::start(&dir, &node)?;
    demo.tick()?;
    say("ready")?;
    loop {
        match commands.recv_timeout(TICK) {
            Ok(command) => {
                if command.trim() == "restart" {
                    drop(demo); // Its archive is released.
                    demo = Demo::start(&dir, &node)?;
                    demo.tick()?;
                } else {
                    demo.obey(command.trim())?;
                }
                say(&command)?;
            }
            Err(RecvTimeoutError::Timeout) => demo.tick()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn say(word: &str) -> std::io::Result<()> {
    println!("{word}");
    std::io::stdout().flush()
}

fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i64)
}

struct Demo {
    segment: Segment,
    steady: Vec<(Stream, Sample)>,
    ticking: Vec<(Stream, i64)>,
    vdb: Option<Stream>,
    _empty: Stream,
    ticks: i64,
    keeper: Keeper,
    entries: Vec<JournalEntry>,
    keys: u32,
}

/// A stream and its id in the archive.
struct Stream {
    writer: StreamWriter,
    key: StreamKey,
}

impl Stream {
    fn look(&mut self, sample: &Sample, entries: &mut Vec<JournalEntry>) -> Result<u32, Fault> {
        if !self.writer.look(sample)? {
            return Ok(0);
        }
        let number = self.writer.count();
        entries.push(JournalEntry::Sample(self.key, number, sample.clone()));
        Ok(self.writer.wake_bit())
    }
}

impl Demo {
    #[expect(
        clippy::too_many_lines,
        reason = "tells one node from its first stream to its last"
    )]
    fn start(dir: &Path, node: &str) -> Result<Self, Fault> {
        let config = SegmentConfig {
            streams_max: 256,
            ..SegmentConfig::new(node)
        };
        let archive = std::path::absolute(dir.join("archive"))?;
        let document = format!("{{\"archive\":\"{}\"}}", archive.display());
        std::fs::write(dir.join("agent.json"), document)?;
        let keeper = Keeper::start(
            ArchiveConfig::new(archive, node),
            Arc::new(DiskStorage),
            Arc::new(SystemClock::new()),
        )?;
        let mut segment = Segment::create(&dir.join("segment"), config, now_ns())?;
        let (mut entries, mut keys) = (Vec::new(), 0);
        let mut make = |name: &str, device: Option<&str>, value_type, kind| {
            register(
                &mut segment,
                (&mut entries, &mut keys),
                name,
                device,
                value_type,
                kind,
            )
        };
        let vda = Some("vda");
        let ticking = vec![
            (
                make("demo.ticks.count", None, ValueType::Int, Kind::Counter)?,
                1,
            ),
            (
                make("disk.read.bytes", vda, ValueType::Int, Kind::Counter)?,
                4096,
            ),
        ];
        let busy = Sample {
            quality: Quality::Derived,
            error: 0.5,
            ..Sample::measured(0, 0.25)
        };
        let none = Sample::measured(0, Value::text("none"));
        let steady = vec![
            (
                make("disk.busy.ratio", vda, ValueType::Float, Kind::Gauge)?,
                busy,
            ),
            (
                make("disk.scheduler.name", vda, ValueType::Text, Kind::State)?,
                none,
            ),
            (
                make("disk.rotational.flag", vda, ValueType::Bool, Kind::State)?,
                Sample::measured(0, false),
            ),
            (
                make("demo.nan.ratio", None, ValueType::Float, Kind::Gauge)?,
                Sample::measured(0, f64::NAN),
            ),
        ];
        let empty = make("demo.empty.bytes", None, ValueType::Int, Kind::Gauge)?;
        let mut demo = Self {
            segment,
            steady,
            ticking,
            vdb: None,
            _empty: empty,
            ticks: 0,
            keeper,
            entries,
            keys,
        };
        demo.plug()?;
        Ok(demo)
    }

    fn plug(&mut self) -> Result<(), Fault> {
        if self.vdb.is_none() {
            let name = "disk.read.bytes";
            let (int, counter) = (ValueType::Int, Kind::Counter);
            self.vdb = Some(register(
                &mut self.segment,
                (&mut self.entries, &mut self.keys),
                name,
                Some("vdb"),
                int,
                counter,
            )?);
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Fault> {
        let now = now_ns();
        self.ticks += 1;
        let (mut woken, entries) = (0, &mut self.entries);
        for (stream, step) in &mut self.ticking {
            woken |= stream.look(&Sample::measured(now, *step * self.ticks), entries)?;
        }
        for (stream, sample) in &mut self.steady {
            sample.ts = now;
            woken |= stream.look(sample, entries)?;
        }
        if let Some(vdb) = &mut self.vdb {
            woken |= vdb.look(&Sample::measured(now, 8192 * self.ticks), entries)?;
        }
        self.keeper.journal().submit(entries);
        self.segment.heartbeat(now);
        self.segment.wake(woken);
        Ok(())
    }

    fn obey(&mut self, command: &str) -> Result<(), Fault> {
        match command {
            "seal" => self.keeper.seal()?,
            "unplug" => {
                if let Some(vdb) = self.vdb.take() {
                    self.segment.retire(vdb.writer);
                    self.entries.push(JournalEntry::Retire(vdb.key));
                }
            }
            "plug" => {
                self.plug()?;
                self.tick()?;
            }
            "close" => self.segment.close(),
            other => return Err(format!("no command {other:?}").into()),
        }
        Ok(())
    }
}

fn register(
    segment: &mut Segment,
    (entries, keys): (&mut Vec<JournalEntry>, &mut u32),
    name: &str,
    device: Option<&str>,
    value_type: ValueType,
    kind: Kind,
) -> Result<Stream, Fault> {
    let unit = name.rsplit('.').next().unwrap_or_default();
    let descriptor = Descriptor {
        name: Name::new(name)?,
        labels: Labels::new(device.map(|d| ("device", d)))?,
        value_type,
        unit: Unit::new(unit)?,
        kind,
        help: "a stream of the demonstration".into(),
    };
    let life = now_ns();
    let writer = segment.register(&descriptor, None, life)?;
    segment.expect_interval(&writer, TICK.as_nanos() as i64);
    *keys += 1;
    let key = StreamKey(*keys);
    let declared = DeclaredStream {
        descriptor: Arc::new(descriptor),
        life,
        depth: 1024,
    };
    entries.push(JournalEntry::Declare(key, declared));
    Ok(Stream { writer, key })
}
