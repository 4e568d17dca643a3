//! `baro action`: the actions of rules on file events: what was done, what waits, and what has
//! failed. Showing, retrying and dropping one needs the control right.

use barograph_client::{AgentSocket, Cell, Rows};
use barograph_model::{NS_PER_S, SqlLimits};
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::event::quoted;
use super::{Target, format, http, output};

/// The path to which requests go.
const ACTIONS: &str = "/api/v1/actions";
/// States of actions, as the table `actions` has them.
const STATES: [&str; 5] = ["waiting", "running", "done", "dead", "dropped"];

/// Arguments of `baro action`.
#[derive(Args)]
pub(super) struct Action {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List actions, the newest first: what they are for, and what became of them
    #[command(visible_alias = "ls")]
    List(List),
    /// Show all of one action: its event, its program, and the end of its output
    Show(One),
    /// Start a failed action anew, or one that waits at once
    Retry(Several),
    /// Give up a failed action, or one that waits
    Drop(Several),
}

#[derive(Args)]
struct List {
    /// Only actions in this state
    #[arg(long, value_parser = STATES)]
    state: Option<String>,
    /// Only actions of this rule
    #[arg(long)]
    rule: Option<String>,
    /// Most actions
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct One {
    /// Number of the action, as `baro action list` has it
    id: u64,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct Several {
    /// Numbers of actions, as `baro action list` has them
    #[arg(required = true)]
    id: Vec<u64>,
    #[command(flatten)]
    target: Target,
}

impl Action {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::List(list) => list.run(),
            Verb::Show(one) => one.run(),
            Verb::Retry(some) => some.run("retry", "starts anew"),
            Verb::Drop(some) => some.run("drop", "dropped"),
        }
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let columns = "id, rule, state, source, idx, attempts, attempts_max, \
                       now_ns() - coalesce(ended_ts, started_ts, enqueued_ts) AS since_ns, \
                       due_ts - now_ns() AS due_ns, reason";
        let columns = match self.target.json {
            true => "*",
            false => columns,
        };
        let wanted = [("state", &self.state), ("rule", &self.rule)];
        let wanted = wanted.into_iter().filter_map(|(column, value)| {
            let value = value.as_ref()?;
            Some(format!("{column} = '{}'", quoted(value)))
        });
        let wanted: Vec<String> = wanted.chain(["1".to_owned()]).collect();
        let sql = format!(
            "SELECT {columns} FROM actions WHERE {} ORDER BY id DESC LIMIT {}",
            wanted.join(" AND "),
            self.limit
        );
        let rows = self.target.observer()?.sql(&sql, &SqlLimits::default())?;
        if self.target.json {
            return output::print_json_text(&String::from_utf8_lossy(&rows.to_json_rows()));
        }
        if rows.is_empty() {
            return output::print(
                "there is no such action: a rule like CREATE RULE … ON EVENT … THEN RUN … makes them\n",
            );
        }
        let headings = [
            "ID", "RULE", "STATE", "SOURCE", "EVENT", "ATTEMPTS", "SINCE", "DUE IN", "REASON",
        ];
        let rows: Vec<Vec<String>> = (0..rows.len()).map(|row| line(&rows, row)).collect();
        output::print_table(&headings, &[0, 4, 5, 6, 7], &rows)
    }
}

fn line(rows: &Rows, row: usize) -> Vec<String> {
    let cell = |at: usize| match rows.get(row, at) {
        Some(Cell::Text(text)) => text.to_string(),
        Some(Cell::Int(number)) => number.to_string(),
        _ => String::new(),
    };
    let span = |at: usize| match rows.get(row, at) {
        Some(Cell::Int(ns)) => format::span((*ns).max(0)),
        _ => String::new(),
    };
    vec![
        cell(0),
        cell(1),
        cell(2),
        cell(3),
        cell(4),
        format!("{} of {}", cell(5), cell(6)),
        span(7),
        span(8),
        cell(9),
    ]
}

fn ask(target: &Target, verb: &str, id: u64) -> anyhow::Result<Json> {
    http::post(
        &target.run_dir(),
        AgentSocket::Control,
        ACTIONS,
        &json!({ verb: id }),
        http::ANSWER_WAIT,
    )
}

impl One {
    fn run(self) -> anyhow::Result<()> {
        let action = ask(&self.target, "show", self.id)?;
        if self.target.json {
            return output::print_json(&action);
        }
        let text = |key: &str| match &action[key] {
            Json::String(text) => output::plain(text).into_owned(),
            Json::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let time = |key: &str| match action[key].as_i64() {
            Some(ns) => jiff::Timestamp::from_nanosecond(ns.into())
                .map_or_else(|_| ns.to_string(), |time| format!("{time:.3}")),
            None => "-".to_owned(),
        };
        let words = action["argv"].as_array().into_iter().flatten();
        let words: Vec<String> = words
            .filter_map(Json::as_str)
            .map(|word| format!("'{}'", output::plain(word).replace('\'', "'\\''")))
            .collect();
        let limit = match action["time_ns_max"].as_i64() {
            Some(ns) => format!(", at most {} s", ns / NS_PER_S),
            None => String::new(),
        };
        let place = match &action["node"] {
            Json::String(node) => format!(" on node {}", output::plain(node)),
            _ => String::new(),
        };
        output::print(&format!(
            "action     {} of rule {}: {}\nkey        {}\nevent      {} {} at {}, {} of {}\n\
             does       {}{place}\ndelivery   {}{limit}\nattempts   {} of {}\n\
             asked for  {}\nstarted    {}\ndue        {}\nended      {}\nreason     {}\n\n{}\n",
            text("id"),
            text("rule"),
            text("state"),
            text("key"),
            text("kind"),
            text("path"),
            time("event_ts"),
            text("idx"),
            text("source"),
            words.join(" "),
            text("delivery"),
            text("attempts"),
            text("attempts_max"),
            time("enqueued_ts"),
            time("started_ts"),
            time("due_ts"),
            time("ended_ts"),
            text("reason"),
            action["output"].as_str().unwrap_or_default().trim_end(),
        ))
    }
}

impl Several {
    fn run(self, verb: &str, done: &str) -> anyhow::Result<()> {
        let mut answers = Vec::new();
        for id in &self.id {
            let answer = ask(&self.target, verb, *id)?;
            if !self.target.json {
                output::print(&format!("action {id} {done}\n"))?;
            }
            answers.push(answer);
        }
        match self.target.json {
            true => output::print_json(&answers),
            false => Ok(()),
        }
    }
}
