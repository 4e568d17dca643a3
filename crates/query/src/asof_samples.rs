//! The samples that `asof` read last, of all series that a pattern matches.

use barograph_model::{Columns, NS_PER_S, Sample, Span};

use crate::cell::{CellRow, CellValue, SeriesCells};
use crate::memory::ScanClaim;

/// The time for which samples are kept if statements cannot be told apart.
const KEPT_NS_MAX: i64 = NS_PER_S;

/// The samples around a time that were read for one pattern.
pub(crate) struct AsofSamples {
    pub(crate) pattern: String,
    /// Number of the statement; 0 if statements cannot be told apart.
    pub(crate) statement: u64,
    pub(crate) read_ns: i64,
    /// The time from which all samples are here.
    pub(crate) span: Span,
    pub(crate) series: Vec<AsofSeries>,
    /// The memory of the samples.
    pub(crate) _claim: ScanClaim,
}

/// The samples of one series.
pub(crate) struct AsofSeries {
    pub(crate) cells: SeriesCells,
    pub(crate) unit: CellValue,
    pub(crate) samples: HeldSamples,
}

/// The samples of a series in a span, sorted by time, and until when they held.
pub(crate) struct HeldSamples {
    /// The sample that held before the span, and the time until which it held.
    pub(crate) before: Option<(Sample, i64)>,
    pub(crate) columns: Columns,
    /// Rows after which nobody looked until the next row, ascending.
    pub(crate) last_looks: Vec<usize>,
    /// The time until which the last row held.
    pub(crate) until_ns: i64,
}

impl AsofSamples {
    /// Whether they answer a call of this statement for a time, on the monotonic clock now.
    pub(crate) fn answers(&self, statement: u64, now_ns: i64, pattern: &str, ts: i64) -> bool {
        let is_fresh = if statement == 0 {
            now_ns.saturating_sub(self.read_ns) < KEPT_NS_MAX
        } else {
            statement == self.statement
        };
        is_fresh && self.span.holds(ts) && self.pattern == pattern
    }

    /// The rows of the samples that held at `ts`, which must be within the span.
    pub(crate) fn rows(&self, ts: i64) -> Vec<CellRow> {
        self.series.iter().filter_map(|s| s.row(ts)).collect()
    }
}

impl AsofSeries {
    /// The row of the sample that held at `ts`, which must be within the span.
    fn row(&self, ts: i64) -> Option<CellRow> {
        let sample = self.samples.held_at(ts)?;
        let [name, labels, node] = self.cells.cells();
        Some(vec![
            name,
            labels,
            sample.ts.into(),
            (&sample.value).into(),
            self.unit.clone(),
            ts.saturating_sub(sample.ts).into(),
            node,
        ])
    }
}

impl HeldSamples {
    /// The sample that held at `ts`, which must be within the span; `None` if nobody looked then.
    fn held_at(&self, ts: i64) -> Option<Sample> {
        let after = self.columns.ts.partition_point(|&known| known <= ts);
        let (sample, until_ns) = match after.checked_sub(1) {
            Some(row) => {
                let sample = self.columns.sample(row)?;
                let until_ns = match self.last_looks.binary_search(&row) {
                    Ok(_) => sample.ts,
                    Err(_) if row + 1 == self.columns.len() => self.until_ns,
                    Err(_) => i64::MAX,
                };
                (sample, until_ns)
            }
            None => self.before.clone()?,
        };
        (ts <= until_ns.max(sample.ts)).then_some(sample)
    }
}
