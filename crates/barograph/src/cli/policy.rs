//! `baro policy`: makes, drops, lists and explains policies. Making and dropping need the control
//! right.

use barograph_agent::{POLICIES_DOCUMENT, PoliciesRow};
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::documents::{DocumentRow, document_of_agent, labels_of, shown};
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
    let name = made["name"].as_str().unwrap_or_default();
    match made["matched"].as_u64() {
        Some(0) => format!(
            "created {name}: no stream matches now that no other policy is for and that is read by a source"
        ),
        Some(1) => format!("created {name}: it is for 1 stream now"),
        Some(streams) => format!("created {name}: it is for {streams} streams now"),
        None => format!("created {name}"),
    }
}

fn policies(target: &Target) -> anyhow::Result<Vec<DocumentRow<PoliciesRow>>> {
    document_of_agent(&target.run_dir(), POLICIES_DOCUMENT)
}

fn list(target: &Target) -> anyhow::Result<()> {
    let policies = policies(target)?;
    if target.json {
        return output::print_json(&policies);
    }
    if policies.is_empty() {
        return output::print(
            "no policies: every source is read as configured; `baro policy create --help` says how to make one\n",
        );
    }
    let row = |policy: &DocumentRow<PoliciesRow>| {
        let mut row = vec![policy.name.clone(), stream(policy)];
        row.extend(looks(policy));
        row.push(policy.reason.clone());
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
    let mut rows = policies(target)?;
    let mut names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    rows.retain(|row| row.name == name);
    let Some(first) = rows.first() else {
        names.dedup();
        match names.is_empty() {
            true => anyhow::bail!("no policy is called {name}: there is none"),
            false => anyhow::bail!("no policy is called {name}: there are {}", names.join(", ")),
        }
    };
    if target.json {
        return output::print_json(&rows);
    }
    output::print(&page(first))?;
    let row = |row: &DocumentRow<PoliciesRow>| {
        let mut cells = vec![stream(row), shown(&row.source), span(row.wait_ns)];
        cells.extend(looks(row));
        cells.push(rate(row.looks_per_s));
        cells.push(row.reason.clone());
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
fn page(policy: &PoliciesRow) -> String {
    let plain = output::plain;
    let mut page = format!("{}  ({})\n", plain(&policy.name), plain(&policy.origin));
    for text in [Some(&policy.help), policy.sql.as_ref()] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            page += &format!("{text}\n\n");
        }
    }
    let within = match &policy.error {
        Some(error) => format!(
            ": within {} for {} of the time",
            plain(error),
            share(policy.confidence)
        ),
        None => String::new(),
    };
    page += &format!(
        "streams      {}\nkind         {}{within}\n",
        plain(&policy.streams),
        plain(&policy.kind)
    );
    if let (Some(min), Some(max)) = (policy.interval_min_ms, policy.interval_max_ms) {
        let ms = |ms: i64| format::age(ms.saturating_mul(1_000_000));
        page += &format!("looked at    every {} to {}\n", ms(min), ms(max));
    }
    let weight = policy.weight.map(|weight| format!("{weight:?}"));
    for (value, what) in [
        (&policy.sentinel, "sentinel     "),
        (&policy.pressure, "pressure     "),
        (&weight, "weight       "),
    ] {
        if let Some(value) = value {
            page += &format!("{what}{}\n", plain(value));
        }
    }
    page + "\n"
}

/// The stream of a row with its labels, or the patterns that match none.
fn stream(row: &PoliciesRow) -> String {
    let Some(name) = &row.stream else {
        return format!("none of {}", row.streams);
    };
    format!("{name}{}", labels_of(row.labels.iter().flatten()))
}

/// The way in which a stream is read: the time between looks, the source of its value between them
/// (held or forecast), the share of wrong values, the number of looks, and the share of looks
/// saved.
fn looks(row: &PoliciesRow) -> [String; 5] {
    [
        span(row.interval_ns),
        shown(&row.said),
        share(row.wrong_share),
        shown(&row.looks),
        share(row.saved_share),
    ]
}

fn span(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".into(), format::age)
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format::number(share, "ratio"))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(
        || "-".into(),
        |rate| format!("{}/s", format::number(rate, "")),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn streams_that_are_not_there_are_told() {
        let row = PoliciesRow {
            streams: "a.*, b".into(),
            ..PoliciesRow::default()
        };
        assert_eq!(stream(&row), "none of a.*, b");
        assert_eq!(looks(&row), ["-", "", "-", "", "-"]);
        let row = PoliciesRow {
            stream: Some("disk.busy.ratio".into()),
            labels: Some([("device".into(), "vda".into())].into()),
            interval_ns: Some(2_500_000_000),
            said: Some("held".into()),
            wrong_share: Some(0.021),
            looks: Some(71),
            saved_share: Some(0.6),
            ..PoliciesRow::default()
        };
        assert_eq!(stream(&row), "disk.busy.ratio{device=vda}");
        assert_eq!(looks(&row), ["2.5 s", "held", "2.1 %", "71", "60 %"]);
    }

    #[test]
    fn a_page_says_what_is_asked_for() {
        let policy = PoliciesRow {
            name: "full".into(),
            origin: "made".into(),
            sql: Some("CREATE POLICY …".into()),
            streams: "a.*".into(),
            kind: "error_bounded".into(),
            error: Some("1 %".into()),
            confidence: Some(0.9),
            interval_min_ms: Some(100),
            interval_max_ms: Some(60_000),
            sentinel: Some("disk.write.bytes".into()),
            weight: Some(1.0),
            ..PoliciesRow::default()
        };
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
