//! Knobs: values of a publication that others may set within bounds, and that this program reads at
//! any time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use barograph_model::ValueType;
use barograph_stream::calls::CallPayload;

use super::PublishError;
use super::state::Pairs;

/// Most handlers, and most knobs, of a process.
pub(super) const DECLARED_MAX: usize = 1_024;

/// A value of a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KnobValue {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
}

/// Properties of a knob.
#[derive(Clone, Debug)]
pub struct KnobConfig {
    /// Its value until it is set, and with that its type.
    pub initial: KnobValue,
    /// Least value that it may be set to; a whole number for an integer, 0 for a bool.
    pub min: f64,
    /// Greatest value that it may be set to; a whole number for an integer, 1 for a bool.
    pub max: f64,
    /// Unit of its values.
    pub unit: String,
    /// One sentence for people.
    pub help: String,
}

impl KnobConfig {
    /// A float within bounds, without a unit.
    pub fn float(initial: f64, min: f64, max: f64) -> Self {
        Self::of(KnobValue::Float(initial), min, max)
    }

    /// An integer within bounds, without a unit.
    pub fn int(initial: i64, min: i64, max: i64) -> Self {
        Self::of(KnobValue::Int(initial), min as f64, max as f64)
    }

    /// A bool.
    pub fn bool(initial: bool) -> Self {
        Self::of(KnobValue::Bool(initial), 0.0, 1.0)
    }

    fn of(initial: KnobValue, min: f64, max: f64) -> Self {
        Self {
            initial,
            min,
            max,
            unit: String::new(),
            help: String::new(),
        }
    }

    /// Checks the properties.
    pub(super) fn checked(&self, name: &str) -> Result<CheckedKnob, PublishError> {
        let refused = |why| PublishError::Knob {
            name: name.into(),
            why,
        };
        let (min, max) = (self.min, self.max);
        if min.is_nan() || max.is_nan() || min > max {
            return Err(refused("its least value is above its greatest"));
        }
        let is_whole = |bound: f64| bound.is_infinite() || bound.fract() == 0.0;
        match self.initial {
            KnobValue::Int(_) if !is_whole(min) || !is_whole(max) => {
                return Err(refused("the bounds of an integer are whole"));
            }
            KnobValue::Bool(_) if (min, max) != (0.0, 1.0) => {
                return Err(refused("the bounds of a bool are 0 and 1"));
            }
            _ => {}
        }
        if !is_within(self.initial, min, max) {
            return Err(refused("what it begins with is not within its bounds"));
        }
        let initial = self.initial;
        Ok(CheckedKnob { initial, min, max })
    }
}

/// Properties of a knob, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedKnob {
    initial: KnobValue,
    min: f64,
    max: f64,
}

impl CheckedKnob {
    pub(super) fn value_type(&self) -> ValueType {
        match self.initial {
            KnobValue::Float(_) => ValueType::Float,
            KnobValue::Int(_) => ValueType::Int,
            KnobValue::Bool(_) => ValueType::Bool,
        }
    }

    pub(super) fn bounds(&self) -> (f64, f64) {
        (self.min, self.max)
    }
}

fn is_within(value: KnobValue, min: f64, max: f64) -> bool {
    match value {
        KnobValue::Float(v) => v >= min && v <= max,
        // The cast of a bound saturates, as intended.
        KnobValue::Int(v) => v >= min as i64 && v <= max as i64,
        KnobValue::Bool(_) => true,
    }
}

fn word_of(value: KnobValue) -> u64 {
    match value {
        KnobValue::Float(v) => v.to_bits(),
        KnobValue::Int(v) => v.cast_unsigned(),
        KnobValue::Bool(v) => v.into(),
    }
}

/// The memory of a knob's value. It lives as long as the process, so that it can be read without a
/// check. C programs read the first three words (`baro_knob_t` in `baro.h`).
#[derive(Debug)]
#[repr(C)]
pub struct KnobCell {
    word: AtomicU64,
    /// Number of the setting; 0 before the first.
    version: AtomicU64,
    /// 1 int, 2 float, 3 bool.
    value_type: u64,
    min: f64,
    max: f64,
}

impl KnobCell {
    fn new(wanted: &CheckedKnob) -> Self {
        Self {
            word: AtomicU64::new(word_of(wanted.initial)),
            version: AtomicU64::new(0),
            value_type: wanted.value_type() as u64,
            min: wanted.min,
            max: wanted.max,
        }
    }

    pub(super) fn value_type(&self) -> ValueType {
        match self.value_type {
            1 => ValueType::Int,
            2 => ValueType::Float,
            _ => ValueType::Bool,
        }
    }

    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The last setting that was applied, or the initial value.
    pub fn value(&self) -> KnobValue {
        let word = self.word();
        match self.value_type() {
            ValueType::Int => KnobValue::Int(word.cast_signed()),
            ValueType::Float => KnobValue::Float(f64::from_bits(word)),
            _ => KnobValue::Bool(word != 0),
        }
    }

    /// Resets the cell to the initial value when the knob is declared.
    pub(super) fn begin(&self, wanted: &CheckedKnob) {
        self.version.store(0, Ordering::Relaxed);
        self.word.store(word_of(wanted.initial), Ordering::Relaxed);
    }

    /// Applies a setting; returns whether its type and value are allowed.
    pub(super) fn apply(&self, payload: &CallPayload, version: u64) -> bool {
        let value = match (self.value_type(), payload) {
            (ValueType::Float, CallPayload::Float(v)) => KnobValue::Float(*v),
            (ValueType::Float, CallPayload::Int(v)) => KnobValue::Float(*v as f64),
            (ValueType::Int, CallPayload::Int(v)) => KnobValue::Int(*v),
            (ValueType::Bool, CallPayload::Bool(v)) => KnobValue::Bool(*v),
            _ => return false,
        };
        if !is_within(value, self.min, self.max) {
            return false;
        }
        self.word.store(word_of(value), Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
        true
    }

    /// Checks that a knob that is declared again has the same properties.
    pub(super) fn check_same(&self, name: &str, wanted: &CheckedKnob) -> Result<(), PublishError> {
        let ours = (self.value_type(), self.min, self.max);
        if ours == (wanted.value_type(), wanted.min, wanted.max) {
            return Ok(());
        }
        Err(PublishError::Taken {
            name: name.to_owned(),
            taken: "a knob with other bounds already",
        })
    }
}

/// A cell and what it was made for: a knob that is declared again after its publisher was closed
/// gets the same cell.
struct MadeCell {
    name: String,
    labels: Pairs,
    cell: &'static KnobCell,
}

static MADE: Mutex<Vec<MadeCell>> = Mutex::new(Vec::new());

/// Returns the cell of a knob, by its full name, its publication's labels and its properties.
pub(super) fn cell(
    name: &str,
    labels: &[(String, String)],
    wanted: &CheckedKnob,
) -> Result<&'static KnobCell, PublishError> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |m: &&MadeCell| {
        m.name == name && m.labels == labels && m.cell.check_same(name, wanted).is_ok()
    };
    if let Some(found) = made.iter().find(is_same) {
        return Ok(found.cell);
    }
    if made.len() >= 2 * DECLARED_MAX {
        return Err(PublishError::Full { name: name.into() });
    }
    let cell: &'static KnobCell = Box::leak(Box::new(KnobCell::new(wanted)));
    made.push(MadeCell {
        name: name.to_owned(),
        labels: labels.to_vec(),
        cell,
    });
    Ok(cell)
}

/// Returns the cell of a knob of a disabled publisher, which nobody can set.
pub(super) fn cell_of_nobody(
    name: &str,
    wanted: &CheckedKnob,
) -> Result<&'static KnobCell, PublishError> {
    // Its value never changes, so all knobs with the same properties can share it.
    let initial = format!("{:x}", word_of(wanted.initial));
    cell(&format!("{name} {initial}"), &[], wanted)
}

/// A knob, as the program reads it: an atomic load, from any thread. It keeps its last value when
/// its publisher is closed.
#[derive(Clone, Copy)]
pub struct Knob(&'static KnobCell);

impl Knob {
    pub(super) fn new(cell: &'static KnobCell) -> Self {
        Self(cell)
    }

    /// Returns the value as a float.
    #[inline]
    pub fn get_f64(self) -> f64 {
        match self.0.value() {
            KnobValue::Float(v) => v,
            KnobValue::Int(v) => v as f64,
            KnobValue::Bool(v) => v.into(),
        }
    }

    /// Returns the value as an integer: a float is truncated towards zero.
    #[inline]
    pub fn get_i64(self) -> i64 {
        match self.0.value() {
            KnobValue::Float(v) => v as i64,
            KnobValue::Int(v) => v,
            KnobValue::Bool(v) => v.into(),
        }
    }

    /// Returns the value as a bool: a number is true if it is not 0.
    #[inline]
    pub fn get_bool(self) -> bool {
        match self.0.value() {
            KnobValue::Float(v) => v != 0.0,
            KnobValue::Int(v) => v != 0,
            KnobValue::Bool(v) => v,
        }
    }

    /// Returns the value in its own type.
    pub fn value(self) -> KnobValue {
        self.0.value()
    }

    /// Number of the last setting; 0 before the first.
    pub fn version(self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// The cell, for other languages.
    pub fn to_raw(self) -> &'static KnobCell {
        self.0
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Knob").field(&self.0.value()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (config, expect) in [
            (KnobConfig::float(0.5, 0.0, 1.0), ""),
            (KnobConfig::float(0.5, f64::NEG_INFINITY, f64::INFINITY), ""),
            (KnobConfig::float(2.0, 0.0, 1.0), "begins with"),
            (KnobConfig::float(f64::NAN, 0.0, 1.0), "begins with"),
            (KnobConfig::float(0.5, 1.0, 0.0), "above"),
            (KnobConfig::float(0.5, f64::NAN, 1.0), "above"),
            (KnobConfig::int(5, i64::MIN, i64::MAX), ""),
            (KnobConfig::int(5, 6, 9), "begins with"),
            (
                KnobConfig {
                    min: 0.5,
                    ..KnobConfig::int(1, 0, 9)
                },
                "whole",
            ),
            (KnobConfig::bool(true), ""),
            (
                KnobConfig {
                    max: 2.0,
                    ..KnobConfig::bool(true)
                },
                "0 and 1",
            ),
        ] {
            let text = config
                .checked("k")
                .map_or_else(|e| e.to_string(), |_| String::new());
            assert!(text.contains(expect), "{config:?}: {text}");
            assert_eq!(text.is_empty(), expect.is_empty(), "{config:?}: {text}");
        }
    }

    #[test]
    fn settings_are_checked() {
        let cell = |config: KnobConfig| KnobCell::new(&config.checked("k").unwrap());
        let float = cell(KnobConfig::float(0.5, 0.0, 2.0));
        let int = cell(KnobConfig::int(5, 0, 9));
        let bool = cell(KnobConfig::bool(false));
        for (cell, payload, expect) in [
            (&float, CallPayload::Float(1.5), Some(KnobValue::Float(1.5))),
            (&float, CallPayload::Int(2), Some(KnobValue::Float(2.0))),
            (&float, CallPayload::Float(2.5), None),
            (&float, CallPayload::Float(f64::NAN), None),
            (&float, CallPayload::Bool(true), None),
            (&int, CallPayload::Int(9), Some(KnobValue::Int(9))),
            (&int, CallPayload::Int(10), None),
            (&int, CallPayload::Float(3.0), None),
            (&bool, CallPayload::Bool(true), Some(KnobValue::Bool(true))),
            (&bool, CallPayload::Int(0), None),
            (&bool, CallPayload::None, None),
        ] {
            let before = cell.value();
            assert_eq!(cell.apply(&payload, 7), expect.is_some(), "{payload:?}");
            assert_eq!(cell.value(), expect.unwrap_or(before), "{payload:?}");
        }
        let knob = |cell: &KnobCell| (cell.value(), cell.version.load(Ordering::Relaxed));
        assert_eq!(knob(&float), (KnobValue::Float(2.0), 7));
    }

    #[test]
    fn a_knob_that_is_declared_again_has_the_same_cell() {
        let wanted = |initial| KnobConfig::float(initial, 0.0, 9.0).checked("k").unwrap();
        let labels = [("rank".to_owned(), "1".to_owned())];
        let first = cell("tests.k", &labels, &wanted(1.0)).unwrap();
        let again = cell("tests.k", &labels, &wanted(2.0)).unwrap();
        assert!(std::ptr::eq(first, again));
        let other = cell("tests.k", &[], &wanted(1.0)).unwrap();
        assert!(!std::ptr::eq(first, other));
        let nobodys = |initial| cell_of_nobody("tests.k", &wanted(initial)).unwrap();
        assert!(std::ptr::eq(nobodys(1.0), nobodys(1.0)));
        assert!(!std::ptr::eq(nobodys(1.0), nobodys(2.0)));
    }
}
