//! The coverage of forecasts as a stream, that is, how often the true value lay within the error.
//! The stream is called `forecast.coverage.ratio` and has the labels of the forecast stream, its
//! name as the label `stream`, and the horizon in seconds as `horizon`.

use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Quality, Sample, Sink as _, Unit, Value, ValueType,
};

use super::Followed;
use crate::Streams;

const NAME: &str = "forecast.coverage.ratio";
/// Time between two samples of the coverage.
const TELL_NS: i64 = 10 * NS_PER_S;
/// Number of compared forecasts from which the coverage is published.
const COMPARED_MIN: u32 = 32;
/// Most coverage streams in one segment.
const STREAMS_MAX: usize = 1_024;
/// Samples in the ring of a coverage stream.
const DEPTH: u32 = 64;

/// The time of the last publication of coverages, and the number of their streams.
#[derive(Debug, Default)]
pub(super) struct Coverages {
    told_ns: Option<i64>,
    streams: usize,
}

impl Coverages {
    /// Whether coverages are due; if so, notes `now_ns` as the time of the last publication.
    pub(super) fn are_due(&mut self, now_ns: i64) -> bool {
        let due = |told_ns: i64| now_ns.abs_diff(told_ns) >= TELL_NS.unsigned_abs();
        let are_due = self.told_ns.is_none_or(due);
        if are_due {
            self.told_ns = Some(now_ns);
        }
        are_due
    }

    /// Publishes the coverage of each horizon for which enough forecasts were compared.
    pub(super) fn tell(&mut self, followed: &mut Followed, now_ns: i64, streams: &mut Streams<'_>) {
        let Some(cascade) = &followed.cascade else {
            return;
        };
        for coverage in cascade.coverage().filter(|c| c.compared >= COMPARED_MIN) {
            let key = match followed.coverage.get(&coverage.horizon_ns) {
                Some(key) => *key,
                None if self.streams >= STREAMS_MAX => continue,
                None => {
                    let of = descriptor(&followed.name, &followed.labels, coverage.horizon_ns);
                    let key = of.and_then(|of| streams.declare(&of, Some(DEPTH)));
                    if let Some(key) = key {
                        streams.expect_interval(key, TELL_NS);
                        self.streams += 1;
                    }
                    // A stream that could not be declared is not tried again.
                    followed.coverage.insert(coverage.horizon_ns, key);
                    key
                }
            };
            if let Some(key) = key {
                streams.look(key, &derived(now_ns, coverage.share));
            }
        }
    }

    /// Retires the coverage streams of a stream that is gone.
    pub(super) fn stream_removed(&mut self, gone: &Followed, streams: &mut Streams<'_>) {
        for key in gone.coverage.values().copied().flatten() {
            streams.retire(key);
            self.streams = self.streams.saturating_sub(1);
        }
    }
}

fn derived(ts: i64, share: f64) -> Sample {
    Sample {
        ts,
        value: Value::Float(share),
        quality: Quality::Derived,
        error: 0.0,
    }
}

/// The descriptor of a coverage stream; none if there are too many labels, or if the labels
/// `stream` or `horizon` exist already.
fn descriptor(of: &Name, labels: &Labels, horizon_ns: i64) -> Option<Descriptor> {
    let seconds = (horizon_ns as f64 / NS_PER_S as f64).to_string();
    let own = [("stream", of.as_str()), ("horizon", &seconds)];
    if own.iter().any(|(name, _)| labels.get(name).is_some()) {
        return None;
    }
    let labels: Vec<(&str, &str)> = labels.iter().chain(own).collect();
    Some(Descriptor {
        name: Name::new(NAME).ok()?,
        labels: Labels::new(labels).ok()?,
        value_type: ValueType::Float,
        unit: Unit::new("ratio").ok()?,
        kind: Kind::Gauge,
        help: "Share of recent values that were within the error of their forecast, which was made as many seconds before as the label horizon states."
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_stream_and_its_horizon() {
        let name = Name::new("disk.read.bytes").unwrap();
        let of = |labels: &[(&str, &str)], horizon_ns| {
            let labels = Labels::new(labels.iter().copied()).unwrap();
            descriptor(&name, &labels, horizon_ns).map(|d| d.to_string())
        };
        for (horizon_ns, seconds) in [
            (64 * NS_PER_S, "64"),
            (NS_PER_S / 5, "0.2"),
            (1_000_000, "0.001"),
        ] {
            let expect = format!("{NAME}{{device=sda,horizon={seconds},stream=disk.read.bytes}}");
            assert_eq!(of(&[("device", "sda")], horizon_ns), Some(expect));
        }
        assert_eq!(of(&[("stream", "x")], 1), None);
    }
}
