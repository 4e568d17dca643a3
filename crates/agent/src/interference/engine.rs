//! The forecasts of all devices. [`Engine::step`] is the dear part, and runs beside the sampling
//! loop; everything that it needs is in the engine or an argument.

use std::collections::{BTreeMap, BTreeSet};

use barograph_forecast::interference::{
    BandwidthForecast, BandwidthForecaster, Candidate, Fluid, Outlook, Read,
};
use barograph_model::{Clock, NS_PER_S, seconds};

use super::config::{BandwidthConfig, DEVICES_MAX};
use super::groups::{Groups, NamedWriter, WEIGHT};

/// Most devices whose groups are known, whether they are forecast or not.
const KNOWN_MAX: usize = 64;
/// Time that the outlooks of one step may take, in ns. Devices beyond it are forecast from their
/// past alone, and come first in the next step.
const STEP_NS_MAX: i64 = NS_PER_S / 2;

/// The greatest bandwidth of a device, in bytes per second, and its origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Capacity {
    pub(super) value: f64,
    /// Configured, probed, table or observed, as the source of disks says; or seen.
    pub(super) origin: &'static str,
}

/// The forecasts, with all that is known of the writers.
pub(super) struct Engine {
    config: BandwidthConfig,
    /// Time from which seconds are counted, in ns since the epoch.
    base_ns: Option<i64>,
    devices: BTreeMap<String, Device>,
    followed: BTreeSet<String>,
    /// The device whose outlook comes first in the next step.
    first: Option<String>,
    /// Number of readings on devices beyond [`KNOWN_MAX`].
    pub(super) refused: u64,
    steps: u64,
}

struct Device {
    groups: Groups,
    forecaster: BandwidthForecaster,
    /// Time of the step before, in seconds, and number of steps.
    stepped: Option<(f64, usize)>,
}

/// What is forecast of one device.
#[derive(Debug, Clone)]
pub(super) struct DeviceOutlook {
    pub(super) device: String,
    pub(super) capacity: Option<Capacity>,
    /// The bandwidths of the next steps; without steps while there is no forecast.
    pub(super) forecast: BandwidthForecast,
    /// The reason why writers are left out of the forecast, if they are.
    pub(super) trouble: Option<String>,
    pub(super) writers: Vec<NamedWriter>,
    /// Time of the first step, in ns since the epoch.
    pub(super) ts_ns: i64,
    /// Time from which the seconds of writers are counted, in ns since the epoch.
    pub(super) base_ns: i64,
}

impl DeviceOutlook {
    /// The bandwidth of each step, its half width, and the model. Where no half width is known, it
    /// is one that holds for sure: the bandwidth is between 0 and the capacity. It is at least 1
    /// byte per second, as a forecast is no measurement.
    pub(super) fn bounded(&self) -> Vec<(f64, f64, Candidate)> {
        let capacity = self.capacity.map_or(0.0, |capacity| capacity.value);
        let steps = self.forecast.steps.iter().map(|step| {
            let value = step.value.min(capacity);
            let widest = value.max(capacity - value);
            (value, step.half_width.min(widest).max(1.0), step.by)
        });
        steps.collect()
    }
}

impl Engine {
    pub(super) fn new(config: &BandwidthConfig) -> Self {
        Self {
            config: config.clone(),
            base_ns: None,
            devices: BTreeMap::new(),
            followed: BTreeSet::new(),
            first: None,
            refused: 0,
            steps: 0,
        }
    }

    /// Takes in a reading of the bytes that a group has written to a device.
    pub(super) fn read(&mut self, device: &str, group: &str, ts_ns: i64, bytes: f64) {
        let at_s = self.seconds(ts_ns);
        if !self.devices.contains_key(device) {
            if self.devices.len() >= KNOWN_MAX {
                self.refused += 1;
                return;
            }
            let known = Device {
                groups: Groups::default(),
                forecaster: BandwidthForecaster::new(self.config.of_forecaster()),
                stepped: None,
            };
            self.devices.insert(device.to_owned(), known);
        }
        if let Some(known) = self.devices.get_mut(device) {
            known.groups.read(group, at_s, bytes);
        }
    }

    /// Takes note that a group writes to a device no more.
    pub(super) fn end(&mut self, device: &str, group: &str) {
        if let Some(known) = self.devices.get_mut(device) {
            known.groups.end(group);
        }
    }

    /// Whether there is nothing to forecast.
    pub(super) fn is_idle(&self) -> bool {
        self.config.devices.is_empty() && self.devices.is_empty()
    }

    /// Number of readings for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        let groups = self.devices.values().map(|device| device.groups.left_out);
        groups.sum::<u64>() + self.refused
    }

    /// Seconds since the first reading.
    fn seconds(&mut self, ts_ns: i64) -> f64 {
        let base_ns = *self.base_ns.get_or_insert(ts_ns);
        seconds(ts_ns.saturating_sub(base_ns))
    }

    /// Chooses the devices: those that are configured, or those with the most bytes; one that was
    /// chosen stays while a group of it is there.
    fn choose(&mut self) {
        if !self.config.devices.is_empty() {
            self.followed = self.config.devices.iter().cloned().collect();
            return;
        }
        let devices = &mut self.devices;
        devices.retain(|_, device| !device.groups.is_empty());
        self.followed.retain(|name| devices.contains_key(name));
        let mut others: Vec<(&String, f64)> = devices
            .iter()
            .filter(|(name, _)| !self.followed.contains(*name))
            .map(|(name, device)| (name, device.groups.grown()))
            .filter(|(_, grown)| *grown > 0.0)
            .collect();
        others.sort_by(|a, b| b.1.total_cmp(&a.1));
        let room = DEVICES_MAX.saturating_sub(self.followed.len());
        let chosen: Vec<String> = others
            .into_iter()
            .take(room)
            .map(|(name, _)| name.clone())
            .collect();
        self.followed.extend(chosen);
    }

    /// Forecasts all devices for the steps that begin now. `capacities` has what the disks
    /// themselves say.
    pub(super) fn step(
        &mut self,
        now_ns: i64,
        capacities: &BTreeMap<String, Capacity>,
        clock: &dyn Clock,
    ) -> Vec<DeviceOutlook> {
        let now_s = self.seconds(now_ns);
        for device in self.devices.values_mut() {
            device.groups.close();
        }
        self.choose();
        self.steps += 1;
        let begin_ns = clock.monotonic_ns();
        let mut names: Vec<String> = self.followed.iter().cloned().collect();
        let first = self.first.take();
        let at = names.iter().position(|name| Some(name) == first.as_ref());
        names.rotate_left(at.unwrap_or(0));
        let mut outlooks = Vec::new();
        for (nth, name) in names.into_iter().enumerate() {
            let has_time = nth == 0 || clock.monotonic_ns().saturating_sub(begin_ns) < STEP_NS_MAX;
            if !has_time && self.first.is_none() {
                self.first = Some(name.clone());
            }
            let told = capacities.get(&name).copied();
            let when = (now_s, now_ns);
            outlooks.push(self.step_of(name, when, told, has_time));
        }
        outlooks.sort_by(|a, b| a.device.cmp(&b.device));
        outlooks
    }

    fn step_of(
        &mut self,
        name: String,
        (now_s, now_ns): (f64, i64),
        told: Option<Capacity>,
        has_time: bool,
    ) -> DeviceOutlook {
        let mut outlook = DeviceOutlook {
            device: name,
            capacity: told,
            forecast: BandwidthForecast {
                steps: Vec::new(),
                confidence: self.config.confidence,
                reason: String::new(),
            },
            trouble: None,
            writers: Vec::new(),
            ts_ns: now_ns,
            base_ns: self.base_ns.unwrap_or(now_ns),
        };
        let Some(device) = self.devices.get_mut(&outlook.device) else {
            outlook.forecast.reason =
                "no control group has written to it: baro doctor says what is counted".into();
            return outlook;
        };
        let seen = device.groups.fastest();
        outlook.capacity = capacity(told, seen);
        if has_time {
            outlook.writers = device.groups.writers();
        }
        let Some(capacity) = outlook.capacity.map(|capacity| capacity.value) else {
            outlook.forecast.reason =
                "its greatest bandwidth is not known: run `baro probe`, or set sources.disk.bandwidth_max".into();
            return outlook;
        };
        let of = StepOf {
            config: &self.config,
            capacity,
            now_s,
            seed: self.steps,
        };
        let measured = of.measured(device);
        let expected = has_time.then(|| of.outlook(device, &outlook.writers));
        if !has_time {
            outlook.trouble =
                Some("the writers of other devices took the time of this step".into());
        }
        outlook.forecast = device.forecaster.step(measured, expected.as_ref());
        let steps = device.stepped.map_or(0, |(_, steps)| steps);
        device.stepped = Some((now_s, steps.saturating_add(1)));
        outlook
    }
}

/// The capacity that the disk tells, or the greatest rate of its writers if that is more or nothing
/// is told.
fn capacity(told: Option<Capacity>, seen: Option<f64>) -> Option<Capacity> {
    let seen = seen.map(|value| Capacity {
        value,
        origin: "seen",
    });
    match (told, seen) {
        (Some(told), Some(seen)) if seen.value > told.value => Some(seen),
        (told, seen) => told.or(seen),
    }
}

/// One step of one device.
struct StepOf<'a> {
    config: &'a BandwidthConfig,
    capacity: f64,
    now_s: f64,
    seed: u64,
}

impl StepOf<'_> {
    fn read(&self, at_s: f64) -> Read {
        Read {
            at_s,
            bytes: self.config.read_bytes as f64,
            weight: WEIGHT,
        }
    }

    /// The bandwidth that the reader would have got since the step before, beside what the writers
    /// wrote. [`None`] if their counters were not read, or there was no step before.
    fn measured(&self, device: &Device) -> Option<f64> {
        let (from_s, _) = device.stepped?;
        let newest_s = device
            .groups
            .newest_s()
            .filter(|newest_s| *newest_s > from_s)?;
        let loads = device.groups.loads_after(from_s);
        let mut fluid = Fluid::new(self.capacity, from_s, &loads, &[self.read(from_s)]);
        fluid.advance(newest_s);
        let ended = fluid.bandwidths().first().copied();
        Some(ended.unwrap_or_else(|| fluid.read() / (newest_s - from_s)))
    }

    fn outlook(&self, device: &Device, writers: &[NamedWriter]) -> Outlook {
        let writers: Vec<_> = writers.iter().map(NamedWriter::writer).collect();
        let step_s = self.config.step_seconds as f64;
        let reads = |from_s: f64, count: usize| -> Vec<Read> {
            let times = (0..count).map(|step| from_s + step_s * step as f64);
            times.map(|at_s| self.read(at_s)).collect()
        };
        let ahead = reads(self.now_s, self.config.steps);
        let past = device.stepped.map_or(0, |(_, steps)| steps);
        let past = past.min(self.config.window);
        let before = reads(self.now_s - step_s * past as f64, past);
        let (capacity, seed) = (self.capacity, self.seed);
        Outlook::of(capacity, &writers, self.now_s, &ahead, seed)
            .with_past(capacity, &writers, &before, seed)
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::ManualClock;

    use super::*;

    const MB: f64 = 1e6;

    fn clock() -> ManualClock {
        ManualClock::at(0)
    }

    fn told(value: f64) -> BTreeMap<String, Capacity> {
        let origin = "configured";
        BTreeMap::from([("sda".to_owned(), Capacity { value, origin })])
    }

    /// Steps of an engine beside one writer with a burst of 20 s each 173 s.
    fn run(engine: &mut Engine, seconds: i64) -> Vec<DeviceOutlook> {
        let mut outlooks = Vec::new();
        let mut bytes = 0.0;
        for at in 0..seconds {
            bytes += if at % 173 < 20 { 100.0 * MB } else { 0.0 };
            engine.read("sda", "/simulation", at * NS_PER_S, bytes);
            if at % 60 == 0 {
                outlooks = engine.step(at * NS_PER_S, &told(120.0 * MB), &clock());
            }
        }
        outlooks
    }

    #[test]
    fn a_periodic_writer_is_forecast() {
        let mut engine = Engine::new(&BandwidthConfig::default());
        let outlooks = run(&mut engine, 4_000);
        let [outlook] = &outlooks[..] else {
            panic!("{outlooks:?}")
        };
        let schedule = outlook.writers[0].estimate.schedule.unwrap();
        assert!((schedule.period_s - 173.0).abs() < 0.5, "{schedule:?}");
        assert!(
            outlook
                .forecast
                .reason
                .contains("1 of 1 writers are periodic")
        );
        let steps = outlook.bounded();
        assert_eq!(steps.len(), 30);
        let by_schedule = steps.iter().filter(|step| step.2 == Candidate::Schedules);
        assert!(by_schedule.count() > 0, "{}", outlook.forecast.reason);
        // Which of the reads meet a burst is known.
        let begin_s = 3_960;
        let right = steps.iter().enumerate().filter(|(nth, (value, ..))| {
            let phase = (begin_s + 60 * *nth as i64) % 173;
            (phase < 20) == (*value < 100.0 * MB)
        });
        assert!(right.count() >= 26, "{steps:?}");
        for (value, half_width, _) in steps {
            assert!((0.0..=120.0 * MB).contains(&value) && half_width <= 120.0 * MB);
        }
    }

    #[test]
    fn a_steady_writer_leaves_the_mean() {
        let mut engine = Engine::new(&BandwidthConfig::default());
        let mut outlooks = Vec::new();
        for at in 0..1_300 {
            engine.read("sda", "/log", at * NS_PER_S, 30.0 * MB * at as f64);
            if at % 60 == 0 {
                outlooks = engine.step(at * NS_PER_S, &told(120.0 * MB), &clock());
            }
        }
        let forecast = &outlooks[0].forecast;
        assert_eq!(forecast.reason, "no period found: the mean");
        let value = forecast.steps[0].value;
        assert!((value - 90.0 * MB).abs() < 10.0 * MB, "{value}");
    }

    #[test]
    fn nothing_is_said_without_a_capacity_or_without_writers() {
        let config = BandwidthConfig {
            devices: vec!["sda".into(), "sdb".into()],
            ..BandwidthConfig::default()
        };
        let mut engine = Engine::new(&config);
        for at in 0..5 {
            engine.read("sda", "/idle", at * NS_PER_S, 7.0);
        }
        let outlooks = engine.step(5 * NS_PER_S, &BTreeMap::new(), &clock());
        let reasons = outlooks
            .iter()
            .map(|outlook| &outlook.forecast.reason[..30]);
        let reasons: Vec<&str> = reasons.collect();
        let expect = [
            "its greatest bandwidth is not k",
            "no control group has written to",
        ];
        assert_eq!(reasons, expect.map(|text| &text[..30]));
        assert!(outlooks.iter().all(|outlook| outlook.bounded().is_empty()));
        // The rate of the writers themselves is a capacity, if nothing else is.
        engine.read("sda", "/idle", 6 * NS_PER_S, 1e6);
        let outlooks = engine.step(7 * NS_PER_S, &BTreeMap::new(), &clock());
        assert_eq!(outlooks[0].capacity.unwrap().origin, "seen");
    }

    #[test]
    fn the_largest_devices_are_chosen() {
        let mut engine = Engine::new(&BandwidthConfig::default());
        for at in 0..2 {
            for disk in 0..KNOWN_MAX + 1 {
                let bytes = (at as usize * disk) as f64;
                engine.read(&format!("sd{disk}"), "/a", at * NS_PER_S, bytes);
            }
        }
        let outlooks = engine.step(2 * NS_PER_S, &BTreeMap::new(), &clock());
        let mut names: Vec<String> = (56..64).map(|disk| format!("sd{disk}")).collect();
        names.sort();
        let chosen: Vec<String> = outlooks.into_iter().map(|outlook| outlook.device).collect();
        assert_eq!(chosen, names);
        assert_eq!(engine.left_out(), 2);
    }

    /// A clock that goes on by a second with each look.
    struct SlowClock(ManualClock);

    impl Clock for SlowClock {
        fn now_ns(&self) -> i64 {
            self.0.now_ns()
        }

        fn monotonic_ns(&self) -> i64 {
            self.0.advance(NS_PER_S);
            self.0.monotonic_ns()
        }
    }

    #[test]
    fn devices_beyond_the_budget_come_first_next_time() {
        let mut engine = Engine::new(&BandwidthConfig::default());
        for at in 0..3 {
            for disk in ["sda", "sdb"] {
                engine.read(disk, "/a", at * NS_PER_S, 1e6 * at as f64);
            }
        }
        let clock = SlowClock(clock());
        let mut firsts = Vec::new();
        for _ in 0..3 {
            engine.step(3 * NS_PER_S, &BTreeMap::new(), &clock);
            firsts.push(engine.first.clone().unwrap());
        }
        assert_eq!(firsts, ["sdb", "sda", "sdb"]);
    }
}
