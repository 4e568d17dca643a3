//! `baro trigger`: fires triggers of running programs, lists them and the newest calls, and
//! declares conditions that fire them.

use std::collections::HashSet;

use anyhow::Context as _;
use barograph_agent::{CALLS_DOCUMENT, HANDLERS_DOCUMENT};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value as Json, json};

use super::call::{Meant, cell, rows};
use super::trigger_declared::Declaring;
use super::{Target, Usage, output};

/// Most calls in a list for people.
const CALLS_SHOWN_MAX: usize = 20;

/// Arguments of `baro trigger`.
#[derive(Args)]
pub struct Trigger {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Fire a trigger: baro trigger fire checkpoint --target application=lulesh --wait 5s
    Fire(Box<Fire>),
    /// List the triggers that running programs handle, and the newest calls
    List {
        #[command(flatten)]
        target: Target,
    },
    #[command(flatten)]
    Declared(Declaring),
}

#[derive(Args)]
struct Fire {
    /// Name of the trigger
    name: String,
    /// Payload of the call
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Type of the payload
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "text",
        requires = "payload"
    )]
    payload_type: PayloadType,
    /// Payload of the call, as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "payload")]
    payload_json: Option<String>,
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, ValueEnum)]
enum PayloadType {
    Text,
    Int,
    Float,
    Bool,
    /// In base64
    Bytes,
    /// As a JSON array
    Floats,
    Json,
}

impl Trigger {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Fire(fire) => fire.run(),
            Verb::List { target } => list(&target),
            Verb::Declared(declared) => declared.run(),
        }
    }
}

impl Fire {
    fn run(&self) -> anyhow::Result<()> {
        let mut body = Map::new();
        body.insert("name".into(), json!(self.name));
        let given = match (&self.payload, &self.payload_json) {
            (Some(text), _) => Some((text, self.payload_type)),
            (None, Some(text)) => Some((text, PayloadType::Json)),
            (None, None) => None,
        };
        if let Some((text, payload_type)) = given {
            let (payload, name) = payload(text, payload_type)?;
            body.insert("payload".into(), payload);
            body.insert("payload_type".into(), json!(name));
        }
        self.meant.call(&self.target, body)
    }
}

fn payload(text: &str, payload_type: PayloadType) -> anyhow::Result<(Json, &'static str)> {
    let parsed = || {
        let parsed: Result<Json, _> = serde_json::from_str(text);
        parsed.map_err(|e| {
            Usage(format!(
                "the payload {text:?} is not what it is said to be: {e}"
            ))
        })
    };
    Ok(match payload_type {
        PayloadType::Text => (json!(text), "text"),
        PayloadType::Bytes => (json!(text), "bytes"),
        PayloadType::Int => (parsed()?, "int"),
        PayloadType::Float => (parsed()?, "float"),
        PayloadType::Bool => (parsed()?, "bool"),
        PayloadType::Floats => (parsed()?, "floats"),
        PayloadType::Json => (parsed()?, "json"),
    })
}

fn list(target: &Target) -> anyhow::Result<()> {
    let handlers = rows(target, HANDLERS_DOCUMENT).context("cannot list triggers")?;
    let calls = rows(target, CALLS_DOCUMENT).context("cannot list calls")?;
    let calls = once(calls);
    if target.json {
        return output::print_json(&json!({ "triggers": handlers, "calls": calls }));
    }
    if handlers.is_empty() {
        output::print("no program that you may see handles triggers now\n")?;
    } else {
        let columns = ["name", "publication", "application", "pid", "user", "help"];
        let rows = handlers
            .iter()
            .map(|row| columns.map(|c| cell(row, c)).to_vec());
        let rows: Vec<Vec<String>> = rows.collect();
        output::print_table(
            &[
                "TRIGGER",
                "PUBLICATION",
                "APPLICATION",
                "PID",
                "USER",
                "WHAT",
            ],
            &[3],
            &rows,
        )?;
    }
    if calls.is_empty() {
        return Ok(());
    }
    output::print("\n")?;
    let columns = [
        "scope",
        "id",
        "kind",
        "name",
        "payload",
        "matched",
        "acknowledged",
        "state",
        "via",
    ];
    let newest = calls.iter().take(CALLS_SHOWN_MAX);
    let rows: Vec<Vec<String>> = newest
        .map(|row| columns.map(|c| cell(row, c)).to_vec())
        .collect();
    output::print_table(
        &[
            "SCOPE", "ID", "KIND", "NAME", "PAYLOAD", "MEANT", "DONE", "STATE", "VIA",
        ],
        &[1, 5, 6],
        &rows,
    )
}

/// Removes duplicates: a call in the scope `all` that is also in its user's scope, where it has
/// more details.
fn once(mut calls: Vec<Json>) -> Vec<Json> {
    let which = |row: &Json| (row["user"].to_string(), row["id"].as_u64());
    let own = calls.iter().filter(|row| row["scope"] != "all");
    let told: HashSet<_> = own.map(which).collect();
    calls.retain(|row| row["scope"] != "all" || !told.contains(&which(row)));
    calls
}
