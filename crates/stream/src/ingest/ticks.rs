//! The clock of puts: the processor's counter where the kernel itself keeps time by it, and the
//! pairs of clocks by which counts are converted to times.
#![expect(
    unsafe_code,
    reason = "reading the counter; sound on every processor that has it"
)]

use barograph_model::Clock;

/// The unit of a record's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TimeSource {
    /// The processor's counter: the same on all processors of the node, at a steady rate.
    Counter = 1,
    /// Nanoseconds since the epoch.
    Realtime = 2,
}

impl TimeSource {
    /// The source with this number in a file; `None` if there is none.
    pub fn from_u64(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Counter),
            2 => Some(Self::Realtime),
            _ => None,
        }
    }

    /// The source for this machine: the counter only if the kernel trusts it
    /// (`clocksource0/current_clocksource` is `tsc`), since it is then steady and the same on all
    /// processors.
    pub fn of_this_machine() -> Self {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let trusted = std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "tsc");
        if cfg!(target_arch = "x86_64") && trusted {
            Self::Counter
        } else {
            Self::Realtime
        }
    }

    /// The present time, in the unit of records.
    #[inline(always)]
    pub fn now(self, clock: &dyn Clock) -> u64 {
        match self {
            Self::Counter => now(),
            Self::Realtime => clock.now_ns() as u64,
        }
    }
}

/// The processor's counter; 0 where there is none.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register and nothing else; every x86-64 processor has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The counter and the clock, read at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickPair {
    /// Value of the counter.
    pub ticks: u64,
    /// Wall time, in ns since the epoch.
    pub ns: i64,
    /// Half of the time that reading both took, in counts: the largest error of the pair.
    pub error_ticks: u64,
}

impl TickPair {
    /// Reads both a few times, and returns the pair that took the least time.
    pub fn take(clock: &dyn Clock) -> Self {
        const TRIES: usize = 3;
        let one = || {
            let (before, ns, after) = (clock.ticks(), clock.now_ns(), clock.ticks());
            let width = after.wrapping_sub(before);
            Self {
                ticks: before.wrapping_add(width / 2),
                ns,
                error_ticks: width / 2 + 1,
            }
        };
        let tries = std::iter::repeat_with(one).take(TRIES);
        tries
            .min_by_key(|pair| pair.error_ticks)
            .unwrap_or_default()
    }

    /// Nanoseconds per count between two pairs; `None` if they are too close or not valid.
    pub fn rate(self, later: Self) -> Option<f64> {
        let ticks = later.ticks.wrapping_sub(self.ticks) as i64;
        let ns = later.ns.saturating_sub(self.ns);
        let apart = ticks > (1 << 20) && ns > 0;
        apart.then(|| ns as f64 / ticks as f64)
    }

    /// Converts a count to ns since the epoch.
    pub fn ns_of(self, ticks: u64, rate: f64) -> i64 {
        let since = ticks.wrapping_sub(self.ticks) as i64;
        self.ns.saturating_add((since as f64 * rate) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_times() {
        let first = TickPair {
            ticks: 1 << 40,
            ns: 1_000,
            error_ticks: 1,
        };
        let later = TickPair {
            ticks: (1 << 40) + 3_000_000_000,
            ns: 1_000 + 1_000_000_000,
            error_ticks: 1,
        };
        let rate = first.rate(later).unwrap();
        assert_eq!(later.ns_of(later.ticks, rate), later.ns);
        assert_eq!(later.ns_of(later.ticks - 3_000, rate), later.ns - 1_000);
        assert_eq!(later.ns_of(later.ticks + 3, rate), later.ns + 1);
        assert_eq!(first.rate(first), None);
        assert_eq!(later.rate(first), None);
        // Values that no clock returns must not panic.
        let _ = later.ns_of(u64::MAX, f64::MAX);
        let _ = first.ns_of(0, f64::NAN);
    }
}
