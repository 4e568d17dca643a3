//! Whether applications are better off with turns than they would be if all did I/O at once.
//!
//! What is compared is the time of a phase, from its begin to its end, with the time that it would
//! have had on a volume that all phases present share equally, and that is as fast in sum as this
//! one was in the same busy period (or as it was seen to be while all did I/O at once, once that
//! was seen). Phases of one busy period, in which the volume is never without a phase, depend on
//! each other, so each busy period of several phases is one observation: the mean of the logarithms
//! of the ratios, which is the geometric mean of the gains. If the upper bound of the mean over
//! busy periods, with a confidence of 95 %, is a gain of less than 2 %, turns are held off.

use std::collections::{BTreeMap, VecDeque};

use super::HOLD_OFF_NS;
use crate::schedule::seconds;

/// Fewest busy periods that are judged, and the most: the newest ones.
const PERIODS_MIN: usize = 30;
const PERIODS_MAX: usize = 64;
/// Most phases of a busy period; it ends then, as one observation.
const PHASES_MAX: usize = 64;
/// The gain that turns have to have.
const GAIN_MIN: f64 = 0.02;
/// Standard errors above the mean at which its upper bound is, with a confidence of 95 % on one
/// side (Student's distribution with 29 degrees of freedom).
const ERRORS: f64 = 1.70;
/// Shortest time of a phase, in seconds: shorter ones are noise.
const TIME_S_MIN: f64 = 1e-3;
/// Fewest busy periods while all did I/O at once after which the bandwidth of that is known.
const SHARED_MIN: u32 = 8;
/// The mean of that bandwidth weighs each period as one of so many.
const SHARED_MEMORY: f64 = 8.0;

/// A phase that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedPhase {
    /// The time at which it began, in ns on the caller's clock.
    pub begun_ns: i64,
    /// The time since which it did I/O.
    pub started_ns: i64,
    /// The time at which it ended.
    pub ended_ns: i64,
    /// The bytes that it has read and written.
    pub bytes: u64,
    /// Whether its end was not heard of: its busy period says nothing.
    pub is_lost: bool,
}

/// What turns gave one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseGain {
    /// The number of the phase.
    pub id: u64,
    /// The seconds that it would have taken if all had done I/O at once.
    pub shared_s: f64,
    /// The seconds that it took.
    pub observed_s: f64,
}

/// What was found over busy periods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnsFinding {
    /// The number of busy periods.
    pub periods: usize,
    /// How many times as fast phases were, by the geometric mean.
    pub gain: f64,
    /// The upper bound of that, with a confidence of 95 %.
    pub gain_max: f64,
}

impl TurnsFinding {
    /// The finding as a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "in {} busy periods, phases were {:.2} times as fast as if all had done I/O at once, and \
             {:.2} times at most (95 % confidence); {:.2} times is wanted",
            self.periods,
            self.gain,
            self.gain_max,
            1.0 + GAIN_MIN
        )
    }
}

/// What came of the end of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnsVerdict {
    /// The gains of the phases of the busy period, if this was its end and it had several.
    pub gains: Vec<PhaseGain>,
    /// Why turns are held off from now on.
    pub held_off: Option<TurnsFinding>,
}

/// What is known of the effect of turns on a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnsEffect {
    /// The phases that have not ended, and whether they count when they do.
    open: BTreeMap<u64, bool>,
    done: Vec<(u64, FinishedPhase)>,
    is_spoiled: bool,
    is_shared: bool,
    logs: VecDeque<f64>,
    shared: Option<(f64, u32)>,
    held_until_ns: Option<i64>,
    last: Option<TurnsFinding>,
}

impl TurnsEffect {
    /// Takes in that a phase has begun.
    pub fn begin(&mut self, id: u64) {
        if self.open.is_empty() {
            self.done.clear();
            self.is_spoiled = false;
        }
        self.open.insert(id, true);
    }

    /// Takes in whether all do I/O at once from now on. A busy period with both says nothing.
    pub fn share(&mut self, is_shared: bool) {
        if self.is_shared != is_shared {
            self.is_shared = is_shared;
            self.is_spoiled = true;
        }
    }

    /// The time until which turns are held off.
    pub fn held_until(&self, now_ns: i64) -> Option<i64> {
        self.held_until_ns.filter(|until_ns| now_ns < *until_ns)
    }

    /// Ends a hold-off: somebody wants turns at once.
    pub fn resume(&mut self) {
        self.held_until_ns = None;
        self.logs.clear();
    }

    /// What was found last.
    pub fn last(&self) -> Option<&TurnsFinding> {
        self.last.as_ref()
    }

    /// Number of busy periods that were observed since the last finding.
    pub fn periods(&self) -> usize {
        self.logs.len()
    }

    /// Takes in that a phase has ended.
    pub fn end(&mut self, id: u64, phase: &FinishedPhase, now_ns: i64) -> TurnsVerdict {
        let Some(counts) = self.open.remove(&id) else {
            return TurnsVerdict::default();
        };
        self.is_spoiled |= phase.is_lost;
        if counts {
            self.done.push((id, *phase));
        }
        if !self.open.is_empty() && self.done.len() < PHASES_MAX {
            return TurnsVerdict::default();
        }
        // Those that go on belong to no period: others that they met are in this one.
        self.open.values_mut().for_each(|counts| *counts = false);
        let done = std::mem::take(&mut self.done);
        let is_spoiled = std::mem::replace(&mut self.is_spoiled, false);
        if is_spoiled || done.len() < 2 {
            return TurnsVerdict::default();
        }
        match self.is_shared {
            true => {
                self.learn(&done);
                TurnsVerdict::default()
            }
            false => self.judge(&done, now_ns),
        }
    }

    /// Learns how fast the volume is while all do I/O at once.
    fn learn(&mut self, done: &[(u64, FinishedPhase)]) {
        let Some(rate) = rate(done) else {
            return;
        };
        let (before, count) = self.shared.unwrap_or((rate, 0));
        let weight = 1.0 / f64::from(count + 1).min(SHARED_MEMORY);
        let count = count.saturating_add(1);
        self.shared = Some((before + weight * (rate - before), count));
    }

    fn judge(&mut self, done: &[(u64, FinishedPhase)], now_ns: i64) -> TurnsVerdict {
        let known = self.shared.filter(|(_, count)| *count >= SHARED_MIN);
        let Some(rate) = known.map(|(rate, _)| rate).or_else(|| rate(done)) else {
            return TurnsVerdict::default();
        };
        let gains = gains(done, rate);
        let logs = gains.iter().map(|it| (it.shared_s / it.observed_s).ln());
        let mean = logs.sum::<f64>() / gains.len() as f64;
        if self.logs.len() == PERIODS_MAX {
            self.logs.pop_front();
        }
        self.logs.push_back(mean);
        let finding = self.finding();
        let held_off = finding.filter(|it| it.gain_max < 1.0 + GAIN_MIN);
        if held_off.is_some() {
            self.held_until_ns = Some(now_ns.saturating_add(HOLD_OFF_NS));
            self.logs.clear();
        }
        self.last = finding.or(self.last);
        TurnsVerdict { gains, held_off }
    }

    fn finding(&self) -> Option<TurnsFinding> {
        let count = self.logs.len();
        if count < PERIODS_MIN {
            return None;
        }
        let mean = self.logs.iter().sum::<f64>() / count as f64;
        let squares = self.logs.iter().map(|log| (log - mean).powi(2));
        let deviation = (squares.sum::<f64>() / (count - 1) as f64).sqrt();
        Some(TurnsFinding {
            periods: count,
            gain: mean.exp(),
            gain_max: (mean + ERRORS * deviation / (count as f64).sqrt()).exp(),
        })
    }
}

/// Bytes/s of a busy period, over the time in which somebody did I/O.
fn rate(done: &[(u64, FinishedPhase)]) -> Option<f64> {
    let mut at_work: Vec<(i64, i64)> = done
        .iter()
        .map(|(_, phase)| (phase.started_ns, phase.ended_ns))
        .collect();
    at_work.sort_unstable();
    let (mut work_ns, mut until_ns) = (0_i64, i64::MIN);
    for (from_ns, to_ns) in at_work {
        let from_ns = from_ns.max(until_ns);
        work_ns = work_ns.saturating_add(to_ns.saturating_sub(from_ns).max(0));
        until_ns = until_ns.max(to_ns);
    }
    let bytes: f64 = done.iter().map(|(_, phase)| phase.bytes as f64).sum();
    let rate = bytes / seconds(work_ns);
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// What turns gave each phase, beside a volume of this bandwidth that all phases share.
fn gains(done: &[(u64, FinishedPhase)], rate: f64) -> Vec<PhaseGain> {
    let first_ns = done.iter().map(|(_, phase)| phase.begun_ns).min();
    let since_s = |ns: i64| seconds(ns.saturating_sub(first_ns.unwrap_or(0)));
    let works = done
        .iter()
        .map(|(_, phase)| (since_s(phase.begun_ns), phase.bytes as f64 / rate));
    let works: Vec<(f64, f64)> = works.collect();
    let ends = shared_ends(&works);
    let each = done.iter().zip(&works).zip(ends);
    each.map(|(((id, phase), (begun_s, _)), end_s)| PhaseGain {
        id: *id,
        shared_s: (end_s - begun_s).max(TIME_S_MIN),
        observed_s: (since_s(phase.ended_ns) - begun_s).max(TIME_S_MIN),
    })
    .collect()
}

/// When works end that share a server equally, each with its begin and its time alone.
fn shared_ends(works: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..works.len()).collect();
    order.sort_by(|a, b| works[*a].0.total_cmp(&works[*b].0));
    let mut ends = vec![0.0; works.len()];
    let mut left: Vec<(usize, f64)> = Vec::new();
    let mut coming = order.into_iter().peekable();
    let mut now_s = 0.0;
    loop {
        if left.is_empty() {
            let Some(next) = coming.next() else {
                return ends;
            };
            now_s = works[next].0.max(now_s);
            left.push((next, works[next].1));
        }
        let count = left.len() as f64;
        let least = left.iter().map(|(_, left_s)| *left_s);
        let least = least.fold(f64::INFINITY, f64::min);
        let ends_s = now_s + least * count;
        let begins_s = coming.peek().map_or(f64::INFINITY, |at| works[*at].0);
        if begins_s < ends_s {
            let each_s = (begins_s - now_s).max(0.0) / count;
            left.iter_mut().for_each(|(_, left_s)| *left_s -= each_s);
            now_s = begins_s.max(now_s);
            left.extend(coming.next().map(|next| (next, works[next].1)));
        } else {
            left.iter_mut().for_each(|(_, left_s)| *left_s -= least);
            now_s = ends_s;
            left.retain(|(at, left_s)| {
                let is_over = *left_s <= 1e-12;
                if is_over {
                    ends[*at] = now_s;
                }
                !is_over
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// One after the other, in the order given: times of their begin and of their work, in ms.
    fn in_turns(effect: &mut TurnsEffect, at_ns: i64, phases: &[(i64, i64)]) -> TurnsVerdict {
        let ms = S / 1_000;
        let mut free_ns = at_ns;
        let mut told = TurnsVerdict::default();
        for id in 0..phases.len() {
            effect.begin(id as u64);
        }
        for (id, (begun, work)) in phases.iter().enumerate() {
            let begun_ns = at_ns + begun * ms;
            let started_ns = begun_ns.max(free_ns);
            free_ns = started_ns + work * ms;
            let phase = FinishedPhase {
                begun_ns,
                started_ns,
                ended_ns: free_ns,
                bytes: *work as u64 * 1_000,
                is_lost: false,
            };
            told = effect.end(id as u64, &phase, free_ns);
        }
        told
    }

    #[test]
    fn works_that_share_end_as_they_do_on_paper() {
        for (works, expect) in [
            (&[(0.0, 2.0), (0.0, 2.0)][..], &[4.0, 4.0][..]),
            (&[(0.0, 1.0), (0.0, 3.0)], &[2.0, 4.0]),
            (&[(0.0, 4.0), (1.0, 1.0)], &[5.0, 3.0]),
            (&[(5.0, 1.0), (0.0, 1.0)], &[6.0, 1.0]),
            (&[(0.0, 0.0), (0.0, 1.0)], &[0.0, 1.0]),
        ] {
            let ends = shared_ends(works);
            let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
            assert!(ends.iter().zip(expect).all(is_near), "{works:?}: {ends:?}");
        }
    }

    #[test]
    fn turns_of_equals_are_a_gain_and_stay() {
        let mut effect = TurnsEffect::default();
        for n in 0..200 {
            let told = in_turns(
                &mut effect,
                n * 100 * S,
                &[(0, 1_000), (100 + n % 5, 1_000)],
            );
            assert_eq!(told.gains.len(), 2);
            assert_eq!(told.held_off, None);
        }
        let found = effect.last().unwrap();
        assert!(found.gain > 1.1, "{found:?}");
        assert_eq!(found.periods, PERIODS_MAX);
    }

    #[test]
    fn small_phases_behind_large_ones_end_turns_for_a_time() {
        let mut effect = TurnsEffect::default();
        let mut told = Vec::new();
        for n in 0..PERIODS_MIN as i64 {
            let small = 10 + n % 7;
            let verdict = in_turns(&mut effect, n * 100 * S, &[(0, 2_000), (100, small)]);
            told.push(verdict.held_off);
        }
        let found = told.pop().unwrap().unwrap();
        assert!(told.iter().all(Option::is_none));
        assert!(found.gain < 0.5 && found.gain_max < 1.0, "{found:?}");
        assert!(found.sentence().contains("in 30 busy periods"));
        let now_ns = 29 * 100 * S + 3 * S;
        let until_ns = effect.held_until(now_ns).unwrap();
        assert!(until_ns > now_ns + HOLD_OFF_NS - 3 * S);
        assert_eq!(effect.held_until(until_ns), None);
        effect.resume();
        assert_eq!(effect.held_until(now_ns), None);
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        let mut effect = TurnsEffect::default();
        // One alone, and one whose end nobody heard of.
        assert_eq!(
            in_turns(&mut effect, 0, &[(0, 1_000)]),
            TurnsVerdict::default()
        );
        effect.begin(7);
        effect.begin(8);
        let lost = FinishedPhase {
            begun_ns: 0,
            started_ns: 0,
            ended_ns: S,
            bytes: 1,
            is_lost: true,
        };
        effect.end(7, &lost, S);
        let other = FinishedPhase {
            is_lost: false,
            ..lost
        };
        assert_eq!(effect.end(8, &other, S), TurnsVerdict::default());
        // Ended twice, and one without bytes.
        assert_eq!(effect.end(8, &other, S), TurnsVerdict::default());
        let empty = FinishedPhase { bytes: 0, ..other };
        effect.begin(1);
        effect.begin(2);
        effect.end(1, &empty, S);
        assert_eq!(effect.end(2, &empty, S).gains, []);
        // Both kinds in one period.
        effect.begin(1);
        effect.begin(2);
        effect.share(true);
        effect.end(1, &other, S);
        assert_eq!(effect.end(2, &other, S).gains, []);
        assert_eq!(effect.periods(), 0);
    }

    #[test]
    fn a_volume_that_was_faster_shared_is_compared_with_that() {
        let mut effect = TurnsEffect::default();
        effect.share(true);
        let shared = FinishedPhase {
            begun_ns: 0,
            started_ns: 0,
            ended_ns: S,
            bytes: 1_000_000,
            is_lost: false,
        };
        // Two at a time have 2 MB/s; with turns, one has 1 MB/s.
        for _ in 0..SHARED_MIN {
            effect.begin(1);
            effect.begin(2);
            effect.end(1, &shared, S);
            effect.end(2, &shared, S);
        }
        effect.share(false);
        // The period with the change says nothing.
        in_turns(&mut effect, 0, &[(0, 1_000), (0, 1_000)]);
        let told = in_turns(&mut effect, 0, &[(0, 1_000), (0, 1_000)]);
        let shared_s: Vec<f64> = told.gains.iter().map(|it| it.shared_s).collect();
        assert_eq!(shared_s, [1.0, 1.0]);
    }

    #[test]
    fn a_period_without_end_is_cut() {
        let mut effect = TurnsEffect::default();
        let phase = |n: i64| FinishedPhase {
            begun_ns: n * S,
            started_ns: n * S,
            ended_ns: (n + 2) * S,
            bytes: 1_000_000,
            is_lost: false,
        };
        effect.begin(0);
        let mut periods = 0;
        for n in 0..1_000 {
            effect.begin(n + 1);
            let told = effect.end(n, &phase(n as i64), (n as i64 + 2) * S);
            periods += usize::from(!told.gains.is_empty());
            assert!(effect.done.len() < PHASES_MAX && effect.open.len() <= 2);
        }
        assert!((14..=16).contains(&periods), "{periods}");
    }

    proptest! {
        #[test]
        fn a_shared_server_does_all_work_and_never_idles(
            works in proptest::collection::vec((0.0..10.0_f64, 0.0..5.0_f64), 1..20)
        ) {
            let ends = shared_ends(&works);
            let last = ends.iter().copied().fold(0.0, f64::max);
            // The end of a server that serves one after the other.
            let mut order = works.clone();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let serial = order.iter().fold(0.0_f64, |free, (begun, work)| free.max(*begun) + work);
            prop_assert!((last - serial).abs() < 1e-6, "{} {}", last, serial);
            for ((begun, work), end) in works.iter().zip(&ends) {
                prop_assert!(*end >= begun + work - 1e-9);
            }
        }
    }
}
