//! `baro watch`: follows streams as they change, one line per sample.

use std::time::Duration;

use clap::Args;

use super::{NodeTarget, format, output, selector};

/// Longest wait before the command checks whether it should end.
const SLICE: Duration = Duration::from_millis(500);

/// Arguments of `baro watch`.
#[derive(Args)]
pub(super) struct Watch {
    /// Name or glob: disk.busy.ratio, filesystem.*
    name: String,
    /// Labels that must match: device=vda
    #[arg(value_name = "LABEL=VALUE")]
    labels: Vec<String>,
    /// End after this many samples
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    node: NodeTarget,
}

impl Watch {
    /// Runs the command until its count is reached or its output closed.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let selector = selector(&self.name, &self.labels)?;
        let (observer, mut demand) = self.node.followed(&selector)?;
        let is_to_come = demand.is_some() || !selector.name.is_literal();
        if !is_to_come && observer.streams(&selector).is_empty() {
            return Err(observer.unknown(&selector).into());
        }
        let mut watch = observer.watch(&selector);
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut alive = true;
        while left > 0 {
            let lives = observer.status().is_ok_and(|s| s.alive);
            if lives != alive {
                alive = lives;
                output::tell(&told(observer.is_mirror().then(|| observer.node()), alive));
            }
            let updates = watch.next(SLICE);
            let has_ended = demand.as_mut().is_some_and(|demand| !demand.is_held());
            if has_ended && updates.is_none() {
                // Another agent may serve this node by now.
                demand = observer.demand(&observer.node(), &selector).ok().or(demand);
            }
            for update in updates.into_iter().flatten() {
                self.print(&update)?;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn print(&self, update: &barograph_client::Update) -> anyhow::Result<()> {
        if self.node.target.json {
            return output::print_json(&json(update));
        }
        let (descriptor, sample) = (&update.descriptor, &update.sample);
        let time = jiff::Timestamp::from_nanosecond(i128::from(sample.ts))?;
        let lost = match update.lost {
            0 => String::new(),
            n => format!("  ({n} samples before it were lost)"),
        };
        let value = format::value(&sample.value, descriptor.unit.as_str());
        let line = format!("{time:.3}  {descriptor}  {value}{lost}");
        output::print(&format!("{}\n", output::plain(&line)))
    }
}

/// The line for a change of what is heard: of the agent, or of another node by its name.
fn told(node: Option<String>, alive: bool) -> String {
    let line = match (node, alive) {
        (None, true) => "the agent is back".into(),
        (None, false) => "the agent is dead, waiting for the next".into(),
        (Some(node), true) => format!("{node} is heard again"),
        (Some(node), false) => format!("nothing is heard of {node}, waiting for it"),
    };
    format!("baro: {line}\n")
}

/// A line of `--json`: an element of `baro latest --json`, with the number of samples lost before
/// it.
fn json(update: &barograph_client::Update) -> serde_json::Value {
    let (descriptor, sample) = (&update.descriptor, &update.sample);
    let labels: serde_json::Map<_, _> = descriptor
        .labels
        .iter()
        .map(|(n, v)| (n.to_owned(), v.into()))
        .collect();
    serde_json::json!({
        "name": descriptor.name.as_str(),
        "labels": labels,
        "unit": descriptor.unit.as_str(),
        "ts": sample.ts,
        "value": barograph_client::value_json(&sample.value),
        "quality": sample.quality.as_str(),
        "error": sample.error,
        "lost": update.lost,
    })
}
