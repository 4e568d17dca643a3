//! `baro trigger`: what the agent calls in running programs.

use clap::{Args, Subcommand};

use super::trigger_declared::Declared;

/// Arguments of `baro trigger`.
#[derive(Args)]
pub struct Trigger {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Declared(Declared),
}

impl Trigger {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Declared(declared) => declared.run(),
        }
    }
}
