//! A past in memory, made from a test's samples.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{
    Buckets, Columns, Descriptor, Past, PastRequest, PastSamples, PastSeries, Quality, Sample,
    Span, SqlFault, SqlFaultKind, Value,
};

/// Series with all their samples.
#[derive(Clone, Default)]
pub(crate) struct MemoryPast(pub Vec<(PastSeries, Columns)>);

impl MemoryPast {
    /// Adds a series with its samples, its interval, and the time of its last look.
    pub(crate) fn add(
        &mut self,
        descriptor: &Descriptor,
        samples: impl IntoIterator<Item = (i64, Value)>,
        interval_ns: i64,
        looked_ns: i64,
    ) {
        let mut columns = Columns::new(descriptor.value_type);
        for (number, (ts, value)) in (1..).zip(samples) {
            assert!(columns.push(number, &Sample::measured(ts, value)));
        }
        let newest = columns.ts.iter().copied().max().unwrap_or(looked_ns);
        let series = PastSeries {
            node: "n1".into(),
            descriptor: Arc::new(descriptor.clone()),
            known: Span {
                from: columns.ts.iter().copied().min().unwrap_or(looked_ns),
                to: newest.max(looked_ns),
            },
            interval_ns,
            is_living: true,
        };
        self.0.push((series, columns));
    }

    /// Ends the series that was added last, at its newest sample.
    pub(crate) fn end(&mut self) {
        let (series, _) = self.0.last_mut().unwrap();
        (series.interval_ns, series.is_living) = (0, false);
    }

    /// Marks a sample of the series that was added last as a last look, with a gap after it.
    pub(crate) fn last_look(&mut self, row: usize) {
        let (_, columns) = self.0.last_mut().unwrap();
        columns.quality[row] = Quality::Ended;
    }

    fn known<'a>(
        &'a self,
        request: &'a PastRequest<'_>,
    ) -> impl Iterator<Item = &'a (PastSeries, Columns)> {
        self.0.iter().filter(|(series, _)| {
            (request.wanted)(&series.node, &series.descriptor) && series.known.meets(&request.span)
        })
    }
}

impl Past for MemoryPast {
    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
        Ok(self
            .known(request)
            .map(|(series, _)| series.clone())
            .collect())
    }

    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault> {
        let (mut list, mut total) = (Vec::new(), 0);
        for (series, columns) in self.known(request) {
            if request.cancel.load(Ordering::SeqCst) {
                return Err(fault(SqlFaultKind::Cancelled));
            }
            let mut found = Columns::new(series.descriptor.value_type);
            let rows = (0..columns.len()).filter_map(|row| columns.sample(row));
            for sample in rows.filter(|s| request.span.holds(s.ts)) {
                found.push(0, &sample);
            }
            total += found.len();
            if total > request.samples_max {
                return Err(fault(SqlFaultKind::Limit));
            }
            if !found.is_empty() {
                list.push(PastSamples {
                    series: series.clone(),
                    columns: found,
                    begins: Vec::new(),
                });
            }
        }
        Ok(list)
    }

    fn buckets(
        &self,
        request: &PastRequest<'_>,
        step_ns: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
        let read = self.read(request)?.into_iter();
        let buckets = read.map(|one| {
            let (series, columns) = (one.series, one.columns);
            let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
            for ts in &columns.ts {
                *counts.entry(ts.div_euclid(step_ns) * step_ns).or_default() += 1;
            }
            let mut buckets = Buckets::new(series.descriptor.value_type);
            (buckets.ts, buckets.count) = counts.into_iter().unzip();
            (series, buckets)
        });
        Ok(buckets.collect())
    }
}

fn fault(kind: SqlFaultKind) -> SqlFault {
    SqlFault {
        kind,
        message: "as the test has it".into(),
    }
}
