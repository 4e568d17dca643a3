//! `baro knob`: sets and lists knobs of running programs.

use barograph_agent::{KNOBS_DOCUMENT, KnobsRow};
use barograph_model::{Pattern, Selector, Value};
use clap::{Args, Subcommand};
use serde_json::{Map, Value as Json, json};

use super::call::CallOptions;
use super::documents::{DocumentRow, rows_of_scopes};
use super::{Target, Usage, output};

/// Arguments of `baro knob`.
#[derive(Args)]
pub(super) struct Knob {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the knobs of running programs, with their bounds and values
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Set a knob: baro knob set lulesh.dt 0.5 --target rank=0
    Set(Box<Set>),
}

#[derive(Args)]
struct Set {
    /// Name of the knob, with its publication
    #[arg(value_name = "PUBLICATION.KNOB")]
    name: String,
    /// A number, true or false
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// Set it in every process at the end of this frame of its publication: a number, or +K for K
    /// frames after the newest known frame of all of them
    #[arg(long, value_name = "N|+K")]
    at_frame: Option<String>,
    #[command(flatten)]
    meant: CallOptions,
    #[command(flatten)]
    target: Target,
}

impl Knob {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::List { target } => list(&target),
            Verb::Set(set) => set.run(),
        }
    }
}

impl Set {
    fn run(&self) -> anyhow::Result<()> {
        let value: Json = match serde_json::from_str(&self.value) {
            Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
            _ => {
                let wrong = format!("{:?} is no number, true or false", self.value);
                return Err(Usage(wrong).into());
            }
        };
        let mut body = Map::new();
        body.insert("name".into(), json!(self.name));
        body.insert("knob".into(), json!(true));
        body.insert("payload".into(), value);
        if let Some(at_frame) = &self.at_frame {
            body.insert("at_frame".into(), json!(self.frame(at_frame)?));
        }
        self.meant.call(&self.target, body)
    }

    /// The frame number that `N` or `+K` gives.
    fn frame(&self, text: &str) -> anyhow::Result<u64> {
        let (digits, is_ahead) = match text.strip_prefix('+') {
            Some(ahead) => (ahead, true),
            None => (text, false),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_| Usage(format!("{text:?} is no frame: give its number, or +K")))?;
        if !is_ahead {
            return Ok(number);
        }
        let newest = self.newest_frame()?;
        Ok(newest.saturating_add(number))
    }

    /// The newest frame of the publication in the matching processes, as far as streams show it.
    fn newest_frame(&self) -> anyhow::Result<u64> {
        let publication = self.name.rsplit_once('.').map_or("", |(of, _)| of);
        let stream = format!("app.{publication}.frame");
        let wanted = Selector {
            name: Pattern::new(&*stream),
            labels: Vec::new(),
        };
        let meant = self.meant.labels()?;
        let streams = self.target.observer()?.latest(&wanted).into_iter();
        let is_meant = |labels: &barograph_model::Labels| {
            let differs = |(name, value): (&str, &str)| {
                meant.get(name).is_some_and(|wanted| *wanted != value)
            };
            !labels.iter().any(differs)
        };
        let of_meant = streams.filter(|latest| is_meant(&latest.descriptor.labels));
        let numbers = of_meant.filter_map(|latest| match latest.sample?.value {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        });
        numbers.max().ok_or_else(|| {
            anyhow::anyhow!(
                "no frame of {publication} is known ({stream}): give --at-frame a number"
            )
        })
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let knobs: Vec<DocumentRow<KnobsRow>> = rows_of_scopes(target, KNOBS_DOCUMENT)?;
    if target.json {
        return output::print_json(&knobs);
    }
    if knobs.is_empty() {
        return output::print("no program that you may see has knobs now\n");
    }
    let number = |value: &Json| match value {
        Json::Null => String::new(),
        value => value.to_string(),
    };
    let row = |knob: &DocumentRow<KnobsRow>| {
        vec![
            format!("{}.{}", knob.publication, knob.name),
            number(&knob.value),
            number(&knob.min),
            number(&knob.max),
            knob.unit.clone(),
            knob.application.clone(),
            knob.pid.to_string(),
            knob.user.clone(),
            knob.help.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = knobs.iter().map(row).collect();
    output::print_table(
        &[
            "KNOB",
            "VALUE",
            "MIN",
            "MAX",
            "UNIT",
            "APPLICATION",
            "PID",
            "USER",
            "WHAT",
        ],
        &[1, 2, 3, 6],
        &rows,
    )
}
