//! The causes of present reads and writes: processes, jobs, control groups and those that the block
//! trace shows, best evidence first. The lines are the same as on the page.

use std::collections::BTreeMap;

use barograph_agent::MOVING_BYTES_PER_SECOND_MIN;
use barograph_client::{LatestValue, Observer};
use barograph_model::{Selector, Value};

/// Most lines of one kind of cause.
const LINES_MAX: usize = 4;
/// The root control group, which holds the sum of all others and so names nobody.
const ROOT: &str = "/";

/// A cause of I/O.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    /// Source of the numbers: process, job, control group or trace.
    pub kind: &'static str,
    /// Name of the process, job or group.
    pub name: String,
    /// The device, if it is known; empty for the sum of all devices.
    pub device: String,
    /// Bytes read per second.
    pub read: f64,
    /// Bytes written per second.
    pub write: f64,
}

impl Cause {
    fn sum(&self) -> f64 {
        self.read + self.write
    }
}

/// A rate, with its labels split up: cause, device, and direction.
struct Rate {
    name: String,
    /// First command name of a process.
    command: String,
    device: String,
    is_write: bool,
    bytes: f64,
}

/// The greatest causes of each kind.
pub(super) fn causes(observer: &Observer) -> Vec<Cause> {
    let groups = joined("control group", rates(observer, "cgroup.io", "cgroup"));
    let on_devices = joined("control group", rates(observer, "cgroup.device", "cgroup"));
    let kinds = [
        joined("process", processes(observer, "process")),
        joined("job", rates(observer, "job.local", "job")),
        by_device(groups, on_devices),
        joined("trace", processes(observer, "block_trace.process")),
    ];
    kinds.into_iter().flat_map(greatest).collect()
}

fn latest(observer: &Observer, name: &str) -> Vec<LatestValue> {
    let selector = Selector::parse(name).expect("a literal name");
    let mut values = observer.latest(&selector);
    values.retain(|value| !value.stale);
    values
}

fn rates(observer: &Observer, stem: &str, label: &str) -> Vec<Rate> {
    let mut all = Vec::new();
    for (side, is_write) in [("read", false), ("write", true)] {
        let values = latest(observer, &format!("{stem}.{side}.bytes_per_second"));
        all.extend(values.iter().filter_map(|value| {
            let labels = &value.descriptor.labels;
            Some(Rate {
                name: labels.get(label)?.to_owned(),
                command: labels.get("command").unwrap_or_default().to_owned(),
                device: labels.get("device").unwrap_or_default().to_owned(),
                is_write,
                bytes: value.sample.as_ref()?.value.as_f64()?,
            })
        }));
    }
    all
}

/// Rates of processes, by their present names; a process whose name is not followed keeps the name
/// in its labels.
fn processes(observer: &Observer, stem: &str) -> Vec<Rate> {
    let names = latest(observer, "process.command.name");
    let names: BTreeMap<String, String> = names
        .iter()
        .filter_map(|value| match &value.sample.as_ref()?.value {
            Value::Text(name) => {
                let pid = value.descriptor.labels.get("pid")?;
                Some((pid.to_owned(), name.to_string()))
            }
            _ => None,
        })
        .collect();
    let mut all = rates(observer, stem, "pid");
    for rate in &mut all {
        let command = names.get(&rate.name).unwrap_or(&rate.command);
        rate.name = format!("{command} ({})", rate.name);
    }
    all
}

/// Joins reads and writes of one cause on one device, and drops causes that move nothing.
fn joined(kind: &'static str, rates: Vec<Rate>) -> Vec<Cause> {
    let mut all: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    for rate in rates {
        let flow = all.entry((rate.name, rate.device)).or_default();
        match rate.is_write {
            true => flow.1 += rate.bytes,
            false => flow.0 += rate.bytes,
        }
    }
    let causes = all
        .into_iter()
        .map(|((name, device), (read, write))| Cause {
            kind,
            name,
            device,
            read,
            write,
        });
    let causes =
        causes.filter(|cause| cause.sum() >= MOVING_BYTES_PER_SECOND_MIN && cause.name != ROOT);
    causes.collect()
}

/// Adds the device to a group that uses only one, and adds groups that only appear on devices, such
/// as those that are stacked on others.
fn by_device(mut groups: Vec<Cause>, on_devices: Vec<Cause>) -> Vec<Cause> {
    for group in &mut groups {
        let mut on = on_devices.iter().filter(|cause| cause.name == group.name);
        if let (Some(only), None) = (on.next(), on.next()) {
            group.device.clone_from(&only.device);
        }
    }
    let told: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let others = on_devices
        .into_iter()
        .filter(|cause| !told.contains(&cause.name));
    groups.extend(others);
    groups
}

fn greatest(mut all: Vec<Cause>) -> Vec<Cause> {
    all.sort_by(|a, b| b.sum().total_cmp(&a.sum()).then(a.name.cmp(&b.name)));
    all.truncate(LINES_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(name: &str, device: &str, is_write: bool, bytes: f64) -> Rate {
        Rate {
            name: name.into(),
            command: String::new(),
            device: device.into(),
            is_write,
            bytes,
        }
    }

    #[test]
    fn groups_with_their_devices() {
        let sums = vec![
            rate("/", "", true, 99.0),
            rate("/a", "", true, 80.0),
            rate("/a", "", false, 1.0),
            rate("/b", "", true, 0.0),
            rate("/c", "", true, 70.0),
        ];
        let on_devices = vec![
            rate("/a", "vda", true, 80.0),
            rate("/a", "vda", false, 1.0),
            rate("/b", "loop0", true, 60.0),
            rate("/c", "vda", true, 30.0),
            rate("/c", "vdb", true, 40.0),
        ];
        let told = greatest(by_device(
            joined("control group", sums),
            joined("control group", on_devices),
        ));
        let told: Vec<_> = told
            .iter()
            .map(|c| (&*c.name, &*c.device, c.read, c.write))
            .collect();
        assert_eq!(
            told,
            [
                ("/a", "vda", 1.0, 80.0),
                ("/c", "", 0.0, 70.0),
                ("/b", "loop0", 0.0, 60.0)
            ]
        );
    }

    #[test]
    fn of_one_kind_the_greatest() {
        let many = (0..9).map(|n| rate(&format!("p ({n})"), "", false, f64::from(n)));
        let told = greatest(joined("process", many.collect()));
        let names: Vec<_> = told.iter().map(|cause| &*cause.name).collect();
        assert_eq!(names, ["p (8)", "p (7)", "p (6)", "p (5)"]);
    }
}
