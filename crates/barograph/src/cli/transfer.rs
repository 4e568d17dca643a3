//! `baro transfer`: copies, moves and deletes one file, as rules do with `COPY`, `MOVE` and
//! `DELETE`. The agent runs it for them.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use barograph_action::{
    ActionFields, FileTransfer, PlaceTemplate, TRANSFER_TASK_BYTES_MAX, TransferTask, TransferVerb,
};
use barograph_agent::Config;
use barograph_transfer::{TransferFault, check_store, transfer};
use clap::{Args, Subcommand};

use super::{TryAgain, Usage, output};

/// Arguments of `baro transfer`.
#[derive(Args)]
pub(super) struct Transfer {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Copy a file: baro transfer copy /data/a.tif lab:a.tif --config barograph.toml
    Copy(Places),
    /// Move a file; within one file system it is renamed
    Move(Places),
    /// Delete a file
    Delete(Place),
    /// Check the address and the credentials of each store of a configuration, without a
    /// connection
    Check {
        /// Configuration file with [action.stores.NAME]
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Do the transfer that the agent writes to the standard input
    #[command(hide = true)]
    Task,
}

/// A file and its new place.
#[derive(Args)]
struct Places {
    /// The file: an absolute path, or STORE:NAME
    from: String,
    /// The place of the copy: an absolute path, or STORE:NAME
    to: String,
    /// Configuration file with [action.stores.NAME]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A file.
#[derive(Args)]
struct Place {
    /// The file: an absolute path, or STORE:NAME
    file: String,
    /// Configuration file with [action.stores.NAME]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Transfer {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Copy(places) => places.run(TransferVerb::Copy),
            Verb::Move(places) => places.run(TransferVerb::Move),
            Verb::Delete(place) => {
                let task = task(TransferVerb::Delete, (&place.file, None), place.config)?;
                carry_out(&task)
            }
            Verb::Check { config } => check(config),
            Verb::Task => {
                let mut text = String::new();
                let input = std::io::stdin().take(TRANSFER_TASK_BYTES_MAX as u64);
                let read = { input }.read_to_string(&mut text);
                read.context("cannot read the task")?;
                let task = serde_json::from_str(&text);
                carry_out(&task.map_err(|error| Usage(format!("no task: {error}")))?)
            }
        }
    }
}

impl Places {
    fn run(self, verb: TransferVerb) -> anyhow::Result<()> {
        carry_out(&task(verb, (&self.from, Some(&self.to)), self.config)?)
    }
}

fn task(
    verb: TransferVerb,
    (from, to): (&str, Option<&str>),
    config: Option<PathBuf>,
) -> anyhow::Result<TransferTask> {
    // Names on a command line have no fields.
    let place = |text: &str| {
        let literal = text.replace('{', "{{").replace('}', "}}");
        let place = PlaceTemplate::parse(&literal);
        let place = place.map_err(|fault| Usage(fault.to_string()))?;
        anyhow::Ok(place.fill(&ActionFields::default()))
    };
    let stores = config.map(|path| Config::read(&path)).transpose()?;
    Ok(TransferTask {
        transfer: FileTransfer {
            verb,
            from: place(from)?,
            to: to.map(place).transpose()?,
        },
        key: format!("by hand {from} {}", to.unwrap_or_default()),
        stores: stores
            .map(|config| config.action.stores)
            .unwrap_or_default(),
        tried_since_ns: None,
    })
}

fn carry_out(task: &TransferTask) -> anyhow::Result<()> {
    match transfer(task) {
        Ok(report) => output::print(&format!("{}\n", report.text)),
        Err(TransferFault::Passing(reason)) => Err(TryAgain(reason).into()),
        Err(TransferFault::Lasting(reason)) => Err(anyhow::Error::msg(reason)),
    }
}

fn check(path: PathBuf) -> anyhow::Result<()> {
    let stores = Config::read(&path)?.action.stores;
    if stores.is_empty() {
        anyhow::bail!("{} has no [action.stores.NAME]", path.display());
    }
    let mut faults = Vec::new();
    for (name, store) in &stores {
        match check_store(name, store) {
            Ok(()) => output::print(&format!("{name}: {} can be set up\n", store.url))?,
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(anyhow::Error::msg(faults.join("\n"))),
    }
}
