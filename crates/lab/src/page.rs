//! Replays as one HTML file that loads nothing else: tables, and figures as embedded SVG.

use std::fmt::Write;

use crate::plot::{Figure, PlotError};
use crate::suite::{HORIZONS, Score};
use crate::{Row, Table};

/// Most cases on one page; each has two figures of some tens of kilobytes.
pub const CASES_MAX: usize = 100;

/// One case of a page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub name: String,
    /// The outcomes of the policies.
    pub policies: Option<Table>,
    /// The scores of the predictors.
    pub predictors: Option<Vec<Score>>,
    /// The figures below the tables.
    pub figures: Vec<Figure>,
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #8885}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto;background:#fff;border-radius:4px}\
:root{color-scheme:light dark}";

/// Writes the whole file.
pub fn html(title: &str, sections: &[Section]) -> Result<String, PlotError> {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style></head>\n\
         <body><h1>{0}</h1>\n<p>cost: looks per tick. exact, right: share of ticks said to the last bit, and within the bound. \
         ahead: by how much it is right more often than fixed intervals of equal cost. Errors of predictors are by those of \
         persistence, at {1} steps.</p>\n",
        escaped(title),
        HORIZONS.map(|steps| steps.to_string()).join(", ")
    );
    for section in sections {
        let _ = writeln!(text, "<h2>{}</h2>", escaped(&section.name));
        if let Some(table) = &section.policies {
            text.push_str(&policies(table));
        }
        if let Some(scores) = &section.predictors {
            text.push_str(&predictors(scores));
        }
        for figure in &section.figures {
            let _ = writeln!(text, "<p>{}</p>", figure.svg()?);
        }
    }
    text.push_str("</body></html>\n");
    Ok(text)
}

fn policies(table: &Table) -> String {
    let heads = [
        "policy",
        "cost",
        "exact",
        "right",
        "mean error",
        "covers",
        "ahead",
        "ns",
    ];
    let row = |row: &Row| {
        let outcome = &row.outcome;
        let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        vec![
            escaped(&row.policy),
            format!("{:.3}", outcome.cost),
            format!("{:.3}", outcome.exact),
            format!("{:.3}", outcome.right),
            crate::plot::number(outcome.mean_error),
            shown(outcome.coverage),
            row.ahead
                .map_or(String::new(), |ahead| format!("{ahead:+.3}")),
            row.ns_per_tick
                .map_or(String::new(), |ns| format!("{ns:.0}")),
        ]
    };
    grid(&heads.map(str::to_owned), table.rows.iter().map(row))
}

fn predictors(scores: &[Score]) -> String {
    let mut heads = vec!["predictor".to_owned()];
    heads.extend(HORIZONS.map(|steps| format!("error at {steps}")));
    heads.extend(HORIZONS.map(|steps| format!("covers at {steps}")));
    heads.push("ns".to_owned());
    let shown = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let row = |score: &Score| {
        let mut cells = vec![escaped(&score.predictor)];
        cells.extend(score.errors.iter().chain(&score.coverage).map(shown));
        cells.push(format!("{:.0}", score.ns_per_tick));
        cells
    };
    grid(&heads, scores.iter().map(row))
}

fn grid(heads: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("<table><tr><th>{}</th></tr>\n", heads.join("</th><th>"));
    for row in rows {
        let _ = writeln!(text, "<tr><td>{}</td></tr>", row.join("</td><td>"));
    }
    text.push_str("</table>\n");
    text
}

/// Escapes a text for HTML: names of files and columns may contain anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
