//! A run directory with living streams, for trying the client and the Python package without an
//! agent: `demo_run_dir DIR`. Commands on standard input: `restart` (another agent's life),
//! `unplug`, `plug` (the device vdb), `close` (the agent says goodbye); it ends with the input.
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
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use barograph_model::{Descriptor, Kind, Labels, Name, Quality, Sample, Unit, Value, ValueType};
use barograph_stream::{Segment, SegmentConfig, StreamWriter};

const TICK: Duration = Duration::from_millis(50);

type Fault = Box<dyn Error>;

fn main() -> Result<(), Fault> {
    let dir = PathBuf::from(
        std::env::args_os()
            .nth(1)
            .ok_or("usage: demo_run_dir DIR")?,
    );
    std::fs::create_dir_all(&dir)?;
    let (sender, commands) = sync_channel::<String>(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut demo = Demo::start(&dir)?;
    demo.tick()?;
    say("ready")?;
    loop {
        match commands.recv_timeout(TICK) {
            Ok(command) => {
                demo.obey(command.trim(), &dir)?;
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
    steady: Vec<(StreamWriter, Sample)>,
    ticking: Vec<(StreamWriter, i64)>,
    vdb: Option<StreamWriter>,
    _empty: StreamWriter,
    ticks: i64,
}

impl Demo {
    fn start(dir: &Path) -> Result<Self, Fault> {
        let config = SegmentConfig {
            streams_max: 256,
            ..SegmentConfig::new("demo")
        };
        let mut segment = Segment::create(&dir.join("segment"), config, now_ns())?;
        let mut make = |name: &str, device: Option<&str>, value_type, kind| {
            register(&mut segment, name, device, value_type, kind)
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
        let mut woken = 0;
        for (writer, step) in &mut self.ticking {
            writer.look(&Sample::measured(now, *step * self.ticks))?;
            woken |= writer.wake_bit();
        }
        for (writer, sample) in &mut self.steady {
            sample.ts = now;
            writer.look(sample)?;
            woken |= writer.wake_bit();
        }
        if let Some(vdb) = &mut self.vdb {
            vdb.look(&Sample::measured(now, 8192 * self.ticks))?;
            woken |= vdb.wake_bit();
        }
        self.segment.heartbeat(now);
        self.segment.wake(woken);
        Ok(())
    }

    fn obey(&mut self, command: &str, dir: &Path) -> Result<(), Fault> {
        match command {
            "restart" => {
                *self = Self::start(dir)?;
                self.tick()?;
            }
            "unplug" => {
                if let Some(vdb) = self.vdb.take() {
                    self.segment.retire(vdb);
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
    name: &str,
    device: Option<&str>,
    value_type: ValueType,
    kind: Kind,
) -> Result<StreamWriter, Fault> {
    let unit = name.rsplit('.').next().unwrap_or_default();
    let descriptor = Descriptor {
        name: Name::new(name)?,
        labels: Labels::new(device.map(|d| ("device", d)))?,
        value_type,
        unit: Unit::new(unit)?,
        kind,
        help: "a stream of the demonstration".into(),
    };
    let writer = segment.register(&descriptor, None, now_ns())?;
    segment.expect_interval(&writer, TICK.as_nanos() as i64);
    Ok(writer)
}
