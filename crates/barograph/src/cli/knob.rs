//! `baro knob`: set and list knobs of running programs.

use barograph_agent::KNOBS_DOCUMENT;
use clap::{Args, Subcommand};
use serde_json::{Map, Value as Json, json};

use super::call::{Meant, cell, rows};
use super::{Target, Usage, output};

/// Arguments of `baro knob`.
#[derive(Args)]
pub struct Knob {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the knobs of running programs, with their bounds and values
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Set a knob: baro knob set lulesh.dt 0.5 --target rank=0
    Set(Box<Set>),
}

#[derive(Args)]
struct Set {
    /// The knob, with its publication
    #[arg(value_name = "PUBLICATION.KNOB")]
    name: String,
    /// A number, true or false
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    meant: Meant,
    #[command(flatten)]
    target: Target,
}

impl Knob {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::List { target } => list(&target),
            Verb::Set(set) => set.run(),
        }
    }
}

impl Set {
    fn run(&self) -> anyhow::Result<()> {
        let value: Json = match serde_json::from_str(&self.value) {
            Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
            _ => {
                let wrong = format!("{:?} is no number, true or false", self.value);
                return Err(Usage(wrong).into());
            }
        };
        let mut body = Map::new();
        body.insert("name".into(), json!(self.name));
        body.insert("knob".into(), json!(true));
        body.insert("payload".into(), value);
        self.meant.call(&self.target, body)
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let knobs = rows(target, KNOBS_DOCUMENT)?;
    if target.json {
        return output::print_json(&Json::from(knobs));
    }
    if knobs.is_empty() {
        return output::print("no program that you may see has knobs now\n");
    }
    let columns = [
        "value",
        "min",
        "max",
        "unit",
        "application",
        "pid",
        "user",
        "help",
    ];
    let row = |knob: &Json| {
        let name = format!("{}.{}", cell(knob, "publication"), cell(knob, "name"));
        let mut row = vec![name];
        row.extend(columns.map(|column| cell(knob, column)));
        row
    };
    let rows: Vec<Vec<String>> = knobs.iter().map(row).collect();
    output::print_table(
        &[
            "KNOB",
            "VALUE",
            "MIN",
            "MAX",
            "UNIT",
            "APPLICATION",
            "PID",
            "USER",
            "WHAT",
        ],
        &[1, 2, 3, 6],
        &rows,
    )
}
