//! The shared parts of `baro trigger` and `baro knob`: the target, the request to the agent, the
//! answer.

use std::time::Duration;

use anyhow::Context as _;
use barograph_client::Door;
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::{Target, Usage, http, output};

/// The processes that a call is for, and its expiry.
#[derive(Args)]
pub struct Meant {
    /// Labels that a process must have, all of them: rank=0, application=lulesh, pid=71, user=eve
    #[arg(long = "target", value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    /// One life of one process: its incarnation in the table `publications`
    #[arg(long, value_name = "HEX")]
    incarnation: Option<String>,
    /// Wait this long for all answers, at most 30s; the exit code is 1 if not all have done it by
    /// then
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
    /// Time until the call expires, 1s to 1d
    #[arg(long, value_name = "TIME", default_value = "60s")]
    expires: String,
}

impl Meant {
    /// Sends the call to the agent, and prints its outcome. `body` has its name and payload.
    pub fn call(&self, target: &Target, mut body: Map<String, Json>) -> anyhow::Result<()> {
        let labels = self.labels()?;
        let wait = self.wait.as_deref().map_or(Ok(Duration::ZERO), duration)?;
        body.insert("target".into(), labels.into());
        if let Some(incarnation) = &self.incarnation {
            body.insert("incarnation".into(), json!(incarnation));
        }
        let expires = duration(&self.expires)?;
        body.insert("expires_s".into(), json!(expires.as_secs_f64()));
        body.insert("wait_s".into(), json!(wait.as_secs_f64()));
        // A user with the control right calls anyone's processes; everyone else only their own.
        let run_dir = target.run_dir();
        let door = match run_dir.connect(Door::Control) {
            Ok(_) => Door::Control,
            Err(_) => Door::Read,
        };
        let (body, wait_max) = (Json::Object(body), http::ANSWER_WAIT + wait);
        let answer = http::post(&run_dir, door, "/api/v1/fire", &body, wait_max)?;
        let state = answer["state"].as_str().unwrap_or("unknown").to_owned();
        if target.json {
            output::print_json(&answer)?;
        } else {
            output::print(&format!("{}\n", words(&answer, &state)))?;
        }
        if !wait.is_zero() && state != "acknowledged" {
            anyhow::bail!("not all have done it: {state}");
        }
        Ok(())
    }

    /// The labels that a process must have.
    pub fn labels(&self) -> anyhow::Result<Map<String, Json>> {
        let mut labels = Map::new();
        for label in &self.labels {
            let Some((name, value)) = label.split_once('=') else {
                let wrong = format!("{label:?} is not LABEL=VALUE (like rank=0)");
                return Err(Usage(wrong).into());
            };
            labels.insert(name.into(), value.into());
        }
        Ok(labels)
    }
}

fn words(answer: &Json, state: &str) -> String {
    let ids: Vec<&str> = answer["ids"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let mut text = format!(
        "{state} {}: {} of {} have done it",
        ids.join(" "),
        answer["acknowledged"],
        answer["matched"]
    );
    for key in ["failed", "refused", "late", "expired", "gone", "busy"] {
        if answer[key].as_u64().is_some_and(|n| n > 0) {
            text += &format!(", {} {key}", answer[key]);
        }
    }
    for left in answer["left_out"].as_array().into_iter().flatten() {
        let reason = left["reason"].as_str().unwrap_or_default();
        text += &format!("\nnot called for user {}: {reason}", cell(left, "user"));
    }
    text
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let ns = barograph_model::duration_ns(text).map_err(|e| Usage(e.to_string()))?;
    Ok(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}

/// The rows of a document in all scopes that this user may read.
pub fn rows(target: &Target, document: &str) -> anyhow::Result<Vec<Json>> {
    let mut rows = Vec::new();
    for (scope, run_dir) in target.run_dir().scopes() {
        let Some(bytes) = run_dir.document(document)? else {
            continue;
        };
        let list: Vec<Json> = serde_json::from_slice(&bytes)
            .with_context(|| format!("the agent's {document} of {scope} is damaged"))?;
        rows.extend(list.into_iter().map(|mut row| {
            row["scope"] = json!(scope);
            row
        }));
    }
    Ok(rows)
}

/// A field as text for people; a missing one is empty.
pub fn cell(row: &Json, key: &str) -> String {
    match &row[key] {
        Json::Null => String::new(),
        Json::String(text) => output::plain(text).into_owned(),
        other => other.to_string(),
    }
}
