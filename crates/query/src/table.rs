//! Samples or buckets of many series as one table, with the columns of the Parquet files.
//!
//! It stands alone because it is for programs that compute by column (pandas, polars, DuckDB): it
//! is made from columns and never passes through SQLite's rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field as ArrowField, Schema};
use barograph_model::{Buckets, Columns, Descriptor, EXACT_MAX, SqlFault, SqlFaultKind, Values};

use crate::fault::fault;
use crate::rows::Field;
use crate::stream::labels_json;

/// Columns of the same length, with their names.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Data)>,
    rows: usize,
}

#[derive(Clone, Debug)]
enum Data {
    Int(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Text(Texts),
    Bytes(Vec<Option<Arc<[u8]>>>),
    Floats(Vec<Option<Arc<[f64]>>>),
}

/// Texts, each stored once.
#[derive(Clone, Debug, Default)]
struct Texts {
    known: Vec<Arc<str>>,
    places: HashMap<Arc<str>, i32>,
    rows: Vec<Option<i32>>,
}

/// Samples of one life of one series, or of several.
pub(crate) struct TablePart<'a> {
    pub(crate) node: &'a Arc<str>,
    pub(crate) descriptor: &'a Descriptor,
    /// Time of its registration; None if the columns are of several lives.
    pub(crate) life: Option<i64>,
    pub(crate) columns: &'a Columns,
}

impl Table {
    /// Makes a table of samples: `ts` (ns since the epoch), `name`, `labels` (a JSON object),
    /// `value` (NULL if it is no number; bools are 0 and 1), `exact` (if an integer is beyond 2^53
    /// and `value` is rounded), `text` (texts and JSON), `unit`, `quality`, `error`, `node`, with
    /// lives `life` and `number`, and if there are such values `bytes` and `floats` (lists of
    /// doubles).
    pub(crate) fn of_samples(parts: &[TablePart<'_>]) -> Self {
        let (mut ts, mut value, mut exact) = (Vec::new(), Vec::new(), Vec::new());
        let (mut error, mut life, mut number) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bytes, mut floats) = (Vec::new(), Vec::new());
        let [
            mut name,
            mut labels,
            mut text,
            mut unit,
            mut quality,
            mut node,
        ] = std::array::from_fn(|_| Texts::default());
        for part in parts {
            let (d, columns) = (part.descriptor, part.columns);
            let rows = columns.len();
            ts.extend(columns.ts.iter().copied().map(Some));
            name.repeat(d.name.as_str(), rows);
            labels.repeat(&labels_json(d), rows);
            unit.repeat(d.unit.as_str(), rows);
            node.repeat(part.node, rows);
            push_values(&columns.values, rows, &mut value, &mut exact, &mut text);
            match &columns.values {
                Values::Bytes(v) => bytes.extend(v.iter().cloned().map(Some)),
                _ => bytes.extend(std::iter::repeat_n(None, rows)),
            }
            match &columns.values {
                Values::Floats(v) => floats.extend(v.iter().cloned().map(Some)),
                _ => floats.extend(std::iter::repeat_n(None, rows)),
            }
            for kind in &columns.quality {
                quality.push(Some(kind.as_str()));
            }
            error.extend(columns.error.iter().map(|e| Some(f64::from(*e))));
            if let Some(of) = part.life {
                life.extend(std::iter::repeat_n(Some(of), rows));
                let numbers = columns.numbers.iter();
                number.extend(numbers.map(|n| i64::try_from(*n).ok()));
            }
        }
        let rows = ts.len();
        let mut columns = vec![
            ("ts", Data::Int(ts)),
            ("name", Data::Text(name)),
            ("labels", Data::Text(labels)),
            ("value", Data::Real(value)),
            ("exact", Data::Int(exact)),
            ("text", Data::Text(text)),
            ("unit", Data::Text(unit)),
            ("quality", Data::Text(quality)),
            ("error", Data::Real(error)),
            ("node", Data::Text(node)),
        ];
        if parts.iter().all(|part| part.life.is_some()) {
            columns.push(("life", Data::Int(life)));
            columns.push(("number", Data::Int(number)));
        }
        if bytes.iter().any(Option::is_some) {
            columns.push(("bytes", Data::Bytes(bytes)));
        }
        if floats.iter().any(Option::is_some) {
            columns.push(("floats", Data::Floats(floats)));
        }
        Self { columns, rows }
    }

    /// Makes a table of buckets: `ts` (start, ns since the epoch), `name`, `labels`, `unit`,
    /// `count`, `min`, `max`, `sample_mean` (each sample counts once), `last` (NULL for texts),
    /// `min_exact`, `max_exact`, `last_exact` (if an integer is beyond 2^53 and the double is
    /// rounded), `last_text`, `held_ns` (how long known values held), `time_mean` (over that time),
    /// `node`.
    pub(crate) fn of_buckets(parts: &[(&Arc<str>, &Descriptor, &Buckets)]) -> Self {
        let [mut ts, mut count] = std::array::from_fn(|_| Vec::new());
        let [mut min_exact, mut max_exact, mut last_exact] = std::array::from_fn(|_| Vec::new());
        let [mut min, mut max, mut sample_mean, mut time_mean, mut last] =
            std::array::from_fn(|_| Vec::new());
        let mut held_ns = Vec::new();
        let [
            mut name,
            mut labels,
            mut unit,
            mut node,
            mut text,
            mut other,
        ] = std::array::from_fn(|_| Texts::default());
        for (of_node, d, buckets) in parts {
            let rows = buckets.len();
            ts.extend(buckets.ts.iter().copied().map(Some));
            name.repeat(d.name.as_str(), rows);
            labels.repeat(&labels_json(d), rows);
            unit.repeat(d.unit.as_str(), rows);
            node.repeat(of_node, rows);
            count.extend(buckets.count.iter().map(|n| i64::try_from(*n).ok()));
            push_values(&buckets.min, rows, &mut min, &mut min_exact, &mut other);
            push_values(&buckets.max, rows, &mut max, &mut max_exact, &mut other);
            push_values(&buckets.last, rows, &mut last, &mut last_exact, &mut text);
            let known = |v: &f64| (!v.is_nan()).then_some(*v);
            sample_mean.extend(buckets.sample_mean.iter().map(known));
            time_mean.extend(buckets.mean.iter().map(known));
            held_ns.extend(buckets.held_ns.iter().map(|ns| i64::try_from(*ns).ok()));
        }
        let rows = ts.len();
        let columns = vec![
            ("ts", Data::Int(ts)),
            ("name", Data::Text(name)),
            ("labels", Data::Text(labels)),
            ("unit", Data::Text(unit)),
            ("count", Data::Int(count)),
            ("min", Data::Real(min)),
            ("max", Data::Real(max)),
            ("sample_mean", Data::Real(sample_mean)),
            ("last", Data::Real(last)),
            ("min_exact", Data::Int(min_exact)),
            ("max_exact", Data::Int(max_exact)),
            ("last_exact", Data::Int(last_exact)),
            ("last_text", Data::Text(text)),
            ("held_ns", Data::Int(held_ns)),
            ("time_mean", Data::Real(time_mean)),
            ("node", Data::Text(node)),
        ];
        Self { columns, rows }
    }

    /// The names of the columns, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|(name, _)| *name)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The field in a row and a column; NULL beyond the end.
    pub fn get(&self, row: usize, column: usize) -> Field<'_> {
        let field = match self.columns.get(column).map(|(_, data)| data) {
            Some(Data::Int(rows)) => rows.get(row).copied().flatten().map(Field::Int),
            Some(Data::Real(rows)) => rows.get(row).copied().flatten().map(Field::Real),
            Some(Data::Text(texts)) => texts.get(row).map(Field::Text),
            Some(Data::Bytes(rows)) => rows.get(row).and_then(Option::as_deref).map(Field::Blob),
            Some(Data::Floats(rows)) => {
                let floats = rows.get(row).and_then(Option::as_deref);
                floats.map(Field::Floats)
            }
            None => None,
        };
        field.unwrap_or(Field::Null)
    }

    /// Encodes the table as an Arrow IPC stream of one batch; texts are dictionaries.
    pub fn to_arrow_ipc(&self) -> Result<Vec<u8>, SqlFault> {
        let encode = || -> Result<Vec<u8>, ArrowError> {
            let mut fields = Vec::new();
            let mut arrays: Vec<ArrayRef> = Vec::new();
            for (name, data) in &self.columns {
                let array = data.array()?;
                fields.push(ArrowField::new(*name, array.data_type().clone(), true));
                arrays.push(array);
            }
            let schema = Arc::new(Schema::new(fields));
            let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
            writer.write(&RecordBatch::try_new(schema, arrays)?)?;
            writer.into_inner()
        };
        let internal = |error| format!("cannot encode the table as arrow: {error}");
        encode().map_err(|error| fault(SqlFaultKind::Internal, internal(error)))
    }
}

fn push_values(
    values: &Values,
    rows: usize,
    numbers: &mut Vec<Option<f64>>,
    exact: &mut Vec<Option<i64>>,
    texts: &mut Texts,
) {
    match values {
        Values::Text(column) | Values::Json(column) => {
            column.iter().for_each(|text| texts.push(Some(text)));
        }
        _ => texts.rows.extend(std::iter::repeat_n(None, rows)),
    }
    match values {
        Values::Int(column) => {
            let rounded = |v: &i64| (v.unsigned_abs() > EXACT_MAX).then_some(*v);
            exact.extend(column.iter().map(rounded));
        }
        _ => exact.extend(std::iter::repeat_n(None, rows)),
    }
    numbers.extend((0..rows).map(|row| values.number(row)));
}

impl Data {
    fn array(&self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Int(rows) => Arc::new(Int64Array::from_iter(rows.iter().copied())),
            Self::Real(rows) => Arc::new(Float64Array::from_iter(rows.iter().copied())),
            Self::Bytes(rows) => {
                Arc::new(BinaryArray::from_iter(rows.iter().map(Option::as_deref)))
            }
            Self::Floats(rows) => {
                let mut lists = ListBuilder::new(Float64Builder::new());
                for row in rows {
                    match row {
                        Some(floats) => lists.append_value(floats.iter().copied().map(Some)),
                        None => lists.append_null(),
                    }
                }
                Arc::new(lists.finish())
            }
            Self::Text(texts) => {
                let keys = Int32Array::from_iter(texts.rows.iter().copied());
                let known = texts.known.iter().map(|text| &**text);
                let known = StringArray::from_iter_values(known);
                Arc::new(DictionaryArray::<Int32Type>::try_new(
                    keys,
                    Arc::new(known),
                )?)
            }
        })
    }
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        let place = text.map(|text| self.place(text));
        self.rows.push(place);
    }

    fn repeat(&mut self, text: &str, rows: usize) {
        let place = self.place(text);
        self.rows.extend(std::iter::repeat_n(Some(place), rows));
    }

    fn place(&mut self, text: &str) -> i32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = i32::try_from(self.known.len()).expect("fewer texts than samples_max allows");
        let text: Arc<str> = text.into();
        self.known.push(Arc::clone(&text));
        self.places.insert(text, place);
        place
    }

    fn get(&self, row: usize) -> Option<&str> {
        let place = (*self.rows.get(row)?)?;
        Some(self.known.get(usize::try_from(place).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{Name, Unit, ValueType};

    use super::*;

    #[test]
    fn buckets_of_large_integers_are_exact() {
        const BIG: i64 = (1 << 53) + 1;
        let descriptor = Descriptor::gauge(
            Name::new("big.count").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        let buckets = Buckets {
            ts: vec![0, 10],
            count: vec![3, 1],
            min: Values::Int(vec![-BIG, 7]),
            max: Values::Int(vec![i64::MAX, 7]),
            held_ns: vec![10, 5],
            mean: vec![1.0, 7.0],
            sample_mean: vec![2.0, 7.0],
            last: Values::Int(vec![BIG, 7]),
        };
        let table = Table::of_buckets(&[(&"n".into(), &descriptor, &buckets)]);
        let column = |name: &str| table.names().position(|of| of == name).unwrap();
        for (name, expect) in [
            ("min_exact", -BIG),
            ("max_exact", i64::MAX),
            ("last_exact", BIG),
        ] {
            assert_eq!(table.get(0, column(name)), Field::Int(expect), "{name}");
            // A value that a double holds exactly is in that column alone.
            assert_eq!(table.get(1, column(name)), Field::Null, "{name}");
        }
        assert_eq!(table.get(1, column("last")), Field::Real(7.0));
        assert!(table.to_arrow_ipc().is_ok());
    }
}
