//! The cases that are replayed for documents: HACC's capacity and the families as generated, and
//! the columns of recorded traces.

use barograph_forecast::Shape;
use barograph_forecast::interval::ErrorBound;

use crate::suite::Case;
use crate::{Family, Hacc, Trace, generate, hacc};

/// Half an hour, as in the paper.
const SECONDS: usize = 1_800;

/// The origin of a case. Every part but the hold-out may have been used to choose something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseOrigin {
    /// Made by a generator.
    Made,
    /// Recorded: first and second halves.
    Recorded,
    /// Recorded once more with other random numbers; used for the final figures only.
    Holdout,
}

impl CaseOrigin {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Made, Self::Recorded, Self::Holdout];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Recorded => "recorded",
            Self::Holdout => "hold-out",
        }
    }

    /// The part of a case or a trace, by its name.
    pub fn of(name: &str) -> Self {
        match name {
            name if name.contains("-holdout") => Self::Holdout,
            name if name.contains("(made)") => Self::Made,
            _ => Self::Recorded,
        }
    }
}

/// The generated cases: HACC in three ways, then all families.
pub fn made() -> Vec<Case> {
    let case = |trace: Trace, counter, bound| Case {
        name: format!("{} (made)", trace.name),
        trace,
        value: 0,
        counter,
        bound: ErrorBound::Absolute(bound),
        shape: Shape::Gauge,
        confidence: 0.99,
    };
    let kinds = [Hacc::Regular, Hacc::Irregular, Hacc::Unaligned];
    let hacc = kinds.map(|kind| case(hacc(kind, SECONDS, 1), Some(1), 100.0));
    let families = Family::ALL.map(|family| case(generate(family, SECONDS, 1), None, 20.0));
    hacc.into_iter().chain(families).collect()
}

/// The columns of a recorded trace that are replayed; `name` is that of its file without
/// extensions.
pub fn recorded(name: &str, trace: &Trace) -> Vec<Case> {
    let place = |name: &str| trace.columns.iter().position(|column| column.name == name);
    // The bounds are five blocks of a capacity, a megabyte of bytes written, half a percent of
    // memory.
    let wanted = [
        ("available", ErrorBound::Absolute(20_000.0), Shape::Gauge),
        (
            "write_bytes",
            ErrorBound::Absolute(1_000_000.0),
            Shape::Counter,
        ),
        ("memory_free", ErrorBound::Relative(0.005), Shape::Gauge),
    ];
    let is_machine = name.starts_with("machine");
    let of_it = wanted.into_iter().filter(|(column, ..)| match *column {
        "available" => !is_machine,
        "memory_free" => is_machine,
        _ => true,
    });
    of_it
        .filter_map(|(column, bound, shape)| {
            let counter = (column == "available").then(|| place("write_bytes"));
            Some(Case {
                name: format!("{name} {column}"),
                counter: counter.flatten(),
                trace: trace.clone(),
                value: place(column)?,
                bound,
                shape,
                confidence: 0.99,
            })
        })
        .collect()
}
