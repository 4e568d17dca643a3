//! The samples that `asof` read last, of all series that a pattern matches.

use barograph_model::{Columns, NS_PER_S, Quality, Sample, Span};

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
    /// The sample that held before the span.
    pub(crate) before: Option<Sample>,
    /// Samples in the span, sorted by time.
    pub(crate) columns: Columns,
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
        let after = self.columns.ts.partition_point(|&known| known <= ts);
        let (sample, is_last_look) = match after.checked_sub(1) {
            Some(row) => (self.columns.sample(row)?, self.columns.is_last_look(row)),
            None => {
                let before = self.before.clone()?;
                let is_last_look = before.quality == Quality::Ended;
                (before, is_last_look)
            }
        };
        if is_last_look && ts > sample.ts {
            return None;
        }
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
