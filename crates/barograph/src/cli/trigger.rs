//! `baro trigger`: the older words for `baro call` and `baro rule`, which do the work.

use clap::{Args, Subcommand};

use super::rule::{DropRule, MakeRule};
use super::{Target, call, rule};

/// Arguments of `baro trigger`.
#[derive(Args)]
pub(super) struct Trigger {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The older words for `baro call fire`
    Fire(Box<call::Fire>),
    /// The older words for `baro call list`
    List {
        #[command(flatten)]
        target: Target,
    },
    /// The older words for `baro rule create`
    Create(MakeRule),
    /// The older words for `baro rule drop`
    Drop(DropRule),
    /// The older words for `baro rule list`
    Declared {
        #[command(flatten)]
        target: Target,
    },
}

impl Trigger {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Fire(fire) => fire.run(),
            Verb::List { target } => call::list(&target, "triggers"),
            Verb::Create(make) => make.run(),
            Verb::Drop(drop) => drop.run(),
            Verb::Declared { target } => rule::list(&target),
        }
    }
}
