//! The schedule of one writer: period, next start, size, and the spread of each.

use std::fmt;

/// Fewest bursts of which a schedule is made.
pub const BURSTS_MIN: usize = 4;

/// Largest spread of the starts of a periodic writer, as a share of its period.
pub const SPREAD_MAX: f64 = 0.15;

/// Largest chance that unrelated bursts would fit a period as well.
pub const CHANCE_MAX: f64 = 0.02;

/// What the starts of bursts keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// A clock: a late burst does not delay the next one.
    Clock,
    /// The start before: delays add up.
    AfterLast,
}

/// The schedule of a periodic writer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Distance of two starts, in seconds.
    pub period_s: f64,
    /// Standard error of the period, in seconds.
    pub period_error_s: f64,
    /// The next start, in seconds; somewhat before now if it is late.
    pub next_s: f64,
    /// Standard error of the middle of the starts seen, in seconds.
    pub phase_error_s: f64,
    /// Periods from the middle of the starts seen to the next start.
    pub reach: f64,
    /// Standard deviation of a start around its expected time, in seconds.
    pub start_spread_s: f64,
    /// What the starts keep to.
    pub pacing: Pacing,
    /// Median of the bytes of a burst.
    pub bytes: f64,
    /// Spread of the bytes of a burst, as a standard deviation.
    pub bytes_spread: f64,
    /// Share of the periods in which there is a burst, by bytes: a burst that ran into the one
    /// before counts.
    pub presence: f64,
    /// Number of bursts that were used.
    pub bursts: usize,
    /// One less the chance that unrelated bursts would fit as well.
    pub confidence: f64,
}

/// The reason why a writer has no schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NotPeriodic {
    /// It wrote nothing.
    Silent,
    /// It writes at all times: it has no bursts.
    Steady,
    /// The number of bursts whose start was seen is too small.
    TooFewBursts(usize),
    /// No period is left that most starts can be numbered by: too many would be missing or split.
    Scattered,
    /// The starts are too far from any period: the spread as a share of the best one, and the
    /// chance that unrelated bursts would fit as well.
    Irregular {
        /// Standard deviation of the starts, in periods.
        spread: f64,
        /// The chance, 0 to 1.
        chance: f64,
    },
}

impl fmt::Display for NotPeriodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => write!(f, "nothing was written"),
            Self::Steady => write!(f, "it writes at all times, without bursts"),
            Self::TooFewBursts(bursts) => {
                write!(f, "{bursts} bursts were seen, and {BURSTS_MIN} are needed")
            }
            Self::Scattered => write!(f, "the distances of bursts have no common period"),
            Self::Irregular { spread, chance } => write!(
                f,
                "the starts are {:.0} % of a period off, which chance alone gives in {:.0} % of \
                 cases",
                100.0 * spread,
                100.0 * chance
            ),
        }
    }
}
