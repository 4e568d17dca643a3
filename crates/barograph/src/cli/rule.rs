//! `baro rule`: make, drop, list, explain the conditions that the agent watches and the calls that
//! they make. Making and dropping need the control right.

use anyhow::Context as _;
use barograph_agent::RULES_DOCUMENT;
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::call::cell;
use super::statement::{carry_out, done, drop_of};
use super::{Target, output, statement};

/// The path to which statements go.
const STATEMENTS: &str = "/api/v1/rules";

/// Arguments of `baro rule`.
#[derive(Args)]
pub(super) struct Rule {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a rule: baro rule create "CREATE RULE calm WHEN max_over('disk.busy.ratio', '10 s') > 0.9 CALL 'slow.down' COOLDOWN '1 min'"
    Create(MakeRule),
    /// Drop a rule, by name or with a DROP RULE statement
    Drop(DropRule),
    /// List the rules, and how they are
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Show a rule's SQL, its state and how often it fired
    Explain {
        /// Name
        name: String,
        #[command(flatten)]
        target: Target,
    },
}

/// A rule that is to be made.
#[derive(Args)]
pub(super) struct MakeRule {
    /// The statement
    #[arg(allow_hyphen_values = true, value_parser = statement::text)]
    statement: String,
    #[command(flatten)]
    target: Target,
}

/// A rule that is to be dropped.
#[derive(Args)]
pub(super) struct DropRule {
    /// Name or statement
    #[arg(allow_hyphen_values = true, value_parser = statement::text)]
    name: String,
    #[command(flatten)]
    target: Target,
}

impl Rule {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Create(make) => make.run(),
            Verb::Drop(drop) => drop.run(),
            Verb::List { target } => list(&target),
            Verb::Explain { name, target } => explain(&target, &name),
        }
    }
}

impl MakeRule {
    /// Has the agent make the rule.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let made = carry_out(&self.target, STATEMENTS, &self.statement)?;
        let name = made["name"].as_str().unwrap_or_default();
        done(&self.target, &made, &format!("created {name}"))
    }
}

impl DropRule {
    /// Has the agent drop the rule.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let dropped = carry_out(&self.target, STATEMENTS, &drop_of("RULE", &self.name))?;
        let words = format!("dropped {}", self.name.trim());
        done(&self.target, &dropped, &words)
    }
}

fn rules(target: &Target) -> anyhow::Result<Vec<Json>> {
    let Some(bytes) = target.run_dir().document(RULES_DOCUMENT)? else {
        return Ok(Vec::new());
    };
    serde_json::from_slice(&bytes).context("the agent's rules.json is damaged")
}

/// Lists the rules.
pub(super) fn list(target: &Target) -> anyhow::Result<()> {
    let rules = rules(target)?;
    if target.json {
        return output::print_json(&Json::from(rules));
    }
    let row = |rule: &Json| {
        let what = match cell(rule, "reason") {
            reason if reason.is_empty() => cell(rule, "help"),
            reason => reason,
        };
        let columns = ["name", "state", "subjects", "holding", "fired", "call"];
        let mut row: Vec<String> = columns.iter().map(|key| cell(rule, key)).collect();
        row.push(what);
        row
    };
    let rows: Vec<Vec<String>> = rules.iter().map(row).collect();
    output::print_table(
        &[
            "RULE", "STATE", "SUBJECTS", "HOLDING", "FIRED", "CALL", "WHAT",
        ],
        &[2, 3, 4],
        &rows,
    )
}

fn explain(target: &Target, name: &str) -> anyhow::Result<()> {
    let all = rules(target)?;
    let Some(rule) = all.iter().find(|rule| rule["name"] == name) else {
        let names: Vec<String> = all.iter().map(|rule| cell(rule, "name")).collect();
        match names.is_empty() {
            true => anyhow::bail!("no rule is called {name}: there is none"),
            false => anyhow::bail!("no rule is called {name}: there are {}", names.join(", ")),
        }
    };
    if target.json {
        return output::print_json(rule);
    }
    let text = |key| cell(rule, key);
    output::print(&format!(
        "{}\n{}\n\n{}\n\ncalls        {}\nsubjects     {}, of which {} hold\n\
         fired        {}, suppressed {}, failed {}\nevaluations  {}\nstate        {} {}\n",
        text("name"),
        text("help"),
        rule["sql"].as_str().unwrap_or_default(),
        text("call"),
        text("subjects"),
        text("holding"),
        text("fired"),
        text("suppressed"),
        text("failed"),
        text("evaluations"),
        text("state"),
        text("reason"),
    ))
}
