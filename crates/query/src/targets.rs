//! Storage targets: the places of a node where data can be put, with what its streams say of them
//! now. The table `targets` is made of this, and the adviser of placement decides by it.
//!
//! A target is a mounted file system. What is known of it comes from streams of the file system and
//! of the disks below it, each with the time of the last look, so that whoever decides knows how
//! old it is. What no stream says is `None`, which is not the same as 0.

use std::collections::BTreeMap;

use barograph_model::{Descriptor, Sample};

/// The share of its greatest bandwidth that a disk is taken to have left however busy it is: those
/// who come later get a part, too.
const BANDWIDTH_LEFT_MIN: f64 = 0.05;
/// Most disks below one file system that are looked at.
const DISKS_MAX: usize = 256;

/// A value of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetValue {
    /// The value, in the unit of the field that has it.
    pub value: f64,
    /// The half width of its interval, in the same unit; 0 for a measurement.
    pub error: f64,
    /// The time of the last look at the resource, ns since the epoch. Of a value of several
    /// streams it is the oldest one.
    pub looked_ns: i64,
    /// What a forecast of the stream expects for now, with the half width of its interval.
    pub predicted: Option<(f64, f64)>,
}

impl TargetValue {
    /// The value of a sample with the time of the last look, and of what is predicted for now;
    /// `None` of one that is no number. An error that is not known counts as none.
    pub fn of(sample: &Sample, looked_ns: i64, predicted: Option<&Sample>) -> Option<Self> {
        let finite = |it: f64| Some(it).filter(|it| it.is_finite());
        let error = |it: &Sample| finite(f64::from(it.error));
        let predicted = predicted.and_then(|it| Some((finite(it.value.as_f64()?)?, error(it)?)));
        Some(Self {
            value: finite(sample.value.as_f64()?)?,
            error: error(sample).unwrap_or(0.0),
            looked_ns,
            predicted,
        })
    }
}

/// A mounted file system, and what is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageTarget {
    /// The node that has mounted it.
    pub node: String,
    /// Where it is mounted.
    pub mount: String,
    /// Its device, or what it was mounted from.
    pub device: String,
    /// Its type, such as `xfs`.
    pub fstype: String,
    /// Its tier, such as `nvme`.
    pub tier: String,
    /// The disks below it.
    pub disks: Vec<String>,
    /// Whether it is mounted for writing.
    pub is_writable: bool,
    /// Whether it has answered in time when it was asked last.
    pub is_responding: bool,
    /// All bytes that it can hold.
    pub capacity_bytes: Option<TargetValue>,
    /// Bytes that ordinary users can still write.
    pub free_bytes: Option<TargetValue>,
    /// Bytes of the requests that its disks have taken and not completed.
    pub queue_bytes: Option<TargetValue>,
    /// Bytes/s that a reader can expect: the forecast of a device's bandwidth if there is one,
    /// else as for a writer.
    pub read_bytes_s: Option<TargetValue>,
    /// Bytes/s that a writer can expect: the greatest bandwidth of the disk that has most left,
    /// less what is read and written now, and a twentieth at least.
    pub write_bytes_s: Option<TargetValue>,
    /// What the bandwidth of readers is based on: `forecast`, or `peak` for the greatest bandwidth
    /// less what is in use.
    pub bandwidth_basis: Option<&'static str>,
    /// The least health of its disks, 0 to 1.
    pub health: Option<TargetValue>,
}

/// The newest value of a stream that says something of a target.
pub struct TargetFact<'a> {
    /// The node of the stream.
    pub node: &'a str,
    /// Its descriptor.
    pub descriptor: &'a Descriptor,
    /// The value.
    pub value: TargetValue,
}

/// Whether a stream of this name says something of targets.
pub fn says_of_targets(name: &str) -> bool {
    Role::of(name).is_some()
}

/// The targets of which these streams say something, by node and mount.
pub fn storage_targets<'a>(facts: impl Iterator<Item = TargetFact<'a>>) -> Vec<StorageTarget> {
    let mut known = Known::default();
    for fact in facts {
        known.take(&fact);
    }
    let disks = known.disks;
    let targets = known.targets.into_iter();
    let targets = targets.map(|((node, mount), target)| {
        let target = StorageTarget {
            node,
            mount,
            ..target
        };
        disks.complete(target)
    });
    targets.collect()
}

/// What a stream says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Free,
    Capacity,
    Readonly,
    Responding,
    OnDisk,
    Peak,
    ReadBytes,
    WriteBytes,
    ReadOps,
    WriteOps,
    Inflight,
    Health,
    Forecast,
}

impl Role {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "filesystem.available.bytes" => Self::Free,
            "filesystem.total.bytes" => Self::Capacity,
            "filesystem.readonly.flag" => Self::Readonly,
            "filesystem.responding.flag" => Self::Responding,
            "device.on.flag" => Self::OnDisk,
            "disk.bandwidth.max.bytes_per_second" => Self::Peak,
            "disk.read.bytes_per_second" => Self::ReadBytes,
            "disk.write.bytes_per_second" => Self::WriteBytes,
            "disk.read.ops_per_second" => Self::ReadOps,
            "disk.write.ops_per_second" => Self::WriteOps,
            "disk.inflight.requests" => Self::Inflight,
            "device.health.ratio" => Self::Health,
            "disk.bandwidth.available" => Self::Forecast,
            _ => return None,
        })
    }
}

/// What the streams of disks say.
#[derive(Default)]
struct Disks {
    /// The disks below each device, by node and device.
    below: BTreeMap<(String, String), Vec<String>>,
    values: BTreeMap<(String, String, Role), TargetValue>,
}

#[derive(Default)]
struct Known {
    targets: BTreeMap<(String, String), StorageTarget>,
    disks: Disks,
}

impl Known {
    fn take(&mut self, fact: &TargetFact<'_>) {
        let Some(role) = Role::of(fact.descriptor.name.as_str()) else {
            return;
        };
        let label = |name: &str| fact.descriptor.labels.get(name);
        let (node, value) = (fact.node.to_owned(), fact.value);
        match role {
            Role::Free | Role::Capacity | Role::Readonly | Role::Responding => {
                let Some(mount) = label("mount") else { return };
                let text = |name: &str| label(name).unwrap_or_default().to_owned();
                let target = self.targets.entry((node, mount.to_owned()));
                let target = target.or_insert_with(|| StorageTarget {
                    device: text("device"),
                    fstype: text("fstype"),
                    tier: text("tier"),
                    is_writable: true,
                    is_responding: true,
                    ..StorageTarget::default()
                });
                match role {
                    Role::Free => target.free_bytes = Some(value),
                    Role::Capacity => target.capacity_bytes = Some(value),
                    Role::Readonly => target.is_writable = value.value == 0.0,
                    _ => target.is_responding = value.value != 0.0,
                }
            }
            Role::OnDisk => {
                let (Some(device), Some(disk)) = (label("device"), label("disk")) else {
                    return;
                };
                let below = self.disks.below.entry((node, device.to_owned()));
                let below = below.or_default();
                if value.value != 0.0 && below.len() < DISKS_MAX {
                    below.push(disk.to_owned());
                }
            }
            _ => {
                if let Some(device) = label("device") {
                    let key = (node, device.to_owned(), role);
                    self.disks.values.insert(key, value);
                }
            }
        }
    }
}

impl Disks {
    /// A target with what is known of its disks.
    fn complete(&self, mut target: StorageTarget) -> StorageTarget {
        let (node, device) = (&target.node, &target.device);
        let below = self.below.get(&(node.clone(), device.clone()));
        let disks = match below {
            Some(below) if !below.is_empty() => below.clone(),
            _ if self.value(node, device, Role::ReadBytes).is_some() => vec![device.clone()],
            _ => Vec::new(),
        };
        let each = |of: &dyn Fn(&str) -> Option<TargetValue>| -> Vec<TargetValue> {
            disks.iter().filter_map(|disk| of(disk)).collect()
        };
        let most = |values: Vec<TargetValue>| {
            values
                .into_iter()
                .max_by(|a, b| a.value.total_cmp(&b.value))
        };
        let left = most(each(&|disk| self.left(node, disk)));
        let forecast = most(each(&|disk| {
            let forecast = self.value(node, disk, Role::Forecast);
            forecast.filter(|it| it.value > 0.0)
        }));
        let health = each(&|disk| self.value(node, disk, Role::Health));
        let health = health
            .into_iter()
            .min_by(|a, b| a.value.total_cmp(&b.value));
        let queues = each(&|disk| self.queue_bytes(node, disk));
        let queue_bytes = (queues.len() == disks.len())
            .then(|| queues.into_iter().reduce(sum))
            .flatten();
        target.bandwidth_basis = match (forecast, left) {
            (Some(_), _) => Some("forecast"),
            (None, Some(_)) => Some("peak"),
            (None, None) => None,
        };
        (target.read_bytes_s, target.write_bytes_s) = (forecast.or(left), left);
        (target.health, target.queue_bytes) = (health, queue_bytes);
        target.disks = disks;
        target
    }

    fn value(&self, node: &str, disk: &str, role: Role) -> Option<TargetValue> {
        let key = (node.to_owned(), disk.to_owned(), role);
        self.values.get(&key).copied()
    }

    /// The bandwidth that a disk has left.
    fn left(&self, node: &str, disk: &str) -> Option<TargetValue> {
        let peak = self.value(node, disk, Role::Peak)?;
        let read = self.value(node, disk, Role::ReadBytes)?;
        let used = sum(read, self.value(node, disk, Role::WriteBytes)?);
        Some(TargetValue {
            value: (peak.value - used.value).max(peak.value * BANDWIDTH_LEFT_MIN),
            error: used.error,
            // The peak changes seldom: the age is that of what is in use.
            looked_ns: used.looked_ns,
            predicted: None,
        })
    }

    /// The bytes of the requests in flight, by the mean size of those that completed last.
    fn queue_bytes(&self, node: &str, disk: &str) -> Option<TargetValue> {
        let inflight = self.value(node, disk, Role::Inflight)?;
        let both = |read, write| {
            let read = self.value(node, disk, read)?;
            Some(sum(read, self.value(node, disk, write)?))
        };
        let bytes = both(Role::ReadBytes, Role::WriteBytes)?;
        let ops = both(Role::ReadOps, Role::WriteOps)?;
        let request_bytes = match (inflight.value, ops.value) {
            // Nothing waits, whatever the size of requests is.
            (waiting, _) if waiting <= 0.0 => 0.0,
            (_, ops) if ops > 0.0 => bytes.value / ops,
            _ => return None,
        };
        Some(TargetValue {
            value: inflight.value * request_bytes,
            ..inflight
        })
    }
}

fn sum(a: TargetValue, b: TargetValue) -> TargetValue {
    TargetValue {
        value: a.value + b.value,
        error: a.error + b.error,
        looked_ns: a.looked_ns.min(b.looked_ns),
        predicted: None,
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{Labels, Name, Unit, ValueType};

    use super::*;

    /// A stream with labels as `name=value`, and its value at a time in seconds.
    type Given<'a> = (&'a str, &'a str, f64, i64);

    fn targets(given: &[Given<'_>]) -> Vec<StorageTarget> {
        let descriptors: Vec<Descriptor> = given
            .iter()
            .map(|(name, labels, ..)| {
                let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
                let mut descriptor = Descriptor::gauge(
                    Name::new(*name).unwrap(),
                    ValueType::Float,
                    Unit::new("bytes").unwrap(),
                );
                descriptor.labels = Labels::new(pairs).unwrap();
                descriptor
            })
            .collect();
        let facts = given.iter().zip(&descriptors);
        storage_targets(
            facts.map(|((_, _, value, looked_s), descriptor)| TargetFact {
                node: "n1",
                descriptor,
                value: TargetValue {
                    value: *value,
                    error: 0.0,
                    looked_ns: looked_s * 1_000_000_000,
                    predicted: None,
                },
            }),
        )
    }

    const SCRATCH: &str = "mount=/scratch,device=sda1,fstype=xfs,tier=nvme";

    fn of_disk(disk: &'static str, used: f64, inflight: f64) -> Vec<Given<'static>> {
        let labels: &'static str = Box::leak(format!("device={disk}").into_boxed_str());
        vec![
            ("disk.bandwidth.max.bytes_per_second", labels, 1_000.0, 1),
            ("disk.read.bytes_per_second", labels, used, 9),
            ("disk.write.bytes_per_second", labels, 0.0, 8),
            ("disk.read.ops_per_second", labels, used / 10.0, 9),
            ("disk.write.ops_per_second", labels, 0.0, 9),
            ("disk.inflight.requests", labels, inflight, 9),
        ]
    }

    #[test]
    fn what_is_known_of_a_mount_is_put_together_from_its_disks() {
        let mut given = vec![
            ("filesystem.available.bytes", SCRATCH, 5e9, 7),
            ("filesystem.total.bytes", SCRATCH, 9e9, 7),
            ("device.on.flag", "device=sda1,disk=sda", 1.0, 1),
            ("device.on.flag", "device=sda1,disk=sdb", 0.0, 1),
            ("device.health.ratio", "device=sda", 0.5, 3),
        ];
        given.extend(of_disk("sda", 400.0, 3.0));
        given.extend(of_disk("sdb", 0.0, 0.0));
        let all = targets(&given);
        assert_eq!(all.len(), 1);
        let target = &all[0];
        assert_eq!((&*target.mount, &*target.tier), ("/scratch", "nvme"));
        assert_eq!(target.disks, ["sda"]);
        assert!(target.is_writable && target.is_responding);
        let left = target.write_bytes_s.unwrap();
        assert_eq!((left.value, left.looked_ns), (600.0, 8_000_000_000));
        assert_eq!(target.read_bytes_s, target.write_bytes_s);
        assert_eq!(target.bandwidth_basis, Some("peak"));
        assert_eq!(target.queue_bytes.unwrap().value, 30.0);
        assert_eq!(target.health.unwrap().value, 0.5);
        assert_eq!(target.free_bytes.unwrap().looked_ns, 7_000_000_000);
    }

    #[test]
    fn a_forecast_is_what_a_reader_can_expect() {
        let mut given = vec![("filesystem.available.bytes", SCRATCH, 5e9, 7)];
        given.push(("device.on.flag", "device=sda1,disk=sda", 1.0, 1));
        given.push((
            "disk.bandwidth.available",
            "device=sda,basis=mean",
            250.0,
            9,
        ));
        given.extend(of_disk("sda", 999.0, 0.0));
        let target = &targets(&given)[0];
        assert_eq!(target.read_bytes_s.unwrap().value, 250.0);
        // A busy disk has a twentieth left.
        assert_eq!(target.write_bytes_s.unwrap().value, 50.0);
        assert_eq!(target.bandwidth_basis, Some("forecast"));
        assert_eq!(target.queue_bytes.unwrap().value, 0.0);
    }

    #[test]
    fn what_no_stream_says_is_unknown() {
        let shared = "mount=/home,device=server:/home,fstype=nfs4,tier=pfs";
        let target = &targets(&[
            ("filesystem.available.bytes", shared, 5e9, 7),
            ("filesystem.readonly.flag", shared, 1.0, 7),
            ("filesystem.responding.flag", shared, 0.0, 7),
            ("device.on.flag", "device=sda1,disk=sda", 1.0, 1),
        ])[0];
        assert_eq!((target.queue_bytes, target.read_bytes_s), (None, None));
        assert_eq!((target.health, target.bandwidth_basis), (None, None));
        assert!(!target.is_writable && !target.is_responding);
        assert_eq!(targets(&[]), []);
        // A stripe over two disks has what the better one has left, and both queues.
        let mut given = vec![("filesystem.available.bytes", SCRATCH, 5e9, 7)];
        given.push(("device.on.flag", "device=sda1,disk=sda", 1.0, 1));
        given.push(("device.on.flag", "device=sda1,disk=sdb", 1.0, 1));
        given.extend(of_disk("sda", 400.0, 3.0));
        given.extend(of_disk("sdb", 100.0, 1.0));
        let target = &targets(&given)[0];
        assert_eq!(target.write_bytes_s.unwrap().value, 900.0);
        assert_eq!(target.queue_bytes.unwrap().value, 40.0);
    }
}
