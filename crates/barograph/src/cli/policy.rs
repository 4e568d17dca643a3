//! `baro policy`: makes, drops, lists and explains policies. Making and dropping need the control
//! right.

use anyhow::Context as _;
use barograph_agent::POLICIES_DOCUMENT;
use barograph_model::Labels;
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::call::cell;
use super::statement::{carry_out, done, drop_of};
use super::{Target, format, output, statement};

/// Path to which statements are posted.
const STATEMENTS: &str = "/api/v1/policies";

/// Arguments of `baro policy`.
#[derive(Args)]
pub(super) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a policy: baro policy create "CREATE POLICY disks FOR 'filesystem.available.bytes'
    /// ERROR '1 %' BETWEEN '10 s' AND '10 min'"
    ///
    /// CREATE [OR REPLACE] POLICY name FOR 'pattern' [, 'pattern' …], then any of KIND
    /// 'error_bounded' (or fixed, aimd_simple, aimd_complex), ERROR '1 %' (or '10 MiB', '0.5'),
    /// CONFIDENCE 0.9, BETWEEN '1 s' AND '1 min', SENTINEL 'cheap stream', PRESSURE 'io some 150ms
    /// 2s', WEIGHT 1, HELP 'what it is for'. It survives a restart of the agent.
    Create {
        /// The statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        statement: String,
        #[command(flatten)]
        target: Target,
    },
    /// Drop a policy, by name or with a DROP POLICY statement; its sources are then read as
    /// configured
    Drop {
        /// Name or statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// List the policies, and how often each of their streams is read
    Ls {
        #[command(flatten)]
        target: Target,
    },
    /// Show the settings of a policy, when its streams are read, and why
    Explain {
        /// Name
        name: String,
        #[command(flatten)]
        target: Target,
    },
}

impl Policy {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Create { statement, target } => {
                let made = carry_out(&target, STATEMENTS, &statement)?;
                done(&target, &made, &created(&made))
            }
            Verb::Drop { name, target } => {
                let dropped = carry_out(&target, STATEMENTS, &drop_of("POLICY", &name))?;
                done(&target, &dropped, &format!("dropped {}", name.trim()))
            }
            Verb::Ls { target } => list(&target),
            Verb::Explain { name, target } => explain(&target, &name),
        }
    }
}

fn created(made: &Json) -> String {
    let name = cell(made, "name");
    match made["matched"].as_u64() {
        Some(0) => format!(
            "created {name}: no stream matches now that no other policy is for and that is read by a source"
        ),
        Some(1) => format!("created {name}: it is for 1 stream now"),
        Some(streams) => format!("created {name}: it is for {streams} streams now"),
        None => format!("created {name}"),
    }
}

fn policies(target: &Target) -> anyhow::Result<Vec<Json>> {
    let run_dir = target.run_dir();
    let document = run_dir.document(POLICIES_DOCUMENT)?;
    let document = document.with_context(|| {
        format!(
            "no agent serves {}: start one with `baro up`",
            run_dir.path().display()
        )
    })?;
    serde_json::from_slice(&document).context("the agent's policies.json is damaged")
}

fn list(target: &Target) -> anyhow::Result<()> {
    let policies = policies(target)?;
    if target.json {
        return output::print_json(&Json::from(policies));
    }
    if policies.is_empty() {
        return output::print(
            "no policies: every source is read as configured; `baro policy create --help` says how to make one\n",
        );
    }
    let row = |policy: &Json| {
        let mut row = vec![cell(policy, "name"), stream(policy)];
        row.extend(looks(policy));
        row.push(cell(policy, "reason"));
        row
    };
    let rows: Vec<Vec<String>> = policies.iter().map(row).collect();
    output::print_table(
        &[
            "POLICY", "STREAM", "EVERY", "SAID", "WRONG", "LOOKS", "SAVED", "WHY",
        ],
        &[2, 4, 5, 6],
        &rows,
    )
}

fn explain(target: &Target, name: &str) -> anyhow::Result<()> {
    let all = policies(target)?;
    let is_its = |policy: &&Json| policy["name"] == name;
    let rows: Vec<Json> = all.iter().filter(is_its).cloned().collect();
    let Some(first) = rows.first() else {
        let mut names: Vec<String> = all.iter().map(|p| cell(p, "name")).collect();
        names.dedup();
        match names.is_empty() {
            true => anyhow::bail!("no policy is called {name}: there is none"),
            false => anyhow::bail!("no policy is called {name}: there are {}", names.join(", ")),
        }
    };
    if target.json {
        return output::print_json(&Json::from(rows));
    }
    output::print(&page(first))?;
    let row = |row: &Json| {
        let mut cells = vec![stream(row), cell(row, "source"), span(row, "wait_ns")];
        cells.extend(looks(row));
        cells.push(rate(&row["looks_per_s"]));
        cells.push(cell(row, "reason"));
        cells
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    output::print_table(
        &[
            "STREAM", "SOURCE", "WANTS", "EVERY", "SAID", "WRONG", "LOOKS", "SAVED", "RATE", "WHY",
        ],
        &[2, 3, 5, 6, 7, 8],
        &rows,
    )
}

/// The settings of a policy as text.
fn page(policy: &Json) -> String {
    let mut page = format!("{}  ({})\n", cell(policy, "name"), cell(policy, "origin"));
    for text in [&policy["help"], &policy["sql"]] {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            page += &format!("{text}\n\n");
        }
    }
    let ms = |key: &str| format::age(policy[key].as_i64().unwrap_or(0).saturating_mul(1_000_000));
    let within = match policy["error"].as_str() {
        Some(error) => format!(
            ": within {error} for {} of the time",
            share(&policy["confidence"])
        ),
        None => String::new(),
    };
    page += &format!(
        "streams      {}\nkind         {}{within}\n",
        patterns(policy),
        cell(policy, "kind")
    );
    if !policy["interval_min_ms"].is_null() {
        let (min, max) = (ms("interval_min_ms"), ms("interval_max_ms"));
        page += &format!("looked at    every {min} to {max}\n");
    }
    for (key, what) in [
        ("sentinel", "sentinel     "),
        ("pressure", "pressure     "),
        ("weight", "weight       "),
    ] {
        if !policy[key].is_null() {
            page += &format!("{what}{}\n", cell(policy, key));
        }
    }
    page + "\n"
}

fn patterns(policy: &Json) -> String {
    match &policy["streams"] {
        Json::Array(all) => {
            let all: Vec<&str> = all.iter().filter_map(Json::as_str).collect();
            all.join(", ")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// The stream of a row with its labels, or the patterns that match none.
fn stream(row: &Json) -> String {
    let Some(name) = row["stream"].as_str() else {
        return format!("none of {}", patterns(row));
    };
    let pairs = row["labels"].as_object().into_iter().flatten();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
    format!("{name}{}", Labels::new(pairs).unwrap_or_default())
}

/// How a stream is read: the time between looks, the source of its value between them (held or
/// forecast), the share of wrong values, the number of looks, and the share of looks saved.
fn looks(row: &Json) -> [String; 5] {
    [
        span(row, "interval_ns"),
        cell(row, "said"),
        share(&row["wrong_share"]),
        cell(row, "looks"),
        share(&row["saved_share"]),
    ]
}

fn span(row: &Json, key: &str) -> String {
    row[key].as_i64().map_or_else(|| "-".into(), format::age)
}

fn share(value: &Json) -> String {
    match value.as_f64() {
        Some(share) => format::number(share, "ratio"),
        None => "-".into(),
    }
}

fn rate(value: &Json) -> String {
    match value.as_f64() {
        Some(rate) => format!("{}/s", format::number(rate, "")),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn streams_that_are_not_there_are_told() {
        let row = json!({ "streams": ["a.*", "b"], "stream": null });
        assert_eq!(stream(&row), "none of a.*, b");
        assert_eq!(looks(&row), ["-", "", "-", "", "-"]);
        let row = json!({
            "stream": "disk.busy.ratio", "labels": { "device": "vda" }, "interval_ns": 2_500_000_000_i64,
            "said": "held", "wrong_share": 0.021, "looks": 71, "saved_share": 0.6,
        });
        assert_eq!(stream(&row), "disk.busy.ratio{device=vda}");
        assert_eq!(looks(&row), ["2.5 s", "held", "2.1 %", "71", "60 %"]);
    }

    #[test]
    fn a_page_says_what_is_asked_for() {
        let policy = json!({
            "name": "full", "origin": "made", "sql": "CREATE POLICY …", "help": "", "streams": ["a.*"],
            "kind": "error_bounded", "error": "1 %", "confidence": 0.9, "interval_min_ms": 100,
            "interval_max_ms": 60_000, "sentinel": "disk.write.bytes", "weight": 1.0,
        });
        let expect = "full  (made)\nCREATE POLICY …\n\nstreams      a.*\n\
                      kind         error_bounded: within 1 % for 90 % of the time\n\
                      looked at    every 100 ms to 60.0 s\nsentinel     disk.write.bytes\nweight       1.0\n\n";
        assert_eq!(page(&policy), expect);
    }

    #[test]
    fn what_was_made_says_whether_it_is_for_any_stream() {
        let made = |matched: Json| created(&json!({ "name": "a", "matched": matched }));
        assert!(made(json!(0)).starts_with("created a: no stream"));
        assert_eq!(made(json!(1)), "created a: it is for 1 stream now");
        assert_eq!(made(json!(7)), "created a: it is for 7 streams now");
        assert_eq!(made(Json::Null), "created a");
    }
}
