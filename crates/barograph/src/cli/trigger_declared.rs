//! `baro trigger create|drop|declared`: conditions that the agent watches, and calls that they fire.
//! Making and dropping need the control right.

use barograph_agent::RULES_DOCUMENT;
use clap::Subcommand;
use serde_json::Value as Json;

use super::statement::{carry_out, done, drop_of};
use super::{Target, output, statement};

/// Where statements go.
const STATEMENTS: &str = "/api/v1/triggers";

/// What can be done with declared triggers.
#[derive(Subcommand)]
pub enum Declaring {
    /// Make a trigger: baro trigger create "CREATE TRIGGER calm WHEN max_over('disk.busy.ratio', '10 s') > 0.9 FIRE 'slow.down' COOLDOWN '1 min'"
    Create {
        /// The statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        statement: String,
        #[command(flatten)]
        target: Target,
    },
    /// Drop a trigger, by name or with a DROP TRIGGER statement
    Drop {
        /// Name or statement
        #[arg(allow_hyphen_values = true, value_parser = statement::text)]
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// List the triggers that were made, and how they are
    Declared {
        #[command(flatten)]
        target: Target,
    },
}

impl Declaring {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create { statement, target } => {
                let made = carry_out(&target, STATEMENTS, &statement)?;
                done(&target, &made, &format!("created {}", text(&made, "name")))
            }
            Self::Drop { name, target } => {
                let dropped = carry_out(&target, STATEMENTS, &drop_of("TRIGGER", &name))?;
                done(&target, &dropped, &format!("dropped {}", name.trim()))
            }
            Self::Declared { target } => list(&target),
        }
    }
}

fn text(json: &Json, key: &str) -> String {
    json[key].as_str().unwrap_or_default().to_owned()
}

fn list(target: &Target) -> anyhow::Result<()> {
    let document = target.run_dir().document(RULES_DOCUMENT)?;
    let triggers: Vec<Json> = match document {
        Some(bytes) => serde_json::from_slice(&bytes)?,
        None => Vec::new(),
    };
    if target.json {
        return output::print_json(&Json::from(triggers));
    }
    let row = |t: &Json| {
        let reason = match (text(t, "reason"), text(t, "help")) {
            (reason, help) if reason.is_empty() => help,
            (reason, _) => reason,
        };
        vec![
            text(t, "name"),
            text(t, "state"),
            t["subjects"].to_string(),
            t["holding"].to_string(),
            t["fired"].to_string(),
            text(t, "call"),
            reason,
        ]
    };
    let rows: Vec<Vec<String>> = triggers.iter().map(row).collect();
    output::print_table(
        &[
            "TRIGGER", "STATE", "SUBJECTS", "HOLDING", "FIRED", "CALL", "WHAT",
        ],
        &[2, 3, 4],
        &rows,
    )
}
