//! The newest sample of each stream in the graph, and the tables that the streams form.
//!
//! It is separate from the graph because expressions read slots and must see nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::{Labels, Name, Quality, Sample, ValueType};

use barograph_statement::SqlValue;

/// The newest sample of a stream.
#[derive(Clone, Debug)]
pub(crate) struct SlotSample {
    pub ts: i64,
    pub val: SqlValue,
    pub quality: Quality,
    pub error: f64,
}

impl From<&Sample> for SlotSample {
    fn from(sample: &Sample) -> Self {
        // An error of NaN means that the error is unknown.
        let error = f64::from(sample.error).abs();
        Self {
            ts: sample.ts,
            val: SqlValue::from(&sample.value),
            quality: sample.quality,
            error: if error.is_nan() { f64::INFINITY } else { error },
        }
    }
}

/// A row of an insight that reads a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotReader {
    pub insight: u32,
    pub branch: u32,
    pub row: u32,
}

/// The state of one stream in the graph.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    pub table: u32,
    pub labels: Vec<(String, Arc<str>)>,
    pub real: bool,
    pub newest: Option<SlotSample>,
    /// Time of the last look at its value, in ns; 0 before the first sample.
    pub looked_ns: i64,
    /// Interval between looks, in ns; 0 if unknown.
    pub interval_ns: i64,
    /// Whether it is in the graph's list of changed slots.
    pub dirty: bool,
    pub readers: Vec<SlotReader>,
}

impl StreamSlot {
    /// Returns the value of a label; NULL if the stream does not have it. Case is ignored, as in
    /// SQL's column names.
    pub(crate) fn label(&self, name: &str) -> SqlValue {
        let found = self
            .labels
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map_or(SqlValue::Null, |(_, v)| SqlValue::Text(v.clone()))
    }
}

/// Beginning of the names of tables over all nodes.
pub(crate) const OVER_NODES: &str = "cluster_";

/// All streams of one name; more exactly, of all names with the same underscore form.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    /// The name with underscores, as in SQL.
    pub name: String,
    /// The dotted name of its first stream or insight.
    pub dotted: String,
    /// The streams in the order in which they came.
    pub slots: Vec<u32>,
    /// Whether `know_metric` announced it: then it may be read before it has streams.
    pub known: bool,
    /// The insight that writes the table, if any.
    pub made_by: Option<u32>,
    /// Label columns of the insight that writes the table.
    pub columns: Vec<String>,
    /// The insights that read the table.
    pub readers: Vec<u32>,
}

/// Tables and slots, addressed by dense numbers that are reused.
#[derive(Debug, Default)]
pub(crate) struct SlotStore {
    pub slots: Vec<StreamSlot>,
    free_slots: Vec<u32>,
    pub tables: Vec<StreamTable>,
    free_tables: Vec<u32>,
    by_name: BTreeMap<String, u32>,
}

impl SlotStore {
    /// Returns a copy of these tables with their streams. Of all other tables it contains only what
    /// a plan needs of a table that it does not read, such as the name.
    pub(crate) fn copy_of(&self, tables: &[String]) -> Self {
        let mut copy = Self::default();
        for (name, &id) in &self.by_name {
            let table = &self.tables[id as usize];
            let at = copy.tables.len() as u32;
            copy.by_name.insert(name.clone(), at);
            let mut slots = Vec::new();
            let is_read = tables.binary_search(name).is_ok();
            for &slot in table.slots.iter().filter(|_| is_read) {
                let from = &self.slots[slot as usize];
                slots.push(copy.slots.len() as u32);
                copy.slots.push(StreamSlot {
                    table: at,
                    labels: from.labels.clone(),
                    newest: from.newest.clone(),
                    readers: Vec::new(),
                    ..*from
                });
            }
            copy.tables.push(StreamTable {
                name: name.clone(),
                dotted: table.dotted.clone(),
                slots,
                known: table.known,
                made_by: table.made_by,
                columns: table.columns.clone(),
                readers: Vec::new(),
            });
        }
        copy
    }

    /// Returns the table with this underscore form.
    pub(crate) fn table(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns the names of all tables, in no particular order.
    pub(crate) fn table_names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub(crate) fn table_or_new(&mut self, dotted: &Name) -> u32 {
        let name = dotted.table();
        if let Some(id) = self.table(&name) {
            return id;
        }
        let dotted = dotted.as_str().to_owned();
        let table = StreamTable {
            name: name.clone(),
            dotted,
            ..StreamTable::default()
        };
        let id = match self.free_tables.pop() {
            Some(id) => {
                self.tables[id as usize] = table;
                id
            }
            None => {
                self.tables.push(table);
                self.tables.len() as u32 - 1
            }
        };
        self.by_name.insert(name, id);
        id
    }

    /// Removes a table that nothing refers to any more.
    pub(crate) fn drop_table_if_unused(&mut self, id: u32) {
        let table = &self.tables[id as usize];
        let unused = table.slots.is_empty() && table.readers.is_empty();
        if unused && !table.known && table.made_by.is_none() {
            self.by_name.remove(&table.name);
            self.tables[id as usize] = StreamTable::default();
            self.free_tables.push(id);
        }
    }

    pub(crate) fn add_slot(&mut self, table: u32, labels: &Labels, value_type: ValueType) -> u32 {
        let slot = StreamSlot {
            table,
            labels: labels
                .iter()
                .map(|(n, v)| (n.to_owned(), Arc::from(v)))
                .collect(),
            real: value_type == ValueType::Float,
            newest: None,
            looked_ns: 0,
            interval_ns: 0,
            dirty: false,
            readers: Vec::new(),
        };
        let id = match self.free_slots.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.tables[table as usize].slots.push(id);
        id
    }

    /// Removes a stream from its table. Its number is reused, so its readers must be built anew
    /// before they run.
    pub(crate) fn remove_slot(&mut self, id: u32) -> u32 {
        let slot = &mut self.slots[id as usize];
        slot.newest = None;
        slot.readers.clear();
        slot.labels.clear();
        let table = slot.table;
        self.tables[table as usize].slots.retain(|&s| s != id);
        self.free_slots.push(id);
        table
    }

    /// Returns the sorted label names of a table's streams, or of the insight that writes it.
    pub(crate) fn label_names(&self, table: u32) -> Vec<String> {
        let table = &self.tables[table as usize];
        let of_slots = table
            .slots
            .iter()
            .flat_map(|&s| &self.slots[s as usize].labels);
        let mut names: Vec<String> = of_slots
            .map(|(n, _)| n.clone())
            .chain(table.columns.iter().cloned())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns whether a table may contain reals, that is, whether one of its streams has that
    /// type.
    pub(crate) fn may_be_real(&self, table: u32) -> bool {
        self.tables[table as usize]
            .slots
            .iter()
            .any(|&s| self.slots[s as usize].real)
    }
}
