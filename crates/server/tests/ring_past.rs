//! A past of only the rings' samples: a test's samples are in it as soon as they are appended.

use std::cmp::Ordering as Comparing;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{
    Buckets, Columns, Descriptor, Past, PastRequest, PastSamples, PastSeries, Sample, Span,
    SqlFault, SqlFaultKind, Value, Values,
};
use barograph_stream::{RunDir, SegmentReader, StreamError};

/// A past of the newest samples of every living stream.
#[derive(Debug)]
pub(crate) struct RingPast {
    run_dir: RunDir,
}

impl RingPast {
    /// Makes a past of the rings in this run directory.
    pub(crate) fn new(run_dir: RunDir) -> Self {
        Self { run_dir }
    }

    /// Calls `found` for every series that was known within the span, with its samples in it.
    fn walk(
        &self,
        request: &PastRequest<'_>,
        mut found: impl FnMut(PastSeries, &[Sample]) -> Result<(), SqlFault>,
    ) -> Result<(), SqlFault> {
        let reader = SegmentReader::open(&self.run_dir.segment()).map_err(unreadable)?;
        let node: Arc<str> = reader.node().into();
        let mut entries = reader.directory().entries;
        entries.sort_by_cached_key(|entry| {
            let of = &entry.descriptor;
            (of.name.clone(), of.labels.clone(), entry.series)
        });
        let mut scanned = Vec::new();
        for entry in &entries {
            if request.cancel.load(Ordering::Relaxed) {
                return Err(fault(SqlFaultKind::Cancelled, "the asker has gone away"));
            }
            if !(request.wanted)(&node, &entry.descriptor) {
                continue;
            }
            let stream = reader.stream(entry);
            scanned.clear();
            if stream.scan(0, &mut scanned).is_none() {
                continue;
            }
            let times = || scanned.iter().map(|sample| sample.ts);
            let (Some(from), Some(newest)) = (times().min(), times().max()) else {
                continue;
            };
            let series = PastSeries {
                node: Arc::clone(&node),
                descriptor: Arc::new(entry.descriptor.clone()),
                known: Span {
                    from,
                    to: newest.max(stream.looked_ns()),
                },
                interval_ns: reader.interval_ns(entry),
                is_living: true,
            };
            if series.known.meets(&request.span) {
                // Not by position: after a clock was set back, the ring is unsorted.
                scanned.retain(|s| request.span.holds(s.ts));
                scanned.sort_by_key(|s| s.ts);
                found(series, &scanned)?;
            }
        }
        Ok(())
    }
}

impl Past for RingPast {
    fn of_node(&self, node: &str) -> Result<Option<Box<dyn Past>>, SqlFault> {
        let mirror = self.run_dir.mirror(node);
        let is_there = mirror.segment().exists();
        Ok(is_there.then(|| Box::new(Self::new(mirror)) as Box<dyn Past>))
    }

    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
        let mut list = Vec::new();
        self.walk(request, |series, _| {
            list.push(series);
            Ok(())
        })?;
        Ok(list)
    }

    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault> {
        let (mut list, mut total) = (Vec::new(), 0);
        self.walk(request, |series, samples| {
            total += samples.len();
            within(total, request.samples_max, "samples")?;
            if !samples.is_empty() {
                let mut columns = Columns::new(series.descriptor.value_type);
                for (sample, number) in samples.iter().zip(1..) {
                    columns.push(number, sample);
                }
                columns.numbers.clear(); // A ring does not give the numbers here.
                list.push(PastSamples {
                    series,
                    columns,
                    begins: Vec::new(),
                });
            }
            Ok(())
        })?;
        Ok(list)
    }

    fn buckets(
        &self,
        request: &PastRequest<'_>,
        step_ns: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
        let (mut list, mut total) = (Vec::new(), 0);
        self.walk(request, |series, samples| {
            let buckets = buckets_of(&series.descriptor, samples, step_ns.max(1));
            total += buckets.len();
            within(total, request.samples_max, "buckets")?;
            if !buckets.is_empty() {
                list.push((series, buckets));
            }
            Ok(())
        })?;
        Ok(list)
    }
}

fn buckets_of(descriptor: &Descriptor, samples: &[Sample], step_ns: i64) -> Buckets {
    let mut groups: BTreeMap<i64, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let start = sample.ts.div_euclid(step_ns).saturating_mul(step_ns);
        groups.entry(start).or_default().push(sample);
    }
    let mut out = Buckets::new(descriptor.value_type);
    for (start, group) in groups {
        let Some(last) = group.last() else { continue };
        let numbers = group.iter().filter_map(|s| s.value.as_f64());
        let known: Vec<f64> = numbers.filter(|v| !v.is_nan()).collect();
        out.ts.push(start);
        out.count.push(group.len() as u64);
        // The mean of samples only: it is unknown how long they held.
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        out.held_ns.push(0);
        out.mean.push(mean);
        out.sample_mean.push(mean);
        push_extreme(&mut out.min, &group, Comparing::is_lt);
        push_extreme(&mut out.max, &group, Comparing::is_gt);
        out.last.push(&last.value);
    }
    out
}

/// Pushes the smallest or largest value of a group that is not NaN, or NaN.
fn push_extreme(column: &mut Values, group: &[&Sample], better: fn(Comparing) -> bool) {
    let known = |v: &&Value| !matches!(v, Value::Float(f) if f.is_nan());
    let values = || group.iter().map(|s| &s.value);
    let best = values()
        .filter(known)
        .reduce(|a, b| if better(compare(b, a)) { b } else { a });
    if let Some(value) = best.or_else(|| values().next()) {
        column.push(value);
    }
}

/// Compares values of one type; NaN is filtered out before.
fn compare(a: &Value, b: &Value) -> Comparing {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => Comparing::Equal,
    }
}

fn within(found: usize, most: usize, what: &str) -> Result<(), SqlFault> {
    if found <= most {
        return Ok(());
    }
    let message = format!("more than {most} {what}: ask for fewer series or a shorter time");
    Err(fault(SqlFaultKind::Limit, message))
}

fn unreadable(error: StreamError) -> SqlFault {
    fault(SqlFaultKind::Internal, error.to_string())
}

fn fault(kind: SqlFaultKind, message: impl Into<String>) -> SqlFault {
    SqlFault {
        kind,
        message: message.into(),
    }
}
