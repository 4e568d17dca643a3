//! `baro control explain`: a decision in sentences, live or archived, or what a controller would do
//! now and why.

use anyhow::Context as _;
use barograph_agent::DecisionsRow;
use barograph_client::{Cell, Rows, SystemClock};
use barograph_model::{Clock as _, SqlLimits};
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::super::output::plain;
use super::super::{Target, format, output};
use super::{EXPLAIN, ask, list, rows};

/// Arguments of `baro control explain`.
#[derive(Args)]
pub(super) struct Explain {
    /// Number of a decision, as `baro control decisions` has it, or name of a controller, as `baro
    /// control list` has it
    #[arg(value_name = "ID|CONTROLLER")]
    what: String,
    #[command(flatten)]
    target: Target,
}

impl Explain {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what.parse::<u64>() {
            Ok(id) => self.decision(id),
            Err(_) => self.controller(),
        }
    }

    fn decision(&self, id: u64) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        let rows = match ask(&run_dir, EXPLAIN, &json!({ "id": id })) {
            Ok(answer) => rows(&answer)?,
            // It may be one of an earlier agent, or older than those that are kept in memory.
            Err(error) => {
                let archived = self.archived(id).ok().flatten();
                vec![archived.ok_or(error)?]
            }
        };
        if self.target.json {
            return output::print_json(&rows);
        }
        let now_ns = SystemClock::new().now_ns();
        let pages: Vec<String> = rows.iter().map(|row| page(row, now_ns)).collect();
        output::print(&pages.join("\n"))
    }

    /// The decision as the archive has it; `None` if it does not, or this user may not read it.
    fn archived(&self, id: u64) -> anyhow::Result<Option<DecisionsRow>> {
        let sql = format!("SELECT * FROM decisions WHERE id = {id}");
        let found = self.target.observer()?.sql(&sql, &SqlLimits::default());
        let found = found.context("cannot read the archived decisions")?;
        (!found.is_empty()).then(|| row_of(&found, 0)).transpose()
    }

    fn controller(&self) -> anyhow::Result<()> {
        let answer = ask(
            &self.target.run_dir(),
            EXPLAIN,
            &json!({ "controller": self.what }),
        )?;
        if self.target.json {
            return output::print_json(&answer);
        }
        let row = list::row(&answer["controller"])?;
        let now_ns = SystemClock::new().now_ns();
        let told = answer["explanation"].as_array().cloned();
        let told = told.unwrap_or_default().into_iter();
        let lines: Vec<String> = told
            .map(|line| format!("  {}\n", plain(line.as_str().unwrap_or_default())))
            .collect();
        output::print(&format!(
            "{} decides {} ({}): {}\n{}",
            plain(&row.name),
            plain(&row.about),
            plain(&row.level),
            list::mode(&row, now_ns),
            lines.concat()
        ))
    }
}

/// The row of a table of SQL, in which lists are texts.
fn row_of(rows: &Rows, at: usize) -> anyhow::Result<DecisionsRow> {
    let mut object = Map::new();
    for (column, known) in rows.columns().iter().enumerate() {
        let value = match rows.get(at, column) {
            Some(Cell::Int(value)) => json!(value),
            Some(Cell::Real(value)) => json!(value),
            Some(Cell::Text(text)) => match &*known.name {
                "inputs" | "alternatives" | "limits" | "effect" => {
                    serde_json::from_str(text).unwrap_or(Json::Null)
                }
                _ => json!(&**text),
            },
            _ => Json::Null,
        };
        object.insert(known.name.to_string(), value);
    }
    let row = serde_json::from_value(Json::Object(object));
    row.context("the archived decision is of another version")
}

/// What a decision decides.
fn what(row: &DecisionsRow) -> String {
    let (label, subject) = (plain(&row.label), plain(&row.subject));
    match &*row.controller {
        controller if row.subject == "mode" => {
            let mode = value(&row.value).replace('_', " ");
            format!("{} is {mode} from then on", plain(controller))
        }
        "augmentation" => format!("reads {} buckets of {label:?}", value(&row.value)),
        "weight" => format!(
            "sets the I/O weight of control group {subject} to {}",
            value(&row.value)
        ),
        other if other.starts_with("io-schedule/") => match row.value.as_f64() {
            Some(share) if share > 0.0 => format!(
                "{subject} may do I/O, with {} of the volume",
                format::number(share, "ratio")
            ),
            _ => format!("{subject} waits"),
        },
        other => format!("{}: {}", plain(other), value(&row.value)),
    }
}

/// A decision in sentences.
fn page(row: &DecisionsRow, now_ns: i64) -> String {
    let age = format::age(now_ns.saturating_sub(row.made_ts));
    let (user, device) = (plain(&row.user), plain(&row.device));
    let what = what(row);
    let on = match &*device {
        "" => String::new(),
        device => format!(" on {device}"),
    };
    let of = match &*user {
        "" => String::new(),
        user => format!(" for user {user}"),
    };
    let mut page = format!(
        "decision {}{on}{of}, {age} ago: {what}\n  why      {}\n",
        row.id,
        plain(&row.reason)
    );
    let mut line = |head: &str, text: String| page += &format!("  {head:<8} {text}\n");
    let inputs = row.inputs.iter();
    let inputs: Vec<String> = inputs
        .map(|(name, it)| format!("{} = {}", plain(name), value(it)))
        .collect();
    if !inputs.is_empty() {
        line("inputs", inputs.join(", "));
    }
    for alternative in &row.alternatives {
        let text = |name: &str| plain(alternative[name].as_str().unwrap_or_default()).into_owned();
        line(
            "instead",
            format!("{} (not chosen: {})", text("what"), text("why_not")),
        );
    }
    for limit in &row.limits {
        line(
            "limit",
            format!(
                "{} made {} of {}",
                value(&limit["limit"]),
                value(&limit["after"]),
                value(&limit["before"])
            ),
        );
    }
    let outcome = match &*row.outcome {
        "proposed" => "the program was told; it has not reported yet",
        "dry_run" => "nothing was done: a dry run",
        "done" => "it was carried out",
        "deferred" => "it was put off",
        "failed" => "it could not be carried out",
        "reverted" => "it was carried out and taken back",
        other => other,
    };
    let reason = match &*row.outcome_reason {
        "" => String::new(),
        reason => format!(": {}", plain(reason)),
    };
    line("outcome", format!("{}{reason}", plain(outcome)));
    if let Some(effect) = effect(row) {
        line("effect", effect);
    }
    if row.dropped > 0 {
        line("left out", format!("{} more", row.dropped));
    }
    page
}

/// What was observed after a decision; `None` if nothing was.
pub(super) fn effect(row: &DecisionsRow) -> Option<String> {
    let effect: &Map<String, Json> = row.effect.as_ref()?.as_object()?;
    let measure = effect.get("measure").and_then(Json::as_str).unwrap_or("");
    let is_time = measure.starts_with("seconds");
    let are_operations = measure.starts_with("operations");
    let number = |name: &str| match effect.get(name).and_then(Json::as_f64) {
        Some(seconds) if is_time => format!("{seconds:.1} s"),
        Some(rate) if are_operations => format!("{rate:.1} operations/s"),
        Some(rate) => format::number(rate, "bytes/s"),
        None => "nothing".to_owned(),
    };
    let (before, after) = (number("before"), number("after"));
    Some(match (&*row.controller, is_time) {
        (_, true) => format!("expected {before}, observed {after}"),
        _ if are_operations => format!("{before} before, {after} without the server"),
        ("weight", _) => format!("{before} without, {after} with it"),
        _ => format!("predicted {before}, reported {after}"),
    })
}

pub(super) fn value(value: &Json) -> String {
    match value {
        Json::String(text) => plain(text).into_owned(),
        // Whole numbers without a point: numbers of buckets and bytes.
        Json::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |it| it.to_string()),
        other => other.to_string(),
    }
}
