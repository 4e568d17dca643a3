//! The cells of a process: words that it only adds to. The agent reads them once per interval while
//! the process lives, and once when it is gone, and makes values and frames of them as if the
//! process had put them.
//!
//! A process that never adds to its cells has no streams: its declarations are held until it does.

use barograph_model::{NS_PER_S, Sample, Value, ValueType};
use barograph_stream::StreamError;
use barograph_stream::ingest::{CELLS_MAX, CellUse, CellsTold, IngestDeclaration, IngestFile};

use super::super::taken::FRAMES_RING;
use super::{IntakeRound, PublishingProcess};
use crate::age::AGE_NS_MAX;

/// Longest time between two looks at the cells, even if the process is quiet or its interval is
/// longer, so that its end is noticed soon.
const LOOK_NS_MAX: i64 = NS_PER_S;
/// Most bytes of declarations that are held; if a process has declared more, all are taken at once.
const HELD_BYTES_MAX: u64 = 16 << 10;

/// Time until the next look at a process that waits for a scope.
const PUT_OFF_NS: i64 = NS_PER_S / 20;

/// The cell of a value.
struct Bound {
    value: usize,
    cell: usize,
    scale: f64,
    used_as: CellUse,
}

/// The state of a process's cells.
#[derive(Default)]
pub(super) struct Cells {
    bound: Vec<Bound>,
    clocks: Vec<usize>,
    /// Declarations of a process that has counted nothing yet.
    held: Vec<IngestDeclaration>,
    is_begun: bool,
    /// The words at the last look, and at the newest frame.
    words: Vec<u64>,
    told_words: Vec<u64>,
    told: CellsTold,
    told_ts: i64,
    looked_ts: i64,
    /// Monotonic times of the next look and of the next frame.
    look_due_ns: i64,
    tell_due_ns: i64,
    rest_ns: i64,
    /// Whether the process was gone before the last look.
    is_gone: bool,
}

impl Cells {
    pub(super) fn new(file: &IngestFile) -> Self {
        Self {
            is_begun: !file.has_cells(),
            ..Self::default()
        }
    }

    /// The progress with the cells; the process learns it once that is safe.
    pub(super) fn told(&self) -> CellsTold {
        self.told
    }

    /// Whether the process was gone before the last look, and all of that look is in frames.
    pub(super) fn is_final(&self) -> bool {
        self.is_gone && !self.has_changed()
    }

    /// Whether the process was gone before the last look.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether the last look has found changes that are in no frame yet. If no clock was ever used,
    /// nothing was counted.
    fn has_changed(&self) -> bool {
        let may_have = self.clocks.is_empty() || self.clock() != 0;
        may_have && self.words != self.told_words
    }

    pub(super) fn look_due_ns(&self) -> i64 {
        self.look_due_ns
    }

    /// Puts off the next look while a scope is being opened.
    pub(super) fn put_off(&mut self, monotonic_ns: i64) {
        self.look_due_ns = monotonic_ns.saturating_add(PUT_OFF_NS);
    }

    /// Notes the cells among new declarations, and keeps all declarations for [`Cells::declared`].
    /// Returns the number of cells beyond the greatest number.
    pub(super) fn note(&mut self, declared: Vec<IngestDeclaration>) -> u64 {
        let mut refused = 0;
        for declaration in &declared {
            let IngestDeclaration::Cell {
                value,
                cell,
                scale,
                used_as,
            } = *declaration
            else {
                continue;
            };
            if self.bound.len() + self.clocks.len() >= CELLS_MAX as usize {
                refused += 1;
            } else if used_as == CellUse::Clock {
                self.clocks.push(cell as usize);
            } else {
                self.bound.push(Bound {
                    value: value as usize,
                    cell: cell as usize,
                    scale,
                    used_as,
                });
            }
        }
        self.held.extend(declared);
        refused
    }

    /// Returns the declarations to take now; none as long as the process has counted nothing.
    pub(super) fn declared(&mut self) -> Vec<IngestDeclaration> {
        if self.is_begun {
            std::mem::take(&mut self.held)
        } else {
            Vec::new()
        }
    }

    fn word(&self, cell: usize) -> u64 {
        self.words.get(cell).copied().unwrap_or(0)
    }

    /// Time of the last change, in nanoseconds since the file was made; 0 if there was none.
    fn clock(&self) -> u64 {
        let clocks = self.clocks.iter().map(|cell| self.word(*cell));
        clocks.max().unwrap_or(0)
    }

    /// The cells of maxima that are not 0.
    fn maxima(&self) -> Vec<usize> {
        let maxima = self.bound.iter().filter(|b| b.used_as == CellUse::Maximum);
        let cells = maxima.map(|bound| bound.cell);
        cells.filter(|cell| self.word(*cell) != 0).collect()
    }

    /// The value of a cell; for the first frame, its value when the file was made.
    fn value_of(&self, bound: &Bound, value_type: ValueType, is_first: bool) -> Option<Value> {
        let begins_at_0 = bound.used_as != CellUse::State;
        let is_zero = is_first && begins_at_0;
        let word = if is_zero { 0 } else { self.word(bound.cell) };
        match value_type {
            ValueType::Int => Some(Value::Int(word as i64)),
            ValueType::Float => Some(Value::Float(word as f64 * bound.scale)),
            _ => None,
        }
    }
}

impl PublishingProcess {
    /// Reads the cells if that is due; returns whether a frame should be made. This comes before
    /// new declarations are taken.
    pub(super) fn look_at_cells(
        &mut self,
        round: &IntakeRound<'_, '_>,
    ) -> Result<bool, StreamError> {
        // Records do not wait for a look at the cells, and need their declarations.
        self.cells.is_begun |= self.file.positions().len() > 0;
        let is_due = round.monotonic_ns >= self.cells.look_due_ns;
        if !self.file.has_cells() || !is_due {
            return Ok(false);
        }
        // This is checked before the cells are read: if the process is gone, the words are final.
        let is_gone = self.file.is_closed() || self.file.is_orphan();
        let cells = &mut self.cells;
        self.file.read_cells(&mut cells.words)?;
        if cells.told_words.is_empty() {
            cells.told = self.file.cells_told()?;
            let archived = self.taken.frames();
            if archived > cells.told.frames {
                // An agent that was killed has made frames of which the process did not learn. The
                // next one may be of the same state, and then has a later time.
                cells.told.frames = archived;
                let clock = i64::try_from(cells.clock()).unwrap_or(i64::MAX);
                cells.told_ts = self
                    .file
                    .created_ns()
                    .saturating_add(clock)
                    .min(round.now_ns);
            }
            let has_clock = !cells.clocks.is_empty();
            let is_known = has_clock && cells.told.frames > 0 && cells.told.clock == cells.clock();
            cells.told_words = if is_known {
                cells.words.clone()
            } else {
                vec![0; cells.words.len()]
            };
        }
        let has_changed = cells.has_changed();
        let is_long = self.file.declared_bytes() > HELD_BYTES_MAX;
        cells.is_begun |= has_changed || is_long || cells.told.frames > 0;
        let interval_ns = self.file.cells_interval_ns();
        let rest_ns = if has_changed {
            interval_ns
        } else {
            cells.rest_ns.max(interval_ns).saturating_mul(2)
        };
        cells.rest_ns = rest_ns.clamp(1, LOOK_NS_MAX);
        cells.look_due_ns = round.monotonic_ns.saturating_add(cells.rest_ns);
        cells.is_gone = is_gone;
        if !has_changed {
            cells.looked_ts = round.now_ns;
        }
        Ok(has_changed && (is_gone || round.monotonic_ns >= cells.tell_due_ns))
    }

    /// Makes a frame of the cells at the last look. Before a process's first frame comes one of its
    /// beginning, so that the work of a short process shows as an increase. Returns the number of
    /// values and frames.
    pub(super) fn tell_cells(
        &mut self,
        round: &mut IntakeRound<'_, '_>,
    ) -> Result<u64, StreamError> {
        let before = self.counts.values + self.counts.frames;
        let created_ns = self.file.created_ns();
        let oldest = round.now_ns.saturating_sub(AGE_NS_MAX);
        let created_ns = created_ns.clamp(oldest, round.now_ns);
        if self.cells.told.frames == 0 {
            self.append_cells(round, created_ns, true);
        }
        let clock = i64::try_from(self.cells.clock()).unwrap_or(i64::MAX);
        // The change came after the look before, even if clocks were set meanwhile.
        let from = self.cells.looked_ts.max(created_ns).min(round.now_ns);
        let ts = if self.cells.clocks.is_empty() {
            round.now_ns
        } else {
            created_ns.saturating_add(clock).clamp(from, round.now_ns)
        };
        let ts = ts.max(self.cells.told_ts.saturating_add(1));
        self.append_cells(round, ts, false);
        for cell in self.cells.maxima() {
            self.file.clear_cell(cell)?;
            self.cells.words[cell] = 0;
        }
        let interval_ns = self.file.cells_interval_ns();
        let cells = &mut self.cells;
        cells.told.clock = cells.clock();
        cells.told_words.clone_from(&cells.words);
        cells.tell_due_ns = round.monotonic_ns.saturating_add(interval_ns);
        cells.looked_ts = round.now_ns;
        self.newest_ns = self.newest_ns.max(ts);
        self.hand_over(round, None);
        Ok(self.counts.values + self.counts.frames - before)
    }

    fn append_cells(&mut self, round: &mut IntakeRound<'_, '_>, ts: i64, is_first: bool) {
        let number = self.cells.told.frames;
        let mark = self.mark(FRAMES_RING, number.saturating_add(1));
        let mut framed: Vec<usize> = Vec::new();
        if !is_first && round.scopes.of(self.loss_reader()).is_none() {
            round.lose(self.cells.bound.len() as u64);
        }
        for bound in &self.cells.bound {
            let Some(target) = self.targets.get(bound.value) else {
                continue;
            };
            let value = self.cells.value_of(bound, target.value_type, is_first);
            let place = self.publications.get(target.publication).zip(target.key);
            let (Some(value), Some((publication, key))) = (value, place) else {
                continue;
            };
            if let Some(scope) = round.scopes.of(publication.reader) {
                scope.append(key, &Sample::measured(ts, value), None);
                self.counts.values += 1;
            }
            if !framed.contains(&target.publication) {
                framed.push(target.publication);
            }
        }
        for at in framed {
            let publication = &mut self.publications[at];
            let scope = round.scopes.of(publication.reader);
            if let (Some(key), Some(scope)) = (publication.frames, scope) {
                let sample = Sample::measured(ts, Value::Int(number as i64));
                scope.append(key, &sample, Some(mark));
                self.counts.frames += 1;
                publication.newest_frame = Some(number);
            }
        }
        self.cells.told.frames = number.saturating_add(1);
        self.cells.told_ts = ts;
    }

    /// Monotonic time of the next look at its cells; none if it has no cells.
    pub(crate) fn look_due_ns(&self) -> Option<i64> {
        self.file.has_cells().then(|| self.cells.look_due_ns())
    }
}
