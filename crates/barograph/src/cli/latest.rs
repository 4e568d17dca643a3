//! `baro latest`: prints the newest values, from shared memory.

use barograph_client::LatestValue;
use barograph_model::Quality;
use clap::Args;

use super::{NodeTarget, format, output, selector};

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
        let values = match self.predicted {
            true => observer.latest_predicted(&selector),
            false => observer.latest(&selector),
        };
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
