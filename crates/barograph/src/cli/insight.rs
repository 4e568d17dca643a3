//! `baro insight`: makes, drops, lists and explains insights. Making and dropping need the control
//! right.

use anyhow::Context as _;
use barograph_agent::INSIGHTS_DOCUMENT;
use barograph_client::AgentSocket;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::statement::{carry_out, done, drop_of};
use super::{Target, format, http, output, statement};

/// Path to which statements are posted.
const STATEMENTS: &str = "/api/v1/insights";

/// Arguments of `baro insight`.
#[derive(Args)]
pub(super) struct Insight {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an insight: baro insight create "CREATE INSIGHT node.busy.disks.count AS SELECT
    /// count(*) FROM disk_busy_ratio WHERE value > 0.5"
    Create {
        /// The statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        statement: String,
        /// Only show its present result
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Drop an insight, by name or with a DROP INSIGHT statement
    Drop {
        /// Name or statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// List the insights
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Show an insight's SQL, inputs, cost and values
    Explain {
        /// Name
        name: String,
        #[command(flatten)]
        target: Target,
    },
}

impl Insight {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Create {
                statement,
                dry_run: true,
                target,
            } => test(&target, &statement),
            Verb::Create {
                statement,
                dry_run: false,
                target,
            } => {
                let made = carry_out(&target, STATEMENTS, &statement)?;
                done(&target, &made, &format!("created {}", text(&made, "name")))
            }
            Verb::Drop { name, target } => {
                let dropped = carry_out(&target, STATEMENTS, &drop_of("INSIGHT", &name))?;
                done(&target, &dropped, &format!("dropped {}", name.trim()))
            }
            Verb::List { target } => list(&target),
            Verb::Explain { name, target } => explain(&target, &name),
        }
    }
}

fn test(target: &Target, statement: &str) -> anyhow::Result<()> {
    let body = json!({ "sql": statement });
    let answer = http::post(
        &target.run_dir(),
        AgentSocket::Read,
        "/api/v1/insights/test",
        &body,
        http::ANSWER_WAIT,
    )?;
    if target.json {
        return output::print_json(&answer);
    }
    let rows: Vec<&serde_json::Map<String, Json>> = answer["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_object)
        .collect();
    let Some(first) = rows.first() else {
        return output::print("no groups now\n");
    };
    let headings: Vec<&str> = first.keys().map(String::as_str).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.values().map(plain).collect())
        .collect();
    output::print_table(&headings, &[], &cells)
}

fn plain(json: &Json) -> String {
    json.as_str()
        .map_or_else(|| json.to_string(), str::to_owned)
}

fn text(json: &Json, key: &str) -> String {
    json[key].as_str().unwrap_or_default().to_owned()
}

fn insights(target: &Target) -> anyhow::Result<Vec<Json>> {
    let run_dir = target.run_dir();
    let document = run_dir.document(INSIGHTS_DOCUMENT)?;
    let document = document.with_context(|| {
        format!(
            "no agent serves {}: start one with `baro up`",
            run_dir.path().display()
        )
    })?;
    Ok(serde_json::from_slice(&document)?)
}

fn list(target: &Target) -> anyhow::Result<()> {
    let insights = insights(target)?;
    if target.json {
        return output::print_json(&Json::from(insights));
    }
    let rows: Vec<Vec<String>> = insights
        .iter()
        .map(|i| {
            let origin = if i["builtin"] == json!(true) {
                "built in"
            } else {
                "made here"
            };
            vec![
                text(i, "name"),
                text(i, "state"),
                i["groups"].to_string(),
                text(i, "unit"),
                origin.into(),
                what(i),
            ]
        })
        .collect();
    output::print_table(
        &["INSIGHT", "STATE", "STREAMS", "UNIT", "ORIGIN", "WHAT"],
        &[2],
        &rows,
    )
}

/// The meaning of an insight; for one that is not live, the reason.
fn what(insight: &Json) -> String {
    match (text(insight, "reason"), text(insight, "remedy")) {
        (reason, _) if reason.is_empty() => text(insight, "help"),
        (reason, remedy) if remedy.is_empty() => reason,
        (reason, remedy) => format!("{reason} -> {remedy}"),
    }
}

fn explain(target: &Target, name: &str) -> anyhow::Result<()> {
    let all = insights(target)?;
    let Some(insight) = all
        .iter()
        .find(|i| i["name"] == json!(name) || i["table"] == json!(name))
    else {
        let names: Vec<String> = all.iter().map(|i| text(i, "name")).collect();
        anyhow::bail!(
            "no insight is called {name}: there are {}",
            names.join(", ")
        );
    };
    let observer = target.observer()?;
    let selector = super::selector(&text(insight, "name"), &[])?;
    let values = observer.latest(&selector);
    if target.json {
        let mut insight = insight.clone();
        insight["values"] = barograph_client::latest_json(&values);
        return output::print_json(&insight);
    }
    let inputs: Vec<String> = insight["inputs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(plain)
        .collect();
    let cost = format::age(insight["cost_ns_mean"].as_i64().unwrap_or(0));
    let mut page = format!(
        "{}  ({})\n{}\n\n{}\n\nreads        {}\nevaluations  {}, {cost} each\nstate        {} {}\n",
        text(insight, "name"),
        text(insight, "unit"),
        text(insight, "help"),
        text(insight, "sql"),
        inputs.join(", "),
        insight["evaluations"],
        text(insight, "state"),
        text(insight, "reason"),
    );
    let remedy = text(insight, "remedy");
    if !remedy.is_empty() {
        page += &format!("remedy       {remedy}\n");
    }
    for value in &values {
        let shown = value.sample.as_ref().map_or("-".into(), |s| {
            format::value(&s.value, value.descriptor.unit.as_str())
        });
        let stream = value.descriptor.to_string();
        page += &format!("now          {} = {shown}\n", output::plain(&stream));
    }
    output::print(&page)
}
