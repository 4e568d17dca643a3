//! Figures 8, 9 and 10: the cost of looks and the share of right values.

use super::{Evaluation, against, markdown, median, part_at, shown};
use crate::between::{FillMethod, FillPolicy};
use crate::cases::CaseOrigin;
use crate::figures;
use crate::plot::{Figure, PlotAxis, PlotError};
use crate::record::ReplayTick;
use crate::replay::{BoundedPolicy, Outcome, Policy, replay};
use crate::suite::{Case, policies};
use crate::{Row, Table, renewal_frontier};

/// A policy that is behind by less than this share of ticks counts as even: one tick of a trace is
/// a thousandth.
const EVEN: f64 = 0.0005;
/// The cases of HACC's capacity, generated and recorded.
const HACC: [&str; 7] = [
    "hacc-regular (made)",
    "hacc-irregular (made)",
    "hacc-unaligned (made)",
    "hacc-regular-1s-test available",
    "hacc-irregular-1s-test available",
    "hacc-regular-1s-holdout available",
    "hacc-irregular-1s-holdout available",
];
/// Cases whose tables are shown completely.
const MAIN: [&str; 6] = [
    HACC[0],
    HACC[1],
    HACC[3],
    HACC[4],
    "checkpoint-1s-test available",
    "mixed-1s-test write_bytes",
];
/// Policies in the figures of capacity over time.
const DRAWN: [&str; 4] = [
    "AIMD published",
    "AIMD, Delphi published",
    "AIMD, Delphi repaired",
    "sentinel",
];
/// The fixed intervals of the paper's figures, and 1 s.
const FIXED: [&str; 4] = ["fixed 1", "fixed 2", "fixed 5", "fixed 10"];

pub(super) fn sections(
    evaluation: &mut Evaluation,
    all: &[Case],
    now_ns: &mut dyn FnMut() -> u64,
) -> Result<Vec<Vec<String>>, PlotError> {
    let tables: Vec<Table> = all.iter().map(|case| policies(case, now_ns)).collect();
    for (name, of) in [("regular", HACC[0]), ("irregular", HACC[1])] {
        if let Some(table) = find(&tables, of) {
            evaluation.image(&format!("cost-{name}"), &figures::frontier(table))?;
        }
    }
    evaluation.text("policies.hacc", &hacc(&tables));
    evaluation.text("policies.behind", &behind(&tables));
    let main = MAIN.iter().filter_map(|name| find(&tables, name));
    let main: Vec<String> = main.map(Table::text).collect();
    evaluation.text("policies.main", &main.join("\n"));
    evaluation.text("policies.bound", &bound());
    evaluation.image("ahead", &ahead(&tables))?;
    capacity(evaluation, all)?;
    Ok(summary(&tables))
}

fn find<'a>(tables: &'a [Table], name: &str) -> Option<&'a Table> {
    tables.iter().find(|table| table.trace == name)
}

fn row<'a>(table: &'a Table, policy: &str) -> Option<&'a Row> {
    table.rows.iter().find(|row| row.policy == policy)
}

/// Names of the policies in the order of their first table, without fixed intervals.
fn names(tables: &[Table]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if row.ahead.is_some() && !names.contains(&row.policy.as_str()) {
            names.push(&row.policy);
        }
    }
    names
}

fn hacc(tables: &[Table]) -> String {
    let there: Vec<&Table> = HACC.iter().filter_map(|name| find(tables, name)).collect();
    let heads = there
        .iter()
        .map(|table| table.trace.replace(" available", ""));
    let heads: Vec<String> = ["policy".to_owned()].into_iter().chain(heads).collect();
    let line = |policy: &str| {
        let cell = |table: &&Table| {
            let outcome = row(table, policy).map(|row| &row.outcome);
            outcome.map_or("–".to_owned(), |outcome| {
                format!("{:.3} / {:.3}", outcome.cost, outcome.right)
            })
        };
        let cells = there.iter().map(cell);
        [policy.to_owned()].into_iter().chain(cells).collect()
    };
    let policies = FIXED.into_iter().chain(names(tables));
    markdown(&heads, &policies.map(line).collect::<Vec<_>>())
}

/// The leads of a policy on the cases of one part.
fn leads(tables: &[Table], policy: &str, part: usize) -> Vec<f64> {
    let mine = tables.iter().filter(|table| part_at(&table.trace) == part);
    mine.filter_map(|table| row(table, policy)?.ahead).collect()
}

fn is_behind(ahead: f64) -> bool {
    ahead < -EVEN
}

fn count_behind(leads: &[f64]) -> String {
    let count = leads.iter().filter(|ahead| is_behind(**ahead)).count();
    format!("{count} of {}", leads.len())
}

fn behind(tables: &[Table]) -> String {
    let mut heads = vec!["policy".to_owned()];
    for part in CaseOrigin::ALL {
        heads.push(format!("{}: behind", part.name()));
        heads.push("worst".to_owned());
        heads.push("median".to_owned());
    }
    let line = |policy: &str| {
        let mut cells = vec![policy.to_owned()];
        for part in 0..CaseOrigin::ALL.len() {
            let leads = leads(tables, policy, part);
            let signed =
                |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:+.3}"));
            cells.push(count_behind(&leads));
            cells.push(signed(leads.iter().copied().reduce(f64::min)));
            cells.push(signed(median(&leads)));
        }
        cells
    };
    let rows: Vec<Vec<String>> = names(tables).into_iter().map(line).collect();
    markdown(&heads, &rows)
}

fn ahead(tables: &[Table]) -> Figure {
    let line = |policy: &str| {
        let of_part = |part| {
            leads(tables, policy, part)
                .into_iter()
                .map(move |ahead| (part, ahead))
        };
        (
            policy.to_owned(),
            (0..CaseOrigin::ALL.len()).flat_map(of_part).collect(),
        )
    };
    let rows: Vec<_> = names(tables).into_iter().map(line).collect();
    figures::rows(
        "Right more often than fixed intervals of equal cost, each stream",
        PlotAxis::of("ahead [share of ticks]"),
        ("as fixed intervals", 0.0),
        &rows,
        &CaseOrigin::ALL.map(CaseOrigin::name),
    )
}

/// The bound of looks alone if gaps of 5 to 20 s are equally likely.
fn bound() -> String {
    let gaps: Vec<f64> = (1..=20)
        .map(|gap| if gap >= 5 { 1.0 / 16.0 } else { 0.0 })
        .collect();
    let prices: Vec<f64> = (0..12).map(|step| 0.2 * 1.6_f64.powi(step)).collect();
    let points = renewal_frontier(&gaps, &prices);
    let texts = points
        .iter()
        .map(|point| format!("{:.3}/{:.3}", point.cost, point.accuracy));
    let mut texts: Vec<String> = texts.collect();
    texts.dedup();
    texts.join(", ")
}

/// Figures 9 and 10: two minutes of a capacity, and the cost of half an hour.
fn capacity(evaluation: &mut Evaluation, all: &[Case]) -> Result<(), PlotError> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, of) in [
        ("capacity-irregular", HACC[1]),
        ("capacity-regular", HACC[0]),
    ] {
        let Some(case) = all.iter().find(|case| case.name == of) else {
            continue;
        };
        let mut told: Vec<(&str, Vec<ReplayTick>)> = Vec::new();
        for (policy, mut is) in lookers(case) {
            let outcome = replay(&case.stream(), is.as_mut());
            rows.push(cost(case, policy, &outcome));
        }
        for (policy, mut is) in lookers(case) {
            if DRAWN.contains(&policy) {
                told.push((policy, figures::moments(case, is.as_mut())));
            }
        }
        let told: Vec<(&str, &[ReplayTick])> =
            told.iter().map(|(n, m)| (*n, m.as_slice())).collect();
        let mut figure = figures::said(case, &told, 600..720);
        // Delphi's gain takes its predictions far below the truth; the full range would squeeze the
        // others into one line.
        let moves = figure.series[0].points.iter().map(|(_, y)| *y);
        let low = moves.fold(0.0, f64::min);
        figure.y.range = Some((low * 1.5 - 1.0, -low * 0.5 + 1.0));
        evaluation.image(name, &figure)?;
    }
    let heads = [
        "trace",
        "looks by, and between them",
        "cost",
        "exact",
        "right",
        "mean error [B]",
    ];
    evaluation.text("capacity.table", &markdown(&heads, &rows));
    Ok(())
}

fn cost(case: &Case, policy: &str, outcome: &Outcome) -> Vec<String> {
    vec![
        case.name.clone(),
        policy.to_owned(),
        format!("{:.3}", outcome.cost),
        format!("{:.3}", outcome.exact),
        format!("{:.3}", outcome.right),
        crate::plot::number(outcome.mean_error),
    ]
}

fn lookers(case: &Case) -> Vec<(&'static str, Box<dyn Policy>)> {
    let (config, shape) = (case.config(), Some(case.shape));
    vec![
        (
            "every second",
            Box::new(FillPolicy::fixed(case, 1, FillMethod::Hold)),
        ),
        (
            "AIMD published",
            Box::new(FillPolicy::aimd(case, FillMethod::Hold)),
        ),
        (
            "AIMD, Delphi published, fed back",
            Box::new(FillPolicy::aimd(case, FillMethod::FedBack)),
        ),
        (
            "AIMD, Delphi published",
            Box::new(FillPolicy::aimd(case, FillMethod::Published)),
        ),
        (
            "AIMD, Delphi repaired",
            Box::new(FillPolicy::aimd(case, FillMethod::Repaired)),
        ),
        (
            "AIMD, selector",
            Box::new(FillPolicy::aimd(case, FillMethod::Selector)),
        ),
        (
            "error-bounded, held",
            Box::new(BoundedPolicy::new(config, None)),
        ),
        ("error-bounded", Box::new(BoundedPolicy::new(config, shape))),
        ("sentinel", Box::new(BoundedPolicy::sentinel(config, shape))),
    ]
}

fn summary(tables: &[Table]) -> Vec<Vec<String>> {
    let sentinel = |wanted: &dyn Fn(&str) -> bool| -> Vec<&Outcome> {
        let mine = tables.iter().filter(|table| wanted(&table.trace));
        mine.filter_map(|table| row(table, "sentinel"))
            .map(|row| &row.outcome)
            .collect()
    };
    let line = |figure: &str, outcomes: &[&Outcome]| {
        let cost: Vec<f64> = outcomes.iter().map(|outcome| outcome.cost).collect();
        let right = outcomes
            .iter()
            .map(|outcome| outcome.right)
            .reduce(f64::min);
        let dearest = super::largest(&cost);
        let least = cost.iter().copied().reduce(f64::min);
        let is_met =
            dearest.is_some_and(|cost| cost <= 0.1) && right.is_some_and(|right| right >= 0.99);
        let ours = format!(
            "{} to {} at {} and above",
            shown(least),
            shown(dearest),
            shown(right)
        );
        against(figure, ours, is_met, ".10 at .99")
    };
    let recorded = |name: &str| {
        name.starts_with("hacc") && name.contains("-1s-t") && name.ends_with("available")
    };
    let held_out = |name: &str| name.starts_with("hacc") && name.contains("-1s-holdout available");
    let mut lines = vec![line(
        "sentinel on HACC, made to the paper's text: cost and accuracy",
        &sentinel(&|name| HACC[..3].contains(&name)),
    )];
    for (figure, outcomes) in [
        ("sentinel on HACC as recorded at 1 s", sentinel(&recorded)),
        ("the same, hold-out", sentinel(&held_out)),
    ] {
        if !outcomes.is_empty() {
            lines.push(line(figure, &outcomes));
        }
    }
    for policy in ["error-bounded", "sentinel"] {
        let parts = CaseOrigin::ALL.map(|part| (part, leads(tables, policy, part as usize)));
        let there = parts.iter().filter(|(_, leads)| !leads.is_empty());
        let ours = there.map(|(part, leads)| format!("{} {}", part.name(), count_behind(leads)));
        let is_met = parts
            .iter()
            .all(|(_, leads)| !leads.iter().any(|ahead| is_behind(*ahead)));
        lines.push(against(
            &format!("{policy}: traces on which it is behind fixed intervals of equal cost"),
            ours.collect::<Vec<_>>().join(", "),
            is_met,
            "none",
        ));
    }
    lines
}
