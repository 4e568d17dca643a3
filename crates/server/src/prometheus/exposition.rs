//! The exposition of all streams, in Prometheus' text format 0.0.4 and in OpenMetrics 1.0.
//!
//! A stream whose resource has not been looked at for too long is left out: a scraper must never
//! take an old value for a new one.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use barograph_model::{NS_PER_S, TEXT_BYTES_MAX, Value, text_start};
use barograph_stream::LatestSample;

use super::names::{self, ExposedName, MetricType};
use crate::RequestCounts;
use crate::view::{ServedStream, ServedView};

/// Number of expected intervals without a look after which a stream is old…
const OLD_INTERVALS: i64 = 3;
/// …but it is never old before this time.
const OLD_NS_MIN: i64 = 10 * NS_PER_S;

/// Format of the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that an `Accept` header asks for: OpenMetrics if it is preferred, else the text
    /// format.
    pub(crate) fn of(accept: Option<&str>) -> Self {
        let (mut text, mut open) = (0.0, 0.0);
        for part in accept.unwrap_or_default().split(',') {
            let mut words = part.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default();
            let (mut weight, mut known) = (1.0f64, true);
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                match name.trim() {
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    "version" => known = matches!(value.trim(), "1.0.0" | "0.0.1" | "0.0.4"),
                    _ => {}
                }
            }
            match kind {
                "application/openmetrics-text" if known => open = weight.max(open),
                "text/plain" | "text/*" | "*/*" if known => text = weight.max(text),
                _ => {}
            }
        }
        if open > 0.0 && open >= text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The content type of the answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The name of the metric family: in OpenMetrics, a counter's without its suffix `_total`.
    fn family(self, name: &str, kind: MetricType) -> &str {
        match (self, kind) {
            (Self::OpenMetrics, MetricType::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        }
    }

    fn write_head(self, out: &mut String, family: &str, help: &str, kind: MetricType) {
        let unsaid = match self {
            Self::Text => "untyped",
            Self::OpenMetrics => "unknown",
        };
        let _ = write!(out, "# HELP {family} ");
        escape(out, help, self == Self::OpenMetrics);
        let _ = write!(out, "\n# TYPE {family} {}\n", kind.as_str(unsaid));
    }
}

#[derive(Debug)]
struct Family {
    kind: MetricType,
    help: String,
    seen: HashSet<String>,
    lines: String,
}

/// The exposition of a view at `now_ns`.
pub(crate) fn exposition(
    view: &ServedView,
    now_ns: i64,
    counts: RequestCounts,
    format: Format,
) -> String {
    let node = view.segment().node();
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut old, mut conflicting) = (0u64, 0u64);
    for stream in &view.streams {
        if !names::has_place(stream.entry.descriptor.value_type) {
            continue;
        }
        let LatestSample::Sample {
            sample, looked_ns, ..
        } = stream.handle.latest()
        else {
            continue;
        };
        if is_old(stream, looked_ns, now_ns) {
            old += 1;
            continue;
        }
        let descriptor = &stream.entry.descriptor;
        let exposed = names::exposed(&node, descriptor);
        let family = format.family(&exposed.name, exposed.kind);
        let family = families.entry(family.into()).or_insert_with(|| Family {
            kind: exposed.kind,
            help: descriptor.help.clone(),
            seen: HashSet::new(),
            lines: String::new(),
        });
        let labels = labels_of(&exposed);
        if family.kind != exposed.kind || !family.seen.insert(labels.clone()) {
            conflicting += 1;
            continue;
        }
        write_sample(&mut family.lines, &exposed, labels, &sample.value);
    }
    let mut out = String::new();
    for (name, family) in &families {
        format.write_head(&mut out, name, &family.help, family.kind);
        out.push_str(&family.lines);
    }
    write_own(
        &mut out,
        &node,
        counts,
        [("old", old), ("conflict", conflicting)],
        format,
    );
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// Whether a stream with this time of the last look is too old to be shown as current.
pub(crate) fn is_old(stream: &ServedStream, looked_ns: i64, now_ns: i64) -> bool {
    let old_after_ns = stream
        .interval_ns()
        .saturating_mul(OLD_INTERVALS)
        .max(OLD_NS_MIN);
    now_ns.saturating_sub(looked_ns) > old_after_ns
}

/// Labels like `device="vda",node="n1"`.
fn labels_of(exposed: &ExposedName) -> String {
    let mut out = String::new();
    for (name, value) in exposed.pairs() {
        write_label(&mut out, name, value);
    }
    out
}

fn write_label(out: &mut String, name: &str, value: &str) {
    let comma = if out.is_empty() { "" } else { "," };
    let _ = write!(out, "{comma}{name}=\"");
    escape(out, value, true);
    out.push('"');
}

fn write_sample(out: &mut String, exposed: &ExposedName, mut labels: String, value: &Value) {
    if let (Value::Text(text), Some(label)) = (value, &exposed.text_label) {
        // A label value must not be a long text.
        write_label(&mut labels, label, text_start(text, TEXT_BYTES_MAX));
    }
    let _ = write!(out, "{}{{{labels}}} ", exposed.name);
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Int(v) if exposed.is_as_measured() => writeln!(out, "{v}"),
        Value::Text(_) => writeln!(out, "1"),
        Value::Bytes(_) | Value::Json(_) | Value::Floats(_) => return,
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
            let number = exposed.scaled(value.as_f64().unwrap_or(f64::NAN));
            writeln!(
                out,
                "{}",
                number_text(number, matches!(value, Value::Float(_)))
            )
        }
    };
}

/// Writes a number as Prometheus reads it; an integer or flag is written without a fraction.
fn number_text(v: f64, fraction: bool) -> String {
    if v.is_nan() {
        "NaN".into()
    } else if v.is_infinite() {
        if v > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        }
    } else if fraction {
        format!("{v:?}")
    } else {
        v.to_string()
    }
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// Writes the server's own metrics. Two underscores keep their names apart from those of streams,
/// whose names begin with a letter.
fn write_own(
    out: &mut String,
    node: &str,
    counts: RequestCounts,
    left_out: [(&str, u64); 2],
    format: Format,
) {
    let mut node_label = String::new();
    write_label(&mut node_label, "node", node);
    let name = "barograph__metrics_left_out_streams";
    let help = "Streams that have a sample and are not shown here, by reason.";
    format.write_head(out, name, help, MetricType::Gauge);
    for (reason, n) in left_out {
        let _ = writeln!(out, "{name}{{{node_label},reason=\"{reason}\"}} {n}");
    }
    let watchers = (
        "watchers",
        MetricType::Gauge,
        "Watchers connected.",
        counts.watchers,
    );
    let counters = [
        (
            "refused_connections_total",
            "Connections refused for lack of room.",
            counts.refused_connections,
        ),
        (
            "refused_watchers_total",
            "Watchers refused for lack of room.",
            counts.refused_watchers,
        ),
        (
            "skipped_ticks_total",
            "Ticks that watchers were too slow for.",
            counts.skipped_ticks,
        ),
    ];
    let counters = counters.map(|(name, help, n)| (name, MetricType::Counter, help, n));
    for (name, kind, help, n) in std::iter::once(watchers).chain(counters) {
        let name = format!("barograph__server_{name}");
        format.write_head(out, format.family(&name, kind), help, kind);
        let _ = writeln!(out, "{name}{{{node_label}}} {n}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let check =
            |accept: Option<&str>, expect| assert_eq!(Format::of(accept), expect, "{accept:?}");
        check(None, Format::Text);
        check(Some("*/*"), Format::Text);
        check(
            Some("text/html,application/xhtml+xml,*/*;q=0.8"),
            Format::Text,
        );
        check(Some("application/openmetrics-text"), Format::OpenMetrics);
        check(
            Some("application/openmetrics-text; version=2.0.0"),
            Format::Text,
        );
        check(Some("application/openmetrics-text;q=0"), Format::Text);
        check(
            Some("text/plain, application/openmetrics-text;q=0.5"),
            Format::Text,
        );
        // The headers that Prometheus 2.42 and 3 send.
        check(
            Some(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            Format::OpenMetrics,
        );
        check(
            Some(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            ),
            Format::OpenMetrics,
        );
    }
}
