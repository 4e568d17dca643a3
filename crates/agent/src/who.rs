//! The originators of the bytes that the disks move, in one sentence: the stream `node.who.text`,
//! for the page, `baro top` and other readers. The outlook also names the originator of a saturated
//! disk from here.
//!
//! The best evidence comes first: the kernel's counts of processes, then of jobs, then of control
//! groups, then the requests that the block trace saw, as long as it explains the bytes that are
//! moved. If bytes are not counted, the sentence states that; it never claims that nobody moves
//! them.
//!
//! This module is pure: samples and time are arguments.

use std::collections::{BTreeMap, HashMap};

use barograph_model::{Descriptor, NS_PER_S, Sample, StreamKey, TEXT_BYTES_MAX, Value};

/// Rate below which a disk or originator counts as idle, in bytes per second.
pub const MOVING_BYTES_PER_SECOND_MIN: f64 = 1.0;
/// Most originators in the sentence.
const NAMED_MAX: usize = 3;
/// Most characters of a name. A longer name loses its beginning, since that is the part that many
/// paths share.
const NAME_CHARS_MAX: usize = 40;
/// Time for which a writer is still named after its writes. Dirty pages are written back later, by
/// default after 30 s (`vm.dirty_expire_centisecs`), and a slow disk takes its time.
const LATELY_NS: i64 = 60 * NS_PER_S;
/// Share of the disks' bytes that originators must move to explain them.
const EXPLAINS: f64 = 0.5;

/// Beginnings of the names of kernel threads that pass on what others have written.
const WRITE_BACK: [&str; 8] = [
    "kworker/",
    "jbd2/",
    "kswapd",
    "xfsaild/",
    "btrfs-",
    "dmcrypt_write",
    "loop",
    "md",
];

/// A kind of subject with a rate of reading and a rate of writing. The order is that of the
/// evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Process,
    Job,
    Group,
    /// A process by its requests in the block trace; their device is known.
    Issuer,
    Disk,
}

/// A subject, and its device; the device is empty for the sum over all devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: Kind,
    name: String,
    device: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Read,
    Write,
    /// The current command name of a process.
    Command,
}

impl Measure {
    fn of(descriptor: &Descriptor) -> Option<(Subject, Self)> {
        use Kind::{Disk, Group, Issuer, Job, Process};
        use Measure::{Command, Read, Write};
        let (kind, label, measure) = match descriptor.name.as_str() {
            "process.read.bytes_per_second" => (Process, "pid", Read),
            "process.write.bytes_per_second" => (Process, "pid", Write),
            "process.command.name" => (Process, "pid", Command),
            "job.local.read.bytes_per_second" => (Job, "job", Read),
            "job.local.write.bytes_per_second" => (Job, "job", Write),
            "job.local.device.read.bytes_per_second" => (Job, "job", Read),
            "job.local.device.write.bytes_per_second" => (Job, "job", Write),
            "cgroup.io.read.bytes_per_second" => (Group, "cgroup", Read),
            "cgroup.io.write.bytes_per_second" => (Group, "cgroup", Write),
            "cgroup.device.read.bytes_per_second" => (Group, "cgroup", Read),
            "cgroup.device.write.bytes_per_second" => (Group, "cgroup", Write),
            "block_trace.process.read.bytes_per_second" => (Issuer, "pid", Read),
            "block_trace.process.write.bytes_per_second" => (Issuer, "pid", Write),
            "disk.read.bytes_per_second" => (Disk, "device", Read),
            "disk.write.bytes_per_second" => (Disk, "device", Write),
            _ => return None,
        };
        let name = descriptor.labels.get(label)?.to_owned();
        // The root group has the sum of all groups, so it names nobody.
        if kind == Group && name == "/" {
            return None;
        }
        let command = descriptor.labels.get("command").unwrap_or_default();
        if kind == Issuer && WRITE_BACK.iter().any(|of| command.starts_with(of)) {
            return None;
        }
        let device = match kind {
            Disk => "",
            _ => descriptor.labels.get("device").unwrap_or_default(),
        };
        let device = device.to_owned();
        Some((Subject { kind, name, device }, measure))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    read: f64,
    write: f64,
}

impl Flow {
    fn sum(self) -> f64 {
        self.read + self.write
    }
}

/// The originators with the greatest rates, and the sum over all of their kind.
#[derive(Debug, Default)]
struct Best<'a> {
    named: Vec<(&'a Subject, Flow)>,
    sum: f64,
}

/// The process that wrote the most lately, or a later one that wrote nearly as much.
#[derive(Clone, Debug)]
struct Lately {
    name: String,
    rate: f64,
    ts: i64,
}

/// The rates of disks and of their possible originators.
#[derive(Debug, Default)]
pub(crate) struct IoShares {
    roles: HashMap<StreamKey, (Subject, Measure)>,
    flows: BTreeMap<Subject, Flow>,
    /// Command names of processes, by process number.
    commands: HashMap<String, String>,
    lately: Option<Lately>,
}

impl IoShares {
    /// Takes note of a new stream, if the sentence uses it.
    pub(crate) fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        let Some((subject, measure)) = Measure::of(descriptor) else {
            return;
        };
        if let Some(command) = descriptor.labels.get("command") {
            let name = subject.name.clone();
            self.commands
                .entry(name)
                .or_insert_with(|| command.to_owned());
        }
        self.roles.insert(key, (subject, measure));
    }

    /// Forgets a retired stream.
    pub(crate) fn stream_removed(&mut self, key: StreamKey) {
        if let Some((subject, _)) = self.roles.remove(&key) {
            self.flows.remove(&subject);
            let is_process = matches!(subject.kind, Kind::Process | Kind::Issuer);
            if is_process && !self.is_known(&subject.name) {
                self.commands.remove(&subject.name);
            }
        }
    }

    /// Returns whether a process has a rate, by its own counts or by its requests.
    fn is_known(&self, process: &str) -> bool {
        [Kind::Process, Kind::Issuer].into_iter().any(|kind| {
            let first = Subject {
                kind,
                name: process.to_owned(),
                device: String::new(),
            };
            let next = self.flows.range(&first..).next();
            next.is_some_and(|(of, _)| of.kind == kind && of.name == process)
        })
    }

    /// Takes a changed value of a stream.
    pub(crate) fn sample(&mut self, key: StreamKey, sample: &Sample) {
        let Some((subject, measure)) = self.roles.get(&key) else {
            return;
        };
        if let Value::Text(command) = &sample.value {
            self.commands
                .insert(subject.name.clone(), command.to_string());
            return;
        }
        let Some(rate) = sample.value.as_f64() else {
            return;
        };
        let flow = self.flows.entry(subject.clone()).or_default();
        match measure {
            Measure::Read => flow.read = rate,
            Measure::Write => flow.write = rate,
            Measure::Command => return,
        }
        if subject.kind == Kind::Process && *measure == Measure::Write {
            let before = self.lately.as_ref().filter(|l| is_lately(l, sample.ts));
            if rate >= MOVING_BYTES_PER_SECOND_MIN
                && before.is_none_or(|before| rate >= before.rate * EXPLAINS)
            {
                let (name, ts) = (self.name(subject), sample.ts);
                self.lately = Some(Lately { name, rate, ts });
            }
        }
    }

    /// Returns a sentence of at most [`TEXT_BYTES_MAX`] bytes, best evidence first.
    pub(crate) fn sentence(&self, now_ns: i64) -> String {
        let moved: f64 = self.of(Kind::Disk).map(|(_, flow)| flow.sum()).sum();
        let best = self.best(None, moved);
        if best.named.is_empty() && moved < MOVING_BYTES_PER_SECOND_MIN {
            return match self.of(Kind::Disk).next() {
                Some(_) => "no disk moves anything".to_owned(),
                None => "not known: no disk has told its rates yet".to_owned(),
            };
        }
        let rest = match best.sum >= moved * EXPLAINS {
            true => String::new(),
            false => self.rest(&best, moved, now_ns),
        };
        let mut text = String::new();
        for (subject, flow) in &best.named {
            let part = self.phrase(subject, *flow);
            let room = TEXT_BYTES_MAX.saturating_sub(rest.len() + text.len() + 4);
            if text.is_empty() || part.len() <= room {
                text += if text.is_empty() { "" } else { "; " };
                text += &part;
            }
        }
        text += if text.is_empty() || rest.is_empty() {
            ""
        } else {
            "; "
        };
        text + &rest
    }

    /// Returns the words for the bytes that the named originators do not explain.
    fn rest(&self, best: &Best<'_>, moved: f64, now_ns: i64) -> String {
        let all = rate(moved);
        let is_named = |lately: &Lately| {
            let mut named = best.named.iter();
            named.any(|(subject, _)| self.name(subject) == lately.name)
        };
        match &self.lately {
            Some(l) if is_lately(l, now_ns) && is_named(l) => {
                format!("the kernel writes back more: {all} in all")
            }
            Some(l) if is_lately(l, now_ns) => {
                let ago_s = (now_ns - l.ts).max(0) / NS_PER_S / 5 * 5;
                let wrote = rate(l.rate);
                format!("{} wrote {wrote} {ago_s} s ago, now {all} move", l.name)
            }
            _ if best.named.is_empty() => {
                format!("not counted here: whose the {all} are; baro doctor says why")
            }
            _ => format!("whose the rest of {all} is, is not counted here"),
        }
    }

    /// Returns the words for the originator of a saturated disk's requests, as a suffix of the
    /// sentence about the disk. They are empty if the disk moves nothing, since then no recent
    /// request keeps it busy.
    pub(crate) fn behind(&self, device: &str, now_ns: i64) -> String {
        let moving = |flow: &Flow| flow.sum() >= MOVING_BYTES_PER_SECOND_MIN;
        let disks: Vec<_> = self
            .of(Kind::Disk)
            .filter(|(_, flow)| moving(flow))
            .collect();
        let Some((_, flow)) = disks.iter().find(|(disk, _)| disk.name == device) else {
            return String::new();
        };
        // The disk of a process is not known: it is this one if no other disk is moving.
        let is_alone = disks.len() == 1;
        let device = Some(device).filter(|_| !is_alone);
        let best = self.best(device, flow.sum());
        match (best.named.first(), &self.lately) {
            (Some((subject, _)), _) if best.sum >= flow.sum() * EXPLAINS => {
                format!(", by {}", self.name(subject))
            }
            (_, Some(l)) if is_alone && is_lately(l, now_ns) => format!(", written by {}", l.name),
            _ => ", by whom is not counted here".to_owned(),
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = (&Subject, &Flow)> {
        self.flows
            .iter()
            .filter(move |(subject, _)| subject.kind == kind)
    }

    /// Returns the originators of the best evidence that explains the bytes moved, or if none does,
    /// those that come nearest; over all devices, or on one.
    fn best(&self, device: Option<&str>, moved: f64) -> Best<'_> {
        let mut nearest = Best::default();
        for kind in [Kind::Process, Kind::Job, Kind::Group, Kind::Issuer] {
            let one = self.originators(kind, device);
            if !one.named.is_empty() && one.sum >= moved * EXPLAINS {
                return one;
            }
            if one.sum > nearest.sum {
                nearest = one;
            }
        }
        nearest
    }

    fn originators(&self, kind: Kind, device: Option<&str>) -> Best<'_> {
        let on = |subject: &Subject| match device {
            Some(device) => subject.device == device,
            None => self.is_told(subject),
        };
        let flows = self.of(kind);
        let moving = flows
            .filter(|(subject, flow)| on(subject) && flow.sum() >= MOVING_BYTES_PER_SECOND_MIN);
        let mut all: Vec<(&Subject, Flow)> =
            moving.map(|(subject, flow)| (subject, *flow)).collect();
        all.sort_by(|a, b| b.1.sum().total_cmp(&a.1.sum()).then(a.0.cmp(b.0)));
        let top = all.iter().filter(|(subject, _)| {
            let mut others = all.iter();
            !others.any(|(other, _)| is_within(subject, other))
        });
        let sum = top.map(|(_, flow)| flow.sum()).sum();
        // A group whose bytes are mostly those of a group within it is not named beside that one.
        let mut named = all.clone();
        named.retain(|(subject, flow)| {
            let enough = |inner: &Flow| inner.sum() >= flow.sum() * EXPLAINS;
            let mut others = all.iter();
            !others.any(|(other, inner)| is_within(other, subject) && enough(inner))
        });
        named.truncate(NAMED_MAX);
        Best { named, sum }
    }

    /// Returns whether a row counts if all devices are considered. For a job or group that is the
    /// sum over its devices, or each single device if the sum is idle, since devices that are
    /// stacked on others are in no sum.
    fn is_told(&self, subject: &Subject) -> bool {
        if subject.kind == Kind::Process {
            return true;
        }
        let mut sum = subject.clone();
        sum.device.clear();
        let is_sum = subject.device.is_empty();
        let by_sum = self
            .flows
            .get(&sum)
            .is_some_and(|flow| flow.sum() >= MOVING_BYTES_PER_SECOND_MIN);
        is_sum == by_sum
    }

    fn name(&self, subject: &Subject) -> String {
        match subject.kind {
            Kind::Process | Kind::Issuer => {
                let command = self.commands.get(&subject.name).map_or("", String::as_str);
                format!("{} ({})", short(command), subject.name)
            }
            Kind::Job => format!("job {}", short(&subject.name)),
            Kind::Group | Kind::Disk => short(&subject.name),
        }
    }

    /// Returns a phrase like `fio (4711) writes 410 MB/s`.
    fn phrase(&self, subject: &Subject, flow: Flow) -> String {
        let verbs = [("reads", flow.read), ("writes", flow.write)];
        let told = verbs
            .iter()
            .filter(|(_, bytes)| *bytes >= MOVING_BYTES_PER_SECOND_MIN);
        let told: Vec<String> = told
            .map(|(verb, bytes)| format!("{verb} {}", rate(*bytes)))
            .collect();
        let device = self.device_of(subject);
        let on = if device.is_empty() {
            String::new()
        } else {
            format!(" on {device}")
        };
        format!("{} {}{on}", self.name(subject), told.join(", "))
    }

    /// Returns the subject's device, if it is known and only one; empty otherwise.
    fn device_of<'a>(&'a self, subject: &'a Subject) -> &'a str {
        if !subject.device.is_empty() {
            return &subject.device;
        }
        let same = |of: &Subject| of.kind == subject.kind && of.name == subject.name;
        let on = self.flows.iter().filter(|(of, flow)| {
            let is_disk = self.of(Kind::Disk).any(|(disk, _)| disk.name == of.device);
            same(of) && is_disk && flow.sum() >= MOVING_BYTES_PER_SECOND_MIN
        });
        let devices: Vec<&str> = on.map(|(of, _)| of.device.as_str()).collect();
        match devices[..] {
            [device] => device,
            _ => "",
        }
    }
}

fn is_lately(lately: &Lately, now_ns: i64) -> bool {
    now_ns.saturating_sub(lately.ts) < LATELY_NS
}

/// Returns whether `inner` is a control group below `outer`, whose counts include it.
fn is_within(inner: &Subject, outer: &Subject) -> bool {
    let rest = inner.name.strip_prefix(&outer.name);
    inner.kind == Kind::Group && rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Returns a name, shortened to its end if it is too long.
fn short(name: &str) -> String {
    let chars = name.chars().count();
    match chars > NAME_CHARS_MAX {
        true => format!(
            "…{}",
            name.chars()
                .skip(chars + 1 - NAME_CHARS_MAX)
                .collect::<String>()
        ),
        false => name.to_owned(),
    }
}

/// Returns a text like `410 MB/s`: two digits, so that the sentence changes only when a reader
/// would care.
fn rate(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
    let (mut value, mut unit) = (round(bytes), 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value = round(value / 1000.0);
        unit += 1;
    }
    format!("{value} {}", UNITS[unit])
}

/// Rounds a value to two digits.
fn round(value: f64) -> f64 {
    let step = 10f64.powf(value.max(1.0).log10().floor() - 1.0);
    let rounded = (value / step).round() * step;
    // A step below one is not exact in binary; its multiples have one decimal.
    (rounded * 10.0).round() / 10.0
}

#[cfg(test)]
#[path = "who/tests.rs"]
mod tests;
