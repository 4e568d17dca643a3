//! The columns of a metric's table: the fixed ones, and the labels of its streams.
//!
//! A shape only grows while a connection lives: a label that was once a column stays one (NULL if
//! absent), so that a statement does not fail because a stream has ended.

use std::ffi::CString;

use barograph_event::{EVENT_STREAM, SOURCE_LABEL};
use barograph_model::{Descriptor, Kind, ValueType};

use crate::control_columns::{CONTROL_EVENTS, ControlColumn};
use crate::event_columns::EventColumn;

/// Most label columns of one table; further labels are found in `streams.labels` only.
pub(crate) const LABEL_COLUMNS_MAX: usize = 200;

/// The content of a column of a metric's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShapeColumn {
    /// Time of the sample.
    Ts,
    /// Value of the sample.
    Value,
    /// Quality of the sample.
    Quality,
    /// Error of the sample: half width of its interval.
    Error,
    /// Node on which it was measured.
    Node,
    /// Whether it is the newest sample of its stream.
    Newest,
    /// The label of this name.
    Label(String),
    /// Time of the last look at the resource.
    Looked,
    /// Time since the last look, in ns.
    AgeNs,
    /// Unit of the value.
    Unit,
    /// Part of the record of an event.
    Event(EventColumn),
    /// Part of the record of a control event.
    Control(ControlColumn),
}

/// The time since a look or a sign of life, in ns. A statement's time is read before its rows, so
/// that a look may be later: its age is 0, as it is for the client and the server.
pub(crate) fn age_ns(statement_ns: i64, looked_ns: i64) -> i64 {
    statement_ns.saturating_sub(looked_ns).max(0)
}

/// Index of [`ShapeColumn::Newest`], which a plan uses.
#[cfg(test)]
pub(crate) const NEWEST_INDEX: usize = 5;

const FIRST: [(&str, ShapeColumn); 6] = [
    ("ts", ShapeColumn::Ts),
    ("value", ShapeColumn::Value),
    ("quality", ShapeColumn::Quality),
    ("error", ShapeColumn::Error),
    ("node", ShapeColumn::Node),
    ("newest", ShapeColumn::Newest),
];

/// Hidden columns, which `*` does not include. The first two are the names in Apollo's resource
/// query.
const LAST: [(&str, ShapeColumn); 5] = [
    ("Timestamp", ShapeColumn::Ts),
    ("metric", ShapeColumn::Value),
    ("looked", ShapeColumn::Looked),
    ("age_ns", ShapeColumn::AgeNs),
    ("unit", ShapeColumn::Unit),
];

/// Columns that every table of a kind has, with their names.
type FixedColumns = &'static [(&'static str, ShapeColumn)];

/// The columns of the table of events before those of labels.
const EVENT_FIRST: [(&str, ShapeColumn); 14] = [
    ("ts", ShapeColumn::Ts),
    ("kind", ShapeColumn::Event(EventColumn::Kind)),
    ("path", ShapeColumn::Event(EventColumn::Path)),
    ("old_path", ShapeColumn::Event(EventColumn::OldPath)),
    ("size", ShapeColumn::Event(EventColumn::Size)),
    ("uid", ShapeColumn::Event(EventColumn::Uid)),
    ("gid", ShapeColumn::Event(EventColumn::Gid)),
    ("job", ShapeColumn::Event(EventColumn::Job)),
    ("directory", ShapeColumn::Event(EventColumn::IsDirectory)),
    ("complete", ShapeColumn::Event(EventColumn::IsComplete)),
    ("idx", ShapeColumn::Event(EventColumn::Index)),
    ("quality", ShapeColumn::Quality),
    ("node", ShapeColumn::Node),
    ("newest", ShapeColumn::Newest),
];

/// Its hidden columns.
const EVENT_LAST: [(&str, ShapeColumn); 9] = [
    ("path_bytes", ShapeColumn::Event(EventColumn::PathBytes)),
    (
        "old_path_bytes",
        ShapeColumn::Event(EventColumn::OldPathBytes),
    ),
    ("target", ShapeColumn::Event(EventColumn::Target)),
    ("parent", ShapeColumn::Event(EventColumn::Parent)),
    ("flags", ShapeColumn::Event(EventColumn::Flags)),
    ("detail", ShapeColumn::Event(EventColumn::Detail)),
    ("value", ShapeColumn::Value),
    ("looked", ShapeColumn::Looked),
    ("age_ns", ShapeColumn::AgeNs),
];

/// The columns of the table of control events before those of labels.
const CONTROL_FIRST: [(&str, ShapeColumn); 11] = [
    ("ts", ShapeColumn::Ts),
    ("node", ShapeColumn::Node),
    ("kind", ShapeColumn::Control(ControlColumn::Kind)),
    ("subject", ShapeColumn::Control(ControlColumn::Subject)),
    ("value", ShapeColumn::Control(ControlColumn::Value)),
    (
        "confidence",
        ShapeColumn::Control(ControlColumn::Confidence),
    ),
    ("sequence", ShapeColumn::Control(ControlColumn::Sequence)),
    ("pid", ShapeColumn::Control(ControlColumn::Pid)),
    ("thread", ShapeColumn::Control(ControlColumn::Thread)),
    (
        "properties",
        ShapeColumn::Control(ControlColumn::Properties),
    ),
    ("newest", ShapeColumn::Newest),
];

/// Its hidden columns.
const CONTROL_LAST: [(&str, ShapeColumn); 3] = [
    ("life", ShapeColumn::Control(ControlColumn::Life)),
    ("record", ShapeColumn::Value),
    ("age_ns", ShapeColumn::AgeNs),
];

/// Labels that programs with control events may have, and so columns that the table always has.
const CONTROL_LABELS: [&str; 4] = ["application", "job", "rank", "user"];

/// The columns of one metric's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricShape {
    /// The metric's dotted name.
    pub(crate) name: String,
    /// Column name and label name.
    labels: Vec<(String, String)>,
    /// Type of the values; `None` if the streams of the table differ.
    value_type: Option<ValueType>,
    pub(crate) kind: Kind,
    pub(crate) help: String,
}

impl MetricShape {
    /// The shape that includes these streams; `None` if `old` already does. `table` is the name of
    /// the table on one node.
    pub(crate) fn grown<'a>(
        table: &str,
        old: Option<&Self>,
        streams: impl Iterator<Item = &'a Descriptor>,
    ) -> Option<Self> {
        let mut streams = streams.peekable();
        let first = *streams.peek()?;
        let mut shape = match old {
            Some(old) => old.clone(),
            None if table == CONTROL_EVENTS => Self::of_control_events(),
            None => Self {
                name: first.name.as_str().to_owned(),
                labels: Vec::new(),
                value_type: Some(first.value_type),
                kind: first.kind,
                help: first.help.clone(),
            },
        };
        for descriptor in streams {
            if shape.value_type.is_some_and(|t| t != descriptor.value_type) {
                shape.value_type = None;
            }
            for (label, _) in descriptor.labels.iter() {
                shape.add_label(label);
            }
        }
        (old != Some(&shape)).then_some(shape)
    }

    /// The shape of the table of events, which is there before any event.
    pub(crate) fn of_events() -> Self {
        let mut shape = Self {
            name: EVENT_STREAM.to_owned(),
            labels: Vec::new(),
            value_type: Some(ValueType::Bytes),
            kind: Kind::State,
            help: "What happened to files, as watches and collectors saw it.".to_owned(),
        };
        shape.add_label(SOURCE_LABEL);
        shape
    }

    /// The shape of the table of control events, which is there before any event.
    pub(crate) fn of_control_events() -> Self {
        let mut shape = Self {
            name: CONTROL_EVENTS.to_owned(),
            labels: Vec::new(),
            value_type: Some(ValueType::Bytes),
            kind: Kind::State,
            help: "What programs and agents tell each other about storage and its control."
                .to_owned(),
        };
        for label in CONTROL_LABELS {
            shape.add_label(label);
        }
        shape
    }

    /// The fixed columns before and after those of labels.
    fn fixed(&self) -> (FixedColumns, FixedColumns) {
        match &*self.name {
            EVENT_STREAM => (&EVENT_FIRST, &EVENT_LAST),
            CONTROL_EVENTS => (&CONTROL_FIRST, &CONTROL_LAST),
            _ => (&FIRST, &LAST),
        }
    }

    fn add_label(&mut self, label: &str) {
        if self.labels.iter().any(|(_, known)| known == label)
            || self.labels.len() == LABEL_COLUMNS_MAX
        {
            return;
        }
        let mut column = label.to_owned();
        while self
            .names()
            .any(|taken| taken.eq_ignore_ascii_case(&column))
        {
            column.insert_str(0, "label_");
        }
        self.labels.push((column, label.to_owned()));
    }

    /// The labels that have a column.
    pub(crate) fn label_names(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|(_, label)| label.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let names = |columns: &'static [(&str, ShapeColumn)]| columns.iter().map(|(name, _)| *name);
        let labels = self.labels.iter().map(|(column, _)| column.as_str());
        let (first, last) = self.fixed();
        names(first).chain(labels).chain(names(last))
    }

    /// The names of all columns, hidden ones last.
    pub(crate) fn column_names(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    /// The contents of the columns, in the same order.
    pub(crate) fn columns(&self) -> Vec<ShapeColumn> {
        let labels = self
            .labels
            .iter()
            .map(|(_, label)| ShapeColumn::Label(label.clone()));
        let contents =
            |columns: &'static [(&str, ShapeColumn)]| columns.iter().map(|(_, c)| c.clone());
        let (first, last) = self.fixed();
        contents(first)
            .chain(labels)
            .chain(contents(last))
            .collect()
    }

    /// The `CREATE TABLE` text from which SQLite reads the columns.
    pub(crate) fn schema(&self) -> CString {
        let hidden_from = self.fixed().0.len() + self.labels.len();
        let columns: Vec<String> = self
            .names()
            .zip(self.columns())
            .enumerate()
            .map(|(i, (name, column))| {
                let hidden = if i >= hidden_from { " HIDDEN" } else { "" };
                // Without NOT NULL, SQLite does not search for the smallest time in order.
                let never_null = if column == ShapeColumn::Ts {
                    " NOT NULL"
                } else {
                    ""
                };
                let declared = self.declared(&column);
                format!("\"{name}\" {declared}{hidden}{never_null}")
            })
            .collect();
        CString::new(format!("CREATE TABLE x({})", columns.join(", ")))
            .expect("column names are letters, digits and _")
    }

    fn declared(&self, column: &ShapeColumn) -> &'static str {
        match column {
            ShapeColumn::Ts | ShapeColumn::Looked | ShapeColumn::AgeNs => "INTEGER",
            ShapeColumn::Error => "REAL",
            ShapeColumn::Quality
            | ShapeColumn::Node
            | ShapeColumn::Unit
            | ShapeColumn::Label(_) => "TEXT",
            ShapeColumn::Newest => "BOOLEAN",
            ShapeColumn::Event(part) => part.declared(),
            ShapeColumn::Control(part) => part.declared(),
            ShapeColumn::Value => match self.value_type {
                Some(ValueType::Int) => "INTEGER",
                Some(ValueType::Float) => "REAL",
                Some(ValueType::Bool) => "BOOLEAN",
                Some(ValueType::Text | ValueType::Json | ValueType::Floats) => "TEXT",
                Some(ValueType::Bytes) => "BLOB",
                None => "",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_after_the_statement_began_has_no_age() {
        assert_eq!(age_ns(1_000, 400), 600);
        assert_eq!(age_ns(1_000, 1_881), 0);
        assert_eq!(age_ns(i64::MAX, -1), i64::MAX);
        assert_eq!(age_ns(i64::MIN, 1), 0);
    }
}
