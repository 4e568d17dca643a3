//! `baro stage status`: what servers tell of themselves.

use std::collections::BTreeMap;

use barograph_staging::{ServerStatus, TierStatus};
use clap::Args;
use serde::Serialize;

use super::servers::{Servers, failure};
use super::{format, output};

/// Arguments of `baro stage status`.
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    servers: Servers,
}

/// A server.
#[derive(Serialize)]
struct ServerRow {
    server: u64,
    address: String,
    /// The first epoch that is served.
    fence: u64,
    dirty_bytes: u64,
    tiers: Vec<TierRow>,
    store: BTreeMap<&'static str, u64>,
    requests: BTreeMap<&'static str, u64>,
}

/// A tier of a server.
#[derive(Serialize)]
struct TierRow {
    /// The directory, or `memory`.
    tier: String,
    bytes: u64,
    bytes_max: u64,
    blocks: u64,
    blocks_max: u64,
    faults: u64,
    passed_over: bool,
}

impl Status {
    /// Runs the command. Servers that answer are shown even if others do not.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.servers.session()?;
        let (mut rows, mut fault) = (Vec::new(), None);
        for (server, address) in session.addresses() {
            match session.client().server_status(server) {
                Ok(status) => rows.push(row(server, address, &status)),
                Err(error) => {
                    let error = failure(error).context(format!("server {server} ({address})"));
                    if let Some(before) = fault.replace(error) {
                        output::tell(&format!("baro: {before:#}\n"));
                    }
                }
            }
        }
        match self.servers.json() {
            true => output::print_json(&rows)?,
            false => {
                let shown: Vec<String> = rows.iter().map(shown).collect();
                output::print(&shown.join("\n"))?;
            }
        }
        fault.map_or(Ok(()), Err)
    }
}

fn row(server: u64, address: String, status: &ServerStatus) -> ServerRow {
    ServerRow {
        server,
        address,
        fence: status.fence,
        dirty_bytes: status.dirty_bytes,
        tiers: status.tiers.iter().map(tier).collect(),
        store: status.store.named().into_iter().collect(),
        requests: status.server.named().into_iter().collect(),
    }
}

fn tier(status: &TierStatus) -> TierRow {
    let held = &status.held;
    TierRow {
        tier: status.path.clone().unwrap_or_else(|| "memory".into()),
        bytes: held.bytes,
        bytes_max: held.bytes_max,
        blocks: held.blocks,
        blocks_max: held.blocks_max,
        faults: held.faults,
        passed_over: held.is_passed_over,
    }
}

fn shown(row: &ServerRow) -> String {
    let size = |bytes: u64| format::number(bytes as f64, "bytes");
    let cells = |tier: &TierRow| {
        vec![
            tier.tier.clone(),
            size(tier.bytes),
            size(tier.bytes_max),
            tier.blocks.to_string(),
            tier.blocks_max.to_string(),
            tier.faults.to_string(),
            if tier.passed_over { "failed" } else { "-" }.to_owned(),
        ]
    };
    let tiers: Vec<Vec<String>> = row.tiers.iter().map(cells).collect();
    let headings = ["TIER", "HELD", "OF", "BLOCKS", "OF", "FAULTS", "STATE"];
    let counts = |counts: &BTreeMap<&'static str, u64>| {
        let counts = counts.iter().filter(|(_, count)| **count > 0);
        let counts: Vec<String> = counts
            .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
            .collect();
        match counts.is_empty() {
            true => "-".to_owned(),
            false => counts.join(", "),
        }
    };
    format!(
        "server {} at {}: serves epochs from {} on, {} are on no durable tier yet\n{}store: {}\nrequests: {}\n",
        row.server,
        output::plain(&row.address),
        row.fence,
        size(row.dirty_bytes),
        output::table(&headings, &[1, 2, 3, 4, 5], &tiers),
        counts(&row.store),
        counts(&row.requests),
    )
}
