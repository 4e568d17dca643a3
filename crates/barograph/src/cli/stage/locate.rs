//! `baro stage locate`: where blocks are.

use std::ffi::OsString;
use std::time::Duration;

use barograph_staging::BlockKey;
use barograph_staging::client::{BlockReplica, LocateAnswer};
use clap::Args;
use serde::Serialize;

use super::block::{self, BlockRow, InfoRow};
use super::servers::{Servers, Session};
use super::{format, output};

/// Arguments of `baro stage locate`.
#[derive(Args)]
pub(super) struct Locate {
    /// The dataset of the blocks
    dataset: String,
    /// The names of the blocks
    #[arg(required = true)]
    name: Vec<OsString>,
    /// The names are numbers
    #[arg(long)]
    numbered: bool,
    /// Look again each so many seconds, and tell what is somewhere else then, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    servers: Servers,
}

/// Where blocks are, for programs.
#[derive(Serialize)]
struct LocateRow {
    /// The epoch of the servers that were asked.
    epoch: u64,
    /// Servers that could not be asked.
    unreachable: Vec<u64>,
    blocks: Vec<LocatedRow>,
}

#[derive(Serialize)]
struct LocatedRow {
    #[serde(flatten)]
    key: BlockRow,
    /// The one to be read first comes first.
    replicas: Vec<ReplicaRow>,
}

#[derive(Serialize)]
struct ReplicaRow {
    server: u64,
    on_node: bool,
    /// The directory; none in memory, and for other users than the server's own.
    path: Option<String>,
    /// Expected seconds of a read, if something is known of that.
    read_s: Option<f64>,
    #[serde(flatten)]
    info: InfoRow,
}

impl Locate {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let names = self.name.iter();
        let keys = names.map(|name| block::key(&self.dataset, name, self.numbered));
        let keys: Vec<BlockKey> = keys.collect::<anyhow::Result<_>>()?;
        let session = self.servers.session()?;
        let found = session.run(|client| client.locate(&keys))?;
        self.show(&keys, &found)?;
        match self.watch {
            Some(seconds) => self.watch(&session, &keys, found, seconds),
            None => Ok(()),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a command in the foreground that looks again after a time"
    )]
    fn watch(
        &self,
        session: &Session,
        keys: &[BlockKey],
        mut before: LocateAnswer,
        seconds: u32,
    ) -> anyhow::Result<()> {
        loop {
            std::thread::sleep(Duration::from_secs(seconds.into()));
            let found = session.run(|client| client.locate(keys))?;
            let is_news = |at: &usize| places(&found.blocks[*at]) != places(&before.blocks[*at]);
            let news: Vec<usize> = (0..keys.len()).filter(is_news).collect();
            let others = (found.epoch, &found.unreachable);
            if !news.is_empty() || others != (before.epoch, &before.unreachable) {
                let part = LocateAnswer {
                    epoch: found.epoch,
                    blocks: news.iter().map(|at| found.blocks[*at].clone()).collect(),
                    unreachable: found.unreachable.clone(),
                };
                let keys: Vec<BlockKey> = news.iter().map(|at| keys[*at].clone()).collect();
                self.show(&keys, &part)?;
            }
            before = found;
        }
    }

    fn show(&self, keys: &[BlockKey], found: &LocateAnswer) -> anyhow::Result<()> {
        if self.servers.json() {
            let row = LocateRow::new(keys, found);
            return output::print_json(&row);
        }
        print(keys, found)?;
        if !found.unreachable.is_empty() {
            let gone: Vec<String> = found.unreachable.iter().map(u64::to_string).collect();
            output::tell(&format!(
                "baro: could not be asked: {}; what only these servers have is missing above\n",
                gone.join(", ")
            ));
        }
        Ok(())
    }
}

impl LocateRow {
    fn new(keys: &[BlockKey], found: &LocateAnswer) -> Self {
        let replica = |it: &BlockReplica| ReplicaRow {
            server: it.server,
            on_node: it.is_on_node,
            path: it.path.clone(),
            read_s: it.read_s,
            info: InfoRow::new(&it.info),
        };
        let blocks = keys.iter().zip(&found.blocks);
        Self {
            epoch: found.epoch,
            unreachable: found.unreachable.clone(),
            blocks: blocks
                .map(|(key, replicas)| LocatedRow {
                    key: BlockRow::of_key(key),
                    replicas: replicas.iter().map(replica).collect(),
                })
                .collect(),
        }
    }
}

/// What counts as a change: not the expected time, which changes with each read.
fn places(replicas: &[BlockReplica]) -> Vec<(u64, u64, u8, bool)> {
    let place = |it: &BlockReplica| {
        let info = &it.info;
        (it.server, info.version, info.tier, info.is_confirmed)
    };
    let mut places: Vec<_> = replicas.iter().map(place).collect();
    places.sort_unstable();
    places
}

fn print(keys: &[BlockKey], found: &LocateAnswer) -> anyhow::Result<()> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (key, replicas) in keys.iter().zip(&found.blocks) {
        let named = |rest: [String; 6]| {
            let mut row = vec![block::name(key)];
            row.extend(rest);
            row
        };
        if replicas.is_empty() {
            let dash = || "-".to_owned();
            rows.push(named([
                dash(),
                "nowhere".into(),
                dash(),
                dash(),
                dash(),
                dash(),
            ]));
        }
        rows.extend(replicas.iter().map(|it| {
            let read = it.read_s.map(|seconds| format::number(seconds, "seconds"));
            named([
                it.server.to_string(),
                block::tier(&it.info, it.path.as_deref()),
                format::number(it.info.bytes as f64, "bytes"),
                it.info.version.to_string(),
                read.unwrap_or_else(|| "-".into()),
                block::state(&it.info).to_owned(),
            ])
        }));
    }
    let headings = ["NAME", "SERVER", "TIER", "SIZE", "VERSION", "READ", "STATE"];
    output::print_table(&headings, &[1, 3, 4, 5], &rows)
}
