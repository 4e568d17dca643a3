//! `baro node`: the nodes of the cluster, as this node knows them. Commands that ask several nodes
//! share how these are named, and how long they are waited for.

use std::time::Duration;

use barograph_agent::{PEERS_DOCUMENT, PeersRow};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::{Args, Subcommand};

use super::documents::{DocumentRow, document_of_agent, shown};
use super::{Target, Usage, format, output};

/// Longest wait for other nodes: the longest that an agent may be configured to wait.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(610);

/// Reads the names of nodes, `NAME,NAME`; `None` if it is `all`.
pub(super) fn names(text: &str) -> anyhow::Result<Option<Vec<&str>>> {
    let is_name = |name: &str| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        !name.is_empty() && name.chars().all(is_of_name)
    };
    if text == "all" {
        return Ok(None);
    }
    let names: Vec<&str> = text.split(',').collect();
    match names.iter().all(|name| is_name(name)) {
        true => Ok(Some(names)),
        false => Err(Usage("--nodes is all, or NAME,NAME".into()).into()),
    }
}

/// Arguments of `baro node`.
#[derive(Args)]
pub(super) struct Node {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the other nodes: when they were last heard, the round trip, and what is mirrored here
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        target: Target,
    },
}

impl Node {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Verb::List { target } = self.verb;
        list(&target)
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let peers: Vec<DocumentRow<PeersRow>> = document_of_agent(&target.run_dir(), PEERS_DOCUMENT)?;
    if target.json {
        return output::print_json(&peers);
    }
    if peers.is_empty() {
        return output::print(
            "no other node is known; `baro cluster status` says in which cluster this node is\n",
        );
    }
    let now_ns = SystemClock::new().now_ns();
    let row = |peer: &DocumentRow<PeersRow>| {
        vec![
            peer.node.clone(),
            peer.state.clone(),
            format::age(now_ns.saturating_sub(peer.heard_ts)),
            shown(&peer.round_trip_ns.map(format::span)),
            shown(&peer.ahead_ns.map(format::difference)),
            peer.streams.to_string(),
            peer.samples.to_string(),
            peer.missed.to_string(),
            peer.fault.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = peers.iter().map(row).collect();
    output::print_table(
        &[
            "NODE",
            "STATE",
            "HEARD",
            "ROUND TRIP",
            "AHEAD",
            "STREAMS",
            "SAMPLES",
            "MISSED",
            "FAULT",
        ],
        &[2, 3, 4, 5, 6, 7],
        &rows,
    )
}
