//! `baro latest`: the newest values, from shared memory.

use clap::Args;

use super::{Target, format, output, selector};

/// Arguments of `baro latest`.
#[derive(Args)]
pub struct Latest {
    /// Name or glob: disk.busy.ratio, filesystem.*
    name: String,
    /// Labels that must match: device=vda
    #[arg(value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Latest {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        let observer = self.target.observer()?;
        let selector = selector(&self.name, &self.labels)?;
        let values = observer.latest(&selector);
        if values.is_empty() {
            return Err(observer.unknown(&selector).into());
        }
        if self.target.json {
            return output::print_json(&barograph_client::latest_json(&values));
        }
        let rows: Vec<Vec<String>> = values
            .iter()
            .map(|v| {
                let unit = v.descriptor.unit.as_str();
                let (value, quality) = match &v.sample {
                    Some(sample) => (format::value(&sample.value, unit), sample.quality.as_str()),
                    None => ("-".into(), "no sample yet"),
                };
                let age = if v.sample.is_some() {
                    format::age(v.age_ns)
                } else {
                    "-".into()
                };
                let old = if v.stale { "old" } else { "" };
                vec![
                    v.descriptor.to_string(),
                    value,
                    quality.into(),
                    age,
                    old.into(),
                ]
            })
            .collect();
        output::print_table(&["STREAM", "VALUE", "QUALITY", "AGE", ""], &[1, 3], &rows)
    }
}
