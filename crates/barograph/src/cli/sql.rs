//! `baro sql`: one read-only statement, run in this process over shared memory.

use std::io::{Read as _, Write as _};

use barograph_client::{AgentSocket, Cell, Rows};
use barograph_model::{BigIntegers, SqlLimits};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{Target, format, http, output, statement};

/// Form of the printed answer.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Aligned columns
    Table,
    /// A JSON list of row objects
    Json,
    /// Comma-separated values with a heading; on a terminal without the letters that it would obey
    Csv,
    /// An Arrow IPC stream
    Arrow,
}

/// Form of integers beyond 2^53 in JSON.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Integers {
    /// As numbers; readers that take them as floats, such as JavaScript and jq, round them
    Number,
    /// As texts with all digits
    Text,
}

/// Arguments of `baro sql`.
#[derive(Args)]
pub(super) struct Sql {
    /// The statement; `-` reads it from standard input
    #[arg(allow_hyphen_values = true, value_parser = statement::text)]
    statement: String,
    /// Form of the answer
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// Form of integers beyond 2^53 in JSON
    #[arg(long, value_enum, default_value = "number")]
    big_integers: Integers,
    /// Most seconds it may take
    #[arg(long, default_value_t = 60.0)]
    seconds_max: f64,
    /// Most rows in the answer
    #[arg(long, default_value_t = 1_000_000)]
    rows_max: usize,
    /// Run it on nodes of the cluster, where the data is: on these (NAME,NAME), or on all. The rows
    /// of each node come together, with its name in the first column
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["seconds_max", "rows_max", "big_integers"])]
    nodes: Option<String>,
    /// With --nodes: one answer over all of them, as if their rows were in one table. Each node
    /// aggregates, orders and cuts its own rows first
    #[arg(long, requires = "nodes")]
    combine: bool,
    #[command(flatten)]
    target: Target,
}

impl Sql {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut statement = self.statement;
        if statement == "-" {
            statement.clear();
            std::io::stdin().read_to_string(&mut statement)?;
        }
        if !(self.seconds_max > 0.0 && self.seconds_max <= 1e6) {
            return Err(
                super::Usage("--seconds-max must be more than 0, at most 1000000".into()).into(),
            );
        }
        if let Some(nodes) = &self.nodes {
            let is_json = self.target.json || self.format == Form::Json;
            if !is_json && self.format != Form::Table {
                let text = "--nodes gives a table or JSON";
                return Err(super::Usage(text.into()).into());
            }
            let way = (nodes.as_str(), self.combine);
            return on_nodes(&self.target, way, &statement, is_json);
        }
        let observer = self.target.observer()?;
        let limits = SqlLimits {
            time_ns_max: (self.seconds_max * 1e9) as i64,
            rows_max: self.rows_max,
            ..SqlLimits::default()
        };
        let rows = observer.sql(&statement, &limits)?;
        match if self.target.json {
            Form::Json
        } else {
            self.format
        } {
            Form::Json => {
                let big = match self.big_integers {
                    Integers::Number => BigIntegers::Number,
                    Integers::Text => BigIntegers::Text,
                };
                let json = rows.to_json_rows_with(big);
                output::print_json_text(&String::from_utf8_lossy(&json))
            }
            Form::Arrow if output::is_terminal() => {
                let message = "arrow is for programs: send it to a file or a pipe";
                Err(super::Usage(message.into()).into())
            }
            Form::Arrow => for_programs(&rows.to_arrow_ipc()?),
            Form::Csv => for_programs(csv(&rows).as_bytes()),
            Form::Table => {
                let names = rows.unique_names();
                let headings: Vec<&str> = names.iter().map(String::as_str).collect();
                output::print_table(&headings, &number_columns(&rows), &texts(&rows))
            }
        }
    }
}

/// The answer of the agent to a statement on nodes.
#[derive(Deserialize)]
struct NodeRows {
    columns: Vec<String>,
    rows: Vec<Vec<Json>>,
    nodes: Vec<NodeState>,
}

/// The result on one node.
#[derive(Deserialize)]
struct NodeState {
    node: String,
    state: String,
    reason: Option<String>,
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    elapsed_ns: i64,
}

/// Most nodes with rows that are named on standard error.
const ANSWERED_NAMED_MAX: usize = 16;

/// Runs a statement on nodes of the cluster. What has come of each is told on standard error.
fn on_nodes(
    target: &Target,
    (nodes, is_combined): (&str, bool),
    sql: &str,
    is_json: bool,
) -> anyhow::Result<()> {
    let names = super::node::names(nodes)?;
    let path = names.map_or_else(String::new, |names| format!("&nodes={}", names.join(",")));
    let path = format!("/api/v1/nodes/sql?combine={is_combined}{path}");
    let body = serde_json::json!({ "sql": sql });
    let run_dir = target.run_dir();
    let answer = http::post(
        &run_dir,
        AgentSocket::Read,
        &path,
        &body,
        super::node::ANSWER_WAIT,
    )?;
    if is_json {
        return output::print_json(&answer);
    }
    let NodeRows {
        columns,
        rows,
        nodes,
    } = serde_json::from_value(answer)?;
    let headings: Vec<&str> = columns.iter().map(String::as_str).collect();
    let is_number = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let mut cells = cells.into_iter();
        (is_combined || column > 0) && cells.all(|cell| cell.is_number() || cell.is_null())
    };
    let right: Vec<usize> = (0..columns.len())
        .filter(|&column| is_number(column))
        .collect();
    let text = |cell: &Json| match cell {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(text).collect())
        .collect();
    output::print_table(&headings, &right, &texts)?;
    tell_of(&nodes);
    Ok(())
}

/// Names the nodes that have answered, and those that have not with the reasons.
fn tell_of(nodes: &[NodeState]) {
    let (answered, others): (Vec<&NodeState>, Vec<_>) =
        nodes.iter().partition(|node| node.state == "answered");
    let named = answered.iter().take(ANSWERED_NAMED_MAX).map(|node| {
        let took = format::age(node.elapsed_ns);
        let rows = if node.rows == 1 { "row" } else { "rows" };
        format!(
            "{} ({} {rows}, {took})",
            output::plain(&node.node),
            node.rows
        )
    });
    let mut named = named.collect::<Vec<_>>().join(", ");
    if answered.len() > ANSWERED_NAMED_MAX {
        named += &format!(" and {} more", answered.len() - ANSWERED_NAMED_MAX);
    }
    if !answered.is_empty() {
        output::tell(&format!("rows of {named}\n"));
    }
    for node in others {
        let reason = node.reason.as_deref().unwrap_or_default();
        let words = [&node.node, &node.state, reason].map(output::plain);
        output::tell(&format!("no rows of {}\n", words.join(": ")));
    }
}

fn for_programs(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = output::for_programs();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// All fields as text, row by row.
pub(super) fn texts(rows: &Rows) -> Vec<Vec<String>> {
    let columns = rows.columns().len();
    let text = |row, column| rows.get(row, column).map_or_else(String::new, cell_text);
    (0..rows.len())
        .map(|row| (0..columns).map(|column| text(row, column)).collect())
        .collect()
}

fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Int(v) => v.to_string(),
        Cell::Real(v) => v.to_string(),
        Cell::Text(v) => v.to_string(),
        Cell::Blob(v) => format!("{} bytes", v.len()),
    }
}

/// The columns that contain only numbers.
fn number_columns(rows: &Rows) -> Vec<usize> {
    let is_number = |cell: &Cell| matches!(cell, Cell::Int(_) | Cell::Real(_) | Cell::Null);
    (0..rows.columns().len())
        .filter(|&i| rows.column(i).iter().all(is_number))
        .collect()
}

/// Formats rows as CSV (RFC 4180).
fn csv(rows: &Rows) -> String {
    let quote = |cell: &String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    let line = |cells: &[String]| cells.iter().map(quote).collect::<Vec<_>>().join(",") + "\r\n";
    let body: String = texts(rows).iter().map(|row| line(row)).collect();
    line(&rows.unique_names()) + &body
}
