//! The bandwidth that a reader will get from a device to which others write: the streams
//! `disk.bandwidth.available` with their projections, and the document about the writers.
//!
//! The byte counters of control groups on each device pass here as they are read. Once in each step
//! (a minute unless configured) a job beside the sampling loop finds the schedules of the writers
//! in them, and forecasts the bandwidths of the next steps; its results are published when it has
//! ended. `docs/design/0005-forecast.md` describes the forecast.
//!
//! There need not be any reader: what one would have got in the last step follows from the bytes
//! that the writers wrote in it, and is what forecasts are compared with.

mod config;
mod document;
mod engine;
mod groups;
mod readings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use barograph_model::{
    Clock, Descriptor, Kind, Knot, Labels, NS_PER_S, Name, Projection, Quality, Sample, Sink,
    StreamKey, Unit, Value, ValueType, seconds,
};
use barograph_recorder::{Job, Streams, Work, World, declare_projections};
use tracing::{info, warn};

pub use config::BandwidthConfig;
use engine::{Capacity, DeviceOutlook, Engine};

/// The stream of the forecast bandwidth.
const AVAILABLE: &str = "disk.bandwidth.available";
/// Most readings that wait while a job runs; those beyond are lost, and counted.
const WAITING_MAX: usize = 16_384;
/// Most disks whose own figures are known.
const DISKS_MAX: usize = 512;
/// Shortest time over which a rate counts as one that the device can do, in ns.
const SECOND_NS: i64 = NS_PER_S * 9 / 10;

/// What a stream is to the forecasts.
#[derive(Debug)]
enum Role {
    /// The bytes that a group has written to a device.
    Written(Arc<WriterName>),
    /// The bytes that a disk has read or written.
    Moved { device: String, is_read: bool },
    /// The greatest bandwidth of a disk.
    Greatest(String),
    /// The origin of that figure.
    Origin(String),
}

/// A group and a device that it writes to.
#[derive(Debug)]
struct WriterName {
    device: String,
    group: String,
}

impl Role {
    fn of(descriptor: &Descriptor) -> Option<Self> {
        let label = |name: &str| descriptor.labels.get(name).map(str::to_owned);
        let device = label("device")?;
        Some(match descriptor.name.as_str() {
            "cgroup.device.write.bytes" => {
                let group = label("cgroup")?;
                Self::Written(Arc::new(WriterName { device, group }))
            }
            "disk.read.bytes" => Self::Moved {
                device,
                is_read: true,
            },
            "disk.write.bytes" => Self::Moved {
                device,
                is_read: false,
            },
            "disk.bandwidth.max.bytes_per_second" => Self::Greatest(device),
            "disk.bandwidth.source.name" => Self::Origin(device),
            _ => return None,
        })
    }
}

/// The figures of one disk.
#[derive(Debug, Default)]
struct Disk {
    greatest: Option<f64>,
    origin: Option<&'static str>,
    /// Bytes written and read so far, each with the time of the look in ns.
    moved: [Option<(i64, f64)>; 2],
    /// Time and sum of these at the beginning of the present second.
    since: Option<(i64, f64)>,
    /// The greatest rate of any second.
    fastest: f64,
}

impl Disk {
    fn moved(&mut self, ts_ns: i64, is_read: bool, bytes: f64) {
        self.moved[usize::from(is_read)] = Some((ts_ns, bytes));
        let [Some((written_ns, written)), Some((read_ns, read))] = self.moved else {
            return;
        };
        // Only counters of the same look have a sum.
        if written_ns != read_ns {
            return;
        }
        let sum = written + read;
        let (since_ns, before) = *self.since.get_or_insert((ts_ns, sum));
        let elapsed_ns = ts_ns.saturating_sub(since_ns);
        if elapsed_ns >= SECOND_NS {
            self.fastest = self.fastest.max((sum - before) / seconds(elapsed_ns));
        }
        if !(0..SECOND_NS).contains(&elapsed_ns) {
            self.since = Some((ts_ns, sum));
        }
    }

    fn capacity(&self) -> Option<Capacity> {
        let told = self.greatest.map(|value| Capacity {
            value,
            origin: self.origin.unwrap_or("told"),
        });
        let seen = Capacity {
            value: self.fastest,
            origin: "seen",
        };
        told.or((seen.value > 0.0).then_some(seen))
    }
}

/// What came while a job had the engine.
#[derive(Debug)]
enum News {
    /// A reading: its time in ns, and the bytes.
    Read(Arc<WriterName>, i64, f64),
    /// The group writes to the device no more.
    End(Arc<WriterName>),
}

/// The streams of one device.
#[derive(Debug)]
struct Published {
    available: Option<StreamKey>,
    projections: Option<StreamKey>,
}

/// The forecasts of the bandwidths of devices.
pub(crate) struct BandwidthWatch {
    config: BandwidthConfig,
    clock: Arc<dyn Clock>,
    work: Work,
    roles: Vec<Option<Role>>,
    disks: BTreeMap<String, Disk>,
    /// A job has the lock while it runs; then news wait, and the loop does not.
    engine: Arc<Mutex<Engine>>,
    job: Option<Job<Vec<DeviceOutlook>>>,
    news: Vec<News>,
    /// Number of readings that were lost.
    lost: u64,
    /// Monotonic time of the next step, in ns.
    next_step_ns: i64,
    published: BTreeMap<String, Published>,
    outlooks: Vec<DeviceOutlook>,
}

impl BandwidthWatch {
    /// Makes the forecasts of a checked configuration, which know no stream yet.
    pub(crate) fn new(config: &BandwidthConfig, world: &World) -> Self {
        Self {
            config: config.clone(),
            clock: Arc::clone(&world.clock),
            work: world.work.clone(),
            roles: Vec::new(),
            disks: BTreeMap::new(),
            engine: Arc::new(Mutex::new(Engine::new(config))),
            job: None,
            news: Vec::new(),
            lost: 0,
            next_step_ns: i64::MIN,
            published: BTreeMap::new(),
            outlooks: Vec::new(),
        }
    }

    /// Takes note of a new stream, if the forecasts use it.
    pub(crate) fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        if !self.config.enabled {
            return;
        }
        if let Some(role) = Role::of(descriptor) {
            let at = key.0 as usize;
            if self.roles.len() <= at {
                self.roles.resize_with(at + 1, || None);
            }
            self.roles[at] = Some(role);
        }
    }

    /// Forgets a retired stream. What a group wrote is kept for a time.
    pub(crate) fn stream_removed(&mut self, key: StreamKey) {
        let role = self.roles.get_mut(key.0 as usize).and_then(Option::take);
        match role {
            Some(Role::Written(writer)) => self.take_in(News::End(writer)),
            Some(Role::Moved { device, .. }) => {
                self.disks.remove(&device);
            }
            Some(Role::Greatest(device)) => {
                if let Some(disk) = self.disks.get_mut(&device) {
                    disk.greatest = None;
                }
            }
            _ => {}
        }
    }

    /// Takes a look at a stream, whether its value has changed or not.
    pub(crate) fn looked(&mut self, key: StreamKey, sample: &Sample) {
        let Some(Some(role)) = self.roles.get(key.0 as usize) else {
            return;
        };
        let device = match role {
            Role::Written(writer) => {
                let news = News::Read(Arc::clone(writer), sample.ts, bytes_of(sample));
                return self.take_in(news);
            }
            Role::Moved { device, .. } | Role::Greatest(device) | Role::Origin(device) => device,
        };
        if !self.disks.contains_key(device) {
            if self.disks.len() >= DISKS_MAX {
                return;
            }
            self.disks.insert(device.clone(), Disk::default());
        }
        let Some(disk) = self.disks.get_mut(device) else {
            return;
        };
        match (role, &sample.value) {
            (Role::Origin(_), Value::Text(text)) => disk.origin = origin(text),
            (Role::Greatest(_), value) => disk.greatest = value.as_f64().filter(|v| *v > 0.0),
            (Role::Moved { is_read, .. }, value) => {
                if let Some(bytes) = value.as_f64() {
                    disk.moved(sample.ts, *is_read, bytes);
                }
            }
            _ => {}
        }
    }

    /// Gives news to the engine, or keeps them while a job has it.
    fn take_in(&mut self, news: News) {
        match self.engine.try_lock() {
            Ok(mut engine) if self.job.is_none() => tell(&mut engine, news),
            _ if self.news.len() < WAITING_MAX => self.news.push(news),
            _ => self.lost += 1,
        }
    }

    /// Publishes the forecasts that were made, and starts the next ones when they are due. Called
    /// once a second.
    pub(crate) fn beat(&mut self, now_ns: i64, streams: &mut Streams<'_>) {
        if !self.config.enabled {
            return;
        }
        if let Some(job) = self.job.take_if(|job| job.is_finished()) {
            self.end(job, streams);
        }
        let monotonic_ns = self.clock.monotonic_ns();
        if self.job.is_some() || monotonic_ns < self.next_step_ns {
            return;
        }
        let step_ns = self.config.step_ns();
        let is_first = self.next_step_ns == i64::MIN;
        let due_ns = if is_first {
            monotonic_ns
        } else {
            self.next_step_ns
        };
        let passed = monotonic_ns.saturating_sub(due_ns) / step_ns + 1;
        self.next_step_ns = due_ns.saturating_add(passed.saturating_mul(step_ns));
        self.start(now_ns);
    }

    /// Starts the forecasts of a step.
    fn start(&mut self, now_ns: i64) {
        let is_idle = self.engine.lock().is_ok_and(|engine| engine.is_idle());
        if is_idle {
            return;
        }
        let disks = self.disks.iter();
        let capacities: BTreeMap<String, Capacity> = disks
            .filter_map(|(name, disk)| Some((name.clone(), disk.capacity()?)))
            .collect();
        let (engine, clock) = (Arc::clone(&self.engine), Arc::clone(&self.clock));
        let job = move || match engine.lock() {
            Ok(mut engine) => engine.step(now_ns, &capacities, &*clock),
            Err(_) => Vec::new(),
        };
        match self.work.start("baro-bandwidth", job) {
            Ok(job) => self.job = Some(job),
            Err(error) => warn!(%error, "bandwidths are not forecast in this step"),
        }
    }

    /// Takes the results of a job.
    fn end(&mut self, job: Job<Vec<DeviceOutlook>>, streams: &mut Streams<'_>) {
        match job.join() {
            Ok(outlooks) => {
                self.outlooks = outlooks;
                self.publish(streams);
            }
            Err(_) => {
                warn!("the forecast of bandwidths has failed, and begins anew");
                self.engine = Arc::new(Mutex::new(Engine::new(&self.config)));
            }
        }
        if let Ok(mut engine) = self.engine.lock() {
            for news in self.news.drain(..) {
                tell(&mut engine, news);
            }
        }
    }

    /// Appends what is forecast to the streams.
    fn publish(&mut self, streams: &mut Streams<'_>) {
        let step_ns = self.config.step_ns();
        let has_forecast = |outlook: &&DeviceOutlook| !outlook.forecast.steps.is_empty();
        let outlooks: Vec<_> = self.outlooks.iter().filter(has_forecast).collect();
        self.published.retain(|device, published| {
            let stays = outlooks.iter().any(|outlook| outlook.device == *device);
            if !stays {
                let keys = [published.available, published.projections];
                let keys = keys.into_iter().flatten();
                keys.for_each(|key| streams.retire(key));
            }
            stays
        });
        for outlook in outlooks {
            if !self.published.contains_key(&outlook.device) {
                let declared = declare(&outlook.device, step_ns, streams);
                self.published.insert(outlook.device.clone(), declared);
            }
            let Some(published) = self.published.get(&outlook.device) else {
                continue;
            };
            let steps = outlook.bounded();
            if let (Some(key), Some((value, error, _))) = (published.available, steps.first()) {
                let sample = Sample {
                    ts: outlook.ts_ns,
                    value: Value::Float(*value),
                    quality: Quality::Predicted,
                    error: *error as f32,
                };
                streams.put(key, &sample);
            }
            if let Some(key) = published.projections {
                let knots = steps.iter().enumerate().map(|(nth, step)| Knot {
                    after_s: seconds(step_ns) * nth as f64,
                    value: step.0,
                    half_width: step.1,
                });
                let floats = Projection::new(knots).to_floats();
                streams.look_floats(key, outlook.ts_ns, &floats);
            }
        }
    }
}

/// Gives the engine one of the news.
fn tell(engine: &mut Engine, news: News) {
    match news {
        News::Read(of, ts_ns, bytes) => engine.read(&of.device, &of.group, ts_ns, bytes),
        News::End(of) => engine.end(&of.device, &of.group),
    }
}

fn bytes_of(sample: &Sample) -> f64 {
    sample.value.as_f64().unwrap_or(0.0)
}

fn origin(text: &str) -> Option<&'static str> {
    let origins = ["configured", "probed", "table", "observed"];
    origins.into_iter().find(|origin| *origin == text)
}

fn declare(device: &str, step_ns: i64, streams: &mut Streams<'_>) -> Published {
    let descriptor = Labels::new([("device", device)]).ok().map(|labels| Descriptor {
        name: Name::new(AVAILABLE).expect("a literal"),
        labels,
        value_type: ValueType::Float,
        unit: Unit::new("bytes/s").expect("a literal"),
        kind: Kind::Gauge,
        help: "Bandwidth that a reader with the default weight is predicted to get from the device beside those who write to it, in the present step of interference.step_seconds."
            .into(),
    });
    let available = descriptor.as_ref().and_then(|of| streams.declare(of, None));
    let projections = descriptor
        .as_ref()
        .and_then(|of| declare_projections(of, streams));
    for key in [available, projections].into_iter().flatten() {
        streams.expect_interval(key, step_ns);
    }
    if available.is_some() {
        info!(device, "the bandwidth of a device is forecast");
    }
    Published {
        available,
        projections,
    }
}
