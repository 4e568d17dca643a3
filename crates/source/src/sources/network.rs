//! `/proc/net/dev` and `/sys/class/net`: the traffic of the network interfaces.
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::globs::Globs;
use crate::util::millis::{ATTRIBUTES_INTERVAL_MS, ns};
use crate::util::parse::{cut, escape, lines, sole_number, sole_text, words};
use crate::util::rate::Meter;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

/// Most interfaces that are followed.
const DEVICES_MAX: usize = 1024;
/// Lines of headings in `/proc/net/dev`.
const HEADINGS: usize = 2;
/// Bytes per second in one Mbit/s, the unit of `speed`.
const BYTES_PER_MBIT: f64 = 125_000.0;

facts! {
    /// Facts of one interface.
    pub(crate) enum Fact in "network" {
        ReceiveBytes: Counter Int "receive.bytes" "bytes" "Bytes received.";
        TransmitBytes: Counter Int "transmit.bytes" "bytes" "Bytes sent.";
        ReceivePackets: Counter Int "receive.packets" "packets" "Packets received.";
        TransmitPackets: Counter Int "transmit.packets" "packets" "Packets sent.";
        ReceiveErrors: Counter Int "receive.errors.packets" "packets" "Packets that arrived damaged.";
        TransmitErrors: Counter Int "transmit.errors.packets" "packets" "Packets that could not be sent.";
        ReceiveDropped: Counter Int "receive.dropped.packets" "packets" "Packets that were received and then dropped.";
        TransmitDropped: Counter Int "transmit.dropped.packets" "packets" "Packets dropped before they were sent.";
        ReceiveRate: Gauge Float "receive.bytes_per_second" "bytes/s" "Bytes received per second, averaged since the last poll.";
        TransmitRate: Gauge Float "transmit.bytes_per_second" "bytes/s" "Bytes sent per second, averaged since the last poll.";
        Up: State Bool "up.flag" "flag" "Whether the interface can carry packets; true if the interface does not report its state.";
        Speed: State Float "speed.bytes_per_second" "bytes/s" "Greatest bandwidth of the link in one direction.";
        Mtu: State Int "mtu.bytes" "bytes" "Size of the largest packet (MTU).";
    }
}

/// The columns after the name that are used: position and fact.
const COLUMNS: [(usize, Fact); 8] = [
    (0, Fact::ReceiveBytes),
    (1, Fact::ReceivePackets),
    (2, Fact::ReceiveErrors),
    (3, Fact::ReceiveDropped),
    (8, Fact::TransmitBytes),
    (9, Fact::TransmitPackets),
    (10, Fact::TransmitErrors),
    (11, Fact::TransmitDropped),
];
/// Number of columns that every kernel has.
const COLUMNS_ALL: usize = 16;

/// Settings of the source of network interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Patterns over the names of interfaces that are left out.
    pub skip: Vec<String>,
    /// Milliseconds between reads of attributes: speed, frame size.
    pub attributes_interval_ms: u64,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            skip: vec!["lo".to_owned()],
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl NetworkConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }
}

/// The source `network`.
pub struct Network {
    root: SysRoot,
    file: HeldFile,
    bytes: Vec<u8>,
    /// Buffer for files of single devices, while `bytes` holds the list of all.
    attribute: Vec<u8>,
    skip: Globs,
    attributes_ns: i64,
    devices: Roster<Device>,
    absent: Option<String>,
}

enum Device {
    Followed(Box<Followed>),
    /// The device is excluded by the configuration.
    Skipped,
    /// The device's name cannot be a label.
    Unnameable(String),
}

struct Followed {
    label: String,
    facts: FactSet<Fact>,
    receive: Meter,
    transmit: Meter,
    operstate: HeldFile,
    speed: HeldFile,
    mtu: HeldFile,
    attributes_next_ns: i64,
    sysfs_seen: bool,
}

impl Network {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, config: &NetworkConfig) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            file: root.short_records("proc/net/dev"),
            bytes: Vec::new(),
            attribute: Vec::new(),
            skip: Globs::new(&config.skip),
            attributes_ns: config.attributes_interval_ns(),
            devices: Roster::new(DEVICES_MAX),
            absent: None,
            root,
        }
    }
}

impl Source for Network {
    fn name(&self) -> &'static str {
        "network"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        if !absent_or_fault(self.file.read(&mut self.bytes), &mut self.absent)? {
            return Ok(());
        }
        let mut bad = BadLines::default();
        self.devices.begin();
        for line in lines(&self.bytes).skip(HEADINGS) {
            let Some((name, columns)) = parse(line) else {
                bad.add(line);
                continue;
            };
            let make = || Some(Device::new(name, &self.root, &self.skip));
            match self.devices.visit(name, make) {
                Some(Device::Followed(device)) => {
                    device.put(now_ns, batch, &columns);
                    device.attributes(now_ns, batch, &mut self.attribute, self.attributes_ns);
                }
                Some(Device::Skipped | Device::Unnameable(_)) | None => {}
            }
        }
        if !cut(&self.bytes).is_empty() || self.bytes.is_empty() {
            bad.add(cut(&self.bytes));
        }
        // If lines are broken, a device that is not listed may still exist.
        if !bad.any() {
            self.devices.sweep(|device| {
                if let Device::Followed(device) = device {
                    device.facts.retire(batch);
                }
            });
        }
        bad.report(self.file.path(), &mut faults);
        self.devices.report_refused("interfaces", &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut followed = Vec::new();
        let mut skipped = Vec::new();
        let mut missing: Vec<_> = missing_proc("network interfaces", &self.absent)
            .into_iter()
            .collect();
        let mut blind = Vec::new();
        for (name, device) in self.devices.iter() {
            match device {
                Device::Followed(device) => {
                    followed.push(device.label.clone());
                    if !device.sysfs_seen {
                        blind.push(device.label.clone());
                    }
                }
                Device::Skipped => skipped.push(escape(name)),
                Device::Unnameable(why) => missing.push(MissingPart::new(
                    format!("interface {}", escape(name)),
                    why.as_str(),
                    "give it a shorter name",
                )),
            }
        }
        if !blind.is_empty() {
            missing.push(MissingPart::new(
                format!("state of {}", blind.join(", ")),
                format!(
                    "{} has no operstate for them",
                    self.root.path("sys/class/net").display()
                ),
                "mount /sys, or let the agent see the host's",
            ));
        }
        let mut sees = format!(
            "{}: {}",
            counted(followed.len(), "interface"),
            followed.join(", ")
        );
        if !skipped.is_empty() {
            sees += &format!("; left out by configuration: {}", skipped.join(", "));
        }
        SourceCoverage { sees, missing }
    }
}

impl Device {
    fn new(name: &[u8], root: &SysRoot, skip: &Globs) -> Self {
        let label = escape(name);
        if skip.matches(&label) {
            return Self::Skipped;
        }
        let facts = match FactSet::labelled([("device", label.clone())]) {
            Ok(facts) => facts,
            Err(fault) => return Self::Unnameable(fault.to_string()),
        };
        let held = |file: &str| root.short_records(&format!("sys/class/net/{label}/{file}"));
        Self::Followed(Box::new(Followed {
            facts,
            receive: Meter::default(),
            transmit: Meter::default(),
            operstate: held("operstate"),
            speed: held("speed"),
            mtu: held("mtu"),
            attributes_next_ns: i64::MIN,
            sysfs_seen: false,
            label,
        }))
    }
}

impl Followed {
    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, columns: &[u64; COLUMNS_ALL]) {
        for (place, fact) in COLUMNS {
            self.facts.count(batch, now_ns, fact, columns[place]);
        }
        let at_ns = batch.monotonic_ns();
        if let Some(rate) = self.receive.rate(at_ns, columns[0]) {
            self.facts.derived(batch, now_ns, Fact::ReceiveRate, rate);
        }
        if let Some(rate) = self.transmit.rate(at_ns, columns[8]) {
            self.facts.derived(batch, now_ns, Fact::TransmitRate, rate);
        }
    }

    /// Reads the attributes. Unreadable ones are no fault: virtual interfaces do not have them.
    fn attributes(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        self.sysfs_seen = self.operstate.read(bytes).is_ok();
        if let Some(state) = sole_text(bytes).filter(|_| self.sysfs_seen) {
            let up = matches!(state, "up" | "unknown");
            self.facts.measured(batch, now_ns, Fact::Up, up);
        }
        if batch.monotonic_ns() < self.attributes_next_ns {
            return;
        }
        self.attributes_next_ns = batch.monotonic_ns().saturating_add(every_ns);
        // An unknown speed is -1, which does not parse as a number here.
        let speed = self
            .speed
            .read_and_close(bytes)
            .ok()
            .and_then(|()| sole_number(bytes));
        match speed.filter(|mbit| (1..u64::from(u32::MAX)).contains(mbit)) {
            Some(mbit) => {
                let speed = mbit as f64 * BYTES_PER_MBIT;
                self.facts
                    .attribute(batch, now_ns, Fact::Speed, speed, every_ns);
            }
            None => self.facts.retire_one(batch, Fact::Speed),
        }
        if let Some(mtu) = self
            .mtu
            .read_and_close(bytes)
            .ok()
            .and_then(|()| sole_number(bytes))
        {
            let mtu = crate::fact::int(mtu);
            self.facts
                .attribute(batch, now_ns, Fact::Mtu, mtu, every_ns);
        }
    }
}

fn parse(line: &[u8]) -> Option<(&[u8], [u64; COLUMNS_ALL])> {
    // The last colon separates the name: an alias like eth0:1 contains one.
    let colon = line.iter().rposition(|b| *b == b':')?;
    let name = line[..colon].trim_ascii();
    let mut columns = [0; COLUMNS_ALL];
    let mut words = words(&line[colon + 1..]);
    for column in &mut columns {
        *column = words.number()?;
    }
    (!name.is_empty()).then_some((name, columns))
}
