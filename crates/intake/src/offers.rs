//! Offers of a process for calls: its handlers, and its values that are knobs.

use std::collections::BTreeMap;

use barograph_model::{Name, Value, ValueType};
use barograph_stream::calls::{CallKind, NAME_BYTES_MAX};
use serde_json::{Value as Json, json};

use barograph_call::KnobBounds;
use barograph_stream::ScopeReader;

/// Most handlers of one process.
const HANDLERS_MAX: usize = 256;
/// In a handler's declaration: the handler belongs to no publication.
const OF_PROCESS: u32 = u32::MAX;

/// A handler of the process.
pub(crate) struct OfferedHandler {
    /// Index of its publication; `None` if it belongs to the process.
    pub publication: Option<usize>,
    pub name: String,
    help: String,
}

/// A knob of the process.
pub(crate) struct OfferedKnob {
    pub publication: usize,
    /// The publication's name, a dot, and the value's name.
    pub name: String,
    value: String,
    unit: String,
    help: String,
    pub bounds: KnobBounds,
    /// Time and value of the last put.
    newest: Option<(i64, Value)>,
    /// Whether the newest value is in no list yet.
    is_unlisted: bool,
}

/// The facts about a value that a knob needs.
pub(crate) struct KnobValue<'a> {
    pub publication: usize,
    pub publication_name: &'a str,
    pub name: &'a str,
    pub value_type: ValueType,
    pub unit: &'a str,
    pub help: &'a str,
}

/// All handlers and knobs of a process.
#[derive(Default)]
pub(crate) struct Offers {
    handlers: Vec<OfferedHandler>,
    knobs: Vec<OfferedKnob>,
    /// Index of a knob by that of its value.
    by_value: BTreeMap<u32, usize>,
    /// Whether the board does not have the present offers.
    pub is_new: bool,
}

impl Offers {
    /// Declares a handler of one of `publications` publications, or of none. Fails if it is
    /// invalid, or if there are too many.
    pub(crate) fn declare_handler(
        &mut self,
        publication: u32,
        publications: usize,
        name: String,
        help: String,
    ) -> Result<(), String> {
        Name::new(name.clone()).map_err(|e| e.to_string())?;
        let publication = match publication {
            OF_PROCESS => None,
            number if (number as usize) < publications => Some(number as usize),
            _ => return Err(format!("handler {name:?}: of no publication")),
        };
        let is_same = |t: &OfferedHandler| t.name == name && t.publication == publication;
        if self.handlers.iter().any(is_same) {
            return Ok(());
        }
        if self.handlers.len() >= HANDLERS_MAX {
            return Err(format!(
                "handler {name:?}: there are {HANDLERS_MAX} already"
            ));
        }
        self.is_new = true;
        self.handlers.push(OfferedHandler {
            publication,
            name,
            help,
        });
        Ok(())
    }

    /// Declares that a value is a knob. Fails if its name is too long, if it is one already, or if
    /// its bounds are invalid.
    pub(crate) fn declare_knob(
        &mut self,
        index: u32,
        value: &KnobValue<'_>,
        min: f64,
        max: f64,
    ) -> Result<(), String> {
        let name = format!("{}.{}", value.publication_name, value.name);
        let refused = |reason: &str| Err(format!("knob {name:?}: {reason}"));
        if name.len() > NAME_BYTES_MAX {
            return refused("its name is too long");
        }
        if self.by_value.contains_key(&index) {
            return refused("it is declared twice");
        }
        let bounds = KnobBounds {
            value_type: value.value_type,
            min,
            max,
        };
        let bounds = bounds
            .check()
            .map_err(|reason| format!("knob {name:?}: {reason}"))?;
        self.is_new = true;
        self.by_value.insert(index, self.knobs.len());
        self.knobs.push(OfferedKnob {
            publication: value.publication,
            name,
            value: value.name.to_owned(),
            unit: value.unit.to_owned(),
            help: value.help.to_owned(),
            bounds,
            newest: None,
            is_unlisted: false,
        });
        Ok(())
    }

    /// Marks all offers as new after the process was given another name.
    pub(crate) fn rename(&mut self) {
        self.is_new = !self.is_empty();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty() && self.knobs.is_empty()
    }

    /// Notes a put value, if it is a knob's.
    pub(crate) fn note(&mut self, value: u32, ts: i64, put: &Value) {
        if let Some(at) = self.by_value.get(&value) {
            self.knobs[*at].newest = Some((ts, put.clone()));
            self.knobs[*at].is_unlisted = true;
        }
    }

    /// The publications of knobs that were put since they were listed.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = usize> {
        let unlisted = self.knobs.iter().filter(|knob| knob.is_unlisted);
        unlisted.map(|knob| knob.publication)
    }

    /// The publication of each knob.
    pub(crate) fn knob_publications(&self) -> impl Iterator<Item = usize> {
        self.knobs.iter().map(|knob| knob.publication)
    }

    /// The publication of each handler; `None` if it belongs to the process.
    pub(crate) fn handler_publications(&self) -> impl Iterator<Item = Option<usize>> {
        self.handlers.iter().map(|handler| handler.publication)
    }

    /// Notes that the knobs of these publications are listed with their newest values.
    pub(crate) fn listed(&mut self, is_listed: impl Fn(usize) -> bool) {
        for knob in &mut self.knobs {
            knob.is_unlisted &= !is_listed(knob.publication);
        }
    }

    /// Kind, name, publication, and a knob's bounds of everything that can be called.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (CallKind, &str, Option<usize>, Option<KnobBounds>)> {
        let handlers = self.handlers.iter();
        let handlers = handlers.map(|t| (CallKind::Trigger, &*t.name, t.publication, None));
        let knobs = self.knobs.iter();
        let knobs = knobs.map(|k| {
            (
                CallKind::Knob,
                &*k.name,
                Some(k.publication),
                Some(k.bounds),
            )
        });
        handlers.chain(knobs)
    }

    /// One row per knob; `of` returns readers, name and labels of a publication, or `None` if it
    /// was refused.
    pub(crate) fn knob_rows<'a>(
        &'a self,
        of: impl Fn(usize) -> Option<(ScopeReader, &'a str, Json)> + 'a,
    ) -> impl Iterator<Item = (ScopeReader, Json)> + 'a {
        self.knobs.iter().filter_map(move |knob| {
            let (reader, publication, labels) = of(knob.publication)?;
            // Infinite bounds become null, since JSON has no infinity.
            let bound = |v: f64| match knob.bounds.value_type {
                ValueType::Int if v.is_finite() => json!(v as i64),
                _ => json!(v),
            };
            let value = knob.newest.as_ref().map(|(_, value)| match value {
                Value::Int(v) => json!(v),
                Value::Float(v) => json!(v),
                Value::Bool(v) => json!(v),
                // A knob has no other type.
                _ => Json::Null,
            });
            let row = json!({
                "publication": publication,
                "name": knob.value,
                "labels": labels,
                "type": knob.bounds.value_type.as_str(),
                "min": bound(knob.bounds.min),
                "max": bound(knob.bounds.max),
                "unit": knob.unit,
                "help": knob.help,
                "value": value,
                "ts": knob.newest.as_ref().map(|(ts, _)| ts),
            });
            Some((reader, row))
        })
    }

    /// One row per handler: a process's for its `owner`, a publication's for the publication's
    /// readers.
    pub(crate) fn handler_rows<'a>(
        &'a self,
        owner: ScopeReader,
        of: impl Fn(usize) -> Option<(ScopeReader, &'a str, Json)> + 'a,
    ) -> impl Iterator<Item = (ScopeReader, Json)> + 'a {
        self.handlers.iter().map(move |handler| {
            let of = handler.publication.and_then(&of);
            let (reader, publication, labels) = match of {
                Some((reader, name, labels)) => (reader, Some(name), labels),
                None => (owner, None, Json::Null),
            };
            let row = json!({
                "name": handler.name,
                "publication": publication,
                "labels": labels,
                "help": handler.help,
            });
            (reader, row)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_wrongly_is_refused() {
        let mut offers = Offers::default();
        let mut declare = |publication, name: &str| {
            offers.declare_handler(publication, 2, name.into(), String::new())
        };
        assert!(declare(OF_PROCESS, "checkpoint").is_ok());
        assert!(declare(OF_PROCESS, "checkpoint").is_ok(), "the same again");
        assert!(declare(1, "checkpoint").is_ok());
        for (publication, name) in [(2, "a"), (0, ""), (0, "No Name"), (0, "a..b")] {
            assert!(declare(publication, name).is_err(), "{publication} {name}");
        }
        for n in 2..HANDLERS_MAX {
            assert!(declare(0, &format!("t{n}")).is_ok());
        }
        assert!(declare(0, "one.more").is_err());
        let value = KnobValue {
            publication: 0,
            publication_name: "solver",
            name: "dt",
            value_type: ValueType::Float,
            unit: "s",
            help: "",
        };
        assert!(offers.declare_knob(3, &value, 1.0, 0.0).is_err());
        assert!(offers.declare_knob(3, &value, 0.0, 1.0).is_ok());
        assert!(offers.declare_knob(3, &value, 0.0, 1.0).is_err(), "twice");
        let long = "x".repeat(NAME_BYTES_MAX);
        let long = KnobValue {
            name: &long,
            ..value
        };
        assert!(offers.declare_knob(4, &long, 0.0, 1.0).is_err());
        let found = offers.iter().last().unwrap();
        assert_eq!((found.0, found.1), (CallKind::Knob, "solver.dt"));
        offers.note(3, 7, &Value::Float(0.5));
        offers.note(4, 7, &Value::Float(0.6));
        let of = |_| Some((ScopeReader::All, "solver", Json::Null));
        let rows: Vec<_> = offers.knob_rows(of).collect();
        assert_eq!((rows.len(), &rows[0].1["value"]), (1, &json!(0.5)));
    }
}
