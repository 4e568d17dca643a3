//! The control groups that write to one device, and the bytes that each has written by itself.
//!
//! The counter of a group includes the groups within it. A group within another one, and that one
//! without it, are two writers.

use std::collections::BTreeMap;

use barograph_forecast::interference::{Load, Writer, WriterEstimate};

use super::readings::Readings;

/// Most groups of one device that are followed.
pub(super) const GROUPS_MAX: usize = 64;
/// A group that writes less than this share of its counter by itself is no writer: counters of
/// groups are not read at the same moment.
const OWN_SHARE: f64 = 0.02;
/// Time for which a group that has ended is kept, in seconds: the same service may start again.
const GONE_S: f64 = 4.0 * 3_600.0;
/// The weight of a group. Weights are not read: all count alike.
pub(super) const WEIGHT: f64 = 100.0;
/// Shortest time over which a rate counts as one that the device can do, in seconds.
const SECOND_S: f64 = 0.9;

/// The groups of one device.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: BTreeMap<String, Group>,
    /// Time of the readings that are taken in at present, in seconds.
    open_s: Option<f64>,
    /// Time of the newest readings of all groups, in seconds.
    closed_s: Option<f64>,
    /// Usual time between two readings, in seconds; 0 while it is unknown.
    interval_s: f64,
    /// Bytes that all groups together have written.
    moved: f64,
    /// Time in seconds, and these bytes, at the beginning of the present second.
    since: Option<(f64, f64)>,
    /// The greatest rate of all groups together in any second, in bytes per second.
    fastest: f64,
    /// Number of readings of groups for which there was no room.
    pub(super) left_out: u64,
}

/// A control group that writes to the device.
#[derive(Debug, Default)]
struct Group {
    /// The counter at the newest reading and at the one before; none while the group is gone.
    counter: Option<f64>,
    before: Option<f64>,
    /// Whether its counter was read in a round before. Bytes that it wrote before it was found are
    /// of an unknown time.
    is_read: bool,
    /// The nearest group around it that is known.
    within: Option<String>,
    /// Time since which it is gone, in seconds.
    gone_s: Option<f64>,
    /// Bytes that its counter has grown by.
    grown: f64,
    /// Bytes written by itself; may fall by what the groups within it were read later.
    own: f64,
    /// The largest of these.
    told: f64,
    readings: Readings,
}

/// A writer with its estimate.
#[derive(Debug, Clone)]
pub(super) struct NamedWriter {
    /// The path of its group.
    pub(super) name: String,
    /// The estimate of its load.
    pub(super) estimate: WriterEstimate,
}

impl NamedWriter {
    /// The writer as the model of the device takes it.
    pub(super) fn writer(&self) -> Writer {
        Writer {
            weight: WEIGHT,
            estimate: self.estimate,
        }
    }
}

impl Groups {
    /// Takes in a reading of a group's counter, at a time in seconds.
    pub(super) fn read(&mut self, name: &str, at_s: f64, bytes: f64) {
        if self.open_s.is_some_and(|open_s| open_s < at_s) {
            self.close();
        }
        if !self.by_name.contains_key(name) && !self.add(name) {
            return;
        }
        self.open_s = Some(at_s);
        if let Some(group) = self.by_name.get_mut(name) {
            group.counter = Some(bytes);
            group.gone_s = None;
        }
    }

    /// Takes note that a group has ended. Its bursts are kept for a time.
    pub(super) fn end(&mut self, name: &str) {
        let now_s = self.open_s.or(self.closed_s).unwrap_or(0.0);
        if let Some(group) = self.by_name.get_mut(name) {
            group.gone_s = Some(now_s);
            group.counter = None;
            group.before = None;
        }
    }

    /// Adds a group; returns false if there is no room.
    fn add(&mut self, name: &str) -> bool {
        if self.by_name.len() >= GROUPS_MAX && !self.forget_one() {
            self.left_out += 1;
            return false;
        }
        let mut group = Group::default();
        // A group that was not there at the first look has begun since the last one, from 0.
        if let Some(closed_s) = self.closed_s {
            group.before = Some(0.0);
            group.readings.push(closed_s, 0.0);
        }
        self.by_name.insert(name.to_owned(), group);
        self.nest();
        true
    }

    /// Forgets the group that has been gone the longest; returns false if all are there.
    fn forget_one(&mut self) -> bool {
        let gone = self.by_name.iter();
        let gone = gone.filter_map(|(name, group)| Some((group.gone_s?, name)));
        let oldest = gone.min_by(|a, b| a.0.total_cmp(&b.0));
        let Some(name) = oldest.map(|(_, name)| name.clone()) else {
            return false;
        };
        self.by_name.remove(&name);
        self.nest();
        true
    }

    /// Finds the nearest group around each.
    fn nest(&mut self) {
        let names: Vec<String> = self.by_name.keys().cloned().collect();
        for (name, group) in &mut self.by_name {
            let around = names.iter().filter(|other| {
                let rest = name.strip_prefix(other.as_str());
                rest.is_some_and(|rest| rest.starts_with('/'))
            });
            group.within = around.max_by_key(|other| other.len()).cloned();
        }
    }

    /// Takes what was read in one round as one reading of each writer.
    pub(super) fn close(&mut self) {
        let Some(at_s) = self.open_s.take() else {
            return;
        };
        let seconds = self.closed_s.map_or(0.0, |closed_s| at_s - closed_s);
        let mut inner: BTreeMap<String, f64> = BTreeMap::new();
        let mut all = 0.0;
        let mut growths: Vec<f64> = Vec::with_capacity(self.by_name.len());
        for group in self.by_name.values_mut() {
            let growth = group.grow();
            growths.push(growth);
            match &group.within {
                Some(outer) => *inner.entry(outer.clone()).or_default() += growth,
                None if group.is_read => all += growth,
                None => {}
            }
            group.is_read = group.counter.is_some();
        }
        for ((name, group), growth) in self.by_name.iter_mut().zip(growths) {
            group.own += growth - inner.get(name).copied().unwrap_or(0.0);
            group.told = group.told.max(group.own);
            group.readings.push(at_s, group.told);
        }
        self.measure(at_s, all);
        if seconds > 0.0 {
            self.interval_s = match self.interval_s {
                0.0 => seconds,
                usual_s => usual_s + (seconds.min(4.0 * usual_s) - usual_s) / 16.0,
            };
        }
        self.closed_s = Some(at_s);
        let is_kept = |group: &Group| group.gone_s.is_none_or(|gone_s| at_s - gone_s < GONE_S);
        let count = self.by_name.len();
        self.by_name.retain(|_, group| is_kept(group));
        if self.by_name.len() < count {
            self.nest();
        }
    }

    /// Takes in the bytes that all groups together have written until a time. Looks that are closer
    /// together than a second have one rate.
    fn measure(&mut self, at_s: f64, bytes: f64) {
        self.moved += bytes;
        let (since_s, before) = *self.since.get_or_insert((at_s, self.moved));
        let elapsed_s = at_s - since_s;
        if elapsed_s >= SECOND_S {
            self.fastest = self.fastest.max((self.moved - before) / elapsed_s);
        }
        if !(0.0..SECOND_S).contains(&elapsed_s) {
            self.since = Some((at_s, self.moved));
        }
    }

    /// Bytes that all groups together have written while they were looked at.
    pub(super) fn grown(&self) -> f64 {
        let outer = self.by_name.values().filter(|group| group.within.is_none());
        outer.map(|group| group.grown).sum()
    }

    /// Whether any group is there, or was not long ago.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The greatest rate of all groups together that was seen, in bytes per second.
    pub(super) fn fastest(&self) -> Option<f64> {
        (self.fastest > 0.0).then_some(self.fastest)
    }

    /// Time of the newest readings, in seconds.
    pub(super) fn newest_s(&self) -> Option<f64> {
        self.closed_s
    }

    fn own(&self) -> impl Iterator<Item = (&String, &Group)> {
        let groups = self.by_name.iter();
        groups.filter(|(_, group)| group.told > 0.0 && group.told >= OWN_SHARE * group.grown)
    }

    /// The writers, in the order of their names.
    pub(super) fn writers(&self) -> Vec<NamedWriter> {
        let interval_s = self.interval_s.max(1e-3);
        let named = self.own().map(|(name, group)| NamedWriter {
            name: name.clone(),
            estimate: WriterEstimate::of(&group.readings.whole(interval_s)),
        });
        named.collect()
    }

    /// The loads of the writers after a time, in seconds, as they were counted.
    pub(super) fn loads_after(&self, from_s: f64) -> Vec<Load> {
        let loads = self.own().map(|(_, group)| Load {
            weight: WEIGHT,
            outstanding: 0.0,
            rate: 0.0,
            bursts: group.readings.arrivals_after(from_s),
        });
        loads.collect()
    }
}

impl Group {
    /// The growth of its counter since the round before; a counter that fell was reset.
    fn grow(&mut self) -> f64 {
        let growth = match (self.before, self.counter) {
            (Some(before), Some(counter)) if counter >= before => counter - before,
            (Some(_), Some(counter)) => counter,
            // The first look since the start; or since the group has come again, from 0.
            (None, Some(counter)) if self.readings.newest_s().is_some() => counter,
            _ => 0.0,
        };
        self.before = self.counter;
        self.grown += growth;
        growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the counters of groups, one after another, in each round.
    fn groups(rounds: &[&[(&str, f64)]]) -> Groups {
        let mut groups = Groups::default();
        for (at, round) in rounds.iter().enumerate() {
            for (name, bytes) in *round {
                groups.read(name, at as f64, *bytes);
            }
        }
        groups.close();
        groups
    }

    fn told(groups: &Groups) -> Vec<(&str, f64)> {
        let own = groups.own();
        own.map(|(name, group)| (name.as_str(), group.told))
            .collect()
    }

    #[test]
    fn bytes_before_the_first_look_are_nobodys() {
        let groups = groups(&[&[("/a", 1e9)], &[("/a", 1e9 + 5.0)]]);
        assert_eq!(told(&groups), [("/a", 5.0)]);
    }

    #[test]
    fn a_group_without_those_within_it() {
        let groups = groups(&[
            &[("/a", 0.0), ("/a/b", 0.0), ("/ab", 0.0)],
            &[("/a", 100.0), ("/a/b", 100.0), ("/ab", 7.0)],
            &[("/a", 250.0), ("/a/b", 200.0), ("/ab", 7.0)],
        ]);
        assert_eq!(told(&groups), [("/a", 50.0), ("/a/b", 200.0), ("/ab", 7.0)]);
        assert!((groups.grown() - 257.0).abs() < 1e-9);
        assert!((groups.fastest().unwrap() - 150.0).abs() < 1e-9);
    }

    #[test]
    fn looks_within_a_second_have_one_rate() {
        let mut groups = Groups::default();
        for tenth in 0..=30 {
            // A burst of a tenth of a second in each second.
            groups.read("/a", f64::from(tenth) / 10.0, f64::from(tenth / 10) * 50.0);
        }
        groups.close();
        let fastest = groups.fastest().unwrap();
        assert!((50.0..60.0).contains(&fastest), "{fastest}");
    }

    #[test]
    fn counters_that_are_not_read_at_once_make_no_writer() {
        // The outer group is read before the inner one, which writes all the time.
        let rounds: Vec<Vec<(&str, f64)>> = (0..50)
            .map(|at| {
                let bytes = 1000.0 * f64::from(at);
                let early = if at % 2 == 0 { 9.0 } else { 0.0 };
                vec![("/a", bytes), ("/a/b", bytes + early)]
            })
            .collect();
        let rounds: Vec<&[(&str, f64)]> = rounds.iter().map(Vec::as_slice).collect();
        assert_eq!(told(&groups(&rounds)).len(), 1);
    }

    #[test]
    fn a_group_that_comes_again_goes_on() {
        let mut groups = groups(&[&[("/a", 0.0), ("/b", 0.0)], &[("/a", 10.0), ("/b", 1.0)]]);
        groups.end("/a");
        groups.read("/b", 2.0, 2.0);
        groups.read("/a", 3.0, 30.0);
        groups.read("/b", 3.0, 2.0);
        groups.read("/new", 3.0, 4.0);
        groups.close();
        assert_eq!(told(&groups), [("/a", 40.0), ("/b", 2.0), ("/new", 4.0)]);
        // Nobody knows in which time the bytes of those that were found were written.
        assert!((groups.fastest().unwrap() - 11.0).abs() < 1e-9);
    }

    #[test]
    fn the_number_of_groups_is_bounded_and_those_gone_make_room() {
        let names: Vec<String> = (0..GROUPS_MAX + 2).map(|at| format!("/g{at}")).collect();
        let mut groups = Groups::default();
        for name in &names {
            groups.read(name, 0.0, 1.0);
        }
        assert_eq!((groups.by_name.len(), groups.left_out), (GROUPS_MAX, 2));
        groups.end("/g0");
        groups.read("/late", 1.0, 1.0);
        assert!(!groups.by_name.contains_key("/g0"));
        assert!(groups.by_name.contains_key("/late"));
        groups.end("/late");
        groups.read("/g1", 1.0 + GONE_S, 1.0);
        groups.close();
        assert!(!groups.by_name.contains_key("/late"), "gone for long");
    }

    #[test]
    fn a_schedule_is_found_over_starts_of_a_service() {
        let mut groups = Groups::default();
        groups.read("/other", 0.0, 0.0);
        for at in 1..1200 {
            let (at_s, since) = (f64::from(at), at % 120);
            groups.read("/other", at_s, f64::from(at));
            match since {
                10..20 => groups.read("/backup", at_s, f64::from(since - 9) * 1e7),
                20 => groups.end("/backup"),
                _ => {}
            }
        }
        groups.close();
        let writers = groups.writers();
        assert_eq!(writers.len(), 2);
        let schedule = writers[0].estimate.schedule.unwrap();
        assert!((schedule.period_s - 120.0).abs() < 0.5, "{schedule:?}");
        assert!((schedule.bytes - 1e8).abs() < 1e6, "{schedule:?}");
        assert!(writers[1].estimate.schedule.is_err());
    }
}
