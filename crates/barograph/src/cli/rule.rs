//! `baro rule`: make, drop, list and explain the conditions that the agent watches and the calls
//! that they make, and try rules on file events. Making and dropping need the control right.

mod trial;

use barograph_agent::{RULES_DOCUMENT, RulesRow};
use clap::{Args, Subcommand};

use super::documents::{DocumentRow, document};
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
    /// Make a rule: baro rule create "CREATE RULE calm WHEN max_over('disk.busy.ratio', '10 s') >
    /// 0.9 CALL 'slow.down' COOLDOWN '1 min'"
    Create(MakeRule),
    /// Drop a rule, by name or with a DROP RULE statement
    Drop(DropRule),
    /// List the rules, and how they are
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Show a rule's SQL, its state and how often it fired; of a rule on file events, also why it
    /// fires for one event or not
    Explain {
        /// Name
        name: String,
        /// An event that is recorded, as SOURCE:IDX: `baro sql "SELECT source, idx, path FROM
        /// events"`
        #[arg(long, value_name = "SOURCE:IDX")]
        event: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Show what a rule on file events would have run, on the events that are recorded; nothing is
    /// run
    DryRun(trial::DryRun),
    /// Check a statement without an agent: its words, its templates, and, with a configuration,
    /// whether it may do what it does
    Check(trial::Check),
    /// Test rules on file events: a Markdown file has rules in blocks of SQL, and below each tables
    /// of events for which it fires or not
    Test(trial::Test),
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
            Verb::Explain {
                name,
                event: Some(event),
                target,
            } => trial::explain_event(&target, &name, &event),
            Verb::Explain { name, target, .. } => explain(&target, &name),
            Verb::DryRun(dry_run) => dry_run.run(),
            Verb::Check(check) => check.run(),
            Verb::Test(test) => test.run(),
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

fn rules(target: &Target) -> anyhow::Result<Vec<DocumentRow<RulesRow>>> {
    Ok(document(&target.run_dir(), RULES_DOCUMENT)?.unwrap_or_default())
}

/// Lists the rules.
pub(super) fn list(target: &Target) -> anyhow::Result<()> {
    let rules = rules(target)?;
    if target.json {
        return output::print_json(&rules);
    }
    let row = |rule: &DocumentRow<RulesRow>| {
        let what = match rule.reason.as_str() {
            "" => &rule.help,
            _ => &rule.reason,
        };
        vec![
            rule.name.clone(),
            rule.state.clone(),
            rule.subjects.to_string(),
            rule.holding.to_string(),
            rule.fired.to_string(),
            rule.call.clone(),
            what.clone(),
        ]
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

/// The rule of this name.
fn one(target: &Target, name: &str) -> anyhow::Result<DocumentRow<RulesRow>> {
    let mut all = rules(target)?;
    if let Some(at) = all.iter().position(|rule| rule.name == name) {
        return Ok(all.swap_remove(at));
    }
    let names: Vec<String> = all
        .iter()
        .map(|rule| output::plain(&rule.name).into())
        .collect();
    match names.is_empty() {
        true => anyhow::bail!("no rule is called {name}: there is none"),
        false => anyhow::bail!("no rule is called {name}: there are {}", names.join(", ")),
    }
}

fn explain(target: &Target, name: &str) -> anyhow::Result<()> {
    let rule = one(target, name)?;
    if target.json {
        return output::print_json(&rule);
    }
    let text = output::plain;
    output::print(&format!(
        "{}\n{}\n\n{}\n\ncalls        {}\nsubjects     {}, of which {} hold\n\
         fired        {}, suppressed {}, failed {}\nevaluations  {}\nstate        {} {}\n",
        text(&rule.name),
        text(&rule.help),
        rule.sql,
        text(&rule.call),
        rule.subjects,
        rule.holding,
        rule.fired,
        rule.suppressed,
        rule.failed,
        rule.evaluations,
        text(&rule.state),
        text(&rule.reason),
    ))
}
