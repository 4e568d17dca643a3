//! Conversion of samples to buckets: a [`Fold`] takes the samples of a series chunk by chunk and
//! keeps only buckets.
//!
//! A sample is a change, or a confirmation that the previous value still holds: a value holds until
//! the next sample of the same life in the same hour, also through buckets without a sample of
//! their own, and after a last look no value holds. No value holds from one hour to the next, so
//! that the files of an hour give the same result alone as together with their neighbours: a stream
//! that is polled has samples at the beginning and at the end of each hour (`Streams` in `agent`
//! ensures it).
//!
//! This module stands alone because sealing, reads by step and the merging of files all use it, and
//! because its loops are the hot path of `history()`: over slices of one type, one bucket at a
//! time.

mod budget;
mod number;
mod parallel;

use std::sync::Arc;

use barograph_model::{
    Buckets, Columns, Quality, Span, TEXT_BYTES_MAX, Value, ValueType, Values, text_start,
};

pub use budget::{BUCKET_BYTES, BucketBudget};
use number::{Aggregable, BucketCell};

use crate::tier::HOUR_NS;
pub use parallel::{FoldRequest, aggregate};

/// Buckets of one series while they are built.
#[derive(Clone, Debug)]
pub struct Fold {
    value_type: ValueType,
    cut: Cut,
    cells: Cells,
}

/// The span that counts, and the step of the buckets.
#[derive(Clone, Copy, Debug)]
struct Cut {
    step_ns: i64,
    /// The span that counts. Samples outside show how long values held in it.
    span: Span,
    /// Whether values hold in buckets that have no sample.
    holds: bool,
}

/// The samples of one chunk without their values: their life, their times, and which of them are
/// last looks.
#[derive(Clone, Copy, Debug)]
struct Rows<'a> {
    life: i64,
    ts: &'a [i64],
    /// Empty if the chunk has no last looks.
    quality: &'a [Quality],
}

#[derive(Clone, Debug)]
enum Cells {
    Float(Run<f64>),
    /// Ints, and bools as 0 and 1.
    Int(Run<i64>),
    Text(Run<Arc<str>>),
    Bytes(Run<Arc<[u8]>>),
    Json(Run<Arc<str>>),
    Floats(Run<Arc<[f64]>>),
}

/// Buckets in the order in which their samples came.
#[derive(Clone, Debug)]
struct Run<T: Aggregable> {
    cells: Vec<BucketCell<T>>,
    /// Whether some bucket is not after its predecessor: the clock was set back.
    mixed: bool,
    /// Bytes of the last values; 0 for numbers.
    bytes: usize,
    /// Life and time of the first sample, if the value that held before it was not added.
    head: Option<(i64, i64)>,
    /// The value that holds after the newest sample.
    tail: Option<Tail<T>>,
}

/// The newest sample of a life.
#[derive(Clone, Debug)]
struct Tail<T> {
    life: i64,
    ts: i64,
    /// Time until which it was counted.
    until: i64,
    value: T,
}

/// Returns the hour of a time: from its first instant to that of the next hour.
pub fn hour_of(ts: i64) -> Span {
    let from = ts.saturating_sub(ts.rem_euclid(HOUR_NS));
    Span {
        from,
        to: from.saturating_add(HOUR_NS),
    }
}

impl<T> Tail<T> {
    fn new(life: i64, ts: i64, value: T) -> Self {
        let until = ts;
        Self {
            life,
            ts,
            until,
            value,
        }
    }
}

/// Most buckets that are made before the caller checks whether there is room for them.
const GROWTH_MAX: usize = 1 << 14;

impl Fold {
    /// Returns an empty fold of a series of this type; starts of buckets will be multiples of
    /// `step_ns`, and only samples within the span count.
    pub fn new(value_type: ValueType, step_ns: i64, span: Span) -> Self {
        let cells = match value_type {
            ValueType::Float => Cells::Float(Run::new()),
            ValueType::Int | ValueType::Bool => Cells::Int(Run::new()),
            ValueType::Text => Cells::Text(Run::new()),
            ValueType::Bytes => Cells::Bytes(Run::new()),
            ValueType::Json => Cells::Json(Run::new()),
            ValueType::Floats => Cells::Floats(Run::new()),
        };
        Self {
            value_type,
            cut: Cut {
                step_ns: step_ns.max(1),
                span,
                holds: true,
            },
            cells,
        }
    }

    /// Returns the number of buckets so far; if the clock was set back, some may be merged at the
    /// end.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Float(run) => run.cells.len(),
            Cells::Int(run) => run.cells.len(),
            Cells::Text(run) | Cells::Json(run) => run.cells.len(),
            Cells::Bytes(run) => run.cells.len(),
            Cells::Floats(run) => run.cells.len(),
        }
    }

    /// Returns the size in buckets: the number of buckets, and the bytes of long values divided by
    /// those of a bucket.
    pub fn weight(&self) -> usize {
        let bytes = match &self.cells {
            // Texts are short here.
            Cells::Float(_) | Cells::Int(_) | Cells::Text(_) => 0,
            Cells::Json(run) => run.bytes,
            Cells::Bytes(run) => run.bytes,
            Cells::Floats(run) => run.bytes,
        };
        self.len() + bytes / BUCKET_BYTES
    }

    /// Whether there is no bucket yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds samples from row `at` on: those of one life in order of number, lives in order. Returns
    /// the row to continue from, since a call makes no more than some thousand buckets. Columns of
    /// another type are not added.
    pub fn add(&mut self, life: i64, columns: &Columns, at: usize) -> usize {
        let rows = Rows {
            life,
            ts: &columns.ts,
            quality: &columns.quality,
        };
        match (&mut self.cells, &columns.values) {
            (Cells::Float(run), Values::Float(v)) => run.add(rows, v, at, self.cut),
            (Cells::Int(run), Values::Int(v)) => run.add(rows, v, at, self.cut),
            (Cells::Int(run), Values::Bool(v)) => {
                let v: Vec<i64> = v.iter().map(|v| i64::from(*v)).collect();
                run.add(rows, &v, at, self.cut)
            }
            (_, values) => self.add_long(rows, values, at),
        }
    }

    /// Adds all samples of a chunk.
    pub fn add_all(&mut self, life: i64, columns: &Columns) {
        let mut at = 0;
        while at < columns.len() {
            at = self.add(life, columns, at);
        }
    }

    /// Adds samples from a column of doubles; doubles of an integer series are whole.
    fn add_doubles(&mut self, rows: Rows<'_>, values: &[f64], at: usize) -> usize {
        match &mut self.cells {
            Cells::Float(run) => run.add(rows, values, at, self.cut),
            Cells::Int(run) => {
                let ints: Vec<i64> = values.iter().map(|v| *v as i64).collect();
                run.add(rows, &ints, at, self.cut)
            }
            Cells::Text(_) | Cells::Bytes(_) | Cells::Json(_) | Cells::Floats(_) => rows.ts.len(),
        }
    }

    /// Adds samples that are not numbers.
    fn add_long(&mut self, rows: Rows<'_>, values: &Values, at: usize) -> usize {
        match (&mut self.cells, values) {
            (Cells::Text(run), Values::Text(v)) => run.add_texts(rows, v, at, self.cut),
            (Cells::Bytes(run), Values::Bytes(v)) => run.add(rows, v, at, self.cut),
            (Cells::Json(run), Values::Json(v)) => run.add(rows, v, at, self.cut),
            (Cells::Floats(run), Values::Floats(v)) => run.add(rows, v, at, self.cut),
            _ => rows.ts.len(),
        }
    }

    fn add_ints(&mut self, rows: Rows<'_>, values: &[i64], at: usize) -> usize {
        match &mut self.cells {
            Cells::Int(run) => run.add(rows, values, at, self.cut),
            _ => rows.ts.len(),
        }
    }

    /// Counts the newest sample as held until this time, if it is of this life and hour. Returns
    /// whether it was counted until then: a call makes no more than some thousand buckets.
    pub fn hold_until(&mut self, life: i64, ts: i64) -> bool {
        match &mut self.cells {
            Cells::Float(run) => run.hold_until(life, ts, self.cut),
            Cells::Int(run) => run.hold_until(life, ts, self.cut),
            Cells::Text(run) | Cells::Json(run) => run.hold_until(life, ts, self.cut),
            Cells::Bytes(run) => run.hold_until(life, ts, self.cut),
            Cells::Floats(run) => run.hold_until(life, ts, self.cut),
        }
    }

    /// Sets the sample of this life that precedes the next one.
    pub(crate) fn follow(&mut self, life: i64, ts: i64, value: &Value) {
        match (&mut self.cells, value) {
            (Cells::Float(run), Value::Float(v)) => run.tail = Some(Tail::new(life, ts, *v)),
            (Cells::Int(run), Value::Int(v)) => run.tail = Some(Tail::new(life, ts, *v)),
            (Cells::Int(run), Value::Bool(v)) => {
                run.tail = Some(Tail::new(life, ts, i64::from(*v)));
            }
            (Cells::Text(run), Value::Text(v)) => {
                run.tail = Some(Tail::new(life, ts, Arc::clone(v)));
            }
            _ => {}
        }
    }

    /// Forgets the newest sample: the next one may not follow it.
    pub(crate) fn forget_newest(&mut self) {
        match &mut self.cells {
            Cells::Float(run) => run.tail = None,
            Cells::Int(run) => run.tail = None,
            Cells::Text(run) | Cells::Json(run) => run.tail = None,
            Cells::Bytes(run) => run.tail = None,
            Cells::Floats(run) => run.tail = None,
        }
    }

    /// Sets the span that counts from now on.
    pub(crate) fn reach(&mut self, span: Span) {
        self.cut.span = span;
    }

    /// Makes the following samples count only in the buckets that they are in, and not in later
    /// ones.
    pub(crate) fn stop_holding(&mut self) {
        self.cut.holds = false;
    }

    /// Returns life and time of the first sample, if the value that held before it was not added.
    fn head(&self) -> Option<(i64, i64)> {
        match &self.cells {
            Cells::Float(run) => run.head,
            Cells::Int(run) => run.head,
            Cells::Text(run) | Cells::Json(run) => run.head,
            Cells::Bytes(run) => run.head,
            Cells::Floats(run) => run.head,
        }
    }

    /// Adds buckets of a finer step that divides ours, in order: those that start within the span.
    /// Buckets do not contain how many of their samples were NaN: it is assumed that none were,
    /// unless all were.
    pub fn add_buckets(&mut self, buckets: &Buckets) {
        let cut = self.cut;
        let bools = |v: &[bool]| v.iter().map(|v| i64::from(*v)).collect::<Vec<_>>();
        match (&mut self.cells, &buckets.min, &buckets.max, &buckets.last) {
            (Cells::Float(run), Values::Float(min), Values::Float(max), Values::Float(last)) => {
                run.add_buckets(buckets, [min, max, last], cut);
            }
            (Cells::Int(run), Values::Int(min), Values::Int(max), Values::Int(last)) => {
                run.add_buckets(buckets, [min, max, last], cut);
            }
            (Cells::Int(run), Values::Bool(min), Values::Bool(max), Values::Bool(last)) => {
                let (min, max, last) = (bools(min), bools(max), bools(last));
                run.add_buckets(buckets, [&min, &max, &last], cut);
            }
            (Cells::Text(run), _, _, Values::Text(last)) => {
                run.add_buckets(buckets, [last, last, last], cut);
            }
            _ => {}
        }
    }

    /// Merges a fold of later samples: its last values win.
    fn merge(&mut self, later: Self) {
        match (&mut self.cells, later.cells) {
            (Cells::Float(run), Cells::Float(later)) => run.merge(later),
            (Cells::Int(run), Cells::Int(later)) => run.merge(later),
            (Cells::Text(run), Cells::Text(later)) | (Cells::Json(run), Cells::Json(later)) => {
                run.merge(later);
            }
            (Cells::Bytes(run), Cells::Bytes(later)) => run.merge(later),
            (Cells::Floats(run), Cells::Floats(later)) => run.merge(later),
            _ => {}
        }
    }

    /// Returns the buckets in order of time. For values that are not numbers, the least and the
    /// greatest are the last; of a text they have its first [`TEXT_BYTES_MAX`] bytes.
    pub fn finish(self) -> Buckets {
        match self.cells {
            Cells::Float(run) => run.finish(Values::Float),
            Cells::Int(run) if self.value_type == ValueType::Bool => {
                run.finish(|v| Values::Bool(v.into_iter().map(|v| v != 0).collect()))
            }
            Cells::Int(run) => run.finish(Values::Int),
            Cells::Text(run) => run.finish(Values::Text),
            Cells::Bytes(run) => run.finish(Values::Bytes),
            Cells::Json(run) => run.finish(Values::Json),
            Cells::Floats(run) => run.finish(Values::Floats),
        }
    }
}

impl<T: Aggregable> Run<T> {
    fn new() -> Self {
        Self {
            cells: Vec::new(),
            mixed: false,
            bytes: 0,
            head: None,
            tail: None,
        }
    }

    /// Whether nothing was added yet.
    fn is_new(&self) -> bool {
        self.cells.is_empty() && self.head.is_none() && self.tail.is_none()
    }

    /// Folds samples from a row on, from one last look to the next; returns the row to continue
    /// from.
    fn add(&mut self, rows: Rows<'_>, values: &[T], mut at: usize, cut: Cut) -> usize {
        // Both have the same length; slicing them shows it to the compiler, so that the loops need
        // no checks.
        let count = rows.ts.len().min(values.len());
        let (ts, values) = (&rows.ts[..count], &values[..count]);
        let quality = &rows.quality[..count.min(rows.quality.len())];
        if self.is_new() {
            self.head = ts.get(at).map(|ts| (rows.life, *ts));
        }
        while at < count {
            if !self.hold_until(rows.life, ts[at], cut) {
                return at;
            }
            let looks = quality.get(at..).unwrap_or_default();
            let looks = looks.iter().position(|q| *q == Quality::Ended);
            let end = looks.map_or(count, |looks| at + looks);
            at = self.add_looks(rows.life, &ts[..end], &values[..end], at, cut);
            if at < end {
                return at;
            }
            if end < count {
                if !self.hold_until(rows.life, ts[end], cut) {
                    return end;
                }
                self.tail = None;
                at = end + 1;
            }
        }
        rows.ts.len()
    }

    /// Cuts the samples where a bucket ends, and folds each piece; returns the row to continue
    /// from.
    fn add_looks(&mut self, life: i64, ts: &[i64], values: &[T], mut at: usize, cut: Cut) -> usize {
        let full = self.cells.len() + GROWTH_MAX;
        let span = cut.span;
        let mut bucket = Bucket::of(ts.get(at).copied().unwrap_or(0), cut.step_ns);
        while at < ts.len() {
            let first = ts[at];
            let mut end = at + 1;
            if span.holds(first) {
                bucket = bucket.seek(first, cut.step_ns);
                let hour = hour_of(first);
                let from = bucket.start.max(span.from).max(hour.from);
                let to = bucket.last.min(span.to).min(hour.to - 1);
                while end < ts.len() && from <= ts[end] && ts[end] <= to {
                    end += 1;
                }
                self.push(T::cell(bucket.start, &ts[at..end], &values[at..end]));
            }
            self.tail = Some(Tail::new(life, ts[end - 1], values[end - 1].clone()));
            at = end;
            if at < ts.len() && (!self.hold_until(life, ts[at], cut) || self.cells.len() >= full) {
                break;
            }
        }
        at
    }

    fn hold_until(&mut self, life: i64, ts: i64, cut: Cut) -> bool {
        let is_its = |tail: &mut Tail<T>| tail.life == life && tail.until < ts;
        let Some(mut tail) = self.tail.take_if(is_its) else {
            return true;
        };
        let is_same_hour = ts < hour_of(tail.ts).to;
        let until = match cut.holds && is_same_hour {
            true => ts,
            false => tail.until,
        };
        tail.until = self.hold(tail.until, until, &tail.value, cut);
        let is_done = tail.until >= until;
        self.tail = Some(tail);
        is_done
    }

    /// Counts a value that held from one time until another, bucket by bucket and within the span;
    /// returns until when it was counted.
    fn hold(&mut self, from: i64, until: i64, value: &T, cut: Cut) -> i64 {
        let full = self.cells.len() + GROWTH_MAX;
        let mut from = from.max(cut.span.from);
        // Times are whole ns: the last ns of the span is in it to its end.
        let end = until.min(cut.span.to.saturating_add(1));
        if value.known().is_none() {
            return until;
        }
        while from < end {
            if self.cells.len() >= full {
                return from;
            }
            let bucket = Bucket::of(from, cut.step_ns);
            let next = bucket.last.saturating_add(1).min(end);
            if next <= from {
                break; // End of the range of i64.
            }
            if let Some(cell) = BucketCell::held(bucket.start, next.abs_diff(from), value) {
                self.push(cell);
            }
            from = next;
        }
        until
    }

    fn add_buckets(&mut self, buckets: &Buckets, [min, max, last]: [&[T]; 3], cut: Cut) {
        self.tail = None;
        for (row, ts) in buckets.ts.iter().enumerate() {
            let values = min.get(row).zip(max.get(row)).zip(last.get(row));
            let Some(((min, max), last)) = values.filter(|_| cut.span.holds(*ts)) else {
                continue;
            };
            let (count, held_ns) = (buckets.count[row], buckets.held_ns[row]);
            let (mean, sample_mean) = (buckets.mean[row], buckets.sample_mean[row]);
            let known = if sample_mean.is_nan() { 0 } else { count };
            let area = mean * held_ns as f64;
            self.push(BucketCell {
                start: Bucket::of(*ts, cut.step_ns).start,
                count,
                known,
                sum: T::sum(sample_mean, known),
                held_ns,
                area: if area.is_nan() { 0.0 } else { area },
                min: min.clone(),
                max: max.clone(),
                last: last.clone(),
            });
        }
    }

    fn push(&mut self, cell: BucketCell<T>) {
        self.bytes += cell.last.bytes();
        match self.cells.last_mut() {
            Some(newest) if newest.start == cell.start => {
                self.bytes -= newest.last.bytes();
                newest.merge(cell);
            }
            newest => {
                self.mixed |= newest.is_some_and(|newest| newest.start > cell.start);
                self.cells.push(cell);
            }
        }
    }

    fn merge(&mut self, later: Self) {
        if later.is_new() {
            return;
        }
        self.mixed |= later.mixed;
        self.bytes += later.bytes;
        if self.is_new() {
            self.head = later.head;
        }
        let mut cells = later.cells.into_iter();
        if let Some(first) = cells.next() {
            self.bytes -= first.last.bytes();
            self.push(first);
            self.cells.extend(cells);
        }
        self.tail = later.tail;
    }

    fn finish(mut self, wrap: impl Fn(Vec<T>) -> Values) -> Buckets {
        if self.mixed {
            // The sort is stable: of one bucket, the value that came last stays last.
            self.cells.sort_by_key(|cell| cell.start);
            self.cells.dedup_by(|later, kept| {
                let same = later.start == kept.start;
                if same {
                    kept.merge(later.clone());
                }
                same
            });
        }
        let cells = &self.cells;
        Buckets {
            ts: cells.iter().map(|cell| cell.start).collect(),
            count: cells.iter().map(|cell| cell.count).collect(),
            held_ns: cells.iter().map(|cell| cell.held_ns).collect(),
            mean: cells.iter().map(BucketCell::mean).collect(),
            sample_mean: cells.iter().map(BucketCell::sample_mean).collect(),
            min: wrap(cells.iter().map(|cell| cell.min.clone()).collect()),
            max: wrap(cells.iter().map(|cell| cell.max.clone()).collect()),
            last: wrap(cells.iter().map(|cell| cell.last.clone()).collect()),
        }
    }
}

impl Run<Arc<str>> {
    /// Like [`Self::add`]; a bucket keeps only the beginning of its text, as in the tiers.
    fn add_texts(&mut self, rows: Rows<'_>, values: &[Arc<str>], at: usize, cut: Cut) -> usize {
        let known = self.cells.len().saturating_sub(1);
        let at = self.add(rows, values, at, cut);
        if let Some(tail) = self
            .tail
            .as_mut()
            .filter(|t| t.value.len() > TEXT_BYTES_MAX)
        {
            tail.value = text_start(&tail.value, TEXT_BYTES_MAX).into();
        }
        for cell in &mut self.cells[known..] {
            if cell.last.len() > TEXT_BYTES_MAX {
                let start: Arc<str> = text_start(&cell.last, TEXT_BYTES_MAX).into();
                self.bytes = self.bytes - cell.last.len() + start.len();
                cell.min = Arc::clone(&start);
                cell.max = Arc::clone(&start);
                cell.last = start;
            }
        }
        at
    }
}

/// The bounds of a bucket, both included.
#[derive(Clone, Copy)]
struct Bucket {
    start: i64,
    last: i64,
}

impl Bucket {
    fn of(ts: i64, step_ns: i64) -> Self {
        // The first bucket may begin before the least time of an i64.
        let start = ts.saturating_sub(ts.rem_euclid(step_ns));
        Self {
            start,
            last: start.saturating_add(step_ns - 1).max(ts),
        }
    }

    /// Returns the bucket of `ts`; mostly it is the following one, which needs no division.
    fn seek(self, ts: i64, step_ns: i64) -> Self {
        if let Some(start) = self.last.checked_add(1)
            && let Some(last) = self.last.checked_add(step_ns)
            && (start..=last).contains(&ts)
            && self.last - self.start == step_ns - 1
        {
            return Self { start, last };
        }
        Self::of(ts, step_ns)
    }
}
