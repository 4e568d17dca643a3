//! `baro streams`: lists streams.

use clap::Args;

use super::{NodeTarget, output, selector};

/// Arguments of `baro streams`.
#[derive(Args)]
pub(super) struct Streams {
    /// Glob over names, optionally with labels: disk.*, filesystem.free.bytes{tier=ssd}
    #[arg(default_value = "*")]
    pattern: String,
    #[command(flatten)]
    node: NodeTarget,
}

impl Streams {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let observer = self.node.observer()?;
        let selector = selector(&self.pattern, &[])?;
        let streams = observer.streams(&selector);
        if streams.is_empty() && selector.name.is_literal() {
            return Err(observer.unknown(&selector).into());
        }
        if self.node.target.json {
            return output::print_json(&barograph_client::streams_json(&streams));
        }
        let rows: Vec<Vec<String>> = streams
            .iter()
            .map(|s| {
                let d = &s.descriptor;
                vec![
                    d.to_string(),
                    d.value_type.as_str().into(),
                    d.kind.as_str().into(),
                    d.unit.to_string(),
                    s.samples.to_string(),
                    d.help.clone(),
                ]
            })
            .collect();
        output::print_table(
            &["STREAM", "TYPE", "KIND", "UNIT", "SAMPLES", "WHAT"],
            &[4],
            &rows,
        )
    }
}
