//! The power of the node and its parts: the energy counters of processors (RAPL) and the power and
//! energy sensors of hwmon chips.
//!
//! Documents: the kernel's `Documentation/power/powercap/powercap.rst` and
//! `Documentation/ABI/testing/sysfs-class-powercap` for `/sys/class/powercap/intel-rapl:*`, which
//! AMD's processors have too; `Documentation/hwmon/sysfs-interface.rst` and
//! `Documentation/hwmon/acpi_power_meter.rst` for `/sys/class/hwmon`. The file `enabled` of a power
//! zone is about its limits, not its counter, so it is not read.
//!
//! # The node
//!
//! The node's power is taken from the first of these that exists: the platform's meter
//! (`power_meter`, ACPI), if there is exactly one; `psys`, which covers the platform; the packages
//! with their memory. `core` and `uncore` are parts of their package and would count twice; `dram`
//! is below its package in powercap but is not in the package's counter, so it is added. The last
//! choice leaves out drives, fans, cards and losses of the power supply. Measurements of the BMC
//! are in the source `bmc`.
//!
//! # Resolution
//!
//! The agent's streams are readable by every user, but energy counters only by root since
//! CVE-2020-8694: keys can be derived from fine readings (PLATYPUS, Lipp et al., IEEE S&P 2021). So
//! this source publishes at most one reading per second, however often it is polled, and rounds
//! energy down to 0.1 J before anything is derived from it. This holds for every user that runs the
//! agent and every configuration.

mod energy;
mod scan;

use std::path::Path;

use barograph_model::{Labels, NS_PER_S};
use rustix::io::Errno;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{escape, sole_number};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use energy::{Energy, Growth};
use scan::{FoundZone, SumPart, ZoneContent};

/// Most zones that are followed.
const ZONES_MAX: usize = 256;
/// Time between two scans for new zones; denied zones are tried again at the same times.
const SCAN_NS: i64 = 30 * NS_PER_S;
/// Least time between two readings that are published.
const PACE_NS: i64 = NS_PER_S;
/// A poll may come this much earlier than a second after the last, since timers are inexact; the
/// next one makes up for it.
const PACE_SLACK_NS: i64 = NS_PER_S / 20;
/// After this many polls without a reading, the last power no longer counts.
const SILENT_MAX: u32 = 3;
/// Greatest reading, 1 MW: no node draws more, so a larger one is a mistake.
const MICROWATTS_MAX: u64 = 1_000_000_000_000;

facts! {
    /// Facts of one zone.
    pub(crate) enum Fact in "power" {
        Energy: Counter Float "energy.joules" "joules" "Energy used, rounded down to 0.1 J.";
        Draw: Gauge Float "draw.watts" "watts" "Power; if it comes from an energy counter, the mean since the last poll.";
    }
}

facts! {
    /// Facts of the node as a whole.
    pub(crate) enum NodeFact in "power.node" {
        Watts: Gauge Float "watts" "watts" "Power of the node, from the meter that covers most of it; power.node.source.name names the meter.";
        Source: State Text "source.name" "name" "Meter of the node's power: power_meter, psys or packages (with memory).";
    }
}

/// The source `power`.
pub struct Power {
    root: SysRoot,
    bytes: Vec<u8>,
    zones: Roster<Zone>,
    node: FactSet<NodeFact>,
    node_source: Option<&'static str>,
    pace: Pace,
    scan_next_ns: i64,
    hidden: Vec<String>,
    unnameable: Vec<MissingPart>,
}

struct Zone {
    label: String,
    part: SumPart,
    file: HeldFile,
    facts: FactSet<Fact>,
    /// The counter, if the zone has an energy counter.
    energy: Option<Energy>,
    /// Power by the newest poll.
    watts: Option<f64>,
    trouble: Option<Trouble>,
    /// Polls since the last power.
    silent: u32,
}

/// The reason why a zone gave nothing, or less, in the last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Reading was denied; it is not tried again before the next scan.
    Denied,
    Silent(Errno),
    /// The counter may have wrapped around more than once since the last poll.
    TooSeldom,
    /// A fault was reported with the reason.
    Broken,
}

impl Power {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        Self {
            root: SysRoot::new(sys_root),
            bytes: Vec::new(),
            zones: Roster::new(ZONES_MAX),
            node: FactSet::new(Labels::none()),
            node_source: None,
            pace: Pace { next_ns: i64::MIN },
            scan_next_ns: i64::MIN,
            hidden: Vec::new(),
            unnameable: Vec::new(),
        }
    }

    /// Follows zones that appeared, drops those that vanished, and tries denied ones again.
    fn scan(&mut self, batch: &mut SourceBatch, faults: &mut Faults) {
        let seen = scan::find(&self.root, &mut self.bytes, faults);
        self.hidden = seen.hidden;
        self.unnameable.clear();
        self.zones.begin();
        for found in &seen.zones {
            let unnameable = &mut self.unnameable;
            let root = &self.root;
            let make = || match Zone::new(found, root) {
                Ok(zone) => Some(zone),
                Err(fault) => {
                    let remedy = "give it a shorter name";
                    unnameable.push(MissingPart::new(&*found.label, fault.to_string(), remedy));
                    None
                }
            };
            if let Some(zone) = self.zones.visit(found.path.as_bytes(), make) {
                zone.part = found.part;
                zone.trouble = None;
            }
        }
        if seen.whole {
            self.zones.sweep(|zone| zone.facts.retire(batch));
        }
    }

    /// Puts the power of the node, once all parts of its sum are known.
    fn put_node(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let chosen = NODE_SOURCES.iter().find(|(_, parts)| {
            let mut zones = self.zones.iter().filter(|(_, z)| parts.contains(&z.part));
            let known = |z: &Zone| matches!(z.trouble, None | Some(Trouble::TooSeldom));
            let first = zones.next();
            first.is_some_and(|(_, z)| known(z)) && zones.all(|(_, z)| known(z))
        });
        let Some((name, parts)) = chosen else {
            self.node_source = None;
            self.node.retire(batch);
            return;
        };
        self.node_source = Some(name);
        let zones = self.zones.iter().filter(|(_, z)| parts.contains(&z.part));
        let watts = zones.map(|(_, zone)| zone.watts).sum::<Option<f64>>();
        if let Some(watts) = watts {
            self.node.derived(batch, now_ns, NodeFact::Watts, watts);
            self.node
                .text_attribute(batch, now_ns, NodeFact::Source, name, PACE_NS);
        }
    }

    /// The labels of the zones with this trouble.
    fn troubled(&self, is: impl Fn(Trouble) -> bool) -> Option<String> {
        let zones = self.zones.iter().map(|(_, zone)| zone);
        let labels: Vec<_> = zones
            .filter(|zone| zone.trouble.is_some_and(&is))
            .map(|zone| &*zone.label)
            .collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }
}

/// The choices for the node's power; the first that exists is taken.
const NODE_SOURCES: [(&str, &[SumPart]); 3] = [
    ("power_meter", &[SumPart::Meter]),
    ("psys", &[SumPart::Platform]),
    ("packages", &[SumPart::Package, SumPart::Memory]),
];

impl Source for Power {
    fn name(&self) -> &'static str {
        "power"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let at_ns = batch.monotonic_ns();
        if !self.pace.is_due(at_ns) {
            return Ok(());
        }
        let mut faults = Faults::default();
        if self.is_absent() || at_ns >= self.scan_next_ns {
            self.scan_next_ns = at_ns.saturating_add(SCAN_NS);
            self.scan(batch, &mut faults);
        }
        for (_, zone) in self.zones.iter_mut() {
            zone.read(now_ns, batch, &mut self.bytes, &mut faults);
        }
        self.put_node(now_ns, batch);
        self.zones.report_refused("power zones", &mut faults);
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.zones.len() == 0 && self.hidden.is_empty()
    }

    fn report(&self) -> SourceCoverage {
        let labels: Vec<_> = self.zones.iter().map(|(_, z)| &*z.label).collect();
        let mut sees = match labels.is_empty() {
            true => "no power sensors".to_owned(),
            false => format!("{}: {}", counted(labels.len(), "zone"), labels.join(", ")),
        };
        if let Some(source) = self.node_source {
            sees += &format!("; the node's power is taken from {source}");
        }
        let mut missing = self.unnameable.clone();
        if let Some(zones) = self.troubled(|t| t == Trouble::Denied) {
            missing.push(MissingPart::new(
                format!("power of {zones}"),
                "their counters are for root only (since CVE-2020-8694)",
                "give the agent CAP_DAC_READ_SEARCH (AmbientCapabilities= and CapabilityBoundingSet= in \
                 barograph.service), or measure the node with the source bmc",
            ));
        }
        for (_, zone) in self.zones.iter() {
            if let Some(Trouble::Silent(errno)) = zone.trouble {
                missing.push(MissingPart::new(
                    format!("power of {}", zone.label),
                    format!(
                        "{}: {}",
                        zone.file.path().display(),
                        std::io::Error::from(errno)
                    ),
                    "a device that sleeps has no reading; else see the kernel's log",
                ));
            }
        }
        if let Some(zones) = self.troubled(|t| t == Trouble::TooSeldom) {
            missing.push(MissingPart::new(
                format!("power of {zones}"),
                "between two reads their counters may have gone round more than once",
                "read more often: sources.poll.power.interval_ms",
            ));
        }
        if !self.hidden.is_empty() {
            missing.push(MissingPart::new(
                format!("power zones {}", self.hidden.join(", ")),
                "they are named but cannot be read: containers often hide /sys/devices/virtual/powercap",
                "let the agent see the host's /sys, or run it on the host",
            ));
        }
        missing.extend(self.missing_node());
        SourceCoverage { sees, missing }
    }
}

impl Power {
    fn missing_node(&self) -> Option<MissingPart> {
        let (powercap, hwmon) = (self.root.path(scan::POWERCAP), self.root.path(scan::HWMON));
        if self.zones.len() == 0 && self.hidden.is_empty() {
            return Some(MissingPart::new(
                "power of the node",
                format!(
                    "no intel-rapl zone in {} and no power sensor in {}",
                    powercap.display(),
                    hwmon.display()
                ),
                "load intel_rapl_msr or acpi_power_meter, or enable the source bmc; a virtual machine has no sensors",
            ));
        }
        let is_part = |z: &Zone| {
            NODE_SOURCES
                .iter()
                .any(|(_, parts)| parts.contains(&z.part))
        };
        let none = !self.zones.iter().any(|(_, zone)| is_part(zone));
        (none && self.zones.len() > 0).then(|| {
            MissingPart::new(
                "power of the node",
                "the sensors that are there measure parts of it, which do not add up to it",
                "load intel_rapl_msr or acpi_power_meter, or enable the source bmc",
            )
        })
    }
}

impl Zone {
    fn new(found: &FoundZone, root: &SysRoot) -> Result<Self, SourceError> {
        Ok(Self {
            facts: FactSet::labelled([("zone", found.label.clone())])?,
            label: found.label.clone(),
            part: found.part,
            file: root.short_records(&found.path),
            energy: match found.what {
                ZoneContent::Energy { range_uj } => Some(Energy::new(range_uj)),
                ZoneContent::Power => None,
            },
            watts: None,
            trouble: None,
            silent: 0,
        })
    }

    fn read(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        self.read_once(now_ns, batch, bytes, faults);
        match self.watts {
            Some(_) => self.silent = 0,
            None => self.silent = self.silent.saturating_add(1),
        }
        if self.silent == SILENT_MAX {
            self.facts.retire_one(batch, Fact::Draw);
        }
    }

    fn read_once(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        self.watts = None;
        if self.trouble == Some(Trouble::Denied) {
            return;
        }
        if let Err(fault) = self.file.read(bytes) {
            self.trouble = Some(Trouble::of(&fault));
            if self.trouble == Some(Trouble::Broken) {
                faults.add(fault);
            }
            return;
        }
        self.trouble = None;
        let at_ns = batch.monotonic_ns();
        let understood = sole_number(bytes).is_some_and(|value| match &mut self.energy {
            Some(energy) => match energy.read(at_ns, value) {
                Some((joules, growth)) => {
                    self.facts.measured(batch, now_ns, Fact::Energy, joules);
                    match growth {
                        Growth::Watts(watts) => self.watts = Some(watts),
                        Growth::TooSeldom => self.trouble = Some(Trouble::TooSeldom),
                        Growth::Unknown => {}
                    }
                    true
                }
                None => false,
            },
            None => {
                self.watts = (value <= MICROWATTS_MAX).then_some(value as f64 / 1e6);
                self.watts.is_some()
            }
        });
        match (self.watts, &self.energy) {
            (Some(watts), Some(_)) => self.facts.derived(batch, now_ns, Fact::Draw, watts),
            (Some(watts), None) => self.facts.measured(batch, now_ns, Fact::Draw, watts),
            (None, _) => {}
        }
        if !understood {
            self.trouble = Some(Trouble::Broken);
            faults.add(SourceError::Format {
                what: self.file.path().display().to_string(),
                reason: format!(
                    "{:?} is no reading of this sensor",
                    escape(&bytes[..bytes.len().min(40)])
                ),
            });
        }
    }
}

impl Trouble {
    fn of(fault: &SourceError) -> Self {
        match fault {
            SourceError::Read { errno, .. } => match *errno {
                Errno::ACCESS | Errno::PERM => Self::Denied,
                errno @ (Errno::NODATA | Errno::AGAIN | Errno::NOLINK) => Self::Silent(errno),
                errno if fault.is_absent() => Self::Silent(errno),
                _ => Self::Broken,
            },
            _ => Self::Broken,
        }
    }
}

/// Limits readings to one per second on average, apart from the slack of timers.
struct Pace {
    next_ns: i64,
}

impl Pace {
    fn is_due(&mut self, at_ns: i64) -> bool {
        let earliest_ns = at_ns.saturating_add(PACE_SLACK_NS);
        if earliest_ns < self.next_ns {
            return false;
        }
        let from_ns = self.next_ns.max(at_ns);
        self.next_ns = from_ns.saturating_add(PACE_NS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of polls in milliseconds, and those at which a reading is published.
    #[test]
    fn no_more_than_a_reading_a_second() {
        let check = |at: &[i64], expect: &[i64]| {
            let mut pace = Pace { next_ns: i64::MIN };
            let due = at.iter().filter(|ms| pace.is_due(**ms * 1_000_000));
            assert_eq!(due.copied().collect::<Vec<_>>(), expect);
        };
        check(&[0, 1000, 2000, 3000], &[0, 1000, 2000, 3000]);
        check(&[3, 1000, 2001, 2999, 4000], &[3, 1000, 2001, 2999, 4000]);
        check(&[0, 100, 900, 960, 1100, 1950, 2000], &[0, 960, 1950]);
        // The slack does not accumulate.
        let fast: Vec<i64> = (0..100).map(|n| n * 960).collect();
        let mut pace = Pace { next_ns: i64::MIN };
        let due = fast
            .iter()
            .filter(|ms| pace.is_due(**ms * 1_000_000))
            .count();
        assert!(due <= 97, "{due}");
    }
}
