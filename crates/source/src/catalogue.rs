//! A catalogue of all sources, known without reading anything: the source of each metric, and the
//! cost of a source that is off.

use crate::sources::TABLE;
use crate::{FactSpec, MissingPart, SourceReport, SourceState};

/// The entry of one source in the table of sources.
#[derive(Clone, Copy, Debug)]
pub struct SourceSpec {
    /// Name of the source in the configuration, in reports and in labels.
    pub name: &'static str,
    /// Usual interval, in milliseconds.
    pub interval_ms: u64,
    /// Whether the source is read unless the configuration overrides it.
    pub usual: bool,
    /// The facts that the source can give: one table for each kind of thing that it reads.
    pub facts: &'static [&'static [FactSpec]],
}

/// All sources, in the order of the table.
pub fn catalogue() -> impl Iterator<Item = SourceSpec> {
    TABLE.iter().map(|entry| SourceSpec {
        name: entry.name,
        interval_ms: entry.interval_ms,
        usual: entry.usual,
        facts: entry.facts,
    })
}

/// The source that has a metric, by the metric's dotted name.
pub fn source_of(metric: &str) -> Option<&'static str> {
    let gives = |spec: &SourceSpec| {
        spec.facts
            .iter()
            .copied()
            .flatten()
            .any(|f| f.name == metric)
    };
    catalogue().find(gives).map(|spec| spec.name)
}

/// The cost of reading a source that is usually off, in words.
pub fn cost_of(source: &str) -> &'static str {
    match source {
        "block_trace" => {
            "two events for each request of a disk, 2 to 5 us of a core each; see block_trace.cost.seconds"
        }
        "file_trace" => "about 10 us of a core for each open file at each poll",
        "bmc" => "a program is run for each poll, and the controller takes up to seconds to answer",
        "beegfs" => {
            "each node on which it is on asks every server, so switch it on at one node of a cluster"
        }
        _ => "one more source to read",
    }
}

/// The facts that a source that is usually off would give, in words.
fn gives_of(source: &str) -> &'static str {
    match source {
        "block_trace" => {
            "latency quantiles of single requests to disks (source disk has only quantiles of means), and the hottest extents"
        }
        "file_trace" => "the parts of files that processes read and write",
        "bmc" => "power of the whole node, as its management controller measures it",
        "beegfs" => "load of the BeeGFS servers",
        _ => "its streams (docs/reference/sources.md)",
    }
}

/// The way to switch on a source that is off, in words.
fn switch_of(source: &str) -> String {
    let line = format!("sources.poll.{source}.enabled = true");
    match source {
        "block_trace" => format!(
            "{line} in the configuration, and sources.block_trace.mode = \"auto\" for a bounded cost; or baro up --block-trace auto"
        ),
        _ => format!("{line} in the configuration"),
    }
}

/// The reports of the running sources, followed by those of the sources that are off.
pub fn with_those_that_are_off(reports: &[SourceReport]) -> Vec<SourceReport> {
    let is_off = |spec: &SourceSpec| reports.iter().all(|report| report.source != spec.name);
    let off = catalogue()
        .filter(is_off)
        .map(|spec| SourceReport::off(&spec));
    reports.iter().cloned().chain(off).collect()
}

impl SourceReport {
    /// The report of a source that is off: what it would give, what that costs, and how it is
    /// switched on.
    pub fn off(spec: &SourceSpec) -> Self {
        let off = MissingPart::new(
            gives_of(spec.name),
            format!("it is off; it costs: {}", cost_of(spec.name)),
            switch_of(spec.name),
        );
        Self {
            source: spec.name,
            state: SourceState::Off,
            sees: String::new(),
            streams: 0,
            missing: vec![off],
            polls: 0,
            errors: 0,
            cost_ns_mean: 0,
            interval_ns: 0,
            pace: None,
            last_error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_its_source() {
        assert_eq!(source_of("disk.read.bytes"), Some("disk"));
        assert_eq!(source_of("memory.total.bytes"), Some("memory"));
        assert_eq!(source_of("no.such.bytes"), None);
        for spec in catalogue() {
            for fact in spec.facts.iter().copied().flatten() {
                assert_eq!(source_of(fact.name), Some(spec.name), "{}", fact.name);
            }
        }
    }
}
