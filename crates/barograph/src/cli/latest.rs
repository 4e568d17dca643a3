//! `baro latest`: prints the newest values, from shared memory.

use std::time::Duration;

use barograph_client::{LatestValue, Watch};
use barograph_model::Quality;
use clap::Args;

use super::{NodeTarget, format, output, selector};

/// Time between two looks at streams that are to come.
const SLICE: Duration = Duration::from_millis(250);
/// Most looks at streams that are to come.
const SLICES_MAX: usize = 20;

/// Arguments of `baro latest`.
#[derive(Args)]
pub(super) struct Latest {
    /// Name or glob: disk.busy.ratio, filesystem.*
    name: String,
    /// Labels that must match: device=vda
    #[arg(value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    /// For a stream with a forecast, show the value predicted for now, between its looks, and its
    /// error
    #[arg(long)]
    predicted: bool,
    #[command(flatten)]
    node: NodeTarget,
}

impl Latest {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let observer = self.node.observer()?;
        let selector = selector(&self.name, &self.labels)?;
        let values = || match self.predicted {
            true => observer.latest_predicted(&selector),
            false => observer.latest(&selector),
        };
        let mut found = values();
        if found.is_empty()
            && let Some(_demand) = self.node.demand(&observer, &selector)
        {
            wait(&mut observer.watch(&selector));
            found = values();
        }
        let values = found;
        if values.is_empty() {
            return Err(observer.unknown(&selector).into());
        }
        if self.node.target.json {
            return output::print_json(&barograph_client::latest_json(&values));
        }
        let mut rows: Vec<Vec<String>> = values.iter().map(row).collect();
        let mut headings = vec!["STREAM", "VALUE", "QUALITY", "AGE", ""];
        let mut right = vec![1, 3];
        if self.predicted {
            headings.insert(2, "WITHIN");
            right = vec![1, 2, 4];
            for (row, value) in rows.iter_mut().zip(&values) {
                row.insert(2, within(value));
            }
        }
        output::print_table(&headings, &right, &rows)
    }
}

/// Waits until streams that were demanded have come, and no more of them do.
fn wait(watch: &mut Watch) {
    let mut known = 0;
    for _ in 0..SLICES_MAX {
        let _ = watch.next(SLICE);
        let streams = watch.streams().len();
        if streams > 0 && streams == known {
            return;
        }
        known = streams;
    }
}

fn row(v: &LatestValue) -> Vec<String> {
    let unit = v.descriptor.unit.as_str();
    let (value, quality) = match &v.sample {
        Some(sample) => (format::value(&sample.value, unit), sample.quality.as_str()),
        None => ("-".into(), "no sample yet"),
    };
    let age = match v.sample {
        Some(_) => format::age(v.age_ns),
        None => "-".into(),
    };
    let old = if v.stale { "old" } else { "" };
    vec![
        v.descriptor.to_string(),
        value,
        quality.into(),
        age,
        old.into(),
    ]
}

/// The error of a predicted value.
fn within(v: &LatestValue) -> String {
    match &v.sample {
        Some(sample) if sample.quality == Quality::Predicted => {
            format::error(sample.error, v.descriptor.unit.as_str())
        }
        _ => "-".into(),
    }
}
