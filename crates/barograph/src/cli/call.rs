//! `baro call`: calls handlers of running programs, lists them and the newest calls. It shares with
//! `baro knob` who is meant, the way to the agent and the answer.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use barograph_agent::{CALLS_DOCUMENT, CallsRow, HANDLERS_DOCUMENT, HandlersRow};
use barograph_client::{AgentSocket, SCOPE_OF_ALL};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value as Json, json};

use super::documents::{DocumentRow, rows_of_scopes, shown};
use super::{Target, Usage, http, output};

/// Most calls that a list for people shows.
const CALLS_SHOWN_MAX: usize = 20;

/// Arguments of `baro call`.
#[derive(Args)]
pub(super) struct Call {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Call handlers: baro call fire checkpoint --target application=lulesh --wait 5s
    Fire(Box<Fire>),
    /// List the handlers of running programs, and the newest calls
    List {
        #[command(flatten)]
        target: Target,
    },
}

/// A call of handlers.
#[derive(Args)]
pub(super) struct Fire {
    /// The name of the handlers
    name: String,
    /// The payload that the handler is given
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    payload: Option<String>,
    /// The type of the payload
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "text",
        requires = "payload"
    )]
    payload_type: PayloadType,
    /// The payload that the handler is given, as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "payload")]
    payload_json: Option<String>,
    #[command(flatten)]
    meant: CallOptions,
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

impl Call {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Fire(fire) => fire.run(),
            Verb::List { target } => list(&target, "handlers"),
        }
    }
}

impl Fire {
    /// Lets the agent make the call, and prints the result.
    pub(super) fn run(&self) -> anyhow::Result<()> {
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

/// Lists handlers and calls. `key` is the name of the list of handlers in JSON.
pub(super) fn list(target: &Target, key: &str) -> anyhow::Result<()> {
    let handlers: Vec<DocumentRow<HandlersRow>> =
        rows_of_scopes(target, HANDLERS_DOCUMENT).context("cannot list handlers")?;
    let calls = rows_of_scopes(target, CALLS_DOCUMENT).context("cannot list calls")?;
    let calls = once(calls);
    if target.json {
        return output::print_json(&json!({ key: handlers, "calls": calls }));
    }
    if handlers.is_empty() {
        output::print("no program that you may see has handlers now\n")?;
    } else {
        let row = |handler: &DocumentRow<HandlersRow>| {
            vec![
                handler.name.clone(),
                shown(&handler.publication),
                handler.application.clone(),
                handler.pid.to_string(),
                handler.user.clone(),
                handler.help.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = handlers.iter().map(row).collect();
        output::print_table(
            &[
                "HANDLER",
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
    let row = |call: &DocumentRow<CallsRow>| {
        vec![
            call.scope.clone(),
            call.id.to_string(),
            call.kind.clone(),
            call.name.clone(),
            shown(&call.payload),
            call.matched.to_string(),
            call.acknowledged.to_string(),
            call.state.clone(),
            shown(&call.via),
        ]
    };
    let newest = calls.iter().take(CALLS_SHOWN_MAX);
    let rows: Vec<Vec<String>> = newest.map(row).collect();
    output::print_table(
        &[
            "SCOPE", "ID", "KIND", "NAME", "PAYLOAD", "MEANT", "DONE", "STATE", "VIA",
        ],
        &[1, 5, 6],
        &rows,
    )
}

/// Returns the calls, each once: the row of the user's scope, which has more columns, replaces that
/// of the scope of all.
fn once(mut calls: Vec<DocumentRow<CallsRow>>) -> Vec<DocumentRow<CallsRow>> {
    let which = |call: &CallsRow| (call.user.clone(), call.id);
    let own = calls.iter().filter(|call| call.scope != SCOPE_OF_ALL);
    let told: HashSet<_> = own.map(|call| which(call)).collect();
    calls.retain(|call| call.scope != SCOPE_OF_ALL || !told.contains(&which(call)));
    calls
}

/// The target of a call, and the time for which the call holds.
#[derive(Args)]
pub(super) struct CallOptions {
    /// Labels that a process must have, all of them: rank=0, application=lulesh, pid=71, user=eve
    #[arg(long = "target", value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    /// One life of one process: its incarnation in the table `publications`
    #[arg(long, value_name = "HEX")]
    incarnation: Option<String>,
    /// Nodes of the cluster whose programs are called: all, or NAME,NAME; this node alone unless
    /// given
    #[arg(long, value_name = "NODES")]
    nodes: Option<String>,
    /// Wait this long for all answers, at most 30s; the exit code is 1 if not all have done it by
    /// then
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
    /// Time until the call expires, 1s to 1d
    #[arg(long, value_name = "TIME", default_value = "60s")]
    expires: String,
}

impl CallOptions {
    /// Sends the call to the agent, and prints its outcome. `body` has its name and payload.
    pub(super) fn call(&self, target: &Target, mut body: Map<String, Json>) -> anyhow::Result<()> {
        let labels = self.labels()?;
        let wait = self.wait.as_deref().map_or(Ok(Duration::ZERO), duration)?;
        body.insert("target".into(), labels.into());
        if let Some(incarnation) = &self.incarnation {
            body.insert("incarnation".into(), json!(incarnation));
        }
        if let Some(nodes) = &self.nodes {
            let names = super::node::names(nodes)?;
            let nodes = names.map_or_else(|| json!("all"), |names| json!(names));
            body.insert("nodes".into(), nodes);
        }
        let expires = duration(&self.expires)?;
        body.insert("expires_s".into(), json!(expires.as_secs_f64()));
        body.insert("wait_s".into(), json!(wait.as_secs_f64()));
        // A user with the control right calls anyone's processes; everyone else only their own.
        let run_dir = target.run_dir();
        let door = match run_dir.connect(AgentSocket::Control) {
            Ok(_) => AgentSocket::Control,
            Err(_) => AgentSocket::Read,
        };
        let answer_wait = match &self.nodes {
            Some(_) => super::node::ANSWER_WAIT,
            None => http::ANSWER_WAIT,
        };
        let (body, wait_max) = (Json::Object(body), answer_wait + wait);
        let answer = http::post(&run_dir, door, "/api/v1/fire", &body, wait_max)?;
        let state = answer["state"].as_str().unwrap_or("unknown").to_owned();
        if target.json {
            output::print_json(&answer)?;
        } else {
            output::print(&format!("{}\n", words(&answer, &state)))?;
        }
        if state == "incomplete" || !wait.is_zero() && state != "acknowledged" {
            anyhow::bail!("not all have done it: {state}");
        }
        Ok(())
    }

    /// The labels that a process must have.
    pub(super) fn labels(&self) -> anyhow::Result<Map<String, Json>> {
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
        "{}: {} of {} have done it",
        [&[state], &ids[..]].concat().join(" "),
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
        let user = output::plain(left["user"].as_str().unwrap_or_default());
        let of_node = left["node"].as_str().map(output::plain);
        let of_node = of_node.map_or_else(String::new, |node| format!(" on {node}"));
        text += &format!("\nnot called for user {user}{of_node}: {reason}");
    }
    for node in answer["nodes"].as_array().into_iter().flatten() {
        let word = |key: &str| output::plain(node[key].as_str().unwrap_or_default());
        text += &format!("\n{}: {}", word("node"), word("state"));
        if node["reason"].is_string() {
            text += &format!(": {}", word("reason"));
        }
    }
    text
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let ns = barograph_model::duration_ns(text).map_err(|e| Usage(e.to_string()))?;
    Ok(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}
