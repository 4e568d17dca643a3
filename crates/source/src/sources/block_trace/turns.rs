//! The turns in which requests are traced in the mode `auto`: each begins because a disk is busy or
//! slower than usual, and keeps within a budget.
//!
//! This module only decides: the counters of the disks and the time are its arguments.
//!
//! A turn begins at least a minute after the beginning of the previous one, and lasts at most the
//! configured time. Therefore no minute, wherever it begins, has more tracing than that.

use barograph_model::NS_PER_S;

use crate::BlockTraceConfig;
use crate::util::diskstats::{Counters, parse_line};
use crate::util::parse::lines;

/// Least time from the beginning of one turn to the beginning of the next.
const ROUND_NS: i64 = 60 * NS_PER_S;
/// A disk that had requests under way for this share of the time is busy.
const BUSY_RATIO: f64 = 0.9;
/// A disk whose requests take this multiple of their usual time is slow.
const SLOW_RATIO: f64 = 3.0;
/// Least number of requests between two looks from which their mean time is taken.
const REQUESTS_MIN: u64 = 32;
/// Number of looks with enough requests after which the usual time is known.
const LOOKS_MIN: u32 = 30;
/// Weight of one look in the usual time.
const USUAL_WEIGHT: f64 = 1.0 / 64.0;
/// Most disks and partitions that are looked at; further ones begin no turn.
const DISKS_MAX: usize = 256;
/// Processor time in which the kernel writes one event, in ns. It cannot be measured from here:
/// docs/guide/tracing.md gives its upper bound.
const WRITE_NS: f64 = 1_000.0;
/// Processor time in which we read one event, in ns, until it has been measured.
const READ_NS: f64 = 4_000.0;
/// Least number of events in one read from which the time of reading one is measured.
const MEASURED_EVENTS_MIN: u64 = 1_000;
/// Weight of one read in the measured time of reading an event.
const READ_WEIGHT: f64 = 0.25;

/// The turns of the mode `auto`.
#[derive(Debug)]
pub(super) struct Turns {
    turn_ns: i64,
    /// Processor time that one second of a turn may take, in ns.
    budget_ns: f64,
    disks: Vec<Disk>,
    looked_ns: Option<i64>,
    /// Time at which the newest turn began.
    begun_ns: Option<i64>,
    state: State,
    read_ns: f64,
    pub(super) counts: TurnCounts,
}

/// Counts of the turns, which the source puts as facts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TurnCounts {
    /// Number of turns that were begun.
    pub(super) begun: u64,
    /// Number of looks at which a turn was wanted but not begun, and of turns that were ended,
    /// because there were more events than the budget pays for.
    pub(super) unaffordable: u64,
    /// Length of all turns together.
    pub(super) on_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Off,
    /// A turn is under way, and its time has been counted up to this moment.
    On(i64),
}

#[derive(Debug)]
struct Disk {
    name: Vec<u8>,
    counters: Counters,
    usual: Usual,
    seen: bool,
}

/// The usual mean time of a disk's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usual {
    mean_ms: f64,
    looks: u32,
}

/// The result of a look at the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TurnLook {
    /// Whether a disk is busy, or slower than usual.
    pub(super) wanted: bool,
    /// Number of events per second that tracing would have written since the last look.
    pub(super) events_per_s: f64,
}

impl Turns {
    pub(super) fn new(config: &BlockTraceConfig) -> Self {
        Self {
            turn_ns: config.auto_ns(),
            budget_ns: config.auto_budget_ns(),
            disks: Vec::new(),
            looked_ns: None,
            begun_ns: None,
            state: State::Off,
            read_ns: READ_NS,
            counts: TurnCounts::default(),
        }
    }

    /// Looks at `/proc/diskstats`. `is_disk` distinguishes a disk from its partitions, which count
    /// the same requests again. Bad lines are ignored: the source `disk` reports them.
    pub(super) fn look(
        &mut self,
        monotonic_ns: i64,
        diskstats: &[u8],
        is_disk: impl Fn(&[u8]) -> bool,
    ) -> TurnLook {
        let elapsed_ns = self.looked_ns.map(|then| monotonic_ns.saturating_sub(then));
        self.looked_ns = Some(monotonic_ns);
        self.disks.iter_mut().for_each(|disk| disk.seen = false);
        let mut look = TurnLook::default();
        for (name, counters) in lines(diskstats).filter_map(parse_line) {
            let Some(disk) = self.disk(name, &counters, &is_disk) else {
                continue;
            };
            let since = counters.since(&disk.counters);
            disk.counters = counters;
            if let (Some(since), Some(elapsed_ns @ 1..)) = (since, elapsed_ns) {
                let elapsed_s = elapsed_ns as f64 / NS_PER_S as f64;
                let requests = since.read_ops.saturating_add(since.write_ops);
                look.events_per_s += 2.0 * requests as f64 / elapsed_s;
                let busy = since.busy_ms as f64 / 1e3 >= BUSY_RATIO * elapsed_s;
                look.wanted |= disk.usual.is_exceeded(&since, requests) || (busy && requests > 0);
            }
        }
        self.disks.retain(|disk| disk.seen);
        look
    }

    /// The disk of this name, which is known from its first line on.
    fn disk(
        &mut self,
        name: &[u8],
        counters: &Counters,
        is_disk: &impl Fn(&[u8]) -> bool,
    ) -> Option<&mut Disk> {
        let known = self.disks.iter().position(|disk| disk.name == name);
        let at = match known {
            Some(at) => at,
            None if self.disks.len() < DISKS_MAX && is_disk(name) => {
                self.disks.push(Disk {
                    name: name.to_owned(),
                    counters: *counters,
                    usual: Usual::default(),
                    seen: true,
                });
                self.disks.len() - 1
            }
            None => return None,
        };
        let disk = &mut self.disks[at];
        disk.seen = true;
        Some(disk)
    }

    /// Whether requests are to be traced from now on.
    pub(super) fn step(&mut self, monotonic_ns: i64, look: TurnLook) -> bool {
        match (self.state, self.begun_ns) {
            (State::On(_), Some(begun_ns)) => {
                self.count(monotonic_ns);
                if monotonic_ns.saturating_sub(begun_ns) >= self.turn_ns {
                    self.state = State::Off;
                }
            }
            (_, Some(begun_ns)) if monotonic_ns.saturating_sub(begun_ns) < ROUND_NS => {}
            _ if !look.wanted => {}
            _ if look.events_per_s * self.event_ns() > self.budget_ns => {
                self.counts.unaffordable += 1;
            }
            _ => {
                self.begun_ns = Some(monotonic_ns);
                self.state = State::On(monotonic_ns);
                self.counts.begun += 1;
            }
        }
        self.is_on()
    }

    pub(super) fn is_on(&self) -> bool {
        self.state != State::Off
    }

    /// Ends a turn that could not be begun, or that ends early.
    pub(super) fn end(&mut self, monotonic_ns: i64) {
        self.count(monotonic_ns);
        self.state = State::Off;
    }

    /// Most events that may be read now, after `elapsed_ns` of the turn without a read.
    pub(super) fn events_max(&self, elapsed_ns: i64) -> u64 {
        let paid_ns = self.budget_ns * elapsed_ns.max(0) as f64 / NS_PER_S as f64;
        (paid_ns / self.event_ns()) as u64
    }

    /// Records the number of events that were read and the processor time that this took. Ends a
    /// turn that exceeds the budget.
    pub(super) fn spent(&mut self, monotonic_ns: i64, events: u64, events_max: u64, cpu_ns: f64) {
        if events >= MEASURED_EVENTS_MIN {
            let one_ns = cpu_ns / events as f64;
            self.read_ns += (one_ns - self.read_ns) * READ_WEIGHT;
        }
        if events >= events_max {
            self.counts.unaffordable += 1;
            self.end(monotonic_ns);
        }
    }

    fn event_ns(&self) -> f64 {
        self.read_ns + WRITE_NS
    }

    fn count(&mut self, monotonic_ns: i64) {
        if let State::On(counted_ns) = &mut self.state {
            self.counts.on_ns += monotonic_ns.saturating_sub(*counted_ns).max(0);
            *counted_ns = monotonic_ns;
        }
    }
}

impl Usual {
    /// Whether requests took much longer than usual since the last look. The look then counts in
    /// the usual time.
    fn is_exceeded(&mut self, since: &Counters, requests: u64) -> bool {
        if requests < REQUESTS_MIN {
            return false;
        }
        let ms = since.read_ms.saturating_add(since.write_ms);
        let mean_ms = ms as f64 / requests as f64;
        let exceeded = self.looks >= LOOKS_MIN && mean_ms > SLOW_RATIO * self.mean_ms && ms > 0;
        // The mean of all looks at first, later one in which old looks decay.
        let weight = USUAL_WEIGHT.max(1.0 / (f64::from(self.looks) + 1.0));
        self.mean_ms += (mean_ms - self.mean_ms) * weight;
        self.looks = self.looks.saturating_add(1);
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = NS_PER_S;
    const WANTED: TurnLook = TurnLook {
        wanted: true,
        events_per_s: 100.0,
    };

    fn turns() -> Turns {
        Turns::new(&BlockTraceConfig {
            auto_seconds: 10,
            auto_core_percent: 5,
            ..BlockTraceConfig::default()
        })
    }

    #[test]
    fn no_minute_has_more_than_its_share() {
        let mut turns = turns();
        let on: Vec<i64> = (0..600).filter(|s| turns.step(s * S, WANTED)).collect();
        for begin in 0..540 {
            let within = on.iter().filter(|s| (begin..begin + 60).contains(*s));
            assert_eq!(within.count(), 10, "from {begin} s on");
        }
        let expect = TurnCounts {
            begun: 10,
            unaffordable: 0,
            on_ns: 100 * S,
        };
        assert_eq!(turns.counts, expect);
    }

    #[test]
    fn what_begins_a_turn_and_what_does_not() {
        let check = |wanted, events_per_s, expect, unaffordable| {
            let mut turns = turns();
            let look = TurnLook {
                wanted,
                events_per_s,
            };
            assert_eq!(turns.step(0, look), expect, "{look:?}");
            assert_eq!(turns.counts.unaffordable, unaffordable, "{look:?}");
        };
        check(false, 0.0, false, 0);
        check(false, 1e9, false, 0);
        check(true, 0.0, true, 0);
        // 5 % of a second pay for 10,000 events of 5 us.
        check(true, 9_999.0, true, 0);
        check(true, 10_001.0, false, 1);
    }

    #[test]
    fn a_turn_ends_with_what_the_budget_pays() {
        let mut turns = turns();
        assert!(turns.step(0, WANTED));
        assert_eq!(turns.events_max(S), 10_000);
        turns.spent(S, 9_999, 10_000, 9_999.0 * 4_000.0);
        assert!(turns.is_on());
        // Reading turned out to cost more, so the budget pays for fewer events.
        turns.spent(2 * S, 5_000, 10_000, 5_000.0 * 24_000.0);
        assert_eq!(turns.events_max(S), 5_000);
        turns.spent(3 * S, 5_000, 5_000, 5_000.0 * 4_000.0);
        assert!(!turns.is_on());
        assert_eq!(turns.counts.unaffordable, 1);
        assert_eq!(turns.counts.on_ns, 3 * S);
        assert!(!turns.step(59 * S, WANTED), "the minute is not over");
        assert!(turns.step(60 * S, WANTED));
    }

    /// A line of a disk: reads, the milliseconds that they took, and the milliseconds with one
    /// under way.
    fn line(name: &str, ops: u64, ms: u64, busy_ms: u64) -> String {
        format!("8 0 {name} {ops} 0 0 {ms} 0 0 0 0 0 {busy_ms} {ms}\n")
    }

    #[test]
    fn disks_that_are_busy_or_slower_than_usual() {
        let is_disk = |name: &[u8]| name == b"sda";
        let mut turns = turns();
        let mut now = 0;
        let mut look = |turns: &mut Turns, text: &str| {
            now += S;
            turns.look(now, text.as_bytes(), is_disk)
        };
        let (mut ops, mut ms) = (0, 0);
        for _ in 0..40 {
            (ops, ms) = (ops + 100, ms + 200);
            let text = line("sda", ops, ms, 0) + &line("sda1", ops, 1_000 * ms, 1_000 * ms);
            assert!(!look(&mut turns, &text).wanted);
        }
        // A partition counts nothing of its own.
        let steady = look(&mut turns, &line("sda", ops + 100, ms + 200, 0));
        assert_eq!(steady.events_per_s, 200.0);
        assert!(look(&mut turns, &line("sda", ops + 200, ms + 900, 0)).wanted);
        // Too few requests give no mean time, unless the disk is busy with them.
        assert!(!look(&mut turns, &line("sda", ops + 231, ms + 9_000, 0)).wanted);
        assert!(look(&mut turns, &line("sda", ops + 232, ms + 9_000, 900)).wanted);
        // Counters that decreased and bad lines are ignored.
        assert!(!look(&mut turns, &line("sda", 0, 0, 0)).wanted);
        assert_eq!(look(&mut turns, "8 0 sda x\n\0\n"), TurnLook::default());
        assert!(turns.disks.is_empty());
    }

    #[test]
    fn disks_are_bounded() {
        let mut turns = turns();
        let text: String = (0..1_000)
            .map(|i| line(&format!("sd{i}"), 0, 0, 0))
            .collect();
        turns.look(0, text.as_bytes(), |_| true);
        assert_eq!(turns.disks.len(), DISKS_MAX);
    }
}
