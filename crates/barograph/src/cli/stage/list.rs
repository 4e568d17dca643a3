//! `baro stage ls`: the blocks of the servers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use barograph_staging::{BlockInfo, BlockKey, DATASET_BYTES_MAX, ListQuery, NAME_BYTES_MAX};
use clap::Args;
use serde::Serialize;

use super::block::{self, BlockRow};
use super::servers::Servers;
use super::{Usage, format, output, progress};

/// Arguments of `baro stage ls`.
#[derive(Args)]
pub(super) struct Ls {
    /// The beginning of the names of datasets [default: all]
    #[arg(default_value = "")]
    dataset: String,
    /// The beginning of the names of blocks; numbered blocks are left out then [default: all]
    name: Option<OsString>,
    /// Most blocks
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Begin after this block: the last one of the page before
    #[arg(long, num_args = 2, value_names = ["DATASET", "NAME"])]
    after: Vec<OsString>,
    /// The name after --after is a number
    #[arg(long, requires = "after")]
    numbered: bool,
    #[command(flatten)]
    servers: Servers,
}

/// A page of blocks.
#[derive(Serialize)]
struct Page {
    blocks: Vec<BlockRow>,
    /// The key for --after of the next page, if there may be one.
    next: Option<BlockRow>,
}

impl Ls {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut query = self.query()?;
        let session = self.servers.session()?;
        let mut blocks: Vec<(BlockKey, BlockInfo)> = Vec::new();
        let limit = self.limit as usize;
        let next = progress::shown("listing", || {
            loop {
                let left = limit - blocks.len();
                query.blocks_max = u32::try_from(left).unwrap_or(u32::MAX).min(1_000);
                let page = session.run(|client| client.list(&query))?;
                let got = page.blocks.len().min(left);
                // Several servers may give more than one does.
                let is_cut = got < page.blocks.len();
                blocks.extend(page.blocks.into_iter().take(got));
                let last = || blocks.last().map(|(key, _)| key.clone());
                match page.next {
                    _ if is_cut => return anyhow::Ok(last()),
                    None => return Ok(None),
                    Some(next) if blocks.len() == limit => return Ok(Some(next)),
                    Some(next) => query.after = Some(next),
                }
            }
        })?;
        if self.servers.json() {
            let rows = blocks.iter().map(|(key, info)| BlockRow::new(key, info));
            return output::print_json(&Page {
                blocks: rows.collect(),
                next: next.as_ref().map(BlockRow::of_key),
            });
        }
        print(&blocks)?;
        if let Some(next) = next {
            let (dataset, name) = (next.dataset(), block::name(&next));
            output::tell(&format!(
                "baro: there may be more, after {} {}: --limit, --after\n",
                output::plain(dataset),
                output::plain(&name)
            ));
        }
        Ok(())
    }

    fn query(&self) -> anyhow::Result<ListQuery> {
        let name = self.name.clone().unwrap_or_default();
        if self.dataset.len() > DATASET_BYTES_MAX || name.len() > NAME_BYTES_MAX {
            let text = format!(
                "a dataset has a name of at most {DATASET_BYTES_MAX} bytes, a block one of {NAME_BYTES_MAX}"
            );
            return Err(Usage(text).into());
        }
        let after = match &self.after[..] {
            [dataset, name] => {
                let dataset = dataset.to_str().unwrap_or_default();
                Some(block::key(dataset, name, self.numbered)?)
            }
            _ => None,
        };
        Ok(ListQuery {
            dataset: self.dataset.clone(),
            name: name.as_bytes().to_vec(),
            after,
            blocks_max: 0,
        })
    }
}

fn print(blocks: &[(BlockKey, BlockInfo)]) -> anyhow::Result<()> {
    if blocks.is_empty() {
        return output::print("no blocks\n");
    }
    let cells = |(key, info): &(BlockKey, BlockInfo)| {
        vec![
            key.dataset().to_owned(),
            block::name(key),
            format::number(info.bytes as f64, "bytes"),
            info.version.to_string(),
            info.epoch.to_string(),
            block::state(info).to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = blocks.iter().map(cells).collect();
    let headings = ["DATASET", "NAME", "SIZE", "VERSION", "EPOCH", "STATE"];
    output::print_table(&headings, &[2, 3, 4], &rows)
}
