//! `baro archive seal` and `compact`: done by the living agent, or by this process if no agent
//! lives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use barograph_agent::{AGENT_DOCUMENT, AgentDocument};
use barograph_archive::{ArchiveConfig, ArchiveReader, DiskStorage, KeepConfig, Keeper};
use barograph_client::{AgentSocket, SystemClock};
use clap::Args;
use serde_json::{Value as Json, json};

use super::place::{ArchiveChoice, closed_words};
use crate::cli::documents::document;
use crate::cli::{Usage, http, output};

/// Longest wait for the agent: an archive of years is merged hour by hour.
const ANSWER_WAIT: Duration = Duration::from_secs(3600);

/// Arguments of `baro archive seal`.
#[derive(Args)]
pub(super) struct Seal {
    #[command(flatten)]
    work: Work,
}

/// Arguments of `baro archive compact`.
#[derive(Args)]
pub(super) struct Compact {
    #[command(flatten)]
    work: Work,
}

#[derive(Args)]
struct Work {
    /// The node, if the archive has several and no agent holds it
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    place: ArchiveChoice,
}

impl Seal {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = self.work.run("seal", |keeper| {
            keeper.seal()?;
            Ok(json!({ "sealed": true }))
        })?;
        self.work.print(&answer, |answer| {
            let scopes = answer["applications"].as_object().map_or(0, |of| of.len());
            let of = match scopes {
                0 => String::new(),
                _ => format!(", and of {scopes} of applications"),
            };
            format!("sealed: all of the node's log is Parquet now{of}\n")
        })
    }
}

impl Compact {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let answer = self.work.run("compact", |keeper| {
            Ok(json!({ "replaced_files": keeper.compact()? }))
        })?;
        self.work.print(&answer, |answer| {
            let scopes = answer["applications"].as_object();
            let all = scopes.into_iter().flat_map(|of| of.values());
            let replaced = all.chain([answer]);
            let files: u64 = replaced
                .filter_map(|of| of["replaced_files"].as_u64())
                .sum();
            format!("compacted: {files} files were replaced\n")
        })
    }
}

impl Work {
    fn run(
        &self,
        verb: &str,
        here: impl Fn(&Keeper) -> anyhow::Result<Json>,
    ) -> anyhow::Result<Json> {
        let run_dir = self.place.target.run_dir();
        let agent: Option<AgentDocument> = document(&run_dir, AGENT_DOCUMENT)?;
        let theirs = agent.as_ref().and_then(|agent| agent.archive.as_ref());
        let wanted = self.place.archive_dir.as_deref();
        // The agent works only on its own archive.
        let same = wanted.is_none_or(|wanted| theirs.is_some_and(|theirs| is_same(wanted, theirs)));
        if agent.is_some() && same && self.lives() {
            let path = format!("/api/v1/archive/{verb}");
            return http::post(
                &run_dir,
                AgentSocket::Control,
                &path,
                &json!({}),
                ANSWER_WAIT,
            );
        }
        self.run_here(&here)
    }

    /// Does the work in this process, with the same answer as an agent's.
    fn run_here(&self, here: &dyn Fn(&Keeper) -> anyhow::Result<Json>) -> anyhow::Result<Json> {
        let archives = self.place.archives()?;
        if let Some(words) = closed_words(&archives.closed) {
            anyhow::bail!("only who may write all of these archives does this; {words}");
        }
        let mut node = json!({});
        let mut of_scopes = serde_json::Map::new();
        for kept in &archives.kept {
            let done = self.hold(&kept.dir).and_then(|keeper| here(&keeper));
            let done = done.with_context(|| format!("{} ({})", kept.dir.display(), kept.name()))?;
            match &kept.scope {
                None => node = done,
                Some(scope) => {
                    of_scopes.insert(scope.clone(), done);
                }
            }
        }
        node["applications"] = of_scopes.into();
        Ok(node)
    }

    fn lives(&self) -> bool {
        let status = self.place.target.observer().and_then(|o| Ok(o.status()?));
        status.is_ok_and(|status| status.alive)
    }

    /// Takes the archive for this process. No data ages out or is removed: retention is set by the
    /// agent's configuration, which is not known here.
    fn hold(&self, dir: &Path) -> anyhow::Result<Keeper> {
        let config = ArchiveConfig {
            bytes_max: u64::MAX,
            free_bytes_min: 0,
            keep: KeepConfig::FOREVER,
            ..ArchiveConfig::new(dir, self.node(dir)?)
        };
        let clock = Arc::new(SystemClock::new());
        Keeper::start(config, Arc::new(DiskStorage), clock)
            .with_context(|| "no agent does it, so this process tried itself")
    }

    fn node(&self, dir: &Path) -> anyhow::Result<String> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        let view = ArchiveReader::open(dir).view()?;
        let mut nodes: Vec<String> = view.parts().iter().map(|p| p.node.to_string()).collect();
        nodes.sort();
        nodes.dedup();
        match nodes.as_slice() {
            [node] => Ok(node.clone()),
            [] => anyhow::bail!("{} holds nothing", dir.display()),
            many => Err(Usage(format!("give --node, one of {}", many.join(", "))).into()),
        }
    }

    fn print(&self, answer: &Json, text: impl FnOnce(&Json) -> String) -> anyhow::Result<()> {
        match self.place.json() {
            true => output::print_json(answer),
            false => output::print(&text(answer)),
        }
    }
}

fn is_same(wanted: &Path, theirs: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    real(wanted) == real(theirs)
}
