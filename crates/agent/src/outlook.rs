//! The outlook: the state of the node's storage in one sentence, composed from its streams. The
//! page and `baro top` show it at the top; for other readers it is the stream `node.outlook.text`.
//!
//! This module is pure: samples and time are arguments.

use std::collections::BTreeMap;
use std::collections::HashMap;

use barograph_model::{Descriptor, Labels, NS_PER_S, Sample, StreamKey, TEXT_BYTES_MAX};

use crate::who::IoShares;
use barograph_recorder::PredictedReach;
use barograph_source::tier_place;

/// Busy ratio from which a disk counts as saturated, once it has lasted [`SATURATED_NS`].
const SATURATED_RATIO: f64 = 0.9;
const SATURATED_NS: i64 = 5 * NS_PER_S;
/// Busy ratio below which a saturated disk no longer counts as saturated. The lower threshold
/// prevents flapping.
const RELIEVED_RATIO: f64 = 0.7;
/// Share of free bytes below which a file system counts as nearly full.
const NEARLY_FULL_RATIO: f64 = 0.05;
/// Most bytes of a problem of the archive or of the files of statements that is quoted in full. A
/// longer one is replaced by a hint where to read it.
const TROUBLE_BYTES_MAX: usize = 64;
/// Share of time from which stalls of tasks on I/O are mentioned.
const PRESSURE_RATIO: f64 = 0.25;
/// A file system that fills later than this is not mentioned.
const SOON_NS: i64 = 24 * 3_600 * NS_PER_S;
/// Free bytes of file systems for an ordinary user: at 0 it is full.
pub(crate) const FREE: &str = "filesystem.available.bytes";
/// Share of available memory below which memory is mentioned as short.
const MEMORY_RATIO: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    DiskBusy,
    FilesystemAvailable,
    FilesystemTotal,
    FilesystemReadonly,
    FilesystemResponding,
    PressureIo,
    MemoryAvailable,
    MemoryTotal,
    SourceUp,
}

impl Role {
    fn of(descriptor: &Descriptor) -> Option<(Self, String)> {
        let label = |name: &str| descriptor.labels.get(name).unwrap_or_default().to_owned();
        Some(match descriptor.name.as_str() {
            "disk.busy.ratio" => (Self::DiskBusy, label("device")),
            FREE => (Self::FilesystemAvailable, label("mount")),
            "filesystem.total.bytes" => (Self::FilesystemTotal, label("mount")),
            "filesystem.readonly.flag" => (Self::FilesystemReadonly, label("mount")),
            "filesystem.responding.flag" => (Self::FilesystemResponding, label("mount")),
            "pressure.io.some.ratio" => (Self::PressureIo, String::new()),
            "memory.available.bytes" => (Self::MemoryAvailable, String::new()),
            "memory.total.bytes" => (Self::MemoryTotal, String::new()),
            "source.up.flag" => (Self::SourceUp, label("source")),
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    value: f64,
    /// Time since which the value has been on the bad side of its threshold.
    bad_since: Option<i64>,
}

/// The values of the few streams that the sentence is made of.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    roles: HashMap<StreamKey, (Role, String)>,
    states: BTreeMap<(Role, String), State>,
    /// The place of each file system among all, by mount: see [`tier_place`].
    places: BTreeMap<String, usize>,
    /// The time at which each filling file system will be full, and whether that is calibrated, by
    /// mount.
    filling: BTreeMap<String, (i64, bool)>,
    who: IoShares,
    /// Problem of the archive; empty if there is none.
    archive_trouble: String,
    /// Problem with the files of statements; empty if there is none.
    statements_trouble: String,
}

impl Outlook {
    /// Takes note of a new stream, if the sentence uses it.
    pub(crate) fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        if let Some(role) = Role::of(descriptor) {
            if role.0 == Role::FilesystemTotal {
                let tier = descriptor.labels.get("tier").unwrap_or_default();
                self.places.insert(role.1.clone(), tier_place(tier));
            }
            self.roles.insert(key, role);
        }
        self.who.stream_added(key, descriptor);
    }

    /// Forgets a retired stream.
    pub(crate) fn stream_removed(&mut self, key: StreamKey) {
        if let Some(role) = self.roles.remove(&key) {
            self.states.remove(&role);
            if role.0 == Role::FilesystemTotal {
                self.places.remove(&role.1);
            }
        }
        self.who.stream_removed(key);
    }

    /// Takes a changed value of a stream.
    pub(crate) fn sample(&mut self, key: StreamKey, sample: &Sample) {
        self.who.sample(key, sample);
        let (Some(role), Some(value)) = (self.roles.get(&key), sample.value.as_f64()) else {
            return;
        };
        let was = self.states.get(role).and_then(|s| s.bad_since);
        let bad = match role.0 {
            Role::DiskBusy if was.is_some() => value >= RELIEVED_RATIO,
            Role::DiskBusy => value >= SATURATED_RATIO,
            Role::PressureIo => value >= PRESSURE_RATIO,
            Role::FilesystemResponding | Role::SourceUp => value == 0.0,
            _ => false,
        };
        let bad_since = if bad { was.or(Some(sample.ts)) } else { None };
        self.states.insert(role.clone(), State { value, bad_since });
    }

    /// Replaces the times at which file systems are expected to be full, from the forecasts of the
    /// streams of [`FREE`].
    pub(crate) fn filling<'a>(&mut self, all: impl Iterator<Item = (&'a Labels, PredictedReach)>) {
        self.filling.clear();
        for (labels, reached) in all {
            let is_calibrated = reached.expected_s <= reached.known_s;
            // An error as long as the time itself is of no use to a reader.
            let is_narrow = reached.early_s.is_some_and(|early_s| {
                early_s > reached.expected_s / 2.0 || reached.late_s.is_some()
            });
            if is_calibrated && !is_narrow {
                continue;
            }
            let after_ns = (reached.expected_s * NS_PER_S as f64) as i64;
            let mount = labels.get("mount").unwrap_or_default().to_owned();
            let full_ns = reached.looked_ns.saturating_add(after_ns);
            self.filling.insert(mount, (full_ns, is_calibrated));
        }
    }

    /// Sets the problem of the archive; empty if there is none.
    pub(crate) fn archive(&mut self, trouble: &str) {
        if self.archive_trouble != trouble {
            trouble.clone_into(&mut self.archive_trouble);
        }
    }

    /// Sets the problem with the files of statements; empty if there is none.
    pub(crate) fn statements(&mut self, trouble: String) {
        self.statements_trouble = trouble;
    }

    /// Returns the sentence, gravest part first, at most [`TEXT_BYTES_MAX`] bytes; `calm` if there
    /// is nothing to report. Values are rounded so that the sentence changes only when a reader
    /// would care.
    pub(crate) fn sentence(&self, now_ns: i64) -> String {
        let mut parts = Vec::new();
        self.hung(now_ns, &mut parts);
        self.tell_saturated(now_ns, &mut parts);
        self.without_history(&mut parts);
        self.without_statements(&mut parts);
        self.full(&mut parts);
        self.soon_full(now_ns, &mut parts);
        self.nearly_full(&mut parts);
        self.short_of_memory(&mut parts);
        self.stalled(now_ns, &mut parts);
        self.blind(&mut parts);
        if parts.is_empty() {
            return "calm".into();
        }
        join(&parts)
    }

    /// Returns the sentence about who moves the bytes of the disks, for the stream `node.who.text`.
    pub(crate) fn who(&self, now_ns: i64) -> String {
        self.who.sentence(now_ns)
    }

    fn of(&self, role: Role) -> impl Iterator<Item = (&str, State)> {
        self.states
            .iter()
            .filter(move |((r, _), _)| *r == role)
            .map(|((_, what), s)| (what.as_str(), *s))
    }

    fn value(&self, role: Role, what: &str) -> Option<f64> {
        self.states.get(&(role, what.to_owned())).map(|s| s.value)
    }

    fn hung(&self, now_ns: i64, parts: &mut Vec<String>) {
        for (mount, state) in self.of(Role::FilesystemResponding) {
            if let Some(since) = state.bad_since {
                parts.push(format!(
                    "{mount} has not answered for {}",
                    span(now_ns - since)
                ));
            }
        }
    }

    /// Returns every disk that is followed, and the ns for which it has been saturated; 0 if it is
    /// not. The sentence, the page and `baro top` all use this one rule for the word.
    pub(crate) fn saturated(&self, now_ns: i64) -> impl Iterator<Item = (&str, i64)> {
        self.of(Role::DiskBusy).map(move |(device, state)| {
            let busy_ns = state.bad_since.map_or(0, |since| now_ns - since);
            (device, if busy_ns >= SATURATED_NS { busy_ns } else { 0 })
        })
    }

    fn tell_saturated(&self, now_ns: i64, parts: &mut Vec<String>) {
        for (device, busy_ns) in self.saturated(now_ns).filter(|(_, ns)| *ns > 0) {
            let value = self.value(Role::DiskBusy, device).unwrap_or(f64::NAN);
            let percent = (value * 100.0).round();
            parts.push(format!(
                "{device} is saturated: {percent} % busy for {}{}",
                span(busy_ns),
                self.who.behind(device, now_ns)
            ));
        }
    }

    fn without_history(&self, parts: &mut Vec<String>) {
        match self.archive_trouble.as_str() {
            "" => {}
            // Other parts need room in the sentence too.
            long if long.len() > TROUBLE_BYTES_MAX => {
                let what = long.split(": ").next().unwrap_or_default();
                parts.push(format!("{what}: see baro status"));
            }
            trouble => parts.push(trouble.to_owned()),
        }
    }

    fn without_statements(&self, parts: &mut Vec<String>) {
        match self.statements_trouble.as_str() {
            "" => {}
            long if long.len() > TROUBLE_BYTES_MAX => {
                parts.push("statements are not all kept: see baro doctor".into());
            }
            trouble => parts.push(format!("statements are not all kept: {trouble}")),
        }
    }

    /// Returns every mount whose size is known and to which can be written, its available bytes and
    /// its total bytes: those on devices first, and of these the largest.
    fn room(&self) -> Vec<(&str, f64, f64)> {
        let known = self.of(Role::FilesystemAvailable);
        let known = known.filter_map(|(mount, state)| {
            let total = self.value(Role::FilesystemTotal, mount)?;
            let is_writable = !self.is_readonly(mount);
            (total > 0.0 && is_writable).then_some((mount, state.value, total))
        });
        let mut room: Vec<_> = known.collect();
        room.sort_by(|(a, _, a_total), (b, _, b_total)| {
            let place = |mount: &str| self.places.get(mount).copied();
            let by_place = place(a).cmp(&place(b));
            by_place.then_with(|| b_total.total_cmp(a_total))
        });
        room
    }

    /// Whether nothing can be written to a mount, such as an image, which has no free space and is
    /// as its maker wanted it.
    fn is_readonly(&self, mount: &str) -> bool {
        self.value(Role::FilesystemReadonly, mount) == Some(1.0)
    }

    fn full(&self, parts: &mut Vec<String>) {
        let full = self.room().into_iter();
        let full = full.filter(|(_, available, _)| *available <= 0.0);
        parts.extend(full.map(|(mount, ..)| format!("{mount} is full")));
    }

    /// Comes after what fills soon: a file system may stay nearly full for years.
    fn nearly_full(&self, parts: &mut Vec<String>) {
        for (mount, available, total) in self.room() {
            if available > 0.0 && available < total * NEARLY_FULL_RATIO {
                let percent = (available / total * 100.0).floor();
                parts.push(format!("{mount} is nearly full: {percent} % free"));
            }
        }
    }

    fn soon_full(&self, now_ns: i64, parts: &mut Vec<String>) {
        let mut soonest: Vec<_> = self.filling.iter().collect();
        soonest.sort_by_key(|(_, (full_ns, _))| *full_ns);
        for (mount, (full_ns, is_calibrated)) in soonest {
            let left_ns = full_ns.saturating_sub(now_ns);
            if (1..SOON_NS).contains(&left_ns) && !self.is_readonly(mount) {
                let basis = if *is_calibrated {
                    ""
                } else {
                    " if it goes on so, not calibrated yet"
                };
                parts.push(format!("{mount} fills in {}{basis}", span(left_ns)));
            }
        }
    }

    fn short_of_memory(&self, parts: &mut Vec<String>) {
        let available = self.value(Role::MemoryAvailable, "");
        let total = self.value(Role::MemoryTotal, "").unwrap_or(0.0);
        if let Some(available) = available.filter(|a| *a < total * MEMORY_RATIO) {
            parts.push(format!(
                "memory is short: {} % available",
                (available / total * 100.0).floor()
            ));
        }
    }

    fn stalled(&self, now_ns: i64, parts: &mut Vec<String>) {
        for (_, state) in self.of(Role::PressureIo) {
            if let Some(since) = state.bad_since.filter(|s| now_ns - s >= SATURATED_NS) {
                let percent = (state.value * 100.0).round();
                parts.push(format!(
                    "tasks stall on I/O {percent} % of the time for {}",
                    span(now_ns - since)
                ));
            }
        }
    }

    fn blind(&self, parts: &mut Vec<String>) {
        let down: Vec<&str> = self
            .of(Role::SourceUp)
            .filter(|(_, s)| s.value == 0.0)
            .map(|(name, _)| name)
            .collect();
        if !down.is_empty() {
            parts.push(format!("not seen: {}", down.join(", ")));
        }
    }
}

/// Joins as many whole parts as fit; the rest are counted.
fn join(parts: &[String]) -> String {
    for kept in (1..=parts.len()).rev() {
        let more = parts.len() - kept;
        let tail = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        let text = parts[..kept].join("; ") + &tail;
        if text.len() <= TEXT_BYTES_MAX {
            return text;
        }
    }
    parts[0].clone() // `Value::text` cuts it.
}

/// Returns a time span in one or two units, coarse enough to read at a glance.
fn span(ns: i64) -> String {
    let s = (ns / NS_PER_S).max(0);
    match s {
        0..120 => format!("{} s", s / 5 * 5),
        120..7200 => format!("{} min", s / 60),
        _ => format!("{} h", s / 3600),
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{Labels, Name, Unit, ValueType};

    use super::*;

    struct Bench {
        outlook: Outlook,
        next: u32,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                outlook: Outlook::default(),
                next: 0,
            }
        }

        fn stream(&mut self, name: &str, label: &str, value: &str) -> StreamKey {
            let labels = if label.is_empty() {
                vec![]
            } else {
                vec![(label, value)]
            };
            self.labelled(name, labels)
        }

        fn labelled(&mut self, name: &str, labels: Vec<(&str, &str)>) -> StreamKey {
            let descriptor = Descriptor {
                labels: Labels::new(labels).unwrap(),
                ..Descriptor::gauge(
                    Name::new(name).unwrap(),
                    ValueType::Float,
                    Unit::new("").unwrap(),
                )
            };
            self.next += 1;
            self.outlook.stream_added(StreamKey(self.next), &descriptor);
            StreamKey(self.next)
        }

        /// A file system; returns the stream that says whether it is mounted read-only.
        fn filesystem(&mut self, mount: &str, tier: &str, total: f64, free: f64) -> StreamKey {
            let values = [
                ("filesystem.total.bytes", total),
                (FREE, free),
                ("filesystem.readonly.flag", 0.0),
            ];
            let keys = values.map(|(name, value)| {
                let key = self.labelled(name, vec![("mount", mount), ("tier", tier)]);
                self.put(key, 1, value);
                key
            });
            keys[2]
        }

        fn put(&mut self, key: StreamKey, s: i64, value: f64) {
            self.outlook
                .sample(key, &Sample::measured(s * NS_PER_S, value));
        }

        fn check(&self, s: i64, expect: &str) {
            assert_eq!(self.outlook.sentence(s * NS_PER_S), expect);
        }
    }

    #[test]
    fn a_saturated_disk_is_named_until_it_is_relieved() {
        let mut b = Bench::new();
        let vda = b.stream("disk.busy.ratio", "device", "vda");
        b.check(0, "calm");
        b.put(vda, 1, 0.97);
        b.check(3, "calm");
        b.check(42, "vda is saturated: 97 % busy for 40 s");
        b.put(vda, 50, 0.8);
        b.check(51, "vda is saturated: 80 % busy for 50 s");
        let written = b.stream("disk.write.bytes_per_second", "device", "vda");
        b.put(written, 51, 1e9);
        b.check(
            52,
            "vda is saturated: 80 % busy for 50 s, by whom is not counted here",
        );
        let group = b.stream("cgroup.io.write.bytes_per_second", "cgroup", "/a");
        b.put(group, 52, 1e9);
        b.check(53, "vda is saturated: 80 % busy for 50 s, by /a");
        b.put(vda, 60, 0.3);
        b.check(61, "calm");
    }

    #[test]
    fn hung_full_and_blind_are_told_in_order() {
        let mut b = Bench::new();
        let free = b.stream("filesystem.available.bytes", "mount", "/");
        let total = b.stream("filesystem.total.bytes", "mount", "/");
        let scratch = b.stream("filesystem.responding.flag", "mount", "/scratch");
        let up = b.stream("source.up.flag", "source", "pressure");
        b.put(total, 1, 1000.0);
        b.put(free, 1, 31.0);
        b.put(scratch, 1, 0.0);
        b.put(up, 1, 0.0);
        b.check(
            601,
            "/scratch has not answered for 10 min; / is nearly full: 3 % free; not seen: pressure",
        );
        b.outlook.archive("history is not written: no space");
        b.check(
            601,
            "/scratch has not answered for 10 min; history is not written: no space; \
             / is nearly full: 3 % free; not seen: pressure",
        );
        let why = "cannot write /a/long/path: ".repeat(9);
        b.outlook.archive(&format!("history is not written: {why}"));
        b.check(
            601,
            "/scratch has not answered for 10 min; history is not written: see baro status; \
             / is nearly full: 3 % free; not seen: pressure",
        );
        b.outlook.archive("");
        b.outlook.stream_removed(scratch);
        b.put(up, 2, 1.0);
        b.check(601, "/ is nearly full: 3 % free");
        b.put(free, 602, 0.0);
        b.check(603, "/ is full");
    }

    #[test]
    fn file_systems_on_devices_lead_and_what_is_read_only_is_not_full() {
        let mut b = Bench::new();
        b.filesystem("/a", "other", 9e12, 0.0);
        b.filesystem("/dev/shm", "memory", 9e12, 0.0);
        b.filesystem("/b", "nvme", 1e9, 0.0);
        let image = b.filesystem("/c", "hdd", 2e9, 0.0);
        b.filesystem("/run/barograph", "memory", 10e12, 1e11);
        let mostly = b.filesystem("/srv", "ssd", 1e9, 1e7);
        b.check(
            2,
            "/c is full; /b is full; /a is full; /dev/shm is full; \
             /srv is nearly full: 1 % free; /run/barograph is nearly full: 1 % free",
        );
        b.put(image, 3, 1.0);
        b.put(mostly, 3, 1.0);
        b.check(
            4,
            "/b is full; /a is full; /dev/shm is full; /run/barograph is nearly full: 1 % free",
        );
        let reached = PredictedReach {
            looked_ns: 0,
            expected_s: 1_860.0,
            early_s: None,
            late_s: None,
            known_s: 64.0,
        };
        let labels = Labels::new([("mount", "/srv")]).unwrap();
        b.outlook.filling(std::iter::once((&labels, reached)));
        let with_srv = |b: &Bench| b.outlook.sentence(4 * NS_PER_S).contains("/srv fills in");
        assert!(!with_srv(&b), "nothing is written there any more");
        b.put(mostly, 5, 0.0);
        assert!(with_srv(&b));
    }

    #[test]
    fn what_fills_is_told_before_its_time_is_calibrated() {
        let mut b = Bench::new();
        let labels = Labels::new([("mount", "/scratch")]).unwrap();
        let mut check = |expected_s, early_s, known_s, expect: &str| {
            let reached = PredictedReach {
                looked_ns: 100 * NS_PER_S,
                expected_s,
                early_s,
                late_s: None,
                known_s,
            };
            b.outlook.filling(std::iter::once((&labels, reached)));
            b.check(160, expect);
        };
        let straight = "/scratch fills in 30 min if it goes on so, not calibrated yet";
        check(1_860.0, None, 64.0, straight);
        check(1_860.0, Some(1_700.0), 3_840.0, "/scratch fills in 30 min");
        check(1_860.0, Some(3.0), 3_840.0, "calm");
        check(1_860.0, None, 3_840.0, "calm");
        check(90_000.0, None, 64.0, "calm");
        check(60.0, None, 64.0, "calm");
        b.outlook.filling(std::iter::empty());
        b.check(160, "calm");
        let sooner = Labels::new([("mount", "/tmp")]).unwrap();
        let both = [(&labels, 1_860.0), (&sooner, 660.0)];
        let both = both.map(|(labels, expected_s)| {
            let reached = PredictedReach {
                looked_ns: 100 * NS_PER_S,
                expected_s,
                early_s: Some(expected_s - 1.0),
                late_s: None,
                known_s: 3_840.0,
            };
            (labels, reached)
        });
        b.outlook.filling(both.into_iter());
        b.check(160, "/tmp fills in 10 min; /scratch fills in 30 min");
        let total = b.stream("filesystem.total.bytes", "mount", "/home");
        let free = b.stream("filesystem.available.bytes", "mount", "/home");
        b.put(total, 160, 1000.0);
        b.put(free, 160, 31.0);
        b.check(
            160,
            "/tmp fills in 10 min; /scratch fills in 30 min; /home is nearly full: 3 % free",
        );
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let parts: Vec<String> = (0..9)
            .map(|i| format!("disk number {i} is saturated"))
            .collect();
        let text = join(&parts);
        assert!(
            text.len() <= TEXT_BYTES_MAX && text.ends_with("; and 5 more"),
            "{text}"
        );
    }
}
