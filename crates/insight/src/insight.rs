//! One insight: its plan, its rows, and the streams that it writes.
//!
//! The graph decides when an insight runs; this module runs it.

use std::collections::{BTreeMap, HashMap};

use barograph_model::{
    Descriptor, Kind, Labels, Name, Quality, Sample, Sink, StreamKey, Unit, Value, ValueType,
};

use crate::GraphLimits;
use crate::plan::InsightPlan;
use crate::rows::{GroupOutcome, InsightRows};
use crate::slot::{SlotReader, SlotSample, SlotStore};
use barograph_statement::{SqlValue, UncertainValue};

/// Marker for a group beyond `groups_max`, which has no output.
const NO_OUTPUT: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Insight {
    pub id: u32,
    pub name: Name,
    pub sql: String,
    pub builtin: bool,
    pub unit: Unit,
    pub help: String,
    pub plan: InsightPlan,
    /// The table of its output streams.
    pub table: u32,
    /// One more than the rank of the deepest insight that it reads.
    pub rank: usize,
    /// Whether streams came or went, so that rows and outputs must be built anew.
    pub stale: bool,
    pub dirty: bool,
    pub evaluations: u64,
    pub cost_ns: u64,
    /// Reason why the insight as a whole has fewer values than it should; empty if it has all.
    pub reason: String,
    rows: Vec<InsightRows>,
    outputs: Vec<Output>,
    dirty_outputs: Vec<u32>,
}

/// One output stream, with the groups that have its labels. At most one of these groups may give a
/// row.
#[derive(Debug)]
struct Output {
    labels: Labels,
    cells: Vec<(u32, u32)>,
    slot: u32,
    stream: Option<Stream>,
    /// Whether a value was a real; from then on all values are reals.
    real: bool,
    /// Whether the sink had no room for the stream.
    refused: bool,
    dirty: bool,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    key: StreamKey,
    value_type: ValueType,
    /// Time of its newest sample, if it has one, in ns.
    ts: Option<i64>,
}

/// The parts that a run uses and changes besides the insight itself.
pub(crate) struct InsightRun<'a> {
    pub store: &'a mut SlotStore,
    pub sink: &'a mut dyn Sink,
    pub limits: &'a GraphLimits,
    pub now_ns: i64,
    /// Output slots whose newest sample changed.
    pub changed: &'a mut Vec<u32>,
    /// Whether output streams came or went in this run.
    pub reshaped: bool,
}

/// The properties of a new insight.
pub(crate) struct InsightParts {
    pub name: Name,
    pub sql: String,
    pub builtin: bool,
    pub unit: Unit,
    pub help: String,
    pub plan: InsightPlan,
    pub table: u32,
    pub rank: usize,
}

impl Insight {
    pub(crate) fn new(id: u32, parts: InsightParts) -> Self {
        let InsightParts {
            name,
            sql,
            builtin,
            unit,
            help,
            plan,
            table,
            rank,
        } = parts;
        Self {
            id,
            name,
            sql,
            builtin,
            unit,
            help,
            plan,
            table,
            rank,
            stale: true,
            dirty: true,
            evaluations: 0,
            cost_ns: 0,
            reason: String::new(),
            rows: Vec::new(),
            outputs: Vec::new(),
            dirty_outputs: Vec::new(),
        }
    }

    /// Marks a row whose sample is new. Allocates nothing.
    pub(crate) fn mark(&mut self, branch: u32, row: u32) {
        self.dirty = true;
        if let Some(rows) = self.rows.get_mut(branch as usize) {
            rows.mark(row);
        }
    }

    /// Brings rows, groups and outputs up to date.
    pub(crate) fn run(&mut self, run: &mut InsightRun<'_>) {
        self.evaluations += 1;
        self.dirty = false;
        if std::mem::take(&mut self.stale) {
            self.rebuild(run);
        }
        let (outputs, dirty) = (&mut self.outputs, &mut self.dirty_outputs);
        for (rows, branch) in self.rows.iter_mut().zip(&self.plan.branches) {
            rows.refresh(branch, &run.store.slots, &|| true, |output| {
                if let Some(state) = outputs.get_mut(output as usize)
                    && !state.dirty
                {
                    state.dirty = true;
                    dirty.push(output);
                }
            });
        }
        // Outputs are published in a fixed order, so that equal histories write equal segments.
        self.dirty_outputs.sort_unstable_by(|a, b| b.cmp(a));
        while let Some(output) = self.dirty_outputs.pop() {
            self.publish(output as usize, run);
        }
    }

    /// Passes the looks at its inputs on to its outputs: a value is as old as the stalest input
    /// that it was computed from, and has the longest of their intervals.
    pub(crate) fn confirm(&mut self, store: &mut SlotStore, sink: &mut dyn Sink) {
        for output in &self.outputs {
            let Some(stream) = output.stream.filter(|s| s.ts.is_some()) else {
                continue;
            };
            let cells = output.cells.iter();
            let looks =
                cells.filter_map(|&(b, cell)| self.rows[b as usize].looks(&store.slots, cell));
            let Some((looked_ns, interval_ns)) = looks.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            else {
                continue;
            };
            let slot = &mut store.slots[output.slot as usize];
            slot.looked_ns = looked_ns;
            sink.confirm(stream.key, looked_ns);
            if slot.interval_ns != interval_ns {
                slot.interval_ns = interval_ns;
                sink.expect_interval(stream.key, interval_ns);
            }
        }
    }

    /// Removes the insight from the readers of its inputs.
    pub(crate) fn unhook(&self, store: &mut SlotStore) {
        for table in self.plan.tables() {
            for at in 0..store.tables[table as usize].slots.len() {
                let slot = store.tables[table as usize].slots[at];
                store.slots[slot as usize]
                    .readers
                    .retain(|r| r.insight != self.id);
            }
        }
    }

    /// Ends its outputs; returns the streams that must be retired.
    pub(crate) fn end_outputs(&mut self, store: &mut SlotStore) -> Vec<StreamKey> {
        let outputs = std::mem::take(&mut self.outputs);
        outputs.iter().for_each(|o| {
            store.remove_slot(o.slot);
        });
        self.rows.clear();
        self.dirty_outputs.clear();
        outputs
            .iter()
            .filter_map(|o| o.stream.map(|s| s.key))
            .collect()
    }

    fn rebuild(&mut self, run: &mut InsightRun<'_>) {
        self.unhook(run.store);
        self.rows.clear();
        self.reason.clear();
        self.dirty_outputs.clear();
        for branch in &self.plan.branches {
            match InsightRows::build(branch, run.store, run.limits) {
                Ok(rows) => self.rows.push(rows),
                Err(reason) => {
                    self.rows.clear();
                    self.reason = reason;
                    break;
                }
            }
        }
        for (branch, rows) in self.rows.iter().enumerate() {
            for (row, slots) in rows.inputs() {
                let reader = SlotReader {
                    insight: self.id,
                    branch: branch as u32,
                    row,
                };
                for &slot in slots {
                    run.store.slots[slot as usize].readers.push(reader);
                }
            }
        }
        self.match_outputs(run);
    }

    /// Assigns an output to each group: keeps existing outputs, makes new ones, and ends the rest.
    fn match_outputs(&mut self, run: &mut InsightRun<'_>) {
        let mut before: BTreeMap<Labels, Output> = self
            .outputs
            .drain(..)
            .map(|o| (o.labels.clone(), o))
            .collect();
        let mut index: HashMap<Labels, u32> = HashMap::new();
        let mut left_out = 0_usize;
        let may_be_real = self.plan.may_be_real(run.store);
        for (branch, rows) in self.rows.iter_mut().enumerate() {
            for cell in 0..rows.cells.len() as u32 {
                let pairs = rows.labels(&self.plan.branches[branch], &run.store.slots, cell);
                let labels = match Labels::new(pairs.iter().map(|(n, v)| (n.as_str(), &**v))) {
                    Ok(labels) => labels,
                    Err(e) => {
                        self.reason = e.to_string();
                        continue;
                    }
                };
                let output = match index.get(&labels) {
                    Some(&output) => output,
                    None if self.outputs.len() >= run.limits.groups_max => {
                        left_out += 1;
                        NO_OUTPUT
                    }
                    None => {
                        let output = before.remove(&labels).map_or_else(
                            || Output::new(labels.clone(), self.table, may_be_real, run),
                            |old| old.renewed(may_be_real),
                        );
                        self.outputs.push(output);
                        let at = self.outputs.len() as u32 - 1;
                        index.insert(labels, at);
                        at
                    }
                };
                rows.cells[cell as usize].output = output;
                if let Some(output) = self.outputs.get_mut(output as usize) {
                    output.cells.push((branch as u32, cell));
                }
            }
        }
        if left_out > 0 {
            let max = run.limits.groups_max;
            self.reason =
                format!("{left_out} groups over the limit of {max} (groups_max) left out");
        }
        for output in before.into_values() {
            if let Some(stream) = output.stream {
                run.sink.retire(stream.key);
            }
            run.store.remove_slot(output.slot);
            run.reshaped = true;
        }
        self.dirty_outputs.reserve(self.outputs.len());
    }

    /// Writes the present value of an output's groups.
    fn publish(&mut self, at: usize, run: &mut InsightRun<'_>) {
        let output = &mut self.outputs[at];
        output.dirty = false;
        output.reason = None;
        let mut row = None;
        for &(branch, cell) in &output.cells {
            match &self.rows[branch as usize].cells[cell as usize].outcome {
                GroupOutcome::Absent => {}
                GroupOutcome::Failed(fault) => output.reason = Some((*fault).to_owned()),
                GroupOutcome::Row {
                    known,
                    ts,
                    predicted,
                } if row.is_none() => {
                    row = Some((known.clone(), *ts, *predicted));
                }
                GroupOutcome::Row { .. } => {
                    output.reason = Some(format!(
                        "two rows have the labels {}: select a label that tells them apart",
                        if output.labels.is_empty() {
                            "{}".into()
                        } else {
                            output.labels.to_string()
                        },
                    ));
                }
            }
        }
        if output.reason.is_some() {
            row = None;
        }
        let of_all = |(branch, _): &(u32, u32)| {
            self.plan.branches[*branch as usize]
                .group
                .as_ref()
                .is_some_and(Vec::is_empty)
        };
        let keep_empty = row.is_some() && output.cells.iter().any(of_all);
        match row.filter(|(known, ..)| !known.val.is_null()) {
            Some((known, ts, predicted)) => self.put(at, &known, ts, predicted, run),
            None => self.silence(at, keep_empty, run),
        }
    }

    /// Ends the stream of an output that has no value, so that the old value is not taken for the
    /// present one. A group of all rows continues as a new stream without a sample, so that its
    /// table remains.
    fn silence(&mut self, at: usize, keep_empty: bool, run: &mut InsightRun<'_>) {
        let output = &mut self.outputs[at];
        if let Some(stream) = output.stream
            && (stream.ts.is_some() || !keep_empty)
        {
            run.sink.retire(stream.key);
            output.stream = None;
        }
        let slot = &mut run.store.slots[output.slot as usize];
        if slot.newest.take().is_some() {
            run.changed.push(output.slot);
        }
        if keep_empty {
            let value_type = if output.real {
                ValueType::Float
            } else {
                ValueType::Int
            };
            self.declare(at, value_type, run);
        }
    }

    fn put(
        &mut self,
        at: usize,
        known: &UncertainValue,
        ts: Option<i64>,
        predicted: bool,
        run: &mut InsightRun<'_>,
    ) {
        let output = &mut self.outputs[at];
        output.real |= matches!(known.val, SqlValue::Real(_));
        let value = match &known.val {
            SqlValue::Text(text) => Value::text(text),
            SqlValue::Int(v) if !output.real => Value::Int(*v),
            other => Value::Float(other.as_f64().unwrap_or(f64::NAN)),
        };
        self.declare(at, value.value_type(), run);
        let output = &mut self.outputs[at];
        let slot = &mut run.store.slots[output.slot as usize];
        let Some(stream) = &mut output.stream else {
            // A value without a stream is in no table, and so not in this graph's either.
            if slot.newest.take().is_some() {
                run.changed.push(output.slot);
            }
            return;
        };
        let quality = if predicted {
            Quality::Predicted
        } else {
            Quality::Derived
        };
        let val = SqlValue::from(&value);
        let same = slot.newest.as_ref().is_some_and(|n| n.val == val);
        let ts = output_ts(stream.ts, ts, same, run.now_ns);
        let sample = Sample {
            ts,
            value,
            quality,
            error: round_up(known.err),
        };
        stream.ts = Some(ts);
        run.sink.put(stream.key, &sample);
        slot.looked_ns = ts;
        slot.real = stream.value_type == ValueType::Float;
        slot.newest = Some(SlotSample::from(&sample));
        run.changed.push(output.slot);
    }

    /// Makes sure that the output has a stream of this type, if there is room.
    fn declare(&mut self, at: usize, value_type: ValueType, run: &mut InsightRun<'_>) {
        let output = &mut self.outputs[at];
        if let Some(stream) = output.stream {
            if stream.value_type == value_type {
                return;
            }
            run.sink.retire(stream.key);
            output.stream = None;
        }
        if output.refused {
            return;
        }
        let descriptor = Descriptor {
            name: self.name.clone(),
            labels: output.labels.clone(),
            value_type,
            unit: self.unit.clone(),
            kind: if value_type == ValueType::Text {
                Kind::State
            } else {
                Kind::Gauge
            },
            help: self.help.clone(),
        };
        let key = run.sink.declare(&descriptor, None);
        output.refused = key.is_none();
        // The new stream has no interval yet.
        run.store.slots[output.slot as usize].interval_ns = 0;
        output.stream = key.map(|key| Stream {
            key,
            value_type,
            ts: None,
        });
    }

    /// Returns the number of outputs that have a value.
    pub(crate) fn groups(&self) -> usize {
        self.outputs
            .iter()
            .filter(|o| o.stream.is_some_and(|s| s.ts.is_some()))
            .count()
    }

    /// Returns the reason why the insight, or one of its outputs, fails.
    pub(crate) fn failure(&self) -> Option<String> {
        if !self.reason.is_empty() {
            return Some(self.reason.clone());
        }
        let refused = self.outputs.iter().filter(|o| o.refused).count();
        if refused > 0 {
            return Some(format!(
                "no room for {refused} of its streams: raise the limit on streams"
            ));
        }
        self.outputs.iter().find_map(|o| {
            o.reason.as_ref().map(|reason| match o.labels.is_empty() {
                true => reason.clone(),
                false => format!("{reason} (group {})", o.labels),
            })
        })
    }
}

impl Output {
    fn new(labels: Labels, table: u32, real: bool, run: &mut InsightRun<'_>) -> Self {
        run.reshaped = true;
        let value_type = if real {
            ValueType::Float
        } else {
            ValueType::Int
        };
        let slot = run.store.add_slot(table, &labels, value_type);
        let cells = Vec::new();
        Self {
            labels,
            cells,
            slot,
            stream: None,
            real,
            refused: false,
            dirty: false,
            reason: None,
        }
    }

    /// Returns the same output for new rows. Its stream may be declared again after a refusal.
    fn renewed(self, real: bool) -> Self {
        let real = self.real | real;
        Self {
            real,
            cells: Vec::new(),
            refused: false,
            dirty: false,
            reason: None,
            ..self
        }
    }
}

/// Returns the time of an output: that of the newest input. If the value changed although no input
/// is newer (one went away, or left the filter), it changed now. The time never goes back.
fn output_ts(before: Option<i64>, newest_input: Option<i64>, same: bool, now_ns: i64) -> i64 {
    match (before, newest_input) {
        (None, ts) => ts.unwrap_or(now_ns),
        (Some(before), Some(ts)) if ts > before => ts,
        (Some(before), _) if same => before,
        (Some(before), _) => now_ns.max(before),
    }
}

/// The nearest `f32` that is not smaller, so that the interval still contains the true value.
fn round_up(err: f64) -> f32 {
    let near = err as f32;
    if f64::from(near) < err {
        near.next_up()
    } else {
        near
    }
}
