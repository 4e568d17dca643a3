//! Finds the zones and sensors, their labels, and the zones that they are parts of.

use std::collections::{BTreeMap, BTreeSet};

use crate::SourceError;
use crate::util::faults::Faults;
use crate::util::file::{SysRoot, names_in};
use crate::util::parse::{escape, sole_number, sole_text};

pub(super) const POWERCAP: &str = "sys/class/powercap";
pub(super) const HWMON: &str = "sys/class/hwmon";
/// Most entries of a directory that are looked at.
const ENTRIES_MAX: usize = 4096;
/// RAPL by MSR. The same packages may also exist as `intel-rapl-mmio:*`, with the same energy.
const RAPL: &[u8] = b"intel-rapl:";
/// The chip name that the driver of ACPI's power meters uses.
const METER: &str = "power_meter";

/// The part that a zone has in the sum over the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumPart {
    /// The one meter of the platform.
    Meter,
    /// `psys`. On machines with several packages, those that do not measure it do not list it.
    Platform,
    Package,
    /// `dram`.
    Memory,
    /// Part of another zone, or of a thing that is not a zone.
    Inner,
}

/// The content of a zone's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneContent {
    /// Microjoules, which wrap around after `range_uj`.
    Energy { range_uj: Option<u64> },
    /// Microwatts.
    Power,
}

/// One zone or sensor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundZone {
    /// Path of the file, relative to the root.
    pub(super) path: String,
    pub(super) label: String,
    pub(super) part: SumPart,
    pub(super) what: ZoneContent,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct PowerScan {
    pub(super) zones: Vec<FoundZone>,
    /// Directories of zones whose name cannot be read.
    pub(super) hidden: Vec<String>,
    /// Whether everything could be read: only then is a zone that was not seen gone.
    pub(super) whole: bool,
}

/// Finds zones and sensors. Labels are unique.
pub(super) fn find(root: &SysRoot, bytes: &mut Vec<u8>, faults: &mut Faults) -> PowerScan {
    let mut seen = PowerScan {
        whole: true,
        ..PowerScan::default()
    };
    rapl(root, bytes, &mut seen, faults);
    hwmon(root, bytes, &mut seen, faults);
    let mut labels = BTreeSet::new();
    for found in &mut seen.zones {
        if !labels.insert(found.label.clone()) {
            let mut parents = found.path.rsplit('/');
            let directory = parents.nth(1).unwrap_or_default();
            found.label = format!("{}@{directory}", found.label);
            labels.insert(found.label.clone());
        }
    }
    seen
}

fn rapl(root: &SysRoot, bytes: &mut Vec<u8>, seen: &mut PowerScan, faults: &mut Faults) {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for directory in entries(root, POWERCAP, RAPL, seen, faults) {
        let path = format!("{POWERCAP}/{directory}");
        let Some(name) = text(root, &format!("{path}/name"), bytes) else {
            seen.hidden.push(directory);
            continue;
        };
        // intel-rapl:0:1 is below intel-rapl:0.
        let above = directory
            .rsplit_once(':')
            .and_then(|(above, _)| labels.get(above));
        let part = match above {
            _ if name == "dram" => SumPart::Memory,
            Some(_) => SumPart::Inner,
            None if name.starts_with("package") => SumPart::Package,
            None if name == "psys" || name.starts_with("psys-") => SumPart::Platform,
            None => SumPart::Inner,
        };
        let label = match above {
            Some(above) => format!("{above}/{name}"),
            None => name,
        };
        let range = number(root, &format!("{path}/max_energy_range_uj"), bytes);
        seen.zones.push(FoundZone {
            path: format!("{path}/energy_uj"),
            label: label.clone(),
            part,
            what: ZoneContent::Energy {
                range_uj: range.filter(|range_uj| *range_uj > 0),
            },
        });
        labels.insert(directory, label);
    }
}

fn hwmon(root: &SysRoot, bytes: &mut Vec<u8>, seen: &mut PowerScan, faults: &mut Faults) {
    let mut meters = Vec::new();
    for directory in entries(root, HWMON, b"hwmon", seen, faults) {
        let path = format!("{HWMON}/{directory}");
        let sensors = sensors(&entries(root, &path, b"", seen, faults));
        if sensors.is_empty() {
            continue;
        }
        let Some(chip) = text(root, &format!("{path}/name"), bytes) else {
            seen.hidden.push(directory);
            continue;
        };
        for (sensor, file) in sensors {
            let label = text(root, &format!("{path}/{sensor}_label"), bytes);
            let what = match sensor.starts_with("energy") {
                true => ZoneContent::Energy { range_uj: None },
                false => ZoneContent::Power,
            };
            if chip == METER && what == ZoneContent::Power {
                meters.push(seen.zones.len());
            }
            seen.zones.push(FoundZone {
                path: format!("{path}/{file}"),
                label: format!("{chip}/{}", label.unwrap_or(sensor)),
                part: SumPart::Inner,
                what,
            });
        }
    }
    // If there are several meters, it is unknown which one covers the others.
    if let [only] = meters[..] {
        seen.zones[only].part = SumPart::Meter;
    }
}

/// The sensors among the files of a chip, each with the file that is read: the present power is
/// preferred to an average over a time that the chip chose.
fn sensors(files: &[String]) -> BTreeMap<String, String> {
    let mut sensors = BTreeMap::new();
    for (kind, ending) in [
        ("power", "average"),
        ("power", "input"),
        ("energy", "input"),
    ] {
        for file in files {
            let numbered = file
                .strip_prefix(kind)
                .and_then(|rest| rest.split_once('_'));
            if let Some((number, end)) = numbered
                && end == ending
                && number.parse::<u16>().is_ok()
            {
                sensors.insert(format!("{kind}{number}"), file.clone());
            }
        }
    }
    sensors
}

/// The names in a directory that begin with `prefix`. A directory that does not exist is no fault.
fn entries(
    root: &SysRoot,
    path: &str,
    prefix: &[u8],
    seen: &mut PowerScan,
    faults: &mut Faults,
) -> Vec<String> {
    let names = match names_in(&root.path(path), ENTRIES_MAX) {
        Ok((names, all)) => {
            if all > ENTRIES_MAX {
                faults.add(SourceError::TooMany {
                    what: "entries of a directory of sensors",
                    refused: all - ENTRIES_MAX,
                    max: ENTRIES_MAX,
                });
            }
            names
        }
        Err(fault) => {
            if !fault.is_absent() {
                seen.whole = false;
                faults.add(fault);
            }
            return Vec::new();
        }
    };
    let names = names.into_iter().filter(|name| name.starts_with(prefix));
    names
        .filter_map(|name| String::from_utf8(name).ok())
        .collect()
}

fn text(root: &SysRoot, path: &str, bytes: &mut Vec<u8>) -> Option<String> {
    root.short_records(path).read_and_close(bytes).ok()?;
    sole_text(bytes).map(|text| escape(text.as_bytes()))
}

fn number(root: &SysRoot, path: &str, bytes: &mut Vec<u8>) -> Option<u64> {
    root.short_records(path).read_and_close(bytes).ok()?;
    sole_number(bytes)
}
