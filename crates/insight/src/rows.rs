//! The rows and groups of one SELECT, kept up to date row by row.
//!
//! The existence of rows, and the group to which each belongs, depends on labels alone, so it
//! changes only when streams come and go. A new sample changes only its own rows and their groups.

use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::Quality;

use crate::GraphLimits;
use crate::aggregate::AggregateState;
use crate::plan::SelectBranch;
use crate::row::SlotRow;
use crate::slot::{SlotStore, StreamSlot};
use barograph_statement::{ColumnField, EvalFault, Expr};
use barograph_statement::{SqlValue, UncertainValue};

/// One combination of streams, one per table of FROM.
#[derive(Debug)]
struct RowState {
    cell: u32,
    dirty: bool,
    /// Whether the row counts: every stream has a sample, and WHERE holds.
    active: bool,
    /// Whether the errors of the samples leave open whether WHERE holds.
    open: bool,
    predicted: bool,
    /// The time of its newest sample.
    ts: i64,
    fault: Option<EvalFault>,
}

/// A group; without GROUP BY and aggregates, it is a single row.
#[derive(Debug)]
pub(crate) struct GroupCell {
    rows: Vec<u32>,
    dirty: bool,
    active: u32,
    open: u32,
    predicted: u32,
    faults: u32,
    newest: i64,
    newest_stale: bool,
    states: Vec<AggregateState>,
    /// Number of the output in which the group is published.
    pub output: u32,
    pub outcome: GroupOutcome,
}

/// The present result of a group.
#[derive(Clone, Debug)]
pub(crate) enum GroupOutcome {
    /// The group gives no row.
    Absent,
    /// The group gives a row, whose value may be NULL.
    Row {
        known: UncertainValue,
        /// Time of the newest input; `None` if no row counts.
        ts: Option<i64>,
        predicted: bool,
    },
    Failed(EvalFault),
}

#[derive(Debug)]
pub(crate) struct InsightRows {
    rows: Vec<RowState>,
    /// The slots of all rows, `width` per row.
    inputs: Vec<u32>,
    width: usize,
    /// The aggregates' arguments of all rows, `depth` per row.
    args: Vec<UncertainValue>,
    depth: usize,
    pub cells: Vec<GroupCell>,
    dirty_rows: Vec<u32>,
    dirty_cells: Vec<u32>,
    scratch: Vec<UncertainValue>,
}

impl InsightRows {
    /// Joins and groups the present streams; all values are still to be computed.
    pub(crate) fn build(
        branch: &SelectBranch,
        store: &SlotStore,
        limits: &GraphLimits,
    ) -> Result<Self, String> {
        let width = branch.from.len();
        let mut inputs = join(branch, store, limits.rows_max)?;
        retain_rows(&mut inputs, width, |row| {
            fixed_filter_holds(branch, &store.slots, row)
        })?;
        let depth = branch.aggregates.len();
        let count = inputs.len() / width;
        check_arguments(count, depth, limits.arguments_max)?;
        let mut built = Self {
            rows: Vec::with_capacity(count),
            args: vec![UncertainValue::NULL; count * depth],
            depth,
            width,
            cells: Vec::new(),
            dirty_rows: (0..count as u32).collect(),
            dirty_cells: Vec::new(),
            scratch: Vec::with_capacity(depth),
            inputs,
        };
        let mut cell_of: HashMap<Vec<Option<Arc<str>>>, u32> = HashMap::new();
        if branch.group.as_ref().is_some_and(Vec::is_empty) {
            cell_of.insert(Vec::new(), built.new_cell(depth));
        }
        for n in 0..count {
            let row = &built.inputs[n * width..(n + 1) * width];
            let cell = match &branch.group {
                None => built.new_cell(depth),
                Some(keys) => {
                    let key = keys
                        .iter()
                        .map(|c| label_of(&store.slots, row, c.from, &c.field));
                    match cell_of.entry(key.collect()) {
                        std::collections::hash_map::Entry::Occupied(e) => *e.get(),
                        std::collections::hash_map::Entry::Vacant(e) => {
                            *e.insert(built.new_cell(depth))
                        }
                    }
                }
            };
            built.cells[cell as usize].rows.push(n as u32);
            built.rows.push(RowState {
                cell,
                dirty: true,
                active: false,
                open: false,
                predicted: false,
                ts: 0,
                fault: None,
            });
        }
        built.dirty_cells.reserve(built.cells.len());
        Ok(built)
    }

    fn new_cell(&mut self, depth: usize) -> u32 {
        let id = self.cells.len() as u32;
        self.dirty_cells.push(id);
        self.cells.push(GroupCell {
            rows: Vec::new(),
            dirty: true,
            active: 0,
            open: 0,
            predicted: 0,
            faults: 0,
            newest: i64::MIN,
            newest_stale: false,
            states: vec![AggregateState::default(); depth],
            output: u32::MAX,
            outcome: GroupOutcome::Absent,
        });
        id
    }

    /// Returns number and slots of each row.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.inputs
            .chunks_exact(self.width)
            .enumerate()
            .map(|(n, row)| (n as u32, row))
    }

    /// Returns the time of the last look at the stalest of a group's inputs, and the longest of
    /// their intervals. Inputs that never had a sample are ignored, since they have no part in the
    /// value. `None` if there are no inputs.
    pub(crate) fn looks(&self, slots: &[StreamSlot], cell: u32) -> Option<(i64, i64)> {
        let rows = self.cells[cell as usize].rows.iter();
        let inputs = rows.flat_map(|&row| &self.inputs[row as usize * self.width..][..self.width]);
        let known = inputs
            .map(|&slot| &slots[slot as usize])
            .filter(|s| s.newest.is_some());
        known
            .map(|s| (s.looked_ns, s.interval_ns))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns the output labels of a group.
    pub(crate) fn labels(
        &self,
        branch: &SelectBranch,
        slots: &[StreamSlot],
        cell: u32,
    ) -> Vec<(String, Arc<str>)> {
        let inputs = self.first_row(cell);
        let row = SlotRow {
            slots,
            inputs,
            aggregates: &[],
        };
        let text = |e: &Expr| e.eval(row).ok().and_then(|known| known.val.as_text());
        branch
            .labels
            .iter()
            .filter_map(|(n, e)| text(e).map(|v| (n.clone(), v)))
            .collect()
    }

    fn first_row(&self, cell: u32) -> &[u32] {
        let first = self.cells[cell as usize].rows.first();
        first.map_or(&[], |&n| self.row_inputs(n as usize))
    }

    fn row_inputs(&self, n: usize) -> &[u32] {
        &self.inputs[n * self.width..(n + 1) * self.width]
    }

    /// Notes that this row has a new sample. Allocates nothing.
    pub(crate) fn mark(&mut self, row: u32) {
        let state = &mut self.rows[row as usize];
        if !state.dirty {
            state.dirty = true;
            self.dirty_rows.push(row);
        }
    }

    /// Brings rows and groups up to date as long as `go_on` returns true, and calls `changed` with
    /// the output of each group that was computed. Returns whether it came to the end.
    pub(crate) fn refresh(
        &mut self,
        branch: &SelectBranch,
        slots: &[StreamSlot],
        go_on: &dyn Fn() -> bool,
        mut changed: impl FnMut(u32),
    ) -> bool {
        while let Some(n) = self.dirty_rows.pop() {
            if !go_on() {
                return false;
            }
            self.refresh_row(branch, slots, n as usize);
        }
        while let Some(id) = self.dirty_cells.pop() {
            if !go_on() {
                return false;
            }
            let outcome = self.compute(branch, slots, id);
            let cell = &mut self.cells[id as usize];
            cell.dirty = false;
            cell.outcome = outcome;
            changed(cell.output);
        }
        true
    }

    fn refresh_row(&mut self, branch: &SelectBranch, slots: &[StreamSlot], n: usize) {
        self.withdraw(branch, n);
        let inputs = &self.inputs[n * self.width..(n + 1) * self.width];
        let mut ts = i64::MIN;
        let mut predicted = false;
        let mut complete = true;
        for &slot in inputs {
            match &slots[slot as usize].newest {
                Some(newest) => {
                    ts = ts.max(newest.ts);
                    predicted |= newest.quality == Quality::Predicted;
                }
                None => complete = false,
            }
        }
        let row = SlotRow {
            slots,
            inputs,
            aggregates: &[],
        };
        let args = &mut self.args[n * self.depth..(n + 1) * self.depth];
        let tried = if complete {
            admit(branch, row, args)
        } else {
            Ok((false, false))
        };
        let state = &mut self.rows[n];
        let (active, open) = tried.unwrap_or((false, false));
        state.fault = tried.err();
        (state.active, state.open, state.ts, state.predicted) = (active, open, ts, predicted);
        state.dirty = false;
        self.contribute(branch, n);
    }

    /// Removes the row's contribution from its group, and marks the group.
    fn withdraw(&mut self, branch: &SelectBranch, n: usize) {
        let row = &self.rows[n];
        let cell = &mut self.cells[row.cell as usize];
        if !cell.dirty {
            cell.dirty = true;
            self.dirty_cells.push(row.cell);
        }
        cell.faults -= u32::from(row.fault.is_some());
        cell.open -= u32::from(row.open);
        if !row.active {
            return;
        }
        cell.active -= 1;
        cell.predicted -= u32::from(row.predicted);
        cell.newest_stale |= row.ts == cell.newest;
        let args = &self.args[n * self.depth..];
        for ((aggregate, state), arg) in branch.aggregates.iter().zip(&mut cell.states).zip(args) {
            state.remove(aggregate.kind, arg);
        }
    }

    fn contribute(&mut self, branch: &SelectBranch, n: usize) {
        let row = &self.rows[n];
        let cell = &mut self.cells[row.cell as usize];
        cell.faults += u32::from(row.fault.is_some());
        cell.open += u32::from(row.open);
        if !row.active {
            return;
        }
        cell.active += 1;
        cell.predicted += u32::from(row.predicted);
        if row.ts >= cell.newest {
            // Even a stale `newest` bounds the times of the other rows.
            cell.newest = row.ts;
            cell.newest_stale = false;
        }
        let args = &self.args[n * self.depth..];
        for ((aggregate, state), arg) in branch.aggregates.iter().zip(&mut cell.states).zip(args) {
            state.add(aggregate.kind, arg);
        }
    }

    fn compute(&mut self, branch: &SelectBranch, slots: &[StreamSlot], id: u32) -> GroupOutcome {
        let cell = &mut self.cells[id as usize];
        if cell.faults > 0 {
            let fault = cell.rows.iter().find_map(|&n| self.rows[n as usize].fault);
            return GroupOutcome::Failed(fault.unwrap_or(barograph_statement::OVERFLOW));
        }
        let of_all = branch.group.as_ref().is_some_and(Vec::is_empty);
        if cell.active == 0 && !of_all {
            return GroupOutcome::Absent;
        }
        self.scratch.clear();
        for (at, aggregate) in branch.aggregates.iter().enumerate() {
            let (rows, args, depth) = (&self.rows, &self.args, self.depth);
            let numbers = &cell.rows;
            let values = || {
                let active = numbers.iter().filter(|&&n| rows[n as usize].active);
                active.map(|&n| &args[n as usize * depth + at])
            };
            match cell.states[at].finish(aggregate.kind, values) {
                Ok(known) => self.scratch.push(known),
                Err(fault) => return GroupOutcome::Failed(fault),
            }
        }
        if cell.newest_stale {
            let active = cell
                .rows
                .iter()
                .map(|&n| &self.rows[n as usize])
                .filter(|r| r.active);
            cell.newest = active.map(|r| r.ts).max().unwrap_or(i64::MIN);
            cell.newest_stale = false;
        }
        let ts = (cell.active > 0).then_some(cell.newest);
        let (open, predicted) = (cell.open > 0, cell.predicted > 0);
        let row = SlotRow {
            slots,
            inputs: self.first_row(id),
            aggregates: &self.scratch,
        };
        finish(branch, row, open).map_or_else(GroupOutcome::Failed, |known| match known {
            Some(known) => GroupOutcome::Row {
                known,
                ts,
                predicted,
            },
            None => GroupOutcome::Absent,
        })
    }
}

/// Evaluates HAVING and the value; `None` if HAVING does not hold.
fn finish(
    branch: &SelectBranch,
    row: SlotRow<'_>,
    mut open: bool,
) -> Result<Option<UncertainValue>, EvalFault> {
    if let Some(having) = &branch.having {
        let (holds, unsure) = having.holds(row)?;
        if !holds {
            return Ok(None);
        }
        open |= unsure;
    }
    let known = branch.value.eval(row)?;
    Ok(Some(if open {
        UncertainValue {
            err: f64::INFINITY,
            ..known
        }
    } else {
        known
    }))
}

/// Decides whether a row counts and whether the errors leave that open, and computes its arguments.
fn admit(
    branch: &SelectBranch,
    row: SlotRow<'_>,
    args: &mut [UncertainValue],
) -> Result<(bool, bool), EvalFault> {
    let (holds, open) = branch
        .filter
        .as_ref()
        .map_or(Ok((true, false)), |e| e.holds(row))?;
    if holds {
        for (aggregate, arg) in branch.aggregates.iter().zip(args) {
            *arg = match &aggregate.arg {
                Some(e) => e.eval(row)?,
                None => UncertainValue::exact(SqlValue::Int(1)),
            };
        }
    }
    Ok((holds, open))
}

fn label_of(
    slots: &[StreamSlot],
    row: &[u32],
    from: usize,
    field: &ColumnField,
) -> Option<Arc<str>> {
    match field {
        ColumnField::Label(name) => slots[row[from] as usize].label(name).as_text(),
        _ => None,
    }
}

/// Returns all rows of FROM, `width` slots each: the tables are joined from left to right on equal
/// labels.
fn join(branch: &SelectBranch, store: &SlotStore, rows_max: usize) -> Result<Vec<u32>, String> {
    let mut rows: Vec<u32> = Vec::new();
    for (width, from) in branch.from.iter().enumerate() {
        let right = &store.tables[from.table as usize].slots;
        if width == 0 {
            rows.clone_from(right);
        } else {
            let mut by_key: HashMap<Vec<Arc<str>>, Vec<u32>> = HashMap::new();
            for &slot in right {
                let own = |name: &str| store.slots[slot as usize].label(name).as_text();
                let key: Option<Vec<_>> = from.using.iter().map(|(name, _)| own(name)).collect();
                // NULL is equal to nothing.
                if let Some(key) = key {
                    by_key.entry(key).or_default().push(slot);
                }
            }
            let mut joined = Vec::new();
            for row in rows.chunks_exact(width) {
                let keys = from.using.iter();
                let key = keys.map(|(_, c)| label_of(&store.slots, row, c.from, &c.field));
                let Some(key) = key.collect::<Option<Vec<_>>>() else {
                    continue;
                };
                for &slot in by_key.get(&key).into_iter().flatten() {
                    joined.extend_from_slice(row);
                    joined.push(slot);
                    check_rows(joined.len() / (width + 1), rows_max)?;
                }
            }
            rows = joined;
        }
        check_rows(rows.len() / (width + 1), rows_max)?;
    }
    Ok(rows)
}

fn check_rows(rows: usize, max: usize) -> Result<(), String> {
    if rows <= max {
        return Ok(());
    }
    Err(format!(
        "it would join more than {max} rows (rows_max): join on more labels, or filter"
    ))
}

fn check_arguments(rows: usize, aggregates: usize, max: usize) -> Result<(), String> {
    if rows.saturating_mul(aggregates) <= max {
        return Ok(());
    }
    Err(format!(
        "it would keep {rows} rows of {aggregates} aggregates, more than {max} together \
         (arguments_max): join on more labels, filter, or compute fewer aggregates"
    ))
}

fn retain_rows(
    rows: &mut Vec<u32>,
    width: usize,
    mut keep: impl FnMut(&[u32]) -> Result<bool, EvalFault>,
) -> Result<(), String> {
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(width) {
        if keep(row).map_err(str::to_owned)? {
            kept.extend_from_slice(row);
        }
    }
    *rows = kept;
    Ok(())
}

fn fixed_filter_holds(
    branch: &SelectBranch,
    slots: &[StreamSlot],
    inputs: &[u32],
) -> Result<bool, EvalFault> {
    let row = SlotRow {
        slots,
        inputs,
        aggregates: &[],
    };
    for condition in &branch.fixed_filter {
        if !condition.holds(row)?.0 {
            return Ok(false);
        }
    }
    Ok(true)
}
