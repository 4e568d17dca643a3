//! The figures of the documents, of `baro lab replay` and of its page.

use crate::plot::{Figure, PlotAxis, PlotMark, PlotSeries};
use crate::record::{ReplayTick, TickRecorder};
use crate::replay::{BoundedPolicy, Policy, replay};
use crate::suite::Case;
use crate::{Row, Table};

/// Cost and accuracy of one table: fixed intervals are a line, each policy a point. Upper left is
/// best.
pub fn frontier(table: &Table) -> Figure {
    let place = |row: &Row| (row.outcome.cost, row.outcome.right);
    let (fixed, others): (Vec<&Row>, Vec<&Row>) =
        table.rows.iter().partition(|row| row.ahead.is_none());
    let mut series = vec![
        PlotSeries {
            name: "fixed intervals".to_owned(),
            mark: PlotMark::Line,
            color: 0,
            points: fixed.iter().map(|row| place(row)).collect(),
        },
        PlotSeries {
            name: String::new(),
            mark: PlotMark::Points,
            color: 0,
            points: fixed.iter().map(|row| place(row)).collect(),
        },
    ];
    series.extend(
        (1..)
            .zip(others)
            .map(|(color, row)| points(&row.policy, color, vec![place(row)])),
    );
    Figure {
        title: format!("{}: cost and accuracy", table.trace),
        x: PlotAxis {
            label: "cost [looks per tick]".to_owned(),
            is_log: true,
            ..PlotAxis::default()
        },
        y: PlotAxis::of("right within the bound [share of ticks]"),
        series,
    }
}

fn points(name: &str, color: usize, points: Vec<(f64, f64)>) -> PlotSeries {
    PlotSeries {
        name: name.to_owned(),
        mark: PlotMark::Points,
        color,
        points,
    }
}

/// The outlooks and looks of a policy on a case, tick by tick.
pub fn moments(case: &Case, policy: &mut dyn Policy) -> Vec<ReplayTick> {
    let mut recorder = TickRecorder::new(policy);
    replay(&case.stream(), &mut recorder);
    recorder.moments()
}

/// The true value, the outlook of the error-bounded policy (of the sentinel, if there is a
/// counter), and its looks.
pub fn over_time(case: &Case) -> Figure {
    let config = case.config();
    let (name, mut policy) = if case.counter.is_some() {
        (
            "sentinel",
            BoundedPolicy::sentinel(config, Some(case.shape)),
        )
    } else {
        (
            "error-bounded",
            BoundedPolicy::new(config, Some(case.shape)),
        )
    };
    let moments = moments(case, &mut policy);
    let mut figure = said(case, &[(name, &moments)], 0..usize::MAX);
    figure.title = format!("{}: what was, and what was said", case.name);
    figure
}

/// The true value and the outlooks of some policies, in a range of seconds of the replay.
pub fn said(
    case: &Case,
    told: &[(&str, &[ReplayTick])],
    seconds: std::ops::Range<usize>,
) -> Figure {
    let column = &case.trace.columns[case.value];
    let second = |ts_ns: i64| ts_ns as f64 / 1e9;
    let inside = |at: &f64| *at >= seconds.start as f64 && *at < seconds.end as f64;
    // A capacity of 250 GB that moves by 38 kB is only visible relative to the figure's first
    // value.
    let ticks = (0..).zip(&column.values);
    let truth: Vec<(f64, f64)> = ticks
        .map(|(tick, value): (i64, &f64)| (second(tick * case.trace.interval_ns), *value))
        .filter(|(at, value)| inside(at) && value.is_finite())
        .collect();
    let from = truth.first().map_or(0.0, |(_, value)| *value);
    let moved = |points: Vec<(f64, f64)>| points.into_iter().map(|(x, y)| (x, y - from)).collect();
    let mut series = vec![PlotSeries {
        name: "true".to_owned(),
        mark: PlotMark::Steps,
        color: 0,
        points: moved(truth),
    }];
    for (color, (name, moments)) in (1..).zip(told) {
        let place = |moment: &ReplayTick| (second(moment.ts_ns), moment.value);
        let places = |of: Vec<&ReplayTick>| {
            let places = of.into_iter().map(place);
            moved(places.filter(|(at, _)| inside(at)).collect())
        };
        series.push(PlotSeries {
            name: format!("{name}, said"),
            mark: PlotMark::Steps,
            color,
            points: places(moments.iter().collect()),
        });
        let looks = places(moments.iter().filter(|moment| moment.is_look).collect());
        // Looks at the same ticks as those of another policy are not drawn twice.
        if series.iter().all(|series| series.points != looks) {
            series.push(points(&format!("{name}, looks"), color, looks));
        }
    }
    let unit = match column.unit.as_str() {
        "" => "1",
        unit => unit,
    };
    Figure {
        title: case.name.clone(),
        x: PlotAxis::of("time [s]"),
        y: PlotAxis::of(&format!(
            "{} - {} [{unit}]",
            column.name,
            crate::plot::number(from)
        )),
        series,
    }
}

/// A name and its points: the index of each point's part, and its value.
pub type NamedRow = (String, Vec<(usize, f64)>);

/// A row of points for each name, coloured by part, and a vertical line at `even`.
pub fn rows(
    title: &str,
    x: PlotAxis,
    even: (&str, f64),
    rows: &[NamedRow],
    parts: &[&str],
) -> Figure {
    let mut series = vec![PlotSeries {
        name: even.0.to_owned(),
        mark: PlotMark::Line,
        color: 0,
        points: vec![(even.1, -0.5), (even.1, rows.len() as f64 - 0.5)],
    }];
    for (part, name) in parts.iter().enumerate() {
        let shift = 0.16 * ((parts.len() - 1) as f64 / 2.0 - part as f64);
        let row = |(at, (_, values)): (usize, &NamedRow)| {
            let mine = values.iter().filter(|(of, _)| *of == part);
            let place = |(_, value): &(usize, f64)| (*value, at as f64 + shift);
            mine.map(place).collect::<Vec<_>>()
        };
        let places = rows.iter().rev().enumerate().flat_map(row).collect();
        series.push(points(name, part + 1, places));
    }
    Figure {
        title: title.to_owned(),
        x,
        y: PlotAxis {
            names: rows.iter().rev().map(|(name, _)| name.clone()).collect(),
            ..PlotAxis::default()
        },
        series,
    }
}
