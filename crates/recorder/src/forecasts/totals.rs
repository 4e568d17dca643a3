//! Capacities: the free or used part of something is never below 0, nor above the total that
//! another stream holds.

use barograph_forecast::Shape;
use barograph_model::{Descriptor, Labels, Name, Sample, StreamKey, Value};

/// The last word but one in the name of a stream that is part of a total.
const PARTS: [&str; 3] = ["available", "free", "used"];
const TOTAL: &str = "total";

/// The streams that hold totals, by key.
#[derive(Debug, Default)]
pub(super) struct Totals {
    by_key: Vec<Option<Box<Total>>>,
}

/// A stream that holds a total.
#[derive(Debug)]
pub(super) struct Total {
    name: Name,
    labels: Labels,
    value: Option<f64>,
}

/// The name of the total of a stream with this name: `filesystem.total.bytes` for
/// `filesystem.available.bytes`.
pub(super) fn total_of(name: &Name) -> Option<Name> {
    let (front, unit) = name.as_str().rsplit_once('.')?;
    let (front, part) = front.rsplit_once('.')?;
    if !PARTS.contains(&part) {
        return None;
    }
    Name::new(format!("{front}.{TOTAL}.{unit}")).ok()
}

/// Whether a stream with this name holds a total.
fn is_total(name: &Name) -> bool {
    let mut words = name.as_str().rsplit('.').skip(1);
    words.next() == Some(TOTAL) && words.next().is_some()
}

impl Totals {
    /// Adds a stream if it holds a total.
    pub(super) fn stream_added(&mut self, key: StreamKey, descriptor: &Descriptor) {
        self.stream_removed(key);
        if !is_total(&descriptor.name) {
            return;
        }
        let index = key.0 as usize;
        if self.by_key.len() <= index {
            self.by_key.resize_with(index + 1, || None);
        }
        self.by_key[index] = Some(Box::new(Total {
            name: descriptor.name.clone(),
            labels: descriptor.labels.clone(),
            value: None,
        }));
    }

    /// Removes a stream; returns it if it held a total.
    pub(super) fn stream_removed(&mut self, key: StreamKey) -> Option<Box<Total>> {
        self.by_key.get_mut(key.0 as usize)?.take()
    }

    /// Notes a look at a stream; returns the total if it has changed.
    pub(super) fn looked(&mut self, key: StreamKey, sample: &Sample) -> Option<&Total> {
        let total = self.by_key.get_mut(key.0 as usize)?.as_mut()?;
        let value = match sample.value {
            Value::Int(value) => value as f64,
            Value::Float(value) => value,
            _ => return None,
        };
        let has_changed = total.value != Some(value);
        total.value = Some(value);
        has_changed.then_some(total)
    }

    /// The shape of a part of the named total: bounded by it if it is known.
    pub(super) fn shape(&self, total: &Name, labels: &Labels) -> Shape {
        let mut known = self.by_key.iter().flatten();
        let total = known.find(|known| known.is(total, labels));
        total.map_or(Shape::Gauge, |total| total.shape())
    }
}

impl Total {
    /// Whether the total has this name and these labels.
    pub(super) fn is(&self, name: &Name, labels: &Labels) -> bool {
        self.name == *name && self.labels == *labels
    }

    /// The shape of the parts of this total.
    pub(super) fn shape(&self) -> Shape {
        let known = self.value.filter(|total| *total >= 0.0);
        known.map_or(Shape::Gauge, |max| Shape::Bounded { min: 0.0, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_totals() {
        for (part, total) in [
            ("filesystem.available.bytes", Some("filesystem.total.bytes")),
            (
                "filesystem.files.free.count",
                Some("filesystem.files.total.count"),
            ),
            ("btrfs.data.used.bytes", Some("btrfs.data.total.bytes")),
            ("filesystem.total.bytes", None),
            ("free.bytes", None),
            ("disk.free", None),
            ("a.free.b.bytes", None),
        ] {
            let found = total_of(&Name::new(part).unwrap());
            assert_eq!(found.as_ref().map(Name::as_str), total, "{part}");
            if let Some(found) = found {
                assert!(is_total(&found), "{part}");
            }
        }
        for none in ["a.subtotal.bytes", "a.bytes", "total.bytes", "a.total"] {
            assert!(!is_total(&Name::new(none).unwrap()), "{none}");
        }
    }
}
