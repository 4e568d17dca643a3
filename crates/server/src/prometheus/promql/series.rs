//! The values that operators pass to each other: series with a value for every instant of the
//! answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{LabelSet, PromFault};

/// The instants of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first instant, ns since the epoch.
    pub start: i64,
    /// Time between two instants, in ns; any value if there is one instant.
    pub step_ns: i64,
    /// The number of instants, at least one.
    pub count: usize,
    /// The requested end, used by `@ end()`; the last instant may be before it.
    pub end: i64,
}

impl Grid {
    /// A grid of a single instant.
    pub fn instant(at: i64) -> Self {
        Self {
            start: at,
            step_ns: 1,
            count: 1,
            end: at,
        }
    }

    /// The instant with this number, from 0.
    pub fn at(&self, step: usize) -> i64 {
        let ahead = self.step_ns.saturating_mul(step as i64);
        self.start.saturating_add(ahead)
    }

    /// The instants from `start` up to `end`.
    pub fn between(start: i64, end: i64, step_ns: i64) -> Self {
        let step_ns = step_ns.max(1);
        let steps = end.saturating_sub(start).max(0) / step_ns;
        Self {
            start,
            step_ns,
            count: usize::try_from(steps).unwrap_or(usize::MAX - 1) + 1,
            end,
        }
    }

    /// All instants, ascending.
    pub fn times(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.count).map(|step| self.at(step))
    }
}

/// One series of an instant vector: a value or none at each instant.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSeries {
    /// The labels that identify the series.
    pub labels: LabelSet,
    /// One point for each instant of the grid.
    pub points: Vec<Option<f64>>,
}

impl VectorSeries {
    /// Whether it has no value at any instant.
    pub fn is_absent(&self) -> bool {
        self.points.iter().all(Option::is_none)
    }
}

/// Series by their labels: series that get the same labels are merged.
#[derive(Debug, Default)]
pub(super) struct Merged {
    series: Vec<VectorSeries>,
    places: HashMap<LabelSet, usize>,
}

impl Merged {
    /// Adds a series; returns whether its labels are new. Two values with the same labels at one
    /// instant are an error.
    pub(super) fn add(&mut self, series: VectorSeries) -> Result<bool, PromFault> {
        match self.places.entry(series.labels.clone()) {
            Entry::Vacant(place) => {
                place.insert(self.series.len());
                self.series.push(series);
                Ok(true)
            }
            Entry::Occupied(place) => {
                let there = &mut self.series[*place.get()];
                for (there, new) in there.points.iter_mut().zip(series.points) {
                    if there.is_some() && new.is_some() {
                        return Err(PromFault::execution(format!(
                            "vector cannot contain metrics with the same labelset: {} is there twice",
                            series.labels
                        )));
                    }
                    *there = there.or(new);
                }
                Ok(false)
            }
        }
    }

    /// The series that have a value, in the order in which they were added.
    pub(super) fn done(self) -> Vec<VectorSeries> {
        let mut series = self.series;
        series.retain(|s| !s.is_absent());
        series
    }
}

/// Gives the series new labels, and merges those that become equal.
pub(super) fn relabelled(
    vector: Vec<VectorSeries>,
    mut label: impl FnMut(&LabelSet) -> LabelSet,
) -> Result<Vec<VectorSeries>, PromFault> {
    let mut merged = Merged::default();
    for series in vector {
        merged.add(VectorSeries {
            labels: label(&series.labels),
            points: series.points,
        })?;
    }
    Ok(merged.done())
}
