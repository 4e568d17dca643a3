//! Samples to buckets: [`Fold`] takes the samples of a series chunk after chunk and keeps only buckets.
//!
//! It stands alone because sealing, every read by step and the merging of parts end here, and because
//! its loops are the hot path of `history()`: over slices of one type, one bucket at a time.

mod budget;
mod number;
mod parallel;

use std::sync::Arc;

use barograph_model::{Buckets, Columns, Span, TEXT_BYTES_MAX, ValueType, Values, text_start};

pub use budget::{BUCKET_BYTES, Budget};
use number::{Cell, Number};
pub use parallel::{Ask, aggregate};

/// Buckets of one series in the making.
#[derive(Clone, Debug)]
pub struct Fold {
    value_type: ValueType,
    step_ns: i64,
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Cells {
    Float(Run<f64>),
    /// Bools are here too, as 0 and 1.
    Int(Run<i64>),
    Text(Run<Arc<str>>),
    Bytes(Run<Arc<[u8]>>),
    Json(Run<Arc<str>>),
    Floats(Run<Arc<[f64]>>),
}

/// Buckets in the order in which their samples came.
#[derive(Clone, Debug)]
struct Run<T: Number> {
    cells: Vec<Cell<T>>,
    /// Some bucket is not after the one before: the clock was set back.
    mixed: bool,
    /// Bytes of the last values; of numbers none.
    bytes: usize,
}

impl Fold {
    /// None yet, of a series of this type; starts will be multiples of `step_ns`.
    pub fn new(value_type: ValueType, step_ns: i64) -> Self {
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
            step_ns: step_ns.max(1),
            cells,
        }
    }

    /// Buckets so far; where the clock was set back, some may turn out to be one.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Float(run) => run.cells.len(),
            Cells::Int(run) => run.cells.len(),
            Cells::Text(run) | Cells::Json(run) => run.cells.len(),
            Cells::Bytes(run) => run.cells.len(),
            Cells::Floats(run) => run.cells.len(),
        }
    }

    /// What it counts for: its buckets, and as many as have the bytes of its long values.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the samples within the span: of one life in order of number, lives in order. Columns of
    /// another type are not added.
    pub fn add(&mut self, columns: &Columns, span: Span) {
        let (ts, step) = (&columns.ts, self.step_ns);
        match (&mut self.cells, &columns.values) {
            (Cells::Float(run), Values::Float(v)) => run.add(ts, v, step, span),
            (Cells::Int(run), Values::Int(v)) => run.add(ts, v, step, span),
            (Cells::Int(run), Values::Bool(v)) => {
                let v: Vec<i64> = v.iter().map(|v| i64::from(*v)).collect();
                run.add(ts, &v, step, span);
            }
            (Cells::Text(run), Values::Text(v)) => run.add_texts(ts, v, step, span),
            (Cells::Bytes(run), Values::Bytes(v)) => run.add(ts, v, step, span),
            (Cells::Json(run), Values::Json(v)) => run.add(ts, v, step, span),
            (Cells::Floats(run), Values::Floats(v)) => run.add(ts, v, step, span),
            _ => {}
        }
    }

    /// Adds samples as the column of doubles has them; those of integers are whole.
    fn add_doubles(&mut self, ts: &[i64], values: &[f64], ints: &mut Vec<i64>, span: Span) {
        match &mut self.cells {
            Cells::Float(run) => run.add(ts, values, self.step_ns, span),
            Cells::Int(run) => {
                ints.clear();
                ints.extend(values.iter().map(|v| *v as i64));
                run.add(ts, ints, self.step_ns, span);
            }
            Cells::Text(_) | Cells::Bytes(_) | Cells::Json(_) | Cells::Floats(_) => {}
        }
    }

    /// Adds samples of what is no number.
    fn add_long(&mut self, ts: &[i64], values: &Values, span: Span) {
        let step = self.step_ns;
        match (&mut self.cells, values) {
            (Cells::Text(run), Values::Text(v)) => run.add_texts(ts, v, step, span),
            (Cells::Bytes(run), Values::Bytes(v)) => run.add(ts, v, step, span),
            (Cells::Json(run), Values::Json(v)) => run.add(ts, v, step, span),
            (Cells::Floats(run), Values::Floats(v)) => run.add(ts, v, step, span),
            _ => {}
        }
    }

    /// Adds samples of integers.
    fn add_ints(&mut self, ts: &[i64], values: &[i64], span: Span) {
        if let Cells::Int(run) = &mut self.cells {
            run.add(ts, values, self.step_ns, span);
        }
    }

    /// Adds buckets of a step of which ours is a multiple, in order: those that start within the span.
    /// They do not tell how many samples of theirs were NaN: none, unless all were.
    pub fn add_buckets(&mut self, buckets: &Buckets, span: Span) {
        let step = self.step_ns;
        let bools = |v: &[bool]| v.iter().map(|v| i64::from(*v)).collect::<Vec<_>>();
        match (&mut self.cells, &buckets.min, &buckets.max, &buckets.last) {
            (Cells::Float(run), Values::Float(min), Values::Float(max), Values::Float(last)) => {
                run.add_buckets(buckets, [min, max, last], step, span);
            }
            (Cells::Int(run), Values::Int(min), Values::Int(max), Values::Int(last)) => {
                run.add_buckets(buckets, [min, max, last], step, span);
            }
            (Cells::Int(run), Values::Bool(min), Values::Bool(max), Values::Bool(last)) => {
                let (min, max, last) = (bools(min), bools(max), bools(last));
                run.add_buckets(buckets, [&min, &max, &last], step, span);
            }
            (Cells::Text(run), _, _, Values::Text(last)) => {
                run.add_buckets(buckets, [last, last, last], step, span);
            }
            _ => {}
        }
    }

    /// Adds what came after this: its last values win.
    pub fn merge(&mut self, later: Self) {
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

    /// The buckets in order of time. Of what is no number the least and the greatest are the last; of a text
    /// its first [`TEXT_BYTES_MAX`] bytes.
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

impl<T: Number> Run<T> {
    fn new() -> Self {
        Self {
            cells: Vec::new(),
            mixed: false,
            bytes: 0,
        }
    }

    /// Cuts the samples where a bucket ends, and folds each piece.
    fn add(&mut self, ts: &[i64], values: &[T], step_ns: i64, span: Span) {
        // Both have the same length; said so that the loops need no checks.
        let rows = ts.len().min(values.len());
        let (ts, values) = (&ts[..rows], &values[..rows]);
        let mut at = 0;
        let mut bucket = Bucket::of(ts.first().copied().unwrap_or(0), step_ns);
        while at < rows {
            let first = ts[at];
            if !span.holds(first) {
                at += 1;
                continue;
            }
            bucket = bucket.seek(first, step_ns);
            let from = bucket.start.max(span.from);
            let to = bucket.last.min(span.to);
            let mut end = at + 1;
            while end < rows && from <= ts[end] && ts[end] <= to {
                end += 1;
            }
            self.push(T::cell(bucket.start, &values[at..end]));
            at = end;
        }
    }

    fn add_buckets(
        &mut self,
        buckets: &Buckets,
        [min, max, last]: [&[T]; 3],
        step_ns: i64,
        span: Span,
    ) {
        let means = buckets.mean.iter().zip(&buckets.count);
        let values = min.iter().zip(max).zip(last);
        let rows = buckets.ts.iter().zip(means).zip(values);
        for ((ts, (mean, count)), ((min, max), last)) in rows {
            if !span.holds(*ts) {
                continue;
            }
            let known = if mean.is_nan() { 0 } else { *count };
            self.push(Cell {
                start: Bucket::of(*ts, step_ns).start,
                count: *count,
                known,
                sum: T::sum(*mean, known),
                min: min.clone(),
                max: max.clone(),
                last: last.clone(),
            });
        }
    }

    fn push(&mut self, cell: Cell<T>) {
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
        self.mixed |= later.mixed;
        self.bytes += later.bytes;
        let mut cells = later.cells.into_iter();
        if let Some(first) = cells.next() {
            self.bytes -= first.last.bytes();
            self.push(first);
            self.cells.extend(cells);
        }
    }

    fn finish(mut self, wrap: impl Fn(Vec<T>) -> Values) -> Buckets {
        if self.mixed {
            // Stable: of one bucket, what came last stays last.
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
            mean: cells.iter().map(|c| T::mean(c.sum, c.known)).collect(),
            min: wrap(cells.iter().map(|cell| cell.min.clone()).collect()),
            max: wrap(cells.iter().map(|cell| cell.max.clone()).collect()),
            last: wrap(cells.iter().map(|cell| cell.last.clone()).collect()),
        }
    }
}

impl Run<Arc<str>> {
    /// As [`Self::add`]; of a bucket only the beginning of its text is kept, as in the tiers.
    fn add_texts(&mut self, ts: &[i64], values: &[Arc<str>], step_ns: i64, span: Span) {
        let known = self.cells.len().saturating_sub(1);
        self.add(ts, values, step_ns, span);
        for cell in &mut self.cells[known..] {
            if cell.last.len() > TEXT_BYTES_MAX {
                let start: Arc<str> = text_start(&cell.last, TEXT_BYTES_MAX).into();
                self.bytes = self.bytes - cell.last.len() + start.len();
                cell.min = Arc::clone(&start);
                cell.max = Arc::clone(&start);
                cell.last = start;
            }
        }
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
        // The first bucket of all time may begin before it.
        let start = ts.saturating_sub(ts.rem_euclid(step_ns));
        Self {
            start,
            last: start.saturating_add(step_ns - 1).max(ts),
        }
    }

    /// The bucket of `ts`, which is mostly the one that follows: no division then.
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
