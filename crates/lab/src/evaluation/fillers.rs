//! Figure 3c: several ways of filling the ticks between looks.

use super::{Evaluation, by_second, geometric, largest, markdown, part_at, shown};
use crate::between::{FillMethod, between};
use crate::cases::CaseOrigin;
use crate::figures;
use crate::plot::{PlotAxis, PlotError};
use crate::suite::Case;

/// Seconds between looks.
const EVERY: [i64; 2] = [5, 10];

/// The part of each case, and the error of one way divided by that of holding.
type Ratios = Vec<(usize, f64)>;

pub(super) fn sections(evaluation: &mut Evaluation, all: &[Case]) -> Result<(), PlotError> {
    let mut rows = Vec::new();
    for ticks in EVERY {
        let ways = ratios(all, ticks);
        if ticks == EVERY[0] {
            let named: Vec<(String, Ratios)> = ways
                .iter()
                .skip(1)
                .map(|(way, ratios)| (way.name().to_owned(), ratios.clone()))
                .collect();
            let figure = figures::rows(
                "Between looks every 5 s: mean error of each stream",
                PlotAxis {
                    label: "mean error / that of holding the last value [1]".to_owned(),
                    is_log: true,
                    range: Some((1e-3, 1e6)),
                    ..PlotAxis::default()
                },
                ("as holding", 1.0),
                &named,
                &CaseOrigin::ALL.map(CaseOrigin::name),
            );
            evaluation.image("between", &figure)?;
        }
        rows.extend(
            ways.iter()
                .skip(1)
                .map(|(way, ratios)| row(ticks, *way, ratios)),
        );
    }
    let mut heads = vec!["looks every".to_owned(), "between them".to_owned()];
    for part in CaseOrigin::ALL {
        heads.push(format!("{}: mean", part.name()));
        heads.push("worst".to_owned());
        heads.push("better on".to_owned());
    }
    evaluation.text("between.table", &markdown(&heads, &rows));
    Ok(())
}

fn ratios(all: &[Case], ticks: i64) -> Vec<(FillMethod, Ratios)> {
    let mut ways: Vec<(FillMethod, Ratios)> = FillMethod::ALL.map(|way| (way, Vec::new())).into();
    for case in by_second(all) {
        let outcomes = between(case, ticks);
        let held = outcomes[0].1.mean_error;
        // If the last value is always right there is nothing to gain.
        if held > 0.0 {
            for ((_, ratios), (_, outcome)) in ways.iter_mut().zip(&outcomes) {
                ratios.push((part_at(&case.name), outcome.mean_error / held));
            }
        }
    }
    ways
}

fn row(ticks: i64, way: FillMethod, ratios: &Ratios) -> Vec<String> {
    let mut cells = vec![format!("{ticks} s"), way.name().to_owned()];
    for part in 0..CaseOrigin::ALL.len() {
        let mine = ratios.iter().filter(|(of, _)| *of == part);
        let mine: Vec<f64> = mine.map(|(_, ratio)| *ratio).collect();
        let better = mine.iter().filter(|ratio| **ratio < 0.9995).count();
        cells.push(shown(geometric(&mine)));
        cells.push(shown(largest(&mine)));
        cells.push(format!("{better} of {}", mine.len()));
    }
    cells
}
