//! Tables whose rows are made in Rust: the system tables and the table functions.
//!
//! A listing has arguments (hidden columns, as SQLite's table functions require) and produces
//! batches of rows lazily, one stream at a time, so that it holds the rows of one stream only.

use std::ffi::{CString, c_int};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use barograph_model::{ModelError, duration_ns, instant_ns};
use rusqlite::Result;
use rusqlite::types::{Null, ValueRef};
use rusqlite::vtab::{Context, Filters, IndexConstraintOp, IndexInfo};

use crate::cell::{CellRow, CellValue};
use crate::error::{failed, usage};
use crate::live::Live;
use crate::memory::ScanClaim;
use crate::snapshot::StreamsSnapshot;
use crate::sqlite::{Cursor, VirtualTable};
use crate::stream::SnapshotStream;

/// The rows of a call, in batches.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<Vec<CellRow>>>>;

/// Rows in one batch.
pub(crate) fn one(rows: Vec<CellRow>) -> Batches {
    Box::new(std::iter::once(Ok(rows)))
}

/// The row of each stream that has one, a batch per stream.
pub(crate) fn per_stream(
    live: &Arc<Live>,
    row: impl Fn(&StreamsSnapshot, &SnapshotStream) -> Option<CellRow> + 'static,
) -> Result<Batches> {
    let snapshot = live.attend().map_err(failed)?;
    let count = snapshot.streams.len();
    let rows =
        (0..count).map(move |i| Ok(row(&snapshot, &snapshot.streams[i]).into_iter().collect()));
    Ok(Box::new(rows))
}

/// The definition of a listing.
pub(crate) struct Listing {
    pub(crate) name: &'static str,
    /// `system` or `function`.
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    /// Column name and declared type, in the order of the cells.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    /// Names of the arguments, in the order of the call.
    pub(crate) arguments: &'static [&'static str],
    pub(crate) produce: fn(&Arc<Live>, &Arguments) -> Result<Batches>,
}

/// A table as one list: of each column the name, the declared type, and the cell of a row.
macro_rules! table {
    ($columns:ident, fn $row:ident($($given:ident: $of:ty),*),
     $($name:literal $declared:literal = $cell:expr;)*) => {
        pub(crate) const $columns: &[(&str, &str)] = &[$(($name, $declared)),*];

        fn $row($($given: $of),*) -> crate::cell::CellRow {
            vec![$($cell.into()),*]
        }
    };
}
pub(crate) use table;

/// The function that makes the rows of a call.
pub(crate) type Produce = Box<dyn Fn(&Arc<Live>, &Arguments) -> Result<Batches> + Send + Sync>;

/// The type of a column that is only returned if a statement names it.
pub(crate) const HIDDEN: &str = "HIDDEN";

/// A listing as a table, including those whose columns are only known at run time.
pub(crate) struct Callable {
    pub(crate) name: Arc<str>,
    /// Column name and declared type. [`HIDDEN`] columns come last.
    pub(crate) columns: Vec<(String, &'static str)>,
    pub(crate) arguments: &'static [&'static str],
    /// Whether a call without the first argument is an error.
    pub(crate) needs_argument: bool,
    pub(crate) produce: Produce,
}

impl From<&'static Listing> for Callable {
    fn from(listing: &'static Listing) -> Self {
        let columns = listing.columns.iter();
        Self {
            name: listing.name.into(),
            columns: columns
                .map(|(name, ty)| ((*name).to_owned(), *ty))
                .collect(),
            arguments: listing.arguments,
            needs_argument: listing.kind == "function" && !listing.arguments.is_empty(),
            produce: Box::new(listing.produce),
        }
    }
}

impl Callable {
    /// Number of columns before the arguments; SQLite identifies arguments by their position among
    /// the hidden columns.
    fn shown(&self) -> usize {
        let hidden = self
            .columns
            .iter()
            .rev()
            .take_while(|(_, ty)| *ty == HIDDEN);
        self.columns.len() - hidden.count()
    }
}

/// The arguments of a call of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    of: Arc<str>,
    names: &'static [&'static str],
    values: Vec<Option<CellValue>>,
}

impl Arguments {
    /// The text at `index`, which is required.
    pub(crate) fn text(&self, index: usize) -> Result<&str> {
        match &self.values[index] {
            Some(CellValue::Text(text)) => Ok(text),
            _ => Err(self.wrong(index, "a text")),
        }
    }

    /// The integer at `index`; NULL counts as missing. A float is truncated.
    pub(crate) fn int(&self, index: usize) -> Result<Option<i64>> {
        match &self.values[index] {
            None | Some(CellValue::Null) => Ok(None),
            Some(CellValue::Int(value)) => Ok(Some(*value)),
            Some(CellValue::Real(value)) if value.is_finite() => Ok(Some(*value as i64)),
            Some(_) => Err(self.wrong(index, "an integer (nanoseconds since the epoch for times)")),
        }
    }

    /// The instant at `index`, in ns since the epoch: a number, or a text as people write times.
    pub(crate) fn instant(&self, index: usize, now_ns: i64) -> Result<Option<i64>> {
        self.time(index, |text| instant_ns(text, now_ns))
    }

    /// The duration at `index`, in ns: a number, or a text with a unit.
    pub(crate) fn duration(&self, index: usize) -> Result<Option<i64>> {
        self.time(index, duration_ns)
    }

    fn time(
        &self,
        index: usize,
        read: impl Fn(&str) -> std::result::Result<i64, ModelError>,
    ) -> Result<Option<i64>> {
        match &self.values[index] {
            Some(CellValue::Text(text)) => {
                let read = read(text);
                read.map(Some)
                    .map_err(|e| usage(format!("{}: {e}", self.names[index])))
            }
            _ => self.int(index),
        }
    }

    /// The number at `index`, which is required.
    pub(crate) fn real(&self, index: usize) -> Result<f64> {
        match &self.values[index] {
            Some(CellValue::Int(value)) => Ok(*value as f64),
            Some(CellValue::Real(value)) => Ok(*value),
            _ => Err(self.wrong(index, "a number")),
        }
    }

    /// An error that shows the correct form of the call.
    pub(crate) fn wrong(&self, index: usize, expected: &str) -> rusqlite::Error {
        let (of, call) = (&self.of, self.names.join(", "));
        usage(format!(
            "{of}({call}): {} must be {expected}",
            self.names[index]
        ))
    }
}

pub(crate) type ListingAux = (Arc<Live>, Arc<Callable>);

pub(crate) struct ListingTable {
    live: Arc<Live>,
    listing: Arc<Callable>,
}

impl VirtualTable for ListingTable {
    type Aux = ListingAux;
    type Cursor = ListingCursor;

    fn connect((live, listing): &ListingAux) -> (CString, Self) {
        let (shown, hidden) = listing.columns.split_at(listing.shown());
        let column = |(name, ty): &(String, &str)| format!("\"{name}\" {ty}");
        let arguments = listing
            .arguments
            .iter()
            .map(|name| format!("\"arg_{name}\" HIDDEN"));
        let shown = shown.iter().map(column);
        let all: Vec<String> = shown
            .chain(arguments)
            .chain(hidden.iter().map(column))
            .collect();
        let schema = CString::new(format!("CREATE TABLE x({})", all.join(", ")))
            .expect("names are constants, or letters, digits and _");
        (
            schema,
            Self {
                live: Arc::clone(live),
                listing: Arc::clone(listing),
            },
        )
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let first = self.listing.shown();
        let mut given = vec![None; self.listing.arguments.len()];
        for (i, constraint) in info.constraints().enumerate() {
            let column = usize::try_from(constraint.column()).unwrap_or(0);
            let is_equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            if !(first..first + given.len()).contains(&column) || !is_equal {
                continue;
            }
            if !constraint.is_usable() {
                return Ok(false); // The value is not known yet, so SQLite must try another order of the join.
            }
            given[column - first] = Some(i);
        }
        let mut mask = 0;
        let mut argument = 1;
        for (bit, constraint) in given.iter().enumerate() {
            if let Some(i) = constraint {
                let mut usage = info.constraint_usage(*i);
                usage.set_argv_index(argument);
                usage.set_omit(true);
                argument += 1;
                mask |= 1 << bit;
            }
        }
        info.set_idx_num(mask);
        let is_given = given.first().is_some_and(Option::is_some);
        let is_called = is_given || !self.listing.needs_argument;
        info.set_estimated_cost(if is_called { 10_000.0 } else { 1e18 });
        info.set_estimated_rows(1_000);
        Ok(true)
    }

    fn open(&self) -> ListingCursor {
        ListingCursor {
            live: Arc::clone(&self.live),
            listing: Arc::clone(&self.listing),
            arguments: Vec::new(),
            batches: Box::new(std::iter::empty()),
            rows: Vec::new(),
            at: 0,
            number: 0,
            call: 0,
            claim: self.live.memory.claim(),
        }
    }
}

pub(crate) struct ListingCursor {
    live: Arc<Live>,
    listing: Arc<Callable>,
    arguments: Vec<Option<CellValue>>,
    batches: Batches,
    rows: Vec<CellRow>,
    at: usize,
    /// Number of rows before the current one.
    number: u32,
    /// Hash of the arguments.
    call: i64,
    claim: ScanClaim,
}

impl Cursor for ListingCursor {
    fn filter(&mut self, mask: c_int, _text: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let mut values = args.iter();
        let names = self.listing.arguments;
        self.arguments = (0..names.len())
            .map(|bit| {
                if mask & (1 << bit) != 0 {
                    values.next().map(cell)
                } else {
                    None
                }
            })
            .collect();
        let call = Arguments {
            of: Arc::clone(&self.listing.name),
            names,
            values: self.arguments.clone(),
        };
        self.batches = (self.listing.produce)(&self.live, &call)?;
        let mut hash = DefaultHasher::new();
        format!("{:?}", self.arguments).hash(&mut hash);
        self.call = hash.finish() as i64;
        self.rows.clear();
        self.at = 0;
        self.number = 0;
        self.settle()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.number = self.number.wrapping_add(1);
        self.settle()
    }

    fn eof(&self) -> bool {
        self.at >= self.rows.len()
    }

    fn column(&self, context: &mut Context, index: usize) -> Result<()> {
        let (first, count) = (self.listing.shown(), self.arguments.len());
        let of_row = |index: usize| self.rows.get(self.at).and_then(|row| row.get(index));
        let cell = match index.checked_sub(first) {
            None => of_row(index),
            Some(at) if at < count => self.arguments[at].as_ref(),
            Some(_) => of_row(index - count),
        };
        match cell {
            None | Some(CellValue::Null) => context.set_result(Null),
            Some(CellValue::Int(v)) => context.set_result(*v),
            Some(CellValue::Real(v)) => context.set_result(*v),
            Some(CellValue::Text(v)) => context.set_result(&**v),
            Some(CellValue::Blob(v)) => context.set_result(&**v),
        }
    }

    fn rowid(&self) -> i64 {
        // Rows of other calls are other rows: by the row id SQLite knows which rows of an OR it has
        // returned.
        (self.call << 32) | i64::from(self.number)
    }
}

impl ListingCursor {
    fn settle(&mut self) -> Result<()> {
        while self.eof() {
            let Some(batch) = self.batches.next() else {
                break;
            };
            self.rows = batch?;
            self.at = 0;
            let cells = self.rows.len() * self.listing.columns.len();
            let long = self.rows.iter().flatten().map(CellValue::long_bytes);
            self.claim
                .set(cells * size_of::<CellValue>() + long.sum::<usize>())?;
        }
        Ok(())
    }
}

fn cell(value: ValueRef<'_>) -> CellValue {
    match value {
        ValueRef::Null => CellValue::Null,
        ValueRef::Integer(v) => CellValue::Int(v),
        ValueRef::Real(v) => CellValue::Real(v),
        ValueRef::Text(v) => String::from_utf8_lossy(v).into_owned().into(),
        ValueRef::Blob(v) => CellValue::Blob(v.into()),
    }
}
