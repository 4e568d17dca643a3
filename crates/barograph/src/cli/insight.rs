//! `baro insight`: makes, drops, lists and explains insights. Making and dropping need the control
//! right.

use barograph_agent::{
    CLUSTER_INSIGHTS_DOCUMENT, ClusterInsightsRow, INSIGHTS_DOCUMENT, InsightsRow,
};
use barograph_client::AgentSocket;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::documents::{DocumentRow, document, document_of_agent};
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
        /// Drop an insight of the cluster
        #[arg(long)]
        on_cluster: bool,
        #[command(flatten)]
        target: Target,
    },
    /// List the insights
    List {
        /// List the insights of the cluster, with the nodes that compute them
        #[arg(long)]
        on_cluster: bool,
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
                let name = made["name"].as_str().unwrap_or_default();
                done(&target, &made, &format!("created {name}"))
            }
            Verb::Drop {
                name,
                on_cluster,
                target,
            } => {
                let mut statement = drop_of("INSIGHT", &name);
                if on_cluster {
                    statement += " ON CLUSTER";
                }
                let dropped = carry_out(&target, STATEMENTS, &statement)?;
                done(&target, &dropped, &format!("dropped {}", name.trim()))
            }
            Verb::List {
                on_cluster: true,
                target,
            } => list_of_cluster(&target),
            Verb::List {
                on_cluster: false,
                target,
            } => list(&target),
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

fn insights(target: &Target) -> anyhow::Result<Vec<DocumentRow<InsightsRow>>> {
    document_of_agent(&target.run_dir(), INSIGHTS_DOCUMENT)
}

fn list(target: &Target) -> anyhow::Result<()> {
    let insights = insights(target)?;
    if target.json {
        return output::print_json(&insights);
    }
    let of_cluster: Option<Vec<DocumentRow<ClusterInsightsRow>>> =
        document(&target.run_dir(), CLUSTER_INSIGHTS_DOCUMENT)?;
    let of_cluster = of_cluster.unwrap_or_default();
    let row = |insight: &DocumentRow<InsightsRow>| {
        let origin = match insight.builtin {
            true => "built in",
            false if of_cluster.iter().any(|one| one.name == insight.name) => "of the cluster",
            false => "made here",
        };
        vec![
            insight.name.clone(),
            insight.state.clone(),
            insight.groups.to_string(),
            insight.unit.clone(),
            origin.into(),
            what(insight),
        ]
    };
    let rows: Vec<Vec<String>> = insights.iter().map(row).collect();
    output::print_table(
        &["INSIGHT", "STATE", "STREAMS", "UNIT", "ORIGIN", "WHAT"],
        &[2],
        &rows,
    )
}

fn list_of_cluster(target: &Target) -> anyhow::Result<()> {
    let insights: Vec<DocumentRow<ClusterInsightsRow>> =
        document_of_agent(&target.run_dir(), CLUSTER_INSIGHTS_DOCUMENT)?;
    if target.json {
        return output::print_json(&insights);
    }
    if insights.is_empty() {
        return output::print(
            "the cluster has no insights: baro insight create \"CREATE INSIGHT name ON CLUSTER AS SELECT …\"\n",
        );
    }
    let row = |insight: &DocumentRow<ClusterInsightsRow>| {
        let inputs = insight.inputs.iter();
        let inputs: Vec<String> = inputs.map(|(node, one)| format!("{node} {one}")).collect();
        let runs_on = match insight.runs_on.is_empty() {
            true => "no node yet".to_owned(),
            false => insight.runs_on.join(", "),
        };
        vec![
            insight.name.clone(),
            runs_on,
            inputs.join(", "),
            insight.changed_by.clone(),
            insight.fault.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = insights.iter().map(row).collect();
    output::print_table(
        &[
            "INSIGHT",
            "RUNS ON",
            "INPUTS",
            "MADE ON",
            "NOT HERE BECAUSE",
        ],
        &[],
        &rows,
    )
}

/// The meaning of an insight; for one that is not live, the reason.
fn what(insight: &InsightsRow) -> String {
    let InsightsRow {
        help,
        reason,
        remedy,
        ..
    } = insight;
    match (reason.as_str(), remedy.as_str()) {
        ("", _) => help.clone(),
        (reason, "") => reason.to_owned(),
        (reason, remedy) => format!("{reason} -> {remedy}"),
    }
}

fn explain(target: &Target, name: &str) -> anyhow::Result<()> {
    let all = insights(target)?;
    let Some(insight) = all.iter().find(|i| i.name == name || i.table == name) else {
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        anyhow::bail!(
            "no insight is called {name}: there are {}",
            names.join(", ")
        );
    };
    let observer = target.observer()?;
    let selector = super::selector(&insight.name, &[])?;
    let values = observer.latest(&selector);
    if target.json {
        let mut insight = json!(insight);
        insight["values"] = barograph_client::latest_json(&values);
        return output::print_json(&insight);
    }
    let InsightsRow {
        name,
        unit,
        help,
        sql,
        inputs,
        evaluations,
        state,
        reason,
        remedy,
        cost_ns_mean,
        ..
    } = &**insight;
    let (inputs, cost) = (inputs.join(", "), format::age(*cost_ns_mean));
    let mut page = format!(
        "{name}  ({unit})\n{help}\n\n{sql}\n\nreads        {inputs}\n\
         evaluations  {evaluations}, {cost} each\nstate        {state} {reason}\n"
    );
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
