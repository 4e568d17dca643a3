//! Tables of facts, and the set of facts of one such table that a device (or the node) has.

use std::marker::PhantomData;
use std::sync::Arc;

use barograph_model::{Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};

use crate::{FactId, SourceBatch, SourceError};

/// The fixed properties of a fact, whichever device it is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactSpec {
    /// Dotted name, unit last.
    pub name: &'static str,
    /// Unit in plain words.
    pub unit: &'static str,
    /// Gauge, counter or state.
    pub kind: Kind,
    /// Type of the values.
    pub value_type: ValueType,
    /// One sentence for people that describes the fact.
    pub help: &'static str,
}

/// An enum made by `facts!`; its variants are the indices of its table.
pub(crate) trait FactTable: Copy + 'static {
    /// One entry per variant, in the order of the variants.
    const SPECS: &'static [FactSpec];
    /// The index of this variant in `SPECS`.
    fn index(self) -> usize;
}

/// Defines an enum of facts and its table: `Variant: Kind Type "name" "unit" "help";`.
macro_rules! facts {
    ($(#[$meta:meta])* $vis:vis enum $table:ident in $family:literal {
        $($fact:ident: $kind:ident $type:ident $name:literal $unit:literal $help:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $table { $(#[doc = $help] $fact,)+ }

        impl $crate::fact::FactTable for $table {
            const SPECS: &'static [$crate::FactSpec] = &[$($crate::FactSpec {
                name: concat!($family, ".", $name),
                unit: $unit,
                kind: barograph_model::Kind::$kind,
                value_type: barograph_model::ValueType::$type,
                help: $help,
            },)+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use facts;

/// The facts of one device, or other thing with labels. Each fact is declared when it is first put,
/// so that a value that the kernel does not give has no stream.
#[derive(Debug)]
pub(crate) struct FactSet<T> {
    labels: Labels,
    ids: Box<[Option<FactId>]>,
    /// Newest text by the index of its fact, so that an unchanged text is not allocated again.
    texts: Vec<(usize, Arc<str>)>,
    table: PhantomData<T>,
}

impl<T: FactTable> FactSet<T> {
    /// Creates a set without facts, for the thing with these labels.
    pub(crate) fn new(labels: Labels) -> Self {
        let ids = vec![None; T::SPECS.len()].into_boxed_slice();
        Self {
            labels,
            ids,
            texts: Vec::new(),
            table: PhantomData,
        }
    }

    /// Creates a set for the thing with these label pairs. The error states why the pairs are not
    /// valid labels.
    pub(crate) fn labelled<const N: usize>(
        pairs: [(&str, String); N],
    ) -> Result<Self, SourceError> {
        let what = pairs
            .first()
            .map(|(n, v)| format!("{n} {v}"))
            .unwrap_or_default();
        let labels = Labels::new(pairs);
        labels.map(Self::new).map_err(|e| SourceError::Unnameable {
            what,
            reason: e.to_string(),
        })
    }

    /// Puts a value that was read from the resource.
    pub(crate) fn measured(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        v: impl Into<Value>,
    ) {
        self.put(batch, fact, Sample::measured(now_ns, v), None);
    }

    /// Puts a count or a number of bytes that was read from the resource.
    pub(crate) fn count(&mut self, batch: &mut SourceBatch, now_ns: i64, fact: T, v: u64) {
        self.measured(batch, now_ns, fact, int(v));
    }

    /// Puts a value that was read from the resource and differs from the true one by at most
    /// `error`.
    pub(crate) fn measured_within(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        v: impl Into<Value>,
        error: f64,
    ) {
        let mut sample = Sample::measured(now_ns, v);
        sample.error = bound(error);
        self.put(batch, fact, sample, None);
    }

    /// Puts a value that was computed from what was read.
    pub(crate) fn derived(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        v: impl Into<Value>,
    ) {
        self.put(batch, fact, Sample::derived(now_ns, v), None);
    }

    /// Puts a value that was computed from what was read and differs from the true one by at most
    /// `error`.
    pub(crate) fn estimated(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        v: impl Into<Value>,
        error: f64,
    ) {
        let mut sample = Sample::derived(now_ns, v);
        sample.error = bound(error);
        self.put(batch, fact, sample, None);
    }

    /// Puts an attribute, which is read only every `every_ns`.
    pub(crate) fn attribute(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        v: impl Into<Value>,
        every_ns: i64,
    ) {
        self.put(batch, fact, Sample::measured(now_ns, v), Some(every_ns));
    }

    /// Puts an attribute of type text; allocates only when the text changed.
    pub(crate) fn text_attribute(
        &mut self,
        batch: &mut SourceBatch,
        now_ns: i64,
        fact: T,
        text: &str,
        every_ns: i64,
    ) {
        let value = self.shared(fact, text);
        self.attribute(batch, now_ns, fact, value, every_ns);
    }

    /// Puts a text that is read at each poll of the source; allocates only when the text changed.
    pub(crate) fn text(&mut self, batch: &mut SourceBatch, now_ns: i64, fact: T, text: &str) {
        let value = self.shared(fact, text);
        self.measured(batch, now_ns, fact, value);
    }

    /// The text as a value: that of the previous read if the text is the same.
    fn shared(&mut self, fact: T, text: &str) -> Value {
        let place = fact.index();
        let known = self.texts.iter().position(|(p, _)| *p == place);
        match known {
            Some(i) if *self.texts[i].1 == *text => Value::Text(self.texts[i].1.clone()),
            _ => {
                let value = Value::text(text);
                if let Value::Text(shared) = &value {
                    match known {
                        Some(i) => self.texts[i].1 = shared.clone(),
                        None => self.texts.push((place, shared.clone())),
                    }
                }
                value
            }
        }
    }

    fn put(&mut self, batch: &mut SourceBatch, fact: T, sample: Sample, every_ns: Option<i64>) {
        let place = fact.index();
        let id = match self.ids[place] {
            Some(id) => id,
            None => {
                let descriptor = describe(&T::SPECS[place], self.labels.clone());
                let id = match every_ns {
                    Some(every_ns) => batch.declare_every(descriptor, None, every_ns),
                    None => batch.declare(descriptor, None),
                };
                self.ids[place] = Some(id);
                id
            }
        };
        batch.put(id, sample);
    }

    /// Retires one fact, if it is declared.
    pub(crate) fn retire_one(&mut self, batch: &mut SourceBatch, fact: T) {
        if let Some(id) = self.ids[fact.index()].take() {
            batch.retire(id);
        }
    }

    /// Retires all facts.
    pub(crate) fn retire(&mut self, batch: &mut SourceBatch) {
        for id in self.ids.iter_mut().filter_map(Option::take) {
            batch.retire(id);
        }
    }
}

/// The descriptor of a fact for the thing with these labels.
pub(crate) fn describe(spec: &FactSpec, labels: Labels) -> Descriptor {
    Descriptor {
        name: Name::new(spec.name).expect("names in fact tables are tested"),
        labels,
        value_type: spec.value_type,
        unit: Unit::new(spec.unit).expect("units in fact tables are tested"),
        kind: spec.kind,
        help: spec.help.to_owned(),
    }
}

/// An error bound in the type of a sample's error: never below the given one, since the true value
/// could then be outside.
fn bound(error: f64) -> f32 {
    let near = error as f32;
    match f64::from(near) < error {
        true => near.next_up(),
        false => near,
    }
}

/// A count in the integer type of streams. The parsers refuse numbers that do not fit; sums
/// saturate.
pub(crate) fn int(v: u64) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}
