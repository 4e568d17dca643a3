//! A metric's table: one row per sample that the rings of its streams hold.
//!
//! A scan copies rings as late as it can: the newest samples come from the streams' own cache lines,
//! and a scan in descending order looks at a ring only when it is asked for a second row. That makes
//! `SELECT MAX(ts), value FROM t` cost the same at every depth.

use std::ffi::{CString, c_int};
use std::mem;
use std::sync::Arc;

use barograph_model::{Sample, Value};
use rusqlite::Result;
use rusqlite::types::Null;
use rusqlite::vtab::{Context, Filters, IndexInfo};

use crate::error::internal;
use crate::live::{Claim, Live, TableId};
use crate::plan::{self, Order, Plan, Size};
use crate::shape::{Column, Shape};
use crate::sqlite::{Cursor, Table};
use crate::stream::Stream;

/// What a metric's table is made from.
#[derive(Clone)]
pub(crate) struct MetricAux {
    pub(crate) live: Arc<Live>,
    pub(crate) shape: Arc<Shape>,
    /// Which of the snapshot's tables it is.
    pub(crate) table: TableId,
    /// Only streams of this node, for `<node>_<metric>`.
    pub(crate) node: Option<Arc<str>>,
}

/// The table of one metric.
pub(crate) struct MetricTable(Arc<Parts>);

/// What a table and its scans share: a scan is opened often, and takes one reference.
struct Parts {
    aux: MetricAux,
    columns: Vec<Column>,
}

impl Table for MetricTable {
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
        let streams = aux.live.streams_of(aux.table).map_err(internal)?;
        let samples = streams.iter().map(|s| u64::from(s.entry.depth)).sum();
        let size = Size {
            streams: streams.len(),
            samples,
        };
        plan::choose(info, columns, &size)?;
        Ok(true)
    }

    fn open(&self) -> MetricCursor {
        MetricCursor {
            parts: Arc::clone(&self.0),
            plan: Plan::default(),
            now_ns: 0,
            streams: Arc::default(),
            rows: Vec::new(),
            at: 0,
            left: Left::Nothing,
            scratch: Vec::new(),
            claim: self.0.aux.live.memory.claim(),
        }
    }
}

/// A scan of a metric's table.
pub(crate) struct MetricCursor {
    parts: Arc<Parts>,
    plan: Plan,
    now_ns: i64,
    streams: Arc<[Arc<Stream>]>,
    rows: Vec<Row>,
    at: usize,
    left: Left,
    scratch: Vec<Sample>,
    claim: Claim,
}

struct Row {
    /// Index into the scan's streams.
    stream: usize,
    number: u64,
    newest: bool,
    sample: Sample,
}

/// What a scan has yet to copy when its rows run out.
enum Left {
    Nothing,
    /// The rings of the streams from this index on, in any order.
    StreamsFrom(usize),
    /// All samples up to the heads of the streams. The heads are the scan's rows, and only the first
    /// of them, the latest, is to be given as it stands.
    Older,
}

impl Cursor for MetricCursor {
    fn filter(&mut self, number: c_int, text: Option<&str>, args: &Filters<'_>) -> Result<()> {
        self.plan = Plan::read(number, text, args);
        self.now_ns = if self.plan.needs_now {
            self.parts.aux.live.now_ns()
        } else {
            0
        };
        self.choose_streams()?;
        self.rows.clear();
        self.at = 0;
        self.left = Left::Nothing;
        match self.plan.order {
            _ if self.plan.newest => self.load_newest(),
            Some(Order::Descending) => self.load_latest(),
            Some(Order::Ascending) => self.load_all(),
            None => self.left = Left::StreamsFrom(0),
        }
        self.settle()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.settle()
    }

    fn eof(&self) -> bool {
        self.at >= self.rows.len() || (self.at > 0 && matches!(self.left, Left::Older))
    }

    fn column(&self, context: &mut Context, index: usize) -> Result<()> {
        let (Some(row), Some(column)) = (self.rows.get(self.at), self.parts.columns.get(index))
        else {
            return context.set_result(Null);
        };
        let stream = &self.streams[row.stream];
        match column {
            Column::Ts => context.set_result(row.sample.ts),
            Column::Value => match &row.sample.value {
                Value::Int(v) => context.set_result(*v),
                Value::Float(v) => context.set_result(*v),
                Value::Bool(v) => context.set_result(*v),
                Value::Text(v) => context.set_result(&**v),
            },
            Column::Quality => context.set_result(row.sample.quality.as_str()),
            Column::Error => context.set_result(f64::from(row.sample.error)),
            Column::Node => context.set_result(&*stream.node),
            Column::Newest => context.set_result(row.newest),
            Column::Label(label) => context.set_result(stream.label(label)),
            Column::Looked => context.set_result(stream.looked_ns(row.sample.ts)),
            Column::AgeNs => {
                let looked_ns = stream.looked_ns(row.sample.ts);
                context.set_result(self.now_ns.saturating_sub(looked_ns))
            }
            Column::Unit => context.set_result(stream.unit()),
        }
    }

    fn rowid(&self) -> i64 {
        // The same in every scan: SQLite tells by it which rows of an OR it has given already.
        let row = self.rows.get(self.at);
        row.map_or(0, |row| {
            ((self.streams[row.stream].entry.slot as i64) << 48) | (row.number as i64)
        })
    }
}

impl MetricCursor {
    fn choose_streams(&mut self) -> Result<()> {
        let Parts { aux, columns } = &*self.parts;
        let texts = &self.plan.texts;
        let all = aux.live.streams_of(aux.table).map_err(internal)?;
        let wanted = |stream: &Arc<Stream>| {
            aux.node.as_ref().is_none_or(|node| *node == stream.node)
                && texts.iter().all(|(index, text)| match columns.get(*index) {
                    Some(Column::Label(label)) => stream.label(label) == Some(text),
                    Some(Column::Node) => *stream.node == **text,
                    _ => true,
                })
        };
        self.streams = if all.iter().all(wanted) {
            all
        } else {
            all.iter()
                .filter(|stream| wanted(stream))
                .cloned()
                .collect()
        };
        Ok(())
    }

    /// Copies more rows until there is a current one or nothing is left.
    fn settle(&mut self) -> Result<()> {
        while self.eof() {
            self.at = 0;
            match mem::replace(&mut self.left, Left::Nothing) {
                Left::Older => self.load_older(),
                Left::StreamsFrom(index) if index < self.streams.len() => {
                    self.rows.clear();
                    self.copy_ring(index, None);
                    self.left = Left::StreamsFrom(index + 1);
                }
                Left::StreamsFrom(_) | Left::Nothing => {
                    self.rows.clear();
                    break;
                }
            }
        }
        let bytes =
            self.rows.capacity() * size_of::<Row>() + self.scratch.capacity() * size_of::<Sample>();
        self.claim.set(bytes)
    }

    fn load_newest(&mut self) {
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
    }

    /// The one row that is latest in time, when that can be told without the rings.
    fn load_latest(&mut self) {
        self.rows.reserve_exact(self.streams.len());
        for (index, stream) in self.streams.iter().enumerate() {
            let Some(head) = stream.head() else { continue };
            // Beyond a bound, or behind a clock that was set back: only the ring can tell.
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
        if let Some(latest) = (0..self.rows.len()).max_by_key(|&i| self.rows[i].sample.ts) {
            self.rows.swap(0, latest);
            self.left = Left::Older;
        }
    }

    /// What follows [`Self::load_latest`].
    fn load_older(&mut self) {
        let heads = mem::take(&mut self.rows);
        for head in &heads {
            self.copy_ring(head.stream, Some(head.number));
        }
        // The heads are at hand: rows that exist even when the writer has lapped the ring since.
        self.rows.extend(heads.into_iter().skip(1));
        self.sort();
    }

    /// Everything, in the order that was asked for.
    fn load_all(&mut self) {
        for index in 0..self.streams.len() {
            self.copy_ring(index, None);
        }
        self.sort();
    }

    /// Adds the samples of a ring: all, of which the last is the newest, or those before a number.
    fn copy_ring(&mut self, index: usize, before: Option<u64>) {
        let (rows, plan) = (&mut self.rows, &self.plan);
        let mut newest = None;
        self.streams[index].samples(&mut self.scratch, |number, sample| {
            if before.is_some_and(|before| number >= before) {
                return;
            }
            newest = None;
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
    }

    fn sort(&mut self) {
        let key = |row: &Row| (row.sample.ts, row.number);
        match self.plan.order {
            Some(Order::Ascending) => self.rows.sort_by_key(key),
            Some(Order::Descending) => self.rows.sort_by_key(|row| std::cmp::Reverse(key(row))),
            None => {}
        }
    }
}
