//! `baro forecast reach`: predicts when streams reach a level, by SQL's `time_to`.

use std::collections::BTreeMap;

use anyhow::Context as _;
use barograph_model::{Labels, Level, SqlLimits};
use clap::Args;
use serde_json::Value as Json;

use super::StreamChoice;
use crate::cli::documents::labels_of;
use crate::cli::{Usage, format, output};

/// Arguments of `baro forecast reach`.
#[derive(Args)]
pub(super) struct Reach {
    #[command(flatten)]
    which: StreamChoice,
    /// Level to be reached: 10GiB, 0.5, or 90% (of a capacity: how full it is) [default: 0 of what
    /// is available or free]
    #[arg(long, allow_hyphen_values = true)]
    level: Option<String>,
}

impl Reach {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let level = match &self.level {
            Some(level) => {
                Level::parse(level).map_err(|e| Usage(e.to_string()))?;
                quoted(level)
            }
            None => "NULL".into(),
        };
        let selector = self.which.selector()?;
        let observer = self.which.target.observer()?;
        let pattern = quoted(&self.which.name);
        let sql = format!("SELECT * FROM time_to({pattern}, {level}) ORDER BY stream, labels");
        let answer = observer.sql(&sql, &SqlLimits::default())?;
        let all: Vec<Json> =
            serde_json::from_slice(&answer.to_json_rows()).context("rows are no JSON")?;
        let is_meant = |row: &Json| {
            let name = row["stream"].as_str().unwrap_or_default();
            selector.matches(name, &labels(row))
        };
        let rows: Vec<Json> = all.into_iter().map(with_labels).filter(is_meant).collect();
        if rows.is_empty() {
            if observer.streams(&selector).is_empty() {
                return Err(observer.unknown(&selector).into());
            }
            anyhow::bail!(
                "{selector} is not forecast: only streams that forecast.streams names are"
            );
        }
        if self.which.target.json {
            return output::print_json(&Json::from(rows));
        }
        let lines: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::print_table(&["STREAM", "NOW", "LEVEL", "REACHED"], &[1, 2], &lines)
    }
}

/// Quotes a text for SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Replaces the labels of a row by an object; in SQL they are a text.
fn with_labels(mut row: Json) -> Json {
    let text = row["labels"].as_str().unwrap_or_default();
    if let Ok(labels) = serde_json::from_str(text) {
        row["labels"] = labels;
    }
    row
}

fn cells(row: &Json) -> Vec<String> {
    let (name, unit) = (text(row, "stream"), text(row, "unit"));
    let number = |key: &str| match row[key].as_f64() {
        Some(number) => format::number(number, unit),
        None => "-".into(),
    };
    vec![
        format!("{name}{}", labels(row)),
        number("value"),
        number("level"),
        said(name, row),
    ]
}

fn labels(row: &Json) -> Labels {
    let pairs: Option<BTreeMap<_, _>> = serde_json::from_value(row["labels"].clone()).ok();
    labels_of(pairs.iter().flatten())
}

fn text<'a>(row: &'a Json, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// The predicted time of a row, in words.
fn said(name: &str, row: &Json) -> String {
    let span = |key: &str| row[key].as_i64().map(format::span);
    let Some(level) = row["level"].as_f64() else {
        return "at what? give it with --level".into();
    };
    let (early, late) = (span("reach_early_ns"), span("reach_late_ns"));
    let Some(reach) = span("reach_ns") else {
        return match (span("horizon_ns"), early) {
            (None, _) => "not known yet".into(),
            (Some(horizon), Some(early)) => {
                format!("not expected within {horizon}, in {early} at the earliest")
            }
            (Some(horizon), None) => format!("not within {horizon}, later is not known"),
        };
    };
    if row["reach_ns"] == 0 {
        return "now".into();
    }
    let is_full = level == 0.0 && Level::of_exhaustion(name).is_some();
    let fills = if is_full { "fills in" } else { "in" };
    match (early, late) {
        (Some(early), Some(late)) => format!("{fills} {reach}, {early} to {late}"),
        (Some(early), None) => format!("{fills} {reach}, {early} at the earliest"),
        (None, Some(late)) => format!("{fills} {reach}, {late} at the latest"),
        (None, None) => format!("{fills} {reach} if it goes on so, not calibrated yet"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn when_is_said_in_words() {
        let (s, min) = (1_000_000_000_i64, 60_000_000_000_i64);
        let row = |reach: Option<i64>, early: Option<i64>, late: Option<i64>| {
            json!({"level": 0.0, "reach_ns": reach, "reach_early_ns": early, "reach_late_ns": late,
                "horizon_ns": 2880 * min})
        };
        let check = |name: &str, row: &Json, expect: &str| assert_eq!(said(name, row), expect);
        let free = "filesystem.available.bytes";
        let known = row(Some(200 * min), Some(175 * min), Some(240 * min));
        check(free, &known, "fills in 3 h 20 min, 2 h 55 min to 4 h");
        check(
            "disk.busy.ratio",
            &known,
            "in 3 h 20 min, 2 h 55 min to 4 h",
        );
        let none = row(None, None, None);
        check(free, &none, "not within 2 d, later is not known");
        let young = json!({"level": 0.0, "reach_ns": null, "horizon_ns": null});
        check(free, &young, "not known yet");
        let early = "not expected within 2 d, in 40 s at the earliest";
        check(free, &row(None, Some(40 * s), None), early);
        check(free, &row(Some(0), Some(0), None), "now");
        let unknown = "fills in 1 min if it goes on so, not calibrated yet";
        check(free, &row(Some(min), None, None), unknown);
        let early = "fills in 2 min, 1 min at the earliest";
        check(free, &row(Some(2 * min), Some(min), None), early);
        check(
            free,
            &json!({"level": null}),
            "at what? give it with --level",
        );
    }
}
