//! A metric's table: one row per sample that rings, log and Parquet files hold of its series.
//!
//! A scan reads as late as possible: the newest samples come from the streams' own cache lines, a
//! scan in descending order reads a ring only for the second row, and the archive only when the
//! rings have no more. So `SELECT MAX(ts), value FROM t` costs the same however much history there
//! is.

use std::ffi::{CString, c_int};
use std::mem;
use std::sync::Arc;

use barograph_model::{Descriptor, Sample, Span, TEXT_BYTES_MAX, Value, floats_json};
use rusqlite::Result;
use rusqlite::types::Null;
use rusqlite::vtab::{Context, Filters, IndexInfo};

use crate::control_columns::{CONTROL_EVENTS, is_in_control_events};
use crate::error::failed;
use crate::hybrid::{Hybrid, SampleId};
use crate::live::Live;
use crate::memory::ScanClaim;
use crate::plan::{self, RowOrder, ScanPlan, TableSize};
use crate::reading::Reading;
use crate::shape::{MetricShape, ShapeColumn, age_ns};
use crate::snapshot::{Horizon, MirroredNodes, TableId};
use crate::sqlite::{Cursor, VirtualTable};
use crate::stream::{SET_BACK_NS_MAX, SnapshotStream, row_id};

/// Assumed samples of an archived series, for SQLite's choice between plans.
const ARCHIVED_SAMPLES: u64 = 100_000;

/// The parameters of a metric's table.
#[derive(Clone)]
pub(crate) struct MetricAux {
    pub(crate) live: Arc<Live>,
    pub(crate) shape: Arc<MetricShape>,
    /// The table's number in the snapshot.
    pub(crate) table: TableId,
    /// The table of the metric, by which series of the past are found.
    pub(crate) name: Arc<str>,
    /// Whether the table has the streams of all nodes, not of this one alone.
    pub(crate) is_over_nodes: bool,
    /// The node of a table `<node>_<metric>`: only its streams are read.
    pub(crate) node: Option<Arc<str>>,
}

pub(crate) struct MetricTable(Arc<Parts>);

/// Data that a table and its scans share: scans are opened often, and each takes one reference.
struct Parts {
    aux: MetricAux,
    columns: Vec<ShapeColumn>,
}

impl VirtualTable for MetricTable {
    type Aux = MetricAux;
    type Cursor = MetricCursor;

    fn connect(aux: &MetricAux) -> (CString, Self) {
        let parts = Parts {
            aux: aux.clone(),
            columns: aux.shape.columns(),
        };
        (aux.shape.schema(), Self(Arc::new(parts)))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let Parts { aux, columns } = &*self.0;
        let (streams, held, archived) = aux.live.size_of(aux.table).map_err(failed)?;
        let size = TableSize {
            streams: streams.max(archived),
            samples: held + archived as u64 * ARCHIVED_SAMPLES,
        };
        plan::choose(info, columns, &size)?;
        Ok(true)
    }

    fn open(&self) -> MetricCursor {
        MetricCursor {
            parts: Arc::clone(&self.0),
            plan: ScanPlan::default(),
            now_ns: 0,
            streams: Arc::default(),
            others: None,
            horizon: Horizon::NEVER,
            rows: Vec::new(),
            at: 0,
            left: Left::Nothing,
            past: None,
            scratch: Vec::new(),
            claim: self.0.aux.live.memory.claim(),
            long_bytes: 0,
        }
    }
}

pub(crate) struct MetricCursor {
    parts: Arc<Parts>,
    plan: ScanPlan,
    now_ns: i64,
    streams: Arc<[Arc<SnapshotStream>]>,
    /// The nodes whose series do not belong to the table, since they are mirrored.
    others: MirroredNodes,
    /// The time up to which the archive may have more of the table.
    horizon: Horizon,
    rows: Vec<Row>,
    at: usize,
    left: Left,
    /// The scan of the archive that follows the rows.
    past: Option<Box<Hybrid>>,
    scratch: Vec<Sample>,
    claim: ScanClaim,
    /// Bytes of long values in `rows`.
    long_bytes: usize,
}

struct Row {
    /// Index into the scan's streams.
    stream: usize,
    number: u64,
    newest: bool,
    sample: Sample,
}

/// The part of a scan that is read when `rows` runs out.
enum Left {
    Nothing,
    /// The rings of the streams from this index on, in any order.
    StreamsFrom(usize),
    /// All samples up to the heads of the streams. The scan's rows are the heads, and only the
    /// first of them, the latest, is to be returned before that.
    Older,
    /// The archive up to this time, and the rings' rows of the same times.
    Past {
        to: i64,
        given: Option<SampleId>,
        /// The newest sample of each stream when the scan began.
        heads: Vec<SampleId>,
    },
}

impl Cursor for MetricCursor {
    fn filter(&mut self, number: c_int, text: Option<&str>, args: &Filters<'_>) -> Result<()> {
        self.plan = ScanPlan::read(number, text, args);
        self.now_ns = if self.plan.needs_now {
            self.parts.aux.live.now_ns()
        } else {
            0
        };
        self.choose_streams()?;
        self.rows.clear();
        self.at = 0;
        self.left = Left::Nothing;
        self.past = None;
        match self.plan.order {
            _ if self.plan.newest => self.load_newest()?,
            Some(RowOrder::Descending) => self.load_latest()?,
            Some(RowOrder::Ascending) => self.load_all()?,
            None if self.may_need_past() => self.load_all()?,
            None => self.left = Left::StreamsFrom(0),
        }
        self.settle()
    }

    fn next(&mut self) -> Result<()> {
        if self.is_past() {
            return match &mut self.past {
                Some(past) => past.next(),
                None => Ok(()),
            };
        }
        self.at += 1;
        self.settle()
    }

    fn eof(&self) -> bool {
        self.is_through() && self.past.as_ref().is_none_or(|past| past.eof())
    }

    fn column(&self, context: &mut Context, index: usize) -> Result<()> {
        let Some(column) = self.parts.columns.get(index) else {
            return context.set_result(Null);
        };
        let Some(row) = self.rows.get(self.at) else {
            return match &self.past {
                Some(past) => past.column(context, column, self.now_ns),
                None => context.set_result(Null),
            };
        };
        let stream = &self.streams[row.stream];
        match column {
            ShapeColumn::Ts => context.set_result(row.sample.ts),
            ShapeColumn::Value => match &row.sample.value {
                Value::Int(v) => context.set_result(*v),
                Value::Float(v) => context.set_result(*v),
                Value::Bool(v) => context.set_result(*v),
                Value::Text(v) | Value::Json(v) => context.set_result(&**v),
                Value::Bytes(v) => context.set_result(&**v),
                Value::Floats(v) => context.set_result(floats_json(v)),
            },
            ShapeColumn::Quality => context.set_result(row.sample.quality.as_str()),
            ShapeColumn::Error => context.set_result(f64::from(row.sample.error)),
            ShapeColumn::Node => context.set_result(&*stream.node),
            ShapeColumn::Newest => context.set_result(row.newest),
            ShapeColumn::Label(label) => context.set_result(stream.label(label)),
            ShapeColumn::Looked => context.set_result(stream.looked_ns(row.sample.ts)),
            ShapeColumn::AgeNs => {
                let looked_ns = stream.looked_ns(row.sample.ts);
                context.set_result(age_ns(self.now_ns, looked_ns))
            }
            ShapeColumn::Unit => context.set_result(stream.unit()),
            ShapeColumn::Event(part) => match &row.sample.value {
                Value::Bytes(record) => part.set(context, record),
                _ => context.set_result(Null),
            },
            ShapeColumn::Control(part) => match &row.sample.value {
                Value::Bytes(record) => part.set(context, record),
                _ => context.set_result(Null),
            },
        }
    }

    fn rowid(&self) -> i64 {
        match (self.rows.get(self.at), &self.past) {
            (Some(row), _) => {
                let stream = &self.streams[row.stream];
                row_id(stream.identity, stream.life(), row.number)
            }
            (None, Some(past)) => past.rowid(),
            (None, None) => 0,
        }
    }
}

impl MetricCursor {
    fn choose_streams(&mut self) -> Result<()> {
        let aux = &self.parts.aux;
        let (streams, horizon, mirrored) = aux.live.streams_of(aux.table).map_err(failed)?;
        self.horizon = horizon;
        self.others = mirrored.filter(|_| !aux.is_over_nodes);
        let is_wanted = |s: &Arc<SnapshotStream>| self.wants(&s.node, &s.entry.descriptor);
        self.streams = if streams.iter().all(is_wanted) {
            streams
        } else {
            streams.iter().filter(|s| is_wanted(s)).cloned().collect()
        };
        Ok(())
    }

    /// Whether the table does not have this node, since it is mirrored.
    fn is_of_other(&self, node: &str) -> bool {
        let mut others = self.others.iter().flat_map(|nodes| nodes.iter());
        others.any(|other| **other == *node)
    }

    /// Whether the scan wants a series of this table.
    fn wants(&self, node: &str, descriptor: &Descriptor) -> bool {
        let Parts { aux, columns } = &*self.parts;
        aux.node.as_ref().is_none_or(|only| **only == *node)
            && !self.is_of_other(node)
            && self
                .plan
                .texts
                .iter()
                .all(|(index, text)| match columns.get(*index) {
                    Some(ShapeColumn::Label(label)) => descriptor.labels.get(label) == Some(text),
                    Some(ShapeColumn::Node) => node == text,
                    _ => true,
                })
    }

    /// Whether all rows were returned; the archive's rows follow.
    fn is_through(&self) -> bool {
        self.at >= self.rows.len() || (self.at > 0 && matches!(self.left, Left::Older))
    }

    fn is_past(&self) -> bool {
        self.past.is_some() && self.is_through()
    }

    /// Copies more rows until there is a current row or nothing is left.
    fn settle(&mut self) -> Result<()> {
        while self.is_through() {
            self.at = 0;
            match mem::replace(&mut self.left, Left::Nothing) {
                Left::Older => self.load_older()?,
                Left::StreamsFrom(index) if index < self.streams.len() => {
                    self.rows.clear();
                    self.copy_ring(index, None);
                    self.left = Left::StreamsFrom(index + 1);
                }
                Left::Past { to, given, heads } => {
                    self.rows.clear();
                    self.open_past(Some(to), given, &heads)?;
                    break;
                }
                Left::StreamsFrom(_) | Left::Nothing => {
                    self.rows.clear();
                    break;
                }
            }
        }
        if self.at == 0 {
            let bytes = self.rows.iter().map(|row| row.sample.value.bytes());
            self.long_bytes = bytes.filter(|bytes| *bytes > TEXT_BYTES_MAX).sum();
        }
        let bytes =
            self.rows.capacity() * size_of::<Row>() + self.scratch.capacity() * size_of::<Sample>();
        self.claim.set(bytes + self.long_bytes)
    }

    /// Whether the archive may have rows that the rings lack.
    fn may_need_past(&self) -> bool {
        self.parts.aux.live.has_archive()
    }

    /// Goes on in the archive, up to time `to`.
    fn open_past(
        &mut self,
        to: Option<i64>,
        given: Option<SampleId>,
        heads: &[SampleId],
    ) -> Result<()> {
        let span = Span {
            from: self.plan.from.unwrap_or(i64::MIN),
            to: self.plan.to.unwrap_or(i64::MAX).min(to.unwrap_or(i64::MAX)),
        };
        let mut reading = self.read(span)?;
        for known in &mut reading.series {
            if let Some((_, life, number)) = heads.iter().find(|(id, ..)| *id == known.identity) {
                known.newest = Some((*life, *number));
            }
        }
        let live = &self.parts.aux.live;
        let past = Hybrid::start(live, reading, span, self.plan.order, given)?;
        self.past = Some(Box::new(past));
        Ok(())
    }

    fn read(&self, span: Span) -> Result<Reading> {
        let aux = &self.parts.aux;
        let wanted = |node: &str, descriptor: &Descriptor| {
            is_of(descriptor.name.as_str(), &aux.name) && self.wants(node, descriptor)
        };
        let reading = match aux.is_over_nodes {
            true => Reading::take(&aux.live, &wanted, span),
            false => Reading::take_own(&aux.live, &wanted, span),
        };
        reading.map_err(failed)
    }

    fn load_newest(&mut self) -> Result<()> {
        if self.streams.is_empty() && self.parts.aux.live.is_archive_alone() {
            let span = Span {
                from: self.plan.from.unwrap_or(i64::MIN),
                to: self.plan.to.unwrap_or(i64::MAX),
            };
            let past = Hybrid::newest(&self.parts.aux.live, self.read(span)?, span)?;
            self.past = Some(Box::new(past));
            return Ok(());
        }
        for (index, stream) in self.streams.iter().enumerate() {
            if let Some((sample, number)) = stream.latest()
                && self.plan.takes(sample.ts)
            {
                self.rows.push(Row {
                    stream: index,
                    number,
                    newest: true,
                    sample,
                });
            }
        }
        self.sort();
        Ok(())
    }

    /// Loads the one row that is latest in time, if it is known without rings and archive.
    fn load_latest(&mut self) -> Result<()> {
        self.rows.reserve_exact(self.streams.len());
        for (index, stream) in self.streams.iter().enumerate() {
            let Some(head) = stream.head() else { continue };
            // The head is beyond a bound, or the clock was set back: the ring must be read.
            if !head.sorted || !self.plan.takes(head.sample.ts) {
                self.rows.clear();
                return self.load_all();
            }
            self.rows.push(Row {
                stream: index,
                number: head.number,
                newest: true,
                sample: head.sample,
            });
        }
        let latest = (0..self.rows.len()).max_by_key(|&i| self.rows[i].sample.ts);
        let latest_ts = latest.map_or(i64::MIN, |i| self.rows[i].sample.ts);
        if latest_ts < self.horizon.any && latest_ts < self.archived_to(latest_ts)? {
            self.rows.clear();
            return self.load_all();
        }
        match latest {
            Some(latest) => {
                self.rows.swap(0, latest);
                self.left = Left::Older;
                Ok(())
            }
            None if self.may_need_past() => self.load_all(),
            None => Ok(()),
        }
    }

    /// The time up to which the archive has the wanted series; series that ended after `latest_ts`
    /// are looked up there without reading samples.
    fn archived_to(&self, latest_ts: i64) -> Result<i64> {
        let aux = &self.parts.aux;
        if latest_ts < self.horizon.unseen {
            aux.live.past().map_err(failed)?;
        }
        let snapshot = aux.live.current().map_err(failed)?;
        let wanted = snapshot.archived(aux.table);
        let wanted = wanted.filter(|one| self.wants(&one.node, &one.descriptor));
        Ok(wanted.map(|one| one.known.to).max().unwrap_or(i64::MIN))
    }

    /// Loads the rows that follow [`Self::load_latest`].
    fn load_older(&mut self) -> Result<()> {
        let heads = mem::take(&mut self.rows);
        // The rings have all samples that are later than this.
        let mut complete = self.horizon.ended;
        for head in &heads {
            let complete_from = self.copy_ring(head.stream, Some(head.number));
            complete = complete.max(complete_from);
        }
        let which = |row: &Row| {
            let stream = &self.streams[row.stream];
            (stream.identity, stream.life(), row.number)
        };
        let left = heads.first().filter(|_| self.may_need_past()).map(|first| {
            let to = complete.min(first.sample.ts);
            let given = Some(which(first));
            let heads = heads.iter().map(which).collect();
            Left::Past { to, given, heads }
        });
        // The heads are copied already: these rows exist even if the writer has lapped the ring
        // since.
        self.rows.extend(heads.into_iter().skip(1));
        if let Some(Left::Past { to, .. }) = left {
            self.rows.retain(|row| row.sample.ts > to);
            let is_below = self.plan.from.is_some_and(|from| to < from);
            self.left = left.filter(|_| !is_below).unwrap_or(Left::Nothing);
        }
        self.sort();
        Ok(())
    }

    /// Loads all rows in the requested order.
    fn load_all(&mut self) -> Result<()> {
        let needs_past = self.may_need_past();
        let from = self.plan.from.unwrap_or(i64::MIN);
        if !needs_past || self.horizon.ended < from {
            let rings = 0..self.streams.len();
            let complete = rings.map(|index| self.copy_ring(index, None)).max();
            let newest = self.rows.iter().map(|row| row.sample.ts).max();
            // Samples later than all samples of the rings are from before the clock was set back.
            let is_last = self.horizon.any < from || newest >= Some(self.horizon.any);
            if !needs_past || (is_last && complete.is_none_or(|complete| complete < from)) {
                self.sort();
                return Ok(());
            }
        }
        self.rows.clear();
        self.open_past(None, None, &[])
    }

    /// Adds the samples of a ring: all, with the last marked as newest, or those before a number.
    /// Returns the time from which the ring has all samples of its stream.
    fn copy_ring(&mut self, index: usize, before: Option<u64>) -> i64 {
        let (rows, plan) = (&mut self.rows, &self.plan);
        let mut newest = None;
        let (mut oldest, mut last, mut is_sorted) = (i64::MAX, i64::MIN, true);
        self.streams[index].samples(&mut self.scratch, |number, sample| {
            if before.is_some_and(|before| number >= before) {
                return;
            }
            newest = None;
            oldest = oldest.min(sample.ts);
            is_sorted &= sample.ts >= last;
            last = sample.ts;
            if plan.takes(sample.ts) {
                newest = Some(rows.len());
                rows.push(Row {
                    stream: index,
                    number,
                    newest: false,
                    sample,
                });
            }
        });
        if let (Some(newest), None) = (newest, before) {
            rows[newest].newest = true;
        }
        // If the clock was set back, only the archive has all samples in order.
        if is_sorted {
            oldest.saturating_add(SET_BACK_NS_MAX)
        } else {
            i64::MAX
        }
    }

    fn sort(&mut self) {
        let key = |row: &Row| (row.sample.ts, row.number);
        match self.plan.order {
            Some(RowOrder::Ascending) => self.rows.sort_by_key(key),
            Some(RowOrder::Descending) => self.rows.sort_by_key(|row| std::cmp::Reverse(key(row))),
            None => {}
        }
    }
}

/// Whether the metric `name` is in the table `table`.
fn is_of(name: &str, table: &str) -> bool {
    if table == CONTROL_EVENTS {
        return is_in_control_events(name);
    }
    let fold = |b: u8| if b == b'.' { b'_' } else { b };
    name.len() == table.len() && name.bytes().map(fold).eq(table.bytes())
}
